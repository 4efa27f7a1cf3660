"""Names, JSON and YAML that come from files of other people.

A manifest, a checkpoint's metadata, a configuration or a server's listing may be damaged or
hostile. Every path that one of them names goes through `inside`, and every text through
`parse_json` or `parse_yaml`, which limit what a small text can cost.
"""

import json
import math
import os
import stat
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ens10.errors import Ens10Error, FileError
from ens10.machine_errors import machine_error

_MAX_NODES = 1_000_000  # values of a YAML document once its aliases are expanded
_MAX_DEPTH = 100  # levels of a YAML document, and of folders
_MAX_NAME = 200  # bytes of a name; file systems take 255, and temporary names are longer
_MAX_MESSAGE = 200  # characters of a library's message that an error repeats
_SEARCH_BYTES = 1 << 26  # bytes of a file that are searched for a GRIB message
UNREADABLE = "the values cannot be read"
_ZIP = b"PK\x03\x04"
_MAX_WHOLE = 1 << 63  # whole numbers are kept in 64 bits
T = TypeVar("T")
_FORBIDDEN = ("\\", "\0", ":")  # separators and drive letters of other systems


def is_inner(name: object) -> bool:
    """Return True if a name is a relative path that cannot lead out of its folder.

    Examples:
        >>> from ens10.untrusted import is_inner
        >>> is_inner("sfc/t2m/c/0/0"), is_inner("../t2m"), is_inner("/etc/passwd")
        (True, False, False)
    """
    if not isinstance(name, str) or any(character in name for character in _FORBIDDEN):
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


def is_file_name(name: object) -> bool:
    """Return True if a name can be that of a file or folder, such as of an array in a store.

    Names that only Windows refuses, such as CON or one that ends with a dot, are accepted: they are
    ordinary here, and lead nowhere else.

    Examples:
        >>> from ens10.untrusted import is_file_name
        >>> is_file_name("t2m"), is_file_name(".."), is_file_name("a/b"), is_file_name("CON")
        (True, False, False, True)
    """
    is_short = isinstance(name, str) and len(name.encode(errors="replace")) <= _MAX_NAME
    return is_short and is_inner(name) and "/" not in str(name)


