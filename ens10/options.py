"""Options that a command and its function share: a frozen dataclass, which declares each once.

The name of an attribute is that of the option, its type and default are those of the command line,
and its words in the docstring are the help text. `add_options(parser, Options)` adds the options to
a command; its function takes all of them or single ones:

    @takes(Options)
    def run(options: Options | None = None, **named: Any) -> None:
        options = chosen(Options, options, named)
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from inspect import cleandoc
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# an entry under `Attributes:`: its name, and its words with the lines that continue them
_ATTRIBUTE = re.compile(r"    (\w+): (.*(?:\n {8}.*)*)")


def option(default: Any = None, *, flag: str | None = None, **settings: Any) -> Any:
    """Return a field of options that the command line takes in another way than its type says.

    Args:
        default: its value unless the user gives one.
        flag: the option's name if it is not that of the attribute; "" for none, as of attributes
            that are for calls in Python alone.
        **settings: arguments of `add_argument`, such as `metavar` and `type`.
    """
    return field(default=default, metadata={"flag": flag, "settings": settings})


def words_of(options: type) -> dict[str, str]:
    """Return the words of the docstring about each attribute of a dataclass and of its bases."""
    words: dict[str, str] = {}
    for base in reversed(options.__mro__):
        _, _, attributes = cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for name, text in _ATTRIBUTE.findall(attributes.partition("\n\n")[0]):
            words[name] = " ".join(text.split()).rstrip(".")
    return words


def flags_of(options: type) -> dict[str, str]:
    """Return the name of the option of each attribute that has one."""
    flags = {}
    for one in fields(options):
        flag = one.metadata.get("flag")
        flags[one.name] = f"--{one.name.replace('_', '-')}" if flag is None else flag
    return {name: flag for name, flag in flags.items() if flag}


def add_options(parser: Any, options: type) -> None:
    """Add the options of a dataclass to a parser, or to a group of one.

    Args:
        parser: of a command.
        options: a dataclass whose attributes have a default and an entry in the docstring.
    """
    words, flags = words_of(options), flags_of(options)
    for one in fields(options):
        if one.name not in flags:
            continue
        own = dict(one.metadata.get("settings", {}))
        settings = own if "type" in own else {**_settings_of(one.type), **own}
        settings |= {
            "default": list(one.default) if isinstance(one.default, tuple) else one.default,
            "help": _help_of(words[one.name], one.default),
            "dest": one.name,
        }
        parser.add_argument(flags[one.name], **settings)


def takes(options: type) -> Callable[[F], F]:
    """Show the single options in the signature and the docstring of a function with `**named`."""

    def show(function: F) -> F:
        signature, words = inspect.signature(function), words_of(options)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        single = [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type
            )
            for one in fields(options)
        ]
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*own, *single])
        lines = [f"    {one.name}: {words[one.name]}." for one in single]
        shown.__doc__ = "\n".join([cleandoc(function.__doc__ or ""), "", "Options:", *lines])
        return function

    return show


def chosen(options: type[T], values: T | None, named: Mapping[str, Any]) -> T:
    """Return the options of a call: the given ones, or the defaults, with some of them replaced.

    Args:
        options: their dataclass.
        values: all of them; None for the defaults.
        named: new values by name.
    """
    return options(**named) if values is None else replace(values, **named)  # type: ignore[type-var]


def _help_of(words: str, default: Any) -> str:
    """Return the help text: the words, then the default unless they state it or there is none."""
    if isinstance(default, str | int | float) and default not in ("", False):  # nor 0, equal to it
        words += "" if "default" in words else f" (default: {default})"
    return words.replace("%", "%%")


def _settings_of(kind: Any) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a type: that of a union's first part."""
    if get_origin(kind) in (Union, UnionType):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is Sequence:
        return {**_settings_of(get_args(kind)[0]), "nargs": "+"}
    return {"action": "store_true"} if kind is bool else {"type": kind}
