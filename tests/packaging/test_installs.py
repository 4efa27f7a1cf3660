"""Installs of every kind do their job beside torch, from any working directory."""

import shutil
from pathlib import Path

import pytest
from environments import Environment, removed

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
LONG = pytest.mark.long


@pytest.mark.parametrize("where", ["the project", pytest.param("elsewhere", marks=LONG)])
def test_regular_install(where, with_torch, project, tmp_path):
    """The project's root as working directory does not shadow what is installed."""
    script = shutil.copy(HERE / "road_with_torch.py", tmp_path)
    cwd = project if where == "the project" else tmp_path
    assert with_torch.python(script, with_torch.site / "ens10", cwd=cwd) == "done\n"


def test_regular_install_and_the_root_on_the_path(with_torch, project, tmp_path):
    """`python -m` puts the working directory first: then the checkout is what runs, whole."""
    shutil.copy(HERE / "road_with_torch.py", tmp_path)
    code = "import pathlib, sys, road_with_torch as r; r.main(pathlib.Path(sys.argv[1]).resolve())"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = with_torch.python("-c", code, project / "ens10", cwd=project, env=environment)
    assert said == "done\n"


@pytest.fixture(scope="module")
def editable(tmp_path_factory, project):
    with removed(Environment(tmp_path_factory.mktemp("editable"), behind=True)) as environment:
        environment.install("--no-deps", "-e", project)
        yield environment


@pytest.mark.parametrize("where", [pytest.param("the project", marks=LONG), "elsewhere"])
def test_editable_install(where, editable, project, tmp_path):
    script = shutil.copy(HERE / "road_with_torch.py", tmp_path)
    cwd = project if where == "the project" else tmp_path
    assert editable.python(script, project / "ens10", cwd=cwd) == "done\n"
    assert "ENS-10" in editable.command("info", cwd=cwd)
