"""Newer versions of Python: the wheel without extras does all that needs none."""

import shutil
from pathlib import Path

import pytest
from environments import CONSTRAINTS, REAL, Environment, removed

pytestmark = pytest.mark.slow
ROAD = Path(__file__).parent / "road_without_torch.py"


def interpreter(version):
    """The path of a Python of this version, on the PATH or of pyenv; None if there is none."""
    found = shutil.which(f"python{version}")
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return of_pyenv[-1] if of_pyenv else found


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_the_wheel_without_extras(tmp_path, wheel, version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    with removed(Environment(tmp_path / "environment", python=python)) as environment:
        environment.install("-c", CONSTRAINTS, wheel)
        (tmp_path / "out").mkdir()
        said = environment.python("-W", "error", ROAD, REAL, tmp_path / "out", cwd=tmp_path)
        assert said.splitlines()[-1] == "done"
