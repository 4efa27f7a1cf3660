"""The notebooks as pages of the site: `python docs/_site/notebook_pages.py` runs them for it.

Outputs lie in notebooks/work/site/; a notebook that was not run since it changed has none on its
page. Only running needs nbclient.
"""

import html
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
DONE = FOLDER / "work" / "site"


def sources() -> list[Path]:
    """The notebooks in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def is_done(path: Path) -> bool:
    """Whether a notebook was run since it changed."""
    done = DONE / path.name
    return done.exists() and done.stat().st_mtime >= path.stat().st_mtime


def page_text(path: Path) -> str:
    """A notebook as the text of a page, with its outputs if it was run."""
    notebook = json.loads((DONE / path.name if is_done(path) else path).read_text())
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        code = cell["cell_type"] == "code"
        parts.append(f"```python\n{text}\n```" if code else text)
        parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    """One output of a cell: a picture, a table or text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        lines = "".join(data["text/html"]).splitlines()
        return "\n".join(line.strip() for line in lines if line.strip())
    text = "".join(data.get("text/plain", output.get("text", "")))
    return f"<pre>{html.escape(text)}</pre>".replace("\n\n", "\n \n") if text.strip() else ""


def main() -> None:
    """Run the notebooks that changed."""
    import nbformat
    from nbclient import NotebookClient

    DONE.mkdir(parents=True, exist_ok=True)
    for path in sources():
        if is_done(path):
            continue
        print(f"{path.name} ...", flush=True)
        notebook = nbformat.read(path, as_version=4)
        place = {"metadata": {"path": str(FOLDER)}}
        NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=place).execute()
        nbformat.write(notebook, DONE / path.name)


if __name__ == "__main__":
    main()
