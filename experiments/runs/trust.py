"""Checks of the configuration in a run folder that may come from someone else.

A configuration names classes, and a class can be any code. One that is given to `ens10 fit` with
`--config` is trusted as a script of the user's own would be. The copy in a run folder is read by
other commands too (`validate`, `test`, `predict`, `fit --resume`), and a run folder may have been
downloaded. So these commands take it as it is only if `fit` wrote exactly these bytes for this
user, which a record outside the run folder shows. From any other run folder they take values and
the classes of this package and of torch's optimisers and schedulers; modules besides must be named
with `--trust`. The check reads text: no module is imported before it, and then only those of this
package and of torch's optimisers, to see that a name is that of a class that is defined there and
not of one that such a module has imported.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError
from ens10.protocol import protocol_names
from ens10.untrusted import check_regular, parse_yaml

OPTION = "--trust"
_CLASSES = re.compile(
    r"ens10(\.[a-z]\w*)+\.[A-Z]\w*|torch\.optim\.(lr_scheduler\.)?[A-Z]\w*"  # no functions
)
_PACKAGES = ("ens10.", "torch.optim.")
_NAMES = re.compile(r"data\.(store|protocol|(target|inputs)(\.\d+)?)")  # of files and variables
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_TRAINER_OBJECTS = ("callbacks", "logger", "plugins", "profiler")  # they run code
_SECTIONS = ("seed_everything", "trainer", "model", "data")
_STATE = "XDG_STATE_HOME"


def split_trust(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take `--trust MODULE`, which may be repeated, out of a command line.

    Returns:
        The other arguments, and the modules.

    Raises:
        ArgumentError: an option without a module, or one that is not the name of a module.
    """
    other_arguments, modules = [], []
    words = iter(arguments)
    for argument in words:
        name, equals, value = argument.partition("=")
        if name != OPTION:
            other_arguments.append(argument)
            continue
        module = value if equals else next(words, "")
        if not _MODULE.fullmatch(module):
            raise ArgumentError(OPTION, f"{module!r} is not the name of a module", "Name one")
        modules.append(module)
    return other_arguments, modules


def checked_config(path: Path, trusted: Sequence[str], *, fit: bool) -> str:
    """Return the text of a run folder's configuration, as far as it may be used.

    Args:
        path: `config.yaml` of a run folder.
        trusted: modules that the user named with `--trust`.
        fit: whether a training is resumed, which builds its callbacks again if `fit` wrote this
            configuration for this user. No other command builds callbacks or loggers.

    Raises:
        FileError: not a configuration, or it names code that is not trusted.
    """
    check_regular(path)
    return checked_text(path.read_bytes(), path, trusted, fit=fit)


def checked_text(text: bytes, path: Path, trusted: Sequence[str], *, fit: bool = False) -> str:
    """Return the text of a configuration, as far as it may be used; see `checked_config`.

    Args:
        text: the configuration.
        path: the file that holds it.
        trusted: modules that the user named with `--trust`.
        fit: whether a training is resumed.

    Raises:
        FileError: not a configuration, or it names code that is not trusted.
    """
    content = _parse(text, path)
    by_user = is_user_config(text)
    trainer = content.get("trainer") or {}
    if not (by_user and fit):
        content["trainer"] = {k: v for k, v in trainer.items() if k not in _TRAINER_OBJECTS}
    if not by_user:
        _check(path, content, trusted)
    return text.decode() if by_user and fit else yaml.safe_dump(content, sort_keys=False)


def write_config(path: Path, content: dict[str, Any], derived_from: Path | None = None) -> None:
    """Write the configuration of a run folder, and record that this user wrote it.

    Args:
        path: the file.
        content: the configuration.
        derived_from: file of the configuration that it was derived from; the new one is recorded
            only if that one is. None for the configuration of a new run.
    """
    text = yaml.safe_dump(content, sort_keys=False).encode()
    by_user = derived_from is None or is_user_config(derived_from.read_bytes())  # may be `path`
    write_whole(path, text)
    if by_user:
        record_user_config(text)


def record_user_config(text: bytes) -> None:
    """Record outside the run folder that `fit` wrote a configuration for this user.

    Without a home folder that can be written nothing is recorded, and the run is treated as if
    it came from someone else.
    """
    with suppress(OSError, RuntimeError):
        folder = _records()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / sha256(text).hexdigest()).touch()


def is_user_config(text: bytes) -> bool:
    """Return True if `fit` wrote a configuration with these bytes for this user."""
    try:
        return (_records() / sha256(text).hexdigest()).is_file()
    except (OSError, RuntimeError):
        return False


def _records() -> Path:
    """Return the folder of empty files named by the checksums of the user's configurations."""
    state = os.environ.get(_STATE)
    return (Path(state) if state else Path.home() / ".local" / "state") / "ens10" / "own_runs"


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise FileError(path, f"not YAML ({error})", "Fetch or train the run again") from error
    if not isinstance(content, dict) or not isinstance(content.get("trainer") or {}, dict):
        raise FileError(path, "not the configuration of a run", "Fetch or train the run again")
    return content


def _check(path: Path, content: dict[str, Any], trusted: Sequence[str]) -> None:
    """Refuse whatever could import or run code that is not trusted.

    Raises:
        FileError: it names the code and how to trust it.
    """
    unknown = [key for key in content if key not in _SECTIONS]
    if unknown:
        raise FileError(path, f"has the key {unknown[0]!r}, which no run has", "Remove it")
    for section in ("model", "data"):
        if not isinstance(content.get(section) or {}, dict):
            raise FileError(path, f"{section} is not a mapping", "Write its values out")
    protocol = (content.get("data") or {}).get("protocol")
    if isinstance(protocol, str) and protocol not in protocol_names():
        reason = f"data.protocol is {protocol!r}, and `fit` writes a name of this package or rules"
        raise FileError(path, reason, f"Write one of {', '.join(protocol_names())}, or the rules")
    for name, value in _find_code_names(content):
        is_trusted = isinstance(value, str) and (
            _is_class_of_packages(value)
            or any(value == module or value.startswith(f"{module}.") for module in trusted)
        )
        if not is_trusted:
            module = str(value).rpartition(".")[0] or str(value)
            raise FileError(
                path,
                f"{name} is {value!r}, which is code from outside ens10, and this run was not "
                "trained by you here",
                f"If you trust the run and that code, add {OPTION} {module}",
            )
    for name, value in _strings(content, ""):
        if not name.startswith("data.") and any(
            _is_file(folder / value) for folder in (path.parent, Path())
        ):
            raise FileError(path, f"{name} names the file {value}", "Write its content there")
        if _is_document(value):  # the parser would take it for its content, which nobody checked
            reason = f"{name} is a text that holds values of its own"
            raise FileError(path, reason, "Write them out")


def _is_class_of_packages(name: str) -> bool:
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
