"""Scores at thresholds of precipitation and wind speed: by default, and in the tables of models."""

import numpy as np
import pytest
import xarray as xr
from fakeruns import world

from ens10.experiments.runner.tables import events_as_markdown
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.score import EVENTS_OF_TARGETS, score_forecast, usual_scores
from ens10.metrics import available_scores, score_states, summarise

SCORES = ["crps", "brier_282", "twcrps_282"]


def finished(seed, *names):
    truth, forecasts = world(seed=seed, dates=12)
    return [
        FinishedRun(name, "model", score_states(forecasts[name], truth, SCORES), {})
        for name in names
    ]


@pytest.mark.parametrize(("target", "units"), [("tp", "m"), ("si10", "m s-1")])
def test_these_targets_have_scores_at_thresholds_in_their_units(target, units):
    truth, forecasts = world(dates=3)
    observed = truth.assign_attrs(units=units)
    for forecast in forecasts.values():
        usual = usual_scores(forecast, observed, target)
        assert usual == [*available_scores(forecast), *EVENTS_OF_TARGETS[target][1]]
        assert usual_scores(forecast, truth, target) == list(available_scores(forecast))
        assert usual_scores(forecast, observed, None) == list(available_scores(forecast))


def test_a_run_of_wind_speed_is_scored_with_them(tmp_path):
    rng = np.random.default_rng(0)
    coords = world(dates=3)[0].coords
    dims = ("time", "latitude", "longitude")
    truth = xr.DataArray(rng.gamma(2, 4, (3, 6, 12)), coords, dims, attrs={"units": "m s-1"})
    members = (truth + rng.normal(size=truth.shape)).expand_dims(number=2, axis=1)
    made = xr.Dataset({"members": members, "truth": truth}, attrs={"forecast_kind": "ensemble"})
    run = tmp_path / "run"
    made.to_zarr(run / "predictions.zarr", consolidated=False)
    (run / "provenance.json").write_text('{"name": "run", "target": "si10"}')
    scores = summarise(score_forecast(run).states)
    forecast, event = members > 10, truth > 10
    area = np.cos(np.deg2rad(truth["latitude"]))
    brier = ((forecast.mean("number") - event) ** 2).weighted(area).mean()
    assert float(scores["brier_10"]) == pytest.approx(float(brier), rel=0.02)  # cell, not cosine
    assert "twcrps_15" in scores


def test_the_table_has_the_mean_skill_against_the_raw_ensemble():
    runs = {seed: finished(seed, "raw", "emos", "unet") for seed in (0, 1)}
    lines = [line for line in events_as_markdown(runs).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Skill at thresholds (%)", "Brier, above 282", "twCRPS, above 282"]
    assert [row[0] for row in rows[2:]] == ["emos", "unet"]
    for row, place in zip(rows[2:], (1, 2), strict=True):
        for text, score in zip(row[1:], SCORES[1:], strict=True):
            pairs = [
                [float(summarise(run.states)[score]) for run in (held[0], held[place])]
                for held in runs.values()
            ]
            expected = np.mean([100 * (1 - own / raw) for raw, own in pairs])
            assert float(text) == pytest.approx(expected, abs=0.051)


def test_there_is_no_table_without_the_raw_ensemble_or_such_scores():
    assert events_as_markdown({0: finished(0, "emos", "unet")}) == ""
    runs = finished(0, "raw", "emos")
    parts = [
        FinishedRun(
            run.name, run.kind, run.states[[n for n in run.states if n.startswith("crps")]], {}
        )
        for run in runs
    ]
    assert events_as_markdown({0: parts}) == ""
