"""Create the empty Zarr hierarchy of a store, and describe its chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from ens10.catalog import VARIABLES
from ens10.channels import channel_names, split_exactly
from ens10.climate import blocks
from ens10.places import for_zarr
from ens10.stations import coordinates as station_coordinates
from ens10.store import FORMAT_VERSION, Codec, create_array, write_coordinates
from ens10.untrusted import parse_json

_SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
_CHUNK_DIMS = ("number", "latitude", "longitude")
_MOMENT_DIMS = ("time", "step", "channel", "latitude", "longitude")
_SUM_DIMS = ("block", "step", "channel", "latitude", "longitude")
SUMS = ("count", "sum", "square_sum")


@dataclass(frozen=True)
class Packing:
    """Compression of chunks by blosc, from the arrays' metadata."""

    cname: str
    clevel: int
    shuffle: int
    typesize: int

    def __call__(self, data: bytearray) -> bytes:
        """Return the chunk as a blosc frame, by one thread: several would make the order random."""
        import numcodecs.blosc as blosc

        blosc.set_nthreads(1)
        name = self.cname.encode()
        frame: bytes = blosc.compress(data, name, self.clevel, self.shuffle, 0, self.typesize)
        return frame


@dataclass(frozen=True)
class Form:
    """Sizes and options that all units of the forecasts share.

    Attributes:
        members: size of the ensemble.
        rows: rows of the grid.
        columns: columns of the grid.
        channels: number of channels of the statistics.
        ensembles: name suffix and number of members of each ensemble with mean and deviation.
        packing: of the forecasts' chunks, None for packed16 alone.
        any_values: True if impossible values are accepted.
        records_position: True if chunks record their path in the store; those of older stores do
            not.
        refuse_empty: True if a field without any value is an error.
        dates: dates that share a chunk.
    """

    members: int
    rows: int
    columns: int
    channels: int
    ensembles: tuple[tuple[str, int], ...]
    packing: Packing | None
    any_values: bool = False
    records_position: bool = True
    refuse_empty: bool = False
    dates: int = 1


@dataclass(frozen=True)
class StorePart:
    """One chunk of each date and step of the forecasts: a variable at one level.

    Attributes:
        variable: its name.
        level: index of the level, None at the surface.
        channel: index of the channel, None if the variable lacks this level.
    """

    variable: str
    level: int | None
    channel: int | None

    def path(self, place: tuple[int, int]) -> str:
        """Return the path of the chunk of a date and step in the store."""
        if self.level is None:
            return chunk_path(f"sfc/{self.variable}", place, 3)
        return chunk_path(f"pl/{self.variable}", (*place, self.level), 3)


def chunk_path(array: str, place: Sequence[int], inner: int) -> str:
    """Return the path of a chunk in the store.

    Args:
        array: path of the array.
        place: index of the chunk along the outer dimensions.
        inner: number of inner dimensions, which have one chunk each.
    """
    return "/".join([array, "c", *map(str, place), *["0"] * inner])


def create(
    path: Path, forecasts: xr.Dataset, truth: xr.Dataset | None, codec: Codec,
    ensembles: Sequence[int], dates: int = 1,
) -> None:  # fmt: skip
    """Create all groups and arrays of a store, and write their coordinates.

    Args:
        path: folder to write.
        forecasts: every variable over (time, step[, level], number, latitude, longitude).
        truth: over (time, step[, level], latitude, longitude), on the same dates, or None.
        codec: of the forecasts.
        ensembles: sizes of the smaller ensembles, of the first members, that get statistics too.
        dates: dates that share a chunk. If there are several, chunks hold plain numbers, ensemble
            means and deviations are not stored, and the truth has only those coordinates that
            differ from the forecasts'.
    """
    root = zarr.open_group(for_zarr(path), mode="a")
    points = list(station_coordinates(forecasts))
    root.attrs["ens10_format"] = FORMAT_VERSION
    for kind in ("sfc", "pl"):
        names = [n for n, f in forecasts.items() if ("level" in f.dims) == (kind == "pl")]
        if names:
            level = ["level"] if kind == "pl" else []
            coordinates = ["time", "step", *level, *_CHUNK_DIMS, "valid_time", *points]
            _create_fields(root, kind, forecasts[names], coordinates, codec, dates)
    if dates == 1:
        _create_statistics(root, forecasts, ensembles)
    if truth is not None:
        level = ["level"] if "level" in truth.dims else []
        coordinates = ["time", "step", *level, "latitude", "longitude", "valid_time", *points]
        if dates > 1:
            coordinates = [c for c in coordinates if not truth[c].equals(forecasts[c])]
        _create_fields(root, "truth", truth, coordinates, None, dates)


