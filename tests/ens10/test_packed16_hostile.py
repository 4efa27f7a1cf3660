"""Whatever stands in a packed16 chunk, reading it gives values or the error of a damaged chunk."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.packed16.layout import (
    CONSTANT,
    RECORD,
    DamagedChunkError,
    Packed,
    crc32c,
    encode,
    parse,
    read_values,
    values_begin,
)
from ens10.packed16.unpack import unpack

ROWS, COLUMNS, FIELDS, HEADER = 4, 6, 4, 32
CODES = np.arange(24, dtype=np.uint16).reshape(ROWS, COLUMNS)
CHUNK = bytes(
    encode(
        [
            Packed(CODES, 250.0, 0.5, 1.0, 7),
            CODES.astype(np.float32),
            None,
            np.full((4, 6), 2, np.float32),
        ],
        ROWS,
        COLUMNS,
    )
)
RECORDS = np.frombuffer(CHUNK, RECORD, FIELDS, HEADER)


def read(content):
    """Reads all fields as the loader and Zarr's codec do."""
    chunk = np.frombuffer(content, np.uint8)
    records = parse(chunk.data, FIELDS, ROWS, COLUMNS, chunk.size)
    out = np.empty((FIELDS, ROWS * COLUMNS), np.float32)
    for n, record in enumerate(records):
        unpack(record, read_values(chunk, records, n, ROWS * COLUMNS).copy(), out[n])
    return out


def with_records(records):
    """The chunk with other records, whose checksum is right."""
    content = bytearray(CHUNK)
    content[HEADER : HEADER + records.nbytes] = records.tobytes()
    content[24:28] = np.uint32(crc32c(records)).tobytes()
    return bytes(content)


def test_the_chunk_itself():
    np.testing.assert_array_equal(read(with_records(RECORDS))[1], CODES.reshape(-1))


NUMBERS = {
    "kind": st.integers(0, 2**32 - 1),
    "gap": st.integers(-(2**31), 2**31 - 1),
    "offset": st.one_of(st.integers(0, 2**64 - 1), st.integers(2**64 - 200, 2**64 - 1)),
    "bits": st.integers(0, 2**32 - 1),
    "crc": st.integers(0, 2**32 - 1),
}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, FIELDS - 1), st.sampled_from(sorted(NUMBERS)), st.data())
def test_numbers_of_a_record(field, name, data):
    records = RECORDS.copy()
    records[name][field] = data.draw(NUMBERS[name])
    with suppress(DamagedChunkError):
        read(with_records(records))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["reference", "scale", "decimal"]), st.floats(), st.integers(0, FIELDS - 1))
def test_any_scale_is_read(name, value, field):
    """No number of the packing is invalid here: checks of values judge what it gives."""
    records = RECORDS.copy()
    records[name][field] = value
    assert read(with_records(records)).shape == (FIELDS, ROWS * COLUMNS)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(CHUNK)), st.binary(max_size=40))
def test_any_bytes(begin, content):
    mutated = CHUNK[:begin] + content + CHUNK[begin + len(content) :]
    for text in (mutated, CHUNK[:begin], content):
        with suppress(DamagedChunkError):
            read(text)


@pytest.mark.parametrize("constant", [1e300, -1e300, np.inf])
def test_a_constant_beyond_float32_is_infinite_without_a_warning(constant):
    record, out = RECORDS[:1].copy(), np.zeros(3, np.float32)
    record["kind"], record["reference"], record["decimal"] = CONSTANT, constant, 1.0
    unpack(record[0], np.empty(0, np.uint8), out)
    np.testing.assert_array_equal(out, np.copysign(np.inf, constant))


def test_where_the_damage_is():
    records = RECORDS.copy()
    records["kind"][2] = 9
    with pytest.raises(DamagedChunkError, match=f"byte {HEADER + 2 * RECORD.itemsize}: field 2"):
        read(with_records(records))
    records = RECORDS.copy()
    records["offset"][1] = 2**64 - 8  # the end would wrap around
    with pytest.raises(DamagedChunkError, match="the chunk lacks"):
        read(with_records(records))
    with pytest.raises(DamagedChunkError, match="only"):
        read(CHUNK[: values_begin(FIELDS) - 1])
