"""The site of docs/: every page and public name has its place, and what the pages say is so."""

import ast
import html
import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

from ens10 import __version__, catalog, cli
from ens10.protocol import protocol_of
from ens10.splits import split_dates

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
DIRECTIVE = re.compile(r"^::: ([\w.]+)$(?:\n    options:\n      members: \[(.*)\])?", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]+)")
# what the commands are made of, and what others are built upon: not for import by users
INTERNAL = re.compile(r"ens10\.(cli(\.\w+)?|compiled|cores|past_caches|progress|vector_math)")
PACKAGES = ("ens10", "metrics", "models")
INSTALLED = find_spec("mkdocs") and find_spec("mkdocstrings") and find_spec("material")


def named(nav):
    """The files of a navigation."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in named(entry)]


def source_of(module):
    """The file of a module of this repository, or None."""
    place = ROOT / module.replace(".", "/")
    return next((p for p in (place / "__init__.py", place.with_suffix(".py")) if p.is_file()), None)


@cache
def read(module):
    """What a module exports (`__all__`, or what it defines), and where its imports are from."""
    exported, defined, homes = None, [], {}
    body = ast.parse(source_of(module).read_text()).body
    hints = [line for node in body if isinstance(node, ast.If) for line in node.body]
    for node in [*body, *hints]:
        if isinstance(node, ast.ImportFrom):
            homes |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined.append(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported = ast.literal_eval(node.value)
        elif isinstance(node, ast.Assign):
            defined += [target.id for target in node.targets if isinstance(target, ast.Name)]
    names = defined if exported is None else exported
    return [name for name in names if not name.startswith("_")], homes


@cache
def home(module, name):
    """Where an object is defined, whoever passes it on."""
    homes = read(module)[1] if source_of(module) else {}
    origin = homes.get(name, (None, name))
    is_submodule = origin == (module, name)  # `from ens10.metrics import events` in that package
    return home(*origin) if origin[0] and not is_submodule else f"{module}.{name}"


@cache
def documented():
    """Objects that the reference has, by the place where they are defined."""
    found = set()
    for page in (DOCS / "reference").glob("*.md"):
        for directive in DIRECTIVE.finditer(page.read_text()):
            module, members = directive.groups()
            if source_of(module) is None:
                found.add(home(*module.rsplit(".", 1)))
                continue
            chosen = read(module)[0] if members is None else members.split(", ")
            # griffe takes a submodule for the function of the same name: such need a line each
            chosen = [name for name in chosen if source_of(f"{module}.{name}") is None]
            found |= {home(module, name) for name in chosen}
    return found


def public_modules():
    """Packages with `__all__`, and other modules beside them."""
    for folder in PACKAGES:
        top = ROOT / folder
        for path in [*top.rglob("__init__.py"), *top.glob("*.py")]:
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts if folder == "ens10" else ("ens10", *parts))
            module = module.removesuffix(".__init__")
            exports = path.name == "__init__.py" or folder != "models"
            if exports and "._" not in module and not INTERNAL.fullmatch(module):
                yield module


def entry_points():
    """Functions that the commands take from the experiments, as (module, name)."""
    for path in (ROOT / "ens10" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "ens10.experiments" in (node.module or ""):
                names = [alias.name for alias in node.names]
                yield from ((node.module, n) for n in names if not source_of(f"{node.module}.{n}"))


def test_every_page_is_in_the_navigation_and_the_other_way_round():
    pages = named(SITE["nav"])
    cards = DOCS / "cards"  # docs/_site/hooks.py adds them
    assert {page.relative_to(DOCS).as_posix() for page in PAGES if page.parent != cards} == {
        page for page in pages if not page.startswith("repository/")
    }, "add the page to `nav` in mkdocs.yml"
    assert all(
        (ROOT / page.removeprefix("repository/")).is_file() for page in pages if "repo" in page
    )
    assert len(set(pages)) == len(pages)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_to_something(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("module", sorted(set(public_modules())))
def test_public_names_are_in_the_reference(module):
    names, _ = read(module)
    places = documented()
    missing = [name for name in names if home(module, name) not in places]
    assert not missing, f"add `::: {module}` to a page of docs/reference"


def test_what_the_commands_call_is_in_the_reference():
    calls = set(entry_points())
    assert ("ens10.experiments.reporting.report", "write_report") in calls
    missing = [call for call in calls if home(*call) not in documented()]
    assert not missing, "add them to docs/reference/experiments.md"


def test_every_command_is_told(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    commands = set(re.findall(r"^    (\w+)(?:  |$)", capsys.readouterr().out, re.MULTILINE))
    page = (DOCS / "reference" / "commands.md").read_text()
    told = set(re.findall(r"^\| `ens10 (\w+)", page, re.MULTILINE))
    assert len(commands) > 10
    assert told == commands, "the tables of docs/reference/commands.md and the parser differ"
    for module in re.findall(r"`python -m (ens10[\w.]+)", page):
        assert source_of(module), module


def rows(page, heading):
    """The cells of the first table below a heading, without the table's head."""
    table = (DOCS / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in lines]


