"""Every kind of damage to files that existing readers hide: what finds it, and what it says."""

import subprocess
import sys

import damagefiles as made
import numpy as np
import pytest
from damagefiles import at, write
from damagetable import DAMAGES, assert_told

from ens10 import open_store, prepare
from ens10.errors import Ens10Error
from ens10.inspection import inspect_path


@pytest.mark.parametrize("name", DAMAGES)
def test_inspect_tells(name, tmp_path):
    damage, path = DAMAGES[name], tmp_path / name.split(":")[0]
    given = damage.make(path)
    rows = inspect_path(path)
    told = "\n".join(row.status for row in rows if row.status != "ok")
    assert_told(told, damage.inspected, path=path, **given)


@pytest.mark.parametrize("name", [name for name in DAMAGES if DAMAGES[name].prepared])
def test_prepare_refuses(name, tmp_path):
    damage, path = DAMAGES[name], tmp_path / name.split(":")[0]
    given = damage.make(path)
    with pytest.raises(Ens10Error) as caught:
        prepare(path, tmp_path / "s.zarr")
    assert_told(str(caught.value), damage.prepared, path=path, **given)
    assert not (tmp_path / "s.zarr").exists()


def test_one_bad_file_does_not_stop_the_others(tmp_path):
    folder = tmp_path / "all"
    folder.mkdir()
    for name, damage in DAMAGES.items():
        damage.make(folder / name.split(":")[0])
    rows = inspect_path(folder)
    for name in ("a.grib", "p", "q", "r", "NETCDF3_CLASSIC.nc"):
        assert any(row.name == name and row.status != "ok" for row in rows), name
    assert {"t2m", "z"} <= {row.name for row in rows}


def test_all_damaged_places_of_a_file_are_told(tmp_path):
    parts = made.messages()
    parts[3] = parts[3][:-4] + b"6666"
    parts[9] = parts[9][:-50]
    parts[20] = b"GRIB" + bytes(len(parts[20]) - 4)
    begins = write(tmp_path / "a.grib", [*parts, b"junk"])
    rows = inspect_path(tmp_path / "a.grib")
    (told,) = [row.status for row in rows if row.name == "a.grib"]
    places = [begins[3], begins[9], begins[20], begins[-2]]
    assert "wrong in 4 places" in told
    assert_told(told, [f"damaged at byte {place}" for place in places])
    assert sum(row.missing for row in rows) == 3
    assert sum(row.members for row in rows) == 6  # the whole ones are all there


_FUZZ = """
import sys
from pathlib import Path
import numpy as np
from ens10.inspection import inspect_path
whole, broken = Path(sys.argv[1]), Path(sys.argv[1] + ".broken")
raw, rng, found = whole.read_bytes(), np.random.default_rng(0), 0
for bit in rng.choice(8 * len(raw), 50, replace=False).tolist():
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    broken.write_bytes(changed)
    found += any(row.status != "ok" for row in inspect_path(broken))
print(found)
"""


def test_no_flipped_bit_stops_inspect(tmp_path):
    """Run apart: what ecCodes does with damage could take the tests along."""
    first, second = made.messages()[:2]
    write(tmp_path / "a.grib", [first, made.with_keys(second, {"edition": 2})])
    command = [sys.executable, "-W", "error", "-c", _FUZZ, str(tmp_path / "a.grib")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


# What looks odd but is put right: told in a note, and read into the right place.

FINE = {
    "one message scanned the other way": (
        lambda parts: [made.northward(p) if n == at() else p for n, p in enumerate(parts)],
        ["1 of 18 fields scanned south to north, put right", "at byte {byte}"],
    ),
    "latitudes reversed": (
        lambda parts: [made.northward(p) for p in parts],
        ["scanned south to north, put right"],
    ),
    "longitudes from -180": (
        lambda parts: [made.from_dateline(p) for p in parts],
        ["columns begin at -180 E, put right"],
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_put_right(name, tmp_path):
    change, words = FINE[name]
    path, plain = tmp_path / "a.grib", tmp_path / "b.grib"
    begins = write(path, change(made.messages()))
    write(plain, made.messages())
    rows = inspect_path(path)
    assert {row.status for row in rows} == {"ok"}
    assert {row.grid for row in rows} == {"5 x 8, 60 to 40 N, 0 to 315 E"}
    (note,) = {row.note for row in rows if row.name == "t2m"}
    assert_told(note, words, byte=begins[at()])
    got = open_store(prepare(path, tmp_path / "s.zarr"), "sfc")["t2m"]
    want = open_store(prepare(plain, tmp_path / "t.zarr"), "sfc")["t2m"]
    np.testing.assert_array_equal(got, want)


def test_netcdf_put_right(tmp_path):
    made.netcdf(tmp_path / "a.nc", reverse=True, west=-180.0)
    (row,) = inspect_path(tmp_path / "a.nc")
    assert row.status == "ok"
    assert "rows run south to north, put right" in row.note
    assert "columns begin at -180 E, put right" in row.note
    assert row.grid == "9 x 18, 80 to -80 N, 0 to 340 E"
    made.netcdf(tmp_path / "b.nc", units="degC", offset=-273.15)
    (row,) = inspect_path(tmp_path / "b.nc")
    assert (row.status, row.units) == ("ok", "K")
    assert "converted from degC" in row.note
    assert 250 < row.minimum < row.maximum < 310
