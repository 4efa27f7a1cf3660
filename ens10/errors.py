"""The error types of ens10.

Every message says what is wrong, where, and what to do about it. The command line prints the
message alone and exits with 1; in Python they are a `ValueError` (an argument, or data that do
not fit it) or an `OSError` (a file).
"""

import difflib
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

_MOST_LISTED = 20
_FETCH = "Fetch or write the file again"
_RESUME = (
    "Look at what that process said last; `ens10 fit --resume` goes on from the last checkpoint"
)


def printable(text: object, keep: str = "") -> str:
    r"""Return text in one line, without characters that a terminal or a reader takes for others.

    Names of files and variables, attributes and answers of servers may contain line ends, escape
    codes and marks that reverse the direction of text, which can forge a line of ens10. They are
    written as in a Python string.

    Args:
        text: what is printed, logged or written on a page.
        keep: characters that stay, such as the line ends of a text of several lines.

    Examples:
        >>> from ens10.errors import printable
        >>> print(printable("t2m\nens10: done"))
        t2m\nens10: done
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
        for c in str(text)
    )


class Ens10Error(Exception):
    """Base of all errors that a user of ens10 can fix; the message is printable."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors do not take the message, which is what pickle would call them with.
        return _restore, (type(self), str(self), self.__dict__)


class ArgumentError(Ens10Error, ValueError):
    """An argument has a value that cannot be used.

    Args:
        argument: name of the argument, as the caller wrote it.
        reason: what is wrong with it.
        remedy: what to do about it.
    """

    def __init__(self, argument: str, reason: str, remedy: str = "") -> None:
        self.argument, self.reason = argument, reason
        super().__init__(_sentence(f"{argument}: {reason}", remedy))


class UnknownNameError(ArgumentError):
    """A name is not one of the accepted ones; the message suggests the nearest one.

    Args:
        argument: name of the argument.
        name: the value given.
        known: all accepted values.
    """

    def __init__(self, argument: str, name: object, known: Iterable[object]) -> None:
        names = [str(k) for k in known]
        self.name, self.known = name, names
        reason = f"{name!r} is not known{suggestion(str(name), names)}"
        super().__init__(argument, reason, f"Known: {listing(names)}")


class MissingDataError(Ens10Error, ValueError):
    """Data lack required parts; the message lists all of them.

    Args:
        source: the file, folder or dataset that lacks them.
        missing: one description for each missing part.
        remedy: what to do about it.
    """

    def __init__(
        self, source: str | PathLike[str], missing: Sequence[str], remedy: str = ""
    ) -> None:
        self.source, self.missing = source, list(missing)
        parts = "part is" if len(self.missing) == 1 else "parts are"
        reason = f"{len(self.missing)} {parts} missing: {'; '.join(self.missing)}"
        super().__init__(_sentence(f"{source}: {reason}", remedy))


class DataNote(UserWarning):
    """What a user should know of the data: fields left out, or units that were assumed.

    The command line prints it as one line.
    """

    def __init__(self, text: object) -> None:
        super().__init__(printable(text))


class OverlapError(Ens10Error, ValueError):
    """Two splits of a protocol share dates.

    Args:
        first: name of the one split.
        second: name of the other.
        shared: what both contain.
    """

    def __init__(self, first: str, second: str, shared: Iterable[object]) -> None:
        self.shared = [str(s) for s in shared]
        reason = f"splits {first!r} and {second!r} overlap in {listing(self.shared)}"
        super().__init__(_sentence(reason, "Assign every valid date to at most one split"))


class FileError(Ens10Error, OSError):
    """A file or folder cannot be used as it is.

    Args:
        path: the file or folder.
        reason: what is wrong with it.
        remedy: what to do about it.
    """

    def __init__(self, path: str | PathLike[str], reason: str, remedy: str = "") -> None:
        self.path = path
        super().__init__(_sentence(f"{path}: {reason}", remedy))


class DamagedFileError(FileError):
    """A file is damaged at a known place.

    Args:
        path: the file.
        offset: byte at which the damaged part begins.
        reason: what is wrong with it.
        remedy: what to do about it.
    """

    def __init__(
        self, path: str | PathLike[str], offset: int, reason: str, remedy: str = _FETCH
    ) -> None:
        self.offset = offset
        super().__init__(path, f"damaged at byte {offset}: {reason}", remedy)


class ResourceError(Ens10Error, RuntimeError):
    """The machine, or a limit of the process, has too little memory, or too few open files.

    Args:
        reason: what is lacking.
        remedy: what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(_sentence(reason, remedy))


class LostProcessError(Ens10Error, ConnectionError):
    """Another process of the run has ended, or does not answer.

    Args:
        rank: of the process that detected it.
        reason: what was detected.
        remedy: what to do about it.
    """

    def __init__(self, rank: int, reason: str, remedy: str = _RESUME) -> None:
        self.rank = rank
        text = f"process {rank}: another process has ended or is late: {reason}"
        super().__init__(_sentence(text, remedy))


def listing(items: Sequence[str]) -> str:
    """Join items in one line, at most twenty, with the number of the others."""
    remaining = len(items) - _MOST_LISTED
    return ", ".join(items[:_MOST_LISTED]) + (f", and {remaining} more" if remaining > 0 else "")


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return '; did you mean X?' for the name in `known` nearest to `name`, or ""."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _restore(kind: type[Ens10Error], message: str, attributes: dict[str, Any]) -> Ens10Error:
    """Rebuild an error that was pickled (by a worker process)."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    return error


def _sentence(problem: str, remedy: str) -> str:
    sentence = problem if problem.endswith("?") else f"{problem}."
    return f"{sentence} {remedy.rstrip('.')}." if remedy else sentence
