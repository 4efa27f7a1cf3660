from dataclasses import replace

import eccodes
import numpy as np
import pytest
import xarray as xr
from gribfiles import GRID

from ens10 import open_store, prepare
from ens10.catalog import VARIABLES
from ens10.errors import FileError
from ens10.grib import Encoder
from ens10.source import names
from ens10.source.layout import tidy
from ens10.source.names import Names

SURFACE, UPPER = ("time", "latitude", "longitude"), ("time", "level", "latitude", "longitude")
COORDINATES = {
    "time": np.array(["2016-01-01"], "datetime64[ns]"),
    "latitude": [1.0, 0.0],
    "longitude": [0.0, 1.0, 2.0],
}


def dataset(*fields, scalars=None, levels=(500, 850)):
    """Fields (name, dims, attributes)."""
    sizes = {"time": 1, "level": len(levels), "latitude": 2, "longitude": 3}
    held = {n: (dims, np.ones([sizes[d] for d in dims]), attrs) for n, dims, attrs in fields}
    upper = {"level": list(levels)} if any("level" in dims for _, dims, _ in fields) else {}
    return xr.Dataset(held, {**COORDINATES, **upper, **(scalars or {})})


@pytest.mark.parametrize(
    ("name", "dims", "attrs", "want"),
    [
        ("a", SURFACE, {"GRIB_paramId": 167}, "t2m"),
        ("a", UPPER, {"GRIB_paramId": 130}, "t"),
        ("a", UPPER, {"GRIB_paramId": 156, "units": "gpm"}, "z"),
        ("var167", SURFACE, {"code": 167, "table": 128}, "t2m"),
        ("a", UPPER, {"standard_name": "air_temperature"}, "t"),
        ("a", UPPER, {"standard_name": "geopotential_height"}, "z"),
        ("psl", SURFACE, {"standard_name": "air_pressure_at_mean_sea_level"}, "msl"),
        ("tos", SURFACE, {"standard_name": "sea_surface_temperature"}, "sst"),
        ("2m_temperature", SURFACE, {}, "t2m"),
        ("10m_u_component_of_wind", SURFACE, {}, "u10"),
        ("mean_sea_level_pressure", SURFACE, {}, "msl"),
        ("sea_surface_temperature", SURFACE, {}, "sst"),
        ("skin_temperature", SURFACE, {}, "skt"),
        ("total_column_water", SURFACE, {}, "tcw"),
        ("total_column_water_vapour", SURFACE, {}, "tcwv"),
        ("total_cloud_cover", SURFACE, {}, "tcc"),
        ("total_precipitation", SURFACE, {}, "tp"),
        ("convective_precipitation", SURFACE, {}, "cp"),
        ("geopotential", UPPER, {}, "z"),
        ("temperature", UPPER, {}, "t"),
        ("u_component_of_wind", UPPER, {}, "u"),
        ("specific_humidity", UPPER, {}, "q"),
        ("vertical_velocity", UPPER, {}, "w"),
        ("divergence", UPPER, {}, "d"),
        ("2t", SURFACE, {}, "t2m"),
        # and what must be left alone
        ("a", SURFACE, {"GRIB_paramId": 129}, None),  # of the ground
        ("geopotential", SURFACE, {}, None),
        ("a", UPPER, {"GRIB_paramId": 167}, None),
        ("a", SURFACE, {"GRIB_paramId": 168}, None),
        ("a", SURFACE, {"standard_name": "air_temperature"}, None),  # at which height?
        ("a", SURFACE, {"standard_name": "eastward_wind"}, None),
        ("100m_u_component_of_wind", SURFACE, {"standard_name": "eastward_wind"}, None),
        (
            "a",
            SURFACE,
            {"standard_name": "surface_temperature", "cell_methods": "time: maximum"},
            None,
        ),
        ("wind", SURFACE, {"long_name": "10 metre U wind component"}, None),
    ],
)
def test_variables(name, dims, attrs, want):
    found = names.recognise_variables(dataset((name, dims, attrs)))
    assert found == ({name: want} if want else {})


def test_air_temperature_by_its_height():
    air = ("tas", SURFACE, {"standard_name": "air_temperature"})
    for scalars, want in (({"height": 2.0}, {"tas": "t2m"}), ({"height": 10.0}, {})):
        assert names.recognise_variables(dataset(air, scalars=scalars)) == want


