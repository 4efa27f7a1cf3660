"""docs/data.md lists what is read as the code has it."""

import what_is_read


def test_the_tables_of_the_page_are_those_of_the_code():
    page = what_is_read.PAGE.read_text()
    assert what_is_read.BEGIN in page
    assert what_is_read.page_with_tables(page) == page, "run python tests/what_is_read.py"
