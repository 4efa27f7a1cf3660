"""Files to a store: `prepare` reads each field once and writes forecasts, truth and statistics.

A unit of work is one date and step. A store that is being written carries the suffix `.partial`
and gets its name when it is complete, so a store that exists is whole.
"""

import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ens10.catalog import VARIABLES
from ens10.channels import channel_names, field_of
from ens10.climate import Sums, blocks
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.names import Names
from ens10.pairing import pair_truth
from ens10.progress import track
from ens10.source import open_source
from ens10.store import FORMAT_VERSION, Codec, create_array, write_coordinates

Missing = Literal["error", "nan", "skip"]
_STATISTICS = ("mean", "std")


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
        force: replace a store that exists.
        progress: show a progress bar.

    Returns:
        The store's path.

    Raises:
        FileError: `store` exists, or an input cannot be read.
        MissingDataError: fields, or truth at valid dates, are missing.
        ArgumentError: the truth is on another grid.
    """
    store, names = Path(store), names or Names()
    if store.exists() and not force:
        raise FileError(store, "exists already", "Choose another folder, or give --force")
    dataset = _forecasts(src, names, variables, missing)
    paired = None
    if truth is not None or names.truth:
        paired = pair_truth(dataset, _truth(src, truth, names), missing)
        dataset = dataset.sel(time=paired["time"])
    partial = store.with_name(store.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    _write(partial, dataset, paired, codec, progress)
    if store.exists():
        shutil.rmtree(store)
    partial.rename(store)
    return store


def _forecasts(
    src: Path | str | xr.Dataset, names: Names, variables: Sequence[str] | None, missing: Missing
) -> xr.Dataset:
    dataset = src if isinstance(src, xr.Dataset) else open_source(src, names, missing)
    for dim in ("number", "step"):
        if dim not in dataset.dims:
            default = {"number": [0], "step": [0]}[dim]
            dataset = dataset.expand_dims({dim: default})
    for name in variables or ():
        if name not in dataset:
            raise UnknownNameError("variables", name, dataset.data_vars)
    return dataset[list(variables)] if variables else dataset


def _truth(
    src: Path | str | xr.Dataset, truth: Path | str | xr.Dataset | None, names: Names
) -> xr.Dataset:
    if isinstance(truth, xr.Dataset):
        return truth
    within = Names(names.truth, {}, names.dimensions, names.step_units, names.first_step)
    if truth is not None:
        return open_source(truth, within)
    if isinstance(src, xr.Dataset):
        raise ArgumentError("truth", "a lazy dataset needs its truth given apart", "Give truth=")
    return open_source(src, within)


def _write(
    path: Path, dataset: xr.Dataset, truth: xr.Dataset | None, codec: Codec, progress: bool
) -> None:
    root = zarr.open_group(str(path), mode="w")
    root.attrs["ens10_format"] = FORMAT_VERSION
    fields = _create_forecasts(root, dataset, codec)
    channels = channel_names(dataset)
    moments = _create_moments(root, dataset, channels)
    units = list(product(range(dataset.sizes["time"]), range(dataset.sizes["step"])))
    for i, j in track(units, "prepare", len(units), progress):
        _convert_unit(dataset, fields, moments, channels, i, j)
    _write_sums(root["statistics"], dataset, moments)  # type: ignore[arg-type]
    if truth is not None:
        _write_truth(root, truth)


def _create_forecasts(
    root: zarr.Group, dataset: xr.Dataset, codec: Codec
) -> dict[str, zarr.Array[Any]]:
    created = {}
    for kind in ("sfc", "pl"):
        chosen = dataset[[n for n, f in dataset.items() if ("level" in f.dims) == (kind == "pl")]]
        if not chosen.data_vars:
            continue
        group = root.create_group(kind)
        level = ["level"] if kind == "pl" else []
        coordinates = ["time", "step", *level, "number", "latitude", "longitude", "valid_time"]
        write_coordinates(group, dataset, coordinates)
        for name, field in chosen.data_vars.items():
            full = {"number", "latitude", "longitude"}
            created[str(name)] = create_array(
                group,
                str(name),
                field.shape,
                [str(d) for d in field.dims],
                chunks=[field.sizes[d] if d in full else 1 for d in field.dims],
                attributes=_attributes(str(name), field),
                codec=codec,
            )
    return created


def _attributes(name: str, field: xr.DataArray) -> dict[str, Any]:
    catalogued = VARIABLES[name].attributes if name in VARIABLES else {}
    return {**catalogued, **{str(k): v for k, v in field.attrs.items()}}


def _create_moments(
    root: zarr.Group, dataset: xr.Dataset, channels: list[str]
) -> dict[str, zarr.Array[Any]]:
    group = root.create_group("statistics")
    named = dataset.assign_coords(
        channel=("channel", np.array(channels, dtype=np.dtypes.StringDType()))
    )
    write_coordinates(
        group, named, ["time", "step", "channel", "latitude", "longitude", "valid_time"]
    )
    sizes = dataset.sizes
    grid = (sizes["latitude"], sizes["longitude"])
    return {
        kind: create_array(
            group,
            f"ensemble_{kind}",
            (sizes["time"], sizes["step"], len(channels), *grid),
            ("time", "step", "channel", "latitude", "longitude"),
            chunks=(1, 1, len(channels), *grid),
            attributes={"long_name": f"ensemble {kind} of each channel, in its own units"},
        )
        for kind in _STATISTICS
    }


def _convert_unit(
    dataset: xr.Dataset,
    fields: dict[str, zarr.Array[Any]],
    moments: dict[str, zarr.Array[Any]],
    channels: list[str],
    i: int,
    j: int,
) -> None:
    """Reads one date and step once, and writes its members, mean and deviation."""
    unit = dataset.isel(time=i, step=j).astype(np.float32).compute(scheduler="synchronous")
    for name, array in fields.items():
        array[i, j] = unit[name].to_numpy()
    members = np.stack([field_of(unit, channel).to_numpy() for channel in channels])
    mean, std = ensemble_moments(members, axis=1)
    moments["mean"][i, j], moments["std"][i, j] = mean, std


def ensemble_moments(
    members: npt.NDArray[np.float32], axis: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Mean and unbiased (n - 1) standard deviation over the member axis, NaN where any is NaN.

    A single member has deviation 0.
    """
    wide = members.astype(np.float64)
    mean = wide.mean(axis=axis)
    spread = wide.std(axis=axis, ddof=1 if members.shape[axis] > 1 else 0)
    return mean.astype(np.float32), spread.astype(np.float32)


