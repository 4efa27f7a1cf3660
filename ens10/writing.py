"""Write the parts of a store: forecasts, ensemble mean and deviation, their sums, truth."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ens10.catalog import VARIABLES
from ens10.channels import channel_names, split_exactly
from ens10.climate import Sums, blocks
from ens10.progress import track
from ens10.store import FORMAT_VERSION, Codec, consolidate, create_array, write_coordinates

_STATISTICS = ("mean", "std")


def write_store(
    path: Path, dataset: xr.Dataset, truth: xr.Dataset | None, codec: Codec, progress: bool
) -> None:
    """Writes forecasts, and truth on the same dates, reading each date and step once.

    Args:
        path: folder to write; what is there is replaced.
        dataset: every variable over (time, step[, level], number, latitude, longitude).
        truth: over (time, step[, level], latitude, longitude), or None.
        codec: of the forecasts.
        progress: show a progress bar.
    """
    root = zarr.open_group(str(path), mode="w")
    root.attrs["ens10_format"] = FORMAT_VERSION
    fields = _create_forecasts(root, dataset, codec)
    channels = channel_names(dataset)
    moments = _create_moments(root, dataset, channels)
    picks = [_pick(dataset, channel) for channel in channels]
    units = list(product(range(dataset.sizes["time"]), range(dataset.sizes["step"])))
    for i, j in track(units, "prepare", len(units), progress):
        _convert_unit(dataset.isel(time=i, step=j), fields, moments, picks, (i, j))
    _write_sums(root["statistics"], dataset, moments, progress)  # type: ignore[arg-type]
    if truth is not None:
        _write_truth(root, truth, progress)
    consolidate(path)


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


def _attributes(name: str, field: xr.DataArray) -> Mapping[str, Any]:
    catalogued = VARIABLES[name].attributes if name in VARIABLES else {}
    return {**catalogued, **field.attrs}


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


def _pick(dataset: xr.Dataset, channel: str) -> tuple[str, int | None]:
    """Variable and place among the dataset's levels of a channel."""
    name, level = (channel, None) if channel in dataset.data_vars else split_exactly(channel)
    return name, None if level is None else dataset["level"].to_numpy().tolist().index(level)


def _convert_unit(
    lazy: xr.Dataset,
    fields: dict[str, zarr.Array[Any]],
    moments: dict[str, zarr.Array[Any]],
    picks: list[tuple[str, int | None]],
    place: tuple[int, int],
) -> None:
    """Reads one date and step once, and writes its members, mean and deviation."""
    unit = lazy.compute(scheduler="synchronous")
    values = {name: unit[name].to_numpy().astype(np.float32, copy=False) for name in fields}
    for name, array in fields.items():
        array[place] = values[name]
    members = [values[name] if n is None else values[name][n] for name, n in picks]
    mean, std = zip(*(ensemble_moments(each, axis=0) for each in members), strict=True)
    moments["mean"][place], moments["std"][place] = np.stack(mean), np.stack(std)


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
    group: zarr.Group, dataset: xr.Dataset, moments: dict[str, zarr.Array[Any]], progress: bool
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
        for block in track(range(len(years)), f"sums of {kind}", len(years), progress):
            sums = Sums(shape)
            for i in (i for i, member in enumerate(block_of) if member == block):
                sums.add(np.asarray(values[i]))
            created["count"][block] = sums.count
            created["sum"][block] = sums.total
            created["square_sum"][block] = sums.square


def _write_truth(root: zarr.Group, truth: xr.Dataset, progress: bool) -> None:
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
        dates = truth.sizes["time"]
        for i in track(range(dates), f"truth {name}", dates, progress):
            array[i] = field.isel(time=i).compute(scheduler="synchronous").to_numpy()
