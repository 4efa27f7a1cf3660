"""Files of truth as ERA5 is found: of the old and the new CDS, ARCO-ERA5, cfgrib, WeatherBench."""

from collections.abc import Sequence
from pathlib import Path

import netCDF4
import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

LAT, LON = np.arange(60.0, 39.0, -2.5), np.arange(0.0, 360.0, 22.5)  # every second is the GRID
LEVELS = (300, 500, 850)
PARAMS = {"t2m": 167, "z": 129, "t": 130, "u10": 165}
UNITS = {"t2m": "K", "z": "m**2 s**-2", "t": "K", "u10": "m s**-1"}
LONG = {"t2m": "2m_temperature", "z": "geopotential", "t": "temperature", "u10": "u_10m"}


def value(
    name: str, times: npt.ArrayLike, level: float = 0, lat: npt.ArrayLike = LAT, lon=LON
) -> npt.NDArray[np.float64]:
    """A field (time, latitude, longitude) that tells its name, level, time and place."""
    days = np.array(times, "datetime64[h]").astype(float) / 24 % 100
    offset = 200.0 + PARAMS[name] % 10 + level / 10
    place = np.asarray(lat)[:, None] / 100 + (np.asarray(lon) % 360) / 3600
    return offset + days[:, None, None] / 10 + place


def new_cds(folder: Path, times: Sequence[str], names: Sequence[str] = ("t2m", "z", "t")) -> Path:
    """One file of the surface and one of pressure levels, as the CDS gives them since 2024."""
    folder.mkdir()
    hours = np.array(times, "datetime64[s]").astype(np.int64)
    for stream in ("sfc", "pl"):
        own = [name for name in names if (name in ("z", "t")) == (stream == "pl")]
        if not own:
            continue
        with netCDF4.Dataset(folder / f"data_{stream}.nc", "w") as file:
            _axis(file, "valid_time", hours, "i8", units="seconds since 1970-01-01")
            if stream == "pl":
                level = np.array(LEVELS[::-1], float)
                _axis(file, "pressure_level", level, "f8", units="hPa", positive="down")
            _axis(file, "latitude", LAT, "f8", units="degrees_north", standard_name="latitude")
            _axis(file, "longitude", LON, "f8", units="degrees_east", standard_name="longitude")
            file.createVariable("number", "i8", ())[...] = 0
            expver = file.createVariable("expver", str, ("valid_time",))
            for n in range(len(times)):
                expver[n] = "0001"
            for name in own:
                dims = tuple(d for d in file.dimensions)
                field = file.createVariable(name, "f4", dims, zlib=True, fill_value=np.nan)
                field.setncatts({"GRIB_paramId": PARAMS[name], "units": UNITS[name]})
                field.setncatts({"standard_name": "unknown", "coordinates": "number expver"})
                if stream == "pl":
                    for n, level in enumerate(LEVELS[::-1]):
                        field[:, n] = value(name, times, level)
                else:
                    field[:] = value(name, times)
    return folder


def _axis(file: netCDF4.Dataset, name: str, values: npt.ArrayLike, kind: str, **attrs: str) -> None:
    file.createDimension(name, len(values))
    axis = file.createVariable(name, kind, (name,))
    axis.setncatts(attrs)
    axis[:] = values


def old_cds(path: Path, times: Sequence[str], names: Sequence[str] = ("t2m",)) -> Path:
    """Packed 16-bit integers of classic netCDF, times in hours since 1900."""
    epoch = np.datetime64("1900-01-01", "h")
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        _axis(file, "longitude", LON, "f4", units="degrees_east")
        _axis(file, "latitude", LAT, "f4", units="degrees_north")
        if set(names) & {"z", "t"}:
            _axis(file, "level", LEVELS, "i4", units="millibars", long_name="pressure_level")
        hours = (np.array(times, "datetime64[h]") - epoch).astype(int)
        _axis(file, "time", hours, "i4", units="hours since 1900-01-01 00:00:00.0")
        for name in names:
            upper = name in ("z", "t")
            dims = ("time", "level", "latitude", "longitude") if upper else ("time", *_GRID)
            field = file.createVariable(name, "i2", dims, fill_value=-32767)
            field.setncatts({"scale_factor": 0.01, "add_offset": 250.0, "units": UNITS[name]})
            if upper:
                field[:] = np.stack([value(name, times, level) for level in LEVELS], axis=1)
            else:
                field[:] = value(name, times)
    return path


_GRID = ("latitude", "longitude")


def arco(
    path: Path, first: str, hours: int, filled: Sequence[str], names: Sequence[str] = PARAMS
) -> Path:
    """The layout of ARCO-ERA5: Zarr format 2, hourly, a chunk an hour, with all levels in it.

    Chunks of hours that are not in `filled`, and of variables not in `names`, are rubbish that
    cannot be decoded.
    """
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.attrs.update({"valid_time_start": first[:10], "valid_time_stop": "2016-12-31"})
    start = np.datetime64(first, "h")
    since = (start - np.datetime64("1900-01-01", "h")).astype(int)
    axes = {"time": since + np.arange(hours), "level": np.array(LEVELS)}
    axes |= {"latitude": LAT.astype("f4"), "longitude": LON.astype("f4")}
    for name, values in axes.items():
        array = group.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=values.shape, fill_value=None
        )
        array[:] = values
        array.attrs["_ARRAY_DIMENSIONS"] = [name]
    group["time"].attrs.update({"units": "hours since 1900-01-01", "calendar": "gregorian"})
    places = (np.array(filled, "datetime64[h]") - start).astype(int)
    extra = {"100m_u_component_of_wind": "u10", "geopotential_at_surface": "z"}
    for theirs, ours in {**{LONG[name]: name for name in LONG}, **extra}.items():
        upper = ours in ("z", "t") and theirs not in extra
        dims = ["time", *(["level"] if upper else []), *_GRID]
        shape = tuple(len(axes[dim]) for dim in dims)
        array = group.create_array(
            theirs, shape=shape, chunks=(1, *shape[1:]), dtype="f4", fill_value=np.nan
        )
        array.attrs.update({"_ARRAY_DIMENSIONS": dims, "units": UNITS[ours], "short_name": ours})
        for n in range(min(hours, 100)):
            chunk = path / theirs / ".".join([str(n)] + ["0"] * (len(dims) - 1))
            chunk.parent.mkdir(parents=True, exist_ok=True)
            chunk.write_bytes(b"rubbish")
        if theirs not in extra and ours in names:
            for place, when in zip(places, filled, strict=True):
                fields = [value(ours, [when], level)[0] for level in (LEVELS if upper else [0])]
                array[place] = np.stack(fields) if upper else fields[0]
    zarr.consolidate_metadata(path)
    return path


def weatherbench(path: Path, times: Sequence[str]) -> Path:
    """Longitude before latitude, latitudes rising."""
    fields = {}
    for name in ("t2m", "z", "t"):
        if name == "t2m":
            data, dims = value(name, times), ("time", "latitude", "longitude")
        else:
            data = np.stack([value(name, times, level) for level in LEVELS], axis=1)
            dims = ("time", "level", "latitude", "longitude")
        fields[LONG[name]] = (dims, data.astype("f4"), {"units": UNITS[name]})
    coordinates = {"time": np.array(times, "datetime64[ns]"), "level": list(LEVELS)}
    whole = xr.Dataset(fields, {**coordinates, "latitude": LAT, "longitude": LON})
    turned = whole.isel(latitude=slice(None, None, -1)).transpose(..., "longitude", "latitude")
    turned.to_zarr(path, zarr_format=2, consolidated=True)
    return path
