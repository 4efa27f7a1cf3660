"""The study of forecasts beyond the training, in a small world."""

import csv

import numpy as np

from ens10.experiments.studies import beyond_training as study
from ens10.models.statistical import EMOS, IsotonicRegression, Raw

METHODS = {
    "raw": Raw(),
    "emos_local": EMOS(local=True),
    "isotonic": IsotonicRegression(nodes=16),
    "isotonic, Pareto tails": IsotonicRegression(nodes=16, tails="both"),
}


def test_the_climate_warms_and_the_forecast_varies_too_little():
    members, truth = study.make_world(places=6)
    yearly = truth.groupby("time.year").mean(...).to_numpy()
    trend = np.polyfit(np.arange(len(yearly)), yearly, 1)[0]
    assert abs(trend - 0.1) < 0.03
    slope = np.polyfit(members.mean("number").to_numpy().ravel(), truth.to_numpy().ravel(), 1)[0]
    assert 1.05 < slope < 1.3


def test_regression_goes_on_where_isotonic_regression_stops(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(study, "METHODS", METHODS)
    assert study.main([str(tmp_path), "--places", "12", "--seeds", "1"]) == 0
    with (tmp_path / "table.csv").open() as file:
        rows = {
            row["method"]: [float(x) for x in list(row.values())[1:]]
            for row in csv.DictReader(file)
        }
    assert list(rows) == list(METHODS)
    assert (tmp_path / "table.md").read_text() in capsys.readouterr().out
    everywhere, beyond, exceeded, cases = np.array(list(rows.values())).T
    assert (cases == cases[0]).all()
    assert cases[0] >= 10
    assert everywhere[1] < everywhere[2] < everywhere[0]
    assert beyond[1] < 0.7 * min(beyond[2:])
    assert exceeded[1] < exceeded[3] < exceeded[2]
