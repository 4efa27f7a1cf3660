"""The recipe for conda-forge asks for what pyproject.toml asks for, under conda's names."""

import re
import subprocess
import sys

import yaml
from environments import ROOT
from packaging.requirements import Requirement
from test_wheel import project_table

RECIPE = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
CONDA_NAMES = {
    "dask": "dask-core", "eccodes": "python-eccodes", "netcdf4": "netcdf4", "torch": "pytorch",
    "matplotlib": "matplotlib-base",
}  # fmt: skip
OF_WHEELS_ALONE = {"eccodeslib"}  # the library, which python-eccodes brings
EXTRAS = ("train", "plot", "cloud", "cluster", "tables")


def asked_for(needs):
    """Conda's name and bounds of each requirement."""
    parsed = [Requirement(need) for need in needs]
    named = {one.name.lower(): str(one.specifier) for one in parsed}
    return {CONDA_NAMES.get(k, k): v for k, v in named.items() if k not in OF_WHEELS_ALONE}


def of_recipe(section):
    pairs = [need.partition(" ")[::2] for need in RECIPE["requirements"][section]]
    return {name: bounds for name, bounds in pairs if name not in ("python", "pip")}


def test_the_bounds_are_those_of_pyproject():
    project = project_table()
    assert of_recipe("run") == asked_for(project["dependencies"])
    extras = [need for extra in EXTRAS for need in project["optional-dependencies"][extra]]
    of_extras = asked_for(extras)
    assert of_extras.pop("jsonargparse") == of_recipe("run")["jsonargparse"]
    assert of_recipe("run_constraints") == of_extras
    assert of_recipe("host") == {"setuptools": ">=77"}


def test_version_and_entry_points_are_those_of_pyproject():
    project, context = project_table(), RECIPE["context"]
    assert context["version"] == project["version"]
    assert f">={context['python_min']}" == project["requires-python"]
    scripts = [f"{name} = {place}" for name, place in project["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts
    assert RECIPE["about"]["license"] == project["license"]
    assert RECIPE["about"]["license_file"] == project["license-files"]


def test_the_folder_does_not_hide_the_library_of_its_name():
    """A folder without __init__.py gives way to a package, wherever both are on the path."""
    assert not list((ROOT / "packaging").rglob("*.py"))
    code = "import packaging.version as v; print(v.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"site-packages.packaging.version\.py", done.stdout), done.stderr
