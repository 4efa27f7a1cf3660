"""Files to a store: `prepare` reads each field once and writes forecasts, truth and statistics.

A unit of work is one date and step. A store that is being written carries the suffix `.partial`
and gets its name when it is complete, so a store that exists is whole.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import xarray as xr

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.layout import FORECAST_DIMS, tidy
from ens10.names import Names
from ens10.pairing import pair_truth
from ens10.source import open_source
from ens10.store import Codec, store_kinds
from ens10.writing import ensemble_moments, write_store

__all__ = ["Missing", "ensemble_moments", "prepare"]

Missing = Literal["error", "nan", "skip"]


def prepare(
    src: Path | str | xr.Dataset,
    store: Path | str,
    *,
    truth: Path | str | xr.Dataset | None = None,
    names: Names | None = None,
    variables: Sequence[str] | None = None,
    codec: Codec = "none",
    missing: Missing = "error",
    force: bool = False,
    progress: bool = False,
) -> Path:
    """Builds a store from forecasts and, if given, the truth of their valid dates.

    Args:
        src: GRIB or netCDF file, folder of such files, Zarr store, or a lazy dataset.
        store: folder to write; see `ens10.store` for its layout.
        truth: like `src`; may be left out if `names` finds the truth in `src` itself.
        names: how the names in the files map to ours.
        variables: forecast variables to keep (all if None).
        codec: "none", or "lz4" for compressed chunks.
        missing: what to do about missing fields and truth: "error", "nan" (fill with NaN) or
            "skip" (leave out the dates concerned).
        force: replace a store that exists (nothing but a store is ever replaced).
        progress: show a progress bar.

    Returns:
        The store's path.

    Raises:
        FileError: `store` exists, or an input cannot be read.
        MissingDataError: fields, or truth at valid dates, are missing.
        ArgumentError: the truth is on another grid.
    """
    store, names = Path(store), names or Names()
    _check_free(store, force)
    dataset = _forecasts(src, _forecast_names(names, truth), variables, missing)
    paired = None
    if truth is not None or names.truth:
        paired = pair_truth(dataset, _truth(src, truth, names, missing), missing)
        dataset = dataset.sel(time=paired["time"])
    partial = store.with_name(store.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    write_store(partial, dataset, paired, codec, progress)
    if store.exists():
        shutil.rmtree(store)
    partial.rename(store)
    return store


def _check_free(store: Path, force: bool) -> None:
    if not store.exists() or (store.is_dir() and not any(store.iterdir())):
        return
    if not force:
        raise FileError(store, "exists already", "Choose another folder, or give --force")
    try:
        store_kinds(store)
    except FileError as error:
        raise FileError(
            store,
            "exists and is no store of ens10, so --force does not replace it",
            "Choose another folder",
        ) from error


def _forecast_names(names: Names, truth: Path | str | xr.Dataset | None) -> Names:
    """The names that concern the forecasts: those of a truth kept apart do not."""
    held = {} if truth is not None else names.truth
    return Names(names.variables, held, names.dimensions, names.step_units, names.first_step)


def _forecasts(
    src: Path | str | xr.Dataset, names: Names, variables: Sequence[str] | None, missing: Missing
) -> xr.Dataset:
    """Forecasts with all dimensions, and the variables wanted."""
    if isinstance(src, xr.Dataset):
        dataset = tidy(src, names, "the dataset")
    else:
        dataset = open_source(src, names, missing)
    for dim in ("number", "step"):
        if dim not in dataset.dims:
            dataset = dataset.expand_dims({dim: [0]})
    dataset = dataset.transpose(*FORECAST_DIMS, missing_dims="ignore")
    if "step" not in dataset["valid_time"].dims:
        dataset = dataset.assign_coords(
            valid_time=dataset["valid_time"].expand_dims(step=[0], axis=1)
        )
    if variables:
        dataset = dataset[[_variable(name, dataset) for name in variables]]
    _check_whole(dataset, src)
    return dataset


def _variable(name: str, dataset: xr.Dataset) -> str:
    """The dataset's name of a variable, which may be given by its GRIB short name."""
    known = {v.short_name: v.name for v in VARIABLES.values()}
    for candidate in (name, known.get(name, name)):
        if candidate in dataset.data_vars:
            return candidate
    raise UnknownNameError("variables", name, dataset.data_vars)


def _check_whole(dataset: xr.Dataset, src: Path | str | xr.Dataset) -> None:
    empty = [dim for dim, size in dataset.sizes.items() if not size]
    if empty:
        raise ArgumentError("src", f"nothing along {', '.join(map(str, empty))}", "Give more data")
    lacking = [
        f"{dim} of {name}"
        for name, field in dataset.data_vars.items()
        for dim in ("time", "step", "number")
        if dim not in field.dims
    ]
    if lacking:
        where = "the dataset" if isinstance(src, xr.Dataset) else src
        raise MissingDataError(where, lacking, "Leave these variables out with --variables")


def _truth(
    src: Path | str | xr.Dataset,
    truth: Path | str | xr.Dataset | None,
    names: Names,
    missing: Missing,
) -> xr.Dataset:
    within = Names(names.truth, {}, names.dimensions, names.step_units, names.first_step)
    held = src if truth is None else truth
    if isinstance(held, xr.Dataset):
        return tidy(held, within, "truth", optional_dimensions=True)
    return open_source(held, within, missing, optional_dimensions=True)
