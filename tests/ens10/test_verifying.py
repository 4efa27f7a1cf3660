"""Damage to a store is found where it is, and mended from the source."""

import random
import shutil

import numpy as np
import pytest
from gribfiles import cube
from storetools import assert_same, contents

from ens10 import prepare
from ens10.convert import verify
from ens10.errors import DamagedFileError, FileError, MissingDataError
from ens10.grib import scan
from ens10.source import open_source
from ens10.store.manifest import read_manifest

RECORDS = ("manifest/json/c/0", "manifest/copy/c/0")


@pytest.fixture
def copy(small, tmp_path):
    """A copy of the small world's store, with its source beside it."""
    shutil.copytree(small / "s.zarr", tmp_path / "s.zarr")
    (tmp_path / "w").symlink_to(small / "w")
    return tmp_path / "s.zarr"


def flip(path, bit=None):
    content = bytearray(path.read_bytes())
    bit = random.randrange(len(content) * 8) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_whole_store(copy):
    found = verify(copy, sample=30)
    assert found.ok
    assert found.chunks == len(contents(copy)) - 2  # all but the manifest and its copy
    assert found.bytes == sum(map(len, contents(copy).values())) - 2 * len(
        (copy / RECORDS[0]).read_bytes()
    )
    assert 20 < found.sampled <= 30


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_flipped_bit_anywhere_is_found_and_mended(copy, small, seed):
    path = random.Random(seed).choice(sorted(set(contents(copy)) - set(RECORDS)))
    flip(copy / path)
    found = verify(copy, sample=0)
    assert found.damaged == [(path, "it does not match its checksum in the manifest")]
    assert not found.ok
    after = verify(copy, repair=True, sample=5)
    assert after.ok
    assert after.repaired == [path]
    assert_same(copy, small / "s.zarr")
    assert not copy.with_name("s.zarr.partial").exists()


def test_all_kinds_of_damage_at_once(copy, small):
    cut, gone = copy / "sfc/t2m/c/3/1/0/0/0", copy / "truth/t2m/c/4/0/0/0"
    cut.write_bytes(cut.read_bytes()[:100])
    gone.unlink()
    (copy / "statistics/mean_sum/c/0/0/0/0/0").write_bytes(b"")
    (copy / "pl/z/zarr.json").write_text("{}")
    (copy / "sfc/notes.txt").write_text("mine")
    found = verify(copy)
    assert [path for path, _ in found.damaged] == [
        "pl/z/zarr.json", "sfc/t2m/c/3/1/0/0/0", "statistics/mean_sum/c/0/0/0/0/0",
    ]  # fmt: skip
    assert found.damaged[1][1].startswith("100 bytes instead of")
    assert found.missing == ["truth/t2m/c/4/0/0/0"]
    assert found.extra == ["sfc/notes.txt"]
    after = verify(copy, repair=True)
    assert len(after.repaired) == 4
    assert (after.damaged, after.missing, after.extra) == ([], [], ["sfc/notes.txt"])
    (copy / "sfc/notes.txt").unlink()
    assert_same(copy, small / "s.zarr")


@pytest.mark.parametrize(
    ("how", "name"), [("flipped", RECORDS[0]), ("cut", RECORDS[1]), ("missing", RECORDS[0])]
)
def test_one_of_the_two_records_is_damaged(copy, small, name, how):
    """Everything goes on with the other one, and a repair needs no source."""
    if how == "flipped":
        flip(copy / name, 8 * 5000)
    elif how == "cut":
        (copy / name).write_bytes((copy / name).read_bytes()[:2000])
    else:
        (copy / name).unlink()
    assert read_manifest(copy).units
    assert [path for path, _ in verify(copy).damaged] == [name]
    (copy.parent / "w").unlink()
    after = verify(copy, repair=True)
    assert (after.ok, after.repaired) == (True, [name])
    assert_same(copy, small / "s.zarr")


def test_a_record_is_damaged_and_a_chunk_too(copy, small):
    flip(copy / RECORDS[0], 8 * 5000)
    (copy / "sfc/t2m/c/0/0/0/0/0").unlink()
    assert verify(copy, repair=True).repaired == [RECORDS[0], "sfc/t2m/c/0/0/0/0/0"]
    assert_same(copy, small / "s.zarr")


def test_both_records_are_damaged(copy):
    for name in RECORDS:
        flip(copy / name, 8 * 5000)
    with pytest.raises(DamagedFileError, match=r"manifest/json/c/0: damaged .*checksum"):
        verify(copy)
    for name in RECORDS:
        (copy / name).unlink()
    with pytest.raises(FileError, match=r"has no manifest.*--force"):
        verify(copy)
    with pytest.raises(FileError, match="no such store"):
        verify(copy / "nothing")


def test_a_source_that_changed_is_found_by_decoding(write, tmp_path):
    source, store = write(cube()), tmp_path / "s"
    prepare(source, store)
    assert verify(store, source=source).sampled > 20
    flip(source, 8 * (next(iter(scan(source))).length - 20))  # among the first message's codes
    assert verify(store, sample=200).differing
    (store / "sfc/t2m/c/0/0/0/0/0").unlink()
    with pytest.raises(FileError, match="no longer gives what sfc/t2m/c/0/0/0/0/0 held"):
        verify(store, repair=True)
    other = write(cube(members=2), "b.grib")
    with pytest.raises(FileError, match="not the source of the store"):
        verify(store, source=other)


def test_a_zarr_source_that_changed_is_not_taken(write, tmp_path):
    source, store = tmp_path / "archive.zarr", tmp_path / "s"
    open_source(write(cube())).to_zarr(source, consolidated=False)
    prepare(source, store)
    (store / "sfc/t2m/c/0/0/0/0/0").unlink()
    assert verify(store, repair=True).repaired == ["sfc/t2m/c/0/0/0/0/0"]
    (source / "notes.txt").write_text("another file")
    with pytest.raises(FileError, match="not the source of the store"):
        verify(store, source=source)
    (store / "sfc/t2m/c/0/0/0/0/0").unlink()
    with pytest.raises(MissingDataError, match="--source"):
        verify(store, repair=True)


def test_a_repair_needs_the_source(copy):
    (copy.parent / "w").unlink()
    assert verify(copy).sampled == 0
    (copy / "sfc/t2m/c/0/0/0/0/0").unlink()
    with pytest.raises(MissingDataError, match="--source"):
        verify(copy, repair=True)


def test_the_manifest_tells_range_gaps_and_source(write, tmp_path):
    source, store = write([f for f in cube() if f[2:] != (20160105, 24, 2)]), tmp_path / "s"
    prepare(source, store, missing="nan")
    units = read_manifest(store).units
    row = next(r for r in units["forecast-000001-000"] if r[0].startswith("sfc/t2m"))
    values = np.stack([np.fromfile(source, np.uint8)[:4]])  # the first message's mark
    assert bytes(values[0]) == b"GRIB"
    path, size, crc, low, high, gaps, origin = row
    assert path == "sfc/t2m/c/1/0/0/0/0"
    assert size == (store / path).stat().st_size
    assert 0 < crc < 1 << 32
    assert 270 < low < high < 290
    assert gaps == 40
    first, second, third = origin.split()
    assert second == "-"
    with source.open("rb") as file:
        for one in (first, third):
            offset, _, length = one.removeprefix("0:").partition("+")
            file.seek(int(offset))
            message = file.read(int(length))
            assert (message[:4], message[-4:]) == (b"GRIB", b"7777")
