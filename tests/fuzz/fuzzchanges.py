"""Changes of one input of a fuzz target: of its bytes, or within its format."""

import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

Change = Callable[[bytearray, list[bytes], random.Random], None]
_INTERESTING = (0, 1, 2, 7, 0x0A, 0x20, 0x22, 0x7F, 0x80, 0xFE, 0xFF)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 0.5, -0.0, 1e300, 10**30, 2**31, 2**63, -(2**63), "", "x",
    "NaN", "Infinity", "-Infinity", "0x7fc00000", "AAAAAAAA+H8=", "|O", "<f8", ">i2", "<M8[ns]",
    "|S3", "<U4", "float16", "complex64", "int8", "time", "latitude", "days since 2001-01-01",
    "months since 1-1-1", "hours since 2001", "bytes", "zstd", "blosc", "gzip", "crc32c",
    "sharding_indexed", "transpose", "vlen-utf8", "fixedscaleoffset", "\u202e", "\x1b[2J", "a\nb",
    "../../x", "/", [], [0], [0, 0], [2, 3], [1, 1, 1, 1, 1], ["x"], [[]], {}, {"name": "x"},
    {"id": "zlib"}, {"name": "bytes", "configuration": {}},
)  # fmt: skip
_CELLS = (
    "", " ", "nan", "NaN", "NA", "inf", "-inf", "1e400", "-1", "0", "1", "1.5", "1,5", "24h", "1e3",
    "99999999999999999999", "0x10", "True", "None", "x", "a", "b", "é", "\x00", "\x1b[2J", "\u202e",
    '"', '""', '"a', "'", "=1+1", "2001-01-01", "2001-02-30", "2001-01-01T25", "20010101",
    "2001010106", "20019999", "978307200", "978307200000000000", "2262-04-12", "9999-12-31",
    "0000-00-00", "01/02/2001", "2001-01-01T00:00+01:00", "2001-W01-1", "91", "-181", "361",
    "1e-320", "time", "step", "number", "station", "lat", "lon", "level", "valid_time", "u10",
)  # fmt: skip


def change_bytes(content: bytearray, corpus: list[bytes], rng: random.Random) -> None:
    """Other bits, bytes or numbers; less, more or repeated bytes; bytes of another input."""
    size = len(content)
    at, span = rng.randrange(size + 1), min(int(rng.expovariate(0.1)) + 1, 256)
    kind = rng.randrange(7)
    if kind == 0 and at < size:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < size:
        content[at] = rng.choice(_INTERESTING)
    elif kind == 2:
        wide = rng.choice((1, 2, 4, 8))
        number = rng.choice((0, 1, 2**31 - 1, 2**63, 2**64 - 1, rng.getrandbits(8 * wide)))
        order = rng.choice(("big", "little"))
        content[at : at + wide] = (number % 256**wide).to_bytes(wide, order)
    elif kind == 3:
        del content[at : at + span]
    elif kind == 4:
        content[at:at] = rng.randbytes(span)
    elif kind == 5:
        content[at:at] = content[at : at + span] * rng.choice((1, 2, 30))
    else:
        other = rng.choice(corpus)
        begin = rng.randrange(len(other) + 1)
        content[at : at + span] = other[begin : begin + span]


def change_json(content: bytearray, corpus: list[bytes], rng: random.Random) -> None:
    """Another value, name or place of one part of a JSON document after the first byte."""
    try:
        document = json.loads(content[1:])
    except (ValueError, RecursionError):
        document = None
    nodes = [document] if isinstance(document, dict | list) else []
    found = list[tuple[Any, Any]]()
    while nodes:
        node = nodes.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        found += [(node, key) for key in keys]
        nodes += [node[key] for key in keys if isinstance(node[key], dict | list)]
    if not found:
        change_bytes(content, corpus, rng)
        return
    (node, key), (other, place) = rng.choice(found), rng.choice(found)
    kind = rng.randrange(6)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[rng.choice([str(place), "dtype", "x", "_FillValue", "units"])] = node.pop(key)
    elif kind == 2:
        node[key] = copy.deepcopy(other[place])
    elif kind == 3:
        node[key] = [node[key]] * rng.choice((0, 1, 2, 40))
    else:
        node[key] = rng.choice(_VALUES)
    content[1:] = json.dumps(document).encode()


def change_table(content: bytearray, corpus: list[bytes], rng: random.Random) -> None:
    """Other cells, rows or columns of a table."""
    if content.startswith(b"PAR1"):
        _change_parquet(content, rng)
        return
    separator = ";" if content.count(b";") > content.count(b",") else ","
    rows = [line.split(separator) for line in content.decode("utf-8", "replace").split("\n")]
    if rng.random() < 0.6:
        _change_cell(rows, rng)
    elif rng.random() < 0.5:
        _change_column(rows, rng)
    else:
        _change_rows(rows, rng)
    content[:] = "\n".join(map(separator.join, rows)).encode()


def _change_cell(rows: list[list[str]], rng: random.Random) -> None:
    row, other = rng.choice(rows), rng.choice(rows)
    at, place = rng.randrange(len(row)), rng.randrange(len(other))
    kind = rng.randrange(5)
    if kind == 0:
        row[at], other[place] = other[place], row[at]
    elif kind == 1:
        rows[0][at % len(rows[0])] = rng.choice(_CELLS)
    elif kind == 2 and len(row) > 1:
        del row[at]
    else:
        row[at] = rng.choice(_CELLS)


def _change_column(rows: list[list[str]], rng: random.Random) -> None:
    """Another value in all rows; or a column less, or twice."""
    at, cell, count = rng.randrange(len(rows[0])), rng.choice(_CELLS), rng.choice((0, 1, 1, 2))
    for n, row in enumerate(rows):
        if at < len(row) and (count or len(row) > 1):
            row[at : at + 1] = [cell if n and count == 1 else row[at]] * count


def _change_rows(rows: list[list[str]], rng: random.Random) -> None:
    """A row less, or twice."""
    row = rng.choice(rows)
    if rng.random() < 0.5 and len(rows) > 2:
        rows.remove(row)
    else:
        rows.insert(rng.randrange(len(rows) + 1), [*row])


def _change_parquet(content: bytearray, rng: random.Random) -> None:
    """Another type, name or value of one column."""
    import pyarrow as pa
    from pyarrow import parquet

    errors = (OSError, OverflowError, TypeError, ValueError, AttributeError, pa.ArrowException)
    try:
        table = parquet.read_table(pa.BufferReader(bytes(content)))
        at = rng.randrange(table.num_columns)
        values = table.column(at).to_pylist()
    except errors:
        change_bytes(content, [bytes(content)], rng)
        return
    kind, wanted, name = rng.randrange(4), None, table.column_names[at]
    if kind == 0 and values:
        values[rng.randrange(len(values))] = rng.choice((None, 0, -1, 1e300, 10**18, "x", "", b"x"))
    else:
        wanted = rng.choice(_types())
    if kind == 3:
        name = rng.choice(_CELLS)
    out = pa.BufferOutputStream()
    with suppress(*errors):
        column = pa.array(values, type=wanted, from_pandas=True, safe=False)
        parquet.write_table(table.set_column(at, name, column), out)
        content[:] = out.getvalue().to_pybytes()


@cache
def _types() -> list[Any]:
    import pyarrow as pa

    return [
        pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.bool_(), pa.date32(),
        pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"),
        pa.string(), pa.binary(), pa.decimal128(38, 3), pa.list_(pa.float32()), pa.null(),
        pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.struct([("x", pa.int8())]),
    ]  # fmt: skip
