"""The cards in docs/cards/ and the tables of models are those of today's configurations."""

import re
import sys

import pytest
from registered import CONFIGS, CONFIGURED, MODELS, ROOT, is_statistical

sys.path.insert(0, str(ROOT / "tests"))
import model_cards
from model_cards import content, header

AGAIN = "run python tests/model_cards.py"
PAGE = (ROOT / "docs" / "models.md").read_text()


def number(text):
    return int(text.replace(",", ""))


def test_each_configuration_has_a_card():
    assert {path.stem for path in (ROOT / "docs" / "cards").iterdir()} == set(MODELS), AGAIN
    assert {name for name in CONFIGS if name not in MODELS} == {
        name for name in CONFIGS if name.startswith("heat_")
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_card_is_that_of_its_configuration(name):
    """Parameters, multiply-adds, inputs, docstrings and results."""
    kept = (ROOT / "docs" / "cards" / f"{name}.md").read_text()
    assert kept == model_cards.card(name), AGAIN


@pytest.mark.parametrize("name", model_cards.PAGES)
def test_the_tables_of_pages_are_those_of_the_configurations(name):
    assert (ROOT / "docs" / name).read_text() == model_cards.page(name), AGAIN


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_network_tells_its_source_and_our_choices(name):
    told = header(name)
    assert told[""]
    assert re.search(r"arXiv:\d{4}\.\d{5}|doi:10\.\d+/|ours|as `", told["Source"])
    assert told["Published"]
    assert told["Our choice"]
    base = told.get("Compared with", name)
    assert base in MODELS


def test_the_values_of_a_card_are_those_of_the_papers_and_tables():
    """Numbers that stand elsewhere: in the ENS-10 paper's code, and in the kept table."""
    assert model_cards.facts("paper_unet") is not None
    facts = dict(model_cards.facts("paper_unet"))
    assert facts["parameters"] == "636,002"
    assert dict(model_cards.facts("emos_paper"))["coefficients"] == "13 for all points"
    table = (ROOT / "experiments/results/physical_models/table.md").read_text()
    (row,) = re.findall(r"^\| unet \| .*$", table, re.M)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    trainings, crps, skill, seconds, improving = model_cards.measured("unet", "physical", "t2m")
    assert [str(trainings), f"{crps:.4f}", f"{skill:.1f}"] == cells[2:5]
    assert f"{seconds:.0f}" in cells
    assert not improving
    assert "14.0" in model_cards.results("lenet")[2]


def test_values_that_are_level_with_a_better_one_are_in_parentheses(monkeypatch):
    rows = [
        {"model": name, "seed": "0", "crps": crps, "crpss": skill, "cpu_seconds": "1"}
        | {"still_improving": improving, "level_with": level}
        for name, crps, skill, improving, level in (
            ("unet", "0.9", "0.1", "0", ""),
            ("mlp", "0.91", "0.09", "1", "unet"),
            ("lenet", "0.95", "0.05", "0", ""),
        )
    ]
    kept = {
        "t2m": rows,
        "tp": [{k: v for k, v in row.items() if k != "level_with"} for row in rows],
    }
    monkeypatch.setattr(model_cards, "table", lambda world, target: kept.get(target, []))
    lines = list(model_cards.all_targets("physical"))
    cells = {line.split("`")[1]: line.split(" | ")[1:3] for line in lines if "`](" in line}
    assert cells == {
        "unet": ["10.0", "10.0"],
        "mlp": ["(9.0) (+)", "9.0 (+)"],  # an earlier table has no such column
        "lenet": ["5.0", "5.0"],
    }
    assert lines[-1].endswith(model_cards.LEVEL)
    del kept["t2m"]
    assert not list(model_cards.all_targets("physical"))[-1].endswith(model_cards.LEVEL)


def test_statistical_methods_are_the_others():
    assert [n for n in MODELS if n not in CONFIGURED] == [n for n in MODELS if is_statistical(n)]


def test_networks_start_at_zero_but_those_that_are_named():
    said = re.search(r"All networks but (.*?) start at zero", PAGE, re.S)[1]
    awake = {name for name in CONFIGURED if not model_cards.one_pass(name, (8, 16))[1]}
    assert awake == set(re.findall(r"`(\w+)`", said))


def test_how_to_choose_names_configurations():
    table = PAGE.split("## How to choose")[1].split("\n\n")[1]
    rows = table.splitlines()[2:]
    assert len(rows) == 9
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"paper"}
    assert named <= set(MODELS)
    assert content("unet")["data"]["target"] == "t2m"
