"""Protocols as data: those that come with the package, and files of one's own.

    ens10 fit --config unet.yaml --data.protocol mine.yaml --run RUN

where mine.yaml says what differs from `clean`:

    test: [2016, 2017]
    val: [2015]
    efi: {window: 5}
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError, Ens10Error, FileError, UnknownNameError
from ens10.protocol.rules import EfiRules, Protocol, names_of
from ens10.untrusted import parse_yaml

# Package data of the experiments, read as files: nothing there is imported.
_FOLDER = Path(__file__).parents[1] / "experiments" / "protocols"
_ENDINGS = (".yaml", ".yml")


def protocol_names() -> tuple[str, ...]:
    """The protocols that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def protocol_of(protocol: str | Path | Mapping[str, Any] | Protocol) -> Protocol:
    """A protocol by its name, from a YAML file, from its content, or itself.

    Args:
        protocol: "clean" or "paper", a path that ends with .yaml, fields by name, or a `Protocol`.

    Raises:
        UnknownNameError: no such protocol, field or choice.
        ArgumentError: a value that cannot be; the message names the field.
        FileError: no such file, or no mapping in it.
    """
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, Mapping):
        return _made(protocol, "protocol")
    text = str(protocol)
    if text.lstrip().startswith("{"):  # a mapping on the command line
        return _made(_parsed(text, "protocol"), "protocol")
    if text.endswith(_ENDINGS):
        return _of_user(Path(text))
    if text not in protocol_names():
        raise UnknownNameError("protocol", text, [*protocol_names(), "the path of a YAML file"])
    return _of_package(text)


def content_of(protocol: Protocol) -> dict[str, Any]:
    """All fields by name, as a YAML file has them; `protocol_of` makes the same of them."""
    return asdict(protocol)


def reference_of(protocol: str | Path | Mapping[str, Any] | Protocol) -> str | dict[str, Any]:
    """What a record keeps: the name of a protocol of the package, the content of any other."""
    rules = protocol_of(protocol)
    known = rules.name in protocol_names() and rules == protocol_of(rules.name)
    return rules.name if known else content_of(rules)


@cache
def _of_package(name: str) -> Protocol:
    path = _FOLDER / f"{name}.yaml"
    return _made(_parsed(path.read_text(encoding="utf-8"), path), str(path))


def _of_user(path: Path) -> Protocol:
    """From a file, whose stem is the name if it gives none; no name of the package's."""
    if not path.is_file():
        known = ", ".join(protocol_names())
        raise FileError(path, "no such file", f"Give the path of a protocol, or one of {known}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read ({error})", "Give a YAML file") from error
    content = {"name": path.stem, **_parsed(text, path)}
    made = _made(content, str(path))
    if made.name in protocol_names() and made != _of_package(made.name):
        reason = f"name: {made.name!r} is another protocol"
        raise FileError(path, reason, "Give it a name of its own, by `name:` or that of the file")
    return made


def _parsed(text: str, where: Path | str) -> dict[str, Any]:
    try:
        content: Any = parse_yaml(text)
    except ValueError as error:
        raise _wrong(where, f"no YAML ({error})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _wrong(where, "not a mapping of fields to values")
    return content


def _wrong(where: Path | str, reason: str) -> Ens10Error:
    remedy = "Write for example `test: [2016, 2017]`"
    if isinstance(where, Path):
        return FileError(where, reason, remedy)
    return ArgumentError(where, reason, remedy)


def _made(content: Mapping[str, Any], where: str) -> Protocol:
    """A protocol of fields by name; the errors say where they come from."""
    _check_fields(content, names_of(Protocol), where)
    given = dict(content)
    try:
        efi = given.get("efi", {})
        if isinstance(efi, Mapping):
            _check_fields(efi, names_of(EfiRules), f"efi of {where}")
            given["efi"] = EfiRules(**efi)
        return Protocol(**given)
    except UnknownNameError as error:
        if error.argument.endswith(where):
            raise
        raise UnknownNameError(f"{error.argument} of {where}", error.name, error.known) from error
    except ArgumentError as error:
        raise ArgumentError(where, str(error).removesuffix(".")) from error


def _check_fields(content: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in known:
            raise UnknownNameError(f"field of {where}", key, known)
