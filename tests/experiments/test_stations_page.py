"""docs/stations.md runs in the order of the page, in an empty folder."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from docblocks import ROOT, blocks, code

import ens10
from ens10.cli import main
from ens10.experiments.runs.provenance import read_provenance

PAGE = "docs/stations.md"


@pytest.mark.timeout(1200)
def test_the_page_runs_in_its_order(tmp_path, monkeypatch, capsys):
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(PAGE):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    for block in code(PAGE):
        if block.language == "python":
            exec(block.text, names)
            continue
        for line in block.lines:
            program, *command = shlex.split(line)
            if command[:2] == ["-m", "ens10.experiments.studies.unseen_places"]:
                continue  # of more stations than the page has
            assert program == "ens10"
            assert main(command) == 0, line
    said = capsys.readouterr().err
    assert "emos: the forecast lacks 1 station (06447) of the training" in said
    assert "emos: the training lacks 1 station (06610) of the forecast" in said
    assert (tmp_path / "report" / "index.html").exists()
    what_was_written_is_true()
    what_was_trained_on_tables_is_true()


def what_was_trained_on_tables_is_true():
    """Forecasts and observations in one table or in two make the same store."""
    for kind in ("sfc", "truth"):
        one, two = (ens10.open_store(f"{name}.zarr", kind)["t2m"] for name in ("both", "tables"))
        np.testing.assert_array_equal(one, two)
    dates = read_provenance(Path("runs/shares"))["dates"]
    assert (dates["train"], dates["val"], dates["test"]) == (43, 15, 14)  # up to 0.6 and 0.8 of 72
    found, raw = (pd.read_csv(name) for name in ("corrected_new.csv", "new.csv"))
    rows = raw.drop_duplicates("stn").reset_index(drop=True)
    assert found.columns.tolist()[-2:] == ["mu", "sigma"]
    pd.testing.assert_frame_equal(found[["stn", "init"]], rows[["stn", "init"]])
    assert found["mu"].notna().all()


def what_was_written_is_true():
    local, common = (pd.read_csv(n, dtype={"station": str}) for n in ("corrected.csv", "all.csv"))
    raw = pd.read_csv("today.csv", dtype={"station": str})
    kept = [name for name in raw.columns if name not in ("t2m", "number")]
    values = ["mu", "sigma", "t2m_quantile_0.1", "t2m_quantile_0.9"]
    assert local.columns.tolist() == [*kept, *values]
    assert local["station"].tolist() == ["06451", "06610", "06447"]
    assert local["mu"].notna().tolist() == [True, False, False]
    assert common["mu"].notna().tolist() == [True, True, False]
    width = (local["t2m_quantile_0.9"] - local["t2m_quantile_0.1"]) / local["sigma"]
    np.testing.assert_allclose(width[0], 2 * 1.2815515655446004, rtol=1e-4)
    with xr.open_dataset("corrected.nc") as written:
        assert written["t2m_threshold_above"].dims == ("time", "quantile_above", "station")
        ends = written["t2m_threshold_below"][0, 0], written["t2m_threshold_above"][0, 0]
        assert float(ends[0][0]) < float(ends[1][0])
