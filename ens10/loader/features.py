"""Which fields become features, in which order, and the statistics that normalise them.

The order is: ensemble means of the inputs, their standard deviations, a mask for each input with
gaps (if the protocol wants masks), then the extras, which are not normalised.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.channels import resolve, step_number
from ens10.climate import Normaliser, normaliser, years_of
from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.samples import Moment, Samples, SumsOfYears
from ens10.protocol import Protocol, Splits

Extra = Literal["location", "day_of_year"]
EXTRA_NAMES = {
    "location": ("sin_lat", "cos_lat_sin_lon", "cos_lat_cos_lon"),
    "day_of_year": ("sin_day", "cos_day"),
}
Input = tuple[str, float]
_MASK = ":mask"
_DAYS = 365.25


def parse_inputs(inputs: Sequence[str] | None, samples: Samples) -> list[Input]:
    """(channel, step) of each input, grouped by step in the order of first mention.

    Args:
        inputs: channels, with `@step` where the step is not the target's; None for all channels
            on the target's level (all surface channels for a surface target).
        samples: the data.

    Raises:
        UnknownNameError: a channel or step that the data lack.
        ArgumentError: no channel at all.
    """
    if inputs is None:
        level = samples.levels[samples.target]
        return [(c, samples.step) for c in samples.channels if samples.levels[c] == level]
    parsed: list[Input] = []
    for text in inputs:
        name, _, step = text.partition("@")
        if step and step not in map(str, samples.steps):
            raise UnknownNameError(f"step of input {text!r}", step, samples.steps)
        parsed.append(
            (resolve(name, samples.channels, "inputs"), step_number(step or samples.step))
        )
    if not parsed:
        raise ArgumentError("inputs", "no channel is given", "Name some, or leave inputs out")
    steps = list(dict.fromkeys(step for _, step in parsed))
    return sorted(parsed, key=lambda pair: steps.index(pair[1]))


def by_step(inputs: Iterable[Input]) -> dict[float, list[str]]:
    """Channels of each step, in order."""
    grouped: dict[float, list[str]] = {}
    for channel, step in inputs:
        grouped.setdefault(step, []).append(channel)
    return grouped


def labels(inputs: Iterable[Input], target_step: float) -> list[str]:
    """The inputs' names: the channel, with `@step` where it is not the target's."""
    return [c if step == target_step else f"{c}@{step}" for c, step in inputs]


def feature_statistics(
    samples: Samples, inputs: Sequence[Input], protocol: Protocol, splits: Splits, factor: float
) -> Normaliser:
    """Mean and scale of every feature but the extras; masks are left as they are.

    They are of the dates that are valid in the years of the split, whatever dates are split by.

    Args:
        samples: the data.
        inputs: from `parse_inputs`.
        protocol: says which years count.
        splits: the years.
        factor: of the stored standard deviations (n - 1) to the protocol's.
    """
    names = ["train"] if protocol.normalise_on == "train" else list(splits.years)
    years = sorted({year for name in names for year in splits.years[name]})
    sums = _sums(samples, inputs, years)
    named = labels(inputs, samples.step)
    count, total, square = sums["std"]
    deviations = (count, factor * total, factor**2 * square)
    parts = [
        normaliser([f"{n}:mean" for n in named], *sums["mean"], protocol.epsilon),
        normaliser([f"{n}:std" for n in named], *deviations, protocol.epsilon),
    ]
    if protocol.masks:
        dates = int(np.isin(years_of(samples.valid_time), years).sum())
        gaps = (sums["mean"][0] < dates).any(axis=(1, 2))
        parts.append(_masks([f"{named[n]}{_MASK}" for n in np.flatnonzero(gaps)], samples))
    return Normaliser(
        tuple(name for part in parts for name in part.channels),
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.scale for part in parts]),
    )


def masked_inputs(statistics: Normaliser, inputs: Sequence[Input], target_step: float) -> list[int]:
    """Positions of the inputs that have a mask, if the statistics belong to these inputs.

    Raises:
        ArgumentError: the statistics are those of other features.
    """
    named = labels(inputs, target_step)
    wanted = [f"{name}:{moment}" for moment in get_args(Moment) for name in named]
    held = list(statistics.channels)
    if held[: len(wanted)] != wanted:
        raise ArgumentError(
            "inputs",
            f"the features {', '.join(wanted)} are not those of the training, {', '.join(held)}",
            "Give the inputs of the training, in its order",
        )
    return [named.index(name.removesuffix(_MASK)) for name in held[len(wanted) :]]


def day_of_year_cycle(date: np.datetime64) -> npt.NDArray[np.float32]:
    """Sine and cosine of the day of the year, (2,)."""
    day = (date - date.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    angle = 2 * np.pi * float(day) / _DAYS
    return np.array([np.sin(angle), np.cos(angle)], dtype=np.float32)


def _sums(samples: Samples, inputs: Sequence[Input], years: list[int]) -> dict[Moment, SumsOfYears]:
    parts = [samples.sums(years, s, channels) for s, channels in by_step(inputs).items()]
    whole: dict[Moment, SumsOfYears] = {}
    for moment in get_args(Moment):
        held = [part[moment] for part in parts]
        count, total, square = (np.concatenate(part) for part in zip(*held, strict=True))
        whole[moment] = (count, total, square)
    return whole


def _masks(names: Sequence[str], samples: Samples) -> Normaliser:
    shape = (len(names), len(samples.latitude), len(samples.longitude))
    return Normaliser(tuple(names), np.zeros(shape, np.float32), np.ones(shape, np.float32))
