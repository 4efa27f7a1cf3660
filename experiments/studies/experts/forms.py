"""Forms that layers of experts can have, and the search for the best of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ens10.errors import UnknownNameError

_PREFIX = "form"


@dataclass(frozen=True)
class Form:
    """Where the layers of experts are, and their sizes.

    Args:
        levels: of the U-Net whose convolutions are experts, 0 at the full grid.
        per_selected: E / k, experts for each selected one.
        filters: of an expert.
    """

    levels: tuple[int, ...]
    per_selected: float
    filters: int

    @property
    def name(self) -> str:
        """The name in arms, in place of a level of the factor `experts`."""
        return f"{_PREFIX}.{''.join(map(str, self.levels))}.{self.per_selected:g}.{self.filters}"

    @property
    def label(self) -> str:
        """Levels, filters and E / k of the experts in words, for tables."""
        levels = " and ".join(map(str, self.levels))
        ratio = "k" if self.per_selected == 1 else f"{self.per_selected:g}k"
        return f"levels {levels}: {self.filters} filters, E = {ratio}"


def form_of(name: str) -> Form | None:
    """Return the form of a name; None for another name.

    Raises:
        UnknownNameError: the name of no form that begins as one.
    """
    kind, *parts = name.split(".")
    if kind != _PREFIX:
        return None
    try:
        levels, per_selected, filters = parts
        return Form(tuple(map(int, levels)), float(per_selected), int(filters))
    except ValueError:
        example = f"{_PREFIX}.LEVELS.RATIO.FILTERS"
        raise UnknownNameError("form of experts", name, [example]) from None


def walk(
    start: Form, parts: Mapping[str, Iterable[object]], losses: Mapping[Form, float]
) -> tuple[list[list[Form]], Form | None]:
    """Follow the search for the best form as far as losses are known.

    The parts are varied one after the other, with the best value of those before.

    Args:
        start: form at the first step.
        parts: names of attributes of a form, and the values tried.
        losses: validation loss of the forms that were trained.

    Returns:
        The forms of each step up to the first that lacks a loss; and the best of the last step, or
        None if one lacks a loss.
    """
    steps: list[list[Form]] = []
    best = start
    for part, values in parts.items():
        forms = [_with(best, part, value) for value in values]
        steps.append(forms)
        if not losses.keys() >= {*forms}:
            return steps, None
        best = min(forms, key=losses.__getitem__)
    return steps, best


def _with(form: Form, part: str, value: object) -> Form:
    changed: dict[str, object] = {part: tuple(value) if isinstance(value, list) else value}
    return replace(form, **changed)  # type: ignore[arg-type]
