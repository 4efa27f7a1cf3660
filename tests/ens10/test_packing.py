import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from packedmessages import SHAPE, eccodes_values, message, simple

from ens10.errors import DamagedFileError, Ens10Error
from ens10.grib import decode, pack, packing, scan, to_float32
from ens10.grib.codec import read_message
from ens10.grib.packing import expand_codes
from ens10.packed16 import Packed, encode, parse, unpack
from ens10.packed16.layout import length_of


def joined(parts):
    return parts[0] << 24 | parts[1]


def refuse(*_):
    raise AssertionError("this packing needs no ecCodes")


CODES = st.lists(st.integers(0, 65535), min_size=40, max_size=40)
# Bitmaps that leave at least two points, whose values ecCodes packs with 16 bits.
GAPS = st.lists(st.booleans(), min_size=40, max_size=40).filter(lambda gaps: 0 < sum(gaps) < 39)
SCANS = [0, 32, 64, 96, 128, 160, 192, 224]  # westward 128, northward 64, by column 32


def packed(folder, raw):
    path = folder / "a.grib"
    path.write_bytes(raw)
    with path.open("rb") as file:
        (m,) = scan(path)
        return pack(m, file), decode(m, file)


def through_a_chunk(field):
    """The values that a packed16 chunk of the field gives back."""
    chunk = np.frombuffer(encode([field], *SHAPE), np.uint8)
    (record,) = parse(chunk.data, 1, *SHAPE, chunk.size)
    begin, out = int(record["offset"]), np.empty(SHAPE[0] * SHAPE[1], np.float32)
    unpack(record, chunk[begin : begin + length_of(record, out.size)].copy(), out)
    return out.reshape(SHAPE)


def assert_same_bits(one, other):
    assert one.dtype == other.dtype == np.float32
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def reoriented(flat, mode):
    """A field from values in the order of a scan mode, by the WMO's table and not by our code."""
    field = np.empty(SHAPE, flat.dtype)
    for n, value in enumerate(flat):
        row, column = divmod(n, SHAPE[1]) if not mode & 32 else divmod(n, SHAPE[0])[::-1]
        row = SHAPE[0] - 1 - row if mode & 64 else row
        column = SHAPE[1] - 1 - column if mode & 128 else column
        field[row, column] = value
    return field


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("packing")


@settings(max_examples=150, deadline=None)
@given(
    codes=CODES,
    sign=st.booleans(),
    reference=st.one_of(
        st.just(0), st.tuples(st.integers(50, 80), st.integers(0, 0xFFFFFF)).map(joined)
    ),
    binary=st.integers(-60, 30),
    decimal=st.integers(-6, 9),
    edition=st.sampled_from([1, 2]),
    mode=st.sampled_from(SCANS),
    gaps=st.none() | GAPS,
)
@example([0, 65535] * 20, True, 0, -10, 3, 2, 0, None)
@example([65535, 65534] * 20, False, 0, -10, 3, 1, 224, [True] * 38 + [False] * 2)
def test_simple_packing_without_eccodes_is_eccodes_bit_for_bit(
    folder, codes, sign, reference, binary, decimal, edition, mode, gaps
):
    octets = reference | (sign << 31)
    mask = None if gaps is None else np.array(gaps)
    held = np.array(codes, np.uint16)[slice(None) if mask is None else ~mask]
    raw = simple(held, octets, binary, decimal, edition, mode, mask)
    want = eccodes_values(raw)
    assert np.isnan(want).sum() == (0 if mask is None else mask.sum())
    assume(np.nanmax(np.abs(want)) < 3e38)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_is_verified", lambda *_: True)  # the codes as they were read
        patch.setattr(packing, "_pack_by_eccodes", refuse)
        field, decoded = packed(folder, raw)
    want = reoriented(want.astype(np.float32), mode)
    assert_same_bits(decoded, want)
    assert_same_bits(to_float32(field), want)
    assert_same_bits(through_a_chunk(field), want)