def inside(folder: Path, name: object, named_by: str | PathLike[str]) -> Path:
    """Return the path of a file or folder that another file names, if it lies within the folder.

    Args:
        folder: may itself be reached through symbolic links; that is the user's own choice.
        name: relative path with forward slashes.
        named_by: the file or server that gave the name, for the error.

    Raises:
        FileError: the name is absolute, has a part "..", or leaves the folder through a
            symbolic link.
    """
    if not is_inner(name):
        remedy = "It is damaged or not to be trusted; fetch it again from a source that you trust"
        raise FileError(named_by, f"names {name!r}, which is not a path inside {folder}", remedy)
    path = folder / str(name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise FileError(path, "a symbolic link that leads out of the folder", "Remove the link")
    return path


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted; symbolic links to folders are not followed.

    Raises:
        FileError: folders nested more than 100 levels deep.
    """
    files: list[Path] = []
    pending = [(os.fspath(folder), 0)]
    while pending:
        inner, depth = pending.pop()
        check_depth(folder, depth)
        with os.scandir(inner) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, depth + 1))
                elif os.path.isfile(entry.path):  # noqa: PTH113 - False for circular links
                    files.append(Path(entry.path))
    return sorted(files)


def check_depth(folder: Path, depth: int) -> None:
    """Refuse folders nested too deeply for later walks through them.

    Raises:
        FileError: more than 100 levels.
    """
    if depth > _MAX_DEPTH:
        reason = f"holds folders more than {_MAX_DEPTH} levels deep"
        raise FileError(folder, reason, "Take them out; no store has them")


def check_regular(path: Path) -> None:
    """Refuse pipes, sockets and devices, reading which could block or never end.

    Raises:
        FileError: the path exists and is neither a regular file nor a folder.
    """
    if not is_regular(path):
        raise FileError(path, "neither a regular file nor a folder", "Pass the path of a file")


def is_regular(path: Path) -> bool:
    """Return True for a file or folder, False for a pipe, socket or device."""
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def why_unreadable(file: Path) -> tuple[str, str]:
    """Return why a file is neither GRIB nor netCDF nor a table, and the remedy."""
    if not file.stat().st_size:
        return "the file is empty", "Fetch or write it again"
    with file.open("rb") as stream:
        begin = stream.read(_SEARCH_BYTES)
    if begin.startswith(_ZIP):
        return "a ZIP archive, as the Climate Data Store sends them", "Unzip it"
    first = begin.find(b"GRIB")
    if not begin[: first if first > 0 else 512].strip(b"\0"):
        return "damaged at byte 0: it begins with zeros", "Fetch or write it again"
    if first > 0:
        return (
            f"damaged at byte 0: its first {first} bytes belong to no message, the first GRIB "
            f"message begins at byte {first}",
            "Fetch it again, or cut these bytes off",
        )
    return "neither a GRIB nor a netCDF file", "Pass the right path, or take it out of the folder"


@contextmanager
def readable(
    path: str | PathLike[str], reason: str = "cannot be read", remedy: str = "Write it again"
) -> Iterator[None]:
    """Convert any exception that a library raises while reading a file to a FileError.

    Zarr, numcodecs, xarray and netCDF4 raise a dozen kinds of errors on damaged metadata; a list
    of them would miss some.

    Args:
        path: the file or store.
        reason: what is wrong with it, in words.
        remedy: what to do about it.

    Raises:
        FileError: the library raised any exception that is not an error of this package.
        ResourceError: memory or open files do not suffice.
    """
    try:
        yield
    except Ens10Error:
        raise
    except Exception as error:
        if (shortage := machine_error(error)) is not None:
            raise shortage from error
        raise FileError(path, f"{reason} ({error_text(error)})", remedy) from error


def error_text(error: BaseException) -> str:
    """Return type and message of a library's error in one line of limited length."""
    parts = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return " ".join(" ".join(parts).split())[:_MAX_MESSAGE]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; like `json.loads`, but every failure is a ValueError.

    Raises:
        ValueError: not JSON, not UTF-8, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dataclass_of(kind: type[T], content: object, name: str = "") -> T:
    """Build a dataclass from a parsed mapping whose values have the types of its annotations.

    Fields with a default may be missing, and keys that are no fields are ignored. Numbers must be
    finite, whole numbers of at most 63 bits.

    Args:
        kind: dataclass whose annotations are str, int, float, None, unions of these written with
            `|`, `Any`, and lists and mappings (with text keys) of one of these.
        content: the mapping.
        name: of the mapping, for errors.

    Raises:
        ValueError: a key is missing, or its value is of another type; the message names the key.

    Examples:
        >>> from dataclasses import dataclass
        >>> from ens10.untrusted import dataclass_of
        >>> @dataclass
        ... class Axis:
        ...     name: str
        ...     degrees: list[float]
        >>> dataclass_of(Axis, {"name": "latitude", "degrees": [90, "x"]})
        Traceback (most recent call last):
        ValueError: degrees[1] is not a finite number
    """
    if not isinstance(content, dict):
        raise ValueError(f"{name or 'the content'} is not a mapping")
    hints, start = get_type_hints(kind), f"{name}." if name else ""
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in content:
            values[field.name] = content[field.name]
            _check_type(hints[field.name], content[field.name], f"{start}{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{start}{field.name} is missing")
    return kind(**values)


_WORDS = {
    str: "text", int: "a whole number", float: "a finite number", list: "a list",
    dict: "a mapping", type(None): "null",
}  # fmt: skip


def _check_type(hint: Any, value: object, name: str) -> None:
    """Raise a ValueError if a value, or one within it, has not the annotated type."""
    if hint is Any:
        return
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    options = arguments if kind is types.UnionType else (kind,)
    if not any(_is_of_type(option, value) for option in options):
        raise ValueError(f"{name} is not {' or '.join(_WORDS[option] for option in options)}")
    if isinstance(value, list):
        for n, one in enumerate(value):
            _check_type(arguments[0], one, f"{name}[{n}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            _check_type(arguments[1], one, f"{name}.{key}")


def _is_of_type(kind: type, value: object) -> bool:
    if kind in (int, float) and isinstance(value, int):
        return not isinstance(value, bool) and -_MAX_WHOLE <= value < _MAX_WHOLE
    return isinstance(value, kind) and not (isinstance(value, float) and not math.isfinite(value))


def parse_yaml(text: str | bytes) -> Any:
    """Parse YAML without tags; like `yaml.safe_load`, but every failure is a ValueError.

    Raises:
        ValueError: not YAML, more than 100 levels deep, more than a million values once aliases
            are written out (a text of some lines can stand for billions), or a whole number of
            more than 63 bits (Python does not print one of more than 4300 digits).
    """
    import yaml

    try:
        content = yaml.load(text, _loader())
        _count_nodes(content, {}, 0)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except OverflowError as error:  # of 1:1:1..., which is a number to the base of 60
        raise ValueError(str(error)) from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return content


@cache
def _loader() -> Any:
    """Return the class of a safe loader that limits merges of mappings (`<<`).

    Older PyYAML, such as 6.0.1, copies all pairs of what is merged: twelve lines can stand for
    billions.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pairs = 0

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            self.pairs += len(node.value)
            if self.pairs > _MAX_NODES:
                raise ValueError(f"more than {_MAX_NODES} values")

    return Loader


def read_mapping(path: Path, remedy: str = "Put it back, or write it again") -> dict[str, Any]:
    """Read a file that holds one mapping of names to values.

    Args:
        path: `.json` is JSON, all else YAML.
        remedy: what to do about a file that cannot be read.

    Raises:
        FileError: no such file, a pipe or device, not JSON or YAML, or something else than a
            mapping.
    """
    form = "JSON" if path.suffix == ".json" else "YAML"
    try:
        check_regular(path)
        text = path.read_bytes()
        content = parse_json(text) if form == "JSON" else parse_yaml(text)
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(path, "no such file", remedy) from error
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror})", remedy) from error
    except ValueError as error:
        raise FileError(path, f"no valid {form} ({str(error)[:_MAX_MESSAGE]})", remedy) from error
    if not isinstance(content, dict):
        raise FileError(path, "holds no mapping of names to values", remedy)
    return content


def _count_nodes(node: Any, counts: dict[int, int], depth: int) -> int:
    """Count the values of a document, with aliases expanded.

    The parser represents an alias by a second reference to the same object. Each object is visited
    once and its count is reused, so that the time is that of the text: nine lines whose aliases
    refer to each other ten times can stand for a billion values.

    Args:
        node: the document or a part of it.
        counts: counts of the containers that were visited, by id; 0 while one is being visited.
        depth: number of containers around the node.

    Raises:
        ValueError: an alias that contains itself, too many levels or values, or a huge number.
    """
    if not isinstance(node, dict | list):
        if isinstance(node, int) and not -_MAX_WHOLE <= node < _MAX_WHOLE:
            raise ValueError("a whole number of more than 63 bits")
        return 1
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    if id(node) not in counts:
        counts[id(node)] = 0
        inner = [*node.keys(), *node.values()] if isinstance(node, dict) else node
        counts[id(node)] = 1 + sum(_count_nodes(part, counts, depth + 1) for part in inner)
    count = counts[id(node)]
    if not count:
        raise ValueError("an alias contains itself")
    if count > _MAX_NODES:
        raise ValueError(f"more than {_MAX_NODES} values")
    return count
