"""The parser of all commands, and how a command ends: its exit status, and one line on an error."""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentError as ParserError
from jsonargparse import ArgumentParser, Namespace

from ens10.errors import Ens10Error, FileError, printable, suggestion
from ens10.places import check_names
from ens10.signals import end_process, report_interruption, stoppable

_MOST_CHARACTERS = 300


class UsageError(SystemExit):
    """Bad usage of a command, which was printed; the exit status is 2.

    Args:
        line: that was printed.
    """

    def __init__(self, line: str) -> None:
        super().__init__(2)
        self.line = line


class Parser(ArgumentParser):
    """A parser whose errors are two lines and exit status 2, with a suggestion for a wrong name.

    jsonargparse creates parsers of this class also for each class that a configuration names.
    """

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print what is wrong and how to get help; exit with status 2."""
        if not self.exit_on_error:  # of one type among several: another may accept the value
            super().error(message, ex)
        line = self._unknown_option() or (brief(ex) if ex else message)
        program = self._command().prog.replace(" [options]", "")
        line = printable(" ".join(line.split()))
        print(f"ens10: {line}\nTry: {program} --help", file=sys.stderr)
        raise UsageError(line)

    def validate(self, namespace: Namespace, *args: Any, **settings: Any) -> None:
        """Check the keys and values of a configuration.

        Raises:
            KeyError: a key that is not known; the message suggests the nearest one.
            TypeError: a value of a wrong type.
        """
        try:
            super().validate(namespace, *args, **settings)
        except KeyError as error:
            parser = self._command()
            option_names = [option.lstrip("-") for option in parser._options()]
            start = "" if parser is self else f"{self._words()[0]}."
            accepted = set(self.strip_unknown(namespace).keys())
            for key in sorted(set(namespace.keys()) - accepted):
                name = key.removeprefix(start)
                if key.startswith(start) and not _is_option(name, option_names):
                    error.args = (f"{name!r} is not known{suggestion(name, option_names)}",)
                    break
            raise

    def _words(self) -> Sequence[str]:
        return getattr(self, "args", None) or [""]

    def _command(self) -> "Parser":
        """Return the parser of the command that was chosen; itself if it has no commands."""
        commands = [a.choices for a in self._actions if isinstance(a.choices, dict)]
        return commands[0].get(self._words()[0], self) if commands else self

    def _options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]

    def _unknown_option(self) -> str:
        """Return a line on the first option that the parser lacks; "" if it has them all."""
        options = self._command()._options()
        for word in self._words():
            name = word.partition("=")[0]
            if word.startswith("--") and not _is_option(name, options):
                matches = [option for option in options if option.startswith(name)]
                if not (matches and self.allow_abbrev):
                    return f"{name!r} is not an option{suggestion(name, options)}"
        return ""


def _is_option(name: str, options: Sequence[str]) -> bool:
    """Return True for an option or a part of its value, such as `model.init_args` of `model`."""
    groups = {option.rpartition(".")[0] for option in options if not option.endswith(".help")}
    leaf_options = [option for option in options if option not in groups]
    return name in options or any(name.startswith(f"{option}.") for option in leaf_options)


def brief(error: BaseException) -> str:
    """Return one line: the keys that lead to the cause of a parser's error, and that cause.

    Args:
        error: raised by jsonargparse; each of its causes is one level further down in the
            configuration, and the last one says what is wrong.
    """
    chain = [error]
    while cause := chain[-1].__cause__:
        chain.append(cause)
    headings = [str(e).partition("\n")[0] for e in chain if isinstance(e, TypeError)]
    keys = [heading for heading in headings if heading.endswith(":")]
    line = " ".join(" ".join([*keys, str(chain[-1 if keys else 0])]).split())
    hint = ""
    if isinstance(chain[-1], AttributeError) and chain[-1].name:
        module = chain[-1].obj
        hint = suggestion(chain[-1].name, [*dir(module), *getattr(module, "__all__", ())])
    if isinstance(chain[-1], ModuleNotFoundError) and chain[-1].name:
        file = f"{chain[-1].name.partition('.')[0]}.py"
        hint = f"; run the command in the folder of {file}, or add that folder to PYTHONPATH"
    return (line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} ...") + hint


def ens10_cause(error: BaseException) -> Ens10Error | None:
    """Return the error of ens10 that an error of jsonargparse wraps; None if there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Ens10Error):
        cause = cause.__cause__ or cause.__context__
    return cause


@contextmanager
def configuration_errors(path: Path) -> Iterator[None]:
    """Convert errors of jsonargparse to the Ens10Error that they wrap, else to a FileError."""
    try:
        yield
    except (ParserError, KeyError, ValueError) as error:
        raise ens10_cause(error) or FileError(path, brief(error).rstrip(".")) from None


def count(text: str | int) -> int:
    """Parse the value of an option that is a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: another text.
    """
    if not str(text).isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def positive(text: str | float) -> float:
    """Parse the value of an option that is a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: another text.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def command_parser(program: str, description: str | None = None, epilog: str = "") -> Parser:
    """Return the parser of a command, without options; options may be abbreviated.

    Args:
        program: the words that run the command, such as "ens10 fit".
        description: first paragraph of the help.
        epilog: last paragraph of the help.
    """
    return Parser(
        prog=program, description=description, epilog=epilog, allow_abbrev=True,
        formatter_class=argparse.HelpFormatter,
    )  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command of `ens10`.

    Attributes:
        help: a line for `ens10 --help`.
        run: called with the options by name; returns the exit status, None for 0.
        add_options: adds the options to the command's parser; None for a command that parses its
            `words` itself.
        description: first paragraph of the command's help.
        epilog: last paragraph of the command's help.
    """

    help: str
    run: Callable[..., int | None]
    add_options: Callable[[Parser], Any] | None = lambda parser: parser
    description: str | None = None
    epilog: str = ""

    def parse(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Return the options by name.

        Args:
            name: of the command.
            words: of the command line, after the name.

        Raises:
            SystemExit: bad usage (2), or help was printed (0).
        """
        if self.add_options is None:
            return {"words": words}
        parser = command_parser(f"ens10 {name}", self.description, self.epilog)
        self.add_options(parser)
        return dict(vars(parser.parse_args(words)))


def reports_errors(command: Callable[..., int]) -> Callable[..., int]:
    """Wrap a command: report an error or a signal in one line, and return its exit status.

    Args:
        command: takes the command line, None for that of the process; returns the exit status.
    """

    @wraps(command)
    def reporting(arguments: Sequence[str] | None = None) -> int:
        try:
            check_names(sys.argv[1:] if arguments is None else arguments)
            with stoppable():
                return command(arguments)
        except BaseException as error:
            status = report_interruption(error)
            if status is None:
                raise
            if arguments is None:
                end_process(status)
            return status

    return reporting
