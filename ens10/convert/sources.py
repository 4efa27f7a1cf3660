"""Where the fields of a unit come from: any lazy dataset, or GRIB messages as they are packed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import dask
import numpy as np
import xarray as xr

from ens10.convert.gribfields import GribForecasts, matches, open_gribs
from ens10.convert.listing import Source
from ens10.convert.selection import Selection
from ens10.convert.units import Fields, Part
from ens10.errors import ArgumentError, MissingDataError
from ens10.grib import is_grib
from ens10.packed16.layout import Field
from ens10.places import is_url
from ens10.source import open_source
from ens10.source.layout import FORECAST_DIMS, tidy
from ens10.source.names import Names
from ens10.source.opening import files_in, is_zarr
from ens10.source.pairing import pair_truth

Missing = Literal["error", "nan", "skip"]


@dataclass(frozen=True)
class DatasetFields:
    """The fields of one date and step of a lazy dataset.

    Attributes:
        dataset: variables over ([level,] number, latitude, longitude).
        picks: variable and place of the level of each part.
        where: source, date and step, for messages.
    """

    dataset: xr.Dataset
    picks: tuple[tuple[str, int | None], ...]
    where: str

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Sequence[Field]]]:
        """Reads the whole unit at once, since one chunk may hold several fields."""
        held = self.dataset.compute(scheduler="synchronous")
        values = {
            name: field.to_numpy().astype(np.float32, copy=False)
            for name, field in held.data_vars.items()
        }

        def read(part: int) -> Sequence[Field]:
            name, level = self.picks[part]
            return list(values[name] if level is None else values[name][level])

        yield read

    def origin(self, part: int) -> str:  # noqa: ARG002
        """Not known: a dataset does not tell its bytes."""
        return ""

    def place(self, part: int, member: int) -> str:
        """Source, date, step, level and member."""
        name, level = self.picks[part]
        number = self.dataset["number"].to_numpy()[member]
        pressure = "" if level is None else f", {self.dataset['level'].to_numpy()[level]:g} hPa"
        return f"{self.where}, {name}{pressure}, number {number}"


class Forecasts(Protocol):
    """Forecasts to be read unit by unit.

    Attributes:
        template: a dataset whose coordinates, dimensions and attributes shape the store.
    """

    template: xr.Dataset

    def fields(self, place: tuple[int, int], parts: Sequence[Part]) -> Fields:
        """What a worker needs to read one date and step."""

    def width(self, place: tuple[int, int], parts: Sequence[Part]) -> int:
        """Bytes of the values of all fields of one date and step, at the most."""

    def at(self, times: Any) -> "Forecasts":
        """The forecasts of some start dates."""


class DatasetForecasts:
    """Forecasts in a lazy dataset.

    Args:
        template: the dataset, which has every dimension.
        label: where it comes from, for messages.

    Attributes:
        template: as given; its coordinates, dimensions and attributes shape the store.
    """

    def __init__(self, template: xr.Dataset, label: str) -> None:
        self.template, self._label = template, label

    def fields(self, place: tuple[int, int], parts: Sequence[Part]) -> DatasetFields:
        """What a worker needs to read one date and step."""
        i, j = place
        lazy = self.template.isel(time=i, step=j)
        where = f"{self._label}: {str(lazy['time'].to_numpy())[:13]}, step {lazy['step'].item()}"
        # Without this, each unit would carry the whole graph.
        (culled,) = dask.optimize(lazy)  # type: ignore[no-untyped-call, attr-defined]
        return DatasetFields(culled, tuple((p.variable, p.level) for p in parts), where)

    def width(self, place: tuple[int, int], parts: Sequence[Part]) -> int:  # noqa: ARG002
        """Bytes of the values of all fields of one date and step, at the most."""
        sizes = self.template.sizes
        return len(parts) * sizes["number"] * sizes["latitude"] * sizes["longitude"] * 4

    def at(self, times: Any) -> "DatasetForecasts":
        """The forecasts of some start dates."""
        return DatasetForecasts(self.template.sel(time=times), self._label)


def open_forecasts(
    src: Source,
    names: Names,
    selection: Selection,
    missing: Missing,
    workers: int = 1,
    progress: bool = False,
) -> Forecasts:
    """Forecasts with all dimensions, and the part that is wanted.

    GRIB files alone, under their own names, are read message by message, their integers as they are
    packed; all else is read through a lazy dataset.

    Raises:
        FileError: they cannot be read.
        MissingDataError: fields or dimensions are missing.
        ArgumentError: nothing is left, or something is asked for that is not there.
    """
    if isinstance(src, xr.Dataset):
        return _of_dataset(tidy(src, names, "the dataset"), "the dataset", selection)
    gribs = _gribs(src) if not (names.variables or names.truth) else []
    if gribs:
        numbers = {path: n for n, path in enumerate(files_in(Path(src)))}
        fields = open_gribs(gribs, selection, missing, workers, progress)
        whole = _with_all_dims(tidy(fields.dataset(), names, src))
        if matches(fields, whole):
            return GribForecasts(fields, whole, numbers, list(range(whole.sizes["time"])))
    return _of_dataset(open_source(src, names, missing), str(src), selection)


def _gribs(src: Path | str) -> list[Path]:
    """The files of a source, if all of them are GRIB."""
    found = [] if is_url(src) or is_zarr(Path(src)) else files_in(Path(src))
    return found if all(is_grib(file) for file in found) else []


def _of_dataset(dataset: xr.Dataset, label: str, selection: Selection) -> Forecasts:
    dataset = _with_all_dims(dataset)
    _check_filled(dataset)
    dataset = selection.of_dataset(dataset)
    _check_whole(dataset, label)
    return DatasetForecasts(dataset, label)


def _with_all_dims(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with members and steps, even if there is but one of each."""
    for dim in ("number", "step"):
        if dim not in dataset.dims:
            dataset = dataset.expand_dims({dim: [0]})
    dataset = dataset.transpose(*FORECAST_DIMS, missing_dims="ignore")
    if "step" not in dataset["valid_time"].dims:
        valid = dataset["valid_time"].expand_dims(step=[0], axis=1)
        dataset = dataset.assign_coords(valid_time=valid)
    return dataset


