"""The study of two lead times: its kept table, and on a smaller world."""

import csv
import io
from pathlib import Path

import pytest

from ens10.experiments.studies import two_leads

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results" / "two_leads"


def test_the_kept_table_is_that_of_the_study():
    table = (RESULTS / "table.md").read_text()
    rows = list(csv.DictReader((RESULTS / "table.csv").read_text().splitlines()))
    assert len(rows) == 8
    for row in rows:
        bounds = (f"{float(row[name]):.3f}" for name in ("crps", "crps_low", "crps_high"))
        assert "{} [{}, {}]".format(*bounds) in table
    # both trainings beat the raw ensemble, outside the intervals
    for step in ("24", "48"):
        raw, *trained = (row for row in rows if row["step"] == step)
        assert raw["training"] == "raw"
        assert all(float(one["crps_high"]) < float(raw["crps_low"]) for one in trained)


@pytest.mark.slow
def test_the_study_on_a_smaller_world(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(two_leads, "GRID", "6x12")
    monkeypatch.setattr(two_leads, "YEARS", range(2000, 2006))
    monkeypatch.setattr(two_leads, "DATES", 8)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--epochs", "2"]
    assert two_leads.main(command) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    assert [(row["step"], row["dates"]) for row in rows] == [("24", "16")] * 4 + [("48", "16")] * 4
    monkeypatch.delattr(two_leads, "run_stage")  # complete: nothing is trained again
    assert two_leads.main(command) == 0
    assert (tmp_path / "out" / "table.md").read_text() == table
