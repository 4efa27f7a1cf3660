"""The table tells what kind of data a file holds, as real files of other ensembles have it."""

import json
import shutil

import damagefiles as made
import eccodes
import netCDF4
import numpy as np
import pytest
import zarr
from gribfiles import cube, values_of

from ens10 import prepare
from ens10.cli import main
from ens10.errors import FileError
from ens10.inspection import inspect_path
from ens10.inspection.ensembles import is_lagged
from ens10.store import consolidate

CONTROL = {"type": "cf", "number": 0}
HINDCAST = {
    "localDefinitionNumber": 26, "type": "pf", "stream": "enfh", "number": 2,
    "numberOfForecastsInEnsemble": 11,
}  # fmt: skip


def row_of(path, **settings):
    (row,) = inspect_path(path, **settings)
    return row


def test_control_and_perturbed(tmp_path):
    parts = [made.message(("z", 850, 20131025, 78, n)) for n in range(1, 51)]
    parts.append(made.with_keys(parts[0], CONTROL))
    made.write(tmp_path / "a.grib", parts)
    row = row_of(tmp_path / "a.grib")
    assert (row.members, row.missing, row.status) == (51, 0, "ok")
    assert row.note == "control and 50 perturbed"
    made.write(tmp_path / "b.grib", parts[-1:])
    assert row_of(tmp_path / "b.grib").note == "control only"


def test_control_and_member_in_one_place(tmp_path):
    """A control that is numbered as a member is told, whatever its values."""
    part = made.message(("z", 850, 20131025, 78, 1))
    control = made.with_keys(part, {"type": "cf"})
    begins = made.write(tmp_path / "a.grib", [part, control])
    status = row_of(tmp_path / "a.grib").status
    assert "1 field given twice with dataType pf and cf" in status
    assert f"byte {begins[1]}" in status


@pytest.mark.parametrize("dates", [[20210615], [20200615, 20210615]])
def test_hindcasts(tmp_path, dates):
    """Local definition 26: the date of the model beside the date of the hindcast."""
    parts = []
    for date in dates:
        part = made.message(("t2m", 0, date, 6, 2))
        parts.append(made.with_keys(part, {**HINDCAST, "referenceDate": 20230615}))
    made.write(tmp_path / "a.grib", parts)
    row = row_of(tmp_path / "a.grib")
    assert row.status == "ok"
    assert row.first[:10] == f"{dates[0] // 10000}-06-15"
    of = "hindcast of 2021-06-15" if len(dates) == 1 else "hindcasts of 2020-06-15 to 2021-06-15"
    assert row.note == f"perturbed member 2 only; {of} by the model of 2023-06-15"


def test_levels_in_pascal(tmp_path):
    keys = {"edition": 2, "typeOfLevel": "isobaricInPa"}
    field = ("t", 10, 20160101, 24, 1)
    parts = [made.message(field), made.with_keys(made.message(field), {**keys, "level": 10})]
    made.write(tmp_path / "a.grib", parts)
    pascal, hectopascal = inspect_path(tmp_path / "a.grib")
    assert (pascal.level, hectopascal.level) == ("10 Pa", "10 hPa")  # from the top down
    assert "level in Pa (0.1 hPa)" in pascal.note
    assert "Pa" not in hectopascal.note
    assert (pascal.status, hectopascal.status) == ("ok", "ok")


def test_a_field_without_any_value(tmp_path):
    field = ("sst", 0, 20160101, 24, 1)
    gaps = np.full((5, 8), np.nan)
    begins = made.write(
        tmp_path / "a.grib",
        [made.message((*field[:4], 2)), made.message(field, values=gaps)],
    )
    row = row_of(tmp_path / "a.grib")
    path = tmp_path / "a.grib"
    assert row.status == f"1 field without any value: {path} at byte {begins[1]}."
    assert row.minimum > 200


def lagged(starts, each, steps=3):
    """As the UKMO's and NCEP's seasonal forecasts: every start has members of its own."""
    return [
        ("t2m", 0, date, 24 * (last - n), number)
        for n, date in enumerate(starts)
        for number in range(n * each, (n + 1) * each)
        for last in range(10, 10 + steps)
    ]


