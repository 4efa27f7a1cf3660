"""Samples whose ensemble is a part of the members of other samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ens10.loader.samples import (
    _ALL,
    _COMMON,
    _COPY,
    Field,
    Move,
    Moves,
    Samples,
    Where,
    move_in_place,
)

# members (M, h, W) by date, lead time and channel
Members = dict[tuple[int, float, str], Field]


class Subset(NamedTuple):
    """Some members of the ensemble, and the fields that subsets of a date share.

    Attributes:
        places: positions of the members in the ensemble.
        fields: members that were read; all subsets with this mapping are read at the same rows.
    """

    places: Sequence[int]
    fields: Members


class MemberSubset(Samples):
    """The samples of an ensemble that consists of some members of another one.

    Mean and standard deviation are computed from these members, which are read once for all subsets
    with the same mapping of fields.

    Args:
        samples: of one lead time, with all members.
        subset: the members.
    """

    def __init__(self, samples: Samples, subset: Subset) -> None:
        for name in (*_COMMON, "time", "valid_time", "checks"):
            setattr(self, name, getattr(samples, name))
        self._samples, self._subset = samples, subset
        self.members = len(subset.places)
        self.member_labels = [samples.member_labels[n] for n in subset.places]
        self.numbers = [samples.numbers[n] for n in subset.places]

    @property
    def targets(self) -> list[Samples]:
        """The samples of each target."""
        return [MemberSubset(samples, self._subset) for samples in self._samples.targets]

    def read_truth(self, i: int, out: Field, rows: slice = _ALL) -> int:
        """Write the truth of date `i`, which is that of the whole ensemble."""
        return self._samples.read_truth(i, out, rows)

    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves = _COPY
    ) -> int:
        """Write mean and standard deviation (n - 1) of the members, each (C, h, W)."""
        count = 0
        for n, channel in enumerate(channels):
            members, bytes_read = self._read(where, channel, mean.shape[1:])
            mean[n], std[n] = self._moments_of(where, channel, members)
            count += bytes_read
        move_in_place(moves, mean, std)
        return count

    def read_members(self, where: Where, channel: str, out: Field, move: Move | None = None) -> int:
        """Write the members of one channel, (M, h, W)."""
        out[...], count = self._read(where, channel, out.shape[1:])
        move_in_place((move,), out)
        return count

    def _read(self, where: Where, channel: str, shape: tuple[int, ...]) -> tuple[Field, int]:
        """Return the members of one channel, and the bytes read."""
        key, count = (where.date, where.step, channel), 0
        fields = self._subset.fields
        if key not in fields:
            fields[key] = np.empty((self._samples.members, *shape), np.float32)
            count = self._samples.read_members(where, channel, fields[key])
        return fields[key][list(self._subset.places)], count
