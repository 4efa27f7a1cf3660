"""Names with a pressure level inside, in files and in mappings."""

import numpy as np
import pytest
import xarray as xr
from layouttools import FROM_GREENWICH, NORTH_TO_SOUTH, STARTS, values

import ens10
from ens10.errors import ArgumentError
from ens10.source import tidy
from ens10.source.layouts.level_names import level_of_name
from ens10.source.names import Names, read_names

DIMS = ("time", "step", "number", "latitude", "longitude")
COORDS = {"time": STARTS, "step": [24, 48], "number": [1, 2, 3], "latitude": NORTH_TO_SOUTH,
          "longitude": FROM_GREENWICH}  # fmt: skip
SHAPE = (2, 2, 3, 6, 8)


def dataset(**kinds):
    return xr.Dataset({n: (DIMS, values(k, SHAPE, len(n))) for n, k in kinds.items()}, COORDS)


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        ("z500", ("z", 500)), ("t850", ("t", 850)), ("q_700", ("q", 700)), ("z_500", ("z", 500)),
        ("temperature_850hPa", ("t", 850)), ("geopotential_500hpa", ("z", 500)),
        ("geopotential_height_925hpa", ("z", 925)), ("gh500", ("z", 500)), ("T850", ("t", 850)),
        ("500_geopotential", ("z", 500)), ("u_component_of_wind_1000", ("u", 1000)),
        ("t_10hPa", ("t", 10)), ("u_100", ("u", 100)),
        ("t85000", ("t", 850)), ("z_50000", ("z", 500)), ("t85000pa", ("t", 850)),
        ("u80m", None), ("u80", None), ("v120", None), ("t80", None), ("t_60", None),
        ("u_80hPa", ("u", 80)), ("u500", ("u", 500)), ("t851", None), ("t85100", None),
        # heights in m, and names that contain no pressure
        ("u10", None), ("v100", None), ("u200", None), ("t2", None), ("q2", None), ("t2m", None),
        ("temperature_2m", None), ("tp06", None), ("tp500", None), ("2m_temperature", None),
        ("100m_u_component_of_wind", None), ("10_metre_u_wind_component", None),
    ],
)  # fmt: skip
def test_names(name, channel):
    assert level_of_name(name) == channel


def test_several_names_are_one_variable():
    raw = dataset(z850="z", z500="z", temperature_850hPa="t", t2m="t2m")
    got = tidy(raw, Names(), "a")
    assert set(got.data_vars) == {"z", "t", "t2m"}
    np.testing.assert_array_equal(got["level"], [500, 850])
    np.testing.assert_array_equal(got["z"].sel(level=500), raw["z500"])
    np.testing.assert_array_equal(got["z"].sel(level=850), raw["z850"])
    np.testing.assert_array_equal(got["t"].sel(level=850), raw["temperature_850hPa"])
    assert np.isnan(got["t"].sel(level=500)).all()
    assert got["t"].attrs["levels_hpa"] == [850]
    assert got["z"].dims == ("time", "step", "level", "number", "latitude", "longitude")


def test_beside_a_variable_over_levels():
    raw = dataset(z500="z")
    raw["t"] = (("level", *DIMS), values("t", (2, *SHAPE)))
    got = tidy(raw.assign_coords(level=[700, 850]), Names(), "a")
    np.testing.assert_array_equal(got["level"], [500, 700, 850])
    np.testing.assert_array_equal(got["t"].sel(level=850), raw["t"][1])
    np.testing.assert_array_equal(got["z"].sel(level=500), raw["z500"])
    assert (got["z"].attrs["levels_hpa"], got["t"].attrs["levels_hpa"]) == ([500], [700, 850])


def test_two_names_of_one_level_are_left_alone():
    got = tidy(dataset(z500="z", geopotential_500hpa="z"), Names(), "a")
    assert set(got.data_vars) == {"z500", "geopotential_500hpa"}


def test_levels_in_different_units_are_refused():
    raw = dataset(z500="z", z850="z")
    raw["z500"].attrs["units"], raw["z850"].attrs["units"] = "m2 s-2", "gpm"
    with pytest.raises(ArgumentError, match=r"the levels of z are in gpm and m2 s-2"):
        tidy(raw, Names(), "a")


def test_geopotential_heights_become_geopotential():
    raw = dataset(gh500="z")
    raw["gh500"] = (raw["gh500"] / np.float32(9.80665)).assign_attrs(units="gpm")
    got = tidy(raw, Names(), "a")["z"]
    want = (raw["gh500"].astype("f8") * 9.80665).astype("f4")
    np.testing.assert_array_equal(got.sel(level=500), want)


def test_a_mapping_names_channels(tmp_path):
    """In a mapping any number is a level: u200 is the wind at 200 hPa, u10 that at 10 m."""
    names = tmp_path / "names.yaml"
    names.write_text(
        "variables: {geopotential_500hpa: z500, hoehe850: z850, west: u200, west10: u10}\n"
    )
    raw = dataset(geopotential_500hpa="z", hoehe850="z", west="u", west10="u10", other="t")
    store = ens10.prepare(raw, tmp_path / "s.zarr", names=read_names(names), missing="nan")
    upper, surface = (ens10.open_store(store, kind) for kind in ("pl", "sfc"))
    assert (set(upper.data_vars), set(surface.data_vars)) == ({"z", "u"}, {"u10"})
    np.testing.assert_array_equal(upper["level"], [200, 500, 850])
    for name, channel, hpa in (
        ("geopotential_500hpa", "z", 500), ("hoehe850", "z", 850), ("west", "u", 200),
    ):  # fmt: skip
        field = upper[channel].sel(level=hpa)
        np.testing.assert_array_equal(field, raw[name], err_msg=name)
    np.testing.assert_array_equal(surface["u10"], raw["west10"])


def test_truth_of_a_mapped_level(tmp_path):
    raw = dataset(z500="z")
    valid = np.add.outer(STARTS, np.array([24, 48], "timedelta64[h]"))
    times = np.unique(valid)
    truth = xr.Dataset(
        {"hgt_500": (("time", "latitude", "longitude"), values("z", (times.size, 6, 8), 9))},
        {"time": times, "latitude": NORTH_TO_SOUTH, "longitude": FROM_GREENWICH},
    )
    names = Names(variables={"hgt_500": "z500"})
    store = ens10.prepare(raw, tmp_path / "s.zarr", truth=truth, truth_names=names)
    got = ens10.open_store(store, "truth")["z"].sel(level=500)
    want = truth["hgt_500"].to_numpy()[np.searchsorted(times, valid)]
    np.testing.assert_array_equal(got, want)


def test_fields_of_a_zarr_store_are_not_read(tmp_path):
    """Truth is opened without dask; levels of names become dask arrays by stored chunks."""
    dataset(z500="z", z850="z").chunk(time=1).to_zarr(tmp_path / "a.zarr", consolidated=False)
    raw = xr.open_zarr(tmp_path / "a.zarr", chunks=None, consolidated=False)
    got = tidy(raw, Names(), "a")["z"]
    assert got.chunks is not None
    assert not raw["z500"].variable._in_memory
    assert got.chunksizes["time"] == (1, 1)
    np.testing.assert_array_equal(got.sel(level=500), raw["z500"])