def test_every_exponent_of_an_ibm_float(folder):
    for exponent in range(128):
        for mantissa in (0, 1, 2, 0x0FFFFF, 0x100000, 0xFFFFFF):
            raw = simple(np.zeros(40, np.uint16), exponent << 24 | mantissa, 0, 0, 1, 0)
            assert packing.ibm_float(exponent << 24 | mantissa) == eccodes_values(raw)[0]


@pytest.mark.parametrize("decimal", range(-12, 30))
def test_powers_are_those_of_eccodes(decimal):
    raw = simple(np.full(40, 3, np.uint16), 0, 0, decimal, 2, 0)
    assert 3 * packing.power(10, -decimal) == eccodes_values(raw)[0]


ROUGH = np.random.default_rng(5).normal(size=SHAPE) * 10 + 280
HOLED = np.where(ROUGH > 290, np.nan, ROUGH)
PACKINGS = [
    (1, {"bitsPerValue": bits}, ROUGH, bits if bits <= 16 else None)
    for bits in (1, 8, 11, 12, 15, 16, 17, 24)
]
PACKINGS += [(2, {"bitsPerValue": bits}, ROUGH, bits) for bits in (7, 12, 16)]
PACKINGS += [
    (edition, {"bitsPerValue": 12, "decimalPrecision": 2}, ROUGH, ...) for edition in (1, 2)
]
PACKINGS += [
    (2, {"packingType": kind, "bitsPerValue": bits}, ROUGH, bits)
    for kind in ("grid_ccsds", "grid_jpeg")
    for bits in (12, 16)
]
PACKINGS += [
    (edition, {"packingType": "grid_second_order", "bitsPerValue": 16}, ROUGH, 16)
    for edition in (1, 2)
]
PACKINGS += [(edition, {"bitsPerValue": 16}, HOLED, 16) for edition in (1, 2)]
PACKINGS += [(2, {"packingType": "grid_ccsds", "bitsPerValue": 16}, HOLED, 16)]
# The buffer of ecCodes for small PNG fields holds only smooth ones.
SMOOTH = np.arange(40.0).reshape(SHAPE)
PACKINGS += [(2, {"packingType": "grid_png", "bitsPerValue": 16}, SMOOTH, 16)]
PACKINGS += [(2, {"packingType": "grid_ieee"}, ROUGH, None)]


@pytest.mark.parametrize(("edition", "keys", "values", "bits"), PACKINGS)
def test_other_packings_become_codes_where_that_loses_nothing(folder, edition, keys, values, bits):
    field, decoded = packed(folder, message(values, edition, keys))
    assert scan(folder / "a.grib")[0].meaning.packing == keys.get("packingType", "grid_simple")
    np.testing.assert_array_equal(np.isnan(decoded), np.isnan(values))
    assert_same_bits(through_a_chunk(field), decoded)
    assert_same_bits(to_float32(field), decoded)
    if bits is None:
        assert not isinstance(field, Packed)
    else:
        assert isinstance(field, Packed)
        assert bits is ... or field.bits == bits


@pytest.mark.parametrize("edition", [1, 2])
def test_constant_and_missing_fields(folder, edition):
    field, decoded = packed(folder, message(np.full(SHAPE, 281.5), edition))
    assert_same_bits(field, decoded)
    np.testing.assert_array_equal(field, 281.5)
    assert packed(folder, message(np.full(SHAPE, np.nan), edition))[0] is None
    assert np.isnan(to_float32(None, SHAPE)).all()
    some = np.where(np.arange(8) < 4, np.nan, np.full(SHAPE, 281.5))
    field, decoded = packed(folder, message(some, edition))
    np.testing.assert_array_equal(to_float32(field), some)
    assert_same_bits(through_a_chunk(field), decoded)


@pytest.mark.parametrize("flag", [0x80, 0x40, 0x20, 0x10, 0x04])
def test_flags_of_other_packings_are_left_to_eccodes(folder, flag):
    raw = bytearray(message(ROUGH))
    path = folder / "flag.grib"
    path.write_bytes(raw)
    (m,) = scan(path)
    with path.open("rb") as file:
        _, spans = read_message(m, file)
    assert packing._simple_packing1(bytes(raw), spans, m) is not None
    raw[8 + 52 + 32 + 3] ^= flag
    assert packing._simple_packing1(bytes(raw), spans, m) is None


