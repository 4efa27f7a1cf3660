"""The codec against float64 formulas, zarr's own round trip, and every way to damage a chunk."""

import math
import warnings

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ens10.packed16 import Packed, encode, parse, unpack
from ens10.packed16.codec import Packed16
from ens10.packed16.layout import (
    CONSTANT,
    FLOAT,
    MISSING,
    PACKED,
    DamagedChunkError,
    crc32c,
    max_chunk_bytes,
    read_values,
    values_begin,
)
from ens10.packed16.unpack import fits_single

SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 9))
HUGE = float(np.finfo(np.float32).max)


def bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def oracle(packed):
    """The formula in double precision, by numpy."""
    with np.errstate(over="ignore"):
        value = (packed.codes.astype(np.float64) * packed.scale + packed.reference) * packed.decimal
        value = value.astype(np.float32)
    if packed.gap is not None:
        value[packed.codes == packed.gap] = np.nan
    return value


def decoded(chunk, fields, rows, columns):
    raw = np.frombuffer(bytes(chunk), np.uint8)
    records = parse(raw.data, fields, rows, columns, raw.size)
    out = np.full((fields, rows, columns), 7.0, np.float32)
    for n in range(fields):
        values = read_values(raw, records, n, rows * columns).copy()
        unpack(records[n], values, out[n].reshape(-1))
    return out, records


def packed_fields(shape):
    codes = arrays(np.uint16, shape, elements=st.integers(0, 65535))
    reference = st.floats(-1e6, 1e6, width=32) | st.floats(-1e6, 1e6)
    return st.builds(
        Packed,
        codes,
        reference,
        st.integers(-40, 20).map(lambda e: 2.0**e),
        st.integers(-6, 6).map(lambda e: 10.0**e) | st.just(1.0),
        st.none() | st.integers(0, 65535),
    )


def float_fields(shape):
    return arrays(np.float32, shape, elements=st.floats(width=32))


@st.composite
def chunks(draw):
    shape = draw(SHAPES)
    field = st.none() | float_fields(shape) | packed_fields(shape)
    constant = st.floats(width=32).map(lambda v: np.full(shape, v, np.float32))
    return shape, draw(st.lists(field | constant, min_size=1, max_size=5))


def wanted(fields, shape):
    def one(field):
        if field is None:
            return np.full(shape, np.nan, np.float32)
        return oracle(field) if isinstance(field, Packed) else field

    return np.stack([one(field) for field in fields])


def assert_same_bits(got, want):
    """Equal in bits; NaN where NaN, whose payload a field full of one NaN need not keep."""
    gaps = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), gaps)
    np.testing.assert_array_equal(bits(got)[~gaps], bits(want)[~gaps])


@given(chunks())
@settings(max_examples=200, deadline=None)
def test_any_mixture_of_fields(chunk):
    (rows, columns), fields = chunk
    encoded = encode(fields, rows, columns)
    assert len(encoded) <= max_chunk_bytes(len(fields), rows, columns)
    got, _ = decoded(encoded, len(fields), rows, columns)
    assert_same_bits(got, wanted(fields, (rows, columns)))


@given(SHAPES.flatmap(lambda s: arrays(np.uint32, (2, *s))))
@settings(max_examples=100, deadline=None)
def test_through_zarr_every_bit_pattern(patterns):
    """What plain zarr writes comes back: -0.0, infinities, tiny numbers; NaN with payloads."""
    values = patterns.view(np.float32)
    array = zarr.create_array(
        {}, shape=values.shape, chunks=(1, *values.shape[1:]), dtype=np.float32,
        serializer=Packed16(), compressors=None, fill_value=np.nan,
    )  # fmt: skip
    array[...] = values
    got = array[...]
    assert_same_bits(got, values)
    varied = [n for n, f in enumerate(patterns) if (f != f.flat[0]).any()]
    np.testing.assert_array_equal(bits(got)[varied], patterns[varied])


