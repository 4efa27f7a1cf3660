"""The lists that a command writes from the registry are up to date, and it adds what is new."""

import generated_lists
import pytest


@pytest.mark.parametrize("path", generated_lists.files(), ids=lambda p: p.name)
def test_lists_are_up_to_date(path):
    message = "run python tests/generated_lists.py"
    assert path.read_text() == generated_lists.files()[path], message


def test_a_new_family_is_added_in_order():
    text = 'from a.b import x\nfrom a.d import (\n    y,\n)\n\n__all__ = [\n    "x",\n    "y",\n]\n'
    found = generated_lists.with_imports(text, {"a.c": ["m"], "a.d": ["w"], "a.e": ["z"]})
    found = generated_lists.with_all(found, ["A", "B_c", "m", "w", "z"])
    imports = "from a.b import x\nfrom a.c import m\nfrom a.d import w, y\nfrom a.e import z\n"
    names = "".join(f'    "{name}",\n' for name in ("A", "B_c", "m", "w", "x", "y", "z"))
    assert found == f"{imports}\n__all__ = [\n{names}]\n"


def test_a_block_of_a_page_is_replaced():
    page = "before\n<!-- f -->\nold\n<!-- end of f -->\nafter\n"
    found = generated_lists.with_block(page, "f", ["new", "lines"])
    assert found == "before\n<!-- f -->\nnew\nlines\n<!-- end of f -->\nafter\n"
