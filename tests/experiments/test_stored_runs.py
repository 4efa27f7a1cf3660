"""Run folders, checkpoints, bundles and predictions of an earlier version open, and give the same.

`tests/data/stored/README.md` says which version made them, and how.
"""

import csv
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

sys.path.insert(0, str(Path(__file__).parents[1]))

import stored_runs as stored

import ens10
from ens10.experiments.runs.reading import open_predictions, run_parts
from ens10.experiments.scoring.run_results import load_states
from ens10.metrics import score_states
from ens10.models import statistical
from ens10.source import open_source

# a sliding window that is applied without past truth says so
pytestmark = pytest.mark.filterwarnings(
    "ignore::ens10.experiments.forecasts.load.BeyondTrainingWarning"
)

# Largest difference from what is stored, as a share of a variable's largest value.
SAME_COEFFICIENTS = 2e-6  # float32 arithmetic on a few values: some ulps of 280 K
REFITTED = 1e-5  # the sliding window, whose fit is repeated
CONVOLUTIONS = 2e-5  # sums of hundreds of products, in another order on another processor
QUANTILES = 1e-4  # of mixtures and gamma distributions: found by iterations
FAST = ("emos_local", "isotonic", "two_targets", "unet", "transformer_members")
SLOW_OR_NOT = [
    pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in stored.RUNS
]


def tolerance_of(name):
    if name in stored.NETWORKS:
        return CONVOLUTIONS
    return REFITTED if name == "emos_window" else SAME_COEFFICIENTS


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def assert_near(found, expected, share, quantiles=QUANTILES):
    """Compare the values of all variables, relative to the largest of each."""
    assert set(found.variables) == set(expected.variables)
    for name, values in expected.data_vars.items():
        assert found[name].dims == values.dims
        if values.dtype.kind == "f":
            size = float(np.abs(values).max())
            allowed = quantiles if "quantile" in str(name) else share
            np.testing.assert_allclose(found[name], values, rtol=0, atol=allowed * size)
    for name, values in expected.coords.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.fixture(scope="session")
def archive(shared):
    """Folder of all that is stored, which no test may write to."""

    def fill(folder):
        with tarfile.open(stored.ARCHIVE) as file:
            file.extractall(folder, filter="data")

    return shared("stored", fill)


@pytest.fixture
def copy_of(archive, tmp_path):
    """A function that returns a copy of a run, to write to."""
    return lambda name: Path(shutil.copytree(archive / name, tmp_path / name))


def test_every_statistical_method_is_among_the_runs(archive):
    texts = "".join((archive / name / "config.yaml").read_text() for name in stored.RUNS)
    later = {"RawNormal", "AnomalyEMOS"}  # than the archive
    methods = set(statistical.__all__) - later - {
        "StatisticalMethod", "FittedMethod", "Advection", "Neighbours", "couple", "fit",
    }  # fmt: skip
    assert [m for m in methods if f"ens10.models.statistical.{m}\n" not in texts] == []
    assert stored.ARCHIVE.stat().st_size < 600_000


@pytest.mark.parametrize("name", stored.RUNS)
def test_stored_predictions_open_and_have_the_stored_scores(archive, name):
    for part in run_parts(archive / name):
        forecast, truth = open_predictions(part)
        dates = 12 if name == "emos_window" else 6  # its protocol tests on half of them
        assert forecast.sizes["time"] == truth.sizes["time"] == dates
        scores = load_states(part / "scores.nc")
        states = score_states(forecast, truth, weights="cell")
        common = set(states.data_vars) & set(scores.data_vars)
        assert len(common) >= 3
        for variable in common:
            np.testing.assert_allclose(
                states[variable], scores[variable], rtol=1e-9, err_msg=str(variable)
            )


@pytest.mark.parametrize("name", stored.RUNS)
def test_bundle_and_run_correct_a_new_forecast_as_they_did(archive, name):
    forecast = open_source(archive / "forecast.nc")
    expected = xr.open_dataset(archive / f"{name}.nc")
    for path in (archive / f"{name}.ens10", archive / name):
        found = ens10.load_model(path)(forecast, quantiles=stored.QUANTILES).compute()
        assert_near(found, expected, tolerance_of(name))


@pytest.mark.parametrize("name", SLOW_OR_NOT)
def test_a_stored_run_predicts_and_scores_as_it_did(archive, copy_of, name):
    run = copy_of(name)
    for part in run_parts(run):
        shutil.rmtree(part / "predictions.zarr")
        for file in part.glob("scores*"):
            file.unlink()
    stored.predict_and_score(run, archive / "store.zarr")
    for part, before in zip(run_parts(run), run_parts(archive / name), strict=True):
        assert part.relative_to(run) == before.relative_to(archive / name)
        (found, truth), (expected, same_truth) = map(open_predictions, (part, before))
        xr.testing.assert_identical(truth.load(), same_truth.load())
        assert_near(found.load(), expected.load(), tolerance_of(name))
        rows, old = (rows_of(p / "scores.csv") for p in (part, before))
        assert [row["score"] for row in rows] == [row["score"] for row in old]
        values, old_values = ([float(row["value"]) for row in r] for r in (rows, old))
        np.testing.assert_allclose(values, old_values, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", stored.STATISTICAL)
def test_a_stored_bundle_is_applied_as_it_was(archive, tmp_path, name):
    stored.apply_bundle(archive / f"{name}.ens10", archive / "forecast.nc", tmp_path / "o.nc")
    found, expected = (xr.open_dataset(p) for p in (tmp_path / "o.nc", archive / f"{name}.nc"))
    assert_near(found, expected, tolerance_of(name))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "unet" else pytest.mark.slow) for n in stored.NETWORKS],
)
def test_a_stored_checkpoint_is_resumed(archive, copy_of, name):
    """One epoch more than the stored run has: weights, moments of Adam, schedule and log go on."""
    run, after = copy_of(name), archive / "resumed" / name
    stored.resume(run, archive / "store.zarr")
    stored.command("predict", "--run", run, "--data.store", archive / "store.zarr", "--quiet")
    logs = [rows_of(p / "log" / "metrics.csv") for p in (run, after)]
    assert [row["epoch"] for row in logs[0]] == [row["epoch"] for row in logs[1]]
    assert {row["epoch"] for row in logs[0]} == {"0", "1"}
    for column in ("train_loss", "val_loss"):
        values, expected = ([float(r[column]) for r in log if r[column]] for log in logs)
        np.testing.assert_allclose(values, expected, rtol=1e-3)
    found, expected, before = (open_predictions(p)[0].load() for p in (run, after, archive / name))
    for variable in expected.data_vars:
        change = float(np.abs(expected[variable] - before[variable]).max())
        assert change > 1e-3
        difference = float(np.abs(found[variable] - expected[variable]).max())
        assert difference < 0.01 * change + CONVOLUTIONS * float(np.abs(expected[variable]).max())
