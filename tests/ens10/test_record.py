"""What a training reads is compared with the store's manifest, the first time that it is read."""

import re
import shutil
from contextlib import contextmanager
from io import BytesIO
from itertools import groupby

import numpy as np
import pytest
from batchtools import copied, whole
from storetools import contents

from ens10 import prepare, verify
from ens10.convert import preparation, work_units
from ens10.errors import DamagedFileError, FileError
from ens10.loader import Batches, Slabs
from ens10.packed16.layout import DamagedChunkError, encode, parse
from ens10.store import chunks, open_store
from ens10.store.file_bytes import FileBytes
from ens10.store.manifest import COPY, NAME, Record, open_record, read_manifest, read_plan

INPUTS = ["t2m", "u10"]
STEP = 2  # the third step, 48 h, is the target's


@pytest.fixture(scope="module")
def store(small):
    return small / "s.zarr"


@pytest.fixture(scope="module")
def one_copy(small, tmp_path_factory):
    return shutil.copytree(small / "s.zarr", tmp_path_factory.mktemp("record") / "s.zarr")


@pytest.fixture
def copy(one_copy):
    """A copy of the small world's store, which gets its bytes back after the test."""
    before = contents(one_copy)
    yield one_copy
    for name, content in before.items():
        path = one_copy / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def flip(path, byte=-1, bit=6):
    """Flips a bit; of a file's last byte, one in the exponent of the last float32."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def train(store, inputs=INPUTS, **settings):
    settings = {"members": True, "threads": 0, "shuffle": False, **settings}
    return whole(Batches(store, "t2m@48", inputs, **settings))


@pytest.fixture(scope="module")
def date(store):
    """Position of a date that is trained on."""
    return int(Batches(store, "t2m@48", INPUTS).index[0])


def chunk_of(store, array, date):
    rest = ["0", "0", "0"] if array.startswith("truth/") else [str(STEP), "0", "0", "0"]
    return store.joinpath(array, "c", str(date), *rest)  # the truth is of 48 h alone


READ = ("sfc/t2m", "truth/t2m", "statistics/ensemble_std", "statistics/ensemble_mean")
OTHERS = (
    "statistics/mean_sum/c/0/2/0/0/0",
    "statistics/std_count/c/0/2/0/0/0",
    "statistics/channel/c/0",
    "statistics/valid_year/c/0/0",
    "sfc/time/c/0",
    "sfc/latitude/c/0",
    "truth/valid_time/c/0/0",
    "truth/t2m/zarr.json",
    "statistics/ensemble_mean/zarr.json",
    "truth/time/zarr.json",
)


@pytest.mark.parametrize("name", [*READ, *OTHERS])
def test_one_flipped_bit_ends_the_reading_with_the_name_of_the_file(copy, date, name):
    path = chunk_of(copy, name, date) if name in READ else copy / name
    flip(path, 7 if name.startswith("statistics/") else -1)  # of sst, the first channel
    with pytest.raises(DamagedFileError, match="checksum") as caught:
        train(copy, [*INPUTS, "sst"])
    assert str(path) in str(caught.value)
    assert "Repair the store with `ens10 verify STORE --repair`" in str(caught.value)


@pytest.mark.slow
def test_every_file_is_compared_or_changes_nothing(copy):
    want, named = {key: values.tobytes() for key, values in train(copy).items()}, []
    for name, content in contents(copy).items():
        flip(copy / name, len(content) // 2, 1)
        try:
            assert {key: values.tobytes() for key, values in train(copy).items()} == want, name
        except FileError as error:  # that the metadata of a group are no JSON is found at once
            said = str(error)
            group = name.endswith("zarr.json") and "its metadata cannot be read" in said
            named.append(name in said or group or said)
        (copy / name).write_bytes(content)
    assert set(named) == {True}
    assert len(named) > 60


@pytest.mark.parametrize("name", READ)
def test_chunks_that_were_swapped(copy, date, name):
    one, other = (chunk_of(copy, name, n) for n in (date, date + 1))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(DamagedFileError, match=re.escape(str(one))):
        train(copy)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_packed_chunks_tell_their_place_without_a_manifest(small, tmp_path, codec, date, caplog):
    store = prepare(small / "w", tmp_path / "s", truth=small / "w" / "truth", codec=codec)
    for name in (NAME, COPY):
        (store / name).unlink()
    want = train(store)
    assert "has no manifest" in caplog.text
    place = chunk_of(store, "sfc/t2m", date)
    for other in (chunk_of(store, "sfc/t2m", date + 1), chunk_of(store, "sfc/u10", date)):
        content = place.read_bytes()
        shutil.copy(other, place)
        with pytest.raises(DamagedFileError, match="a chunk of another place") as caught:
            train(store)
        assert str(place) in str(caught.value)
        with pytest.raises(DamagedFileError, match="a chunk of another place"):
            open_store(store, "sfc")["t2m"][date, STEP].load()
        place.write_bytes(content)
    np.testing.assert_array_equal(train(store)["members"], want["members"])


def test_the_place_in_a_header():
    fields = [np.arange(6, dtype="f4").reshape(2, 3)]
    plain, placed = encode(fields, 2, 3), encode(fields, 2, 3, "sfc/t2m/c/0/0/0/0/0")
    assert len(plain) == len(placed)
    assert {n for n in range(len(plain)) if plain[n] != placed[n]} <= {28, 29, 30, 31}
    assert plain[28:32] == bytes(4) != placed[28:32]

    def records(chunk, key):
        return parse(memoryview(chunk), 1, 2, 3, len(chunk), key)

    for chunk, key in (
        (plain, "a/b/c/0"),
        (plain, ""),
        (placed, ""),
        (placed, "sfc/t2m/c/0/0/0/0/0"),
    ):
        assert records(chunk, key).size == 1
    with pytest.raises(DamagedChunkError, match="another place"):
        records(placed, "sfc/t2m/c/1/0/0/0/0")


def test_of_statistics_the_channels_that_are_read_are_compared(copy, date):
    want = train(copy)
    channels = open_store(copy, "statistics")["channel"].to_numpy().tolist()
    path = chunk_of(copy, "statistics/ensemble_mean", date)
    flip(path, channels.index("sst") * 8 * 16 * 4 + 3)
    np.testing.assert_array_equal(train(copy)["features"], want["features"])
    with pytest.raises(DamagedFileError, match="field 0: it does not match") as caught:
        train(copy, [*INPUTS, "sst"])
    assert str(path) in str(caught.value)


def test_rows_that_are_not_read_are_compared_with_their_field(copy, date):
    """The checksum is one of the whole field."""
    flip(chunk_of(copy, "truth/t2m", date))
    with pytest.raises(DamagedFileError, match="truth/t2m"):
        train(copy, kind=Slabs(first=0, last=2))


def test_each_chunk_is_compared_once_and_again_when_it_has_changed(copy, date, monkeypatch):
    compared = []

    def noted(sums, source, *rest, real=chunks.compare):
        compared.append(source.state if isinstance(source, FileBytes) else None)
        return real(sums, source, *rest)

    monkeypatch.setattr(chunks, "compare", noted)
    batches = Batches(copy, "t2m@48", INPUTS, members=True, threads=2)
    first = copied(batches)
    once = len(compared)
    files = [state for state in compared if state is not None]
    assert len(files) == len(set(files)) > 4 * len(batches)  # of 4 arrays, and of the statistics
    batches.set_epoch(1)
    assert len(copied(batches)) == len(first)
    assert len(compared) == once
    flip(chunk_of(copy, "truth/t2m", date))
    with pytest.raises(DamagedFileError, match="truth/t2m"):
        copied(batches)


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "empty"])
def test_the_copy_of_a_damaged_manifest_is_used(copy, date, how):
    path = copy / NAME
    if how == "flipped":
        flip(path, 5000)
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 2000 if how == "cut" else 0])
    train(copy)
    flip(chunk_of(copy, "truth/t2m", date))
    with pytest.raises(DamagedFileError, match="truth/t2m"):
        train(copy)
    (copy / COPY).write_bytes(b"")
    if how != "missing":
        with pytest.raises(DamagedFileError, match="neither it nor its copy"):
            train(copy)


def test_a_chunk_that_the_manifest_does_not_list(copy, date):
    other, name = copy / "truth/other", "truth/t2m"
    shutil.copytree(copy / name, other)
    record = open_record(copy)
    with pytest.raises(DamagedFileError, match="the manifest does not list it"):
        chunks.open_reader(copy, "truth/other", record)
    text = (copy / NAME).read_bytes().replace(f"{name}/c/{date}/".encode(), b"truth/x/")
    rest = {f"{name}/zarr.json": record.row(f"{name}/zarr.json")}
    record = Record(lambda: BytesIO(text), rest)
    reader = chunks.open_reader(copy, name, record)
    out = np.empty((1, reader.rows, reader.columns), np.float32)
    with pytest.raises(DamagedFileError, match="the manifest does not list it"):
        reader.read_into((date, 0), out)


def test_every_row_is_found(store):
    """By the search as by parsing all of the manifest."""
    record, rows = open_record(store), [row for _, row in read_manifest(store).rows()]
    for path, size, crc, *_ in rows:
        assert record.row(path)[:2] == (size, crc)
    assert record.row("sfc/t2m/c/999/0/0/0/0") is None
    for array, held in groupby(rows, lambda row: row[0].partition("/c/")[0]):
        if array in READ:
            sums = record.array(array, (6, 1 if array == "truth/t2m" else 3))
            for path, size, crc, *_ in held:
                place = tuple(map(int, path.partition("/c/")[2].split("/")[:2]))
                assert sums.at(sums.number(place))[:2] == (size, crc)
    assert record.array("no/such", (3,)).at(2) is None


class OldStoreBuilder(preparation.StoreBuilder):
    """Writes a store as it was before chunks carried their place."""

    def __init__(self, store, partial, plan, *rest):
        plan["options"].pop("places")
        super().__init__(store, partial, plan, *rest)


@contextmanager
def as_before():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "StoreBuilder", OldStoreBuilder)
        patch.setattr(work_units, "field_checksums", lambda fields: "")
        yield patch


@pytest.fixture(scope="module")
def old(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    (folder / "w").symlink_to(small / "w")
    with as_before():
        return prepare(folder / "w", folder / "old.zarr", truth=folder / "w" / "truth")


def test_older_stores_are_read_compared_and_mended(old, store, date):
    assert "places" not in read_plan(old)["options"]
    packed = chunk_of(old, "sfc/t2m", date)
    assert (
        packed.read_bytes()[28:32]
        == bytes(4)
        != chunk_of(store, "sfc/t2m", date).read_bytes()[28:32]
    )
    for key, values in train(store).items():
        np.testing.assert_array_equal(train(old)[key], values)
    source = old.parent / "w"
    assert prepare(source, old, truth=source / "truth") == old  # nothing to do
    before = contents(old)
    for name in READ:
        flip(chunk_of(old, name, date))  # those that are read first come last
        with pytest.raises(DamagedFileError, match=f"{name}.*checksum"):
            train(old)
    assert len(verify(old, repair=True, sample=0).repaired) == len(READ)
    assert contents(old) == before


def test_an_older_store_is_finished_as_it_was_begun(small, old, tmp_path):
    def fail(unit, writer, real=work_units.ForecastUnit.write):
        if unit.place == (3, 0):
            raise FileError("here", "interrupted")
        real(unit, writer)

    truth, path = small / "w" / "truth", tmp_path / "resumed.zarr"
    with as_before() as patch:
        patch.setattr(work_units.ForecastUnit, "write", fail)
        with pytest.raises(FileError, match="interrupted"):
            prepare(small / "w", path, truth=truth)
    prepare(small / "w", path, truth=truth)
    assert not read_plan(path)["options"]["places"]
    ours, theirs = contents(path), contents(old)
    packed = [name for name in ours if name.startswith("sfc/t2m/c/")]
    assert [name for name in packed if ours[name] != theirs[name]] == []
    assert verify(path).ok
    train(path)
