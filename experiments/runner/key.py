"""The key of a cell: its configuration, its data, and version numbers of the code.

A module or package whose code determines results declares `RESULT_VERSION = N`. The number is
raised when its results change and left alone by a refactoring, so that kept results stay valid.
`tests/result_versions.py` compares the code with the numbers.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from ens10.errors import ArgumentError

Key = dict[str, Any]
VERSION = "RESULT_VERSION"
# Every trained cell passes through these, whatever its configuration names.
STATIONS = ("ens10.loader", "ens10.models", "ens10.metrics", "ens10.experiments.runner")


def key_of(config: dict[str, Any], data: str, stations: Iterable[str] = STATIONS) -> Key:
    """Return the key of a cell.

    Args:
        config: everything that is configured, seed included.
        data: checksum of the data.
        stations: packages that the cell passes through besides the classes of its configuration.

    Returns:
        `config` and `data` as digests, and `versions`: the numbers by name of the module or
        package that declares them, or by class where a class's own module does.

    Raises:
        ArgumentError: the configuration names a class that cannot be imported.
    """
    versions = {name: int(getattr(import_module(name), VERSION)) for name in stations}
    for path in class_paths(config):
        versions |= result_version(path)
    return {
        "config": digest_of(config),
        "data": data,
        "versions": dict(sorted(versions.items())),
    }


def result_version(class_path: str) -> dict[str, int]:
    """Return the version number of a class, by the name that it is declared for.

    The number is that of the module that defines the class, and its name the class path, so that
    a module can move. Without one it is that of the nearest package.

    Raises:
        ArgumentError: the class cannot be imported, or no package of it declares a number.

    Examples:
        >>> from ens10.experiments.runner.key import result_version
        >>> list(result_version("ens10.models.networks.UNet"))
        ['ens10.models.networks.UNet']
    """
    module, _, name = class_path.rpartition(".")
    try:
        home = str(getattr(import_module(module), name).__module__)
    except (ImportError, AttributeError) as error:
        problem = f"{class_path} cannot be imported ({error})"
        raise ArgumentError("class_path", problem) from error
    place = home
    while place:
        number = getattr(import_module(place), VERSION, None)
        if number is not None:
            return {class_path if place == home else place: int(number)}
        place = place.rpartition(".")[0]
    raise ArgumentError("class_path", f"{home} declares no {VERSION}, and no package of it does")


def differences(old: Key, new: Key) -> list[str]:
    """Return what differs between two keys: "config", "data", and names of `versions`."""
    parts = [part for part in ("config", "data") if old.get(part) != new.get(part)]
    before, after = old.get("versions"), new.get("versions", {})
    if not isinstance(before, dict) or not before:
        return [*parts, "code from before result versions"]
    names = sorted({*before, *after})
    return parts + [name for name in names if before.get(name) != after.get(name)]


def class_paths(config: Any) -> Iterator[str]:
    """Yield every class of ens10 that a configuration names."""
    if isinstance(config, dict):
        for value in config.values():
            yield from class_paths(value)
    elif isinstance(config, list):
        for value in config:
            yield from class_paths(value)
    elif isinstance(config, str) and config.startswith("ens10.") and "/" not in config:
        yield config


def digest_of(content: Any) -> str:
    """Return eight hexadecimal digits of a digest of JSON content."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