def _create_fields(
    root: zarr.Group, kind: str, dataset: xr.Dataset, names: Sequence[str], codec: Codec | None,
    dates: int,
) -> None:  # fmt: skip
    group = root.create_group(kind)
    write_coordinates(group, dataset, names)
    for name, field in dataset.data_vars.items():
        dims, attributes = [str(d) for d in field.dims], _attributes(str(name), field)
        create_array(
            group, str(name), field.shape, dims, attributes=attributes,
            codec=codec if dates == 1 else None,
            chunks=[dates, *(field.sizes[d] if d in _CHUNK_DIMS else 1 for d in field.dims[1:])],
        )  # fmt: skip


def _attributes(name: str, field: xr.DataArray) -> Mapping[str, Any]:
    defaults = VARIABLES[name].attributes if name in VARIABLES else {}
    return {**defaults, **field.attrs}


def suffixes(members: int, ensembles: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return name suffix and size of the whole ensemble and of each smaller one."""
    return ("", members), *((f"_first{k}", k) for k in sorted(set(ensembles)))


def _create_statistics(root: zarr.Group, dataset: xr.Dataset, ensembles: Sequence[int]) -> None:
    group = root.create_group("statistics")
    channels = channel_names(dataset)
    names = np.array(channels, dtype=np.dtypes.StringDType())
    template = dataset.assign_coords(channel=("channel", names))
    write_coordinates(group, template, [*_MOMENT_DIMS, "valid_time", *station_coordinates(dataset)])
    years, _ = blocks(dataset["valid_time"].to_numpy())
    array = create_array(group, "valid_year", years.shape, ("block", "step"), dtype=np.int64)
    array[...] = years
    sizes = dataset.sizes
    field = (len(channels), sizes["latitude"], sizes["longitude"])
    dates, sums = (sizes["time"], sizes["step"], *field), (len(years), sizes["step"], *field)
    for suffix, members in suffixes(sizes["number"], ensembles):
        of_members = f" of the first {members} members" if suffix else ""
        for kind in ("mean", "std"):
            name, text = f"ensemble_{kind}{suffix}", f"ensemble {kind}{of_members}"
            label = {"long_name": f"{text}, each channel in its units"}
            chunks = (1, 1, *field)
            create_array(group, name, dates, _MOMENT_DIMS, chunks=chunks, attributes=label)
            for part in SUMS:
                name, dtype = f"{kind}{suffix}_{part}", np.int64 if part == "count" else np.float64
                create_array(group, name, sums, _SUM_DIMS, chunks=chunks, dtype=dtype)


def form_of(
    path: Path, forecasts: xr.Dataset, ensembles: Sequence[int], any_values: bool = False,
    records_position: bool = True, refuse_empty: bool = False, dates: int = 1,
) -> Form:  # fmt: skip
    """Return sizes and options of the forecasts' units; see `Form` for the arguments."""
    sizes = forecasts.sizes
    return Form(
        members=sizes["number"], rows=sizes["latitude"], columns=sizes["longitude"],
        channels=len(channel_names(forecasts)), ensembles=suffixes(sizes["number"], ensembles),
        packing=_packing(path, forecasts) if dates == 1 else None, any_values=any_values,
        records_position=records_position, refuse_empty=refuse_empty, dates=dates,
    )  # fmt: skip


def _packing(path: Path, forecasts: xr.Dataset) -> Packing | None:
    """Return the compression of chunks from the metadata of any forecast array."""
    name, field = next(iter(forecasts.data_vars.items()))
    kind = "pl" if "level" in field.dims else "sfc"
    codecs = parse_json((path / kind / str(name) / "zarr.json").read_text())["codecs"]
    if len(codecs) == 1:
        return None
    settings = codecs[1]["configuration"]
    shuffle = _SHUFFLES[settings["shuffle"]]
    return Packing(settings["cname"], settings["clevel"], shuffle, settings["typesize"])


def forecast_parts(forecasts: xr.Dataset) -> tuple[StorePart, ...]:
    """Return the chunks of each date and step, by variable and level."""
    names = enumerate(channel_names(forecasts))
    channels = {_variable_and_level(forecasts, name): n for n, name in names}
    parts: list[StorePart] = []
    for name, field in forecasts.data_vars.items():
        levels: Sequence[int | None] = (None,)
        if "level" in field.dims:
            levels = range(field.sizes["level"])
        parts += [StorePart(str(name), n, channels.get((str(name), n))) for n in levels]
    return tuple(parts)


def _variable_and_level(dataset: xr.Dataset, channel: str) -> tuple[str, int | None]:
    """Return a channel's variable, and the index of its level in the dataset."""
    name, level = (channel, None) if channel in dataset.data_vars else split_exactly(channel)
    return name, None if level is None else dataset["level"].to_numpy().tolist().index(level)
