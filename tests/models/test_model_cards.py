"""The cards of docs/models.md and the configurations tell the same: names, parameters, work."""

import csv
import re
from functools import cache

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from registered import CONFIGS, CONFIGURED, MODELS, ROOT, count, instance, is_statistical, work

from ens10.experiments.training.data_numbers import read_config
from ens10.models.networks import Network

PAGE = (ROOT / "docs" / "models.md").read_text()
CARDS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
STATISTICAL = ROOT / "docs" / "cards_statistical.md"
FIELDS = ("Source", "Network", "Inputs", "Output", "From the paper", "Our choice", "Parameters")


def content(name):
    return read_config(CONFIGS[name])


def number(text):
    return int(text.replace(",", ""))


def field(name, title):
    found = re.search(rf"^- \*\*{title}\*\*: (.*?)(?=^- \*\*|\Z)", CARDS[name], re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def of_other_channels(name, channels):
    """Parameters of a configuration's networks, made for another number of channels."""
    given = content(name)["model"]["init_args"]
    network = {**given["network"], "init_args": {**given["network"]["init_args"]}}
    network["init_args"]["in_channels"] = channels
    return given.get("size", 1) * count(instance(Network, network))


@cache
def built(name):
    torch.manual_seed(0)
    return instance(pl.LightningModule, content(name)["model"])


@cache
def one_pass(name):
    model = built(name)
    networks = list(getattr(model, "networks", None) or [model.network])
    return work(networks, content(name)["data"].get("ensemble") or 10)


def test_the_table_of_networks_has_each_configuration():
    """And cards tell more of most of them."""
    assert len(CARDS) >= 30
    assert set(CARDS) <= set(CONFIGURED)
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \| ([\d,]+) \| ([\d,.]+) \|$", PAGE, re.M)
    assert [row[0] for row in rows] == CONFIGURED
    for name, network, head, parameters, operations in rows:
        given = content(name)["model"]["init_args"]
        assert given["network"]["class_path"].endswith(f".{network}"), name
        assert head in str(given["head"]), name
        assert number(parameters) == count(built(name)), name
        assert float(operations.replace(",", "")) == pytest.approx(one_pass(name)[0], rel=0.02), (
            name
        )


def test_statistical_configurations_have_cards_of_their_own():
    told = set(re.findall(r"`(\w+)`", STATISTICAL.read_text()))
    assert [n for n in MODELS if is_statistical(n) and n not in told] == []


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_complete(name):
    assert [title for title in FIELDS if not field(name, title)] == []
    paper = re.search(r"arXiv:\d{4}\.\d{5}|doi:10\.\d+/", field(name, "Source"))
    assert paper or "ours" in field(name, "Source")


@pytest.mark.parametrize("name", CARDS)
def test_the_parameters_are_those_of_the_configuration(name):
    told = field(name, "Parameters")
    assert number(re.match(r"([\d,]+)", told)[1]) == count(built(name))
    for stated, channels in re.findall(r"([\d,]+) for (\d+) channels", told):
        assert number(stated) == of_other_channels(name, int(channels))


@pytest.mark.parametrize("name", CARDS)
def test_the_work_is_that_of_the_configuration(name):
    told = re.search(r"([\d,.]+) million multiply-adds", field(name, "Parameters"))
    assert float(told[1].replace(",", "")) == pytest.approx(one_pass(name)[0], rel=0.02)


@pytest.mark.parametrize("name", CARDS)
def test_the_classes_named_are_those_of_the_configuration(name):
    named = set(re.findall(r"`(\w+)`", field(name, "Network") + field(name, "Output")))
    used = re.findall(r"ens10\.models(?:\.\w+)*\.([A-Z]\w+)", CONFIGS[name].read_text())
    assert set(used) - {"PostProcessor"} <= named


def test_networks_start_at_zero_but_those_that_are_named():
    said = re.search(r"All networks but (.*?) start at zero", PAGE, re.S)[1]
    awake = {name for name in CONFIGURED if not one_pass(name)[1]}
    assert awake == set(re.findall(r"`(\w+)`", said))


def test_any_count_that_is_wrong_is_seen():
    """The pattern finds the figures that are compared."""
    told = field("lenet", "Parameters")
    assert re.findall(r"([\d,]+) for (\d+) channels", told) == [("62,976", "14"), ("64,176", "22")]
    assert of_other_channels("lenet", 14) != count(built("lenet"))


WORLDS = {  # as cards name them: the folder of the table, its column, digits of the percentage
    "physical": ("physical_models", "crpss", 1),
    "displaced": ("displaced", "attained", 0),
    "pointwise": ("models", "attained", 0),
}


def measured(world):
    """What the table of a world has for each network: mean in percent, and how many seeds."""
    folder, column, digits = WORLDS[world]
    table = ROOT / "experiments" / "results" / folder / "table.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    found = {}
    for name in {row["model"] for row in rows} & set(CARDS):
        values = [100 * float(row[column]) for row in rows if row["model"] == name]
        found[name] = (f"{np.mean(values):.{digits}f}", len(values))
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_cards_tell_what_the_tables_have(world):
    expected = measured(world)
    assert expected
    counts = {"one": 1, "two": 2, "three": 3}
    pattern = rf"([\d.-]+) %[^;]*? on the {world} world \((\w+) (?:seed|training)s?\)"
    told = {}
    for name in CARDS:
        if said := re.search(pattern, field(name, "Measured")):
            told[name] = (said[1], counts[said[2]])
    assert told == expected


def gains(name, base, table):
    """Least and largest gain of a model on another in each world, percent of the other's CRPS."""
    found = []
    for folder in ("physical_models", "displaced"):
        path = ROOT / "experiments" / "results" / folder / f"{table}.csv"
        rows = list(csv.DictReader(path.read_text().splitlines()))
        own, other = (
            {row["seed"]: float(row["crps"]) for row in rows if row["model"] == model}
            for model in (name, base)
        )
        # what has no random numbers has one row on the physical world
        values = [100 * (1 - own[seed] / other.get(seed, other["0"])) for seed in own]
        found.append((min(values), max(values)))
    return found


def test_cards_tell_the_gain_on_the_model_that_they_change():
    told = re.findall(r"^- \*\*Gain on `(\w+)`\*\* (.*?)(?=^- )", PAGE, re.M | re.S)
    assert len(told) == 17
    for name, text in CARDS.items():
        said = re.search(r"^- \*\*Gain on `(\w+)`\*\* (.*?)(?=^- )", text, re.M | re.S)
        if not said:
            continue
        field_of = {"csg": "table-tp", "truncated": "table-si10"}
        table = field_of.get(name.rsplit("_", 1)[-1], "table")
        for (least, most), world in zip(
            gains(name, said[1], table), ("physical", "displaced"), strict=True
        ):
            line = " ".join(said[2].split()).replace("\u2212", "-")
            values = re.search(rf"{world} world ([+-]?[\d.]+)(?: to ([+-]?[\d.]+))? %", line)
            assert float(values[1]) == pytest.approx(least, abs=0.051), (name, world)
            assert float(values[2] or values[1]) == pytest.approx(most, abs=0.051), (name, world)


def test_links_lead_to_files():
    local = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / "docs" / link).exists()] == []
