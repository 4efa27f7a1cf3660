"""The table of stores: whole, damaged, not complete, old and new."""

import json
import shutil

import damagefiles as made
import pytest
import zarr
from gribfiles import cube, values_of

from ens10 import prepare
from ens10.cli import main
from ens10.errors import FileError
from ens10.inspection import inspect_path
from ens10.store import consolidate


def row_of(path, **settings):
    (row,) = inspect_path(path, **settings)
    return row


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
    (store / "manifest/json/c/0").unlink()
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


CHANGES = {
    "cut": lambda content: content[:-20],
    "in a number": lambda content: content.replace(b"],[", b"1],[", 1),
    "in a quote": lambda content: content.replace(b'["sfc', b"[ sfc", 1),
    "of the plan": lambda content: content.replace(b'"codec":"none"', b'"codec":"nine"'),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_manifest(store, name):
    path = store / "manifest/json/c/0"
    before = path.read_bytes()
    path.write_bytes(CHANGES[name](before))
    assert path.read_bytes() != before
    told = "\n".join(row.status for row in inspect_path(store) if row.status != "ok")
    assert f"{path}: damaged at byte" in told


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
    (store / "manifest/json/c/0").unlink()
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
    (store / "manifest/json/c/0").unlink()
    (wrong,) = [row for row in inspect_path(store) if row.status != "ok"]
    assert f"{store}/sfc/t2m/c/1/0/0/0/0 field 1" in wrong.status
    assert "looks like Celsius" in wrong.status
