"""The part of a dataset that is asked for: variables, levels, steps, members, dates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, UnknownNameError
from ens10.source.selection import chosen_dates

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Selection:
    """What to keep; None for all.

    Attributes:
        variables: by this package's name or GRIB's short name.
        levels: in hPa.
        steps: in the data's units (hours, or months).
        members: the numbers of the members, or how many of the first to take.
        dates: start dates as ISO dates, years or months, or FIRST:LAST, both included.
    """

    variables: tuple[str, ...] | None = None
    levels: tuple[float, ...] | None = None
    steps: tuple[float, ...] | None = None
    members: tuple[int, ...] | int | None = None
    dates: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        variables: Sequence[str] | None,
        levels: Sequence[float] | None,
        steps: Sequence[float] | None,
        members: Sequence[int] | int | None,
        dates: Sequence[object] | None,
    ) -> "Selection":
        """A selection from what a caller writes: any sequences, years as numbers."""
        return cls(
            _tuple(variables, str),
            _tuple(levels, float),
            _tuple(steps, float),
            members if members is None or isinstance(members, int) else tuple(map(int, members)),
            _tuple(dates, str),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Selection":
        """The selection that `plain` gave."""
        return cls.of(**plain)

    def of_dataset(self, dataset: xr.Dataset) -> xr.Dataset:
        """The selected part of a dataset in this package's layout.

        Raises:
            UnknownNameError: a variable, level, step, member or date is not there.
            ArgumentError: more members than there are.
        """
        if self.variables is not None:
            dataset = dataset[list(dict.fromkeys(_named(v, dataset) for v in self.variables))]
        if self.levels is not None and "level" in dataset.dims:
            dataset = _on_levels(
                dataset, _indices(dataset["level"].to_numpy(), self.levels, "levels")
            )
        if self.steps is not None:
            dataset = dataset.isel(step=_indices(dataset["step"].to_numpy(), self.steps, "steps"))
        if self.members is not None:
            dataset = dataset.isel(
                number=chosen_members(dataset["number"].to_numpy(), self.members)
            )
        if self.dates is not None:
            dataset = dataset.isel(time=chosen_dates(dataset["time"].to_numpy(), self.dates))
        return dataset


def _tuple(values: Sequence[Any] | None, kind: Any) -> tuple[Any, ...] | None:
    if values is None:
        return None
    if isinstance(values, str):
        values = [values]
    return tuple(kind(value) for value in values)


def _named(name: str, dataset: xr.Dataset) -> str:
    """The dataset's name of a variable, which may be given by its GRIB short name."""
    known = {v.short_name: v.name for v in VARIABLES.values()}
    for candidate in (name, known.get(name, name)):
        if candidate in dataset.data_vars:
            return candidate
    raise UnknownNameError("variables", name, dataset.data_vars)


def _indices(held: npt.NDArray[Any], wanted: Sequence[float], argument: str) -> list[int]:
    """Where the values wanted are along a dimension, in the dimension's order."""
    places = set()
    for value in wanted:
        near = np.flatnonzero(np.abs(held.astype(np.float64) - value) <= _TOLERANCE)
        if not near.size:
            raise UnknownNameError(argument, f"{value:g}", [f"{v:g}" for v in held])
        places.add(int(near[0]))
    return sorted(places)


def _on_levels(dataset: xr.Dataset, places: list[int]) -> xr.Dataset:
    """The dataset on some levels; a variable that has none of them is left out."""
    kept = dataset.isel(level=places)
    levels = kept["level"].to_numpy().tolist()
    lost = []
    for name, field in kept.data_vars.items():
        own = field.attrs.get("levels_hpa")
        if own is None or "level" not in field.dims:
            continue
        held = [level for level in np.atleast_1d(own).tolist() if level in levels]
        field.attrs = {**field.attrs, "levels_hpa": held}
        lost += [] if held else [name]
    return kept.drop_vars(lost)


def chosen_members(held: npt.NDArray[Any], wanted: tuple[int, ...] | int) -> list[int]:
    """Places of the members wanted: some numbers, or how many of the first.

    Args:
        held: numbers of the members, shape (number,).
        wanted: as in `Selection`.

    Raises:
        UnknownNameError: a number is not there.
        ArgumentError: more than there are.
    """
    if not isinstance(wanted, int):
        return _indices(held, wanted, "members")
    if not 1 <= wanted <= held.size:
        raise ArgumentError("members", f"{wanted} of {held.size} members", "Give fewer")
    return list(range(wanted))
