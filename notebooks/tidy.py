"""Notebooks as they are kept: no outputs, no counts, no traces of an editor.

python notebooks/tidy.py              tidies all of them
python notebooks/tidy.py FILE...      these
"""

import sys
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def tidied(text: str) -> str:
    """The text of a notebook file, tidied.

    Args:
        text: of any notebook of format 4; that of an older one is brought up to date.

    Raises:
        ValueError: it is no valid notebook.
    """
    notebook = nbformat.v4.convert.upgrade(nbformat.reads(text, as_version=4))
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip().split("\n"))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.cells = [cell for cell in notebook.cells if cell.source]
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def main(arguments: list[str]) -> None:
    """Tidies the notebooks that are named, or all."""
    for path in map(Path, arguments) if arguments else sorted(FOLDER.glob("*.ipynb")):
        before = path.read_text(encoding="utf-8")
        after = tidied(before)
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            print(f"tidied {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
