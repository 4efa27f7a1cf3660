"""The study of blends, on two ensembles of one small world."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ens10.convert import prepare
from ens10.experiments.forecasts.blend import blend_runs
from ens10.experiments.runner.results import Results
from ens10.experiments.scoring.writers import fill_section
from ens10.experiments.studies import blending as study
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.synthetic import World

ONE, NONE = "emos_global", study.NONE
RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "blending"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of the study, of six members and of four others of a world."""
    folder = tmp_path_factory.mktemp("blending")
    years = range(2000, 2003)  # too few for the usual protocol
    world = World("8x16", years, 16, ["t2m", "u10"], steps=(48,)).write(folder / "world")
    (folder / "halves.yaml").write_text("{name: halves, train: 0.5, val: 0, test: 0.5}")
    for name, members in (("six", range(1, 7)), ("four", range(7, 11))):
        prepare(world, folder / f"{name}.zarr", truth=world / "truth", members=members)
    assert study.main(command(folder)) == 0
    return folder


def command(folder):
    stores = ["--stores", str(folder / "six.zarr"), str(folder / "four.zarr")]
    options = ["--out", str(folder / "out"), "--protocol", str(folder / "halves.yaml")]
    return [str(folder / "work"), *stores, *options, "--methods", ONE]


def scores_of(done):
    with Results(done / "out").temporary_folder() as cells:
        (result,) = read_json_cells(cells).values()
    return {(one["forecast"], one["missing"]): one for one in result["scores"]}


def test_two_ensembles_of_one_truth_are_better_together(done):
    scores = scores_of(done)
    means = {place: np.mean(one["crps"]) for place, one in scores.items()}
    assert len({len(one["crps"]) for one in scores.values()}) == 1
    assert means["A", NONE] < means["B", NONE]  # six members, four members
    assert means["emos", NONE] < means["A", NONE]
    for pool in ("linear", "beta", "emos"):
        assert 0.5 < scores[pool, NONE]["weights"][0] < 1.0


@pytest.mark.parametrize("missing", study.RUNS)
def test_the_other_run_stands_for_one_that_is_missing(done, missing):
    scores = scores_of(done)
    other = "BA"[study.RUNS.index(missing)]
    linear = scores["linear", missing]["crps"][1::2]
    np.testing.assert_allclose(linear, scores[other, NONE]["crps"][1::2], rtol=2e-2)
    both = np.array(scores["linear", NONE]["crps"][1::2])
    assert np.abs(np.subtract(linear, both)).max() > 1e-3 * both.mean()


def test_gains_are_on_the_better_run_that_is_there(done):
    with (done / "out" / "table.csv").open() as file:
        rows = {(r["forecast"], r["missing"]): r for r in csv.DictReader(file)}
    crps = {place: np.array(one["crps"]) for place, one in scores_of(done).items()}
    assert list(rows) == list(crps)
    mixed = crps["A", NONE].copy()
    mixed[1::2] = crps["B", NONE][1::2]
    for (forecast, missing), row in rows.items():
        reference = mixed if missing == "A" else crps["A", NONE]
        gain = 100 * (1 - crps[forecast, missing].mean() / reference.mean())
        assert float(row["gain"]) == pytest.approx(gain, abs=1e-6)
        assert float(row["lower"]) <= float(row["gain"]) <= float(row["upper"])
    assert float(rows["A", NONE]["gain"]) == 0.0


def test_a_complete_study_is_not_computed_again(done, monkeypatch, capsys):
    monkeypatch.setattr(study, "blend_runs", pytest.fail)
    assert study.main(command(done)) == 0
    assert capsys.readouterr().out == (done / "out" / "table.md").read_text() + "\n"


def test_runs_of_one_name_are_told_apart_by_their_paths(done, tmp_path):
    runs = sorted((done / "work").glob(f"[AB]/**/runs/{ONE}"))
    weights = blend_runs(runs, tmp_path / "b.zarr")
    assert list(weights) == [str(run) for run in runs]
    stored = json.loads((tmp_path / "b.zarr" / "zarr.json").read_text())["attributes"]
    assert stored["blend_of"] == list(weights)


@pytest.mark.parametrize("folder", ["", "five_members/one_model", "five_members/two_models"])
def test_the_kept_tables_are_those_of_the_cells(folder, tmp_path):
    shutil.copy(RESULTS / folder / "cells.zip", tmp_path)
    stores = ["--stores", "a.zarr", "b.zarr", "--tables"]
    assert study.main([str(tmp_path / "work"), *stores, "--out", str(tmp_path)]) == 0
    for name in ("table.md", "table.csv"):
        assert (RESULTS / folder / name).read_text() == (tmp_path / name).read_text()


def test_the_page_has_the_kept_table():
    page, table = ((RESULTS / name).read_text() for name in ("README.md", "table.md"))
    assert fill_section(page, "table", table) == page
