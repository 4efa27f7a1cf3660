"""Checks of the configuration in a run folder that may come from someone else.

A configuration names classes, and a class can be any code. One that is given to `ens10 fit` with
`--config` is trusted as a script of the user's own would be. The copy in a run folder is read by
other commands too (`validate`, `test`, `predict`, `fit --resume`), and a run folder may have been
downloaded. So these commands take it as it is only if `fit` wrote exactly these bytes for this
user, which a record outside the run folder shows. From any other run folder they take values and
the classes of this package and of torch's optimisers and schedulers; modules besides must be named
with `--trust`. `ens10.named_code` checks the names.
"""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError
from ens10.named_code import check_code
from ens10.protocol import protocol_names
from ens10.untrusted import check_regular, parse_yaml

OPTION = "--trust"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FIRST_PARTS = re.compile(r"(?<![\w.])[^\W\d]\w*(?=\.)")  # of dotted names
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


def checked_config(
    path: Path, trusted: Sequence[str], *, fit: bool, with_model: bool = True
) -> str:
    """Return the text of a run folder's configuration, as far as it may be used.

    Args:
        path: `config.yaml` of a run folder.
        trusted: modules that the user named with `--trust`.
        fit: whether a training is resumed, which builds its callbacks again if `fit` wrote this
            configuration for this user. No other command builds callbacks or loggers.
        with_model: False to leave the model out, which is there as an object.

    Raises:
        FileError: not a configuration, it names code that is not trusted, or its model was an
            object in Python.
    """
    check_regular(path)
    return checked_text(path.read_bytes(), path, trusted, fit=fit, with_model=with_model)


def checked_text(
    text: bytes,
    path: Path,
    trusted: Sequence[str],
    *,
    fit: bool = False,
    with_model: bool = True,
) -> str:
    """Return the text of a configuration, as far as it may be used; see `checked_config`.

    Args:
        text: the configuration.
        path: the file that holds it.
        trusted: modules that the user named with `--trust`.
        fit: whether a training is resumed.
        with_model: False to leave the model out, which is there as an object.

    Raises:
        FileError: not a configuration, it names code that is not trusted, or its model was an
            object in Python.
    """
    content = _parse(text, path)
    by_user = is_user_config(text)
    if content.get("model") is None and with_model and "model" in content:
        reason = "the run's model was an object in Python, which no class path builds"
        raise FileError(path, reason, "Pass it in Python: ens10.Run(RUN, model=...)")
    if not with_model:
        content.pop("model", None)
    trainer = content.get("trainer") or {}
    if not (by_user and fit):
        content["trainer"] = {k: v for k, v in trainer.items() if k not in _TRAINER_OBJECTS}
    if not by_user:
        _check(path, content, trusted)
    checked = yaml.safe_dump(content, sort_keys=False)
    find_modules_here([checked])
    return text.decode() if by_user and fit and with_model else checked


def find_modules_here(texts: Sequence[str]) -> None:
    """Let Python find modules of the working folder that the texts of trusted options name.

    The folder becomes the last place to search, so that its files stand in for no other module.
    """
    names = {name for text in texts for name in _FIRST_PARTS.findall(text)}
    here = Path.cwd()
    for name in sorted(names - set(sys.modules)):
        files = (here / f"{name}.py", here / name / "__init__.py")
        if any(file.is_file() for file in files) and find_spec(name) is None:
            sys.path.append(str(here))
            return


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
    check_code(path, content, trusted, f"add {OPTION} {{}}", "this run was not trained by you here")
