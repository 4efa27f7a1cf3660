"""The table of skill for local extremes: values of `ens10 score`, and runs without reference."""

import csv

import pytest

from ens10.experiments.scoring.score import score_forecast
from ens10.experiments.studies import local_extremes as study


def test_the_table_has_the_skills_of_ens10_score(store, runs, tmp_path, capsys):
    options = ["--climatology", str(store), "--references", str(runs["raw"])]
    assert study.main([str(tmp_path / "out"), str(runs["mlp"]), *options]) == 0
    assert (tmp_path / "out" / "table.md").read_text() in capsys.readouterr().out
    with (tmp_path / "out" / "table.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["target"], row["model"]) == ("t2m", runs["mlp"].name)
    score_forecast(runs["mlp"], reference=runs["raw"], climatology=store, out=tmp_path)
    with (tmp_path / "scores.csv").open() as file:
        scores = {one["score"]: one for one in csv.DictReader(file)}
    for name, score in study.SKILLS.items():
        value, bounds = row[name].split(" ", 1)
        assert float(value) == pytest.approx(100 * float(scores[score]["value"]), abs=0.051)
        assert float(bounds[1:].split(",")[0]) <= float(value)


def test_a_target_without_a_raw_run_is_refused(store, runs, tmp_path, capsys, monkeypatch):
    targets = {runs["raw"]: "t2m", runs["mlp"]: "tp"}
    monkeypatch.setattr(study, "read_provenance", lambda run: {"target": targets[run]})
    options = ["--climatology", str(store), "--references", str(runs["raw"])]
    assert study.main([str(tmp_path / "out"), str(runs["mlp"]), *options]) == 1
    assert "a raw run of tp" in capsys.readouterr().err
