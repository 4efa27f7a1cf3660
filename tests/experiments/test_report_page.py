"""The page's HTML: valid, nothing loaded, links, words in place of pictures."""

import re

import pytest
from fakereports import Page, page_of, script_of, write_target
from jinja2 import UndefinedError
from tinyhtml5.parser import HTMLParser as Html5Parser

from ens10.experiments.reporting import pages
from ens10.experiments.scoring.writers import Column

SECTIONS = (
    *("In short", "What was compared", "Score card", "Scores", "Maps", "Calibration"),
    *("Ensembles", "Learning curves", "Cost", "Where the numbers come from", "How to read this"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two targets, one of them at two lead times."""
    folder = tmp_path_factory.mktemp("runs")
    few = {"dates": 24, "grid": (4, 8)}
    return [
        *write_target(folder, names=("raw", "unet"), seed=3, **few).values(),
        *write_target(folder, step=24, names=("raw", "emos", "unet"), seed=2, **few).values(),
        *write_target(folder, "z500", 24, names=("raw", "emos"), seed=4, **few).values(),
    ]


@pytest.fixture(scope="module")
def text(folders):
    return page_of(folders)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def errors(text):
    parser = Html5Parser()
    parser.parse(text)
    return parser.errors


def test_it_is_html5(text):
    assert errors(text) == []
    assert errors(text.replace("</table>", "", 1)) != []  # the parser does tell


def test_nothing_is_loaded(page, text):
    for word in ("http:", "https:", "@import"):
        assert word not in text
    assert "url(" not in text
    assert not page.all("link")
    assert not page.all("iframe")
    assert all(a["href"].startswith("#") for a in page.all("a"))
    assert all(a["href"].startswith("data:image/png;base64,") for a in page.all("image"))


def test_one_script_runs_and_the_policy_knows_it(page, text):
    script, allowed = script_of(text)
    assert allowed
    assert "tablist" in script
    assert len(page.all("script")) == 1
    assert not any(key.startswith("on") for _, attrs in page.tags for key in attrs)
    assert "default-src 'none'" in text


def test_links_lead_to_headings(page):
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    skip, *links = (a["href"][1:] for a in page.all("a"))
    assert skip == "content"
    assert [attrs["id"] for attrs in page.all("h2")] == links
    assert len(links) == len(SECTIONS)
    assert all(f">{name}</h2>" in page.source for name in SECTIONS)
    assert len(page.all("h1")) == 1
    assert {attrs["aria-labelledby"] for attrs in page.all("section")} == set(links)


def test_targets_and_lead_times_can_be_chosen(page):
    choices = [attrs for attrs in page.all("div") if "data-choice" in attrs]
    sections = [name for name in SECTIONS if name != "How to read this"]
    for name, slider in (("target", False), ("step", True)):
        found = [attrs for attrs in choices if attrs["data-choice"] == name]
        assert len(found) == len(sections)  # and no more
        assert all(("data-slider" in attrs) == slider for attrs in found)
    titles = re.findall(r'class="panel" data-title="([^"]*)"', page.section("Score card"))
    assert titles == ["t2m", "24 h", "48 h", "z500"]
    quantities = re.findall(r'class="panel" data-title="([^"]*)"', page.section("Maps"))
    assert quantities[:7] == ["t2m", "24 h", "Skill", "CRPS", "Bias", "Spread", "Spread/error"]


def test_all_groups_stand_beside_each_other_in_the_score_card(page):
    head, lines = page.table(("Forecast", "t2m, 24 h"))
    assert head == ["Forecast", "t2m, 24 h", "t2m, 48 h", "z500, 24 h"]
    assert set(lines) == {"emos", "unet"}
    assert lines["unet"][3] == lines["emos"][2] == "–"
    assert lines["unet"][1].startswith("▲ ")


def test_the_first_paragraph_names_all_groups(page):
    assert "3 forecasts, compared by target and lead time: t2m, 24 h; t2m, 48 h; z500" in page.text


def test_pictures_have_words_in_their_place(page):
    pictures = [attrs for attrs in page.all("svg") if attrs.get("aria-hidden") != "true"]
    assert len(pictures) > 40
    for attrs in pictures:
        assert attrs["role"] == "img"
        assert len(attrs["aria-label"]) > 15
        assert "nan" not in attrs["aria-label"].split()
    assert "Map for unet of CRPSS against raw (%): median" in page.source
    assert "Learning curves of unet: 6 epochs, lowest validation loss 0.6 in epoch 4" in page.source


def test_tables_tell_their_heads(page):
    assert len(page.all("caption")) == len(page.all("table"))
    assert {attrs["scope"] for attrs in page.all("th")} == {"row", "col"}
    boxes = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll"]
    assert all(attrs["tabindex"] == "0" and attrs["role"] == "region" for attrs in boxes)
    assert len(boxes) >= len(page.all("table"))


def test_it_is_made_for_phones_and_readers(page):
    names = {attrs.get("name"): attrs.get("content") for attrs in page.all("meta")}
    assert names["viewport"] == "width=device-width, initial-scale=1"
    assert page.all("html")[0]["lang"] == "en"


def test_a_page_without_choices_has_no_script(folders):
    tables = {"A": [Column("?", ("<p>",))], "?": [Column("x", ("1",))], "!": [Column("x", ())]}
    text = pages.page("tables", "One", "Nothing to choose.", tables=tables, notes=["a & b"])
    assert "<script" not in text
    assert "script-src" not in text
    assert errors(text) == []
    ids = [attrs["id"] for attrs in Page(text).all("h2")]
    assert len(set(ids)) == 4
    assert Page(text).cells[1] == ["<p>"]


def test_what_a_template_lacks_is_an_error():
    with pytest.raises(UndefinedError, match="notes"):
        pages.page("tables", "One", "Nothing.", tables={})


def test_runs_without_predictions_say_what_they_lack(folders, tmp_path):
    import shutil

    for folder in folders[:2]:
        shutil.copytree(folder, tmp_path / folder.name)
        shutil.rmtree(tmp_path / folder.name / "predictions.zarr")
    text = page_of([tmp_path / "raw", tmp_path / "unet"])
    page = Page(text)
    quantities = re.findall(r'class="panel" data-title="([^"]*)"', page.section("Maps"))
    assert quantities == ["Skill", "CRPS"]
    assert "not there for raw, unet" in page.section("Maps")
    assert "Reliability" not in page.section("Calibration")
    assert errors(text) == []
