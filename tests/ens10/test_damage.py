"""Every kind of damage that existing readers hide: what finds it, and what it says.

Each row makes a file (or breaks a store) and names the words that must be told: which file, which
place in it, and what to do.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import damagefiles as made
import numpy as np
import pytest
from damagefiles import FIELDS, LOST, at, write
from gribfiles import values_of

from ens10 import open_store, prepare
from ens10.chunks import open_reader
from ens10.errors import Ens10Error
from ens10.inspection import inspect_path


@dataclass
class Damage:
    """One kind of damage.

    Attributes:
        make: writes the file, and returns what its words may use (such as the byte).
        inspected: words of the status that `ens10 inspect` gives.
        prepared: words of the error of `ens10 prepare`; none if it does not refuse.
    """

    make: Callable[[Path], dict[str, Any]]
    inspected: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)


def cut(path):
    parts = made.messages()
    begins = write(path, [*parts[:-1], parts[-1][:-30]])
    return {"byte": begins[-2]}


def bad_end(path):
    begins = write(path, made.replaced(at(), lambda raw: raw[:-4] + b"7767"))
    return {"byte": begins[at()]}


def cut_inside(path):
    """Bytes lost in the middle: the messages after them are still found."""
    begins = write(path, made.replaced(at(), lambda raw: raw[:-70]))
    return {"byte": begins[at()]}


def bad_length(path):
    begins = write(path, made.replaced(at(), lambda raw: raw[:4] + b"\0\0\x05" + raw[7:]))
    return {"byte": begins[at()]}


def noise_between(path):
    begins = write(path, made.replaced(at(), lambda raw: raw + b"noise"))
    return {"byte": begins[at() + 1] - 5}


def bad_bits(path):
    def broken(raw):
        begin = 8
        for _ in range(2):
            begin += int.from_bytes(raw[begin : begin + 3], "big")
        return raw[: begin + 10] + bytes([77]) + raw[begin + 11 :]

    begins = write(path, made.replaced(at(), broken))
    return {"byte": begins[at()]}


def flipped_bit(path):
    begins = write(path, made.replaced(at(), made.flipped_exponent))
    return {"byte": begins[at()]}


def member_missing(path):
    write(path, made.messages([f for f in FIELDS if f != LOST]))
    return {}


def twice_equal(path):
    parts = made.messages()
    begins = write(path, [*parts, parts[at()]])
    return {"first": begins[at()], "byte": begins[-2]}


def twice_different(path):
    parts = made.messages()
    other = made.message(LOST, values=values_of(LOST) + 1.0)
    begins = write(path, [*parts, other])
    return {"first": begins[at()], "byte": begins[-2]}


def wrong_grid(path):
    begins = write(path, made.replaced(at(), lambda _: made.message(LOST, grid=made.OTHER)))
    return {"byte": begins[at()]}


def wrong_level(path):
    upper = ("z", 500, *LOST[2:])
    begins = write(path, made.replaced(at(upper), lambda _: made.message(upper, level=501)))
    return {"byte": begins[at(upper)]}


def on_a_level(path):
    """A surface variable on a pressure level."""
    keys = {"indicatorOfTypeOfLevel": 100, "level": 500}
    begins = write(path, made.replaced(at(), lambda raw: made.with_keys(raw, keys)))
    return {"byte": begins[at()]}


def celsius(path):
    begins = write(path, made.replaced(at(), lambda _: made.celsius()))
    return {"byte": begins[at()]}


def first_bytes(path):
    write(path, made.messages())
    raw = bytearray(path.read_bytes())
    raw[0] ^= 0x20
    path.write_bytes(raw)
    return {"byte": 0, "next": len(made.messages()[0])}


def zeros(path):
    path.write_bytes(bytes(4096))
    return {}


def empty(path):
    path.write_bytes(b"")
    return {}


def neither(path):
    path.write_text("<html><title>404 Not Found</title></html>")
    return {}


def netcdf_cut(fmt):
    def make(path):
        size = made.netcdf(path, fmt)
        with path.open("rb+") as file:
            file.truncate(size - 300)
        return {"byte": size - 300}

    return make


def netcdf_corrupt(path):
    """Noise within the compressed values."""
    made.netcdf(path, zlib=True)
    raw = bytearray(path.read_bytes())
    middle = raw.rfind(b"\x78\x5e")  # where deflated data begin (RFC 1950)
    middle = middle if middle > 0 else raw.rfind(b"\x78\x9c")
    raw[middle + 20 : middle + 60] = b"\xff" * 40
    path.write_bytes(raw)
    return {}


def netcdf_celsius(path):
    made.netcdf(path, offset=-273.15)
    return {}


def netcdf_units(path):
    made.netcdf(path, units="m s-1")
    return {}


FETCH = "Fetch or write the file again"
DAMAGES = {
    "a.grib: cut in the last message": Damage(
        cut, ["{path}", "damaged at byte {byte}", "lacks 30 bytes", FETCH],
        ["{path}", "damaged at byte {byte}", "lacks 30 bytes", FETCH],
    ),
    "b.grib: bad 7777": Damage(
        bad_end, ["{path}", "damaged at byte {byte}", "does not end in 7777", FETCH],
        ["{path}", "damaged at byte {byte}", "does not end in 7777", FETCH],
    ),
    "c.grib: bytes lost in the middle": Damage(
        cut_inside, ["{path}", "damaged at byte {byte}", FETCH],
        ["{path}", "damaged at byte {byte}", FETCH],
    ),
    "d.grib: impossible length": Damage(
        bad_length, ["{path}", "byte {byte}", "length as 5 bytes"],
        ["{path}", "damaged at byte {byte}", "length as 5 bytes", FETCH],
    ),
    "e.grib: noise between messages": Damage(
        noise_between, ["{path}", "damaged at byte {byte}", "5 bytes here belong to no message"],
        ["{path}", "damaged at byte {byte}", "5 bytes here belong to no message", FETCH],
    ),
    "f.grib: packing that makes no sense": Damage(
        bad_bits, ["{path}", "damaged at byte {byte}", FETCH],
        ["{path}", "damaged at byte {byte}", FETCH],
    ),
    "g.grib: flipped bit in the exponent of the reference": Damage(
        flipped_bit, ["{path} at byte {byte}", "t2m runs from", "lies between"],
        ["{path} at byte {byte}", "t2m runs from", "lies between"],
    ),
    "h.grib: a member missing": Damage(
        member_missing,
        ["1 field missing in {path}", "2016-01-05T00 step 24 h number 2", "--missing nan"],
        ["{path}", "2016-01-05T00", "step 24 h number 2", "--missing nan"],
    ),
    "i.grib: a message twice, equal": Damage(
        twice_equal,
        ["given twice with equal values", "byte {first} and {path} at byte {byte}", "remove one"],
        ["{path}", "byte {byte}", "a second time", "the same values", "Remove one"],
    ),
    "j.grib: a message twice, different": Damage(
        twice_different,
        ["twice with different values", "byte {first} and {path} at byte {byte}", "remove one"],
        ["{path}", "byte {byte}", "a second time", "different values", "Remove one"],
    ),
    "k.grib: a message on another grid": Damage(
        wrong_grid, ["{path}", "byte {byte}", "61 to 41 N", "Mend or remove it"],
        ["{path}", "byte {byte}", "61 to 41 N", "Mend or remove it"],
    ),
    "l.grib: a message on a wrong level": Damage(
        wrong_level,
        ["only 1 field of z on this level", "{path} at byte {byte}", "mend its level"],
        ["{path}", "2016-01-05T00", "z 500 hPa", "z 501 hPa"],
    ),
    "m.grib: a surface variable on a pressure level": Damage(
        on_a_level,
        ["lies at the surface, not on a pressure level", "{path} at byte {byte}", "mend its level"],
        ["{path}", "byte {byte}", "typeOfLevel", "Mend or remove it"],
    ),
    "n.grib: Celsius": Damage(
        celsius, ["{path} at byte {byte}", "looks like Celsius", "Convert it to K"],
        ["{path} at byte {byte}", "looks like Celsius", "Convert it to K"],
    ),
    "o.grib: flipped bit in the first byte": Damage(
        first_bytes,
        ["{path}", "damaged at byte 0", "first GRIB message begins at byte {next}", "Fetch it"],
        ["{path}", "neither a GRIB nor a netCDF file"],
    ),
    "p: zeros": Damage(
        zeros, ["{path}", "damaged at byte 0", "begins with zeros", "Fetch"],
        ["{path}", "neither a GRIB nor a netCDF file"],
    ),
    "q: empty": Damage(
        empty, ["{path}", "the file is empty", "Fetch"], ["{path}", "the file is empty"]
    ),
    "r: neither GRIB nor netCDF": Damage(
        neither, ["{path}", "neither a GRIB nor a netCDF file", "Give the right path"],
        ["{path}", "neither a GRIB nor a netCDF file", "give the right path"],
    ),
    **{
        f"{fmt}.nc: netCDF cut": Damage(
            netcdf_cut(fmt), ["{path}", "damaged at byte {byte}", "lacks 300 bytes", FETCH],
            ["{path}", "damaged at byte {byte}", "lacks 300 bytes", FETCH],
        )
        for fmt in ("NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF3_64BIT_DATA")
    },
    "s.nc: netCDF with damaged values": Damage(
        netcdf_corrupt, ["{path}: t2m time 2 step 1", "cannot be read", FETCH], [],
    ),
    "t.nc: Celsius": Damage(
        netcdf_celsius, ["{path}: t2m time 0 step 0", "looks like Celsius", "Convert it to K"],
        ["looks like Celsius", "Convert it to K"],
    ),
    "u.nc: units of another quantity": Damage(
        netcdf_units, ["{path}", "units 'm s-1'", "Convert it"],
        ["{path}", "units 'm s-1'", "Convert it"],
    ),
}  # fmt: skip


def assert_told(text, words, **given):
    for word in words:
        assert word.format(**given) in text, (word.format(**given), text)


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


# Stores.


def chunk_of(store, array="sfc/t2m", place="2/0"):
    return store / array / "c" / place / "0/0/0"


def unlink(store):
    chunk_of(store).unlink()
    return chunk_of(store), []


def truncate(store):
    path = chunk_of(store)
    path.write_bytes(path.read_bytes()[:-40])
    return path, ["byte"]


def flip(store):
    path = chunk_of(store)
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 1
    path.write_bytes(raw)
    return path, ["byte"]


def swap(store):
    """A whole chunk, but of another date: only the manifest knows."""
    path = chunk_of(store)
    shutil.copy(chunk_of(store, place="0/0"), path)
    return path, ["byte 0"]


def flip_statistics(store):
    path = store / "statistics/ensemble_mean/c/1/0/0/0/0"
    raw = bytearray(path.read_bytes())
    raw[11] ^= 4
    path.write_bytes(raw)
    return path, ["checksum"]


def change_metadata(store):
    path = store / "sfc/t2m/zarr.json"
    path.write_text(path.read_text().replace("temperature", "temperatvre"))
    return path, ["checksum"]


BROKEN = {f.__name__: f for f in (unlink, truncate, flip, swap, flip_statistics, change_metadata)}


@pytest.fixture(scope="module", params=["none", "lz4"])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    write(folder / "a.grib", made.messages())
    return prepare(folder / "a.grib", folder / "s.zarr", codec=request.param)


@pytest.fixture
def store(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "s.zarr")


@pytest.mark.parametrize("name", BROKEN)
def test_inspect_finds_damage_in_a_store(store, name):
    assert {row.status for row in inspect_path(store)} == {"ok"}
    path, words = BROKEN[name](store)
    wrong = [row for row in inspect_path(store) if row.status != "ok"]
    assert len(wrong) == 1
    assert_told(wrong[0].status, [str(path), "--repair", *words])
    assert wrong[0].name == ("t2m" if "sfc/t2m/c" in str(path) else "s.zarr")
    if name in ("unlink", "truncate"):
        headers = [row for row in inspect_path(store, values=False) if row.status != "ok"]
        assert [row.name for row in headers] == ["t2m"]


@pytest.mark.parametrize("name", ["unlink", "truncate"])
def test_readers_of_a_store_find_damage(store, name):
    path, _ = BROKEN[name](store)
    reader = open_reader(store, "sfc/t2m")
    out = np.empty((reader.fields, reader.rows, reader.columns), np.float32)
    with pytest.raises(Ens10Error) as direct:
        reader.read_into((2, 0), out)
    with pytest.raises(Ens10Error) as lazy:
        open_store(store, "sfc")["t2m"].compute(scheduler="synchronous")
    for caught in (direct, lazy):
        assert_told(str(caught.value), [str(path), "--repair"])


def test_xarray_finds_a_flipped_bit(store):
    path, _ = flip(store)
    with pytest.raises(Ens10Error) as lazy:
        open_store(store, "sfc")["t2m"].compute(scheduler="synchronous")
    assert_told(str(lazy.value), [str(path), "damaged at byte", "--repair"])