def _write_sums(
    group: zarr.Group, dataset: xr.Dataset, moments: dict[str, zarr.Array[Any]]
) -> None:
    """Sums over dates, in date order and float64, so that they depend on the data alone."""
    years, block_of = blocks(dataset["valid_time"].to_numpy())
    array = create_array(group, "valid_year", years.shape, ("block", "step"), dtype=np.int64)
    array[...] = years
    dims = ("block", "step", "channel", "latitude", "longitude")
    for kind, values in moments.items():
        shape = values.shape[1:]
        parts = {"count": np.int64, "sum": np.float64, "square_sum": np.float64}
        created = {
            part: create_array(
                group, f"{kind}_{part}", (len(years), *shape), dims, chunks=(1, *shape), dtype=dtype
            )
            for part, dtype in parts.items()
        }
        for block in range(len(years)):
            sums = Sums(shape)
            for i in (i for i, member in enumerate(block_of) if member == block):
                sums.add(np.asarray(values[i]))
            created["count"][block] = sums.count
            created["sum"][block] = sums.total
            created["square_sum"][block] = sums.square


def _write_truth(root: zarr.Group, truth: xr.Dataset) -> None:
    group = root.create_group("truth")
    level = ["level"] if "level" in truth.dims else []
    write_coordinates(group, truth, ["time", "step", *level, "latitude", "longitude", "valid_time"])
    for name, field in truth.data_vars.items():
        chunks = [1 if d in ("time", "step", "level") else field.sizes[d] for d in field.dims]
        array = create_array(
            group,
            str(name),
            field.shape,
            [str(d) for d in field.dims],
            chunks=chunks,
            attributes=_attributes(str(name), field),
        )
        for i in range(truth.sizes["time"]):
            array[i] = field.isel(time=i).compute(scheduler="synchronous").to_numpy()
