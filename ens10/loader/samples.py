"""One date's fields, read from a store or computed from any lazy dataset."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ens10.channels import attributes_of, channel_names, field_of, resolve, split_exactly
from ens10.climate import Sums, sums_of_years, years_of
from ens10.convert import ensemble_moments
from ens10.errors import ArgumentError, MissingDataError
from ens10.layout import FORECAST_DIMS, tidy
from ens10.names import Names
from ens10.pairing import pair_truth
from ens10.store import forecasts, open_store

Field = npt.NDArray[np.float32]
Moment = Literal["mean", "std"]
# count, sum and sum of squares, each (C, H, W)
SumsOfYears = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]


class Samples(ABC):
    """The dates of an ensemble with their truth; fields come one date at a time.

    Attributes:
        channels: all channels, canonical names.
        levels: the level of each channel in hPa, None at the surface.
        steps: lead times of the forecasts.
        target: canonical name of the target channel.
        step: lead time of the target.
        time: (n,) start dates.
        valid_time: (n,) valid dates of the target.
        latitude: (H,) degrees north.
        longitude: (W,) degrees east.
        members: size of the ensemble.
        attributes: CF attributes of the target.
        step_units: "h" or "months".
    """

    def __init__(self, dataset: xr.Dataset, truth: xr.Dataset, target: str) -> None:
        name, _, step = target.partition("@")
        held = channel_names(dataset)
        self.channels = held
        self.levels = {
            channel: None if channel in dataset.data_vars else split_exactly(channel)[1]
            for channel in held
        }
        self.target = resolve(name, held, "target")
        self.steps = [int(s) for s in np.atleast_1d(dataset["step"].to_numpy())]
        self.step = _target_step(step, truth)
        self.step_units = str(dataset["step"].attrs.get("units", "h"))
        self._truth = field_of(truth, self.target, "target").sel(step=self.step)
        times = self._truth["time"].to_numpy()
        self._positions = _positions(dataset["time"].to_numpy(), times)
        self.time: npt.NDArray[np.datetime64] = times
        self.valid_time: npt.NDArray[np.datetime64] = self._truth["valid_time"].to_numpy()
        self.latitude = dataset["latitude"].to_numpy()
        self.longitude = dataset["longitude"].to_numpy()
        self.members = int(dataset.sizes["number"])
        self.attributes: dict[str, Any] = {
            **attributes_of(self.target),
            **{k: v for k, v in self._truth.attrs.items() if k == "units"},
        }

    def __len__(self) -> int:
        return len(self.time)

    def truth(self, i: int) -> Field:
        """(H, W) truth of date `i`, NaN where missing."""
        return self._truth.isel(time=i).compute(scheduler="synchronous").to_numpy()

    @abstractmethod
    def moments(self, i: int, step: int, channels: Sequence[str]) -> tuple[Field, Field]:
        """Ensemble mean and standard deviation (n - 1) of date `i`, each (C, H, W)."""

    @abstractmethod
    def ensemble(self, i: int) -> Field:
        """(M, H, W) members of the target of date `i`."""

    @abstractmethod
    def sums(
        self, years: Iterable[int], step: int, channels: Sequence[str]
    ) -> dict[Moment, SumsOfYears]:
        """Sums of ensemble mean and deviation over the dates valid in the given years."""


class StoreSamples(Samples):
    """Samples of a store: means and deviations are read, one chunk a date and step.

    Args:
        path: of the store.
        target: channel, with `@step` if the truth has several steps.

    Raises:
        MissingDataError: the store has no truth.
        UnknownNameError: the store lacks the target.
    """

    def __init__(self, path: Path | str, target: str) -> None:
        dataset = forecasts(path)
        super().__init__(dataset, open_store(path, "truth"), target)
        self._statistics = open_store(path, "statistics")
        self._row = [str(c) for c in self._statistics["channel"].to_numpy()]
        root = zarr.open_group(str(path), mode="r", use_consolidated=False)
        self._arrays: dict[Moment, Any] = {
            "mean": root["statistics/ensemble_mean"],
            "std": root["statistics/ensemble_std"],
        }
        self._truth_array, self._truth_place = self._array(root, "truth", open_store(path, "truth"))
        kind = "sfc" if self.levels[self.target] is None else "pl"
        self._members_array, self._members_place = self._array(root, kind, dataset)

    def _array(self, root: zarr.Group, kind: str, part: xr.Dataset) -> tuple[Any, tuple[int, ...]]:
        """The target's array in one part, and its position along step (and level)."""
        level = self.levels[self.target]
        name = self.target if level is None else split_exactly(self.target)[0]
        place = [part.get_index("step").get_loc(self.step)]
        if level is not None:
            place.append(part.get_index("level").get_loc(level))
        return root[f"{kind}/{name}"], tuple(place)

    def truth(self, i: int) -> Field:
        """(H, W) truth of date `i`, NaN where missing."""
        return np.asarray(self._truth_array[(i, *self._truth_place)])

    def moments(self, i: int, step: int, channels: Sequence[str]) -> tuple[Field, Field]:
        """Ensemble mean and standard deviation (n - 1) of date `i`, each (C, H, W)."""
        rows = [self._row.index(channel) for channel in channels]
        place = (int(self._positions[i]), self.steps.index(step))
        return self._arrays["mean"][place][rows], self._arrays["std"][place][rows]

    def ensemble(self, i: int) -> Field:
        """(M, H, W) members of the target of date `i`."""
        return np.asarray(self._members_array[(int(self._positions[i]), *self._members_place)])

    def sums(
        self, years: Iterable[int], step: int, channels: Sequence[str]
    ) -> dict[Moment, SumsOfYears]:
        """Sums of ensemble mean and deviation over the dates valid in the given years."""
        rows, years = [self._row.index(channel) for channel in channels], list(years)
        sums: dict[Moment, SumsOfYears] = {}
        for moment in get_args(Moment):
            held = sums_of_years(self._statistics, years, self.step, step, moment)
            sums[moment] = (held[0][rows], held[1][rows], held[2][rows])
        return sums


