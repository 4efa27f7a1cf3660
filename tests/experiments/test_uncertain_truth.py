"""The study of errors of the truth: made-up stations, analyses of a small world, and rankings."""

import csv

import numpy as np
import pytest
import xarray as xr
from realruns import compute_here

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.tasks import Task
from ens10.experiments.runner.trainings import find_cells, read_cell
from ens10.experiments.scoring.run_results import mean_score
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.experiments.studies.uncertain_truth import __main__ as study
from ens10.experiments.studies.uncertain_truth import analyses, stations, tables
from ens10.experiments.studies.unseen_places import make_stations
from ens10.models.statistical import EMOS, Raw
from ens10.store import open_store
from ens10.synthetic import World

METHODS = {"raw": Raw(), "emos_local": EMOS(local=True)}
MODELS = ["raw", "unet"]
INPUTS = ["t2m", "u10", "v10"]


@pytest.fixture(scope="module")
def data():
    return make_stations(places=12, dates=120)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    top = tmp_path_factory.mktemp("truth")
    World("9x16", range(1998, 2006), 6, INPUTS, 0, steps=(24, 48)).write_once(top / "world")
    return prepare(top / "world", top / "store.zarr", truth=top / "world" / "truth")


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_errors_have_their_deviation_and_correlation(data, correlation):
    """Exactly, with noise of unit variance at each place that is orthogonal to the error."""
    members, truth = data
    mean = members.mean("number")
    model = (mean - truth).transpose("time", ...)
    model = model - model.mean("time")
    noise = model.copy(data=np.random.default_rng(0).normal(size=model.shape))
    noise = noise - noise.mean("time")
    noise = noise - (noise * model).mean("time") / (model**2).mean("time") * model
    noise = noise / noise.std("time")
    size = xr.full_like(model[0], 0.5) + 0.1 * np.arange(12)
    errors = analyses.analysis(mean, truth, size, correlation, noise) - truth
    np.testing.assert_allclose(errors.mean("time"), 0, atol=1e-5)
    np.testing.assert_allclose(errors.std("time"), size, rtol=1e-5)
    np.testing.assert_allclose(xr.corr(errors, model, "time"), correlation, atol=1e-5)


def test_the_table_has_the_scores_of_each_case(data, monkeypatch, tmp_path):
    monkeypatch.setattr(stations, "METHODS", METHODS)
    monkeypatch.setattr(stations, "make_stations", lambda: data)
    monkeypatch.setattr(stations, "CASES", (stations.CASES[0], *stations.CASES[3:]))
    assert study.main([str(tmp_path)]) == 0
    with (tmp_path / "table.csv").open() as file:
        rows = [list(row.values()) for row in csv.DictReader(file)]
    scores = {tuple(row[:2]): [float(x) for x in row[2:]] for row in rows}
    assert len(scores) == len(rows) == 7
    true = scores["none", "true state"]
    assert true[1] < true[0]
    assert scores["1 K, random", "true state"][0] == true[0]  # raw is not fitted
    assert scores["1 K, random", "analysis"][1] > true[1] + 0.1
    assert scores["1 K, correlated", "analysis"][1] < true[1]


@pytest.mark.parametrize(("case", "correlation"), analyses.CORRELATIONS.items())
def test_a_store_of_analyses_has_the_same_forecasts_and_smooth_errors(
    store, tmp_path, case, correlation
):
    path = analyses.analysis_store(store, case, "t2m", 48, tmp_path)
    assert analyses.analysis_store(store, case, "t2m", 48, tmp_path) == path
    assert analyses.analysis_store(store, "none", "t2m", 48, tmp_path) == store
    members, others = (open_store(one, "sfc").sel(step=[48]) for one in (store, path))
    xr.testing.assert_equal(members, others)
    mean, truth = analyses.read_fields(store, "t2m", 48)
    errors = analyses.read_fields(path, "t2m", 48)[1] - truth
    model = mean - truth
    size = analyses.analysis_error(mean, truth)
    np.testing.assert_allclose(size, 0.5 * np.sqrt((model**2).mean("time")))
    # 48 dates and few independent places: a sample of the numbers that are exact above
    assert float((errors**2 / size**2).mean()) == pytest.approx(1, abs=0.1)
    assert float(xr.corr(errors, model, "time").mean()) == pytest.approx(correlation, abs=0.08)
    white = errors / size - correlation * (model - model.mean("time")) / model.std("time")
    assert float(xr.corr(white[:, 4], white[:, 4].roll(longitude=1)).mean()) > 0.2


