"""Packages and modules of `metrics` import one way, also inside functions and by name."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

METRICS = Path(__file__).parents[2] / "metrics"
FIRST = r"ens10\.metrics\.(\w+)"  # the package or module directly in `metrics`


def box(path):
    """The package, or the module that is in none."""
    return path.relative_to(METRICS).parts[0].removesuffix(".py")


def imported(text):
    """The packages and modules of `metrics` that a file imports, wherever in it."""
    direct = re.findall(r"from ens10\.metrics import ([\w, ]+)$", text, re.M)
    names = [name.strip() for line in direct for name in re.sub(r" as \w+", "", line).split(",")]
    return {*names, *re.findall(rf"(?:from|import) {FIRST}", text), *re.findall(f'"{FIRST}', text)}


def order(texts):
    """The boxes from the lowest to the highest; a CycleError if there is none."""
    graph = {}
    for name, text in texts:
        graph.setdefault(name, set()).update(imported(text) - {name})
    return list(TopologicalSorter(graph).static_order())


def without_strings(path):
    """The source without docstrings, whose examples import what users do."""
    return re.sub(r'"""(?!.*""").*?"""|""".*?"""', "", path.read_text(), flags=re.S)


def test_imports_go_one_way():
    files = [path for path in METRICS.rglob("*.py") if path != METRICS / "__init__.py"]
    found = order((box(path), without_strings(path)) for path in files)
    rooms = ["_sums", "states", "calibration", "distributions", "scores", "verification"]
    assert sorted(rooms, key=found.index) == rooms


@pytest.mark.parametrize(
    "text",
    [
        "from ens10.metrics.b import x",
        "def f():\n    from ens10.metrics.b.c import x",
        "from ens10.metrics import b as other",
        'x = import_later("ens10.metrics.b._torch", "f")',
    ],
)
def test_a_circle_is_seen(text):
    with pytest.raises(CycleError):
        order([("a", text), ("b", "import ens10.metrics.a.c")])
