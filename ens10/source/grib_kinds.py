"""Which GRIB messages are fields of a forecast, under which names; and whether they agree."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ens10.catalog import ACCUMULATED, RATES, VARIABLES
from ens10.errors import FileError
from ens10.grib import LatLonGrid, Meaning, Message, MessageList
from ens10.identity import KINDS_READ, FieldKind, Method, Window, level_in_name
from ens10.source.kinds import tell_products
from ens10.source.units import unit_of

_NEAR = 6e-4  # degrees; edition 1 keeps corners to a thousandth
_Counts = npt.NDArray[np.int64]
_Value = TypeVar("_Value", bound=Hashable)


def with_own_names(messages: MessageList) -> MessageList:
    """Return messages under names that tell the fields of one parameter apart.

    A mean rate of precipitation is named after its amount, unless the files have that amount, too.
    A field of another window than its variable's has the method in its name (`t2m_maximum`), one of
    the air off pressure levels has the level (`u_80m`).
    """
    amounts = {m.name for m in messages.meanings if m.name in ACCUMULATED}
    methods: dict[str, set[Method]] = defaultdict(set)
    for meaning in messages.meanings:
        methods[meaning.name].add(meaning.window.method)
    meanings = [
        replace(meaning, name=_own_name(meaning, amounts, methods[meaning.name]))
        for meaning in messages.meanings
    ]
    return MessageList(messages.paths, messages.records, meanings)


def _own_name(meaning: Meaning, amounts: set[str], methods: set[Method]) -> str:
    name, method = meaning.name, meaning.window.method
    amount = RATES.get(name, "")
    if amount and method == Method.MEAN and amount not in amounts:
        return amount
    is_sum = name in ACCUMULATED and method == Method.SUM
    is_usual = method == Method.POINT or is_sum or (name not in VARIABLES and len(methods) == 1)
    level = level_in_name(name, meaning.level_type, meaning.level)
    return f"{name}{'' if is_usual else f'_{method}'}{level}"


def forecast_messages(messages: MessageList) -> MessageList:
    """Return the members; of variables without any, the deterministic fields.

    Other messages, such as ensemble means and probabilities, are left out; a warning counts them.

    Raises:
        FileError: no message is left.
    """
    is_kept = are_forecasts(messages.meanings)
    if is_kept.all():
        return messages
    counts = np.bincount(messages.records["meaning"], minlength=len(messages.meanings))
    fields: Counter[str] = Counter()
    for meaning, count, kept in zip(messages.meanings, counts.tolist(), is_kept, strict=True):
        if not kept:
            fields[f"{meaning.kind} of {meaning.name}"] += count
    texts = [f"{count} x {name}" for name, count in fields.items()]
    place = messages.paths[0] if len(messages.paths) == 1 else messages.paths[0].parent
    tell_products("fields", texts, place, is_all=not is_kept.any())
    return messages.take(is_kept[messages.records["meaning"]])


def are_forecasts(meanings: Sequence[Meaning]) -> npt.NDArray[np.bool_]:
    """Return which meanings are members; of variables without any, deterministic fields.

    Observations are read where there are neither, as truth.
    """
    kinds: dict[str, set[FieldKind]] = defaultdict(set)
    for meaning in meanings:
        kinds[meaning.name].add(meaning.kind)
    first = {n: next((k for k in KINDS_READ if k in of), None) for n, of in kinds.items()}
    return np.array([m.kind == first[m.name] for m in meanings], dtype=bool)


def window_of(meaning: Meaning) -> Window:
    """Return the window of a field; precipitation that states none is the sum since the start."""
    if meaning.name in ACCUMULATED and meaning.window.method == Method.POINT:
        return Window(Method.SUM, 0, meaning.window.end)
    return meaning.window


def check_agreement(messages: MessageList) -> LatLonGrid:
    """Check that messages agree in grid, units and levels; return the grid.

    Raises:
        FileError: messages disagree in the grid, or messages of one variable in units, parameter or
            type of level. The error names the first message with the rarest value.
    """
    counts = np.bincount(messages.records["meaning"], minlength=len(messages.meanings))
    grid = _common_grid(messages, counts)
    for rule in _RULES:
        groups: dict[Hashable, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
        for n, meaning in enumerate(messages.meanings):
            if rule.is_converted and meaning.name in VARIABLES:
                continue
            group = (meaning.name, meaning.edition if rule.per_edition else 0)
            groups[group][rule.get_value(meaning)].append(n)
        for by_value in groups.values():
            if len(by_value) > 1:
                _refuse(rule, *_odd_and_common(messages, counts, by_value))
    return grid


class _Rule(NamedTuple):
    """A property in which the messages of one variable must agree.

    Attributes:
        key: GRIB key of the property.
        get_value: returns the value that must be equal.
        format_value: formats the value for error messages.
        per_edition: True if only messages of one edition must agree. Parameters and types of level
            differ between editions: ECMWF's 2 m temperature lies at the surface in edition 1, and
            2 m above ground in edition 2.
        selection: how to select messages that agree.
        is_converted: True for a property in which variables of the catalogue may differ, because
            their units are converted.
    """

    key: str
    get_value: Callable[[Meaning], Hashable]
    format_value: Callable[[Meaning], str]
    per_edition: bool
    selection: str = "leave the variable out with --variables"
    is_converted: bool = False


def _level(meaning: Meaning) -> str:
    return f"{meaning.level_type} {meaning.level}"


def _level_type(meaning: Meaning) -> str:
    """Return type and value of the level; an empty text for all pressure levels."""
    return "" if meaning.pressure is not None else _level(meaning)


_LEVELS = "select pressure levels with --levels, or other variables with --variables"
_RULES = (
    _Rule("units", lambda m: unit_of(m.units), lambda m: m.units, False, is_converted=True),
    _Rule("paramId", lambda m: m.param_id, lambda m: str(m.param_id), True, is_converted=True),
    _Rule("typeOfLevel", _level_type, _level, True, _LEVELS),
    _Rule("typeOfLevel", lambda m: m.pressure is not None, _level, False, _LEVELS),
)


def _refuse(rule: _Rule, odd: Message, common: Message) -> None:
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} gives {odd.meaning.name} with {rule.key} "
        f"{rule.format_value(odd.meaning)}, that at {common.place} with "
        f"{rule.format_value(common.meaning)}",
        f"Correct or remove it, or {rule.selection}",
    )


def _common_grid(messages: MessageList, counts: _Counts) -> LatLonGrid:
    by_grid: dict[LatLonGrid, list[int]] = defaultdict(list)
    for n, meaning in enumerate(messages.meanings):
        group_grid = next((grid for grid in by_grid if _is_near(grid, meaning.grid)), meaning.grid)
        by_grid[group_grid].append(n)
    if len(by_grid) == 1:
        return next(iter(by_grid))
    odd, common = _odd_and_common(messages, counts, by_grid)
    raise FileError(
        odd.path,
        f"the message at byte {odd.offset} lies on the grid {odd.meaning.grid}, that of "
        f"{common.place} on {common.meaning.grid} (Ni, Nj and corners)",
        "Correct or remove it, or prepare files on different grids into different stores",
    )


def _is_near(one: LatLonGrid, other: LatLonGrid) -> bool:
    if (one.rows, one.columns) != (other.rows, other.columns):
        return False
    offsets = (one.north - other.north, one.south - other.south, one.west - other.west)
    east_offset = (one.spacing - other.spacing) * one.columns
    return max(abs(offset) for offset in (*offsets, east_offset)) < _NEAR


def _odd_and_common(
    messages: MessageList, counts: _Counts, groups: Mapping[_Value, Sequence[int]]
) -> tuple[Message, Message]:
    """Return the first message of the smallest and of the largest group.

    Of two groups of the same size, the one that comes first in the files counts as the larger.
    """
    sizes = {value: int(counts[ids].sum()) for value, ids in groups.items()}
    largest = max(sizes, key=lambda value: sizes[value])
    others = [value for value in reversed(sizes) if value != largest]
    smallest = min(others, key=lambda value: sizes[value])
    return _first_message(messages, groups[smallest]), _first_message(messages, groups[largest])


def _first_message(messages: MessageList, meanings: Sequence[int]) -> Message:
    return messages[int(np.isin(messages.records["meaning"], meanings).argmax())]
