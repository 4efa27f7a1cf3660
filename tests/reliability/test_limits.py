"""Real limits of real processes: memory, open files, a user without a home, `python -O`."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from realruns import config_path

ROOT = Path(__file__).parents[2]
NOBODY = 65534
LIBRARIES = Path(np.__file__).parents[1]
PATHS = {"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARIES)}
MB = 1 << 20
CODE = "import atexit, sys; from ens10.signals import end_process; "


def run(*words, python=(), limit=None, executable=sys.executable, **options):
    program = [executable, *python, "-m", "ens10", *map(str, words)]
    before = None if limit is None else lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))
    return subprocess.run(
        program, capture_output=True, text=True, preexec_fn=before, timeout=500, **options
    )


def one_line(done):
    """One line says what happened, and nothing was written to stderr but bars of progress."""
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert done.stderr.count("ens10: ") == 1, done.stderr
    return done.stderr.rpartition("ens10: ")[2]


def test_a_process_that_a_signal_ended_runs_its_exit_functions_and_flushes():
    note = "atexit.register(print, 'noted'); print('begun'); end_process(143); print('no')"
    done = subprocess.run([sys.executable, "-c", CODE + note], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (143, ["begun", "noted"])


def test_a_limit_under_which_no_library_can_be_loaded_is_refused_first():
    said = one_line(run("fit", "--run", "x", limit=(resource.RLIMIT_AS, 900 * MB)))
    assert "not enough memory (the limit is 900 MB); `ens10 fit` needs 2400 MB" in said


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [600, 900, pytest.param(1200, marks=pytest.mark.long)])
def test_little_memory_is_one_line_and_prepare_resumes(store, tmp_path, megabytes):
    world = store.parent / "world"
    words = ("prepare", world, tmp_path / "out", "--truth", world / "truth")
    limited = run(*words, limit=(resource.RLIMIT_AS, megabytes * MB))
    if limited.returncode:
        assert "memory" in one_line(limited)
    assert run(*words).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "megabytes", [2400, *(pytest.param(size, marks=pytest.mark.long) for size in (2000, 2800))]
)
def test_little_memory_is_one_line_of_fit(store, tmp_path, megabytes):
    words = ["fit", "--config", config_path("mlp"), "--data.store", store, "--quiet"]
    words += ["--run", tmp_path / "mlp", "--trainer.max_epochs", 1]
    limited = run(*words, limit=(resource.RLIMIT_AS, megabytes * MB))
    if limited.returncode:
        assert "memory" in one_line(limited)


@pytest.mark.slow
def test_64_open_files_are_one_line_or_enough(store, tmp_path):
    world, few = store.parent / "world", (resource.RLIMIT_NOFILE, 64)
    words = ("prepare", world, tmp_path / "out", "--truth", world / "truth")
    limited = run(*words, limit=few)
    if limited.returncode:
        assert "too many open files (the limit is 64)" in one_line(limited)
    assert run(*words).returncode == 0
    for words in (("inspect", store), ("verify", store), ("export", store, "--to", "out.nc")):
        done = run(*words, limit=few, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def anybodys_python():
    """A Python of this version that other users may run too; None if there is none."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            subprocess.run([python, "-c", "import numpy"], user=NOBODY, check=True, env=PATHS)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


@pytest.fixture
def installed():
    """A read-only installation and a folder of one's own, both of which anybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(
        ROOT / "ens10", folder / "lib" / "ens10", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "own").mkdir()
    os.chown(folder / "own", NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's rights are needed")
def test_a_read_only_installation_without_a_home(store, installed):
    own, python = installed / "own", anybodys_python()
    if python is None:
        pytest.skip("no Python of this version that every user may run")
    shutil.copytree(store.parent / "world", own / "world")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{installed / 'lib'}:{LIBRARIES}"}
    options = {
        "executable": python,
        "python": ("-S",),  # without the system's own packages, built for another numpy
        "user": NOBODY,
        "group": NOBODY,
        "env": environment,
        "cwd": own,
    }
    done = run("prepare", "world", "out", "--truth", "world/truth", **options)
    assert done.returncode == 0, done.stderr
    assert not (own / "~").exists()
    done = run("export", "out", "--to", "out.grib", **options)
    assert done.returncode == 0, done.stderr
    said = one_line(run("prepare", "world", "../out", "--truth", "world/truth", **options))
    assert "cannot be written (permission denied)" in said


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_optimised_python_is_refused_before_anything_is_written(tmp_path, option):
    said = one_line(run("synth", tmp_path / "out", python=(option,)))
    assert "zarr cannot open stores with it. Run without -O" in said
    assert not list(tmp_path.iterdir())
    assert run("info", python=(option,)).returncode == 0