def test_kinds_of_field():
    shape = (2, 3)
    codes = np.arange(6, dtype=np.uint16).reshape(shape)
    minus = np.full(shape, -0.0, np.float32)
    mixed = np.array([[0.0, -0.0, 1], [np.inf, -np.inf, np.nan]], np.float32)
    full = np.full(shape, np.inf, np.float32)
    fields = [None, minus, Packed(codes, 1.0, 0.5), mixed, full, np.full(shape, np.nan, "f4")]
    got, records = decoded(encode(fields, *shape), len(fields), *shape)
    kinds = [MISSING, CONSTANT, PACKED, FLOAT, CONSTANT, MISSING]
    assert records["kind"].tolist() == kinds
    np.testing.assert_array_equal(np.signbit(got[1]), True)
    np.testing.assert_array_equal(bits(got[3]), bits(mixed))
    assert (got[4] == np.inf).all()
    assert len(encode([None, None], 100, 100)) == values_begin(2)
    assert len(encode([Packed(np.zeros((100, 100), "u2"), 0.0, 1.0)], 100, 100)) == 128 + 20_000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([None, Packed(np.zeros((2, 3), "u2"), 0.0, 1.0)], "field 1 has 6 values, not 2 x 4"),
        ([np.arange(6, dtype="f4").reshape(2, 3)], "field 0 has 6 values, not 2 x 4"),
    ],
    ids=["codes", "values"],
)
def test_a_field_of_another_shape(fields, words):
    with pytest.raises(ValueError, match=words):
        encode(fields, 2, 4)


@pytest.mark.parametrize(("shape", "dtype"), [((2, 3), "f8"), ((2, 3), "i2"), ((4,), "f4")])
def test_arrays_that_are_no_fields(shape, dtype):
    with pytest.raises(ValueError, match="packed16 holds"):
        zarr.create_array({}, shape=shape, dtype=dtype, serializer=Packed16(), chunks=shape)


# The claim of `fits_single`: where it holds, single precision gives the bits of double precision.

ALL_CODES = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def check_single(reference, scale):
    packed = Packed(ALL_CODES, float(reference), float(scale))
    got, _ = decoded(encode([packed], 256, 256), 1, 256, 256)
    np.testing.assert_array_equal(bits(got[0]), bits(oracle(packed)))


@given(st.integers(0, 2**32 - 1), st.integers(-149, 127))
@settings(max_examples=400, deadline=None)
def test_all_codes_of_any_reference_and_scale(pattern, exponent):
    reference = np.uint32(pattern).view(np.float32)
    if np.isfinite(reference):
        check_single(reference, 2.0**exponent)


def test_references_near_half_way():
    """Adversaries: a sum that lies half-way between two float32 numbers, or next to it."""
    rng = np.random.default_rng(11)
    checked = 0
    for _ in range(300):
        exponent = int(rng.integers(-120, 100))
        code, shift = int(rng.integers(1, 65536)), int(rng.integers(1, 40))
        # A reference whose last place is 2^shift times that of code * scale, give or take a few.
        significand = 2**24 - 1 - int(rng.integers(0, 3)) if rng.random() < 0.5 else 2**23 + code
        reference = math.ldexp(significand, exponent + shift - 8) * rng.choice([-1, 1])
        if abs(reference) < HUGE / 2 and exponent < 100:
            checked += fits_single(2.0**exponent, float(np.float32(reference)), 1.0)
            check_single(np.float32(reference), 2.0**exponent)
    assert checked > 200


def test_edges_of_the_range():
    """Tiny and huge references and scales, where float32 has few digits or none left."""
    tiny, least = float(np.finfo(np.float32).tiny), 2.0**-149
    references = [0.0, -0.0, least, -least, tiny, -tiny, tiny - least, HUGE, -HUGE, HUGE / 2,
                  -HUGE / 2, 2.0**127, 2.0**126, 1.0, -1.0, 273.15]  # fmt: skip
    scales = [2.0**e for e in (-1074, -1000, -200, -150, -149, -148, -127, -126, -125, -1, 0, 1,
                               109, 110, 111, 112, 126, 127, 128, 300)]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reference in references:
            for scale in scales:
                check_single(reference, scale)


