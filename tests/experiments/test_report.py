import json
import shutil
import struct
import subprocess
import sys
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fakeruns import write_run, write_world

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.finished import read_run, read_runs
from ens10.experiments.report import write_report
from ens10.experiments.tables import score_table
from ens10.experiments.writers import columns, markdown
from ens10.metrics import summarise

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VOID = {"meta", "img", "br", "link", "input", "hr"}
FIGURES = ("crps", "crpss-maps", "calibration", "learning-curves")


class Page(HTMLParser):
    """Checks nesting, and collects what a test asks for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.cells, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def out(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("reports") / "out"
    assert write_report(list(folders.values()), out, "Test world") == out / "index.html"
    return out


@pytest.fixture(scope="module")
def page(out):
    return Page((out / "index.html").read_text(encoding="utf-8"))


def test_all_files_are_written(out):
    found = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    tables = {"index.html", "table.md", "table.csv", "table.tex"}
    assert found == tables | {f"figures/{name}.png" for name in FIGURES}
    assert (out / "index.html").stat().st_size < 3e6


def test_every_figure_is_inside_the_page_with_words_in_its_place(page, out):
    images = page.all("img")
    assert len(images) == len(page.all("figcaption")) == len(FIGURES)
    for image, name in zip(images, FIGURES, strict=True):
        assert len(image["alt"]) > 20
        head, data = image["src"].split(",")
        assert head == "data:image/png;base64"
        png = b64decode(data)
        assert png == (out / "figures" / f"{name}.png").read_bytes()
        assert struct.unpack(">I", png[16:20])[0] > 900  # pixels of width


def test_nothing_is_loaded(page, out):
    text = (out / "index.html").read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert not page.all("script")
    assert not page.all("link")
    assert all(a["href"].startswith("#") for a in page.all("a"))


def test_links_lead_to_headings(page):
    ids = {attrs["id"] for attrs in page.all("h2")}
    assert {a["href"][1:] for a in page.all("a")} == ids
    assert len(ids) == 8
    assert len(page.all("h1")) == 1


def test_the_tables_numbers_are_those_of_summarise(page, folders):
    states = {name: read_run(folder).states for name, folder in folders.items()}
    head, *lines = page.cells[:5]
    assert [line[0] for line in lines] == ["raw", "emos", "unet", "optimum"]
    for line in lines:
        own = summarise(states[line[0]], states["raw"])
        crps = [float(own[f"crps{part}"]) for part in ("", "_lower", "_upper")]
        assert line[head.index("CRPS (K)")] == "{:.4f} [{:.4f}, {:.4f}]".format(*crps)
        assert line[head.index("RMSE (K)")] == f"{float(own['rmse']):.4f}"
        if line[0] != "raw":
            skill = line[head.index("CRPSS (%)")].split(" [")[0]
            assert skill == f"{100 * float(own['crpss']):.1f}"
    assert lines[2][head.index("Parameters")] == "636,002"
    assert lines[2][head.index("Fit (s)")] == "12.3"


def test_tables_tell_their_heads(page):
    assert len(page.all("caption")) == len(page.all("table")) == 3
    scopes = [attrs["scope"] for attrs in page.all("th")]
    assert scopes.count("row") == 9
    assert set(scopes) == {"row", "col"}


def test_the_page_tells_what_was_compared(page):
    for told in (
        "t2m (K)",
        "48 h",
        "280 (1998–2000, 2002)",
        "40 dates, valid 2004-01-03 to 2004-04-29",
        "exact cell areas",
        "clean",
        "6 × 12 (latitude × longitude), 75°N to 75°S, global",
        "Lowest CRPS of 2 models: unet",
        "2.13.0",
        "0011aabb",
        "abc123",
    ):
        assert told in page.text


def test_it_can_be_read_on_a_phone(page):
    names = {attrs.get("name"): attrs.get("content") for attrs in page.all("meta")}
    assert names["viewport"] == "width=device-width, initial-scale=1"
    assert page.all("html")[0]["lang"] == "en"


def test_the_same_runs_give_the_same_files(folders, out, tmp_path):
    write_report(list(folders.values())[::-1], tmp_path, "Test world")
    for file in (p for p in out.rglob("*") if p.is_file()):
        assert (tmp_path / file.relative_to(out)).read_bytes() == file.read_bytes()


def test_table_md_is_the_table(folders, out):
    rows = score_table(read_runs(list(folders.values())))
    assert (out / "table.md").read_text(encoding="utf-8") == markdown(rows)


def test_names_and_title_are_escaped(folders, tmp_path):
    name = "<script>alert('x')</script> & \"y\""
    odd = write_run(tmp_path / "odd", read_run(folders["emos"]).states, {"name": name})
    out = write_report([folders["raw"], odd], tmp_path / "out", "<b>bold</b>")
    text = out.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>" not in text
    page = Page(text)
    assert "<b>bold</b>" in page.text
    assert page.cells[2][0] == name


def test_without_raw_the_page_says_why_columns_are_missing(folders, tmp_path):
    shutil.copytree(folders["emos"], tmp_path / "emos")
    stale = tmp_path / "out" / "figures" / "crpss-maps.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier report")
    page = Page(write_report([tmp_path / "emos"], tmp_path / "out").read_text(encoding="utf-8"))
    assert "No run is called raw" in page.text
    assert "No maps" in page.text
    assert "No curves" in page.text
    assert not any("CRPSS" in cell for line in page.cells for cell in line)
    assert not stale.exists()


def test_what_is_not_known_is_shown_as_a_dash(folders, tmp_path):
    bare = write_run(tmp_path / "bare", read_run(folders["emos"]).states)
    page = Page(write_report([bare], tmp_path / "out").read_text(encoding="utf-8"))
    assert ["bare", "model", "–", "–", "–", "–"] in page.cells
    assert "Training dates–" in page.text.replace("\n", "")


def test_runs_that_disagree_are_told_apart(folders, tmp_path):
    other = {"name": "other", "protocol": "paper", "target": "t2m"}
    odd = write_run(tmp_path / "odd", read_run(folders["emos"]).states, other)
    text = write_report([folders["raw"], odd], tmp_path / "out").read_text(encoding="utf-8")
    assert "clean (raw); paper (other)" in text


def test_bad_runs_are_refused_before_anything_is_written(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    twin = write_run(tmp_path / "twin", read_run(folders["emos"]).states, {"name": "emos"})
    late = write_world(tmp_path / "late", ("unet",), start="2004-01-04")["unet"]
    for runs, error, told in (
        ([folders["raw"], tmp_path / "empty"], FileError, "ens10 score"),
        ([folders["emos"], twin], ArgumentError, "both called"),
        ([folders["raw"], late], MissingDataError, "2004-01-01"),
        ([], ArgumentError, "none"),
    ):
        with pytest.raises(error, match=told):
            write_report(runs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_reports_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import ens10.experiments.report;"
        "print('pytorch_lightning' in sys.modules)"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (0, "False\n"), made.stderr


def test_seconds_are_in_the_page_alone(folders):
    rows = score_table(read_runs(list(folders.values())))
    assert "Fit (s)" not in [c.heading for c in columns(rows)]
    assert "Fit (s)" in [c.heading for c in columns(rows, seconds=True)]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look at the page with")
@pytest.mark.parametrize("width", [1200, 400])
def test_a_browser_shows_the_page_without_complaint(out, tmp_path, width):
    # headless windows are 500 wide at least, so the narrow page sits in a frame
    text = json.dumps((out / "index.html").read_text("utf-8")).replace("</", "<\\/")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<!DOCTYPE html><title>wait</title><iframe width={width} height=900 srcdoc></iframe>"
        "<script>const text = " + text + ";"
        "const frame = document.querySelector('iframe'); frame.srcdoc = text;"
        "frame.onload = () => { const d = frame.contentDocument;"
        "if (!d.querySelector('h1')) return;"
        "const r = d.documentElement; const images = [...d.images];"
        "document.title = [r.scrollWidth <= r.clientWidth, images.length,"
        "images.every(i => i.complete && i.naturalWidth > 900)].join(' '); };</script>"
    )
    made = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=5000", "--window-size=1400,1000", "--dump-dom"),
            Path(frame).as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "<title>true 4 true</title>" in made.stdout
    assert "CONSOLE" not in made.stderr
