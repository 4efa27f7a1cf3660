"""The sections of GRIB messages: where they lie, and what is refused before ecCodes sees it."""

from pathlib import Path

import eccodes
import numpy as np
import pytest
from packedmessages import SHAPE, message

from ens10.catalog import variable
from ens10.errors import DamagedFileError, Ens10Error, FileError
from ens10.grib import Encoder, LatLonGrid, decode, header, pack, packing, scan, survey
from ens10.grib.index import GribFile
from ens10.grib.sections import MOST_POINTS, RawMessage, sections

PLAIN = np.arange(40.0).reshape(SHAPE)
HOLED = np.where((PLAIN > 9) & (PLAIN < 13), np.nan, PLAIN)
MEMBER1 = {"setLocalDefinition": 1, "localDefinitionNumber": 1, "type": "pf", "stream": "enfo"}
MEMBER2 = {"productDefinitionTemplateNumber": 1}
TEMPLATES = [0, 1, 8, 11, 60, 61]
MESSAGES = {
    "edition 1": message(PLAIN, 1, MEMBER1),
    "edition 1, bitmap": message(HOLED, 1, MEMBER1),
    "edition 2": message(PLAIN, 2, MEMBER2),
    "edition 2, bitmap": message(HOLED, 2, MEMBER2),
    "edition 2, constant": message(np.full(SHAPE, 4.0), 2),
    **{
        f"edition 2, {kind}": message(PLAIN, 2, {"packingType": kind})
        for kind in ("grid_ccsds", "grid_complex", "grid_complex_spatial_differencing", "grid_ieee")
    },
    **{
        f"edition 2, template {number}": message(
            PLAIN, 2, {"productDefinitionTemplateNumber": number}
        )
        for number in TEMPLATES
    },
}


def spans_of(raw, origin=0, number=None):
    return sections(
        RawMessage(Path("a.grib"), bytes(raw), 0, len(raw), raw[7], b"", origin, number)
    )


@pytest.mark.parametrize("name", MESSAGES)
def test_sections_lie_where_eccodes_has_them(name):
    raw = MESSAGES[name]
    spans = spans_of(raw)
    handle = eccodes.codes_new_from_message(raw)
    for which, (begin, end) in spans.items():
        assert eccodes.codes_get(handle, f"offsetSection{which}") == begin
        if which > 1 or raw[7] == 2:  # of edition 1, it knows this section's by another key
            assert eccodes.codes_get(handle, f"section{which}Length") == end - begin
    eccodes.codes_release(handle)
    assert max(end for _, end in spans.values()) == len(raw) - 4


