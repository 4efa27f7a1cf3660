"""The features of one date: which fields, in which order, read, masked and normalised in place.

The order is: ensemble means of the inputs, their standard deviations, a mask for each input with
gaps (if the protocol asks for masks), then the extras, which are not normalised.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args
from typing import Protocol as Interface

import numba
import numpy as np
import numpy.typing as npt

from ens10.channels import resolve, step_number
from ens10.climate import Normaliser, normaliser, years_of
from ens10.compiled import OPTIONS
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import location_features
from ens10.loader.member_subset import MemberSubset, Subset
from ens10.loader.samples import Field, Moment, Samples, SumsOfDates, Where
from ens10.protocol import Protocol
from ens10.splits import Splits

Extra = Literal["location", "altitude", "day_of_year", "lead"]
EXTRA_NAMES = {
    "location": ("sin_lat", "cos_lat_sin_lon", "cos_lat_cos_lon"),
    "altitude": ("altitude_km",),
    "day_of_year": ("sin_day", "cos_day"),
    "lead": ("lead",),
}
Input = tuple[str, float]
Mask = npt.NDArray[np.bool_]
STATIC = ("location", "altitude")
_MASK = ":mask"
_DAYS = 365.25
_HOURS = 24.0


def parse_inputs(inputs: Sequence[str] | None, samples: Samples) -> list[Input]:
    """Return (channel, step) of each input, grouped by step in the order of first mention.

    Args:
        inputs: channels, with `@step` where the step is not the target's; None for all channels
            on the target's level (all surface channels for a surface target), or on those of
            several targets.
        samples: the data; of several lead times the inputs at the first are returned.

    Raises:
        UnknownNameError: a channel or step that the data lack.
        ArgumentError: no channel at all, or a step in a channel's name although there are several
            lead times.
    """
    if inputs is None:
        levels = {samples.levels[one.target] for one in samples.targets}
        return [(c, samples.step) for c in samples.channels if samples.levels[c] in levels]
    pairs: list[Input] = []
    for text in inputs:
        name, _, step = text.partition("@")
        if step and len(samples.leads) > 1:
            reason = f"{text!r} has a lead time, but inputs are those of each of several"
            raise ArgumentError("inputs", reason, f"Write {name!r}, or train one run per lead time")
        if step and step not in map(str, samples.steps):
            raise UnknownNameError(f"step of input {text!r}", step, samples.steps)
        pairs.append((resolve(name, samples.channels, "inputs"), step_number(step or samples.step)))
    if not pairs:
        raise ArgumentError("inputs", "no channel is given", "Name some, or leave inputs out")
    steps = list(dict.fromkeys(step for _, step in pairs))
    return sorted(pairs, key=lambda pair: steps.index(pair[1]))


def by_step(inputs: Iterable[Input]) -> dict[float, list[str]]:
    """Group channels by step, in order."""
    groups: dict[float, list[str]] = {}
    for channel, step in inputs:
        groups.setdefault(step, []).append(channel)
    return groups


def labels(inputs: Iterable[Input], target_step: float) -> list[str]:
    """Return the inputs' names: the channel, with `@step` if it is not the target's."""
    return [c if step == target_step else f"{c}@{step}" for c, step in inputs]


def feature_statistics(
    samples: Samples, inputs: Sequence[Input], protocol: Protocol, splits: Splits, factor: float
) -> Normaliser:
    """Return mean and scale of every feature but the extras; masks are unchanged.

    Statistics are of the dates of the splits that the protocol names. If splits are years, they are
    of all dates that are valid in these years at the lead time of the samples.

    Args:
        samples: the data; of several lead times each has statistics of its own.
        inputs: from `parse_inputs`.
        protocol: names the splits.
        splits: their dates.
        factor: of the stored standard deviations (n - 1) to the protocol's.
    """
    if len(samples.leads) > 1:
        index = {name: samples.by_lead(dates) for name, dates in splits.index.items()}
        statistics = [
            feature_statistics(
                lead,
                inputs_at(inputs, lead),
                protocol,
                replace(splits, index={name: dates[n] for name, dates in index.items()}),
                factor,
            )
            for n, lead in enumerate(samples.leads)
        ]
        return _of_leads(statistics, labels(inputs, samples.step), samples)
    names = ["train"] if protocol.normalise_on == "train" else list(splits.years)
    dates = np.unique(np.concatenate([splits.index[name] for name in names]))
    if protocol.kind_of_splits == "years":
        years = sorted({year for name in names for year in splits.years[name]})
        dates = np.flatnonzero(np.isin(years_of(samples.valid_time), years))
    sums = _sums(samples, inputs, dates)
    input_labels = labels(inputs, samples.step)
    count, total, square = sums["std"]
    deviations = (count, factor * total, factor**2 * square)
    parts = [
        normaliser([f"{n}:mean" for n in input_labels], *sums["mean"], protocol.epsilon),
        normaliser([f"{n}:std" for n in input_labels], *deviations, protocol.epsilon),
    ]
    if protocol.masks:
        gaps = (sums["mean"][0] < dates.size).any(axis=(1, 2))
        parts.append(_masks([f"{input_labels[n]}{_MASK}" for n in np.flatnonzero(gaps)], samples))
    channels = tuple(name for part in parts for name in part.channels)
    mean, scale = (np.concatenate([getattr(p, name) for p in parts]) for name in ("mean", "scale"))
    return Normaliser(channels, mean, scale)


def inputs_at(inputs: Sequence[Input], lead: Samples) -> list[Input]:
    """Return inputs of several lead times at one of these."""
    return [(channel, lead.step) for channel, _ in inputs]


def _of_leads(
    statistics: Sequence[Normaliser], input_labels: Sequence[str], samples: Samples
) -> Normaliser:
    """Stack statistics of several lead times; an input with gaps at one of them has a mask."""
    gaps = {name for part in statistics for name in part.channels[2 * len(input_labels) :]}
    masks = _masks([f"{name}{_MASK}" for name in input_labels if f"{name}{_MASK}" in gaps], samples)
    count = 2 * len(input_labels)
    return Normaliser(
        (*statistics[0].channels[:count], *masks.channels),
        np.stack([np.concatenate([part.mean[:count], masks.mean]) for part in statistics]),
        np.stack([np.concatenate([part.scale[:count], masks.scale]) for part in statistics]),
    )


def masked_inputs(statistics: Normaliser, inputs: Sequence[Input], target_step: float) -> list[int]:
    """Return the indices of inputs that have a mask, after checking the statistics' features.

    Raises:
        ArgumentError: the statistics are those of other features.
    """
    input_labels = labels(inputs, target_step)
    expected = [f"{name}:{moment}" for moment in get_args(Moment) for name in input_labels]
    names = list(statistics.channels)
    if names[: len(expected)] != expected:
        reason = (
            f"the features {', '.join(expected)} are not those of the training, {', '.join(names)}"
        )
        raise ArgumentError("inputs", reason, "Pass the inputs of the training, in its order")
    return [input_labels.index(name.removesuffix(_MASK)) for name in names[len(expected) :]]


def gaps_without_mask(
    statistics: Normaliser,
    inputs: Sequence[Input],
    protocol: Protocol,
    target_step: float,
    gaps_of: Callable[[Input], Mask],
) -> Mask | None:
    """Return the points where a network reads 0 in place of an input, and no mask says so.

    With `masks: false`, points that an input lacks in the whole training (sst over land) are no
    gaps.

    Args:
        statistics: of the training.
        inputs: (channel, step) of the inputs.
        protocol: of the training.
        target_step: lead time of the target.
        gaps_of: returns the points (H, W) that an input lacks.

    Returns:
        The points (H, W); None if all inputs have masks.
    """
    masked, gaps = masked_inputs(statistics, inputs, target_step), None
    for n, one in enumerate(inputs):
        if n not in masked:
            in_training = (statistics.mean[n] != 0) | protocol.masks
            missing = gaps_of(one) & in_training
            gaps = missing if gaps is None else gaps | missing
    return gaps


def day_of_year_cycle(date: np.datetime64) -> npt.NDArray[np.float32]:
    """Return sine and cosine of the day of the year, (2,)."""
    day = (date - date.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    angle = 2 * np.pi * float(day) / _DAYS
    return np.array([np.sin(angle), np.cos(angle)], dtype=np.float32)


def biased_factor(members: int) -> float:
    """Return the factor from the standard deviation with n - 1 to that with n."""
    return float(((members - 1) / members) ** 0.5)


def lead_feature(samples: Samples) -> float:
    """Return the lead time in days, or in months in seasonal data."""
    return samples.step if samples.step_units == "months" else samples.step / _HOURS


def _sums(
    samples: Samples, inputs: Sequence[Input], dates: npt.NDArray[np.int64]
) -> dict[Moment, SumsOfDates]:
    parts = [samples.sums(dates, s, channels) for s, channels in by_step(inputs).items()]
    sums: dict[Moment, SumsOfDates] = {}
    for moment in get_args(Moment):
        step_sums = [part[moment] for part in parts]
        count, total, square = (np.concatenate(part) for part in zip(*step_sums, strict=True))
        sums[moment] = (count, total, square)
    return sums


def _masks(names: Sequence[str], samples: Samples) -> Normaliser:
    shape = (len(names), len(samples.latitude), len(samples.longitude))
    return Normaliser(tuple(names), np.zeros(shape, np.float32), np.ones(shape, np.float32))


Floats = npt.NDArray[np.float32]
_TILE = 64  # points that are copied at once: all their features fit in the nearest cache


@numba.njit(**OPTIONS)
def set_weights(truth, raw_mean, row_weights, weights):  # type: ignore[no-untyped-def]
    """Set the weights of a date's points, and weights and truth to 0 where one field is missing.

    Args:
        truth: shape (H, W), changed in place.
        raw_mean: shape (H, W).
        row_weights: shape (H,).
        weights: shape (H, W), written.
    """
    rows, columns = truth.shape
    for row in range(rows):
        for column in range(columns):
            valid = np.isfinite(truth[row, column]) and np.isfinite(raw_mean[row, column])
            weights[row, column] = row_weights[row] if valid else np.float32(0)
            if not valid:
                truth[row, column] = np.float32(0)


@numba.njit(**OPTIONS)
def scatter_points(source, first, places, out):  # type: ignore[no-untyped-def]
    """Write the features of each point contiguously, at the point's position.

    Args:
        source: shape (features, points), the fields of one date.
        first: position in `places` of the first point.
        places: row of `out` for each point of all dates.
        out: shape (rows, features).
    """
    features, points = source.shape
    for begin in range(0, points, _TILE):
        end = min(begin + _TILE, points)
        for feature in range(features):
            for point in range(begin, end):
                out[places[first + point], feature] = source[feature, point]


@numba.njit(**OPTIONS)
def _standardise(values, mean, scale, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        value = (values[i] - mean[i]) / scale[i]
        out[i] = value if abs(value) < np.inf else np.float32(0)  # False for NaN, too


def standardise(values: Floats, mean: Floats, scale: Floats, out: Floats) -> None:
    """Write (values - mean) / scale, and 0 where that is NaN or infinite.

    An infinite value is a gap, as for masks and statistics: a large finite number instead would
    give a finite but meaningless loss.

    Args:
        values: any shape, contiguous.
        mean: of the same size, contiguous.
        scale: like `mean`.
        out: like `values`, which it may be.
    """
    _standardise(values.reshape(-1), mean.reshape(-1), scale.reshape(-1), out.reshape(-1))


Features = Literal["moments", "members"]
Arrays = dict[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


def _static_features(extra: Extra, samples: Samples) -> Field:
    """Return the features (C, H, W) that are the same on all dates: the location, the altitude."""
    if extra == "location":
        return location_features(*samples.degrees)
    if "altitude" not in samples.stations:
        remedy = "Add a coordinate `altitude` of the stations in m, or leave the extra out"
        raise MissingDataError(samples.label, ["the altitude of the points"], remedy)
    metres: Field = samples.stations["altitude"].values.astype(np.float32)
    missing = [n for n, m in zip(samples.station_names, metres, strict=True) if not np.isfinite(m)]
    if missing:
        raise MissingDataError(samples.label, [f"altitude of station {n}" for n in missing])
    return metres[None, None] / np.float32(1000)


class Content(Interface):
    """Interface for reading dates: `DateContent`, or `CachedContent` around it.

    Attributes:
        samples: the data.
    """

    samples: Samples

    def shapes(self, rows: int) -> Shapes:
        """Return the shapes of a date's arrays, with `rows` rows."""

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Write the arrays of date `i`, and return the bytes read."""

    def of_members(self, subset: Subset) -> "DateContent | LeadsContent":
        """Return the content of an ensemble that consists of some members."""


class DateContent:
    """Features, raw ensemble, target and weights of one date.

    Args:
        samples: the data, of one lead time.
        inputs: (channel, step) of the inputs, grouped by step.
        normaliser: of means, deviations and masks.
        masked: positions of the inputs that have a mask.
        factor: from the standard deviation with n - 1 to the protocol's.
        row_weights: (H,) weights of the rows.
        extras: further features.
        features: "moments" (means and deviations) or "members" of the inputs.
        members: True if the members of the target are read too.
        normalise: True if features are normalised; if not, they have their units, and gaps NaN.
    """

    def __init__(
        self, samples: Samples, inputs: Sequence[Input], normaliser: Normaliser,
        masked: Sequence[int], factor: float, row_weights: npt.NDArray[np.float64],
        extras: Sequence[Extra], features: Features, members: bool, normalise: bool = True,
    ) -> None:  # fmt: skip
        self.samples, self._inputs, self._normaliser = samples, list(inputs), normaliser
        self._masked_inputs, self._factor = list(masked), np.float32(factor)
        self._row_weights = row_weights.astype(np.float32)
        self._extras = tuple(extras)
        self._static_fields = {
            extra: _static_features(extra, samples) for extra in extras if extra in STATIC
        }
        self._features, self._members = features, members
        self._normalise = normalise
        self._targets = {(one.target, one.step): n for n, one in enumerate(samples.targets)}
        self._check_grid()

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        extras = [name for extra in self._extras for name in EXTRA_NAMES[extra]]
        if self._features == "moments":
            return (*self._normaliser.channels, *extras)
        input_labels = labels(self._inputs, self.samples.step)
        return (*input_labels, *(f"{input_labels[n]}:mask" for n in self._masked_inputs), *extras)

    def of_members(self, subset: Subset) -> "DateContent":
        """Return the content of an ensemble that consists of some members.

        Features are normalised with the statistics of the whole ensemble.
        """
        other = copy(self)
        other.samples = MemberSubset(self.samples, subset)
        if self._factor != 1:
            other._factor = np.float32(biased_factor(len(subset.places)))
        return other

    def shapes(self, rows: int) -> Shapes:
        """Return the shapes of a date's arrays, with `rows` rows."""
        field = (rows, len(self.samples.longitude))
        members = (self.samples.members,)
        outer = members if self._features == "members" else ()
        shapes: Shapes = {"features": (*outer, len(self.channels), *field)}
        targets = (len(self._targets),) if len(self._targets) > 1 else ()
        fields = ("raw_mean", "raw_std", "target", "weights")
        shapes |= dict.fromkeys(fields, (*targets, *field))
        if self._members:
            shapes["members"] = (*targets, *members, *field)
        return shapes

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Write the arrays of date `i`.

        Args:
            i: position of the date in `samples`.
            out: arrays of `shapes`; each field contiguous.
            rows: slice of the rows to read, without a step.

        Returns:
            Bytes read.
        """
        by_member = self._features == "members"
        count = self._read_members(i, out, rows) if by_member else self._read_moments(i, out, rows)
        names = ("target", "raw_mean", "weights")
        truth, raw_mean, weights = (self._by_target(out, name) for name in names)
        for n, samples in enumerate(self.samples.targets):
            count += samples.read_truth(i, truth[n], rows)
            set_weights(truth[n], raw_mean[n], self._row_weights[rows], weights[n])
            if "members" in out:
                members = self._by_target(out, "members")[n]
                where = Where(i, samples.step, rows)
                count += samples.read_members(where, samples.target, members)
        self._write_extras(i, out["features"], rows)
        return count

    def _by_target(self, out: Arrays, name: str) -> npt.NDArray[Any]:
        """Return a view of an array with the targets first, also if there is only one."""
        return out[name] if len(self._targets) > 1 else out[name][None]

    def _read_moments(self, i: int, out: Arrays, rows: slice) -> int:
        features, first, count = out["features"], 0, 0
        inputs = len(self._inputs)
        deviations = features[inputs : 2 * inputs]
        for step, channels in by_step(self._inputs).items():
            last = first + len(channels)
            mean, std = features[first:last], deviations[first:last]
            place = (out, rows, first)
            moves = partial(self._move_mean, *place), partial(self._move_deviation, *place)
            where = Where(i, step, rows)
            count += self.samples.read_moments(where, channels, mean, std, moves)
            first = last
        for target in self._targets:
            if target not in self._inputs:
                count += self._read_raw(i, out, rows, target)
        return count

    def _move_mean(
        self, out: Arrays, rows: slice, first: int, k: int, values: Field, place: Field
    ) -> None:
        n = first + k
        if (target := self._targets.get(self._inputs[n])) is not None:
            self._by_target(out, "raw_mean")[target] = values
        self._move_input(out["features"], 2 * len(self._inputs), n, rows, values, place)

    def _move_deviation(
        self, out: Arrays, rows: slice, first: int, k: int, values: Field, place: Field
    ) -> None:
        if self._factor != 1:
            values = np.multiply(values, self._factor, out=place)
        if (target := self._targets.get(self._inputs[first + k])) is not None:
            self._by_target(out, "raw_std")[target] = values
        self._standardise(len(self._inputs) + first + k, rows, values, place)

    def _read_members(self, i: int, out: Arrays, rows: slice) -> int:
        count = sum(self._read_raw(i, out, rows, target) for target in self._targets)
        features = out["features"]
        for n, (channel, step) in enumerate(self._inputs):

            def move(member: int, values: Field, place: Field, n: int = n) -> None:
                self._move_input(features[member], len(self._inputs), n, rows, values, place)

            plain_copy = not self._normalise and n not in self._masked_inputs
            input_move = None if plain_copy else move
            where = Where(i, step, rows)
            count += self.samples.read_members(where, channel, features[:, n], input_move)
        return count

    def _read_raw(self, i: int, out: Arrays, rows: slice, target: Input) -> int:
        channel, step = target
        n = self._targets[target]
        mean, std = (self._by_target(out, name)[n] for name in ("raw_mean", "raw_std"))
        count = self.samples.read_moments(Where(i, step, rows), [channel], mean[None], std[None])
        if self._factor != 1:
            std *= self._factor
        return count

    def _move_input(
        self, features: Field, masks: int, n: int, rows: slice, values: Field, place: Field
    ) -> None:
        """Write mask and feature of input `n`, from its values."""
        if n in self._masked_inputs:
            mask = features[masks + self._masked_inputs.index(n)]
            np.isfinite(values, out=mask, casting="unsafe")
        self._standardise(n, rows, values, place)

    def _standardise(self, n: int, rows: slice, values: Field, place: Field) -> None:
        """Write feature `n` to its place, normalised if `normalise`."""
        statistics = self._normaliser
        if self._normalise:
            standardise(values, statistics.mean[n, rows], statistics.scale[n, rows], place)
        elif values is not place:
            np.copyto(place, values)

    def _write_extras(self, i: int, features: Field, rows: slice) -> None:
        count = sum(len(EXTRA_NAMES[extra]) for extra in self._extras)
        place = features.shape[-3] - count
        for extra in self._extras:
            last = place + len(EXTRA_NAMES[extra])
            if extra in self._static_fields:
                features[..., place:last, :, :] = self._static_fields[extra][:, rows]
            elif extra == "lead":
                features[..., place:last, :, :] = lead_feature(self.samples)
            else:
                cycle = day_of_year_cycle(self.samples.valid_time[i])
                features[..., place:last, :, :] = cycle[:, None, None]
            place = last

    def _check_grid(self) -> None:
        """Refuse statistics of another grid.

        Raises:
            ArgumentError: they do not fit.
        """
        statistics_grid = self._normaliser.mean.shape[1:]
        grid = (len(self.samples.latitude), len(self.samples.longitude))
        if statistics_grid != grid:
            reason = f"a grid of {grid} (rows, columns) does not fit the normalisation statistics"
            remedy = "Use data on the grid, and with the inputs, of the training"
            raise ArgumentError("features", f"{reason}, which have {statistics_grid}", remedy)


class LeadsContent:
    """Features, raw ensemble, target and weights of one date at one of several lead times.

    Args:
        samples: the data, of several lead times.
        contents: of each lead time.
    """

    def __init__(self, samples: Samples, contents: Sequence[DateContent]) -> None:
        self.samples, self._contents = samples, list(contents)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return self._contents[0].channels

    def of_members(self, subset: Subset) -> "LeadsContent":
        """Return the content of an ensemble that consists of some members."""
        return LeadsContent(self.samples, [one.of_members(subset) for one in self._contents])

    def shapes(self, rows: int) -> Shapes:
        """Return the shapes of a date's arrays, with `rows` rows."""
        return self._contents[0].shapes(rows)

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Write the arrays of date `i`, and return the bytes read."""
        lead, place = self.samples.locate(i)
        return self._contents[lead].read(place, out, rows)
