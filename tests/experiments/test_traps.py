"""Traps: one rule at a time, what is measured, and that the page tells what was measured."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import properscoring
import pytest
from realruns import compute_here
from scipy.stats import ttest_1samp

from ens10.errors import FileError, MissingDataError
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.studies.traps import __main__ as traps
from ens10.experiments.studies.traps import cells as training
from ens10.experiments.studies.traps.tables import (
    TRAPS,
    change_from_clean,
    fill_page,
    mean_of,
    read_results,
    tables,
    traps_figure,
    write_tables,
)
from ens10.loader import Batches
from ens10.protocol import protocol_of
from ens10.splits import split_dates

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "experiments" / "results" / "traps", ROOT / "docs" / "traps.md"


@pytest.fixture(scope="module")
def committed():
    with Results(RESULTS).temporary_folder() as kept:
        return read_results(kept)


def test_the_page_shows_the_committed_results(committed):
    page = PAGE.read_text()
    assert fill_page(page, tables(committed)) == page


def test_the_committed_table_is_that_of_the_results(committed, tmp_path):
    write_tables(committed, tmp_path)
    for name in ("table.md", "table.csv"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text()


def test_numbers_in_the_pages_text_are_in_its_tables():
    page = PAGE.read_text()
    shown = set(re.findall(r"\d+\.\d+", " ".join(re.findall(r"^\|.*$", page, re.M))))
    told = set(re.findall(r"(?<![\d.])\d+\.\d+(?= %)", re.sub(r"^\|.*$", "", page, flags=re.M)))
    assert told <= shown | {number.rstrip("0") for number in shown}


def test_the_pages_protocol_is_one(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    assert protocol_of(tmp_path / "mine.yaml").test == [2016, 2017]


def test_each_trap_is_one_rule_of_the_paper():
    clean, paper = training.PROTOCOLS["clean"], protocol_of("paper")
    names = [one.name for one in fields(clean)]
    seen = set()
    for name, protocol in training.PROTOCOLS.items():
        changed = {n for n in names if getattr(protocol, n) != getattr(clean, n)} - {"name"}
        assert all(getattr(protocol, n) == getattr(paper, n) for n in changed)
        assert protocol.train == clean.train
        assert len(changed) == (0 if name == "clean" else 6 if name == "all" else 1)
        seen |= changed
    rest = {"name", "test", "train", "split_by", "members", "fair_crps", "efi"}
    assert seen == set(names) - rest
    assert set(TRAPS) == set(training.PROTOCOLS) - {"clean"}


@pytest.mark.parametrize("name", list(training.PROTOCOLS))
def test_no_protocol_looks_at_the_fresh_years(name):
    years = range(1998, 2010)
    starts = np.array([f"{year}-06-01" for year in years], "datetime64[ns]")
    splits = split_dates(training.PROTOCOLS[name], starts, starts + np.timedelta64(48, "h"))
    used = {year for held in splits.years.values() for year in held}
    selects = training.PROTOCOLS[name].selects_on_test()
    assert used == set(range(1998, 2008)) - (set(training.VAL) if selects else set())
    fresh = split_dates(training.on_years(training.PROTOCOLS[name], training.FRESH), starts, starts)
    assert fresh.years["test"] == training.FRESH


def cell(reported, fresh):
    return {"reported": reported, "fresh": fresh}


def test_means_are_paired_by_seed_with_students_interval():
    pairs = [(1.0, 1.1), (2.0, 2.1), (4.0, 4.5)]
    results = {n: {"clean": cell(a, a), "all": cell(b, b)} for n, (a, b) in enumerate(pairs)}
    results[3] = {"clean": cell(1.0, 1.0)}  # not there yet
    mean = mean_of(results, change_from_clean("all", "fresh"))
    percent = [100 * (b / a - 1) for a, b in pairs]
    bounds = ttest_1samp(percent, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose([mean.value, mean.lower, mean.upper], [np.mean(percent), *bounds])
    assert mean.seeds == 3
    assert mean.is_clear == (ttest_1samp(percent, 0.0).pvalue < 0.05)
    one = mean_of({0: results[0]}, change_from_clean("all", "fresh"))
    assert (one.text("+.1f"), one.is_clear) == ("+10.0", False)
    assert mean_of({}, change_from_clean("all", "fresh")).text("+.1f") == "–"


def test_what_is_within_noise_is_marked():
    noisy = {n: {"clean": cell(1, 1), "all": cell(1, 1 + x)} for n, x in enumerate((-0.1, 0.12))}
    assert mean_of(noisy, change_from_clean("all", "fresh")).text("+.1f").endswith("≈")
    assert mean_of(noisy, change_from_clean("all", "fresh")).text("+.1f").startswith("+1.0 [−")


def test_a_page_without_places_is_refused():
    with pytest.raises(MissingDataError, match="a place for the table trained"):
        fill_page("# A page\n", {"trained": []})


def test_results_that_are_none(tmp_path):
    with pytest.raises(MissingDataError):
        read_results(tmp_path)
    file = tmp_path / "seed0" / "clean" / "result.json"
    file.parent.mkdir(parents=True)
    for damaged in ("{", "[1]"):
        file.write_text(damaged)
        with pytest.raises(FileError, match="run again"):
            read_results(tmp_path)


def test_the_figure_has_a_row_for_each_trap():
    pairs = {name: cell(1.0 + n / 10, 1.0) for n, name in enumerate(("clean", *TRAPS))}
    (axes,) = traps_figure({0: pairs, 1: pairs}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(reversed(TRAPS.values()))


def test_a_page_that_is_not_there_is_told_before_anything_is_done(tmp_path, capsys):
    words = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--page", "no.md"]
    assert traps.main(words) == 1
    assert "no.md: no such page" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_world_from_end_to_end(tmp_path, monkeypatch, capsys):
    """Every trap is trained and scored; what is there is not done again."""
    monkeypatch.setattr(training, "GRID", "8x12")
    monkeypatch.setattr(training, "DATES", 3)
    monkeypatch.setattr(training, "EPOCHS", 2)
    monkeypatch.setattr(running, "start_cell", compute_here)
    out = tmp_path / "out"
    words = [str(tmp_path / "work"), "--out", str(out), "--seeds", "0"]
    assert traps.main(words) == 0
    with Results(out).temporary_folder() as kept:
        results = read_results(kept)
    assert set(results[0]) == {"raw", *training.PROTOCOLS}
    check_selection(results[0])
    check_raw(results[0]["raw"], tmp_path / "work" / "seed0" / "store.zarr")
    assert (out / "traps.png").stat().st_size > 10_000

    monkeypatch.setattr(running, "start_cell", lambda cell, *_: f"{cell.name} again")
    assert traps.main(words) == 0
    monkeypatch.setattr(training, "EPOCHS", 3)  # of which the raw ensemble knows nothing
    assert traps.main(words) == 1
    text = capsys.readouterr().out
    assert text.count("raw, seed 0: complete") == 2
    assert "clean, seed 0: FAILED: clean, seed 0 again" in text


def check_selection(held):
    """On the test years nothing is better than the epoch that was selected by them."""
    chosen = held["selection"]
    assert chosen["reported"] <= held["clean"]["reported"]
    assert chosen["losses"][chosen["epoch"] - 1] == min(chosen["losses"])
    np.testing.assert_allclose(chosen["test"], min(chosen["losses"]), rtol=1e-5)
    assert held["clean"]["test"] == held["clean"]["reported"]
    assert held["weights"]["test"] != held["weights"]["reported"]


def check_raw(raw, store):
    """The CRPS of properscoring on members read with the loader, weighted by numpy."""
    (batch,) = Batches(
        store, "t2m", ["t2m"], "test", protocol=training.PROTOCOLS["clean"], members=True,
        batch_size=6,
    )  # fmt: skip
    members = np.moveaxis(batch["members"], 1, -1).astype(np.float64)
    crps = properscoring.crps_ensemble(batch["target"].astype(np.float64), members)
    np.testing.assert_allclose(raw["crps"]["none"], crps.mean(), rtol=1e-5)
    weighted = (crps * batch["weights"]).mean()
    np.testing.assert_allclose(raw["crps"]["cell"], weighted, rtol=1e-5)
    five = properscoring.crps_ensemble(batch["target"].astype(np.float64), members[..., :5])
    np.testing.assert_allclose(
        raw["estimators"]["plain"]["5"], (five * batch["weights"]).mean(), rtol=1e-5
    )
    ratio = raw["spread_error"]["n"] / raw["spread_error"]["n-1"]
    np.testing.assert_allclose(ratio, 0.9**0.5, rtol=1e-5)
    check_extremes(raw["extremes"], raw["crps"]["cell"])


def check_extremes(found, crps):
    """The step function of 21 levels never gives more than 0.791; the optimum is the best."""
    for name, index in found.items():
        limit = 0.7914 if name in ("levels", "all") else 1.0
        assert 0 < index["mean_abs"] < index["max_abs"] <= limit
        assert index["optimum"] < index["raw"] < crps
    assert found["clean"]["max_abs"] > 0.7914
