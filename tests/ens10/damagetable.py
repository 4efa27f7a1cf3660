"""The table of damages: what makes each, and which words tell of it.

Each row makes a file and names the words that must be told: which file, which place in it, and what
to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import damagefiles as made
from damagefiles import FIELDS, LOST, at, write
from gribfiles import values_of


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
CONVERT = "Convert the values (of a table: the column) to K"
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
        ["duplicated with the same values", "byte {first} and {path} at byte {byte}", "remove one"],
        ["{path}", "byte {byte}", "a second time", "the same values", "Remove one"],
    ),
    "j.grib: a message twice, different": Damage(
        twice_different,
        ["duplicated with different", "byte {first} and {path} at byte {byte}", "remove one"],
        ["{path}", "byte {byte}", "a second time", "different values", "Remove one"],
    ),
    "k.grib: a message on another grid": Damage(
        wrong_grid, ["{path}", "byte {byte}", "61 to 41 N", "Correct or remove it"],
        ["{path}", "byte {byte}", "61 to 41 N", "Correct or remove it"],
    ),
    "l.grib: a message on a wrong level": Damage(
        wrong_level,
        ["only 1 field of z on this level", "{path} at byte {byte}", "mend its level"],
        ["{path}", "2016-01-05T00", "z 500 hPa", "z 501 hPa"],
    ),
    "m.grib: a surface variable on a pressure level": Damage(
        on_a_level,
        ["lies at the surface, not on a pressure level", "{path} at byte {byte}", "mend its level"],
        ["{path}", "byte {byte}", "typeOfLevel", "Correct or remove it"],
    ),
    "n.grib: Celsius": Damage(
        celsius, ["{path} at byte {byte}", "looks like Celsius", CONVERT],
        ["{path} at byte {byte}", "looks like Celsius", CONVERT],
    ),
    "o.grib: flipped bit in the first byte": Damage(
        first_bytes,
        ["{path}", "damaged at byte 0", "first GRIB message begins at byte {next}", "Fetch it"],
        ["{path}", "damaged at byte 0", "bytes belong to no message", "cut these bytes off"],
    ),
    "p: zeros": Damage(
        zeros, ["{path}", "damaged at byte 0", "begins with zeros", "Fetch"],
        ["{path}", "damaged at byte 0", "begins with zeros", "Fetch"],
    ),
    "q: empty": Damage(
        empty, ["{path}", "the file is empty", "Fetch"], ["{path}", "the file is empty"]
    ),
    "r: neither GRIB nor netCDF": Damage(
        neither, ["{path}", "neither a GRIB nor a netCDF file", "Pass the right path"],
        ["{path}", "neither a GRIB nor a netCDF file", "Pass the right path"],
    ),
    **{
        f"{fmt}.nc: netCDF cut": Damage(
            netcdf_cut(fmt), ["{path}", "damaged at byte {byte}", "lacks 300 bytes", FETCH],
            ["{path}", "damaged at byte {byte}", "lacks 300 bytes", FETCH],
        )
        for fmt in ("NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF3_64BIT_DATA")
    },
    "s.nc: netCDF with damaged values": Damage(
        netcdf_corrupt,
        ["{path}: t2m time 2016-01-03T00 step 48 (index 2, 1)", "cannot be read", FETCH],
    ),
    "t.nc: Celsius": Damage(
        netcdf_celsius,
        ["{path}: t2m time 2016-01-01T00 step 24 (index 0, 0) number 1", "looks like Celsius",
         CONVERT],
        ["looks like Celsius", CONVERT],
    ),
    "u.nc: units of another quantity": Damage(
        netcdf_units, ["{path}", "units 'm s-1'", "Convert it"],
        ["{path}", "units 'm s-1'", "Convert it"],
    ),
}  # fmt: skip


def assert_told(text, words, **given):
    for word in words:
        assert word.format(**given) in text, (word.format(**given), text)
