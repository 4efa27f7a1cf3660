"""Batches of numpy arrays, ready for a model, without torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.climate import Normaliser
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights, location_features
from ens10.loader.batch import Batch
from ens10.loader.features import (
    EXTRA_NAMES,
    Extra,
    by_step,
    day_of_year,
    feature_statistics,
    masked_inputs,
    parse_inputs,
)
from ens10.loader.sampler import order
from ens10.loader.samples import Field, open_samples
from ens10.protocol import Protocol, Split, protocol_of, split_dates


class Batches:
    """An iterable of batches of one split.

    Args:
        data: path of a store, or any lazy dataset in this package's layout, streamed as it is.
        target: channel to correct, such as "t2m" or "z500", with `@step` if truth has several.
        inputs: channels whose ensemble mean and deviation are features; see
            `ens10.loader.features`.
        split: "train", "val" or "test".
        protocol: "clean", "paper", or a `Protocol`.
        truth: of a lazy dataset.
        extras: "location" and "day_of_year" features.
        members: whether batches carry the members of the target.
        batch_size: dates in a batch.
        shuffle: None shuffles the training split only.
        seed: of the shuffling.
        rank: of this process.
        world: number of processes.
        normaliser: statistics of an earlier training; None to take them from the data.

    Raises:
        UnknownNameError: a channel, split, protocol or extra that is not known.
        ArgumentError: a step or batch size that cannot be, or a normaliser of other features.
        OverlapError: splits that overlap.
    """

    def __init__(
        self,
        data: Path | str | xr.Dataset,
        target: str,
        inputs: Sequence[str] | None = None,
        split: Split = "train",
        *,
        protocol: str | Protocol = "clean",
        truth: xr.Dataset | xr.DataArray | None = None,
        extras: Sequence[Extra] = (),
        members: bool = False,
        batch_size: int = 1,
        shuffle: bool | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        normaliser: Normaliser | None = None,
    ) -> None:
        _check(split, extras, batch_size)
        self.samples = open_samples(data, target, truth)
        self.protocol = protocol_of(protocol)
        self.splits = split_dates(self.protocol, self.samples.time, self.samples.valid_time)
        self.index = self.splits.index[split]
        self.inputs = parse_inputs(inputs, self.samples)
        self.epoch = 0
        self._shuffle = split == "train" if shuffle is None else shuffle
        self._extras, self._members, self._batch_size = tuple(extras), members, batch_size
        self._seed, self._rank, self._world = seed, rank, world
        self._weights = area_weights(self.samples.latitude, self.protocol.weighting)
        self._location = location_features(self.samples.latitude, self.samples.longitude)
        self._factor = self._deviation_factor()
        self.normaliser = normaliser or feature_statistics(
            self.samples, self.inputs, self.protocol, self.splits, self._factor
        )
        self._masked = masked_inputs(self.normaliser, self.inputs, self.samples.step)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order: "t2m:mean", ..., "t2m:std", ..., "sst:mask", ..."""
        extras = [name for extra in self._extras for name in EXTRA_NAMES[extra]]
        return (*self.normaliser.channels, *extras)

    @property
    def dates(self) -> npt.NDArray[np.datetime64]:
        """Valid dates of the split, in the order of time."""
        return self.samples.valid_time[self.index]

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch, and with it the order, of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        mine = len(range(self._rank, len(self.index), self._world))
        return -(-mine // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        positions = order(
            len(self.index),
            seed=self._seed,
            epoch=self.epoch,
            shuffle=self._shuffle,
            rank=self._rank,
            world=self._world,
        )
        visited = self.index[positions]
        for start in range(0, len(visited), self._batch_size):
            yield self.batch(visited[start : start + self._batch_size])

    def batch(self, positions: npt.NDArray[np.int64]) -> Batch:
        """The batch of the dates at these positions of `samples`."""
        parts = [self._sample(int(i)) for i in positions]
        stacked = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
        seconds = self.samples.valid_time[positions].astype("datetime64[s]").astype(np.int64)
        return cast("Batch", {**stacked, "dates": seconds})

    def _deviation_factor(self) -> float:
        """From the standard deviation with n - 1, as stored, to the protocol's."""
        count = self.samples.members
        biased = not self.protocol.unbiased and count > 1
        return float(((count - 1) / count) ** 0.5) if biased else 1.0

    def _sample(self, i: int) -> dict[str, Field]:
        means, deviations, raw_mean, raw_std = self._moments(i)
        masks = np.isfinite(means[self._masked]).astype(np.float32)
        features = np.concatenate([means, deviations, masks])
        self.normaliser.apply(features)
        truth = self.samples.truth(i)
        valid = np.isfinite(truth) & np.isfinite(raw_mean)
        sample = {
            "features": np.concatenate([features, *self._extra_fields(i)]),
            "raw_mean": raw_mean,
            "raw_std": raw_std,
            "target": np.where(valid, truth, 0.0),
            "weights": np.where(valid, self._weights[:, None], 0.0),
        }
        if self._members:
            sample["members"] = self.samples.ensemble(i)
        return {key: value.astype(np.float32, copy=False) for key, value in sample.items()}

    def _moments(self, i: int) -> tuple[Field, Field, Field, Field]:
        """Means and deviations of the inputs (inputs, H, W), and those of the target (H, W)."""
        samples = self.samples
        wanted = by_step([*self.inputs, (samples.target, samples.step)])
        read = {step: samples.moments(i, step, names) for step, names in wanted.items()}
        raw_mean, raw_std = (moment[-1] for moment in read[samples.step])
        kept = {step: len(names) for step, names in by_step(self.inputs).items()}
        means = np.concatenate([read[step][0][:count] for step, count in kept.items()])
        deviations = np.concatenate([read[step][1][:count] for step, count in kept.items()])
        factor = np.float32(self._factor)
        return means, deviations * factor, raw_mean, raw_std * factor

    def _extra_fields(self, i: int) -> Iterator[Field]:
        for extra in self._extras:
            if extra == "location":
                yield self._location
            else:
                _, rows, columns = self._location.shape
                yield day_of_year(self.samples.valid_time[i], (rows, columns))


def _check(split: str, extras: Sequence[str], batch_size: int) -> None:
    if split not in get_args(Split):
        raise UnknownNameError("split", split, get_args(Split))
    for extra in extras:
        if extra not in EXTRA_NAMES:
            raise UnknownNameError("extras", extra, EXTRA_NAMES)
    if batch_size < 1:
        raise ArgumentError("batch_size", f"{batch_size} is less than 1")