# Message, section, octet within it (from 1), its new value, and the words of the error.
WRONG = [
    (
        "edition 1",
        1,
        2,
        0x80,
        "section 1 (product), byte 8: octets 1 to 3 give its length as 32820",
    ),
    ("edition 1", 1, 3, 27, "section 1 (product), byte 8: octets 1 to 3 give its length as 27"),
    ("edition 1", 1, 18, 99, "section 1 (product), byte 25: octet 18, the unit of time, is 99"),
    ("edition 1", 1, 27, 0x7F, "section 1 (product), byte 34: the decimal scale factor is 32512"),
    ("edition 1", 2, 2, 0x80, "section 2 (grid), byte 60: octets 1 to 3 give its length as 32800"),
    ("edition 1", 2, 4, 2, "section 2 (grid), byte 63: octet 4: 2 vertical coordinates, and no"),
    ("edition 1", 2, 5, 0x7F, "section 2 (grid), byte 64: octet 5 of its grid description points"),
    ("edition 1", 2, 10, 6, "section 4 (data), byte 92: it holds 40 values of 16 bits for 48"),
    ("edition 1", 2, 10, 0, "section 2 (grid), byte 66: octets 7 to 10: Ni is 8, Nj 0"),
    ("edition 1", 4, 5, 0x7F, "section 4 (data), byte 96: the binary scale factor is 32"),
    ("edition 1", 4, 11, 99, "section 4 (data), byte 102: octet 11, bits per value, is 99"),
    ("edition 1", 4, 11, 15, "section 4 (data), byte 92: it holds 42 values of 15 bits for 40"),
    ("edition 1, bitmap", 3, 3, 3, "section 3 (bitmap), byte 92: octets 1 to 3 give"),
    ("edition 1, bitmap", 3, 4, 5, "section 3 (bitmap), byte 92: a bitmap of 43 points for 40"),
    ("edition 2", 1, 5, 9, "byte 20: octet 5: there is no section 9"),
    ("edition 2", 3, 1, 0x40, "section 3 (grid), byte 37: octets 1 to 4 give its length as"),
    ("edition 2", 3, 7, 0x40, "byte 43: octets 7 to 10 and 31 to 38: Nj is 5, Ni 8, and the numb"),
    ("edition 2", 3, 11, 2, "section 3 (grid), byte 47: octet 11: a list of 2 octets for each row"),
    ("edition 2", 4, 6, 1, "section 4 (product), byte 114: octets 6 and 7: 256 vertical coord"),
    ("edition 2", 4, 18, 99, "section 4 (product), byte 126: octet 18, the unit of time, is 99"),
    ("edition 2", 5, 6, 0x40, "octets 6 to 9: 1073741864 values for 40 points"),
    ("edition 2", 5, 9, 39, "it says to hold 39 values for 40 points"),
    ("edition 2", 5, 11, 2, "section 5 (packing), byte 146: 21 octets are too few for its templ"),
    ("edition 2", 5, 16, 0x7F, "the binary scale factor is 32"),
    ("edition 2", 5, 18, 0x7F, "the decimal scale factor is 32512"),
    ("edition 2", 5, 20, 99, "octet 20, bits per value, is 99"),
    ("edition 2", 5, 20, 15, "section 7 (data), byte 173: 80 octets for 40 values of 15 bits"),
    ("edition 2", 6, 6, 254, "section 6 (bitmap), byte 172: octet 6: the bitmap of a field before"),
    ("edition 2, bitmap", 3, 38, 1, "Nj is 1, Ni 8, and the number of points 40"),
    ("edition 2, grid_ieee", 5, 12, 7, "octet 12: the precision 7 is not supported"),
    ("edition 2, grid_complex", 5, 32, 1, "octets 32 to 35: more groups than its 40 values"),
    ("edition 2, template 8", 4, 42, 200, "octet 42: 200 time ranges"),
    ("edition 2, template 11", 4, 45, 200, "octet 45: 200 time ranges"),
    ("edition 2, template 61", 4, 52, 200, "octet 52: 200 time ranges"),
]


@pytest.mark.parametrize(("name", "section", "octet", "value", "words"), WRONG)
def test_what_is_wrong_and_at_which_byte(name, section, octet, value, words):
    raw = bytearray(MESSAGES[name])
    raw[spans_of(raw)[section][0] + octet - 1] = value
    with pytest.raises(DamagedFileError) as caught:
        spans_of(raw, number=7)
    assert words in str(caught.value)
    assert "a.grib: damaged at byte 0: message 7, section " in str(caught.value)


def test_bytes_count_from_the_beginning_of_the_file(tmp_path):
    """In the index, which reads the file, and on decoding, which reads one message of it."""
    path, whole = tmp_path / "a.grib", MESSAGES["edition 1"]
    wrong = bytearray(whole)
    wrong[8 + 17] = 99
    path.write_bytes(whole + whole)
    messages, place = scan(path), len(whole) + 25
    path.write_bytes(whole + wrong)
    with pytest.raises(DamagedFileError, match=f"message 2, section 1 .product., byte {place}:"):
        scan(path)
    for read in (pack, decode):
        with path.open("rb") as file, pytest.raises(DamagedFileError, match=f"byte {place}: octet"):
            read(messages[1], file)


