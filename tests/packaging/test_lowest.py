"""The bounds of pyproject.toml are true: newest and lowest versions do, without extras and with.

One environment at a time is on the disk, which is why these tests share a file. torch alone is not
tested at its bound, 2.11, whose builds for CUDA take several GB: it is the one of the running
environment (see test_torch_names.py).
"""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from environments import CONSTRAINTS, REAL, Environment, lowest, removed

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
THREADS = HERE.parent / "reliability" / "netcdfthreads.py"
EXTRAS = ("train", "plot", "cluster", "cloud")
PIN = re.compile(r"([\w-]+)(?:\[\w+\])?==([\d.]+)")


def light_road(environment, folder, *options):
    """All that needs no extra, and what is told where one is needed."""
    out = folder / "out"
    out.mkdir()
    script = HERE / "road_without_torch.py"
    said = environment.python(*options, script, REAL, out, cwd=folder)
    assert said.splitlines()[-1] == "done"


@pytest.mark.long  # the other installs have the newest, too, with torch
@pytest.mark.timeout(1200)
def test_the_newest_without_extras(tmp_path, wheel):
    with removed(Environment(tmp_path / "environment")) as environment:
        environment.install("-c", CONSTRAINTS, wheel)
        environment.pip("check")
        light_road(environment, tmp_path, "-W", "error")
        assert "members" in environment.command("info", cwd=tmp_path)


@pytest.fixture(scope="module")
def oldest(tmp_path_factory, wheel):
    """The wheel with the lowest versions of its dependencies; no extras."""
    folder = tmp_path_factory.mktemp("lowest")
    pins = folder / "pins.txt"
    pins.write_text("\n".join(re.sub(r"\[.*\]", "", pin) for pin in lowest()))
    with removed(Environment(folder / "environment")) as environment:
        environment.install("-c", pins, wheel)
        yield environment


@pytest.mark.timeout(1200)
def test_the_lowest_without_extras(oldest, tmp_path):
    oldest.pip("check")
    light_road(oldest, tmp_path)


@pytest.mark.timeout(300)
def test_threads_read_netcdf_with_the_lowest(oldest, tmp_path):
    assert oldest.python(THREADS, tmp_path, cwd=tmp_path) == "done\n"


@pytest.fixture(scope="module")
def trained(oldest):
    """The lowest extras as well; what these need themselves is of the running environment."""
    extras = [pin for pin in lowest(*EXTRAS) if not pin.startswith("torch==")]
    oldest.install("--no-deps", *extras)
    oldest.put_running_behind()
    return oldest


def test_these_are_the_lowest(trained):
    bounds = dict(PIN.fullmatch(pin).groups() for pin in [*lowest(), *lowest(*EXTRAS)])
    ask = "import sys, json; from importlib.metadata import version"
    tell = "print(json.dumps([version(name) for name in sys.argv[1:]]))"
    versions = json.loads(trained.python("-c", f"{ask}; {tell}", *bounds))
    found = dict(zip(bounds, versions, strict=True))
    assert found.pop("torch") == version("torch")
    for name, held in found.items():
        assert re.fullmatch(rf"{re.escape(bounds[name])}(\.0)*", held), f"{name} {held}"


# Of scores those that need no torch, of models those that use more than it; of experiments
# Lightning's command line, end to end, and its errors, which are jsonargparse's.
MODELS = """bad_input_models deep_ensemble emos_solver heads_baseline postprocessor smoe_compiled
            smoe_training statistical*"""
TRAINING = [
    *(f"tests/models/test_{name}.py" for name in MODELS.split()),
    "tests/models/parallel/test_strategy.py",
    "tests/experiments/test_run.py",
    "tests/experiments/test_usage.py",
]
NO_TORCH = "not torch and not tensor and not gradient and not page"
PARTS = {
    "data": (["tests/ens10/**/test_*.py"], ""),
    "scores": (["tests/metrics/test_*.py"], NO_TORCH),
    "training": (TRAINING, ""),
}
# Each so many-th file of tests, since neighbours use the same functions of the libraries.
EVERY = [
    *[("data", 12), ("scores", 12), ("training", 4)],
    *[pytest.param(part, 1, marks=pytest.mark.long) for part in PARTS],
]


@pytest.mark.timeout(1800)  # hundreds of tests, and compiled code is compiled anew
@pytest.mark.parametrize(("part", "every"), EVERY)
def test_the_tests_pass(trained, project, tmp_path, part, every):
    patterns, chosen = PARTS[part]
    files = [path for pattern in patterns for path in sorted(project.glob(pattern))]
    assert len(files) >= len(patterns)
    said = trained.python(
        *("-P", "-m", "pytest", *files[::every], "-q", "-m", "not slow", "-k", chosen),
        *("--basetemp", tmp_path / "tests", "-p", "no:cacheprovider"),
        # what old releases warn about is mended in new ones
        *("-o", "filterwarnings=default"),
        cwd=project,
        timeout=1700,
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 120 / every
