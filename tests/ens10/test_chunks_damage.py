"""`ChunkReader` on damaged files, and frames of lz4 that lie."""

import subprocess
import sys

import numpy as np
import pytest
from chunkfiles import CODECS, bits, empty, make
from numcodecs.blosc import compress

from ens10.errors import DamagedFileError
from ens10.packed16.layout import DamagedChunkError
from ens10.packed16.lz4 import inflate


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_every_length(tmp_path, codec):
    reader, array = make(tmp_path / "s.zarr", codec, 1, 1)
    path = reader.path_of((0, 0))
    raw, want = path.read_bytes(), bits(array[0, 0])
    for length in {*range(0, len(raw), 7), *range(len(raw) - 9, len(raw))}:
        path.write_bytes(raw[:length])
        out = empty()
        try:
            reader.read_into((0, 0), out)
        except DamagedFileError as error:
            assert error.path == path  # noqa: PT017 - most lengths raise, those in padding do not
        else:
            assert codec == "none"
            assert len(raw) - length < 8
            np.testing.assert_array_equal(bits(out), want)
    path.write_bytes(raw + b"\0" * 4)
    if codec != "none":
        with pytest.raises(DamagedFileError):
            reader.read_into((0, 0), empty())


def test_flipped_bits_in_the_header(tmp_path):
    reader, array = make(tmp_path / "s.zarr", "none", 1, 1)
    path = reader.path_of((0, 0))
    raw, want = path.read_bytes(), bits(array[0, 0])
    for bit in range(0, 8 * 384, 5):
        broken = bytearray(raw)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        out = empty()
        try:
            reader.read_into((0, 0), out)
        except DamagedFileError:
            continue
        np.testing.assert_array_equal(bits(out), want)
        assert bit // 8 == 8 or 28 <= bit // 8 < 32 or bit // 8 >= 352


_FUZZ = """
import sys
import numpy as np
from ens10.packed16.layout import DamagedChunkError
from ens10.packed16.lz4 import inflate
frame = np.fromfile(sys.argv[1], np.uint8)
rng, found = np.random.default_rng(0), 0
for n in range(6000):
    broken = frame.copy()
    if n % 3 == 0:
        broken[rng.integers(frame.size)] ^= 1 << rng.integers(8)
    elif n % 3 == 1:
        broken[rng.integers(0, 16)] = rng.integers(256)
    else:
        places = rng.integers(16, frame.size, rng.integers(1, 20))
        broken[places] = rng.integers(0, 256, places.size)
    try:
        inflate(broken, 4000, lambda size: np.empty(size, np.uint8))
    except DamagedChunkError:
        found += 1
print(found)
"""


def test_damaged_frames_do_not_kill_the_process(tmp_path):
    """Run apart: what a C library does with damage would take the tests along."""
    reader, _ = make(tmp_path / "s.zarr", "lz4", 1, 1)
    command = [sys.executable, "-c", _FUZZ, str(reader.path_of((0, 0)))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


def test_frames_that_lie_about_their_length():
    frame = np.frombuffer(compress(bytes(1000), b"lz4", 1, 1), np.uint8).copy()

    def never(size):
        raise AssertionError(f"asked for {size} bytes")

    longer = frame.copy()
    longer[4:8] = 255  # 4 GB
    with pytest.raises(DamagedChunkError, match="holds 4294967295 bytes, more than 1000"):
        inflate(longer, 1000, never)
    for size in (0, 5, 16, frame.size - 1):
        with pytest.raises(DamagedChunkError, match="an lz4 frame of"):
            inflate(frame[:size], 1000, never)
    assert inflate(frame, 1000, lambda size: np.empty(size, np.uint8)).tobytes() == bytes(1000)
