"""Errors of the command line in a few lines: what is not known, and what was probably meant."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentError as ParserError

from ens10.errors import Ens10Error, FileError, suggestion

_UNKNOWN = re.compile(
    r"(?:[Uu]nrecognized arguments: -{0,2}|does not accept option '|Option ')(?P<name>[^\s'=]+)"
    r"(?P<hint>.*; did you mean '[^']+'\?)?"
)
_ATTRIBUTE = re.compile(r"module '(?P<module>[^']+)' has no attribute '(?P<name>[^']+)'")
_CLASS = re.compile(r"(?P<what>Problem with given class_path|No module named).*?'(?P<name>[^']+)'")
_SUBCLASS = re.compile(r"does not correspond to a subclass of (?P<wanted>\w+)")
_EXPECTED = re.compile(r"Expected an? (?!path)(?P<type>.+?)(?:\. Got value: (?P<value>.+))?$")
_KEY = re.compile(r'Parser key "(?P<key>[^"]+)":?\s*(?P<rest>.*)')
_GIVEN = re.compile(r"Given value: (?P<value>.+)")
_REQUIRED = re.compile(r"arguments are required: (?P<names>.+)")
_MOST_CHARACTERS = 300


@contextmanager
def configuration_errors(path: Path) -> Iterator[None]:
    """Raise FileError, or the Ens10Error behind it, where the parts of a configuration fail."""
    try:
        yield
    except (ParserError, KeyError) as error:
        raise FileError(path, brief(str(error)).rstrip(".")) from None
    except ValueError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, Ens10Error):
            cause = cause.__cause__ or cause.__context__
        raise cause or FileError(path, brief(str(error)).rstrip(".")) from None


def brief(message: str, known: Sequence[str] = ()) -> str:
    """The point of a parser's message in one line, with a suggestion for an unknown name.

    Args:
        message: of jsonargparse, many lines if there are several types that a value may have.
        known: every option that would be accepted, with or without dashes.
    """
    lines = [line.strip().removeprefix("- ") for line in message.splitlines() if line.strip()]
    keys = [match["key"] for line in lines if (match := _KEY.search(line))]
    where = f"{'.'.join(keys)}: " if keys else ""
    for say in (_unknown_name, _wrong_class, _wrong_type, _unknown_class, _required):
        said = say(lines, known)
        if said:
            return _cut(where + said)
    rest = (_KEY.sub(r"\g<rest>", line) for line in lines)
    return _cut(where + " ".join(part for part in rest if part))


def parser_class(base: type[Any]) -> type[Any]:
    """A subclass of a jsonargparse parser whose errors are brief, with exit status 2."""

    class BriefParser(base):  # type: ignore[misc]
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            known = _options(self)
            if not self.exit_on_error:
                # The parser of one class among several that a value may have: another may do.
                found = _UNKNOWN.search(message)
                super().error(message + (suggestion(found["name"], known) if found else ""), ex)
            stage = getattr(getattr(ex, "subcommand_parser", None), "prog", None) or self.prog
            helped = stage.replace(" [options]", "")
            sys.stderr.write(f"ens10: {brief(message, known)}\nTry: {helped} --help\n")
            sys.exit(2)

    return BriefParser


def _options(parser: Any) -> list[str]:
    """The long options of a parser and of its commands, without dashes."""
    found: dict[str, None] = {}
    for action in parser._actions:
        found |= {o.lstrip("-"): None for o in action.option_strings if o.startswith("--")}
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                found |= dict.fromkeys(_options(command))
    return [option for option in found if not option.endswith(".help")]


def _unknown_name(lines: Sequence[str], known: Sequence[str]) -> str:
    for line in lines:
        found = _UNKNOWN.search(line)
        if found:
            name = found["name"]
            hint = (found["hint"] or "").partition(";")[2]
            return _ended(f"{name!r} is not known" + (f";{hint}" if hint else _near(name, known)))
    return ""


def _near(name: str, known: Iterable[str]) -> str:
    """A suggestion among the options; "data.extra.x" may also be meant for a part of one."""
    options = [option.lstrip("-") for option in known]
    sections = sorted({option.partition(".")[0] for option in options})
    return suggestion(name, options) or suggestion(name.partition(".")[0], sections)


def _unknown_class(lines: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG001
    for line in lines:
        found = _ATTRIBUTE.search(line)
        if found:
            module = sys.modules.get(found["module"])
            classes = [name for name, value in _held(module) if isinstance(value, type)]
            classes += getattr(module, "__all__", [])
            hint = suggestion(found["name"], classes)
            return _ended(f"{found['module']} has no class {found['name']!r}{hint}")
    named = [found for line in lines if (found := _CLASS.search(line))]
    return f"there is no class {named[0]['name']!r} to import." if named else ""


def _held(module: object) -> list[tuple[str, object]]:
    return list(vars(module).items()) if module is not None else []


def _wrong_class(lines: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG001
    for n, line in enumerate(lines):
        found, given = _SUBCLASS.search(line), _first(_GIVEN, lines[n:])
        if found:
            what = repr(given) if given else "the class"
            return f"{what} is no {found['wanted']}."
    return ""


def _wrong_type(lines: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG001
    wanted = [found for line in lines if (found := _EXPECTED.search(line))]
    wanted = [found for found in wanted if found["type"] != "<class 'NoneType'>"]
    types = list(dict.fromkeys(_plain(found["type"]) for found in wanted))
    value = next((found["value"] for found in wanted if found["value"]), _first(_GIVEN, lines))
    if not types or value is None:
        return ""
    hint = suggestion(value, re.findall(r"'([^']+)'", " ".join(types)))
    return _ended(f"{value!r} is not {' or '.join(types)}{hint}")


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> str | None:
    return next((found["value"] for line in lines if (found := pattern.search(line))), None)


def _required(lines: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG001
    found = _REQUIRED.search(" ".join(lines))
    if not found:
        return ""
    names = [f"--{name.strip().partition('.')[2] or name}" for name in found["names"].split(",")]
    remedy = "give --config FILE" if "--model" in names else "give it"
    return f"{', '.join(names)} is required; {remedy}."


def _plain(kind: str) -> str:
    """A type in words: `<class 'int'>` is int, a Literal one of its values."""
    kind = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"of type \1", kind)
    return re.sub(r"(?:typing\.)?Literal\[(.*)\]", r"one of \1", kind)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else f"{sentence}."


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."
