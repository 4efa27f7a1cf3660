"""WeatherNext 2: a store of one run, where `time` is the lead, and a store of a year."""

import numpy as np
import pytest
import xarray as xr
from layouttools import FROM_GREENWICH, STARTS, assert_read, layouts_of, oriented, values

from ens10.source import open_source
from ens10.source.layouts import layout_of

LATITUDE = np.arange(-75.0, 76.0, 30.0)
LEADS = np.array([6, 12, 18])
TIMEDELTAS = LEADS.astype("timedelta64[h]").astype("timedelta64[ns]")
NAMES = {"2m_temperature": "t2m", "mean_sea_level_pressure": "msl", "geopotential": "z",
         "temperature": "t"}  # fmt: skip
RUN, YEAR = ["sample", "time"], ["time", "sample", "prediction_timedelta"]
GRID = ["lat", "lon"]
OURS = {
    "run": {"sample": "number", "time": "step", "lat": "latitude", "lon": "longitude"},
    "year": {"sample": "number", "prediction_timedelta": "step", "lat": "latitude",
             "lon": "longitude"},
}  # fmt: skip
SIZES = {"sample": 4, "prediction_timedelta": 3, "level": 2, "lat": 6, "lon": 8}


def imitation(kind, names):
    """Variables without attributes, rows from south to north."""
    outer = RUN if kind == "run" else YEAR
    sizes = SIZES | {"time": 3 if kind == "run" else 2}
    fields = {}
    for name, our in names.items():
        dims = [*outer, *(["level"] if our in "zt" else []), *GRID]
        fields[name] = (dims, values(our, [sizes[dim] for dim in dims]))
    coords = {"sample": np.arange(4), "level": [500, 850], "lat": LATITUDE, "lon": FROM_GREENWICH}
    if kind == "year":
        return xr.Dataset(fields, coords | {"time": STARTS, "prediction_timedelta": TIMEDELTAS})
    valid = ("time", STARTS[0] + TIMEDELTAS)
    run = {"time": TIMEDELTAS, "init_time": STARTS[0], "datetime": valid}
    return xr.Dataset(fields, coords | run)


def write(path, kind, names):
    """Zarr 2; chunks of one member, lead and level, or of four members and all levels."""
    members = {"sample": 1, "level": 1} if kind == "run" else {"sample": 4}
    chunks = {"lat": 6, "lon": 8, "time": 1, "prediction_timedelta": 1, "level": 2} | members
    dataset = imitation(kind, names)
    parts = {
        name: {"chunks": [chunks[dim] for dim in field.dims]}
        for name, field in dataset.data_vars.items()
    }
    dataset.to_zarr(path, zarr_format=2, encoding=parts, consolidated=True)


def ours(field, kind):
    """A field in the order of this package; the store of one run has one start."""
    dims = [OURS[kind].get(dim, dim) for dim in field.dims]
    array = oriented(field, dims, LATITUDE, FROM_GREENWICH)
    return array[None] if kind == "run" else array


@pytest.mark.parametrize("kind", ["run", "year"])
def test_values(tmp_path, kind):
    write(tmp_path / "a.zarr", kind, NAMES)
    raw = xr.open_zarr(tmp_path / "a.zarr", decode_timedelta=True)
    want = {our: ours(raw[name], kind) for name, our in NAMES.items()}
    got = assert_read(tmp_path / "a.zarr", want, tmp_path)
    assert layouts_of(raw) == [f"WeatherNext 2, a {kind}"]
    starts = STARTS[:1] if kind == "run" else STARTS
    np.testing.assert_array_equal(got["time"], starts)
    np.testing.assert_array_equal(got["step"], LEADS)
    np.testing.assert_array_equal(got["valid_time"], np.add.outer(starts, TIMEDELTAS))
    np.testing.assert_array_equal(got["number"], np.arange(4))


@pytest.mark.parametrize("kind", ["run", "year"])
def test_the_window_of_precipitation(kind):
    dataset = imitation(kind, {"total_precipitation_6hr": "tp"})
    assert layout_of(dataset).convert(dataset)["tp"].attrs["accumulation"] == "6 h"


@pytest.mark.parametrize("kind", ["run", "year"])
def test_precipitation_since_the_start(tmp_path, kind):
    write(tmp_path / "a.zarr", kind, {"total_precipitation_6hr": "tp"})
    raw = xr.open_zarr(tmp_path / "a.zarr", decode_timedelta=True)
    rain = raw["total_precipitation_6hr"].astype("f8")
    sums = rain.cumsum("time" if kind == "run" else "prediction_timedelta")
    np.testing.assert_allclose(open_source(tmp_path / "a.zarr")["tp"], ours(sums, kind), rtol=1e-6)
