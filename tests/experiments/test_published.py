"""The published values: as the reference gives them, and marked where they are unverified."""

import pytest
import yaml

from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.reproduce.published import load_published

# As the paper's table has them, 5-ENS / 10-ENS, a star where a second source agrees; written apart
# from the file, so that a slip in one of them is seen.
CRPS = """
Raw          81.03 78.24*  0.748 0.719   0.758 0.733*
EMOS         79.08 81.74   0.725 0.756   0.718 0.749*
MLP          75.84 74.63   0.701 0.684   0.684 0.672*
LeNet        75.56 74.41*  0.689 0.674   0.669 0.659*
U-Net        76.66 76.25   0.687 0.669   0.659 0.644*
Transformer  77.30 74.79   0.686 0.665*  0.649* 0.626*
"""
EECRPS = {
    ("Raw", "t2m"): 0.25,
    ("Transformer", "t2m"): 0.214,
    ("Raw", "z500"): 28.78,
    ("LeNet", "z500"): 27.30,
}
PLACES = [(target, members) for target in ("z500", "t850", "t2m") for members in (5, 10)]


def of(score, source="ens10"):
    found = load_published().values
    return {
        (v.line, v.target, v.members): v for v in found if (v.score, v.source) == (score, source)
    }


def test_the_crps_of_the_papers_table():
    values = of("crps")
    for text in CRPS.strip().splitlines():
        line, *numbers = text.split()
        for (target, members), number in zip(PLACES, numbers, strict=True):
            value = values.pop((line, target, members))
            assert value.number == float(number.rstrip("*"))
            assert value.confirmed == number.endswith("*")
            assert value.text == (number.rstrip("*") if value.confirmed else f"{number}?")
    assert not values


def test_the_eecrps():
    values = of("eecrps")
    assert {(line, target): v.number for (line, target, _), v in values.items()} == EECRPS
    assert {(v.members, v.confirmed) for v in values.values()} == {(10, True)}


def test_values_of_a_paper_that_does_not_say_how_many_members():
    found = load_published()
    for members in (5, 10):
        value = found.find("crps", "smoe_unet", "t850", members)
        assert value.number == 0.590
        assert value.text == "0.590?"
        assert "second-hand" in found.sources[value.source]["note"]


def test_configurations_find_their_line():
    found = load_published()
    assert found.find("crps", "paper_unet", "t2m", 10).text == "0.644"
    assert found.find("crps", "unet", "t2m", 5).text == "0.659?"
    assert found.find("eecrps", "unet", "t2m", 10) is None
    assert found.find("crps", "poet", "t2m", 10) is None
    known = {path.stem for path in config_path("raw").parent.glob("*.yaml")}
    named = [model for models in found.lines.values() for model in models]
    assert set(named) <= known
    assert len(named) == len(set(named))


def test_the_papers_emos_is_worse_than_its_raw_ensemble():
    """As the note on EMOS says."""
    found = load_published()
    for target in found.units:
        raw, emos = (found.find("crps", model, target, 10) for model in ("raw", "emos_paper"))
        assert emos.number > raw.number
    assert "with 10 members it is worse than the raw ensemble" in found.notes["EMOS"]


@pytest.mark.parametrize(
    ("change", "notes", "said"),
    [
        ({"line": "Unet"}, {}, "'Unet' is none of its lines"),
        ({"target": "t500"}, {}, "'t500' is none of its units"),
        ({"source": "hearsay"}, {}, "'hearsay' is none of its sources"),
        ({"members": 5}, {}, "twice"),
        ({"verified": True}, {}, "a key 'verified'"),
        ({}, {"B": "of what?"}, "'B' is none of its lines"),
    ],
)
def test_a_file_that_does_not_explain_itself(tmp_path, change, notes, said):
    first = {
        "score": "crps",
        "line": "A",
        "target": "t2m",
        "members": 5,
        "value": "1",
        "source": "p",
    }
    content = {"lines": {"A": ["raw"]}, "units": {"t2m": "K"}, "sources": {"p": {"cite": "P"}}}
    content["values"] = [first, {**first, "members": 10, **change}]
    path = tmp_path / "published.yaml"
    path.write_text(yaml.safe_dump(content | {"notes": notes}))
    with pytest.raises(ArgumentError, match=said):
        load_published(path)
