"""Small Zarr stores in the layout of ARCO-ERA5, written by zarr itself, for the tests."""

import numpy as np
import zarr

LAT, LON = np.arange(90, -91, -22.5), np.arange(0, 360, 22.5)
LEVELS = [300, 500, 850]
BASE = {"2m_temperature": (280.0, "K"), "temperature": (250.0, "K")}
BASE |= {"geopotential": (5e4, "m**2 s**-2"), "sea_surface_temperature": (290.0, "K")}


def values(name, hour, level=None):
    """Shape (rows, columns): numbers that tell every field and point from the others."""
    seed = [ord(c) for c in name] + [hour.year, hour.month, hour.day, hour.hour, level or 0]
    noise = np.random.default_rng(seed).normal(size=(LAT.size, LON.size))
    return (BASE[name][0] + noise).astype("f4")


def write_era5(path, zarr_format, first="2001-01-01", days=6):
    """Hourly, one chunk an hour with all levels, written by zarr itself."""
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)

    def put(name, data, dims, chunks=None, **attributes):
        named = {"dimension_names": dims} if zarr_format == 3 else {}
        array = root.create_array(
            name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape,
            fill_value=np.nan if data.dtype.kind == "f" else 0, **named,
        )  # fmt: skip
        array[...] = data
        array.attrs.update(attributes | ({} if named else {"_ARRAY_DIMENSIONS": list(dims)}))

    start = np.datetime64(first, "h")
    times = (start + np.arange(24 * days)) - np.datetime64("1900-01-01", "h")
    hours = (start + np.arange(24 * days)).astype("datetime64[s]").tolist()
    put("time", times.astype("i8"), ("time",), units="hours since 1900-01-01")
    put("latitude", LAT.astype("f4"), ("latitude",), units="degrees_north")
    put("longitude", LON.astype("f4"), ("longitude",), units="degrees_east")
    put("level", np.array(LEVELS, "i8"), ("level",))
    grid = ("latitude", "longitude")
    for name, (_, units) in BASE.items():
        surface = name[-3:] == "ure" and name != "temperature"
        if surface:
            data = np.stack([values(name, hour) for hour in hours])
            chunks, dims = (1, *data.shape[1:]), ("time", *grid)
        else:
            data = np.stack([[values(name, hour, p) for p in LEVELS] for hour in hours])
            chunks, dims = (1, *data.shape[1:]), ("time", "level", *grid)
        put(name, data, dims, chunks, units=units)
    if zarr_format == 2:
        zarr.consolidate_metadata(path, zarr_format=2)
    return path
