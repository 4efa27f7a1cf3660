"""The parser of training, and corrections of options that Lightning would misread."""

from collections.abc import Sequence
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser

from ens10.models.parallel import SpatialStrategy
from ens10.protocol import Protocol, protocol_of
from ens10.usage import Parser

_SPATIAL = "ddp_spatial"
FIRST_OPTIONS = (
    "--config", "--data.store", "--run", "--data.target", "--data.inputs", "--data.batch_size",
    "--trainer.max_epochs", "--trainer.accelerator", "--seed_everything", "--resume",
)  # fmt: skip


class StageParser(LightningArgumentParser, Parser):
    """Lightning's parser with the errors of all commands, and the usual options first in help."""

    def format_help(self, *args: Any) -> str:
        """Return the help; that of `ens10 fit` begins with the options that people use first."""
        if self.prog.endswith(" fit"):
            self.usage = "ens10 fit --config FILE --data.store STORE --run RUN [options]"
            usual = [self._option_string_actions[name] for name in FIRST_OPTIONS]
            for group in self._action_groups:
                rest = [action for action in group._group_actions if action not in usual]
                group._group_actions[:] = rest
            group = self.add_argument_group("Options that people use first")
            group._group_actions.extend(usual)
            self._action_groups = [group, *(g for g in self._action_groups if g is not group)]
        return super().format_help(*args)


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
