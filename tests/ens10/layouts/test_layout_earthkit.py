"""earthkit-data: datasets of `to_xarray`, imitated, and of the library itself if it is there."""

import numpy as np
import pytest
import xarray as xr
from layouttools import FROM_GREENWICH, NORTH_TO_SOUTH, STARTS, layouts_of, oriented, values

import ens10
from ens10.errors import ArgumentError
from ens10.source import tidy
from ens10.source.names import Names
from ens10.store import forecasts

LEADS = np.array([6, 12])
TIMEDELTAS = LEADS.astype("timedelta64[h]").astype("timedelta64[ns]")
DIMS = ["member", "forecast_reference_time", "step", "latitude", "longitude"]
UPPER = [*DIMS[:3], "level", *DIMS[3:]]
OURS = {"member": "number", "forecast_reference_time": "time", "forecast_period": "step"}
ATTRIBUTES = {
    "2t": {"standard_name": "air_temperature", "long_name": "2 metre temperature",
           "units": "kelvin", "level_type": "height_above_ground_level"},
    "10u": {"standard_name": "eastward_wind", "long_name": "10 metre U wind component",
            "units": "meter / second", "level_type": "height_above_ground_level"},
    "z": {"standard_name": "geopotential", "long_name": "Geopotential",
          "units": "meter ** 2 / second ** 2", "level_type": "pressure"},
    "t": {"standard_name": "air_temperature", "long_name": "Temperature", "units": "kelvin",
          "level_type": "pressure"},
}  # fmt: skip


def imitation(lead="step"):
    """The profile "earthkit": float64, members as texts, an attribute with the GRIB header."""
    sizes = (3, 2, 2, 6, 8)
    upper = (3, 2, 2, 2, 6, 8)
    fields = {"2t": values("t2m", sizes), "10u": values("u10", sizes), "z": values("z", upper),
              "t": values("t", upper)}  # fmt: skip
    coords = {
        "member": ("member", ["1", "2", "3"], {"standard_name": "realization"}),
        "forecast_reference_time": ("forecast_reference_time", STARTS,
                                    {"standard_name": "forecast_reference_time"}),
        lead: (lead, TIMEDELTAS, {"standard_name": "forecast_period"}),
        "level": ("level", [500, 850], {"standard_name": "air_pressure", "units": "hPa",
                                        "positive": "down"}),
        "latitude": ("latitude", NORTH_TO_SOUTH, {"units": "degrees_north"}),
        "longitude": ("longitude", FROM_GREENWICH, {"units": "degrees_east"}),
    }  # fmt: skip
    variables = {
        name: ([lead if d == "step" else d for d in (UPPER if field.ndim == 6 else DIMS)],
               field.astype("f8"), {**ATTRIBUTES[name], "_earthkit": "{}"})
        for name, field in fields.items()
    }  # fmt: skip
    return xr.Dataset(variables, coords, {"Conventions": "CF-1.8", "institution": "ECMWF"})


def ours(field):
    dims = [OURS.get(dim, dim) for dim in field.dims]
    return oriented(field, dims, NORTH_TO_SOUTH, FROM_GREENWICH).astype("f4")


@pytest.mark.parametrize("lead", ["step", "forecast_period"])
def test_values(tmp_path, lead):
    raw = imitation(lead).chunk(forecast_reference_time=1)
    assert layouts_of(raw) == ["earthkit-data"]
    got = forecasts(ens10.prepare(raw, tmp_path / "s.zarr"))
    assert set(got.data_vars) == {"t2m", "u10", "z", "t"}
    for name, theirs in {"t2m": "2t", "u10": "10u", "z": "z", "t": "t"}.items():
        np.testing.assert_array_equal(got[name], ours(raw[theirs]), err_msg=name)
    np.testing.assert_array_equal(got["number"], [1, 2, 3])
    np.testing.assert_array_equal(got["time"], STARTS)
    np.testing.assert_array_equal(got["step"], LEADS)
    assert (got["z"].units, got["u10"].units) == ("m2 s-2", "m s-1")


def test_one_run_without_its_start(tmp_path):
    """The default leaves out dimensions of size 1; the valid times tell the start."""
    one = imitation().isel(forecast_reference_time=0, drop=True)
    valid = xr.DataArray(STARTS[0] + TIMEDELTAS, dims="step", attrs={"standard_name": "time"})
    got = tidy(one.assign_coords(valid_time=valid), Names(), "one run")
    np.testing.assert_array_equal(got["time"], STARTS[:1])
    np.testing.assert_array_equal(got["t2m"], ours(one["2t"])[None])


def test_a_run_without_any_time_of_its_start():
    one = imitation().isel(forecast_reference_time=0, drop=True)
    with pytest.raises(ArgumentError, match=r"left out the start.*ensure_dims"):
        tidy(one, Names(), "one run")


def test_the_library_itself(tmp_path, write):
    """GRIB messages that the library opens, and that ens10 opens."""
    earthkit = pytest.importorskip("earthkit.data")
    fields = [
        ("t2m", 0, 20260101 + day, step, n) for day in (0, 1) for step in (6, 12) for n in (1, 2)
    ]
    path = write(fields)
    theirs = earthkit.from_source("file", str(path)).to_fieldlist().to_xarray()
    got = forecasts(ens10.prepare(theirs, tmp_path / "a.zarr"))
    xr.testing.assert_equal(got["t2m"], forecasts(ens10.prepare(path, tmp_path / "b.zarr"))["t2m"])
