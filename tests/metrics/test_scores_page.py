"""The page of the scores and the package name the same functions; importing it is light."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ens10.metrics as metrics

sys.path.insert(0, str(Path(__file__).parents[1]))
import score_lists

PAGE = (Path(__file__).parents[2] / "docs" / "scores.md").read_text()
NAMED = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE))
# types and constants, small helpers, and states that `ens10 score` uses, which have pages of theirs
ELSEWHERE = {
    "BANDS", "EFIOptions", "FAMILIES", "Estimator", "FrozenEFI", "Interval", "Origin",
    "available_scores", "daily_differences", "ensemble_error", "ensemble_variance", "finish_eecrps",
    "group_state", "interval_ensemble", "interval_normal", "interval_quantiles", "nominal_coverage",
    "origin", "paired_differences", "pit_counts", "pit_interval", "spread_bin_sums",
    "spread_edges", "summarise", "total_over",
}  # fmt: skip


def test_every_public_score_is_on_the_page():
    assert set(metrics.__all__) - NAMED - ELSEWHERE == set()


def test_nothing_is_promised_twice():
    assert set(metrics.__all__) >= ELSEWHERE
    assert not NAMED & ELSEWHERE - {"interval"}


@pytest.mark.parametrize("name", [n for n in metrics.__all__ if n[0].islower()])
def test_every_public_function_is_documented(name):
    said = inspect.getdoc(getattr(metrics, name))
    assert said
    if "Args:" in said:  # short ones refer to others
        arguments = inspect.signature(getattr(metrics, name)).parameters
        assert [a for a in arguments if not re.search(rf"\b{a}\b", said)] == []


def test_importing_it_is_light():
    code = "import sys, ens10.metrics; print([m for m in {!r} if m in sys.modules])"
    heavy = ["torch", "numba", "dask", "scipy.stats", "scipy.optimize", "matplotlib"]
    done = subprocess.run(
        [sys.executable, "-c", code.format(heavy)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def plain(text):
    """The statements of a module, whatever their order and layout."""
    return sorted(ast.dump(node) for node in ast.parse(text).body)


@pytest.mark.parametrize("path", score_lists.lists(), ids=lambda path: path.parent.name)
def test_lists_are_those_that_the_modules_declare(path):
    """Otherwise run `python tests/score_lists.py`."""
    assert plain(path.read_text()) == plain(score_lists.lists()[path])


def test_every_score_of_a_command_is_in_its_help():
    from ens10.cli.runs import COMMANDS

    description = " ".join(map(str, vars(COMMANDS["score"]).values()))
    assert "brier_THRESHOLD, twcrps_THRESHOLD" in description
    assert "twcrps_local_LEVEL, histogram, hersbach;" in description
