"""The fields of one date as a batch holds them: read, masked and normalised in place."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ens10.climate import Normaliser
from ens10.errors import ArgumentError
from ens10.loader.features import EXTRA_NAMES, Extra, Input, by_step, day_of_year_cycle, labels
from ens10.loader.kernels import pair, standardise
from ens10.loader.samples import Field, Samples

Features = Literal["moments", "members"]
Arrays = dict[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


class Content(Protocol):
    """What reads dates: `DateContent`, or `PinnedContent` around it.

    Attributes:
        samples: the data.
    """

    samples: Samples

    def shapes(self, rows: int) -> Shapes:
        """Shapes of a date's arrays, with this number of rows."""

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Writes the arrays of date `i`, and returns the bytes read."""


class DateContent:
    """Features, raw ensemble, target and weights of one date.

    Args:
        samples: the data.
        inputs: (channel, step) of the inputs, grouped by step.
        normaliser: of means, deviations and masks.
        masked: positions of the inputs that have a mask.
        factor: from the standard deviation with n - 1 to the protocol's.
        row_weights: (H,) weights of the rows.
        location: (3, H, W) location features.
        extras: further features.
        features: "moments" (means and deviations) or "members" of the inputs.
        members: whether the members of the target are read too.
        normalise: whether features are normalised; if not, they have their units, and gaps NaN.
    """

    def __init__(
        self,
        samples: Samples,
        inputs: Sequence[Input],
        normaliser: Normaliser,
        masked: Sequence[int],
        factor: float,
        row_weights: npt.NDArray[np.float64],
        location: Field,
        extras: Sequence[Extra],
        features: Features,
        members: bool,
        normalise: bool = True,
    ) -> None:
        self.samples, self._inputs, self._normaliser = samples, list(inputs), normaliser
        self._masked, self._factor = list(masked), np.float32(factor)
        self._row_weights = row_weights.astype(np.float32)
        self._location, self._extras = location, tuple(extras)
        self._features, self._members = features, members
        self._normalised = normalise
        self._target = (samples.target, samples.step)
        self._check_grid()

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        extras = [name for extra in self._extras for name in EXTRA_NAMES[extra]]
        if self._features == "moments":
            return (*self._normaliser.channels, *extras)
        named = labels(self._inputs, self.samples.step)
        return (*named, *(f"{named[n]}:mask" for n in self._masked), *extras)

    def shapes(self, rows: int) -> Shapes:
        """Shapes of a date's arrays, with this number of rows."""
        field = (rows, len(self.samples.longitude))
        members = (self.samples.members,)
        outer = members if self._features == "members" else ()
        shapes: Shapes = {"features": (*outer, len(self.channels), *field)}
        shapes |= dict.fromkeys(("raw_mean", "raw_std", "target", "weights"), field)
        if self._members:
            shapes["members"] = (*members, *field)
        return shapes

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Writes the arrays of date `i`.

        Args:
            i: position of the date in `samples`.
            out: arrays of `shapes`; each field contiguous.
            rows: the rows wanted, without a step.

        Returns:
            Bytes read.
        """
        many = self._features == "members"
        count = self._read_members(i, out, rows) if many else self._read_moments(i, out, rows)
        count += self.samples.read_truth(i, out["target"], rows)
        pair(out["target"], out["raw_mean"], self._row_weights[rows], out["weights"])
        if "members" in out:
            target, step = self._target
            count += self.samples.read_members(i, step, target, out["members"], rows)
        self._write_extras(i, out["features"], rows)
        return count

    def _read_moments(self, i: int, out: Arrays, rows: slice) -> int:
        features, first, count = out["features"], 0, 0
        inputs = len(self._inputs)
        deviations = features[inputs : 2 * inputs]
        for step, channels in by_step(self._inputs).items():
            last = first + len(channels)
            mean, std = features[first:last], deviations[first:last]
            moves = (
                partial(self._move_mean, out, rows, first),
                partial(self._move_deviation, out, rows, first),
            )
            count += self.samples.read_moments(i, step, channels, mean, std, rows, moves)
            first = last
        if self._target not in self._inputs:
            count += self._read_raw(i, out, rows)
        return count

    def _move_mean(
        self, out: Arrays, rows: slice, first: int, k: int, values: Field, place: Field
    ) -> None:
        n = first + k
        if self._inputs[n] == self._target:
            out["raw_mean"][...] = values
        self._move_input(out["features"], 2 * len(self._inputs), n, rows, values, place)

    def _move_deviation(
        self, out: Arrays, rows: slice, first: int, k: int, values: Field, place: Field
    ) -> None:
        if self._factor != 1:
            values = np.multiply(values, self._factor, out=place)
        if self._inputs[first + k] == self._target:
            out["raw_std"][...] = values
        self._standardise(len(self._inputs) + first + k, rows, values, place)

    def _read_members(self, i: int, out: Arrays, rows: slice) -> int:
        count = self._read_raw(i, out, rows)
        features = out["features"]
        for n, (channel, step) in enumerate(self._inputs):

            def move(member: int, values: Field, place: Field, n: int = n) -> None:
                self._move_input(features[member], len(self._inputs), n, rows, values, place)

            as_read = not self._normalised and n not in self._masked
            wanted = None if as_read else move
            count += self.samples.read_members(i, step, channel, features[:, n], rows, wanted)
        return count

    def _read_raw(self, i: int, out: Arrays, rows: slice) -> int:
        target, step = self._target
        mean, std = out["raw_mean"], out["raw_std"]
        count = self.samples.read_moments(i, step, [target], mean[None], std[None], rows)
        if self._factor != 1:
            std *= self._factor
        return count

    def _move_input(
        self, features: Field, masks: int, n: int, rows: slice, values: Field, place: Field
    ) -> None:
        """Mask and feature of input `n`, from its values."""
        if n in self._masked:
            mask = features[masks + self._masked.index(n)]
            np.isfinite(values, out=mask, casting="unsafe")
        self._standardise(n, rows, values, place)

    def _standardise(self, n: int, rows: slice, values: Field, place: Field) -> None:
        """Feature `n` at its place, normalised if that is wanted."""
        statistics = self._normaliser
        if self._normalised:
            standardise(values, statistics.mean[n, rows], statistics.scale[n, rows], place)
        elif values is not place:
            np.copyto(place, values)

    def _write_extras(self, i: int, features: Field, rows: slice) -> None:
        count = sum(len(EXTRA_NAMES[extra]) for extra in self._extras)
        place = features.shape[-3] - count
        for extra in self._extras:
            last = place + len(EXTRA_NAMES[extra])
            if extra == "location":
                features[..., place:last, :, :] = self._location[:, rows]
            else:
                cycle = day_of_year_cycle(self.samples.valid_time[i])
                features[..., place:last, :, :] = cycle[:, None, None]
            place = last

    def _check_grid(self) -> None:
        """Refuses statistics of another grid.

        Raises:
            ArgumentError: they do not fit.
        """
        held = self._normaliser.mean.shape[1:]
        grid = (len(self.samples.latitude), len(self.samples.longitude))
        if held != grid:
            raise ArgumentError(
                "features",
                f"a grid of {grid} (rows, columns) does not fit the normalisation statistics, "
                f"which have {held}",
                "Use data on the grid, and with the inputs, of the training",
            )
