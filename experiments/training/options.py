"""The parser of training, and corrections of options that Lightning would misread."""

from collections.abc import Sequence
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser

from ens10.models.parallel import SpatialStrategy
from ens10.protocol import Protocol, protocol_of
from ens10.usage import Parser

_SPATIAL = "ddp_spatial"


class StageParser(LightningArgumentParser, Parser):
    """Lightning's parser with the errors of all commands."""


def with_strategy(arguments: Sequence[str]) -> list[str]:
    """Replace `ddp_spatial` by the path of its class if it has options.

    With the path, Lightning's parser accepts options such as `--trainer.strategy.lat`.
    """
    words, flag = [str(argument) for argument in arguments], "--trainer.strategy"
    if not any(argument.startswith(f"{flag}.") for argument in words):
        return words  # Lightning resolves the name
    path = f"{SpatialStrategy.__module__.rpartition('.')[0]}.{SpatialStrategy.__name__}"
    for n, argument in enumerate(words):
        if argument == f"{flag}={_SPATIAL}":
            words[n] = f"{flag}={path}"
        elif argument == _SPATIAL and n and words[n - 1] == flag:
            words[n] = path
    return words


def split_options(arguments: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """Return the other options, and those of a flag such as "--model" after the last `--config`."""
    groups: list[list[str]] = [[]]
    for argument in arguments:
        if argument.startswith("--"):
            groups.append([])
        groups[-1].append(argument)
    last = max(
        (n for n, g in enumerate(groups) if g and g[0].split("=")[0] == "--config"), default=0
    )
    moved = [
        n for n, g in enumerate(groups) if n > last and g[0].split("=")[0].split(".")[0] == flag
    ]
    kept = [word for n, group in enumerate(groups) if n not in moved for word in group]
    return kept, [word for n in moved for word in groups[n]]


def check_protocol(protocol: Any) -> None:
    """Check the fields of a protocol that the parser read, and name it after its file.

    The parser refuses a wrong field with all types that an option may have; this error names it.

    Raises:
        Ens10Error: a field is invalid, or the file is no protocol.
    """
    if protocol is None or isinstance(protocol, str):
        return
    path = protocol.get("__path__")
    if path is not None:
        file_protocol = protocol_of(path.absolute)
        if protocol["name"] == Protocol.name:  # of no one
            protocol["name"] = file_protocol.name
    fields = protocol.as_dict() if hasattr(protocol, "as_dict") else dict(protocol)
    fields.pop("__path__", None)
    protocol_of(fields)
