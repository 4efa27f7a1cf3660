"""The study of errors of the truth on few made-up stations."""

import csv

import numpy as np
import pytest

from ens10.experiments.studies import uncertain_truth as study
from ens10.experiments.studies.unseen_places import make_stations
from ens10.models.statistical import EMOS, Raw

METHODS = {"raw": Raw(), "emos_local": EMOS(local=True)}


@pytest.fixture(scope="module")
def stations():
    return make_stations(places=12, dates=120)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_errors_have_their_deviation_and_correlation(stations, correlation):
    members, truth = stations
    errors = study.analysis(members, truth, 0.5, correlation) - truth
    model = members.mean("number") - truth
    model = model - model.mean("time")
    assert float(errors.std()) == pytest.approx(0.5, rel=0.05)
    found = np.corrcoef(errors.to_numpy().ravel(), (model / model.std("time")).to_numpy().ravel())
    assert found[0, 1] == pytest.approx(correlation, abs=0.06)


def test_the_table_has_the_scores_of_each_case(stations, monkeypatch, tmp_path):
    monkeypatch.setattr(study, "METHODS", METHODS)
    monkeypatch.setattr(study, "make_stations", lambda: stations)
    monkeypatch.setattr(study, "CASES", (study.CASES[0], *study.CASES[3:]))
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
