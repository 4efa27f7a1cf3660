"""Names, JSON and YAML that come from files of other people.

A manifest, a checkpoint's metadata, a configuration or a server's listing may be damaged or
hostile. Every path that one of them names goes through `inside`, and every text through
`parse_json` or `parse_yaml`, which limit what a small text can cost.
"""

import json
import os
import stat
from os import PathLike
from pathlib import Path
from typing import Any

from ens10.errors import FileError

_MOST_NODES = 1_000_000  # of a YAML document, aliases written out
_DEEPEST = 100  # levels of a YAML document
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
        raise FileError(
            named_by,
            f"names {name!r}, which is not a path inside {folder}",
            "It is damaged or not to be trusted; fetch it again from a source that you trust",
        )
    path = folder / str(name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise FileError(path, "a symbolic link that leads out of the folder", "Remove the link")
    return path


def check_regular(path: Path) -> None:
    """Refuse what would block or never end when it is read: pipes, sockets and devices.

    Raises:
        FileError: the path exists and is neither a regular file nor a folder.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileError(path, "neither a regular file nor a folder", "Give the path of a file")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; like `json.loads`, but every failure is a ValueError.

    Raises:
        ValueError: not JSON, not UTF-8, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_yaml(text: str | bytes) -> Any:
    """Parse YAML without tags; like `yaml.safe_load`, but every failure is a ValueError.

    Raises:
        ValueError: not YAML, more than 100 levels deep, or more than a million values once
            aliases are written out (a text of some lines can stand for billions).
    """
    import yaml

    try:
        content = yaml.safe_load(text)
        _count(content, {}, 0)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return content


def _count(node: Any, known: dict[int, int], depth: int) -> int:
    """Count the values of a document; a node that several aliases share is visited once.

    Args:
        node: the document or a part of it.
        known: counts of the containers that were visited, by id; 0 while one is being visited.
        depth: levels above the node.
    """
    if not isinstance(node, dict | list):
        return 1
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} levels deep")
    if id(node) not in known:
        known[id(node)] = 0
        inner = [*node.keys(), *node.values()] if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_count(part, known, depth + 1) for part in inner)
    count = known[id(node)]
    if not count:
        raise ValueError("an alias contains itself")
    if count > _MOST_NODES:
        raise ValueError(f"more than {_MOST_NODES} values")
    return count
