"""Clean copies of the project and clean environments, for the tests of the packaging."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
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
    """A virtual environment.

    Args:
        folder: where it is made.
        behind: whether the libraries of the running environment are found after its own, which
            saves installing torch again; this project is not among them (see below).
    """

    def __init__(self, folder, behind=False):
        run(sys.executable, "-m", "venv", folder)
        self.bin = folder / "bin"
        self.site = Path(
            self.python("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        if behind:
            # .pth files inside a folder named by a .pth file are not read, so an editable
            # install of this project in the running environment is not seen.
            running = sysconfig.get_path("purelib")
            (self.site / "zz_behind.pth").write_text(f"{running}\n")

    def python(self, *arguments, **options):
        return run(self.bin / "python", *arguments, **options)

    def command(self, *arguments, **options):
        return run(self.bin / "ens10", *arguments, **options)

    def install(self, *arguments, **options):
        pip = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
        return self.python(*pip, *arguments, **options)


def lowest(*extras):
    """The lower bounds of pyproject.toml as pins, of the dependencies or of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"]
    if extras:
        needs = [need for extra in extras for need in project["optional-dependencies"][extra]]
    return [need.replace(">=", "==") for need in needs]