@pytest.mark.parametrize("edition", [1, 2])
def test_sections_that_lack_or_come_twice(edition):
    raw = MESSAGES[f"edition {edition}"]
    begin, end = spans_of(raw)[4]
    short = raw[:begin] + raw[end:] if edition == 2 else raw[:begin] + raw[-4:]
    with pytest.raises(DamagedFileError, match="section 4"):
        spans_of(short)
    padded = raw[:-4] + bytes(200) + raw[-4:]
    with pytest.raises(DamagedFileError, match="section"):
        spans_of(padded)
    if edition == 2:
        with pytest.raises(FileError, match="several fields"):
            spans_of(raw[:-4] + raw[begin:end] + raw[-4:])


@pytest.mark.parametrize("name", MESSAGES)
def test_any_flipped_bit_and_any_cut_is_one_error_or_none(name):
    raw = MESSAGES[name]
    found = 0
    for bit in range(8 * 8, 8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 128 >> bit % 8
        try:
            spans_of(flipped)
        except FileError:
            found += 1
    assert found > 100
    for size in range(24, len(raw)):
        with pytest.raises(FileError):
            spans_of(raw[: size - 4] + b"7777")


def claims(points, kind="constant"):
    """A message of edition 2 that says to have many points and no bits."""
    raw = bytearray(MESSAGES[f"edition 2, {kind}"])
    spans = spans_of(raw)
    count = points.to_bytes(4, "big")
    grid = spans[3][0]
    raw[grid + 6 : grid + 10] = raw[grid + 30 : grid + 34] = count
    raw[grid + 34 : grid + 38] = (1).to_bytes(4, "big")
    raw[spans[5][0] + 5 : spans[5][0] + 9] = count
    return raw


@pytest.mark.parametrize("kind", ["constant", "grid_ccsds"])
def test_points_that_so_few_bytes_cannot_stand_for(kind, tmp_path):
    """A message of some hundred bytes that claims 10^9 points, which would take 4 GB."""
    path = tmp_path / "a.grib"
    path.write_bytes(claims(10**9, kind))
    with pytest.raises(DamagedFileError, match=r"1000000000 points in a message of .* bytes; 16"):
        scan(path)
    assert spans_of(claims(MOST_POINTS, kind))
    with pytest.raises(DamagedFileError, match="points in a message"):
        spans_of(claims(MOST_POINTS + 1, kind))


def read_all(path):
    """What reading a file says: nothing, or its one error; never another exception."""
    header._headers.clear()
    packing._exact_packings.clear()
    try:
        with path.open("rb") as file:
            for found in scan(path):
                pack(found, file)
    except Ens10Error as error:
        assert path.name in str(error)  # noqa: PT017
        return str(error)
    return None


SST = np.where(np.arange(2048) % 64 < 20, np.nan, 280 + np.arange(2048) / 100).reshape(32, 64)
SWEPT = {
    **dict(list(MESSAGES.items())[:4]),
    "sst": Encoder(LatLonGrid(32, 64, 80.0, -80.0, 0.0, 5.625)).message(
        SST, variable("sst"), date=20160101, step=24, number=1
    ),
}


def header_bits(raw):
    """Bits of all sections but those of the bitmap and of the values."""
    spans = spans_of(raw)
    bitmap, data = (3, 4) if raw[7] == 1 else (6, 7)
    lengths = {bitmap: 6, data: 11 if raw[7] == 1 else 5}
    first = spans[min(spans)][0]
    inside = [
        range(begin, min(end, begin + lengths.get(n, end))) for n, (begin, end) in spans.items()
    ]
    return [
        8 * octet + bit
        for octets in (range(first), *inside)
        for octet in octets
        for bit in range(8)
    ]


@pytest.mark.parametrize(
    "step", [37, pytest.param(1, marks=pytest.mark.slow, id="every bit of the header")]
)
@pytest.mark.parametrize("name", SWEPT)
def test_a_flipped_bit_is_an_error_or_a_field(name, step, tmp_path):
    """ecCodes reads what the sections do not refuse; its process is not ended by any of them."""
    raw, path = SWEPT[name], tmp_path / "flipped.grib"
    told = []
    for bit in header_bits(raw)[::step]:
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 128 >> bit % 8
        path.write_bytes(flipped)
        told.append(read_all(path) or "")
    assert any(told)
    assert not all(told)
    assert not [line for line in told if "ecCodes ended" in line or "more than" in line]


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path):
    path = tmp_path / "a.grib"
    whole = MESSAGES["edition 1"]
    path.write_bytes(whole * 1000)
    with path.open("rb") as file:
        view = GribFile(path, file)
        path.write_bytes(whole)
        with pytest.raises(DamagedFileError, match="byte 188: the file ends here; it had 188000"):
            view[100:300]
        with pytest.raises(DamagedFileError, match="ends here"):
            view.find(b"no such thing", 0)


