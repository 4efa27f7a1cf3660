"""Installs of every kind do their job, from any working directory."""

import shutil
from pathlib import Path

import pytest
from environments import CONSTRAINTS, REAL, Environment

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def test_bare_install_without_torch(tmp_path, wheel):
    environment = Environment(tmp_path / "environment")
    environment.install("-c", CONSTRAINTS, wheel)
    environment.python("-m", "pip", "check")
    (tmp_path / "out").mkdir()
    script = HERE / "road_without_torch.py"
    said = environment.python("-W", "error", script, REAL, tmp_path / "out", cwd=tmp_path)
    assert said.splitlines()[-1] == "done"
    assert "members" in environment.command("info", cwd=tmp_path)


@pytest.mark.parametrize("where", ["the project", "elsewhere"])
def test_regular_install(where, with_torch, project, tmp_path):
    """The project's root as working directory does not shadow what is installed."""
    script = shutil.copy(HERE / "road_with_torch.py", tmp_path)
    cwd = project if where == "the project" else tmp_path
    assert with_torch.python(script, with_torch.site / "ens10", cwd=cwd) == "done\n"


@pytest.mark.parametrize("where", ["the project", "elsewhere"])
def test_regular_install_and_the_root_on_the_path(where, with_torch, project, tmp_path):
    """`python -m` puts the working directory first: then the checkout is what runs, whole."""
    script = shutil.copy(HERE / "road_with_torch.py", tmp_path)
    home = project / "ens10" if where == "the project" else with_torch.site / "ens10"
    cwd = project if where == "the project" else tmp_path
    run_it = f"import runpy, sys; sys.argv = ['', {str(home)!r}]"
    code = f"{run_it}; import road_with_torch as r; r.main(r.Path(sys.argv[1]).resolve())"
    environment = {"PYTHONPATH": str(Path(script).parent), "PATH": "/usr/bin:/bin"}
    assert with_torch.python("-c", code, cwd=cwd, env=environment) == "done\n"


@pytest.fixture(scope="module")
def editable(tmp_path_factory, project):
    environment = Environment(tmp_path_factory.mktemp("editable"), behind=True)
    environment.install("--no-deps", "-e", project)
    return environment


@pytest.mark.parametrize("where", ["the project", "elsewhere"])
def test_editable_install(where, editable, project, tmp_path):
    script = shutil.copy(HERE / "road_with_torch.py", tmp_path)
    cwd = project if where == "the project" else tmp_path
    assert editable.python(script, project / "ens10", cwd=cwd) == "done\n"
    assert "ENS-10" in editable.command("info", cwd=cwd)
