"""Code that a configuration or a checkpoint of other people names: classes, functions and files.

Classes of this package and of torch's optimisers and schedulers are accepted; modules besides are
those that the user trusts. The check reads text: no module is imported before it, and then only
those of this package and of torch's optimisers, to see that a name is that of a class that is
defined there and not of one that such a module has imported.
"""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from ens10.errors import FileError

_CLASSES = re.compile(
    r"ens10(\.[a-z]\w*)+\.[A-Z]\w*|torch\.optim\.(lr_scheduler\.)?[A-Z]\w*"  # no functions
)
_PACKAGES = ("ens10.", "torch.optim.")
_NAMES = re.compile(r"data\.(store|protocol|(target|inputs)(\.\d+)?)")  # of files and variables
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def check_code(
    path: Path, content: dict[str, Any], trusted: Sequence[str], remedy: str, why: str = ""
) -> None:
    """Refuse plain values that could import or run code that is not trusted.

    Args:
        path: of the file that holds them, for errors.
        content: a configuration, with the model's values under "model".
        trusted: modules besides this package and torch's optimisers.
        remedy: how to trust a module, with {} for its name.
        why: the code is not trusted.

    Raises:
        FileError: it names the code and how to trust it.
    """
    for name, value in _find_code_names(content):
        is_trusted = isinstance(value, str) and (
            is_class_of_packages(value)
            or any(value == module or value.startswith(f"{module}.") for module in trusted)
        )
        if not is_trusted:
            module = str(value).rpartition(".")[0] or str(value)
            raise FileError(
                path,
                f"{name} is {value!r}, which is code from outside ens10" + (why and f", and {why}"),
                f"If you trust the run and that code, {remedy.format(module)}",
            )
    for name, value in _strings(content, ""):
        if not name.startswith("data.") and any(
            _is_file(folder / value) for folder in (path.parent, Path())
        ):
            raise FileError(path, f"{name} names the file {value}", "Write its content there")
        if _is_document(value):  # the parser would take it for its content, which nobody checked
            reason = f"{name} is a text that holds values of its own"
            raise FileError(path, reason, "Write them out")


def is_class_of_packages(name: str) -> bool:
    """Return True if a name is that of a class that this package or torch's optimisers define."""
    if not _CLASSES.fullmatch(name):
        return False
    module, _, attribute = name.rpartition(".")
    try:  # `import_module` takes no attribute, such as an imported module, for a module
        value = getattr(import_module(module), attribute, None)
    except ImportError:
        return False
    return isinstance(value, type) and f"{value.__module__}.".startswith(_PACKAGES)


def _is_document(text: str) -> bool:
    """Return True for a text that the parser of configurations reads as a list or a mapping.

    Only the structure is read, as libyaml does, which the parser uses where there is one: it takes
    tabs that Python's own reader refuses. What dates, tags and depth make of the values is left.
    """
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    except RecursionError:
        return True
    return isinstance(node, yaml.CollectionNode)


def _find_code_names(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield key and value of all entries that may be looked up as code.

    Those are class paths anywhere and all strings of names joined by dots, which may name a class
    or a function, except where names of files and variables belong.
    """
    for name, value in _leaves(content, ""):
        if name.rpartition(".")[2] == "class_path" or (
            isinstance(value, str) and not _NAMES.fullmatch(name) and _DOTTED.fullmatch(value)
        ):
            yield name, value


def _strings(content: Any, name: str) -> Iterator[tuple[str, str]]:
    for key, value in _leaves(content, name):
        if isinstance(value, str) and value and "\0" not in value:
            yield key, value


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of every entry of a document that is no container."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "class_path":
                yield f"{name}.class_path", value
            else:
                yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list):
        for n, value in enumerate(node):
            yield from _leaves(value, f"{name}.{n}")
    else:
        yield name, node


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long is no file
        return False
