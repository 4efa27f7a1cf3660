"""Commands and code of README.md and docs/use.md run in their order, then docs/scores.md."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest
from docblocks import commands, python

from ens10.cli import main
from ens10.quantiles import parse_climate, write_climate

TOP = Path(__file__).parents[1]
TEXT = (TOP / "README.md").read_text()
PAGES = ("README.md", "docs/use.md")


def test_the_readme_holds_what_is_tested_here():
    assert all(len(commands(page)) >= 8 for page in PAGES)
    assert all(python(page) for page in PAGES)


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    local = [target for target in targets if "://" not in target]
    assert local
    assert [target for target in local if not (TOP / target).exists()] == []


def test_the_table_of_models_is_that_of_the_results():
    table = TOP / "experiments" / "results" / "physical_models" / "table.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    _, section = TEXT.split("## What models gain")
    shown = re.findall(
        r"^\| (\w[\w\\]*)( \(\+\))? \| ([\d.]+) \| ([\d.]+|–) \| ([\d.]+|–) \|$", section, re.M
    )
    assert len(shown) >= 9
    for name, improving, crps, removed, _ in shown:
        own = [row for row in rows if row["model"] == name.replace("\\", "")]
        assert crps == f"{mean(float(row['crps']) for row in own):.4f}"
        assert bool(improving) == any(row["still_improving"] == "1" for row in own), name
        if name != "raw":
            assert removed == f"{100 * mean(float(row['crpss']) for row in own):.1f}"


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
    assert names["score"].dims == ("time", "step", "latitude", "longitude")
    assert float(names["score"].mean()) > 0
    assert (tmp_path / "report" / "index.html").exists()
    if page == PAGES[-1]:
        the_scores_page_runs(capsys)


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