def test_lagged_ensembles(tmp_path):
    dates = (20160101, 20160102, 20160103, 20160104)
    fields = lagged(dates, 7)
    made.write(tmp_path / "a.grib", map(made.message, fields))
    row = row_of(tmp_path / "a.grib")
    assert (row.members, row.dates, row.missing, row.status) == (28, 4, 0, "ok")
    assert row.note.startswith("lagged: members of different start dates")
    lost = [f for f in fields if f != fields[4]]
    made.write(tmp_path / "b.grib", map(made.message, lost))
    row = row_of(tmp_path / "b.grib")
    assert row.missing == 1
    assert "2016-01-01T00 step 264 h number 1;" in row.status


def test_what_is_lagged():
    own = np.zeros((4, 3, 8), bool)
    for n in range(4):
        own[n, :, 2 * n : 2 * n + 2] = True
    assert is_lagged(own)
    two_months = np.concatenate([own, own])
    assert is_lagged(two_months)
    shared = own.copy()
    shared[0, :, 2] = True
    assert not is_lagged(shared)
    assert not is_lagged(np.ones((4, 3, 8), bool))
    half_lost = np.zeros((4, 3, 8), bool)
    half_lost[:, 0] = True
    assert not is_lagged(half_lost)


def test_other_kinds(tmp_path):
    field = ("t2m", 0, 20160101, 0, 0)
    kinds = {"an": "analysis", "fc": "single forecast", "em": "ensemble mean", "fcmean": "means"}
    for kind, words in kinds.items():
        part = made.with_keys(made.message(field), {"type": kind})
        made.write(tmp_path / kind, [part])
        assert words in row_of(tmp_path / kind).note


def test_grids_that_are_not_supported_are_told(tmp_path):
    handle = eccodes.codes_grib_new_from_samples("reduced_gg_pl_32_grib2")
    gaussian = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    begins = made.write(tmp_path / "a.grib", [*made.messages()[:2], gaussian])
    rows = inspect_path(tmp_path / "a.grib")
    (wrong,) = [row for row in rows if row.status != "ok"]
    assert f"byte {begins[2]}" in wrong.status
    assert "Interpolate" in wrong.status
    assert {row.name for row in rows} == {"t2m", "z", "a.grib"}


def test_files_that_do_not_go_together(tmp_path):
    made.write(tmp_path / "d/a.grib", made.messages())
    other = [made.message(("t2m", 0, 20170101, 24, 1), grid=made.OTHER)]
    made.write(tmp_path / "d/b.grib", other)
    rows = inspect_path(tmp_path / "d")
    (wrong,) = [row for row in rows if row.status != "ok"]
    assert wrong.name == "d"
    assert f"{tmp_path / 'd/b.grib'}: the message at byte 0 lies on the grid" in wrong.status


def test_netcdf_with_names_of_its_own(tmp_path, capsys):
    path = tmp_path / "seasonal.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in {"ensemble": 3, "init": 2, "y": 4, "x": 5}.items():
            file.createDimension(name, size)
        file.createVariable("tas", "f4", ("ensemble", "init", "y", "x"))[:] = 280.0
        file.createVariable("area", "f4", ("x",))[:] = 1.0
    row = row_of(path)
    assert (row.name, row.status, row.minimum) == ("tas", "ok", 280.0)
    assert "dimensions ensemble 3, init 2, y 4, x 5" in row.note
    assert "--names FILE" in row.note
    assert main(["inspect", str(path)]) == 0
    assert "tas" in capsys.readouterr().out


def test_the_table_names_notes_once(tmp_path, capsys):
    made.write(tmp_path / "a.grib", made.messages())
    assert main(["inspect", str(tmp_path / "a.grib")]) == 0
    out = capsys.readouterr().out
    assert out.count("perturbed members") == 1
    assert "all 2 rows: 3 perturbed members, no control" in out


# Stores.


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    made.write(folder / "a.grib", made.messages())
    return prepare(folder / "a.grib", folder / "s.zarr")


@pytest.fixture
def store(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "s.zarr")


def test_a_store_of_a_newer_version(store, capsys):
    zarr.open_group(store, mode="a").attrs["ens10_format"] = 3
    with pytest.raises(FileError, match=r"format 3, newer than 2.*Update ens10") as caught:
        inspect_path(store)
    assert str(store) in str(caught.value)
    assert main(["inspect", str(store)]) == 1
    assert "Update ens10" in capsys.readouterr().err


