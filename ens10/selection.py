"""The part of a set of forecasts that a user selects: variables, levels, steps, members, dates."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES, variable_of_param
from ens10.channels import step_number
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grib.message import MessageList

_TOLERANCE = 1e-6  # of levels and steps
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d)?)?)?")


@dataclass(frozen=True)
class Selection:
    """The variables, levels, steps, members and start dates to keep; None keeps all.

    Attributes:
        variables: names of this package (cfgrib's), or GRIB short names.
        levels: pressure levels in hPa; fields that lie on no pressure level are not affected.
        steps: lead times in the data's units (hours, or months).
        members: the numbers of the members, or how many of the first members.
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
        variables: Sequence[str] | None = None,
        levels: Sequence[float] | None = None,
        steps: Sequence[float] | None = None,
        members: Sequence[int] | int | None = None,
        dates: Sequence[Any] | None = None,
    ) -> "Selection":
        """Build a selection from any sequences; years may be numbers, dates may be date objects.

        Examples:
            >>> from ens10.selection import Selection
            >>> Selection.of(variables=["2t"], steps=[24, 48], dates=[2016]).to_dict()["steps"]
            [24.0, 48.0]

        Raises:
            ArgumentError: a sequence is empty.
        """
        return cls(
            _as_tuple("variables", variables, str),
            _as_tuple("levels", levels, float),
            _as_tuple("steps", steps, float),
            members if isinstance(members, int) else _as_tuple("members", members, int),
            _as_tuple("dates", dates, _date_text),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as a dict that JSON can store, with lists instead of tuples."""
        values = asdict(self).items()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Selection":
        """Build a selection from the result of `to_dict`."""
        return cls.of(**values)

    def of_dataset(self, dataset: xr.Dataset) -> xr.Dataset:
        """Return the selected part of a dataset in this package's layout.

        Raises:
            UnknownNameError: a variable, level, step, member or date is not in the dataset.
            ArgumentError: more members than the dataset has.
        """
        if self.variables is not None:
            names = dict.fromkeys(_variable_name(v, dataset) for v in self.variables)
            dataset = dataset[list(names)]
        if self.levels is not None and "level" in dataset.dims:
            dataset = _on_levels(dataset, _places("levels", self.levels, dataset["level"]))
        if self.steps is not None:
            dataset = dataset.isel(step=_places("steps", self.steps, dataset["step"]))
        if self.members is not None:
            numbers = dataset["number"].to_numpy()
            dataset = dataset.isel(number=_member_places(numbers, self.members))
        if self.dates is not None:
            dataset = dataset.isel(time=date_places(dataset["time"].to_numpy(), self.dates))
        return dataset

    def of_variables(self, messages: MessageList) -> MessageList:
        """Return the GRIB messages of the selected variables.

        Raises:
            UnknownNameError: a variable is in none of the messages.
        """
        if self.variables is None:
            return messages
        names = {meaning.name: meaning.name for meaning in messages.meanings}
        known = [(meaning, variable_of_param(meaning.param_id)) for meaning in messages.meanings]
        # 2t is t2m alone, not t2m_maximum
        aliases = {m.short_name: m.name for m, of in known if of is None or of.name == m.name}
        aliases |= names
        for name in self.variables:
            if name not in aliases:
                raise UnknownNameError("variables", name, sorted(names))
        selected_names = {aliases[name] for name in self.variables}
        is_selected = np.array([meaning.name in selected_names for meaning in messages.meanings])
        return messages.take(is_selected[messages.records["meaning"]])

    def of_messages(self, messages: MessageList, numbers: npt.NDArray[Any]) -> MessageList:
        """Return the GRIB messages of the selected levels, members and dates.

        A message without a member number is member 0. Of a variable that has pressure levels, only
        these are selected by `levels`; others are not affected. Steps are selected after sums over
        several messages were planned, by `of_steps`.

        Args:
            messages: of the selected variables.
            numbers: sorted members of all variables, of which the first may be selected.

        Raises:
            UnknownNameError: a level, member or date is in none of the messages.
            ArgumentError: a text that is not a date, more members than there are, or levels of
                surface fields alone.
            MissingDataError: each selected item exists, but no message has all of them.
        """
        if self.levels is None and self.members is None and self.dates is None:
            return messages
        records = messages.records
        keep = np.ones(len(messages), dtype=bool)
        if self.levels is not None:
            keep &= self._on_levels(messages)[records["meaning"]]
        if self.members is not None:
            selected_values = numbers[_member_places(numbers, self.members)]
            keep &= np.isin(np.maximum(records["number"], 0), selected_values)
        if self.dates is not None:
            times = np.unique(records["time"])
            selected_values = times[date_places(times.astype("datetime64[s]"), self.dates)]
            keep &= np.isin(records["time"], selected_values)
        if not keep.any():
            description = "a field with the variables, levels, members and dates selected"
            raise MissingDataError(messages.paths[0].parent, [description], "Select less at a time")
        return messages.take(keep)

    def of_steps(self, steps: Sequence[float]) -> list[float]:
        """Return the selected ones of some sorted steps.

        Raises:
            UnknownNameError: a selected step is none of them.
        """
        if self.steps is None:
            return list(steps)
        return [steps[place] for place in _places("steps", self.steps, steps)]

    def _on_levels(self, messages: MessageList) -> npt.NDArray[np.bool_]:
        """Return which meanings lie on the selected levels."""
        meanings = messages.meanings
        levels = np.array([m.pressure for m in meanings], dtype=np.float64)  # None becomes NaN
        is_upper = ~np.isnan(levels)
        upper = np.unique(levels[is_upper])
        if not upper.size:
            reason = "no selected variable lies on pressure levels"
            raise ArgumentError("levels", reason, "Omit the levels")
        names = np.array([meaning.name for meaning in meanings])
        selected = np.isin(levels, upper[_places("levels", self.levels or (), upper)])
        on_other_levels = ~is_upper & ~np.isin(names, names[is_upper])
        return np.asarray(selected | on_other_levels)


def _as_tuple(argument: str, values: Sequence[Any] | None, convert: Any) -> Any:
    if values is None:
        return None
    result = tuple(convert(value) for value in ([values] if isinstance(values, str) else values))
    if not result:
        raise ArgumentError(argument, "nothing is selected", "Omit it to select all")
    return result


def _date_text(value: str | int | date | np.datetime64) -> str:
    """Return a date as ISO text, to the hour; texts and numbers (years) are unchanged."""
    if isinstance(value, str | int):
        return str(value)
    return str(np.datetime_as_string(np.datetime64(value), unit="h"))


def _variable_name(name: str, dataset: xr.Dataset) -> str:
    """Return the dataset's name of a variable, which may be given by its GRIB short name."""
    names = {v.short_name: v.name for v in VARIABLES.values()}
    for candidate in (name, names.get(name, name)):
        if candidate in dataset.data_vars:
            return candidate
    raise UnknownNameError("variables", name, dataset.data_vars)


def _places(argument: str, selection: Sequence[float], values: Any) -> list[int]:
    """Return the positions of the selected values along a dimension, in the dimension's order."""
    available = np.asarray(values)
    places = set()
    for value in selection:
        matches = np.flatnonzero(np.abs(available.astype(np.float64) - value) <= _TOLERANCE)
        if not matches.size:
            raise UnknownNameError(argument, step_number(value), [f"{v:g}" for v in available])
        places.add(int(matches[0]))
    return sorted(places)


def _on_levels(dataset: xr.Dataset, places: list[int]) -> xr.Dataset:
    """Return the dataset on some levels; a variable that has none of them is dropped."""
    part = dataset.isel(level=places)
    levels = part["level"].to_numpy().tolist()
    empty = []
    for name, field in part.data_vars.items():
        field_levels = field.attrs.get("levels_hpa")
        if field_levels is None or "level" not in field.dims:
            continue
        common = [level for level in np.atleast_1d(field_levels).tolist() if level in levels]
        field.attrs = {**field.attrs, "levels_hpa": common}
        empty += [] if common else [name]
    return part.drop_vars(empty)


def _member_places(numbers: npt.NDArray[Any], members: tuple[int, ...] | int) -> list[int]:
    """Return the positions of the selected members: by their numbers, or the first `members`.

    Raises:
        UnknownNameError: no member has one of the numbers.
        ArgumentError: `members` is less than 1, or more than there are.
    """
    if not isinstance(members, int):
        return _places("members", members, numbers)
    if not 1 <= members <= numbers.size:
        reason = f"needs {members} members, found {numbers.size}"
        raise ArgumentError("members", reason, "Choose fewer")
    return list(range(members))


def date_places(times: npt.NDArray[np.datetime64], dates: Sequence[str]) -> list[int]:
    """Return the sorted positions of the selected start dates; ISO dates are compared as text.

    Args:
        times: start dates, shape (time,).
        dates: the selection: ISO dates, years or months, or FIRST:LAST, both included.

    Examples:
        >>> import numpy as np
        >>> from ens10.selection import date_places
        >>> date_places(np.array(["2016-01-04", "2016-01-07", "2017-01-02"], "M8[s]"), ["2016"])
        [0, 1]

    Raises:
        ArgumentError: a text that is not a date.
        UnknownNameError: no start date matches.
    """
    starts = [str(time)[:19] for time in times]
    places: set[int] = set()
    for item in dates:
        first, colon, last = item.partition(":")
        last = last if colon else first
        if not all(_DATE.fullmatch(end) for end in (first, last)):
            remedy = "Write 2016-01-04, 2016-01, 2016, or FIRST:LAST"
            raise ArgumentError("dates", f"{item!r} is not a date", remedy)
        matches = [
            n
            for n, start in enumerate(starts)
            if start[: len(first)] >= first and start[: len(last)] <= last
        ]
        if not matches:
            raise UnknownNameError("dates", item, [start[:10] for start in starts])
        places.update(matches)
    return sorted(places)