def test_the_data_card_is_the_catalogue():
    assert rows("data_card.md", "Variables") == [
        (v.kind, v.name, v.short_name, str(v.param_id), v.units, v.long_name)
        for v in catalog.VARIABLES.values()
    ]
    facts = dict(rows("data_card.md", "At a glance"))
    days, years = catalog.month_days(), catalog.HINDCAST_YEARS
    numbers = {name: [int(n) for n in re.findall(r"\d+", text)] for name, text in facts.items()}
    assert numbers["levels"] == list(catalog.LEVELS_HPA)
    assert numbers["steps"] == list(catalog.STEPS_HOURS)
    assert numbers["members"] == [len(catalog.MEMBERS), catalog.MEMBERS[0], catalog.MEMBERS[-1]]
    assert numbers["grid"][:2] == list(catalog.GRID_SHAPE)
    assert numbers["hindcast years"] == [years[0], years[-1]]
    assert numbers["forecasts"] == [len(days) * len(years), 0, len(days), len(years)]
    assert numbers["files"][0] == 2 * len(days)
    assert re.findall(r"\d{4}\b", facts["days of the year"])[1:] == [days[0], days[1], days[-1]]
    kinds = [len(catalog.names_of_kind(kind)) for kind in ("sfc", "pl")]
    assert numbers["variables"] == kinds
    assert catalog.DATA_LICENCE.startswith(facts["licence"])
    assert {target.lower() for target in re.findall(r"[ZT]\w+", facts["targets"])} >= {
        *catalog.TARGETS
    }


def test_the_splits_of_the_data_card_are_those_of_the_protocols():
    days = [f"{day[:2]}-{day[2:]}" for day in catalog.month_days()]
    starts = np.array([f"{y}-{day}" for y in catalog.HINDCAST_YEARS for day in days], "datetime64")
    for name, train, val, test in rows("data_card.md", "Splits"):
        key = name.partition("`")[0]
        splits = split_dates(protocol_of(key), starts, starts + np.timedelta64(48, "h"))
        said = [[int(year) for year in re.findall(r"\d{4}", text)] for text in (train, val, test)]
        assert said[0] == [splits.years["train"][0], splits.years["train"][-1]]
        assert (said[1] or said[2]) == splits.years["val"]
        assert said[2] == splits.years["test"]
        if key == "paper":
            counts = [len(splits.index["train"]), len(splits.index["test"])]
            page = " ".join((DOCS / "data_card.md").read_text().split())
            assert f"{sum(counts)} pairs: {counts[0]} with a valid date in 1998 to 2015" in page
            assert f"and {counts[1]} in 2016 and 2017" in page


def test_the_sources_of_all_cards_are_cited():
    cited = (DOCS / "cite.md").read_text()
    for page in ("models.md", "cards_statistical.md"):
        text = (DOCS / page).read_text().replace("arXiv ", "arXiv:")
        for source in re.findall(r"arXiv:[\d.]+\d|doi:10\.[^\s,;|]+[\w>)]", text):
            assert source.removesuffix(")") in cited, f"{source} of {page}"