def test_our_own_name_and_the_better_rule_win_and_two_that_fit_are_left_alone():
    mine, other = ("t2m", SURFACE, {}), ("b", SURFACE, {"GRIB_paramId": 167})
    assert names.recognise_variables(dataset(mine, other)) == {}
    known = ("2m_temperature", SURFACE, {})
    assert names.recognise_variables(dataset(known, other)) == {"b": "t2m"}
    twin = ("c", SURFACE, {"GRIB_paramId": 167})
    assert names.recognise_variables(dataset(twin, other)) == {}


@pytest.mark.parametrize(
    ("name", "values", "units", "want"),
    [
        ("pressure_level", [850.0, 500.0], "hPa", [850, 500]),
        ("isobaricInhPa", [500.0, 850.0], "hPa", [500, 850]),
        ("isobaricInPa", [50000.0, 85000.0], None, [500, 850]),
        ("plev", [50000.0, 85000.0], "Pa", [500, 850]),
        ("plev", [50000.0, 85000.0], None, [500, 850]),
        ("plev", [500.0, 850.0], "mbar", [500, 850]),
        ("level", [50000, 85050], "Pa", [500, 850.5]),
        ("level", [500, 850], "millibars", [500, 850]),
    ],
)
def test_levels(name, values, units, want):
    held = dataset(("z", UPPER, {}), levels=values).rename(level=name)
    if units:
        held[name].attrs["units"] = units
    got = tidy(held.rename(latitude="lat", longitude="lon"), Names(), "x")
    np.testing.assert_array_equal(got.level, want)
    assert got.z.dims == UPPER


def test_one_level_beside_a_surface_field():
    both = dataset(("t2m", SURFACE, {}), ("z", SURFACE, {}), scalars={"isobaricInhPa": 500.0})
    got = tidy(both, Names(), "x")
    assert (got.t2m.dims, got.z.dims) == (SURFACE, UPPER)
    assert got.level.to_numpy().tolist() == [500]


def test_valid_time_is_the_time_of_analyses_alone():
    flat = dataset(("t2m", SURFACE, {})).rename(time="valid_time")
    got = tidy(flat, Names(), "x")
    np.testing.assert_array_equal(got.valid_time, flat.valid_time)
    assert got.t2m.dims == SURFACE
    assert "valid_time" not in names.recognise_dimensions(flat.assign_coords(step=24))


def test_units_of_forecasts_are_converted_and_those_of_a_mapping_too():
    held = dataset(("theirs", SURFACE, {"units": "degC"}), ("other", SURFACE, {"units": "x"}))
    got = tidy(held, Names({"theirs": "t2m"}), "x")
    assert got.t2m.max() == np.float32(274.15)
    with pytest.raises(FileError, match="x: t2m has the units 'x'"):
        tidy(held, Names({"other": "t2m"}), "x")


PLACES = {
    "gaps": ([np.nan, 1.0, 2.0], "missing values"),
    "dates": (  # of the units "days since 2001-01-01", which xarray decodes
        np.array(["2001-02-01", "2001-02-02", "2001-02-03"], "datetime64[ns]"),
        "dates, not degrees",
    ),
    "durations": (
        np.array([1, 2, 3], "timedelta64[h]").astype("timedelta64[ns]"), "durations, not degrees",
    ),
    "texts": (["east", "middle", "west"], "no numbers, not degrees"),
}  # fmt: skip


@pytest.mark.parametrize("which", PLACES)
def test_places_that_are_no_degrees_are_refused(which):
    values, words = PLACES[which]
    held = dataset(("t2m", SURFACE, {})).assign_coords(longitude=values)
    with pytest.raises(FileError, match=f"x: longitude holds {words}"):
        tidy(held, Names(), "x")


def test_geopotential_height_in_grib_files_becomes_geopotential(tmp_path):
    height = replace(VARIABLES["z"], param_id=156)
    encoder = Encoder(GRID)
    metres = np.linspace(5000.0, 5900.0, GRID.rows * GRID.columns).reshape(GRID.rows, GRID.columns)
    message = encoder.message(metres, height, date=20160101, step=48, number=1, level=500)
    (tmp_path / "gh.grib").write_bytes(message)
    handle = eccodes.codes_new_from_message(message)
    held = eccodes.codes_get_values(handle).reshape(metres.shape)
    assert eccodes.codes_get(handle, "shortName") == "gh"
    eccodes.codes_release(handle)
    prepare(tmp_path / "gh.grib", tmp_path / "s.zarr")
    got = open_store(tmp_path / "s.zarr", "pl").z
    assert got.attrs["units"] == "m2 s-2"
    np.testing.assert_allclose(got.squeeze(), held * 9.80665, rtol=2e-6)
