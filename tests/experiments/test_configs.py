"""Every shipped configuration, from the command line to a number."""

import csv

import numpy as np
import properscoring
import pytest
import xarray as xr
from realruns import NAMES

from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.optimum import score_optimum
from ens10.experiments.scoring.score import read_states
from ens10.experiments.training.run import run_stage
from ens10.grid import area_weights
from ens10.metrics import summarise


def scored(run):
    with (run / "scores.csv").open() as file:
        return {row["score"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def optimum(world, runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("best") / "optimum"
    score_optimum(world, runs["raw"], folder)
    return read_states(folder)


@pytest.mark.parametrize("name", NAMES)
def test_the_scored_crps_is_the_trainers_own(runs, name, capsys):
    trained = run_stage("test", ["--run", str(runs[name]), "--quiet"]).trainer.callback_metrics
    crps = float(scored(runs[name])["crps"]["value"])
    assert crps == pytest.approx(float(trained["test_crps"]), rel=1e-5)
    assert 0.1 < crps < 5


@pytest.mark.parametrize("name", NAMES)
def test_nothing_beats_the_optimum(runs, optimum, name):
    pair = summarise(read_states(runs[name]), optimum)
    assert float(pair["crps_difference_upper"]) > 0
    assert float(pair["crps_difference"]) > -0.01


def test_the_order_that_the_construction_fixes(runs):
    crps = {name: float(scored(run)["crps"]["value"]) for name, run in runs.items()}
    assert crps["emos_global"] < crps["raw"]


@pytest.mark.parametrize("name", ["raw", "unet"])
def test_scores_are_what_properscoring_makes_of_the_predictions(runs, name):
    forecast, truth = open_predictions(runs[name])
    y = truth.to_numpy().astype(float)
    if name == "raw":
        members = np.moveaxis(forecast["members"].to_numpy().astype(float), 1, -1)
        crps = properscoring.crps_ensemble(y, members)
    else:
        crps = properscoring.crps_gaussian(
            y, *(forecast[n].to_numpy().astype(float) for n in ("mu", "sigma"))
        )
    weights = area_weights(forecast["latitude"].to_numpy(), "cell")[:, None] + 0 * y[0]
    row = scored(runs[name])["crps"]
    expected = np.average(crps.mean(0), weights=weights)
    assert float(row["value"]) == pytest.approx(expected, rel=1e-6)
    assert float(row["lower"]) < expected < float(row["upper"])
    assert row["units"] == "K"


def test_the_truth_beside_the_predictions_is_that_of_the_store(runs, store, world):
    _, truth = open_predictions(runs["mlp"])
    held = xr.open_zarr(store, group="truth", consolidated=False)["t2m"].sel(step=48)
    np.testing.assert_array_equal(truth, held.sel(time=truth["time"]))
    assert set(truth["valid_time"].dt.year.to_numpy()) == {2004, 2005}


def test_raw_is_the_ensemble_of_the_store(runs, store):
    forecast, _ = open_predictions(runs["raw"])
    held = xr.open_zarr(store, group="sfc", consolidated=False)["t2m"].sel(step=48)
    np.testing.assert_array_equal(forecast["members"], held.sel(time=forecast["time"]))