def _check_filled(dataset: xr.Dataset) -> None:
    empty = [dim for dim, size in dataset.sizes.items() if not size]
    if empty:
        raise ArgumentError("src", f"nothing along {', '.join(map(str, empty))}", "Give more data")


def _check_whole(dataset: xr.Dataset, label: str) -> None:
    lacking = [
        f"{dim} of {name}"
        for name, field in dataset.data_vars.items()
        for dim in dataset.dims
        if dim not in field.dims and dim != "level"
    ]
    if lacking:
        raise MissingDataError(label, lacking, "Leave these variables out with --variables")


@dataclass(frozen=True)
class Inputs:
    """Forecasts and truth, and how the names in each of them map to ours.

    Attributes:
        src: the forecasts.
        truth: the truth; None if it is in `src`, or if there is none.
        names: of the forecasts, and of the truth unless that has a mapping of its own.
        truth_names: of the truth alone; its `variables` and `truth` mean the same.
    """

    src: Source
    truth: Source | None
    names: Names
    truth_names: Names | None = None

    def names_of_truth(self) -> Names | None:
        """The mapping under which the truth is opened; None if there is no truth.

        Raises:
            ArgumentError: a mapping of the truth alone, and nothing that it is of.
        """
        if self.truth_names is None:
            if self.truth is None and not self.names.truth:
                return None
            return replace(self.names, variables=self.names.truth, truth={})
        own = self.truth_names
        found = replace(own, variables={**own.truth, **own.variables}, truth={})
        if self.truth is None and not found.variables:
            raise ArgumentError(
                "truth_names",
                "no truth is given, and it names no variable of the forecasts' file as truth",
                "Give the truth with --truth, or name it under `variables` in --truth-names FILE",
            )
        return found

    def names_of_forecasts(self) -> Names:
        """The mapping under which the forecasts are opened; its `truth` is what they are not."""
        if self.truth is not None:  # whose names do not concern the forecasts
            return replace(self.names, truth={})
        own = self.names_of_truth()
        return replace(self.names, truth=own.variables) if own else self.names


def _open_truth(inputs: Inputs, names: Names, missing: Missing) -> xr.Dataset:
    """The truth, kept apart or among the forecasts' variables."""
    held = inputs.src if inputs.truth is None else inputs.truth
    if isinstance(held, xr.Dataset):
        return tidy(held, names, "truth", optional_dimensions=True)
    return open_source(held, names, missing, optional_dimensions=True)


def paired_with(
    inputs: Inputs,
    selection: Selection,
    missing: Missing,
    workers: int = 1,
    progress: bool = False,
) -> tuple[Forecasts, xr.Dataset | None]:
    """Forecasts, and the truth of their valid dates if there is any, on the same start dates."""
    names = inputs.names_of_forecasts()
    forecasts = open_forecasts(inputs.src, names, selection, missing, workers, progress)
    of_truth = inputs.names_of_truth()
    if of_truth is None:
        return forecasts, None
    truth = _open_truth(inputs, of_truth, missing)
    paired = pair_truth(forecasts.template, truth, missing)
    return forecasts.at(paired["time"]), paired
