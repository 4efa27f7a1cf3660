"""Options that are declared once: what the command line and the signature of a function get."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import pytest

from ens10 import command_options
from ens10.options import add_options, chosen, flags_of, option, takes, words_of
from ens10.usage import command_parser

DECLARED = [c for c in vars(command_options).values() if is_dataclass(c)]


@dataclass(frozen=True)
class Base:
    """A part of the options.

    Attributes:
        seed: seed of what
            is drawn.
    """

    seed: int = 3


@dataclass(frozen=True)
class Options(Base):
    """Options of a command.

    Attributes:
        kinds: of 10 % of them.
        trust: code to trust; repeatable.
        form: how it is written (default: as it was).
        inner: for calls alone.

    Raises:
        ValueError: never.
    """

    kinds: Sequence[str] = option((), flag="--kind", metavar="K")
    trust: Sequence[str] = option((), metavar="MODULE", action="append", nargs=None)
    form: Literal["long", "short"] | None = None
    inner: bool = option(False, flag="")


@takes(Options)
def run(out: str, options: Options | None = None, *, progress: bool = False, **named: Any) -> Any:
    """Write something."""
    return out, progress, chosen(Options, options, named)


def parsed(*words):
    parser = command_parser("x")
    add_options(parser, Options)
    return vars(parser.parse_args(list(words)))


def test_the_command_line_has_names_types_and_defaults_of_the_attributes():
    assert parsed() == {"seed": 3, "kinds": [], "trust": [], "form": None}
    words = ["--seed", "5", "--kind", ">3", "<4", "--trust", "a", "--trust", "b", "--form", "long"]
    assert parsed(*words) == {
        "seed": 5, "kinds": [">3", "<4"], "trust": ["a", "b"], "form": "long"
    }  # fmt: skip


def test_the_help_has_the_words_of_the_docstring(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "--seed SEED seed of what is drawn (default: 3) " in shown
    assert "--kind K [K ...] of 10 % of them " in shown
    assert "--form {long,short} how it is written (default: as it was)" in shown
    assert "inner" not in shown


def test_a_function_takes_all_options_or_single_ones():
    assert run("a", seed=5) == ("a", False, Options(seed=5))
    assert run("a", Options(form="long"), seed=5, progress=True)[2] == Options(5, form="long")
    with pytest.raises(TypeError, match="sed"):
        run("a", sed=5)


def test_the_signature_and_the_docstring_show_single_options():
    signature = inspect.signature(run)
    assert list(signature.parameters) == [
        "out", "options", "progress", "seed", "kinds", "trust", "form", "inner"
    ]  # fmt: skip
    assert signature.parameters["seed"].default == 3
    assert run.__doc__.splitlines()[-5:-3] == [
        "    seed: seed of what is drawn.", "    kinds: of 10 % of them."
    ]  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.__name__)
def test_every_option_of_a_command_has_words_and_a_default(declared):
    assert words_of(declared).keys() >= {one.name for one in fields(declared)}
    assert all(words_of(declared).values())
    declared()
    flags = list(flags_of(declared).values())
    assert len(set(flags)) == len(flags)
