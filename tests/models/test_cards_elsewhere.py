"""Statistical methods and the heat experiment have cards too, whose counts are true."""

import csv
import re

import numpy as np
import pytest
import pytorch_lightning as pl
from registered import CONFIGS, CONFIGURED, ROOT, count, instance, is_statistical
from test_model_cards import STATISTICAL, content, number
from test_statistical_configs import KINDS, POINTS  # counted by fits of each

# of all 11 inputs: the fits that are counted have three, without mask, of mean and scale each
WITH_PREDICTORS = ("emos_ridge", "emos_boosting", "emos_advection")
PER_POINT = {name: KINDS[name][1] // POINTS + 2 * (2 * 8 + 1) for name in WITH_PREDICTORS}
GRIDS = {"at 46 x 96": 46 * 96, "at 361 x 720": 361 * 720}
HEAT = [name for name in CONFIGS if name.startswith("heat_")]


def rows(path, first):
    """The rows of the table whose first column is called so, by configuration."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    titles = [cell.strip() for cell in lines[start].strip("|").split("|")]
    found = {}
    for line in lines[start + 2 :]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not cells[0].startswith("`"):
            break
        found.setdefault(cells[0].strip("`"), dict(zip(titles, cells, strict=True)))
    return found


STATISTICAL_ROWS = rows(STATISTICAL, "config")
HEAT_ROWS = rows(ROOT / "docs" / "heat.md", "configuration")


def test_every_configuration_has_one_card():
    statistical = [n for n in CONFIGS if n not in HEAT and is_statistical(n)]
    assert sorted(STATISTICAL_ROWS) == sorted(statistical)
    assert sorted(HEAT_ROWS) == sorted(HEAT)
    assert sorted([*CONFIGURED, *statistical, *HEAT]) == sorted(CONFIGS)


@pytest.mark.parametrize("name", STATISTICAL_ROWS)
def test_coefficients_are_those_of_a_fit(name):
    fitted = KINDS[name][1]
    per_point, common = divmod(fitted, POINTS) if fitted >= POINTS else (0, fitted)
    assert per_point == 0 or common == 0
    per_point = PER_POINT.get(name, per_point)
    for grid, points in GRIDS.items():
        told = STATISTICAL_ROWS[name][f"coefficients {grid}" if "46" in grid else grid]
        assert number(re.match(r"[\d,]+", told)[0]) == (per_point * points or common)


@pytest.mark.parametrize("name", HEAT)
def test_parameters_of_the_heat_experiment(name):
    model = instance(pl.LightningModule, content(name)["model"])
    assert number(HEAT_ROWS[name]["parameters"]) == count(model)


TABLES = {"physical_models": ("physical, % removed", "crpss", 1),
          "displaced": ("displaced, % attained", "attained", 0)}  # fmt: skip


@pytest.mark.parametrize("folder", TABLES)
def test_skills_on_the_two_worlds_are_those_of_the_tables(folder):
    title, column, digits = TABLES[folder]
    path = ROOT / "experiments" / "results" / folder / "table.csv"
    held = list(csv.DictReader(path.read_text().splitlines()))
    told = rows(STATISTICAL, "method")
    assert len(told) > 10
    for name, row in told.items():
        skills = [100 * float(one[column]) for one in held if one["model"] == name]
        assert row[title].replace("−", "-") == f"{np.mean(skills):.{digits}f}", name
    missing = {one["model"] for one in held} & set(STATISTICAL_ROWS) - set(told) - {"raw"}
    assert not missing
