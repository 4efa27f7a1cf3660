import pickle
from itertools import product

import eccodes
import numpy as np
import pytest
from packedmessages import SHAPE, message

from ens10.errors import DamagedFileError, FileError
from ens10.grib import MessageList, decode, header, scan, survey

FIELD = np.arange(40.0).reshape(SHAPE)
LOCAL = {"setLocalDefinition": 1}
PERTURBED = {"type": "pf", "stream": "enfo"}
HINDCAST = {"type": "pf", "stream": "enfh"}
VERSION = {"YearOfModelVersion": 2023, "MonthOfModelVersion": 6, "DayOfModelVersion": 15}
# Edition, keys, and how many of the 12 messages have a header that ecCodes must be asked for.
LAYOUTS = {
    "ed1-1": (1, {**LOCAL, "localDefinitionNumber": 1, **PERTURBED}, 2),
    "ed1-26": (1, {**LOCAL, "localDefinitionNumber": 26, **HINDCAST, "referenceDate": 20230615}, 2),
    "ed1-30": (1, {**LOCAL, "localDefinitionNumber": 30, **HINDCAST, "referenceDate": 20230615}, 2),
    "ed1-15": (1, {**LOCAL, "localDefinitionNumber": 15}, 12),
    "ed2-1": (2, {"productDefinitionTemplateNumber": 1}, 2),
    "ed2-11": (2, {"productDefinitionTemplateNumber": 11}, 4),
    "ed2-60": (2, {**LOCAL, "productDefinitionTemplateNumber": 60, **HINDCAST, **VERSION}, 2),
    "ed2-61": (2, {**LOCAL, "productDefinitionTemplateNumber": 61, **HINDCAST, **VERSION}, 4),
    "ed2-1-ccsds": (
        2,
        {"productDefinitionTemplateNumber": 1, "packingType": "grid_ccsds"},
        2,
    ),
}


def ensemble(edition, keys):
    """Two dates, two steps and three members, as ecCodes writes them."""
    for day, step, number in product((19981231, 20000229), (24, 48), (1, 2, 200)):
        own = {"dataDate": day, "dataTime": 600, "step": step, "perturbationNumber": number}
        yield message(FIELD + number, edition, {**keys, **own})


def read(raw, *keys):
    handle = eccodes.codes_new_from_message(raw)
    values = [eccodes.codes_get(handle, key) for key in keys]
    eccodes.codes_release(handle)
    return values


@pytest.fixture
def asked(monkeypatch):
    """The offsets at which ecCodes is asked for a header."""
    offsets, read = [], header.read_by_eccodes
    monkeypatch.setattr(header, "_headers", {})

    def counted(path, offset, raw):
        offsets.append(offset)
        return read(path, offset, raw)

    monkeypatch.setattr(header, "read_by_eccodes", counted)
    return offsets


@pytest.mark.parametrize("layout", LAYOUTS)
def test_headers_are_read_as_eccodes_reads_them(tmp_path, asked, layout):
    edition, keys, headers = LAYOUTS[layout]
    raws = list(ensemble(edition, keys))
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(raws))
    messages = scan(path)
    assert len(messages) == 12
    assert len(asked) == headers
    for m, raw in zip(messages, raws, strict=True):
        day, hour, step, number, level = read(
            raw, "dataDate", "dataTime", "endStep", "perturbationNumber", "level"
        )
        assert (
            str(m.time)
            == f"{day // 10000}-{day // 100 % 100:02}-{day % 100:02}T{hour // 100:02}:00:00"
        )
        assert (m.meaning.step, m.number, m.meaning.level, m.meaning.edition) == (
            step,
            number,
            level,
            edition,
        )
        assert (m.meaning.name, m.meaning.units, m.meaning.bits, m.length) == (
            "t2m",
            "K",
            16,
            len(raw),
        )
        assert m.meaning.model_date == (20230615 if "enfh" in keys.values() else None)


@pytest.mark.parametrize("reader", ["_date1", "_MEMBER_DEFINITIONS"])
def test_octets_that_eccodes_reads_otherwise_are_not_trusted(tmp_path, asked, monkeypatch, reader):
    if reader == "_date1":
        # Right for the second date: to agree once is not enough after having disagreed.
        second = int(np.datetime64("2000-02-29T06", "s").astype(int))
        monkeypatch.setattr(header, "_date1", lambda *_: second)
    else:
        monkeypatch.setattr(header, "_MEMBER_DEFINITIONS", (1, 15))  # its member is in octet 51
    _, keys, _ = LAYOUTS["ed1-1" if reader == "_date1" else "ed1-15"]
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(ensemble(1, keys)) * 2)
    messages = scan(path)
    assert [m.number for m in messages] == [1, 2, 200] * 8
    days = [str(m.time)[:10] for m in messages]
    assert days == (["1998-12-31"] * 6 + ["2000-02-29"] * 6) * 2
    assert len(asked) == 24


def test_without_a_local_part_and_without_members(tmp_path):
    path = tmp_path / "a.grib"
    raws = [
        message(FIELD, edition, {"centre": "kwbc", "dataDate": day})
        for edition in (1, 2)
        for day in (20010203, 20020304)
    ]
    path.write_bytes(b"".join(raws))
    messages = scan(path)
    assert [str(m.time)[:10] for m in messages] == ["2001-02-03", "2002-03-04"] * 2
    for m, raw in zip(messages, raws, strict=True):
        handle = eccodes.codes_new_from_message(raw)
        known = eccodes.codes_is_defined(handle, "perturbationNumber")
        assert (m.number is not None) == known
        eccodes.codes_release(handle)


