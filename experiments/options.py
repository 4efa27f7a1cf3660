"""The parser of training, and options that Lightning does not understand as they are meant."""

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
    """`ddp_spatial` by its class, so that options such as `--trainer.strategy.lat` go with it."""
    found, flag = [str(argument) for argument in arguments], "--trainer.strategy"
    if not any(argument.startswith(f"{flag}.") for argument in found):
        return found  # Lightning knows the name
    path = f"{SpatialStrategy.__module__.rpartition('.')[0]}.{SpatialStrategy.__name__}"
    for n, argument in enumerate(found):
        if argument == f"{flag}={_SPATIAL}":
            found[n] = f"{flag}={path}"
        elif argument == _SPATIAL and n and found[n - 1] == flag:
            found[n] = path
    return found


def name_after_its_file(protocol: Any) -> None:
    """The parser has read a protocol's file by itself, and knows nothing of names.

    Raises:
        Ens10Error: the file is no protocol.
    """
    path = None if isinstance(protocol, str) else (protocol or {}).get("__path__")
    if path is not None:
        made = protocol_of(path.absolute)
        if protocol["name"] == Protocol.name:  # of no one
            protocol["name"] = made.name
