"""Checks of a new forecast as a trained model reads it: the same as those of `ens10 prepare`.

Which members are used is decided when the forecast is opened. Values and gaps are checked when
fields are read, date by date.
"""

import threading
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ens10.channels import split_exactly
from ens10.command_options import InputRules
from ens10.convert import ensemble_moments
from ens10.convert.moments import Chunk
from ens10.convert.work_units import check_plausible
from ens10.errors import ArgumentError, MissingDataError
from ens10.loader.samples import Field, Samples

_REMEDY = "Fetch the forecast again, or accept its gaps with --missing fewer, nan or skip"
Mask = npt.NDArray[np.bool_]


def moments_of_present(members: Field, least: int) -> tuple[Field, Field]:
    """Return mean and standard deviation (n - 1) of the members that are not NaN at each point.

    The variance with n - 1 is unbiased for every n, so no factor is needed for fewer members.

    Args:
        members: shape (M, h, W).
        least: number of members below which both are NaN.
    """
    present = ~np.isnan(members)
    if present.all():
        return ensemble_moments(members, axis=0)
    count = present.sum(axis=0)
    divisor = np.where(count < least, np.nan, count)
    mean = np.where(present, members, 0.0).astype(np.float64).sum(axis=0) / divisor
    deviations = np.where(present, members.astype(np.float64) - mean, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (deviations**2).sum(axis=0) / np.maximum(divisor - 1, 1)
    return mean.astype(np.float32), np.sqrt(variance).astype(np.float32)


@dataclass
class DateInput:
    """The input of one date.

    Attributes:
        partial: points (H, W) that some members of a field lack, but not all.
        gaps: by step and channel, points (H, W) that members which are used lack.
        missing: by step and channel, members (M,) that are NaN everywhere.
    """

    partial: Mask
    gaps: dict[tuple[float, str], Mask] = field(default_factory=dict)
    missing: dict[tuple[float, str], Mask] = field(default_factory=dict)

    @property
    def complete(self) -> Mask:
        """Return the points (H, W) where no field that was read has a gap."""
        return np.asarray(~np.any(list(self.gaps.values()), axis=0))

    @property
    def present(self) -> Mask:
        """Return the members (M,) that have all fields."""
        return np.asarray(~np.any(list(self.missing.values()), axis=0))

    @property
    def fewest(self) -> int:
        """Return the number of members of the field that has the fewest."""
        return min(int((~missing).sum()) for missing in self.missing.values())


class InputChecks:
    """Checks of the fields that a model reads; see `ens10.loader.samples.MemberChecks`.

    Args:
        samples: the forecasts.
        rules: what is accepted of them.
        source: where they come from, for errors.
        least: smallest number of members that the model takes.
        whole_members: True if the model takes members, of which each has all fields; False if it
            takes mean and deviation of each field.

    Attributes:
        rules: as given.
        used: number of members that are used, by date, of the dates that were read.
        partial: number of points with gaps in some members, by date.
    """

    def __init__(
        self, samples: Samples, rules: InputRules, source: str, least: int, whole_members: bool
    ) -> None:
        self.rules, self._samples, self._source = rules, samples, source
        self._least, self._whole_members = least, whole_members
        self._dates: dict[tuple[int, int], DateInput] = {}
        self.used: dict[int, int] = {}
        self.partial: dict[int, int] = {}
        for target in samples.targets:
            target.checks = self

    def examine(self, i: int, step: float, channel: str, members: Field) -> None:
        """Check the members (M, H, W) of a channel of date `i`.

        Raises:
            FileError: implausible values.
        """
        key = (threading.get_ident(), i)
        record = self._dates.get(key)
        if record is None:
            record = self._dates[key] = DateInput(np.zeros(members.shape[1:], np.bool_))
        ranges = [Chunk.of_floats(values) for values in members]
        surface = self._samples.levels[channel] is None
        variable = channel if surface else split_exactly(channel)[0]
        for n, limits in enumerate(() if self.rules.any_values else ranges):
            where = partial(self._place, i, step, channel, n)
            check_plausible(variable, limits.minimum, limits.maximum, where)
        points = members[0].size
        missing = np.array([limits.gaps == points for limits in ranges])
        record.missing[step, channel] = missing
        finite = np.isfinite(members)
        present = finite[~missing]
        record.partial |= present.any(axis=0) & ~present.all(axis=0)
        if not self.rules.fewer:
            complete = finite.all(axis=0)
        elif self._whole_members:
            complete = present.all(axis=0)
        else:
            complete = finite.sum(axis=0) >= self._least
        record.gaps[step, channel] = np.asarray(~complete)

    def moments(self, i: int, step: float, channel: str, members: Field) -> tuple[Field, Field]:
        """Check members, and return their mean and standard deviation (n - 1)."""
        self.examine(i, step, channel, members)
        if self.rules.fewer:
            return moments_of_present(members, self._least)
        return ensemble_moments(members, axis=0)

    def finish(self, i: int) -> DateInput:
        """Return the record of date `i`, whose fields have all been read.

        Raises:
            MissingDataError: fields are missing that the rules do not accept.
            ArgumentError: too few members.
        """
        record = self._dates.pop((threading.get_ident(), i))
        has_gaps = any(missing.any() for missing in record.missing.values())
        if has_gaps and self.rules.missing in ("error", "skip"):
            raise MissingDataError(self._source, self._gaps(i, record), _REMEDY)
        used = int(record.present.sum()) if self._whole_members else record.fewest
        if self.rules.fewer and used < self._least:
            reason = f"needs at least {self._least} members, found {used} at {self._date(i)}"
            raise ArgumentError(
                "members", reason, "Fetch the forecast again, or leave out the date"
            )
        self.used[i], self.partial[i] = used, int(record.partial.sum())
        return record

    def notes(self) -> list[str]:
        """Return a line about dates with fewer members, and one about points with gaps."""
        notes, count = [], self._samples.members
        few = sorted(i for i, used in self.used.items() if used < count)
        if few and self.rules.fewer:
            least = min(self.used[i] for i in few)
            notes.append(
                f"{least} of {count} members are used at {len(few)} of {len(self.used)} dates, "
                f"the first {self._date(few[0])}"
                if len({self.used[i] for i in few}) == 1
                else f"fewer than {count} members, at least {least}, are used at {len(few)} of "
                f"{len(self.used)} dates, the first {self._date(few[0])}"
            )
        gaps = sorted(i for i, points in self.partial.items() if points)
        if gaps and not self.rules.fewer:
            notes.append(
                f"{self.partial[gaps[0]]} points of {self._date(gaps[0])} lack values of some "
                f"members ({len(gaps)} of {len(self.partial)} dates have such points); --missing "
                "fewer uses the members that are there"
            )
        return notes

    def _gaps(self, i: int, record: DateInput) -> list[str]:
        """Describe the missing fields of a date, one a line."""
        lines = []
        for (step, channel), missing in record.missing.items():
            when = f"time {self._date(i)} step {step:g} {self._samples.step_units}"
            if missing.all():
                lines.append(f"{when}: all members of {channel}")
            else:
                labels = [self._samples.member_labels[n] for n in np.flatnonzero(missing)]
                lines += [f"{when} number {label}: {channel}" for label in labels]
        return lines

    def _date(self, i: int) -> str:
        return str(self._samples.time[i])[:13]

    def _place(self, i: int, step: float, channel: str, n: int) -> str:
        label = self._samples.member_labels[n]
        return f"{self._source}: {self._date(i)}, step {step:g}, {channel}, number {label}"