def test_control_and_perturbed(tmp_path):
    keys = {**LOCAL, "localDefinitionNumber": 1, "stream": "enfo"}
    path = tmp_path / "a.grib"
    kinds = [("pf", 1), ("pf", 2), ("cf", 0)]
    path.write_bytes(
        b"".join(
            message(FIELD + n, 1, {**keys, "type": kind, "perturbationNumber": n})
            for kind, n in kinds
        )
    )
    assert [(m.meaning.data_type, m.number) for m in scan(path)] == kinds


def test_a_message_of_several_fields_is_refused(tmp_path):
    one = message(FIELD, 2)
    body = one[16:-4]
    first = int.from_bytes(body[:4], "big")
    raw = bytearray(one[:16] + body + body[first:] + b"7777")
    raw[8:16] = len(raw).to_bytes(8, "big")
    path = tmp_path / "a.grib"
    path.write_bytes(one + raw)
    with pytest.raises(FileError, match=rf"byte {len(one)} holds several fields.*grib_copy"):
        scan(path)


def test_what_surrounds_damage_is_surveyed(tmp_path):
    raws = list(ensemble(1, LAYOUTS["ed1-1"][1]))
    size = len(raws[0])
    bad_end = raws[1][:-1] + b"8"
    bad_month = raws[3][: 8 + 13] + b"\x0d" + raws[3][8 + 14 :]
    pieces = [raws[0], bad_end, raws[2], b"junk", bad_month, raws[4], raws[5][:-7]]
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(pieces))
    messages, errors = survey(path)
    starts = np.cumsum([0, *(len(piece) for piece in pieces)]).tolist()
    assert [m.offset for m in messages] == [starts[0], starts[2], starts[5]]
    assert [error.offset for error in errors] == [starts[n] for n in (1, 3, 4, 6)]
    told = [
        "7777",
        "4 bytes here",
        "dataDate 19981331, dataTime 0600 is not a date",
        "lacks 7 bytes",
    ]
    for error, words in zip(errors, told, strict=True):
        assert isinstance(error, DamagedFileError)
        assert words in str(error)
        assert "a.grib" in str(error)
    with pytest.raises(DamagedFileError, match=f"byte {size}: .*7777"):
        scan(path)


FLIPS = {
    "edition": (7, 0x04, "GRIB edition 5 is unknown"),
    "length": (5, 0x02, "lacks 512 bytes"),
    "day": (8 + 14, 0x02, "dataDate 20010230, dataTime 0000 is not a date"),
    "rows": (8 + 52 + 9, 0x02, r"byte 280: it holds 40 values of 16 bits for 56 points"),
    "increment": (8 + 52 + 26, 0x20, r"its grid contradicts itself: jDirectionIncrement"),
    "scan mode": (8 + 52 + 27, 0x40, "jScansPositively is 1, its rows run from 60 to 40 N"),
    "columns": (8 + 52 + 7, 0x08, "byte 254: octets 7 to 10: Ni is 0, Nj 5"),
    "list of rows": (8 + 52 + 4, 0x80, "octet 5 of its grid description points to octet 127"),
    "grid type": (8 + 52 + 5, 0x04, "lies on a 'regular_gg' grid"),
}


@pytest.mark.parametrize("which", FLIPS)
def test_a_flipped_bit_in_the_header(tmp_path, which):
    octet, bit, words = FLIPS[which]
    keys = {**LOCAL, "localDefinitionNumber": 1, **PERTURBED, "dataDate": 20010228, "dataTime": 0}
    raw = bytearray(message(FIELD, 1, keys))
    raw[octet] ^= bit
    path = tmp_path / "a.grib"
    whole = message(FIELD, 1, keys)
    path.write_bytes(whole + bytes(raw))
    with pytest.raises(FileError, match=f"a.grib: .*byte {len(whole)}.*{words}"):
        scan(path)


@pytest.mark.parametrize(
    ("octet", "words"),
    [(37 + 6, "the number of points"), (37 + 72 + 34 + 5, "1073741864 values for 40 points")],
)
def test_more_values_than_points_are_refused_before_room_is_made(tmp_path, octet, words):
    raw = bytearray(message(FIELD, 2, {"packingType": "grid_ccsds"}))
    raw[octet] ^= 0x40
    path = tmp_path / "a.grib"
    path.write_bytes(raw)
    with pytest.raises(DamagedFileError, match=f"byte 0: .*{words}"):
        scan(path)


def test_a_list_of_messages(tmp_path):
    paths = [tmp_path / "a.grib", tmp_path / "b.grib"]
    for path, (edition, keys, _) in zip(paths, (LAYOUTS["ed1-1"], LAYOUTS["ed2-1"]), strict=True):
        path.write_bytes(b"".join(ensemble(edition, keys)))
    lists = [scan(path) for path in paths]
    both = MessageList.concatenate(lists)
    assert list(both) == [*lists[0], *lists[1]]
    assert list(both[3:20:5]) == list(both)[3:20:5]
    assert both[-1] == lists[1][11]
    odd = both.take(np.arange(24) % 2 == 1)
    assert list(odd) == list(both)[1::2]
    assert list(pickle.loads(pickle.dumps(odd))) == list(odd)
    with pytest.raises(IndexError):
        both[24]
    with paths[1].open("rb") as file:
        np.testing.assert_allclose(decode(both[14], file), FIELD + 200, atol=1e-3)


def test_memory_of_the_index(tmp_path):
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(ensemble(1, LAYOUTS["ed1-1"][1])) * 100)
    messages = scan(path)
    assert len(messages) == 1200
    assert len(pickle.dumps(messages)) / len(messages) <= 40
    assert len(messages.meanings) == 2
