"""The study of ensembles with a shared trunk: its table, and a call on a smaller world."""

import csv

import pytest

from ens10.experiments.studies import shared_trunk as study

HEADS = "shared, heads"


def test_shares_of_gain_and_cost_are_those_of_each_seed(tmp_path, monkeypatch):
    """CRPS, parameters, seconds of the fit and of a forecast, for two worlds."""
    numbers = {
        study.ONE: {0: [1.0, 10.0, 20.0, 0.001], 1: [2.0, 10.0, 20.0, 0.001]},
        HEADS: {0: [0.96, 12.0, 24.0, 0.001], 1: [1.88, 12.0, 24.0, 0.001]},
        study.FULL: {0: [0.9, 50.0, 95.0, 0.005], 1: [1.8, 50.0, 105.0, 0.005]},
    }
    monkeypatch.setattr(study, "_numbers", lambda folder, name: numbers.get(name, {}))
    text = study.write_tables(tmp_path / "out", tmp_path)
    rows = {
        row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ")[1:]
        for row in text.splitlines()[2:]
    }
    assert rows[study.ONE] == ["1.5000", "–", "–", "10", "20", "20", "1.0"]
    assert rows[study.FULL][:3] == ["1.3500", "10.00 [10.00, 10.00]", "100"]
    # gains of 4 and 6 %, shares of 40 and 60 %: Student's t with one degree of freedom, 12.706
    assert rows[HEADS] == [
        "1.4200",
        "5.00 [-7.71, 17.71]",
        "50 [-77, 177]",
        "12",
        "24",
        "24",
        "1.0",
    ]
    with (tmp_path / "out" / "table.csv").open() as file:
        plain = list(csv.DictReader(file))
    assert [row["training"] for row in plain] == [study.ONE] * 2 + [HEADS] * 2 + [study.FULL] * 2
    assert (tmp_path / "out" / "table.md").read_text() == text


@pytest.mark.slow
def test_the_study_on_a_smaller_world(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "YEARS", range(2000, 2006))
    monkeypatch.setattr(study, "DATES", 8)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--epochs", "1"]
    command += ["--seeds", "1", "--grid", "8x16"]
    command += ["--trainings", study.ONE, "shared, heads and scales", study.FULL]
    assert study.main(command) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert len(table.splitlines()) == 5
    capsys.readouterr()
    assert study.main(command) == 0  # complete: nothing is trained again
    printed = capsys.readouterr().out
    assert printed.count("complete") == 3
    assert table in printed
