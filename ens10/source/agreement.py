"""Whether messages agree in grid, units, parameter and kind of level, or which one does not."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ens10.errors import FileError
from ens10.grib import LatLonGrid, Meaning, Message, MessageList
from ens10.source.selection import HECTOPASCAL

_NEAR = 6e-4  # degrees; edition 1 keeps corners to a thousandth
_Counts = npt.NDArray[np.int64]
_Value = TypeVar("_Value", bound=Hashable)


def check_agreement(messages: MessageList) -> LatLonGrid:
    """The common grid of messages.

    Raises:
        FileError: a message lies on another grid than the others, or gives its variable other
            units, another parameter or another kind of level; the message that fewest agree with
            is named.
    """
    counts = np.bincount(messages.records["meaning"], minlength=len(messages.meanings))
    grid = _common_grid(messages, counts)
    for rule in _RULES:
        groups: dict[Hashable, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
        for n, meaning in enumerate(messages.meanings):
            group = (meaning.name, meaning.edition if rule.per_edition else 0)
            groups[group][rule.agree_on(meaning)].append(n)
        for by_value in groups.values():
            if len(by_value) > 1:
                _refuse(rule, *_odd_and_common(messages, counts, by_value))
    return grid


class _Rule(NamedTuple):
    """What the messages of one variable must agree on.

    Attributes:
        key: GRIB's name of it.
        agree_on: what must be equal.
        shown: as messages say it.
        per_edition: whether only messages of one edition must agree. The editions have parameters
            and kinds of level of their own: ECMWF's 2 m temperature lies at the surface in edition
            1, and 2 m above ground in edition 2.
    """

    key: str
    agree_on: Callable[[Meaning], Hashable]
    shown: Callable[[Meaning], str]
    per_edition: bool


def _is_pressure(meaning: Meaning) -> bool:
    return meaning.level_type in HECTOPASCAL


def _level(meaning: Meaning) -> str:
    return f"{meaning.level_type} {meaning.level}"


def _place(meaning: Meaning) -> str:
    """The level; one and the same for all pressure levels."""
    return "" if _is_pressure(meaning) else _level(meaning)


_RULES = (
    _Rule("units", lambda m: m.units, lambda m: m.units, False),
    _Rule("paramId", lambda m: m.param_id, lambda m: str(m.param_id), True),
    _Rule("typeOfLevel", _place, _level, True),
    _Rule("typeOfLevel", _is_pressure, _level, False),
)


def _refuse(rule: _Rule, odd: Message, common: Message) -> None:
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} gives {odd.name} with {rule.key} "
        f"{rule.shown(odd.meaning)}, that at {common.place} with {rule.shown(common.meaning)}",
        "Mend or remove it, or prepare the two kinds of field separately",
    )


def _common_grid(messages: MessageList, counts: _Counts) -> LatLonGrid:
    by_grid: dict[LatLonGrid, list[int]] = defaultdict(list)
    for n, meaning in enumerate(messages.meanings):
        near = next((grid for grid in by_grid if _is_near(grid, meaning.grid)), meaning.grid)
        by_grid[near].append(n)
    if len(by_grid) == 1:
        return next(iter(by_grid))
    odd, common = _odd_and_common(messages, counts, by_grid)
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} lies on the grid {odd.grid}, that of {common.place} on "
        f"{common.grid} (Ni, Nj and corners)",
        "Mend or remove it, or prepare files on different grids into different stores",
    )


def _is_near(one: LatLonGrid, other: LatLonGrid) -> bool:
    if (one.rows, one.columns) != (other.rows, other.columns):
        return False
    apart = (one.north - other.north, one.south - other.south, one.west - other.west)
    turned = (one.spacing - other.spacing) * one.columns
    return max(abs(degrees) for degrees in (*apart, turned)) < _NEAR


def _odd_and_common(
    messages: MessageList, counts: _Counts, groups: Mapping[_Value, Sequence[int]]
) -> tuple[Message, Message]:
    """The first message of the smallest and of the largest group, where a group lists meanings.

    Of two groups of one size the one that comes first in the files is taken for the larger.
    """
    sizes = {value: int(counts[ids].sum()) for value, ids in groups.items()}
    largest = max(sizes, key=lambda value: sizes[value])
    rest = [value for value in reversed(sizes) if value != largest]
    smallest = min(rest, key=lambda value: sizes[value])
    return _first(messages, groups[smallest]), _first(messages, groups[largest])


def _first(messages: MessageList, meanings: Sequence[int]) -> Message:
    return messages[int(np.isin(messages.records["meaning"], meanings).argmax())]
