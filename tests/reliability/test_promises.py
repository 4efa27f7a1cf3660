"""Every promise names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)`")


@pytest.mark.parametrize("page", ["docs/promises.md", "docs/reliability.md"])
def test_named_tests_exist(page):
    names = TEST.findall((ROOT / page).read_text())
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_every_promise_of_the_tables_names_a_test():
    rows = [r for r in (ROOT / "docs/promises.md").read_text().splitlines() if r.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "| what"))]
    assert len(promises) > 15
    assert [row for row in promises if not TEST.search(row)] == []
