"""Commands and code of README.md and docs/use.md run in their order, then docs/scores.md."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest
import xarray as xr
from docblocks import commands, python

from ens10.cli import main
from ens10.quantiles import parse_climate, write_climate

TOP = Path(__file__).parents[1]
TEXT = (TOP / "README.md").read_text()
PAGES = ("README.md", "docs/use.md")


def test_the_readme_holds_what_is_tested_here():
    assert len(commands("README.md")) == 6
    assert len(commands("docs/use.md")) >= 8
    assert python("docs/use.md")


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    local = [target for target in targets if "://" not in target]
    assert local
    assert [target for target in local if not (TOP / target).exists()] == []


def test_the_table_of_models_is_that_of_the_results():
    table = TOP / "experiments" / "results" / "physical_second" / "table.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    means = {
        name: [
            mean(float(row[column] or "nan") for row in rows if row["model"] == name)
            for column in ("crps", "crpss", "cpu_seconds")
        ]
        for name in {row["model"] for row in rows}
    }
    shown = re.findall(
        r"^\| [^|]+ \| `(\w+)` \| ([\d.]+) \| ([\d.]+|–) \| ([\d.]+|–) \|$", TEXT, re.M
    )
    assert [name for name, *_ in shown] == [
        "raw",
        "raw_normal",
        "unet",
        "emos_seasonal",
        "deep_ensemble",
    ]
    assert shown[-1][0] == min(means, key=lambda name: means[name][0])
    for name, crps, gain, seconds in shown:
        assert crps == f"{means[name][0]:.4f}", name
        if name != "raw":
            assert gain == f"{100 * means[name][1]:.1f}", name
            assert seconds == f"{means[name][2]:.0f}", name


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_and_code_of_the_readme_run(page, tmp_path, monkeypatch, capsys):
    for folder in ("experiments", "tests"):
        (tmp_path / folder).symlink_to(TOP / folder)
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        assert main(command) == 0, command
    capsys.readouterr()
    names: dict[str, object] = {}
    for block in python(page):
        exec(block, names)
    if page == "README.md":
        assert {"mu", "sigma", "t2m_probability_above"} <= set(open_corrected(tmp_path))
    else:
        assert names["score"].dims == ("time", "step", "latitude", "longitude")
        assert float(names["score"].mean()) > 0
        assert (tmp_path / "report" / "index.html").exists()
        the_scores_page_runs(capsys)


def open_corrected(folder):
    """Names of the variables of the corrected forecast that README.md writes."""
    with xr.open_dataset(folder / "corrected.nc", decode_timedelta=False) as corrected:
        return list(corrected.data_vars)


def the_scores_page_runs(capsys):
    """docs/scores.md, on the runs and the store of docs/use.md, to which it adds for a climate."""
    imports, _ = python("docs/scores.md")  # tests/metrics/test_any_names.py runs the second
    exec(imports)
    write_climate("store.zarr", parse_climate(["t2m@48"]))
    page = commands("docs/scores.md")
    assert len(page) == 3
    for command in page:
        assert main(command) == 0, command
    told = capsys.readouterr().out
    assert "latitude_band" in told
    assert "eecrps" in told
