"""The list of long tests names tests that exist, and those are left out of the quick run."""

import ast
from functools import cache
from pathlib import Path

import long_tests

ROOT = Path(__file__).parents[1]


@cache
def functions(file):
    """The test functions of a file, methods with their class."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + part.name for part in parts if isinstance(part, ast.FunctionDef)}
    return found


def test_each_exists():
    missing = [
        name
        for name in long_tests.names()
        if name.partition("::")[2] not in functions(name.partition("::")[0])
    ]
    assert not missing, "remove these lines from tests/long_tests.txt"


def test_the_list_is_sorted_and_has_each_once():
    assert long_tests.names() == sorted(set(long_tests.names()))


def test_the_length_of_a_call_counts():
    log = "3.20s call     tests/a.py::test_b[x-1]\n9.00s setup    tests/a.py::test_c\n"
    assert long_tests.long_ones(log, 2.5) == {"tests/a.py::test_b"}


def test_none_of_them_is_quick(request):
    quick = {i.nodeid.partition("[")[0] for i in request.session.items if "slow" not in i.keywords}
    assert quick
    assert not quick & set(long_tests.names())
