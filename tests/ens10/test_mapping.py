"""Parts of files as memory."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from ens10.packed16 import Packed, encode
from ens10.store import create_array, file_bytes
from ens10.store.chunks import open_reader
from ens10.store.file_bytes import MapCache, MappedFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files are mapped on Linux alone")


@pytest.fixture
def content():
    return np.random.default_rng(0).integers(0, 256, 200_001).astype(np.uint8)


def opened(path, content):
    content.tofile(path)
    return os.open(path, os.O_RDONLY)


def test_parts_outlive_the_file(tmp_path, content):
    file = opened(tmp_path / "f", content)
    mapped = MappedFile(file, content.size)
    os.close(file)
    (tmp_path / "f").unlink()
    parts = [(0, 1), (4095, 2), (4096, 4096), (123_457, 70_001), (200_000, 1), (0, 200_001)]
    held = [mapped.part(*part) for part in parts]
    del mapped
    for (begin, size), part in zip(parts, held, strict=True):
        np.testing.assert_array_equal(part, content[begin : begin + size])
        assert not part.flags.writeable


def test_what_cannot_be_read_is_no_memory(tmp_path, content):
    file = opened(tmp_path / "f", content)
    mapped = MappedFile(file, content.size)
    assert mapped.part(200_000, 2) is None
    os.truncate(tmp_path / "f", 8192)  # touching a page behind the end would end the process
    assert mapped.part(100_000, 4096) is None
    np.testing.assert_array_equal(mapped.part(0, 8192), content[:8192])
    assert MappedFile(file, content.size).part(0, 1) is None
    os.close(file)


class CountingLibrary:
    """The system's library, with the number of times that pages were fetched."""

    def __init__(self, library):
        self._library, self.fetches = library, 0

    def __getattr__(self, name):
        return getattr(self._library, name)

    def madvise(self, *arguments):
        self.fetches += 1
        return self._library.madvise(*arguments)


@pytest.mark.parametrize("is_own", [True, False])
def test_pages_in_memory_are_fetched_once_and_lost_ones_again(
    tmp_path, content, monkeypatch, is_own
):
    library = CountingLibrary(file_bytes._libc())
    monkeypatch.setattr(file_bytes, "_libc", lambda: library)
    if not is_own:  # of whose files the system does not tell
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    file = opened(tmp_path / "f", content)
    mapped = MappedFile(file, content.size)
    for _ in range(3):
        np.testing.assert_array_equal(mapped.part(100_000, 50_000), content[100_000:150_000])
    assert library.fetches == (1 if is_own else 3)
    mapped.part(0, 4096)
    assert library.fetches == (2 if is_own else 4)
    os.truncate(tmp_path / "f", 8192)
    assert mapped.part(100_000, 50_000) is None
    np.testing.assert_array_equal(mapped.part(0, 4096), content[:4096])
    os.close(file)


def test_maps_keep_no_file_open_and_are_unmapped_when_unused(tmp_path, content):
    """A training maps more files than a process may have open."""

    def count(path):
        return Path("/proc/self/maps").read_text().count(f"{path}/f")

    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    held = []
    for n in range(20):
        file = opened(tmp_path / f"f{n}", content)
        held.append(MappedFile(file, content.size))
        os.close(file)
    part = held[0].part(5, 100_000)
    assert open_files() == before
    assert count(tmp_path) == 20
    del held
    assert count(tmp_path) == 1
    np.testing.assert_array_equal(part, content[5:100_005])
    del part
    assert count(tmp_path) == 0


def test_maps_are_kept_until_the_file_is_another(tmp_path, content, monkeypatch):
    monkeypatch.setattr(file_bytes, "_MAX_MAPS", 2)
    maps, path = MapCache(), tmp_path / "f"

    def part(name="f"):
        file = os.open(tmp_path / name, os.O_RDONLY)
        mapped = maps.get(file, os.fstat(file))
        os.close(file)
        return mapped, mapped.part(0, 5000)

    content.tofile(path)
    first, _ = part()
    assert part()[0] is first
    (tmp_path / "new").write_bytes(bytes(6000))
    (tmp_path / "new").rename(path)  # as a store is mended
    assert part()[0] is not first
    assert not part()[1].any()
    path.write_bytes(b"\1" * 7000)  # in place
    assert part()[1].all()
    assert part()[0].part(6000, 1000).all()  # the map of the old size ends before
    last, _ = part()
    for name in "ab":
        content.tofile(tmp_path / name)
        part(name)
    assert part()[0] is not last


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_without_mapping_the_values_are_the_same(tmp_path, monkeypatch, codec):
    group = zarr.open_group(str(tmp_path / "s"), mode="w")
    codes = np.random.default_rng(1).integers(0, 4000, (3, 181, 360)).astype(np.uint16)
    array = create_array(group, "x", (1, 3, 181, 360), ("time", "number", "latitude", "longitude"),
                         chunks=(1, 3, 181, 360), codec=codec)  # fmt: skip
    values = codes * np.float32(0.5) + np.float32(3)
    array[0] = values
    if codec == "none":
        chunk = encode([Packed(field, 3.0, 0.5) for field in codes], 181, 360)
        (tmp_path / "s" / "x" / "c" / "0" / "0" / "0" / "0").write_bytes(chunk)
    for mapping_works in (True, False):
        if not mapping_works:
            monkeypatch.setattr(file_bytes, "_libc", lambda: None)
        reader = open_reader(tmp_path / "s", "x")
        for fields, rows in (([0, 1, 2], slice(0, 181)), ([2, 0], slice(1, 180))):
            out = np.empty((len(fields), rows.stop - rows.start, 360), np.float32)
            reader.read_into((0,), out, fields, rows)
            np.testing.assert_array_equal(out, values[fields][:, rows])
