"""The console script `ens10`: the commands, their options, and the exit status.

Exit status 0 on success, 2 on bad usage, 1 with one clear line on bad input or a full disk, 130
after Ctrl-C, 143 after SIGTERM. This package is the only one under `ens10/` that imports the
experiments, inside its functions.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ens10.cli import apply, data, runs
from ens10.cli.output import print_environment
from ens10.errors import ArgumentError, DataNote, suggestion
from ens10.extras import telling_extras
from ens10.machine_errors import check_memory_limit
from ens10.usage import Command, command_parser, reports_errors


def _stage(name: str, text: str) -> Command:
    def run(words: Sequence[str]) -> None:
        from ens10.experiments.training.run import run_stage

        run_stage(name, words)  # type: ignore[arg-type]

    return Command(text, run, add_options=None)


COMMANDS = {
    **data.COMMANDS,
    "fit": _stage("fit", "train: --config FILE --data.store STORE --run RUN [--resume]"),
    "validate": _stage("validate", "validation scores of a run: --run RUN"),
    "test": _stage("test", "test scores of a run: --run RUN"),
    "predict": _stage("predict", "write a run's predictions: --run RUN"),
    **runs.COMMANDS,
    **apply.COMMANDS,
    "env": Command("versions and machine, for a bug report", print_environment),
}
# what users of other tools try first, by the command that they mean
_OTHER_NAMES = {"train": "fit", "evaluate": "score", "infer": "predict", "convert": "prepare"}
_TRAIN_AND_DRAW = ("demo", "reproduce")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the command line without the program's name; None for that of the process.

    Returns:
        The exit status.
    """
    # before torch is imported: threads of OpenMP that spin starve each other beside other work
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else ""
    extras = ("train", "plot") if name in _TRAIN_AND_DRAW else ()
    check_memory_limit(name)
    _check_python(name)
    try:
        with telling_extras(f"`ens10 {name}`", *extras), _notes_as_lines():
            command, options = parse_command(words)
            status = int(command.run(**options) or 0)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        if not _reader_is_gone():  # another pipe broke, such as that of a worker
            raise
        return 1


def parse_command(words: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """Return a command and its options by name.

    Raises:
        SystemExit: bad usage (2), or help was printed (0).
    """
    name = words[0] if words else ""
    if name not in COMMANDS:
        _explain(name)
    return COMMANDS[name], COMMANDS[name].parse(name, words[1:])


def _explain(word: str) -> NoReturn:
    """Print the help or the version, or that a word is not a command; exit."""
    from ens10 import __version__

    parser = command_parser(
        "ens10",
        "Post-processing of ensemble weather forecasts with the ENS-10 dataset.",
        "fit, validate, test and predict take the options of `ens10 fit --help`.",
    )
    parser.add_argument("--version", action="version", version=f"ens10 {__version__}")
    subcommands = parser.add_subcommands(metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        subcommands.add_subcommand(name, command_parser(name), help=command.help)
    if word.startswith("-"):
        parser.parse_args([word])
    if not word:
        parser.error("a command is required")
    meant = _OTHER_NAMES.get(word, word)
    parser.error(f"{word!r} is not a command{suggestion(meant, list(COMMANDS))}")


def _check_python(command: str) -> None:
    """Refuse `python -O`, with which zarr cannot open a group: its assertions have effects.

    Raises:
        ArgumentError: it is on, and the command may open a store.
    """
    if sys.flags.optimize and command not in ("info", "env"):
        reason = "zarr cannot open stores with it"
        raise ArgumentError("python -O", reason, "Run without -O, and without PYTHONOPTIMIZE")


@contextmanager
def _notes_as_lines() -> Iterator[None]:
    """Print each note on the data once, as one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataNote)
        show, printed = warnings.showwarning, set()

        def show_note(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if not issubclass(category, DataNote):
                show(message, category, *rest)
            elif str(message) not in printed:
                printed.add(str(message))
                print(f"ens10: {message}", file=sys.stderr)

        warnings.showwarning = show_note  # type: ignore[assignment]
        yield


def _reader_is_gone() -> bool:
    """Return True if stdout's reader, such as `head`, closed the pipe; discard further output."""
    try:
        print(flush=True)  # a flush alone does not raise again if the buffer is empty
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
