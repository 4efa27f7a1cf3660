"""The lower bounds of pyproject.toml are true: the tests pass with exactly those versions.

torch alone is not tested at its bound, 2.11, whose builds for CUDA take several GB: it is the one
of the running environment (see test_torch_names.py).
"""

import re
from importlib.metadata import version

import pytest
from environments import Environment, lowest

pytestmark = pytest.mark.slow
EXTRAS = ("train", "plot", "cluster", "cloud")


@pytest.fixture(scope="module")
def oldest(tmp_path_factory, wheel):
    environment = Environment(tmp_path_factory.mktemp("lowest"), behind=True)
    environment.install("--ignore-installed", *lowest())
    extras = [need for need in lowest(*EXTRAS) if not need.startswith("torch==")]
    environment.install("--ignore-installed", "--no-deps", *extras, wheel)
    return environment


def test_these_are_the_lowest(oldest):
    for pin in [*lowest(), *lowest(*EXTRAS)]:
        name, bound = re.fullmatch(r"([\w-]+)(?:\[\w+\])?==([\d.]+)", pin).groups()
        ask = f"from importlib.metadata import version; print(version({name!r}))"
        found = oldest.python("-c", ask).strip()
        if name == "torch":
            assert found == version("torch")
        else:
            assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", found), f"{name} {found}"


RUNS = "experiments/test_run.py"  # Lightning's command line, end to end
SAID = "experiments/test_usage.py"  # its errors, which are jsonargparse's


@pytest.mark.timeout(1800)  # all the tests of a folder, and compiled code is compiled anew
# one folder or file a run: each folder's conftest is a module of that name
@pytest.mark.parametrize("which", ["ens10", "metrics", "models", RUNS, SAID])
def test_the_tests_pass(oldest, project, which):
    said = oldest.python(
        *("-P", "-m", "pytest", f"tests/{which}", "-q", "-m", "not slow"),
        *("-p", "no:cacheprovider"),
        # what old releases warn about is mended in new ones
        *("-o", "filterwarnings=default"),
        cwd=project,
        timeout=1700,
    )
    assert re.search(r"\d+ passed", said)
