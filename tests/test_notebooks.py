"""The notebooks are tidy, say what they are for, and run from the first cell to the last."""

import re
import resource
import time

import nbformat
import pytest
from notebooktools import FOLDER, NOTEBOOKS, NotebookError, copied, execute

ROOT = FOLDER.parent
NAMES = [path.stem for path in NOTEBOOKS]


def read(path):
    return nbformat.read(path, as_version=4)


def sources(path, kind):
    return [cell.source for cell in read(path).cells if cell.cell_type == kind]


@pytest.fixture(scope="module")
def tidied():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        from tidy import tidied

        return tidied


def test_their_numbers_are_their_order():
    assert len({name[:2] for name in NAMES}) == len(NAMES) > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_is_tidy(path, tidied):
    text = path.read_text(encoding="utf-8")
    assert tidied(text) == text, "python notebooks/tidy.py"


def test_what_is_not_tidy_is_seen(tidied):
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "mine", "display_name": "My own"}}
    )
    cell = nbformat.v4.new_code_cell("1 + 1  ", execution_count=3, metadata={"scrolled": True})
    cell.outputs = [nbformat.v4.new_output("stream", text="2")]
    notebook.cells = [cell, nbformat.v4.new_code_cell("")]
    made = nbformat.reads(tidied(nbformat.writes(notebook)), as_version=4)
    (kept,) = made.cells
    assert (kept.source, kept.outputs, kept.execution_count) == ("1 + 1", [], None)
    assert kept.metadata == {}
    assert made.metadata.kernelspec.name == "python3"
    again = nbformat.writes(made)
    assert tidied(tidied(again)) == tidied(again)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_says_first_what_to_expect(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert re.match(rf"# {path.stem[:2]} \w", first.source)
    for word in ("**Question.**", "**Expected.**", "**Time.**"):
        assert word in first.source, word


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_links_lead_to_files(path):
    for text in sources(path, "markdown"):
        for link in re.findall(r"\]\((?!https?:)([^)\s#]+)", text):
            assert (FOLDER / link).exists(), link


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_uses_public_names_alone_and_one_switch(path):
    code = "\n".join(sources(path, "code"))
    assert re.search(r"example_store|ENS10_STORE", code), "one switch: example_store()"
    private = r"(?:from|import) ens10[\w.]*\._|\bimport _|\bens10[\w.]*\._(?!_)"
    assert not re.search(private, code)
    assert not re.search(r"^\s*!", code, re.MULTILINE), "a failing !command is not seen: command()"


def test_the_readme_lists_them_all():
    told = (FOLDER / "README.md").read_text()
    assert re.findall(r"\]\((\d\d[\w-]+)\.ipynb\)", told) == NAMES


def written(folder, *lines):
    cells = [nbformat.v4.new_markdown_cell("# Text"), *map(nbformat.v4.new_code_cell, lines)]
    path = folder / "broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_cell_that_fails_is_told_with_its_place(tmp_path):
    path = written(tmp_path, "a = 0", "b = 1 / a", "c = b")
    with pytest.raises(NotebookError) as told:
        execute(path)
    said = str(told.value)
    assert said.startswith("broken.ipynb, cell 3:")
    assert "b = 1 / a" in said
    assert "ZeroDivisionError" in said
    assert "\x1b" not in said


def test_a_warning_fails_but_for_those_that_all_tests_allow(tmp_path):
    bar = "from ens10.progress import track\nlist(track(range(3), 'things', 3))"
    allowed = f"{bar}\nimport warnings\nwarnings.warn('The dirpath has changed', UserWarning)"
    other = "warnings.warn('mind this', UserWarning)"
    with pytest.raises(NotebookError, match=r"cell 3:[\s\S]*mind this"):
        execute(written(tmp_path, allowed, other))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The notebooks in a folder of their own, where all share `work`."""
    return copied(tmp_path_factory.mktemp("reader"))


def used():
    """Processor seconds of this process's children so far: the kernels."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


# more than a minute each, of what other tests call too
LONG = ("07-the-papers-tables", "08-many-devices")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n in LONG else pytest.mark.slow) for n in NAMES],
)
def test_it_runs(name, place):
    begun, before = time.perf_counter(), used()
    done = execute(place / f"{name}.ipynb")
    outputs = [o for cell in done.cells if cell.cell_type == "code" for o in cell.outputs]
    assert any("image/png" in o.get("data", {}) for o in outputs), "it shows no figure"
    spent, cpu = time.perf_counter() - begun, used() - before
    print(f"{name}: {spent:.0f} s, of which a processor {cpu:.0f} s")