def test_a_field_with_gaps_and_all_codes_in_use_stays_as_it_is():
    codes = np.arange(65537.0).reshape(1, -1)
    gaps = codes == 65536
    assert packing._repack(codes, (0.0, 0, 0, 16), gaps) is None
    codes[0, 7] = 8.0
    assert packing._repack(codes, (0.0, 0, 0, 16), gaps).gap == 7


def test_a_field_with_a_bitmap_and_all_codes_in_use_is_left_to_eccodes():
    data = np.arange(65536, dtype=">u2").view(np.uint8)
    mask = np.packbits(np.arange(65537) != 3)
    assert expand_codes(mask, data, 65537) is None
    data[2 * 9 : 2 * 9 + 2] = 0
    codes, gap = expand_codes(mask, data, 65537)
    assert gap == codes[3] == 9
    assert codes.tolist() == [0, 1, 2, 9, *range(3, 9), 0, *range(10, 65536)]


def test_a_bitmap_that_contradicts_the_number_of_values_is_left_to_eccodes():
    data = np.arange(9, dtype=">u2").view(np.uint8)
    whole = np.packbits(np.ones(10, bool))
    assert expand_codes(whole, data, 10) is None
    assert expand_codes(whole[:1], data, 10) is None
    assert expand_codes(np.packbits(np.arange(10) < 8), data, 10) is None
    assert expand_codes(np.packbits(np.ones(9, bool)), data, 9)[1] is None


@pytest.mark.parametrize("edition", [1, 2])
def test_a_bitmap_is_read_without_eccodes(folder, edition, monkeypatch):
    raw = message(HOLED, edition)
    want, decoded = packed(folder, raw)
    monkeypatch.setattr(packing, "_pack_by_eccodes", refuse)
    field, _ = packed(folder, raw)
    assert_same_bits(to_float32(field), decoded)
    monkeypatch.undo()
    slow = packing._pack_by_eccodes(raw, scan(folder / "a.grib")[0])
    assert (slow.gap, slow.bits, slow.scale) == (want.gap, want.bits, want.scale)
    np.testing.assert_array_equal(slow.codes, want.codes)


def test_where_eccodes_reads_otherwise_its_values_are_taken(folder, monkeypatch):
    monkeypatch.setattr(packing, "_exact_packings", {})
    monkeypatch.setattr(packing, "ibm_float", lambda octets: 1.0)
    field, decoded = packed(folder, message(ROUGH))
    assert_same_bits(to_float32(field), decoded)
    assert list(packing._exact_packings.values()) == [False]


def test_values_that_no_float32_holds(folder):
    raw = simple(np.full(40, 65535, np.uint16), 0, 0, -40, 2, 0)
    with pytest.raises(DamagedFileError, match="no float32"):
        packed(folder, raw)


def test_a_file_that_changed_after_it_was_indexed(folder):
    path = folder / "changed.grib"
    path.write_bytes(message(ROUGH))
    (m,) = scan(path)
    path.write_bytes(path.read_bytes()[:-9])
    with path.open("rb") as file, pytest.raises(DamagedFileError, match=r"byte 0: .*changed"):
        pack(m, file)


def outcome(use, m, file):
    try:
        return to_float32(use(m, file), SHAPE)
    except Ens10Error as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(edition=st.sampled_from([1, 2]), data=st.data())
@pytest.mark.parametrize("values", [ROUGH, HOLED])
def test_after_any_flipped_bit_pack_says_what_decode_says(folder, values, edition, data):
    raw = bytearray(message(values, edition))
    head = len(raw) - 2 * np.isfinite(values).sum() - 4
    raw[data.draw(st.integers(4, head - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = folder / "flipped.grib"
    path.write_bytes(raw)
    try:
        (m,) = scan(path)
    except Ens10Error as error:
        assert "flipped.grib" in str(error)  # noqa: PT017
        return
    with path.open("rb") as file:
        one, other = outcome(pack, m, file), outcome(decode, m, file)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert packing.same_bits(one, other)
