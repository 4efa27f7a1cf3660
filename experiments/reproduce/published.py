"""Values that papers published for ENS-10: shown beside results, never used in tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError
from ens10.untrusted import read_mapping

UNVERIFIED = "?"  # marks what could not be checked in a second source
_KEYS = {"score", "line", "target", "members", "value", "source", "confirmed"}


@dataclass(frozen=True)
class Value:
    """A published global mean.

    Attributes:
        score: "crps" or "eecrps".
        line: name of the model in the paper.
        target: such as "t2m" or "z500".
        members: of the ensemble; None if the paper does not say.
        value: as it was printed, in the units of `Published.units`.
        source: key of `Published.sources`.
        confirmed: whether a second source agrees.
    """

    score: str
    line: str
    target: str
    members: int | None
    value: str
    source: str
    confirmed: bool = False

    @property
    def number(self) -> float:
        """The value as a number."""
        return float(self.value)

    @property
    def text(self) -> str:
        """The value as it was printed, with a mark if it is unverified."""
        return f"{self.value}{'' if self.confirmed else UNVERIFIED}"


@dataclass(frozen=True)
class Published:
    """The published values, and their relation to configurations.

    Attributes:
        lines: configurations that are shown beside each of the papers' models.
        units: of the scores, by target.
        sources: by key, `cite`, `link` and perhaps `note` of a source.
        values: the numbers.
        notes: what is needed to compare a line with the configurations beside it.
    """

    lines: Mapping[str, tuple[str, ...]]
    units: Mapping[str, str]
    sources: Mapping[str, Mapping[str, str]]
    values: tuple[Value, ...]
    notes: Mapping[str, str] = field(default_factory=dict)

    def line_of(self, model: str) -> str | None:
        """Return the papers' model beside which a configuration is shown; None if there is none."""
        return next((line for line, models in self.lines.items() if model in models), None)

    def find(self, score: str, model: str, target: str, members: int) -> Value | None:
        """Return the published value for a configuration; None if there is none.

        A value without a number of members matches any number.
        """
        key = (score, self.line_of(model), target)
        matches = (v for v in self.values if (v.score, v.line, v.target) == key)
        return next((v for v in matches if v.members in (None, members)), None)


def load_published(path: Path | None = None) -> Published:
    """Load the published values.

    Args:
        path: of the file; None for the package's own.

    Raises:
        ArgumentError: a key, line, target or source that the file does not explain, or a note on a
            line that it does not have.
    """
    path = path or Path(str(files("ens10.experiments"))) / "published" / "ens10.yaml"
    content = read_mapping(path)
    values = tuple(_value(entry, content, path) for entry in content["values"])
    places = [(v.score, v.line, v.target, v.members) for v in values]
    for place in places:
        if places.count(place) > 1:
            raise ArgumentError("published", f"{path} gives {place} twice")
    lines = {line: tuple(models) for line, models in content["lines"].items()}
    notes = content.get("notes", {})
    unknown = sorted(set(notes) - set(lines))
    if unknown:
        raise ArgumentError("published", f"{path}: {unknown[0]!r} is none of its lines")
    return Published(lines, content["units"], content["sources"], values, notes)


def _value(entry: dict[str, Any], content: dict[str, Any], path: Path) -> Value:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise ArgumentError("published", f"{path} has a key {unknown[0]!r} in {entry}")
    for key, part in (("line", "lines"), ("target", "units"), ("source", "sources")):
        if entry.get(key) not in content[part]:
            raise ArgumentError("published", f"{path}: {entry.get(key)!r} is none of its {part}")
    return Value(**entry)
