"""docs/stations.md runs in the order of the page, in an empty folder."""

import shlex

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from docblocks import ROOT, code

from ens10.cli import main

PAGE = "docs/stations.md"


@pytest.mark.timeout(1200)
def test_the_page_runs_in_its_order(tmp_path, monkeypatch, capsys):
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in code(PAGE):
        if block.language == "python":
            exec(block.text, names)
            continue
        for line in block.lines:
            program, *command = shlex.split(line)
            assert program == "ens10"
            assert main(command) == 0, line
    said = capsys.readouterr().err
    assert "emos: the forecast lacks 1 station (06447) of the training" in said
    assert "emos: the training lacks 1 station (06610) of the forecast" in said
    assert (tmp_path / "report" / "index.html").exists()
    what_was_written_is_true()


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
