"""Scores beside the predictions: weights, places, and what is refused."""

import csv
import shutil
import subprocess
import sys

import numpy as np
import pytest
import realruns
import zarr

from ens10.errors import ArgumentError, Ens10Error, FileError
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.score import read_states, score_forecast, score_run
from ens10.grid import area_weights
from ens10.metrics import crps_normal, summarise, twcrps_normal


def table(folder):
    with (folder / "scores.csv").open() as file:
        return {row["score"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("weights", ["cell", "cos", "none"])
def test_weights_by_name(runs, tmp_path, weights):
    shutil.copytree(runs["mlp"], tmp_path / "mlp")
    realruns.command("score", tmp_path / "mlp", "--weights", weights)
    forecast, truth = open_predictions(tmp_path / "mlp")
    y, mu, sigma = (x.to_numpy().astype(float) for x in (truth, forecast["mu"], forecast["sigma"]))
    rows = area_weights(truth["latitude"].to_numpy(), weights)[:, None] + 0 * y
    expected = np.average(crps_normal(mu, sigma, y), weights=rows)
    assert float(table(tmp_path / "mlp")["crps"]["value"]) == pytest.approx(expected, rel=1e-6)
    rmse = np.sqrt(np.average((mu - y) ** 2, weights=rows))
    assert float(table(tmp_path / "mlp")["rmse"]["value"]) == pytest.approx(rmse, rel=1e-5)
    same = (tmp_path / "mlp" / "scores.csv").read_bytes() == (
        runs["mlp"] / "scores.csv"
    ).read_bytes()
    assert same == (weights == "cell")


def test_a_predictions_store_outside_a_run(runs, tmp_path):
    shutil.copytree(runs["emos_local"] / "predictions.zarr", tmp_path / "mine.zarr")
    score_run(tmp_path / "mine.zarr")
    made = (tmp_path / "scores.csv").read_bytes()
    assert made == (runs["emos_local"] / "scores.csv").read_bytes()


def test_a_store_inside_a_run_uses_the_weights_of_its_run(runs, tmp_path):
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    text = (run / "provenance.json").read_text()
    (run / "provenance.json").write_text(text.replace('"weights": "cell"', '"weights": "none"'))
    states = score_run(run / "predictions.zarr")
    assert states.attrs["weights"] == "none"
    assert read_states(run).attrs["weights"] == "none"


def test_the_states_give_the_table(runs):
    scores = summarise(read_states(runs["raw"]))
    rows = table(runs["raw"])
    assert set(rows) == {"crps", "crps_fair", "rmse", "spread_error", "dates", "count"}
    for name in ("crps", "crps_fair", "rmse", "spread_error"):
        for part, column in (("", "value"), ("_lower", "lower"), ("_upper", "upper")):
            assert float(rows[name][column]) == pytest.approx(float(scores[name + part]), rel=1e-8)
    assert rows["dates"]["value"] == "8"
    assert rows["count"]["value"] == str(8 * 8 * 16)
    assert float(rows["crps_fair"]["value"]) < float(rows["crps"]["value"])


def test_what_is_not_scored_or_not_predicted_is_told(tmp_path, capsys):
    with pytest.raises(FileError, match="ens10 score"):
        read_states(tmp_path)
    realruns.command("score", tmp_path, status=1)
    assert "ens10 predict" in capsys.readouterr().err


def test_a_negative_sigma_is_refused_and_the_old_scores_stay(runs, tmp_path, capsys):
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    sigma = zarr.open_group(str(run / "predictions.zarr"), mode="r+")["sigma"]
    field = np.asarray(sigma[2])
    field[4, 5] *= -1
    sigma[2] = field
    with pytest.raises(Ens10Error, match="sigma"):
        score_run(run)
    assert (run / "scores.csv").read_bytes() == (runs["mlp"] / "scores.csv").read_bytes()
    realruns.command("score", run, status=1)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_sigma_of_zero_is_the_absolute_error(runs, tmp_path):
    realruns.without_manifest(shutil.copytree(runs["mlp"], tmp_path / "mlp"))
    sigma = zarr.open_group(str(tmp_path / "mlp" / "predictions.zarr"), mode="r+")["sigma"]
    sigma[:] = 0
    score_run(tmp_path / "mlp", "none")
    forecast, truth = open_predictions(tmp_path / "mlp")
    error = float(np.abs(forecast["mu"] - truth).astype(float).mean())
    assert float(table(tmp_path / "mlp")["crps"]["value"]) == pytest.approx(error, rel=1e-6)


def test_truth_without_a_value_is_left_out_and_counted(runs, tmp_path, capsys):
    realruns.without_manifest(shutil.copytree(runs["mlp"], tmp_path / "mlp"))
    truth = zarr.open_group(str(tmp_path / "mlp" / "predictions.zarr"), mode="r+")["truth"]
    truth[1] = np.full(truth.shape[1:], np.nan, np.float32)
    field = np.asarray(truth[2])
    field[0, :3] = np.nan
    truth[2] = field
    before = (tmp_path / "mlp" / "scores.nc").read_bytes()
    realruns.command("score", tmp_path / "mlp", status=1)
    assert "all truth is NaN" in capsys.readouterr().err
    assert (tmp_path / "mlp" / "scores.nc").read_bytes() == before
    realruns.command("score", tmp_path / "mlp", "--join", "inner")
    assert "1 of 8 dates left out" in capsys.readouterr().err
    rows = table(tmp_path / "mlp")
    assert rows["count"]["value"] == str(7 * 8 * 16 - 3)
    assert rows["dates"]["value"] == "7"
    assert float(rows["crps"]["lower"]) < float(rows["crps"]["value"])


def test_scores_need_no_torch(runs, tmp_path):
    shutil.copytree(runs["mlp"], tmp_path / "mlp")
    (tmp_path / "mlp" / "scores.csv").unlink()
    code = (
        "import sys; sys.modules['torch'] = sys.modules['pytorch_lightning'] = None\n"
        f"from ens10.cli import main; sys.exit(main(['score', {str(tmp_path / 'mlp')!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    written = (tmp_path / "mlp" / "scores.csv").read_bytes()
    assert written == (runs["mlp"] / "scores.csv").read_bytes()


def test_thresholds_with_a_unit(runs, tmp_path, capsys):
    shutil.copytree(runs["emos_local"], tmp_path / "run")
    names = ("brier_10C", "twcrps_283.15", "twcrps_280K")
    realruns.command("score", tmp_path / "run", "--scores", "crps", *names)
    rows = table(tmp_path / "run")
    assert {"brier_283.15", "twcrps_283.15", "twcrps_280"} <= rows.keys()
    forecast, truth = open_predictions(tmp_path / "run")
    y, mu, sigma = (x.to_numpy().astype(float) for x in (truth, forecast["mu"], forecast["sigma"]))
    weights = area_weights(truth["latitude"].to_numpy(), "cell")[:, None] + 0 * y
    wanted = np.average(twcrps_normal(mu, sigma, y, lower=280.0), weights=weights)
    assert float(rows["twcrps_280"]["value"]) == pytest.approx(wanted, rel=1e-5)
    assert "brier_283.15" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="the truth is in K, which is not compared with mm"):
        score_forecast(tmp_path / "run", scores=["brier_5mm"])
