"""Clean copies of the project and clean environments, for the tests of the packaging."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
REAL = ROOT / "tests" / "data" / "era5-levels-members.grib"


def run(*command, **options):
    """Runs a command; its output is shown if it fails. Nothing of this checkout is on the path."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    options.setdefault("env", clean)
    options.setdefault("timeout", 550)
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_of_the_project(folder):
    """What a commit of the working tree would hold: no build folders, no metadata of installs."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    for name in done.stdout.splitlines():
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


class Environment:
    """A virtual environment. It has no pip of its own: that of the running environment installs.

    Nothing is downloaded into a cache, and only what is imported is compiled: an environment of the
    data path alone is 0.7 GB, and it is to be removed when its tests are done (`removed`).

    Args:
        folder: where it is made.
        behind: whether the libraries of the running environment are found after its own.
        python: its interpreter.
    """

    def __init__(self, folder, behind=False, python=sys.executable):
        self.folder = Path(folder)
        run(python, "-m", "venv", "--without-pip", folder)
        self.bin = self.folder / "bin"
        self.site = Path(
            self.python("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        if behind:
            self.put_running_behind()

    def put_running_behind(self):
        """Finds the libraries of the running environment too, which saves installing torch again.

        This project is not among them: .pth files inside a folder that is named by a .pth file are
        not read, so an editable install in the running environment is not seen.
        """
        running = sysconfig.get_path("purelib")
        (self.site / "zz_behind.pth").write_text(f"{running}\n")

    def python(self, *arguments, **options):
        return run(self.bin / "python", *arguments, **options)

    def command(self, *arguments, **options):
        return run(self.bin / "ens10", *arguments, **options)

    def pip(self, *arguments, **options):
        pip = ("-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check")
        return run(sys.executable, *pip, *arguments, **options)

    def install(self, *arguments, **options):
        return self.pip("install", "-q", "--no-cache-dir", "--no-compile", *arguments, **options)


@contextmanager
def removed(environment):
    """Gives an environment and removes it from the disk, whatever became of its tests."""
    try:
        yield environment
    finally:
        shutil.rmtree(environment.folder)


def lowest(*extras):
    """The lower bounds of pyproject.toml as pins, of the dependencies or of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"]
    if extras:
        needs = [need for extra in extras for need in project["optional-dependencies"][extra]]
    return [need.replace(">=", "==") for need in needs]
