"""What a cell's result depends on: its configuration, its data, and the code that it imports."""

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError

# What every cell runs through, whatever its configuration names.
_ALWAYS = (
    "ens10.models.postprocessor",
    "ens10.loader.datamodule",
    "ens10.experiments.predictions",
    "ens10.experiments.score",
)
Identity = dict[str, Any]


def identity_of(config: dict[str, Any], data: str) -> Identity:
    """The key of a cell.

    Args:
        config: its whole configuration, seed included.
        data: checksum of its data.

    Returns:
        `config` and `data`, and `code`: a digest of each module of ens10 that is imported, directly
        or not, by the classes that the configuration names.

    Raises:
        ArgumentError: it names a class that cannot be imported.
    """
    text = json.dumps(config, sort_keys=True, default=str)
    modules = closure([*_ALWAYS, *(_home(name) for name in class_paths(config))])
    return {
        "config": _digest(text),
        "data": data,
        "code": {name: digest_of(module_file(name)) for name in sorted(modules)},
    }


def differences(old: Identity, new: Identity) -> list[str]:
    """What differs between two keys: "config", "data", and modules by name."""
    parts = [part for part in ("config", "data") if old.get(part) != new.get(part)]
    before, after = old.get("code", {}), new.get("code", {})
    names = sorted({*before, *after})
    return parts + [name for name in names if before.get(name) != after.get(name)]


def digest_of_content(content: dict[str, Any]) -> str:
    """Digest of data that a result depends on beside configuration and code."""
    return _digest(json.dumps(content, sort_keys=True))


def class_paths(config: Any) -> Iterator[str]:
    """Every name in a configuration that is a class of ens10."""
    if isinstance(config, dict):
        for value in config.values():
            yield from class_paths(value)
    elif isinstance(config, list):
        for value in config:
            yield from class_paths(value)
    elif isinstance(config, str) and config.startswith("ens10.") and "/" not in config:
        yield config


def closure(modules: Iterable[str]) -> set[str]:
    """The given modules of ens10 and all that they import, also inside functions.

    A name that a package passes on counts as the module that defines it, so that a change in one
    network is no change of the others in its package.
    """
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += imported_by(name)
    return found


def imported_by(name: str) -> set[str]:
    """The modules of ens10 whose names one of them imports."""
    path = module_file(name)
    return _imported(path, path.stat().st_mtime_ns)


@cache
def _imported(path: Path, _changed: int) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ens10":
            found |= {_defining(str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "ens10"}
    return found


def digest_of(path: Path) -> str:
    """Digest of what a file does: neither comments, docstrings nor layout enter it."""
    return _digest_of(path, path.stat().st_mtime_ns)


@cache
def _digest_of(path: Path, _changed: int) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
    return _digest(ast.dump(tree))


def module_file(name: str) -> Path:
    """The source file of a module.

    Raises:
        ArgumentError: there is none.
    """
    module = sys.modules.get(name) or import_module(name)
    if module.__file__ is None:
        raise ArgumentError("module", f"{name} has no source file")
    return Path(module.__file__)


def _home(path: str) -> str:
    """The module that defines a class."""
    module, _, name = path.rpartition(".")
    try:
        return str(getattr(import_module(module), name).__module__)
    except (ImportError, AttributeError) as error:
        raise ArgumentError("class_path", f"{path} cannot be imported ({error})") from error


def _defining(module: str, name: str) -> str:
    """The module that defines what `from module import name` gives."""
    try:
        return import_module(f"{module}.{name}").__name__
    except ModuleNotFoundError:
        given = getattr(import_module(module), name, None)
    home = getattr(given, "__module__", None)
    return home if isinstance(home, str) and home.startswith("ens10.") else module


def _is_text(node: ast.stmt) -> bool:
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
