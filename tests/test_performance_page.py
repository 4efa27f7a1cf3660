"""The speeds in docs/performance.md: rows are those of the results, and older code is marked."""

import importlib
import sys
from pathlib import Path

import pytest

from ens10.experiments.scoring.writers import fill_section

ROOT = Path(__file__).parents[1]
# What checks cost: docs/reliability.md tells it. Others have pages of their own.
ELSEWHERE = {
    "checksums", "cuda", "gribflips", "gribguard", "import_time", "integrity", "isotonic", "soak",
    "statistical", "statistical_against", "step_counts", "train_for_less", "unet_step", "walks",
}  # fmt: skip


@pytest.fixture
def performance_page(monkeypatch):
    """The module that writes the page."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("performance_page")


def test_there_is_a_row_for_each_script(performance_page):
    names = {row.script for row in performance_page.rows()}
    assert names == {*performance_page.results()} - ELSEWHERE
    for name in names:
        assert (ROOT / "benchmarks" / f"{name}.py").is_file()


def test_the_table_is_that_of_the_results(performance_page):
    """A row whose code has changed must be measured again, or be marked as of older code."""
    results = performance_page.results()
    python = f"{sys.version_info.major}.{sys.version_info.minor}."
    if not all(r["machine"]["python"].startswith(python) for r in results.values() if "code" in r):
        pytest.skip("digests of code differ between versions of Python")
    text = performance_page.PAGE.read_text()
    remedy = (
        "Run `python benchmarks/NAME.py --out benchmarks/results/NAME.json` on a quiet machine for "
        "what has changed, then `python benchmarks/performance_page.py`, which marks the others"
    )
    assert fill_section(text, "speeds", performance_page.table(results)) == text, remedy


def test_old_code_and_misses_are_marked(performance_page):
    code = ["store/file_bytes"]
    lines = [{"what": "a", "value": 0.5, "target": ">= 0.75", "met": False}]
    fresh = {
        "lines": lines,
        "code": {"commit": "c0ffee", "digests": performance_page.digests(code)},
    }
    older = {"lines": lines, "code": {"commit": "c0ffee", "digests": {"store/file_bytes": "0"}}}
    row = performance_page.Row("what", "script", bounds=("1", "2"))
    rows = [performance_page.line_of(row, r) for r in (fresh, older, {"lines": lines})]
    assert rows == [
        "| what | ≥ 0.75 | **0.5** | 1; 2 | c0ffee | script |",
        "| what | ≥ 0.75 | **0.5** | 1; 2 | c0ffee † | script |",
        "| what | ≥ 0.75 | **0.5** | 1; 2 | unknown † | script |",
    ]


def test_a_change_of_code_changes_the_digest_and_one_of_a_docstring_does_not(
    performance_page, monkeypatch, tmp_path
):
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "_ROOT", tmp_path)
    folder = tmp_path / "ens10" / "package"
    folder.mkdir(parents=True)
    found = []
    for text in ("x = 1", '"""Words."""\nx = 1  # one', "x = 2"):
        (folder / "module.py").write_text(text)
        found.append((common.digests(["package"]), common.digests(["package/module"])))
    assert found[0] == found[1] != found[2]


def test_a_result_knows_its_script_and_all_rows_do(performance_page):
    for name in {row.script for row in performance_page.rows()}:
        assert f"benchmarks/{name}" in performance_page.results()[name]["code"]["digests"]