def test_a_file_that_is_cut_between_two_messages_of_a_scan(tmp_path, monkeypatch):
    """A map of the file would end the process with SIGBUS."""
    path, whole = tmp_path / "a.grib", MESSAGES["edition 1"]
    path.write_bytes(whole * 1000)
    describe = header.describe
    cut = []

    def cutting(found):
        if not cut:
            path.write_bytes(whole)
        cut.append(found)
        return describe(found)

    monkeypatch.setattr("ens10.grib.index.describe", cutting)
    with pytest.raises(DamagedFileError, match="it had 188000 bytes when it was opened"):
        scan(path)
    path.write_bytes(whole * 1000)
    cut.clear()
    _, errors = survey(path)
    assert "it had 188000 bytes" in str(errors[-1])


def test_slices_and_searches_of_a_file_are_those_of_bytes(tmp_path):
    path = tmp_path / "a.bin"
    content = np.random.default_rng(0).integers(0, 4, 3_000_000, np.uint8).tobytes() + b"GRIB"
    path.write_bytes(content)
    with path.open("rb") as file:
        view = GribFile(path, file)
        for begin, size in ((0, 4), (0, 16), (1000, 100), (900, 200), (5, 5000), (2_999_990, 99)):
            assert view[begin : begin + size] == content[begin : begin + size]
        assert len(view) == len(content)
        assert view.find(b"GRIB", 7) == content.find(b"GRIB")
        pattern = content[(1 << 20) - 8 : (1 << 20) + 8]  # across two steps of the search
        assert view.find(pattern, 0) == content.find(pattern)
        assert view.find(b"no", 0) == -1
        assert view.holds_only(b"\0\1\2\3", 0, 3_000_000)
        assert not view.holds_only(b"\0\1\2\3", 0, 3_000_001)


def test_a_message_of_more_than_8_megabytes(tmp_path):
    """Its length and that of its data section are in units of 120 octets."""
    values = np.arange(2100.0 * 2100).reshape(2100, 2100) % 65536
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
    increments = {f"{axis}DirectionIncrementInDegrees": 0.02 for axis in "ij"}
    corners = {
        "latitudeOfFirstGridPointInDegrees": 60.0,
        "latitudeOfLastGridPointInDegrees": 60.0 - 2099 * 0.02,
        "longitudeOfFirstGridPointInDegrees": 0.0,
        "longitudeOfLastGridPointInDegrees": 2099 * 0.02,
    }
    keys = {"Ni": 2100, "Nj": 2100, **corners, **increments, "bitsPerValue": 16}
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, values.ravel())
    raw = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    path = tmp_path / "a.grib"
    path.write_bytes(raw + MESSAGES["edition 1"])
    found = scan(path)
    assert [one.length for one in found] == [len(raw), 188]
    assert raw[4] & 0x80
    with path.open("rb") as file:
        np.testing.assert_array_equal(pack(found[0], file).codes, values)
