"""The interface `Samples`: fields and coordinates of the dates of an ensemble and its truth."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.channels import (
    attributes_of,
    channel_names,
    field_of,
    resolve,
    split_exactly,
    step_number,
)
from ens10.climate import FieldSums
from ens10.errors import ArgumentError, MissingDataError
from ens10.identity import (
    SINCE_START,
    Label,
    Method,
    format_windows,
    member_labels,
    parse_windows,
)
from ens10.stations import STATION, coordinates, degrees

Field = npt.NDArray[np.float32]
Moment = Literal["mean", "std"]
# count, sum and sum of squares, each (C, H, W)
SumsOfDates = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
_LOG = logging.getLogger(__name__)
_ALL = slice(None)
# Writes a field to its place in a batch, e.g. normalised: called with the index of the field, its
# values and the destination, both (h, W). `ens10.store.chunks.Reader.read_into` calls it.
Move = Callable[[int, Field, Field], None]
Moves = tuple[Move | None, Move | None]  # of means and of deviations; None copies
_COPY: Moves = (None, None)
# the number of members, counted from the first; or a function from the labels of the data's members
# to those of the ensemble, in their order; None for all
Members = int | Callable[[Sequence[Label]], Sequence[Label]] | None
# attributes that `SeveralSamples` takes from its first samples
_COMMON = (
    "label", "channels", "levels", "steps", "target", "step", "latitude", "longitude",
    "degrees", "stations", "members", "numbers", "member_labels", "windows", "units",
    "attributes", "step_units", "has_truth",
)  # fmt: skip
_WITH_TRUTH = "Prepare the store again with --truth, or give truth= beside a dataset"


class Where(NamedTuple):
    """The fields to read: date, lead time and rows.

    Attributes:
        date: position of the date.
        step: lead time.
        rows: slice of the rows, without a step.
    """

    date: int
    step: float
    rows: slice = _ALL


class MemberChecks(Protocol):
    """Checks of the members of fields as they are read."""

    def examine(self, i: int, step: float, channel: str, members: Field) -> None:
        """Check the members (M, h, W) of a channel of date `i`."""

    def moments(self, i: int, step: float, channel: str, members: Field) -> tuple[Field, Field]:
        """Check members, and return their mean and standard deviation (n - 1), (h, W) each."""


class Samples(ABC):
    """The dates of an ensemble with their truth; fields come one date at a time.

    Args:
        dataset: forecasts, for their names and coordinates.
        truth: for its coordinates; None for forecasts without truth, which a trained model may
            correct, and whose dates are all of the test split.
        target: channel, with `@step` if the truth (or a forecast without truth) has several steps.
        ensemble: members that make the ensemble; see `Members`.

    Attributes:
        channels: all channels, canonical names.
        levels: the level of each channel in hPa, None at the surface.
        steps: lead times of the forecasts.
        target: canonical name of the target channel.
        step: lead time of the target.
        time: (n,) start dates.
        valid_time: (n,) valid dates of the target.
        latitude: (H,) degrees north.
        longitude: (W,) degrees east. Of stations, both only count; see `ens10.stations`.
        degrees: latitude and longitude of each point, (H, W) each.
        stations: coordinates of the stations along the columns, empty for a grid.
        members: size of the ensemble.
        member_labels: labels of its members, numbers or texts; those that the data lack are NaN.
        numbers: numbers of its members; 1 to n if their labels are texts.
        windows: time windows of channels that are not since the start, such as "6 h".
        units: of the channels, as far as the data state them.
        checks: of members that are read; None for none.
        attributes: CF attributes of the target.
        step_units: "h" or "months".
        has_truth: True if there is truth; without it `read_truth` writes NaN.
        label: where the data come from, for errors.
    """

    label = "data"
    checks: MemberChecks | None = None

    def __init__(
        self,
        dataset: xr.Dataset,
        truth: xr.Dataset | None,
        target: str,
        ensemble: Members = None,
    ) -> None:
        name, _, step = target.partition("@")
        channels = channel_names(dataset)
        self.channels = channels
        self.levels = {
            channel: None if channel in dataset.data_vars else split_exactly(channel)[1]
            for channel in channels
        }
        self.target = resolve(name, channels, "target")
        self.steps = [step_number(s) for s in np.atleast_1d(dataset["step"].to_numpy())]
        self.has_truth = truth is not None
        source = dataset if truth is None else truth
        if truth is None and not step and dataset["step"].size > 1:
            remedy = f"{_WITH_TRUTH}; to correct forecasts, name the lead time, such as t2m@48"
            raise MissingDataError(self.label, ["the truth"], remedy)
        self.step = _target_step(step, source, "truth" if self.has_truth else "the forecast")
        self.step_units = str(dataset["step"].attrs.get("units", "h"))
        self._truth = field_of(source, self.target, "target").sel(step=self.step)
        times = self._truth["time"].to_numpy()
        self._positions = _positions(dataset["time"].to_numpy(), times)
        self.time: npt.NDArray[np.datetime64] = times
        self.valid_time: npt.NDArray[np.datetime64] = self._truth["valid_time"].to_numpy()
        self.latitude = dataset["latitude"].to_numpy()
        self.longitude = dataset["longitude"].to_numpy()
        self.degrees = degrees(dataset)
        self.stations = coordinates(dataset)
        labels = member_labels(dataset["number"])
        self.member_labels = own = _ensemble_labels(labels, ensemble)
        self.members = len(own)
        self.numbers = [k if isinstance(n, str) else n for k, n in enumerate(own, 1)]
        self._present = [k for k, label in enumerate(own) if label in labels]
        self._member_places = [labels.index(own[k]) for k in self._present]
        names = {c: c if n is None else split_exactly(c)[0] for c, n in self.levels.items()}
        self.windows = _windows(dataset, names, self.step)
        self.units = {c: str(dataset[name].attrs.get("units", "")) for c, name in names.items()}
        self.attributes: dict[str, Any] = {
            **attributes_of(self.target),
            **{k: v for k, v in self._truth.attrs.items() if k == "units"},
        }

    def __len__(self) -> int:
        return len(self.time)

    def require_truth(self) -> None:
        """Raise an error if there is no truth, which training and scores need.

        Raises:
            MissingDataError: there is no truth.
        """
        if not self.has_truth:
            raise MissingDataError(self.label, ["the truth"], _WITH_TRUTH)

    @abstractmethod
    def read_truth(self, i: int, out: Field, rows: slice = _ALL) -> int:
        """Write the truth of date `i`, NaN where missing, into `out` (h, W).

        Args:
            i: position of the date.
            out: contiguous.
            rows: slice of the rows to read, without a step.

        Returns:
            Bytes read.
        """

    @abstractmethod
    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves = _COPY
    ) -> int:
        """Write ensemble mean and standard deviation (n - 1), each (C, h, W).

        Args:
            where: date, lead time and rows.
            channels: of the fields.
            mean: each field contiguous.
            std: like `mean`.
            moves: write the fields of `mean` and of `std` to their places, e.g. normalised; None
                copies them.

        Returns:
            Bytes read.
        """

    @abstractmethod
    def read_members(self, where: Where, channel: str, out: Field, move: Move | None = None) -> int:
        """Write the members of one channel, (M, h, W), each contiguous."""

    def sums(
        self, dates: npt.NDArray[np.int64], step: float, channels: Sequence[str]
    ) -> dict[Moment, SumsOfDates]:
        """Return sums of ensemble mean and deviation over the dates at these positions.

        The fields of these dates are read.
        """
        shape = (len(channels), *self._grid)
        mean, deviation = FieldSums(shape), FieldSums(shape)
        _LOG.info("Statistics of %d members from %d dates, read once", self.members, len(dates))
        for i in dates:
            moments = self.moments(int(i), step, channels)
            mean.add(moments[0])
            deviation.add(moments[1])
        return {
            "mean": (mean.count, mean.total, mean.square),
            "std": (deviation.count, deviation.total, deviation.square),
        }

    @property
    def leads(self) -> "list[Samples]":
        """The samples of each lead time; these alone if there is one."""
        return [self]

    @property
    def targets(self) -> "list[Samples]":
        """The samples of each target at the (first) lead time; these alone if there is one."""
        return [self]

    def locate(self, i: int) -> tuple[int, int]:
        """Return the lead time (its place in `leads`) of date `i`, and the date's place there."""
        return 0, i

    def by_lead(self, positions: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        """Return positions in the samples of each lead time."""
        places = [self.locate(i) for i in positions.tolist()]
        leads = range(len(self.leads))
        return [np.array([i for of, i in places if of == lead], np.int64) for lead in leads]

    def truth(self, i: int) -> Field:
        """Return the truth of date `i`, (H, W), NaN where missing."""
        out = np.empty(self._grid, np.float32)
        self.read_truth(i, out)
        return out

    def moments(self, i: int, step: float, channels: Sequence[str]) -> tuple[Field, Field]:
        """Return ensemble mean and standard deviation (n - 1) of date `i`, each (C, H, W)."""
        mean, std = np.empty((2, len(channels), *self._grid), np.float32)
        self.read_moments(Where(i, step), channels, mean, std)
        return mean, std

    def ensemble(self, i: int) -> Field:
        """Return the members of the target of date `i`, (M, H, W)."""
        out = np.empty((self.members, *self._grid), np.float32)
        self.read_members(Where(i, self.step), self.target, out)
        return out

    def without_truth(self) -> npt.NDArray[np.int64]:
        """Return positions of dates without any truth, as far as metadata list them."""
        return np.empty(0, np.int64)

    def missing_points(self, i: int, step: float, channel: str) -> npt.NDArray[np.bool_]:
        """Return the points (H, W) that some member of a field lacks."""
        mean, _ = self.moments(i, step, [channel])
        missing: npt.NDArray[np.bool_] = ~np.isfinite(mean[0])
        return missing

    @property
    def station_names(self) -> list[str]:
        """Return the names of the stations, as text; none of a grid."""
        return [str(name) for name in self.stations[STATION].values] if self.stations else []

    @property
    def horizontal(self) -> dict[str, Any]:
        """Return the coordinates of rows and columns, or of stations, as xarray takes them."""
        if self.stations:
            return {name: (STATION, v.values, v.attrs) for name, v in self.stations.items()}
        return {
            "latitude": ("latitude", self.latitude, {"units": "degrees_north"}),
            "longitude": ("longitude", self.longitude, {"units": "degrees_east"}),
        }

    @property
    def _grid(self) -> tuple[int, int]:
        return len(self.latitude), len(self.longitude)

    def _moments_of(self, where: Where, channel: str, members: Field) -> tuple[Field, Field]:
        """Return mean and standard deviation of members (M, h, W) that were read."""
        from ens10.convert import ensemble_moments  # needs zarr

        if self.checks is None:
            return ensemble_moments(members, axis=0)
        return self.checks.moments(where.date, where.step, channel, members)


class SeveralSamples(Samples):
    """Samples of several targets or lead times, for one training of all.

    A date counts once for each lead time: `time` and `valid_time` are those of the first lead time,
    then those of the second, and so on. Attributes and fields that differ between targets are
    those of the first, `sums` those of the first lead time too; `leads` and `targets` hold the
    others.

    Args:
        parts: samples by lead time, then target, of one source.

    Raises:
        ArgumentError: the dates of the targets differ.
    """

    def __init__(self, parts: Sequence[Sequence[Samples]]) -> None:
        self._parts = [list(part) for part in parts]
        for name in _COMMON:
            setattr(self, name, getattr(parts[0][0], name))
        for lead in self._parts:
            for other in lead[1:]:
                if not np.array_equal(other.time, lead[0].time):
                    reason = f"{other.target} and {lead[0].target} have truth on different dates"
                    raise ArgumentError("target", reason, "Train one run for each")
        self.time = np.concatenate([lead[0].time for lead in self._parts])
        self.valid_time = np.concatenate([lead[0].valid_time for lead in self._parts])
        self._ends = np.cumsum([len(lead[0]) for lead in self._parts])
        self._leads: list[Samples] = [self]
        if len(self._parts) > 1:
            self._leads = [p[0] if len(p) == 1 else SeveralSamples([p]) for p in self._parts]

    @property
    def leads(self) -> list[Samples]:
        """The samples of each lead time."""
        return self._leads

    @property
    def targets(self) -> list[Samples]:
        """The samples of each target at the first lead time."""
        return self._parts[0]

    def locate(self, i: int) -> tuple[int, int]:
        """Return the lead time (its place in `leads`) of date `i`, and the date's place there."""
        lead = int(np.searchsorted(self._ends, i, side="right"))
        return lead, i - int(self._ends[lead]) + len(self._parts[lead][0])

    def require_truth(self) -> None:
        """Raise an error if the samples of a target or lead time have no truth."""
        for lead in self._parts:
            for samples in lead:
                samples.require_truth()

    def read_truth(self, i: int, out: Field, rows: slice = _ALL) -> int:
        """Write the truth of the first target."""
        lead, place = self.locate(i)
        return self._parts[lead][0].read_truth(place, out, rows)

    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves = _COPY
    ) -> int:
        """Write ensemble mean and standard deviation."""
        lead, date = self.locate(where.date)
        where = where._replace(date=date)
        return self._parts[lead][0].read_moments(where, channels, mean, std, moves)

    def read_members(self, where: Where, channel: str, out: Field, move: Move | None = None) -> int:
        """Write the members of one channel."""
        lead, date = self.locate(where.date)
        return self._parts[lead][0].read_members(where._replace(date=date), channel, out, move)

    def sums(
        self, dates: npt.NDArray[np.int64], step: float, channels: Sequence[str]
    ) -> dict[Moment, SumsOfDates]:
        """Return the sums over dates at these positions, which are of the first lead time."""
        return self._parts[0][0].sums(dates, step, channels)

    def without_truth(self) -> npt.NDArray[np.int64]:
        """Return positions of dates without truth of any target, as far as metadata list them."""
        positions = []
        for lead, end in zip(self._parts, self._ends.tolist(), strict=True):
            places = lead[0].without_truth()
            for other in lead[1:]:
                places = np.intersect1d(places, other.without_truth())
            positions.append(places + end - len(lead[0]))
        return np.concatenate(positions)