def test_a_store_that_is_not_complete(store, tmp_path):
    partial = tmp_path / "t.zarr.partial"
    (partial / "units").mkdir(parents=True)
    plan = {"axes": {"forecasts": {"time": [1, 2, 3], "step": [24, 48]}, "truth": {"time": [1]}}}
    (partial / "plan.json").write_text(json.dumps(plan))
    for unit in ("forecast-000000-000", "forecast-000000-001", "truth-000000"):
        (partial / "units" / f"{unit}.json").write_text("[]")
    row = row_of(partial)
    assert f"{partial}: incomplete: 2 of 6 units of forecast, 1 of 1 units of truth" in row.status
    assert "Run the same `ens10 prepare` again" in row.status
    with pytest.raises(FileError, match=r"t\.zarr: no such file.*Inspect .*t\.zarr\.partial"):
        inspect_path(tmp_path / "t.zarr")


def test_a_store_without_a_manifest(store):
    """Headers, sizes and the checksums of fields are looked at without it."""
    whole = inspect_path(store)
    (store / "manifest.json").unlink()
    assert inspect_path(store) == whole
    chunk = store / "sfc/t2m/c/2/1/0/0/0"
    raw = bytearray(chunk.read_bytes())
    raw[-20] ^= 8
    chunk.write_bytes(raw)
    (wrong,) = [row for row in inspect_path(store) if row.status != "ok"]
    assert f"1 file damaged: {chunk} at byte" in wrong.status
    chunk.unlink()
    (wrong,) = [row for row in inspect_path(store, values=False) if row.status != "ok"]
    assert f"1 file missing: {chunk};" in wrong.status
    assert wrong.missing == 3


@pytest.mark.parametrize("change", [lambda m: m[:-20], lambda m: m.replace(b'"nan"', b'"error"'),
                                    lambda m: m.replace(b'"error"', b'"nan"')])  # fmt: skip
def test_a_damaged_manifest(store, change):
    path = store / "manifest.json"
    before = path.read_bytes()
    path.write_bytes(change(before))
    if path.read_bytes() == before:
        pytest.skip("nothing to change")
    (wrong,) = [row for row in inspect_path(store) if row.status != "ok"]
    assert f"{path}: damaged at byte" in wrong.status


def test_damaged_descriptions(store):
    """Of the hierarchy, of a group, of an array, of a coordinate: told, never a crash."""
    for name in ("zarr.json", "sfc/zarr.json", "sfc/t2m/zarr.json", "sfc/time/zarr.json"):
        path = store / name
        held = path.read_bytes()
        for content in (b"", held[: len(held) // 2], b"[]", None):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            told = "\n".join(row.status for row in inspect_path(store) if row.status != "ok")
            assert str(path) in told, name
            assert "--repair" in told
        path.write_bytes(held)
    coordinate = store / "sfc/time/c/0"
    coordinate.write_bytes(coordinate.read_bytes()[:-1])
    told = "\n".join(row.status for row in inspect_path(store) if row.status != "ok")
    assert f"{coordinate} at byte" in told


def test_stores_of_format_1(store):
    """Their chunks without any value were left out, which is no damage."""
    root = zarr.open_group(store, mode="a", use_consolidated=False)
    root.attrs["ens10_format"] = 1
    consolidate(store)
    (store / "manifest.json").unlink()
    (store / "sfc/t2m/c/2/1/0/0/0").unlink()
    (wrong,) = [row for row in inspect_path(store) if row.status != "ok"]
    assert wrong.missing == 3
    assert "3 fields missing (without any value)" in wrong.status


def test_values_of_a_store_that_cannot_be(tmp_path):
    fields = [f for f in cube() if f[0] == "t2m"]
    path = tmp_path / "a.grib"
    made.write(path, [made.message(f) for f in fields])
    store = prepare(path, tmp_path / "s.zarr")
    group = zarr.open_group(store, mode="a", use_consolidated=False)
    group["sfc/t2m"][1, 0, 1] = values_of(fields[0]) - 273.15
    (store / "manifest.json").unlink()
    (wrong,) = [row for row in inspect_path(store) if row.status != "ok"]
    assert f"{store}/sfc/t2m/c/1/0/0/0/0 field 1" in wrong.status
    assert "looks like Celsius" in wrong.status
