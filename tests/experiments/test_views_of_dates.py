"""The study of views of dates, on a smaller world."""

import csv
import io
from pathlib import Path

import pytest

from ens10.experiments.studies import views_of_dates


def test_changes_are_those_of_each_seed():
    crps = {(8, "plain"): [1.0, 2.0], (8, "views"): [0.9, 2.1]}
    table = views_of_dates.tables(crps)["table.md"]
    assert "-2.50 (-10.00 to +5.00)" in table
    assert "+0.00 (+0.00 to +0.00)" in table


@pytest.mark.slow
def test_the_study_on_a_smaller_world(tmp_path, monkeypatch, capsys):
    for name, value in {"GRID": "6x12", "YEARS": range(2000, 2006), "DATES": 4}.items():
        monkeypatch.setattr(views_of_dates, name, value)
    names = ["plain", "4 views, equal steps and computation"]
    names += [f"2 views, {moved}, no location" for moved in ("mirrored", "rolled")]
    trainings = {name: views_of_dates.TRAININGS[name] for name in names}
    smaller = {"TEST": 2, "VALIDATION": 1, "FEW": 1, "TRAININGS": trainings}
    for name, value in smaller.items():
        monkeypatch.setattr(views_of_dates, name, value)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--epochs", "2"]
    command += ["--seeds", "1"]
    assert views_of_dates.main(command) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    assert [row["dates"] for row in rows] == ["12"] * 4 + ["4"] * 4
    assert len({row["crps"] for row in rows}) == 8
    monkeypatch.delattr(views_of_dates, "run_stage")  # complete: nothing is trained again
    assert views_of_dates.main(command) == 0


def test_the_kept_table_is_that_of_the_kept_values():
    folder = Path(__file__).parents[2] / "experiments" / "results" / "views"
    crps = {}
    for row in csv.DictReader(io.StringIO((folder / "table.csv").read_text())):
        crps.setdefault((int(row["dates"]), row["training"]), []).append(float(row["crps"]))
    assert {len(values) for values in crps.values()} == {3}
    assert views_of_dates.tables(crps)["table.md"] == (folder / "table.md").read_text()