@pytest.mark.parametrize(
    ("scale", "reference", "decimal", "fits"),
    [
        (0.5, 1.0, 1.0, True),
        (2.0**-126, 1.0, 1.0, True),
        (2.0**-127, 1.0, 1.0, False),
        (0.3, 1.0, 1.0, False),
        (0.5, 1.0 + 2.0**-40, 1.0, False),
        (0.5, 1.0, 10.0, False),
        (2.0**111, 0.0, 1.0, False),
        (0.5, HUGE, 1.0, False),
        (0.5, math.nan, 1.0, False),
        (math.nan, 1.0, 1.0, False),
        (math.inf, 1.0, 1.0, False),
        (0.0, 1.0, 1.0, False),
        (-0.5, 1.0, 1.0, False),
    ],
)
def test_what_fits_single(scale, reference, decimal, fits):
    assert fits_single(scale, reference, decimal) is fits


# Damage.

SHAPE = (3, 5)


def small_chunk():
    codes = np.arange(15, dtype=np.uint16).reshape(SHAPE)
    floats = np.linspace(0, 1, 15, dtype=np.float32).reshape(SHAPE)
    constant = np.full(SHAPE, 2.5, np.float32)
    fields = [Packed(codes, 270.0, 0.25, gap=14), None, constant, floats]
    return bytes(encode(fields, *SHAPE)), wanted(fields, SHAPE)


def test_every_length():
    chunk, want = small_chunk()
    last = len(chunk)
    for length in range(len(chunk)):
        try:
            got, _ = decoded(chunk[:length], 4, *SHAPE)
        except DamagedChunkError as error:
            assert 0 <= error.offset <= len(chunk)  # noqa: PT017 - of many, some raise
        else:
            last = min(last, length)
            np.testing.assert_array_equal(bits(got), bits(want))
    assert len(chunk) - last < 8  # of the padding alone


def test_every_flipped_bit():
    """Each is found, or lies in bytes that mean nothing."""
    chunk, want = small_chunk()
    harmless = set()
    for bit in range(8 * len(chunk)):
        broken = bytearray(chunk)
        broken[bit // 8] ^= 1 << bit % 8
        try:
            got, _ = decoded(broken, 4, *SHAPE)
        except DamagedChunkError:
            continue
        np.testing.assert_array_equal(bits(got), bits(want))
        harmless.add(bit // 8)
    begin = values_begin(4)
    padding = {*range(32 + 4 * 64, begin), begin + 30, begin + 31, *range(begin + 92, len(chunk))}
    assert harmless <= {8, *range(28, 32)} | padding


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_chunk(noise):
    for head in (b"", b"ens10p16", small_chunk()[0][:40]):
        with pytest.raises(DamagedChunkError):
            decoded(head + noise, 4, *SHAPE)


def test_chunks_of_another_shape_or_version():
    chunk, _ = small_chunk()
    with pytest.raises(DamagedChunkError, match=r"a chunk of shape \(4, 3, 5\), not \(4, 5, 3\)"):
        decoded(chunk, 4, 5, 3)
    newer = bytearray(chunk)
    newer[8] = 2
    with pytest.raises(DamagedChunkError, match=r"damaged at byte 8: .*version 2: update ens10"):
        decoded(newer, 4, *SHAPE)


def test_the_checksum_is_that_of_rfc_3720():
    assert crc32c(np.zeros(32, np.uint8)) == 0x8A9136AA
    assert crc32c(np.full(32, 255, np.uint8)) == 0x62A8AB43
    assert crc32c(np.arange(32, dtype=np.uint8)) == 0x46DD794E
