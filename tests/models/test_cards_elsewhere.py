"""Counts of the heat experiment's page, and of statistical methods in the kept tables."""

import csv

import pytest
import pytorch_lightning as pl
from registered import CONFIGS, CONFIGURED, MODELS, ROOT, count, instance
from test_model_cards import content, model_cards, number

WITH_PREDICTORS = ("emos_ridge", "emos_boosting", "emos_advection")
POINTS = 46 * 96
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


HEAT_ROWS = rows(ROOT / "docs" / "heat.md", "configuration")


def test_every_heat_configuration_has_a_row():
    assert sorted(HEAT_ROWS) == sorted(HEAT)


def test_coefficients_of_the_cards_are_those_of_the_kept_tables():
    """The tables have them as their fits counted them, on 46 x 96 points."""
    table = ROOT / "experiments" / "results" / "physical_models" / "table.csv"
    kept = {row["model"]: row for row in csv.DictReader(table.read_text().splitlines())}
    compared = [n for n in MODELS if n not in (*CONFIGURED, *WITH_PREDICTORS) and n in kept]
    assert len(compared) > 10
    for name in compared:
        per_point, common = model_cards.coefficients(name)
        assert int(kept[name]["parameters"]) == per_point * POINTS + common, name


@pytest.mark.parametrize("name", HEAT)
def test_parameters_of_the_heat_experiment(name):
    model = instance(pl.LightningModule, content(name)["model"])
    assert number(HEAT_ROWS[name]["parameters"]) == count(model)
