"""Errors of the command line in a few lines: what is not known, and what was probably meant."""

import re
import sys
from typing import Any, NoReturn

from ens10.errors import suggestion

_UNRECOGNISED = re.compile(r"(?:Unrecognized arguments|unrecognized arguments): (?P<names>.+)")
_KEY = re.compile(r"Key '(?P<key>[^']+)' is not expected|No action for key \"(?P<other>[^\"]+)\"")


def brief(message: str, known: list[str]) -> str:
    """The first lines of a parser's message, with a suggestion for a name that is not known."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    text = " ".join(lines[:3])
    wrong = _UNRECOGNISED.search(text) or _KEY.search(text)
    if wrong:
        name = next(group for group in wrong.groups() if group).split()[0].split("=")[0]
        hint = suggestion(name.lstrip("-"), [option.lstrip("-") for option in known])
        return f"{name} is not known{hint}."
    return text


def parser_class(base: type[Any]) -> type[Any]:
    """A subclass of a jsonargparse parser whose errors are brief, with exit status 2."""

    class BriefParser(base):  # type: ignore[misc]
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
            known = [option for action in self._actions for option in action.option_strings]
            sys.stderr.write(f"ens10: {brief(message, known)}\n")
            sys.exit(2)

    return BriefParser