class DatasetSamples(Samples):
    """Samples of any lazy dataset in this package's layout, streamed as it is.

    Args:
        dataset: forecasts with the dimensions time, step, level, number, latitude and longitude,
            in any order; see `ens10.source.open_source`.
        truth: over (time, ...) at analysis times, or over (time, step, ...).
        target: channel, with `@step` if the truth has several steps.

    Raises:
        MissingDataError: valid dates without truth.
        UnknownNameError: the dataset lacks the target.
    """

    def __init__(self, dataset: xr.Dataset, truth: xr.Dataset, target: str) -> None:
        dataset = _with_all_dims(tidy(dataset, Names(), "data"))
        truth = tidy(truth, Names(), "truth", optional_dimensions=True)
        super().__init__(dataset, pair_truth(dataset, truth), target)
        self._dataset = dataset

    def moments(self, i: int, step: int, channels: Sequence[str]) -> tuple[Field, Field]:
        """Ensemble mean and standard deviation (n - 1) of date `i`, each (C, H, W)."""
        unit = self._dataset.isel(time=int(self._positions[i])).sel(step=step)
        fields = [field_of(unit, channel) for channel in channels]
        wanted = xr.Dataset({str(n): field.variable for n, field in enumerate(fields)})
        computed = wanted.astype(np.float32).compute(scheduler="synchronous")
        members = np.stack([computed[name].to_numpy() for name in computed])
        return ensemble_moments(members, axis=1)

    def ensemble(self, i: int) -> Field:
        """(M, H, W) members of the target of date `i`."""
        unit = self._dataset.isel(time=int(self._positions[i])).sel(step=self.step)
        field = field_of(unit, self.target).astype(np.float32)
        return field.compute(scheduler="synchronous").to_numpy()

    def sums(
        self, years: Iterable[int], step: int, channels: Sequence[str]
    ) -> dict[Moment, SumsOfYears]:
        """Sums of ensemble mean and deviation, by one pass over the dates."""
        shape = (len(channels), len(self.latitude), len(self.longitude))
        mean, deviation = Sums(shape), Sums(shape)
        valid_year = years_of(self.valid_time)
        for i in np.flatnonzero(np.isin(valid_year, list(years))):
            moments = self.moments(int(i), step, channels)
            mean.add(moments[0])
            deviation.add(moments[1])
        return {
            "mean": (mean.count, mean.total, mean.square),
            "std": (deviation.count, deviation.total, deviation.square),
        }


def open_samples(
    data: Path | str | xr.Dataset, target: str, truth: xr.Dataset | xr.DataArray | None = None
) -> Samples:
    """Samples of a store's path, or of any lazy dataset with its truth.

    Raises:
        ArgumentError: a dataset without truth.
    """
    if isinstance(data, xr.Dataset):
        if truth is None:
            raise ArgumentError("truth", "a lazy dataset needs its truth beside it", "Give truth=")
        truth = truth.to_dataset() if isinstance(truth, xr.DataArray) else truth
        return DatasetSamples(data, truth, target)
    if not isinstance(data, str | Path):
        raise ArgumentError("data", f"{type(data).__name__} is neither a path nor a Dataset")
    return StoreSamples(data, target)


def _with_all_dims(dataset: xr.Dataset) -> xr.Dataset:
    """Forecasts with steps and members, which a dataset with one of them may lack."""
    for dim in ("step", "number"):
        if dim not in dataset.dims:
            dataset = dataset.expand_dims({dim: [0]})
    dataset = dataset.transpose(*FORECAST_DIMS, missing_dims="ignore")
    if "step" in dataset["valid_time"].dims:
        return dataset
    valid = dataset["valid_time"].expand_dims(step=[0], axis=1)
    return dataset.assign_coords(valid_time=valid)


def _target_step(step: str, truth: xr.Dataset) -> int:
    held = [int(s) for s in np.atleast_1d(truth["step"].to_numpy())]
    if not step and len(held) == 1:
        return held[0]
    if step.isdigit() and int(step) in held:
        return int(step)
    raise ArgumentError(
        "target",
        f"truth exists at the steps {held}" + (f", not at {step}" if step else ""),
        "Name one, such as t2m@48",
    )


def _positions(
    held: npt.NDArray[np.datetime64], wanted: npt.NDArray[np.datetime64]
) -> npt.NDArray[np.int64]:
    where = {t: n for n, t in enumerate(held.astype("datetime64[s]").astype(np.int64).tolist())}
    seconds = wanted.astype("datetime64[s]").astype(np.int64).tolist()
    lacking = [str(t)[:13] for t, s in zip(wanted, seconds, strict=True) if s not in where]
    if lacking:
        raise MissingDataError("data", lacking, "Prepare forecasts and truth together")
    return np.array([where[s] for s in seconds], dtype=np.int64)
