"""The Lightning data module around `Batches`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl
import torch
import xarray as xr

from ens10.climate import Normaliser
from ens10.cores import usable_cores
from ens10.errors import ArgumentError
from ens10.identity import Label
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Kind, KindName, batch_layout
from ens10.loader.batches import Batches, open_samples
from ens10.loader.content import Extra
from ens10.loader.order import Share, share_of
from ens10.loader.resident import Resident, resident_batches
from ens10.loader.samples import Samples
from ens10.loader.tensors import TorchBatches, as_tensors
from ens10.loader.training_members import are_texts, members_of_store, recorded_members
from ens10.protocol import Protocol, Split
from ens10.stations import STATION
from ens10.untrusted import dataclass_of

__all__ = ["EnsembleDataModule", "TorchBatches", "as_tensors"]

_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300800  # of the years 1 to 9999, since 1970


class EnsembleDataModule(pl.LightningDataModule):
    """Batches of a store for training, validation, test and prediction.

    The checkpoint holds the normalisation statistics, the names of the features, in order, and what
    the training data were (`TrainingData`), so that a model predicts on other data exactly as it
    was trained. Forecasts without truth can be predicted: all their dates are of the test split. Of
    several processes, each trains on as many batches (the last dates of an epoch's order may be
    left out), and in evaluation each date counts exactly once. Where the trainer's strategy splits
    the samples, each process reads its own rows and columns alone.

    Args:
        store: path that `ens10 prepare` wrote, or (in Python) any lazy dataset, streamed as it is.
        target: channel to correct, such as "t2m" or "z500", or a list of them, each with a head
            of its own (`ens10.models.TargetHeads`).
        inputs: channels whose ensemble mean and deviation are features, "t2m@24" for another
            step than the target's; None for all on the target's level.
        protocol: "clean", "paper", the path of a YAML file, or a protocol's own settings.
        extras: "location", "altitude" (of stations, in km) and "day_of_year" features.
        members: True if batches hold the members of the target.
        batch_size: dates in a batch.
        seed: of the shuffling.
        predict_split: the split that `predict` runs over.
        truth: (in Python) of a lazy dataset; None to predict without truth.
        kind: what a batch is made of: "fields", "members", "slabs", "patches", "points", or a
            class of `ens10.loader` with settings of its own. A model trains on patches or points,
            and is validated, tested and applied on full fields.
        ensemble: members that make the ensemble, counted from the first (5 for 5-ENS); None for
            all.
        threads: number of threads that read ahead; 0 to read on demand. None for two where each
            process of the trainer has more than two cores, and else one. Batches are the same.
        ring: number of read-ahead buffers.
        cache: part of the training dates to keep in memory: "2GB", or a share from 0 to 1.
        step: lead time of the target, if the truth has several; or a list of lead times, which are
            learned together: each date counts once for each, and the lead time is a feature.
        resident: "auto" keeps the dates of training and validation in memory after their first
            reading where they fit: on the GPU, or in this machine's memory. True asks for it, and
            False reads them in each epoch. Batches are the same. "bfloat16" keeps features in this
            precision, in half the memory; they are rounded to 8 bits.
    """

    def __init__(
        self,
        store: str | xr.Dataset,
        target: list[str] | str = "t2m",
        inputs: list[str] | None = None,
        protocol: str | Protocol = "clean",
        extras: list[Extra] | None = None,
        members: bool = False,
        batch_size: int = 1,
        seed: int = 0,
        predict_split: Split = "test",
        truth: xr.Dataset | None = None,
        kind: KindName | Kind = "fields",
        ensemble: int | None = None,
        threads: int | None = None,
        ring: int = 3,
        cache: str | float | None = None,
        step: list[float] | float | None = None,
        resident: Resident = "auto",
    ) -> None:
        super().__init__()
        self.store, self.target, self.inputs, self.protocol = store, target, inputs, protocol
        self.step = step
        self.extras, self.members, self.batch_size = extras or [], members, batch_size
        self.seed, self.predict_split, self.truth = seed, predict_split, truth
        self.kind, self.ensemble = kind, ensemble
        self.threads, self.ring, self.cache = threads, ring, cache
        self.resident: Resident = resident
        self._normaliser: Normaliser | None = None
        self._training_data: dict[str, Any] = {}
        self._samples_cache: Samples | None = None
        self._batches: dict[tuple[str, Share, int], Batches] = {}
        self._past_batches: dict[int, Batch] = {}

    def batches(self, split: Split, batch_size: int | None = None) -> Batches:
        """Return the numpy batches of one split and of this process's part of the grid, cached.

        Args:
            split: "train", "val" or "test".
            batch_size: dates in a batch; None for the data module's.

        Raises:
            ArgumentError: the grid is split, and the kind is neither "fields" nor "members".
        """
        share, size = self.share, batch_size or self.batch_size
        key = (split, share, size)  # batches may be asked for before there is a trainer
        if key not in self._batches:
            kind = batch_layout(self.kind)
            self._batches[key] = Batches(
                self._samples,
                self.target,
                self.inputs,
                split,
                protocol=self.protocol,
                extras=self.extras,
                members=self.members,
                batch_size=size,
                seed=self.seed,
                rank=share.rank,
                world=share.world,
                even="drop" if split == "train" else "pad",
                kind=share.kind(kind if split == "train" else kind.evaluation),
                threads=self._reader_threads,
                ring=self.ring,
                cache=self.cache if split == "train" else None,
                normaliser=self._normaliser,
            )
            self._normaliser = self._batches[key].normaliser
        return self._batches[key]

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order; see `Batches.channels`."""
        return self.batches("train").channels

    @property
    def share(self) -> Share:
        """The dates, rows and columns of this process, as the trainer's strategy defines them."""
        return share_of(self.trainer, self.grid)

    @property
    def _reader_threads(self) -> int:
        if self.threads is not None:
            return self.threads
        processes = self.trainer.num_devices if self.trainer else 1
        return 2 if usable_cores() > 2 * processes else 1

    @property
    def bytes_read(self) -> int:
        """Bytes that this process has read for its batches of all splits."""
        return sum(batches.bytes_read for batches in self._batches.values())

    @property
    def _samples(self) -> Samples:
        """The samples of all splits, opened when they are first needed."""
        if self._samples_cache is None:
            trained, members = self._trained_members, self.ensemble
            choose = partial(members_of_store, ensemble=members, trained=trained)
            self._samples_cache = open_samples(
                self.store, self.target, self.truth, choose if trained else members, self.step
            )
        return self._samples_cache

    @property
    def _trained_members(self) -> list[Label]:
        """The labels of the members of the training whose checkpoint was loaded."""
        return recorded_members(self._training_data.get("parts", [self._training_data])[0])

    @property
    def parts(self) -> list[Samples]:
        """The samples of each target and lead time, ordered by lead time, then target."""
        return [samples for lead in self._samples.leads for samples in lead.targets]

    @property
    def target_scales(self) -> list[float]:
        """Mean spread of the raw ensemble of each target, over training dates and grid points."""
        batches = self.batches("train")
        statistics = batches.normaliser
        targets = [samples.target for samples in batches.samples.targets]
        names = [f"{target}:std" for target in targets]
        if not set(names) <= set(statistics.channels):
            statistics = Batches(
                batches.samples, self.target, targets, protocol=self.protocol
            ).normaliser
        return [
            float(statistics.mean[..., statistics.channels.index(name), :, :].mean())
            for name in names
        ]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the whole grid."""
        return len(self._samples.latitude), len(self._samples.longitude)

    @property
    def stations(self) -> list[str]:
        """Names of the stations; none of a grid."""
        return self._samples.station_names

    def past(self, date: int, days: int, lead: int = 0) -> list[Batch]:
        """Return the dates of any split whose truth was available when a forecast started.

        Args:
            date: valid date of the forecast, seconds since 1970-01-01 00 UTC.
            days: length of the window before its start.
            lead: lead time of the forecast and of these dates, by its place among several.

        Returns:
            A batch of tensors for each date that is valid within the last `days` days up to the
            start, in time order; dates that lack all truth are left out. The batches of the last
            call are kept in memory.

        Raises:
            MissingDataError: the data have no truth.
        """
        all_samples = self._samples
        all_samples.require_truth()
        samples = all_samples.leads[lead]
        valid = samples.valid_time.astype("datetime64[s]")
        start = samples.time.astype("datetime64[s]")[valid.astype(np.int64) == date].min()
        window = (valid <= start) & (valid > start - np.timedelta64(days, "D"))
        window[samples.without_truth()] = False
        places = np.flatnonzero(window)
        offset = sum(len(other) for other in all_samples.leads[:lead])
        batches = self.batches(self.predict_split)
        self._past_batches = {
            i: self._past_batches[i]
            if i in self._past_batches
            else as_tensors(batches.batch(np.array([i])))
            for i in (offset + places[np.argsort(valid[places], kind="stable")]).tolist()
        }
        return list(self._past_batches.values())

    def setup(self, stage: str) -> None:
        """Open the store, so that a wrong path or name fails before anything is trained."""
        if stage == "predict" and not self._samples.has_truth:
            return  # the normalisation statistics come with the checkpoint, after this
        self.batches("train" if stage == "fit" else self.predict_split)

    def train_dataloader(self) -> TorchBatches:
        """Return training batches, shuffled anew each epoch."""
        return self._resident("train") or TorchBatches(
            self.batches("train"), self.trainer, self._pinned
        )

    def val_dataloader(self) -> TorchBatches | list[TorchBatches]:
        """Return validation batches; none if the protocol has no validation years."""
        if not len(self.batches("val")):
            return []
        return self._resident("val") or self._evaluation_batches("val")

    def test_dataloader(self) -> TorchBatches:
        """Return test batches."""
        return self._evaluation_batches("test")

    def predict_dataloader(self) -> TorchBatches:
        """Return dates of `predict_split`, one by one: rounding depends on the size of a batch."""
        return self._evaluation_batches(self.predict_split, 1)

    def _resident(self, split: Split) -> TorchBatches | None:
        """Return batches that stay in memory, if this is a training and they fit."""
        trainer, asked = self.trainer, self.resident
        if self.cache is not None and asked in (True, "bfloat16"):
            raise ArgumentError("cache", "data.resident keeps all dates", "Give one of the two")
        if not isinstance(trainer, pl.Trainer) or trainer.state.fn != "fit":
            return None
        if self.cache is not None:
            return None
        own, device = trainer if split == "train" else None, trainer.strategy.root_device
        return resident_batches(self.batches(split), own, device, asked, trainer.num_devices)

    def _evaluation_batches(self, split: Split, batch_size: int | None = None) -> TorchBatches:
        return TorchBatches(self.batches(split, batch_size), None, self._pinned, free_buffers=True)

    @property
    def _pinned(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def state_dict(self) -> dict[str, Any]:
        """Return normalisation statistics, feature names and the training data's description."""
        statistics = self._normaliser
        if statistics is None:
            return {}
        self._training_data = self._training_data or TrainingData.record(self.batches("train"))
        return {
            "channels": list(statistics.channels),
            "mean": torch.from_numpy(statistics.mean),
            "scale": torch.from_numpy(statistics.scale),
            "trained": self._training_data,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the statistics of the checkpoint; batches are created anew with them.

        Raises:
            ArgumentError: they are no statistics of features.
        """
        if state_dict:
            try:
                self._normaliser = normaliser_of(state_dict)
            except ValueError as error:
                raise ArgumentError("checkpoint", f"damaged: {error}", "Train again") from error
            self._training_data = state_dict.get("trained", {})
            samples = self._samples_cache
            if samples is not None and samples.member_labels != self._trained_members:
                self._samples_cache = None  # to be opened with the members of the training
            self._batches.clear()
            self._past_batches.clear()


@dataclass(frozen=True)
class TrainingData:
    """Description of the data of a training, with which other data are compared.

    Earlier versions recorded less. What is empty or None is not compared.

    Attributes:
        target: channel that is corrected.
        units: of the target.
        step: its lead time.
        step_units: "h" or "months".
        members: size of the ensemble.
        latitude: degrees north, by row.
        longitude: degrees east, by column.
        dates: valid dates of the training split, seconds since 1970-01-01 00 UTC.
        stations: names of the stations; none of a grid.
        numbers: numbers of the members, in their order.
        labels: their labels, if these are texts; otherwise empty.
        input_units: units of target and inputs, by channel.
        windows: windows of target and inputs that are no sums since the start, by channel.
        places: coordinates of the stations by name: lat, lon, and altitude if each has one.
    """

    target: str
    units: str
    step: float
    step_units: str
    members: int | None = None
    latitude: list[float] = field(default_factory=list)
    longitude: list[float] = field(default_factory=list)
    dates: list[int] = field(default_factory=list)
    stations: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    input_units: dict[str, str] = field(default_factory=dict)
    windows: dict[str, str] = field(default_factory=dict)
    places: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def read(cls, content: object, name: str = "trained") -> "list[TrainingData]":
        """Return the descriptions, of each target and lead time, that `record` returned.

        Raises:
            ValueError: a key is missing, of another type or out of range; the message names it.
        """
        several = content.get("parts") if isinstance(content, dict) else None
        if several is None:
            named = {name: content}
        elif isinstance(several, list) and several:
            named = {f"{name}.parts[{n}]": part for n, part in enumerate(several)}
        else:
            raise ValueError(f"{name}.parts is not a list of mappings")
        parts = [dataclass_of(cls, part, key) for key, part in named.items()]
        for key, part in zip(named, parts, strict=True):
            part._check_values(key)
        return parts

    def _check_values(self, name: str) -> None:
        if self.members is not None and self.members < 1:
            raise ValueError(f"{name}.members is {self.members}")
        if not all(_FIRST_SECOND <= second < _LAST_SECOND for second in self.dates):
            raise ValueError(f"{name}.dates has one outside the years 1 to 9999")
        named: dict[str, list[Any]] = {"numbers": self.numbers, "labels": self.labels}
        for key, labels in named.items():
            if labels and len(set(labels)) < max(len(labels), self.members or 0):
                raise ValueError(f"{name}.{key} has no label of its own for each member")
        if self.stations and len(self.stations) != len(self.longitude):
            raise ValueError(
                f"{name}.stations has {len(self.stations)} names of {len(self.longitude)}"
            )
        for key, values in self.places.items():
            if len(values) != len(self.stations):
                count = len(self.stations)
                raise ValueError(f"{name}.places.{key} has {len(values)} values of {count}")

    @classmethod
    def record(cls, batches: Batches) -> dict[str, Any]:
        """Return these attributes of the training split, for the checkpoint.

        Several targets or lead times give a list "parts", ordered by lead time, then target.
        """
        inputs = {channel for channel, _ in batches.inputs}
        parts = [
            asdict(cls._from_samples(samples, lead.valid_time[index], inputs))
            for lead, index in batches.by_lead()
            for samples in lead.targets
        ]
        return parts[0] if len(parts) == 1 else {"parts": parts}

    @classmethod
    def _from_samples(
        cls, samples: Samples, dates: npt.NDArray[np.datetime64], inputs: set[str]
    ) -> "TrainingData":
        windows, channels = samples.windows, sorted({samples.target, *inputs})
        return cls(
            samples.target,
            str(samples.attributes.get("units", "")),
            samples.step,
            samples.step_units,
            samples.members,
            samples.latitude.tolist(),
            samples.longitude.tolist(),
            dates.astype("datetime64[s]").astype(np.int64).tolist(),
            samples.station_names,
            samples.numbers,
            [str(n) for n in samples.member_labels] if are_texts(samples.member_labels) else [],
            {name: samples.units[name] for name in channels},
            {name: windows[name] for name in channels if name in windows},
            _finite_places(samples),
        )


def _finite_places(samples: Samples) -> dict[str, list[float]]:
    """Return the coordinates of stations by name; those that a station lacks are left out."""
    places = {k: v.values.astype(np.float64) for k, v in samples.stations.items() if k != STATION}
    return {name: v.tolist() for name, v in places.items() if np.isfinite(v).all()}


def normaliser_of(state: Mapping[str, Any]) -> Normaliser:
    """Return the normaliser whose statistics and feature names a checkpoint holds.

    Raises:
        ValueError: they are no statistics of these features; the message names the key.
    """
    values: list[Any] = [state.get(name) for name in ("channels", "mean", "scale")]
    channels, mean, scale = values
    if not isinstance(channels, list | tuple) or not all(isinstance(c, str) for c in channels):
        raise ValueError("channels is not a list of texts")
    for name, value in (("mean", mean), ("scale", scale)):
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} is not a tensor of 32 or 64 bit numbers")
        if value.ndim not in (3, 4) or value.shape[-3] != len(channels):
            shape = tuple(value.shape)
            raise ValueError(f"{name} has the shape {shape} for {len(channels)} names in channels")
        if not bool(value.isfinite().all()) or (name == "scale" and not bool((value > 0).all())):
            raise ValueError(f"{name} has values that are not finite, or not positive")
    if mean.shape != scale.shape:
        shapes = f"{tuple(mean.shape)} and {tuple(scale.shape)}"
        raise ValueError(f"mean and scale have the shapes {shapes}")
    arrays = [value.numpy(force=True).astype(np.float32) for value in (mean, scale)]
    return Normaliser(tuple(channels), *arrays)
