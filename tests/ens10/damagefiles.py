"""Damaged files for the tests: each maker writes one kind of damage and tells where it is."""

import itertools
from pathlib import Path

import eccodes
import netCDF4
import numpy as np
from gribfiles import GRID, cube, values_of

from ens10.catalog import variable
from ens10.grib import Encoder, LatLonGrid

FIELDS = cube(names=(("t2m", 0), ("z", 500)), dates=(20160101, 20160105, 20160108))
LOST = ("t2m", 0, 20160105, 24, 2)
OTHER = LatLonGrid(5, 8, 61.0, 41.0, 0.0, 45.0)


def message(field, grid=GRID, values=None, level=None):
    """One field as a GRIB message."""
    short, own, date, step, number = field
    held = values_of(field)[: grid.rows] if values is None else values
    place = {"date": date, "step": step, "number": number, "level": level or own}
    return Encoder(grid).message(held, variable(short), **place)


def messages(fields=FIELDS):
    """The messages of a whole file."""
    return [message(field) for field in fields]


def write(path, parts):
    """Writes messages, and returns where each begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(parts))
    return [0, *itertools.accumulate(map(len, parts))]


def at(field=LOST):
    """The number of a field's message."""
    return FIELDS.index(field)


def with_keys(raw, keys, values=None):
    """A message with other keys, by ecCodes."""
    handle = eccodes.codes_new_from_message(raw)
    try:
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        if values is not None:
            eccodes.codes_set_values(handle, np.ascontiguousarray(values, np.float64).ravel())
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def northward(raw):
    """The same field, scanned from south to north."""
    handle = eccodes.codes_new_from_message(raw)
    values = eccodes.codes_get_values(handle).reshape(GRID.rows, GRID.columns)
    eccodes.codes_release(handle)
    keys = {
        "jScansPositively": 1,
        "latitudeOfFirstGridPointInDegrees": GRID.south,
        "latitudeOfLastGridPointInDegrees": GRID.north,
    }
    return with_keys(raw, keys, values[::-1])


def from_dateline(raw):
    """The same field, its columns from 180 W on."""
    handle = eccodes.codes_new_from_message(raw)
    values = eccodes.codes_get_values(handle).reshape(GRID.rows, GRID.columns)
    eccodes.codes_release(handle)
    keys = {
        "longitudeOfFirstGridPointInDegrees": -180,
        "longitudeOfLastGridPointInDegrees": 135,
    }
    return with_keys(raw, keys, np.roll(values, GRID.columns // 2, axis=1))


def replaced(n, change):
    """The messages, one of them changed."""
    parts = messages()
    parts[n] = change(parts[n])
    return parts


def celsius(field=LOST):
    """A field of 2 m temperature in degrees Celsius."""
    return message(field, values=values_of(field) - 273.15)


def flipped_exponent(raw):
    """A message with a flipped bit in the exponent of its reference value."""
    begin = 8
    for _ in range(2):  # product and grid section
        begin += int.from_bytes(raw[begin : begin + 3], "big")
    broken = bytearray(raw)
    broken[begin + 6] ^= 0x04  # octet 7 of the data section: sign and exponent
    return bytes(broken)


def netcdf(path: Path, fmt="NETCDF4", units="K", offset=0.0, zlib=False, reverse=False, west=0.0):
    """A small ensemble of t2m: 3 dates, 2 steps, 2 members."""
    rng = np.random.default_rng(7)
    with netCDF4.Dataset(path, "w", format=fmt) as file:
        sizes = {"time": 3, "step": 2, "number": 2, "latitude": 9, "longitude": 18}
        for name, size in sizes.items():
            file.createDimension(name, None if name == "time" else size)
        latitude = np.linspace(80, -80, 9)
        axes = {
            "time": (np.arange(3), "days since 2016-01-01"),
            "step": (np.array([24, 48]), "hours"),
            "number": (np.array([1, 2]), "1"),
            "latitude": (latitude[::-1] if reverse else latitude, "degrees_north"),
            "longitude": (west + 20.0 * np.arange(18), "degrees_east"),
        }
        for name, (values, unit) in axes.items():
            kind = "f8" if name.endswith("tude") else "i4"
            file.createVariable(name, kind, (name,))[:] = values
            file[name].units = unit
        chunks = (1, 1, 1, 9, 18) if fmt == "NETCDF4" else None
        field = file.createVariable("t2m", "f4", tuple(sizes), zlib=zlib, chunksizes=chunks)
        field.units = units
        field[:] = rng.normal(280.0 + offset, 5.0, tuple(sizes.values()))
    return path.stat().st_size
