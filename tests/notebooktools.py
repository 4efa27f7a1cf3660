"""Runs a notebook as a reader would, with warnings as errors, and tells where it fails."""

import os
import re
import shutil
import tomllib
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class NotebookError(AssertionError):
    """A cell failed: the notebook, the cell's number and source, and the traceback."""


def copied(folder):
    """The notebooks and what they read of the repository, in a folder of their own."""
    place = folder / "notebooks"
    place.mkdir(parents=True)
    for path in FOLDER.iterdir():
        if path.is_file():
            shutil.copy(path, place)
    (folder / "tests").symlink_to(ROOT / "tests")
    return place


def warnings_cell():
    """A cell that makes warnings errors, with the exceptions that hold for all tests."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    lines = ["import warnings", "warnings.resetwarnings()", "warnings.simplefilter('error')"]
    for rule in options["filterwarnings"]:
        action, _, rest = rule.partition(":")
        if action == "ignore":
            message, _, category = rest.rpartition(":")
            module = category.rpartition(".")[0]
            lines += [f"import {module}"] if module else []
            lines.append(f"warnings.filterwarnings('ignore', {message!r}, {category})")
    # the kernel's own: nothing that a notebook does
    lines.append(
        "warnings.filterwarnings('ignore', category=Warning, module='(IPython|ipykernel)')"
    )
    return nbformat.v4.new_code_cell("\n".join(lines))


def execute(path, timeout=600):
    """Executes a notebook in its folder.

    Returns:
        The notebook with its outputs.

    Raises:
        NotebookError: a cell failed, or took more than `timeout` seconds.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, warnings_cell())
    place = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=place)
    try:
        client.execute(env={"OMP_NUM_THREADS": "1", **os.environ})  # other tests run beside it
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(_told(path, notebook, error)) from None
    notebook.cells.pop(0)
    return notebook


def _told(path, notebook, error):
    """In words; cells are numbered as the reader sees them, from 1, text included."""
    code = [(n, cell) for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    begun = [(n, cell) for n, cell in code if "execution" in cell.metadata] or code[:1]
    number, cell = begun[-1]
    said = _COLOURS.sub("", str(error))
    if isinstance(error, DeadKernelError):  # the others show the source
        said = f"{cell.source}\n{said}"
    return f"{path.name}, cell {number}:\n{said}"
