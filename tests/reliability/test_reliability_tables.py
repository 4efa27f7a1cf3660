"""The tables of docs/reliability.md are those of their JSON."""

import json
from pathlib import Path

import reliabilitytables as tables

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_tables_of_their_json():
    page = tables.PAGE.read_text()
    assert tables.with_tables(page) == page


def test_each_row_has_a_test():
    for row in json.loads((tables.HERE / "tried.json").read_text()):
        assert (ROOT / row["test"]).is_file(), row
        assert row["held"]


def test_a_row_says_how_many_kills_there_were():
    count = {"operations": {"open": 3, "write": 4, "fsync": 9}, "every": 2, "trials": 15,
             "at_random": 10, "differences": ["x"]}  # fmt: skip
    assert tables._kills_of("`x`", count) == "| `x` | 7 | 5, at each 2nd | 10 | 1 |"
    del count["at_random"]
    assert tables._kills_of("`x`", count | {"every": 1}) == (
        "| `x` | 7 | 15, at each (earlier code) | 0 | 1 |"
    )
