import math

import numpy as np
import pytest
import xarray as xr
from gribfiles import REAL

from ens10.catalog import VARIABLES
from ens10.errors import FileError
from ens10.source.units import check_range

WHERE = "a.grib, byte 1234"


@pytest.mark.parametrize("name", VARIABLES)
def test_the_whole_range_passes_and_the_next_number_beyond_does_not(name):
    low, high = VARIABLES[name].valid_range
    check_range(name, low, high, WHERE)
    for ends in ((np.nextafter(low, -np.inf), high), (low, np.nextafter(high, np.inf))):
        with pytest.raises(FileError, match=rf"^a\.grib, byte 1234: {name} runs from"):
            check_range(name, *ends, WHERE)


@pytest.mark.parametrize(
    ("name", "ends", "guess"),
    [
        (
            "t2m",
            (-60.0, 45.0),
            "looks like Celsius. Convert the values .of a table: the column. to K; in netCDF",
        ),
        ("t2m", (-76.0, 113.0), "looks like Fahrenheit"),
        ("t", (-90.0, 40.0), "looks like Celsius"),
        ("msl", (940.0, 1050.0), "looks like hPa"),
        ("tp", (0.0, 250.0), "looks like millimetres"),
        ("tcc", (0.0, 100.0), "looks like per cent"),
        ("tcc", (0.0, 8.0), "looks like per cent|looks like eighths"),
        ("q", (0.0, 21.0), "looks like g kg-1"),
        ("sst", (271.0, 9999.0), "9999 looks like a missing value"),
        ("sst", (271.0, 1e20), r"1e\+20 looks like a missing value"),
        ("t2m", (200.0, math.inf), "infinite"),
        ("z", (-1e9, 1e9), "damaged or another variable"),
    ],
)
def test_what_the_values_look_like_is_said(name, ends, guess):
    with pytest.raises(FileError, match=guess):
        check_range(name, *ends, WHERE)


def test_missing_values_and_unknown_variables_pass():
    check_range("t2m", math.nan, math.nan, WHERE)
    check_range("swvl1", -1e9, 1e9, WHERE)


@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
def test_real_data_pass_and_the_same_in_celsius_do_not():
    held = xr.open_dataset(REAL, engine="cfgrib", backend_kwargs={"indexpath": ""})
    for name in ("z", "t"):
        check_range(name, float(held[name].min()), float(held[name].max()), WHERE)
    celsius = held.t - 273.15
    with pytest.raises(FileError, match="looks like Celsius"):
        check_range("t", float(celsius.min()), float(celsius.max()), WHERE)