def test_this_software_is_cited_in_its_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    entry = (DOCS / "cite.md").read_text().split("@software")[1]
    assert f"version = {{{__version__}}}" in entry
    assert citation["title"] in entry
    assert citation["authors"] == [{"name": "The ens10 developers"}]


def test_a_notebook_that_was_run_is_a_page_with_its_outputs(tmp_path, monkeypatch):
    """Without a run since it changed, the page has the code alone."""
    monkeypatch.syspath_prepend(DOCS / "_site")
    pages = import_module("notebook_pages")
    monkeypatch.setattr(pages, "DONE", tmp_path / "done")
    (tmp_path / "done").mkdir()
    cells = [
        {"cell_type": "markdown", "source": ["# 00 ", "Title"]},
        {"cell_type": "code", "source": "1 + 1", "outputs": []},
    ]
    path = tmp_path / "00.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert pages.page_text(path) == "# 00 Title\n\n```python\n1 + 1\n```\n"
    cells[1]["outputs"] = [
        {"data": {"text/plain": "<2>"}},
        {"data": {"image/png": "QUJD\n", "text/plain": "a figure"}},
        {"data": {"text/html": "<table>\n\n  <tr></tr>\n</table>", "text/plain": "a table"}},
        {"text": ["a\n", "\n", "b"]},
    ]
    (tmp_path / "done" / "00.ipynb").write_text(json.dumps({"cells": cells}))
    *_, two, figure, table, text = pages.page_text(path).strip().split("\n\n")
    assert two == "<pre>&lt;2&gt;</pre>"
    assert figure == '<img alt="" src="data:image/png;base64,QUJD">'
    assert table == "<table>\n<tr></tr>\n</table>"
    assert text == "<pre>a\n \nb</pre>"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of the site by name, built as `make docs` does."""
    if not INSTALLED:
        pytest.skip("mkdocs is not installed: pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    return {page.relative_to(out).as_posix(): page.read_text() for page in out.rglob("*.html")}


@pytest.mark.slow
def test_the_site_has_the_docstrings(site):
    text = {
        name: " ".join(html.unescape(re.sub("<.*?>", "", page)).split())
        for name, page in site.items()
    }
    assert "Build a store from forecasts and, if given, the truth" in text["reference/ens10.html"]
    assert "CRPS of ensembles of M members." in text["reference/metrics_crps.html"]
    assert "truth: over time [, step] [, level], latitude" not in text["reference/loader.html"]
    assert "over time [, step] [, level], latitude" in text["reference/metrics_sums.html"]
    assert 'title="my_network.py"' not in text["add_your_own.html"]


@pytest.mark.slow
def test_the_site_has_cards_notebooks_and_tables(site):
    cards = [f"cards/{path.stem}.html" for path in (DOCS / "cards").glob("*.md")]
    names = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")]
    notebooks = [f"repository/notebooks/{name}.html" for name in names]
    assert (len(cards) > 50, len(notebooks)) == (True, 10)
    assert [page for page in (*cards, *notebooks) if page not in site] == []
    tables = (ROOT / "experiments" / "results").rglob("table*.md")
    pages = [f"repository/{path.relative_to(ROOT).with_suffix('.html')}" for path in tables]
    assert [page for page in pages if page not in site] == []
    assert "javascripts/sort.js" in site["models.html"]


@pytest.mark.slow
def test_the_site_has_every_public_name(site):
    anchors = re.findall(r'id="(ens10[\w.]*\.\w+)"', "".join(site.values()))
    places = {home(*anchor.rsplit(".", 1)) for anchor in anchors}
    for module in set(public_modules()):
        missing = [name for name in read(module)[0] if home(module, name) not in places]
        assert not missing, module


@pytest.mark.slow
def test_the_site_needs_no_network_and_links_names(site):
    for name, page in site.items():
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(https?:[^"]*)"', page)
        assert not loaded, name
    target = 'href="reference/metrics_crps.html#ens10.metrics.distributions.normal.crps_normal"'
    assert target in site["scores.html"]
    assert 'href="../models.html"' in site["repository/index.html"]