def move_in_place(moves: Iterable[Move | None], *fields: Field) -> None:
    """Apply moves in place to fields (n, h, W) that are already at their destination."""
    for move, stack in zip(moves, fields, strict=True):
        if move is not None:
            for n, field in enumerate(stack):
                move(n, field, field)


def _ensemble_labels(labels: Sequence[Label], ensemble: Members) -> list[Label]:
    """Return the labels of the members that make the ensemble."""
    if callable(ensemble):
        return list(ensemble(labels))
    if ensemble is not None and ensemble < 1:
        raise ArgumentError("ensemble", f"{ensemble} is less than 1")
    if ensemble is not None and ensemble > len(labels):
        raise ArgumentError("ensemble", f"needs {ensemble} members, found {len(labels)}")
    return list(labels[:ensemble])


def _windows(dataset: xr.Dataset, names: Mapping[str, str], step: float) -> dict[str, str]:
    """Return the time windows of channels that are not since the start, at one lead time.

    Args:
        dataset: the forecasts.
        names: variable of each channel.
        step: the lead time.
    """
    from ens10.source.windows import in_seconds, stated_window  # needs dask

    stated = {channel: stated_window(dataset[name]) for channel, name in names.items()}
    windows = {
        channel: format_windows(parse_windows(text, in_seconds([step]), Method.SUM))
        for channel, text in stated.items()
        if text not in (None, SINCE_START)
    }
    return {channel: text for channel, text in windows.items() if text != SINCE_START}


def _target_step(step: str, dataset: xr.Dataset, label: str) -> float:
    steps = [step_number(s) for s in np.atleast_1d(dataset["step"].to_numpy())]
    if not step and len(steps) == 1:
        return steps[0]
    if step in map(str, steps):
        return step_number(step)
    raise ArgumentError(
        "target",
        f"{label} exists at the steps {steps}" + (f", not at {step}" if step else ""),
        "Name one, such as t2m@48",
    )


def _positions(
    times: npt.NDArray[np.datetime64], target_times: npt.NDArray[np.datetime64]
) -> npt.NDArray[np.int64]:
    index = {t: n for n, t in enumerate(times.astype("datetime64[s]").astype(np.int64).tolist())}
    seconds = target_times.astype("datetime64[s]").astype(np.int64).tolist()
    missing = [str(t)[:13] for t, s in zip(target_times, seconds, strict=True) if s not in index]
    if missing:
        raise MissingDataError("data", missing, "Prepare forecasts and truth together")
    return np.array([index[s] for s in seconds], dtype=np.int64)