def scores_of(**means):
    """CRPS of 40 dates by model, without errors, and of models whose means are pairs."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1 + len(means), 40))
    draws -= draws.mean(1, keepdims=True)  # so that the means are exact
    weather, noise = 1 + 0.2 * draws[0], dict(zip(means, 0.002 * draws[1:], strict=True))
    return [
        {model: [(pair[n] * weather + noise[model]).tolist()] for model, pair in means.items()}
        for n in (0, 1)
    ]


def test_pairs_that_change_their_order_are_listed_with_their_difference():
    before, after = scores_of(
        raw=(2.0, 1.5), best=(1.0, 1.2), second=(1.1, 1.1), tied=(1.0999, 1.2001)
    )
    orders, changes = tables.order_rows({tables.TRUE: before, ("random", "analysis"): after})
    assert orders[0][2:] == ["6", "0", "0", "best < tied < second < raw"]
    # of `tied` and `second`, whose order was not distinguished, the change reverses nothing
    assert orders[1] == ["random", "analysis", "6", "2", "1", "second < best < tied < raw"]
    rows = {row[2]: row for row in changes}
    assert set(rows) == {"best against second", "tied against second"}
    row = rows["best against second"]
    assert (row[0], row[1], row[4], row[-1]) == ("random", "analysis", "gains", "loses")
    assert float(row[3]) == pytest.approx(100 * 0.1 / 1.1, abs=0.1)
    assert float(row[5]) == pytest.approx(-100 * 0.1 / 1.1, abs=0.1)
    assert float(row[6]) < float(row[5]) < float(row[7]) < 0
    assert rows["tied against second"][4] in ("tie", "not distinguished")
    assert len(row) == len(tables.CHANGE_HEADINGS)


def test_trainings_widen_the_interval():
    daily = {"raw": [[1.0] * 40], "unet": [[0.89] * 40, [0.91] * 40]}
    found = tables.contrasts(daily, [("unet", "raw")])[0]
    assert found.by_seed == pytest.approx((11.0, 9.0))
    assert found.upper - found.value == pytest.approx(1.96 * np.sqrt(2 / 2), rel=1e-3)


def test_without_a_folder_for_the_runs_the_store_is_refused(tmp_path, capsys):
    assert study.main([str(tmp_path / "out"), "--store", str(tmp_path)]) == 1
    assert "--work: is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_trains_scores_and_ranks(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "start_cell", compute_here)
    out = tmp_path / "out"
    command = [str(out), "--store", str(store), "--work", str(tmp_path / "work"), "--budget"]
    command += ["half_minute", "--models", *MODELS, "--inputs", *INPUTS]
    assert study.main(command) == 0
    with (out / "table.csv").open() as file:
        rows = {(r[0], r[1]): r[2:] for r in list(csv.reader(file))[1:]}
    assert len(rows) == 7
    assert rows["random", "true state"][0] == rows["none", "true state"][0]  # raw is not fitted
    assert rows["random", "analysis"] != rows["random", "with its error"]

    # without errors a cell is the plain training
    task = Task(inputs=tuple(INPUTS), step=48)
    plain = tmp_path / "plain"
    configs = config_path("raw").parent
    cells = find_cells(MODELS, [0], plain / "work", plain, configs, "half_minute", task, store)
    assert not running.run_cells(cells).failed
    with Results(out).temporary_folder() as kept, Results(plain).temporary_folder() as other:
        results = read_json_cells(kept)
        assert len(results) == 6
        for model in MODELS:
            folders = kept / "none" / "seed0" / model, other / "seed0" / model
            scores = [mean_score(read_cell(one).states, "crps") for one in folders]
            assert scores[0] == scores[1]
            daily = results[f"none/seed0/{model}"]["crps"]["true state"]
            assert np.mean(daily) == pytest.approx(scores[1], rel=1e-5)

    capsys.readouterr()
    assert study.main(command) == 0  # complete: nothing is trained again
    assert capsys.readouterr().out.count(": complete") == 6
    order = (out / "order.md").read_text()
    assert study.main([*command, "--tables"]) == 0
    assert (out / "order.md").read_text() == order
