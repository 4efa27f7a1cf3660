"""ECMWF open data, TIGGE, GEFS reforecast 2 and S2S daily means: GRIB 2 as the producers write it.

The values are compared with those that ecCodes decodes from the same messages.
"""

import json

import numpy as np
import pytest
from gribmessages import NORTH_TO_SOUTH, cube, message

import ens10
from ens10.source import open_source
from ens10.store import forecasts

STEPS, DATES = [6, 12], [20260101, 20260103]
OPEN_DATA = {"centre": "ecmf"}
IFS = {"first": OPEN_DATA, "setLocalDefinition": 1, "class": "od", "stream": "enfo",
       "packingType": "grid_ccsds", "west": 180.0}  # fmt: skip
AIFS = IFS | {"class": "ai"}
GEFS = {"centre": "kwbc", "subCentre": 2, "packingType": "grid_complex_spatial_differencing"}
TIGGE = {"first": OPEN_DATA, "productionStatusOfProcessedData": 4}
S2S = {"first": OPEN_DATA, "productionStatusOfProcessedData": 6}


def assert_members(folder, tmp_path, names, numbers, dates=DATES, steps=STEPS, **options):
    """Open and prepare a folder; compare instantaneous fields with those of ecCodes."""
    opened = open_source(folder)
    store = forecasts(ens10.prepare(folder, tmp_path / "s.zarr", variables=list(names), **options))
    for name, theirs in names.items():
        want = cube(folder, theirs, steps, numbers, dates)
        for got in (opened[name], store[name]):
            field = got.squeeze("level") if "level" in got.dims else got
            np.testing.assert_allclose(field, want, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(opened["number"], numbers)
    np.testing.assert_array_equal(opened["step"], steps)
    np.testing.assert_array_equal(opened["latitude"], NORTH_TO_SOUTH)
    np.testing.assert_array_equal(opened["longitude"], np.arange(0.0, 360.0, 45.0))
    return opened


def write_open_data(folder, model, names=("2t", "10u", "t850"), steps=STEPS):
    """Files by step, of the AIFS one of the control and one of the others, each with its index."""
    folder.mkdir()
    kinds = {"ef": range(3)} if model is IFS else {"cf": [0], "pf": range(1, 3)}
    for date in DATES:
        for step in steps:
            for kind, numbers in kinds.items():
                content, lines = b"", []
                for number in numbers:
                    for name in names:
                        window = (0, step) if name.startswith("tp") else step
                        mars = {"type": "cf" if number == 0 else "pf"}
                        part = message(name, number, window, date=date, **model, **mars)
                        index = {"param": name, "_offset": len(content), "_length": len(part)}
                        content += part
                        lines.append(json.dumps(index | {"number": str(number)}))
                file = folder / f"{date}000000-{step}h-enfo-{kind}.grib2"
                file.write_bytes(content)
                file.with_suffix(".index").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("model", [IFS, AIFS], ids=["IFS", "AIFS"])
def test_ecmwf_open_data(tmp_path, model):
    """Columns from 180 degrees on, control and perturbed members in one file or in two."""
    write_open_data(tmp_path / "raw", model)
    names = {"t2m": "2t", "u10": "10u", "t": "t"}
    got = assert_members(tmp_path / "raw", tmp_path, names, [0, 1, 2])
    np.testing.assert_array_equal(got["level"], [850])


@pytest.mark.parametrize(("model", "name"), [(IFS, "tp"), (AIFS, "tp_kg")], ids=["IFS", "AIFS"])
def test_precipitation_of_ecmwf_open_data(tmp_path, model, name):
    """Sums since the start, in m (IFS) or kg m-2 (AIFS)."""
    write_open_data(tmp_path / "raw", model, [name])
    want = cube(tmp_path / "raw", "tp", STEPS, [0, 1, 2], DATES)
    got = open_source(tmp_path / "raw")["tp"]
    np.testing.assert_allclose(got, want if model is IFS else want / 1000, rtol=1e-6)


def write_tigge(folder, names):
    """A file of the control and one of the perturbed members for each start."""
    folder.mkdir()
    for date in DATES:
        for kind, numbers in {"cf": [0], "pf": [1, 2]}.items():
            parts = [
                message(n, number, (0, s) if n == "tp_kg" else s, date=date, **TIGGE)
                for number in numbers
                for s in STEPS
                for n in names
            ]
            (folder / f"tigge_ecmf_{date}00_prod_{kind}_sl.grib2").write_bytes(b"".join(parts))


def test_tigge(tmp_path):
    write_tigge(tmp_path / "raw", ["2t", "10u"])
    assert_members(tmp_path / "raw", tmp_path, {"t2m": "2t", "u10": "10u"}, [0, 1, 2])


def test_precipitation_of_tigge(tmp_path):
    """kg m-2 since the start, which is as many mm."""
    write_tigge(tmp_path / "raw", ["tp_kg"])
    got = open_source(tmp_path / "raw")["tp"]
    want = cube(tmp_path / "raw", "tp", STEPS, [0, 1, 2], DATES) / 1000
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.attrs["units"] == "m"


def write_gefs(folder, parameters, windows):
    """A file for each start, variable and member, with an index of wgrib2 beside it."""
    folder.mkdir()
    for date in DATES:
        for number, member in enumerate(["c00", "p01", "p02"]):
            for name, parameter in parameters.items():
                parts = [message(parameter, number, w, date=date, **GEFS) for w in windows]
                file = folder / f"{name}_{date}00_{member}.grib2"
                file.write_bytes(b"".join(parts))
                (folder / f"{file.name}.idx").write_text(f"1:0:d={date}00:{name}:surface:\n")


def test_gefs_reforecast(tmp_path):
    write_gefs(tmp_path / "raw", {"tmp_2m": "2t", "ugrd_hgt": "10u"}, STEPS)
    assert_members(tmp_path / "raw", tmp_path, {"t2m": "2t", "u10": "10u"}, [0, 1, 2])


def test_geopotential_height_of_gefs_reforecast(tmp_path):
    """Geopotential height in gpm becomes geopotential."""
    write_gefs(tmp_path / "raw", {"hgt_pres": "gh500"}, STEPS)
    want = cube(tmp_path / "raw", "gh", STEPS, [0, 1, 2], DATES) * 9.80665
    got = open_source(tmp_path / "raw")["z"].sel(level=500)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_precipitation_of_gefs_reforecast(tmp_path):
    """Windows of 3 and 6 hours in turn, each from the last multiple of 6 hours on."""
    windows = [(0, 3), (0, 6), (6, 9), (6, 12)]
    write_gefs(tmp_path / "raw", {"apcp_sfc": "tp_kg"}, windows)
    parts = cube(tmp_path / "raw", "tp", [3, 6, 9, 12], [0, 1, 2], DATES) / 1000
    want = np.stack(
        [parts[:, 0], parts[:, 1], parts[:, 1] + parts[:, 2], parts[:, 1] + parts[:, 3]], axis=1
    )
    got = open_source(tmp_path / "raw")["tp"]
    np.testing.assert_array_equal(got["step"], [3, 6, 9, 12])
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.fixture(params=[S2S, {"first": OPEN_DATA}], ids=["2t", "avg_2t"])
def daily(request):
    """The keys of a daily mean, which ecCodes calls 2t in S2S and avg_2t elsewhere."""
    return request.param


def write_s2s(folder, keys):
    """Daily means over the 24 hours that end at the step."""
    folder.mkdir()
    for date in DATES:
        parts = [
            message("avg_2t", number, (end - 24, end), date=date, **keys)
            for number in range(3)
            for end in (24, 48)
        ]
        (folder / f"s2s_{date}.grib2").write_bytes(b"".join(parts))


def test_values_of_daily_means_of_s2s(tmp_path, daily):
    write_s2s(tmp_path / "raw", daily)
    short_name = "2t" if daily is S2S else "avg_2t"
    want = cube(tmp_path / "raw", short_name, [24, 48], [0, 1, 2], DATES)
    opened = open_source(tmp_path / "raw")
    ((name, field),) = opened.data_vars.items()
    np.testing.assert_allclose(field, want, rtol=1e-6)
    np.testing.assert_array_equal(opened["step"], [24, 48])
    one = field.isel(step=0, number=0, drop=True).drop_vars("valid_time") + 1.0
    ends = opened["valid_time"].isel(step=0).to_numpy()
    truth = one.assign_coords(time=ends).to_dataset(name=name)
    options = {"dates": ["2026-01-01"], "steps": [24]}
    store = ens10.prepare(tmp_path / "raw", tmp_path / "s.zarr", truth=truth, **options)
    np.testing.assert_allclose(forecasts(store)[name][0, 0], want[0, 0], rtol=1e-6)
    observed = ens10.open_store(store, "truth")[name]
    np.testing.assert_allclose(observed[0, 0], want[0, 0, 0] + 1.0, rtol=1e-6)


def test_a_daily_mean_is_not_the_temperature_of_an_hour(tmp_path, daily):
    """It has a name of its own."""
    write_s2s(tmp_path / "raw", daily)
    assert list(open_source(tmp_path / "raw").data_vars) == [
        "t2m_mean" if daily is S2S else "avg_2t"
    ]
