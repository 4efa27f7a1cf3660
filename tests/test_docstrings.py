"""The examples of docstrings are true: each is run, those on data one after the other."""

import ast
import doctest
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# In the order in which one makes what the next reads.
ON_DATA = [
    "ens10.synthetic.world:World",
    "ens10.convert.preparation:prepare",
    "ens10.convert.verification:verify",
    "ens10.store.opening:open_store",
    "ens10.loader",
    "ens10.metrics.verification.scoring:verify",
]


def with_examples(path):
    """What of a source file has examples in its docstring, as `module` or `module:name`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts if parts[0] == "ens10" else ("ens10", *parts))
    text = path.read_text()
    nodes = [("", ast.parse(text))] if ">>> " in text else []
    for prefix, node in nodes:  # grows by what each node defines
        if isinstance(node, ast.Module | ast.ClassDef):
            defined = [one for one in node.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
            nodes += [(f"{prefix}.{one.name}".lstrip("."), one) for one in defined]
        if ">>> " in (ast.get_docstring(node) or ""):
            yield ":".join(filter(None, [module.removesuffix(".__init__"), prefix]))


FOLDERS = ("ens10", "metrics", "models", "experiments")
SOURCES = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
FOUND = sorted(name for path in SOURCES for name in with_examples(path))
ALONE = [name for name in FOUND if name not in ON_DATA]


def examples(name):
    """The examples of one docstring, of a module or of what one defines."""
    module, _, thing = name.partition(":")
    home = import_module(module)
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(attrgetter(thing)(home) if thing else home, name, module=home, globs={})
    assert found.examples, f"{name} has no examples"
    return found


def run(name):
    """What does not come out as written, as doctest tells it."""
    told = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples(name), out=told.append)
    assert not failed, "".join(told)


def test_examples_are_found():
    assert set(ON_DATA) < set(FOUND)
    assert "ens10.metrics.weighted:twcrps_ensemble" in ALONE
    assert "ens10.models.layers.smoe" in ALONE  # of a module
    assert "ens10.selection:Selection.of" in ALONE  # of a method


@pytest.mark.parametrize("name", ALONE)
def test_an_example(name):
    run(name)


def test_the_examples_on_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ON_DATA:
        run(name)


def test_an_example_that_is_wrong_is_seen(monkeypatch):
    from ens10.metrics import crps_normal

    text = crps_normal.__doc__.replace("0.2337", "0.2338")
    monkeypatch.setattr(crps_normal, "__doc__", text)
    with pytest.raises(AssertionError, match=r"0\.2338\s+Got:\s+0\.2337"):
        run("ens10.metrics.distributions.normal:crps_normal")
