"""What mkdocs does beyond its plugins: pages from outside docs/, and names that are links.

Pages are written for readers of the repository: their links lead to files beside them, also out of
docs/. Every such file becomes part of the site below `repository/`, and links are turned to it.
Cards, notebooks, tables of results and the report of the demonstration are found by their folders.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import notebook_pages

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "demo" / "report" / "index.html"  # if `make demo` wrote it
DOCS = ROOT / "docs"
OUTSIDE = "repository"
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(\))")
_NAMED_FENCE = re.compile(r"^```(\w+) ([\w./]+)$", re.MULTILINE)
_UNTOUCHED = re.compile(r"(<a\b.*?</a>|<autoref\b.*?</autoref>|<h\d.*?</h\d>|<pre.*?</pre>)", re.S)
_CODE = re.compile(r"<code>([A-Za-z]\w*)(\([^<]*\))?</code>")
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Puts the cards, the notebooks, the tables of results and the report into the navigation."""
    sections = {name: part for entry in config.nav or [] for name, part in entry.items()}
    cards = [{path.stem: f"cards/{path.name}"} for path in sorted((DOCS / "cards").glob("*.md"))]
    sections["Models"].append({"Cards": cards})
    sections["Notebooks"] += [{path.stem: _uri(path)} for path in notebook_pages.sources()]
    results = ROOT / "experiments" / "results"
    tables = [p for p in sorted(results.rglob("*.md")) if p.stem not in ("README", "how")]
    named = [{p.relative_to(results).with_suffix("").as_posix(): _uri(p)} for p in tables]
    sections["Results"].append({"All tables": named})
    if REPORT.is_file():
        sections["Results"].insert(2, {"The report of the demonstration": "demo_report.md"})
    return config


def on_files(files: Files, config: "MkDocsConfig") -> Files:
    """Takes in the files outside docs/ that pages link to, and those that these link to."""
    named = [uri.removeprefix(f"{OUTSIDE}/") for uri in _uris(config.nav) if OUTSIDE in uri]
    waiting = [*DOCS.rglob("*.md"), *(ROOT / name for name in named), *notebook_pages.sources()]
    if REPORT.is_file():
        link = '<a href="demo_report/index.html">'
        text = (
            "# The report of the demonstration\n\n"
            f"{link}What `ens10 demo` writes</a> as one page:\n\n"
            '<iframe class="report" title="The report" src="demo_report/index.html"></iframe>\n'
        )
        files.append(File.generated(config, "demo_report.md", content=text))
        files.append(File.generated(config, "demo_report/index.html", abs_src_path=str(REPORT)))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue  # what is missing is told by mkdocs, with the page that links to it
        seen.add(path)
        if path.suffix == ".ipynb":
            text = notebook_pages.page_text(path)
            files.append(File.generated(config, _uri(path), content=text))
        elif not path.is_relative_to(DOCS):
            files.append(File.generated(config, _uri(path), abs_src_path=str(path)))
        if path.suffix in (".md", ".ipynb"):
            waiting += (_target(path, link[2]) for link in _LINK.finditer(path.read_text()))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Turns links to files of the repository into links of the site, and names of code blocks."""
    source = _source(page.file.src_uri)
    here = os.path.dirname(page.file.src_uri)  # noqa: PTH120 (a URI, not a path)

    def turned(link: re.Match[str]) -> str:
        target = _target(source, link[2])
        if not target.is_file():
            return link[0]
        return f"{link[1]}{os.path.relpath(_uri(target), here)}{link[3] or ''}{link[4]}"

    return _NAMED_FENCE.sub(r'```\1 title="\2"', _LINK.sub(turned, markdown))


def on_page_content(html: str, **_: object) -> str:
    """Makes a link of every public name that is written as code, in pages and docstrings."""
    names = _public_names()

    def linked(code: re.Match[str]) -> str:
        home = names.get(code[1])
        return f'<autoref identifier="{home}" optional>{code[0]}</autoref>' if home else code[0]

    parts = _UNTOUCHED.split(html)
    parts[::2] = [_CODE.sub(linked, part) for part in parts[::2]]
    return "".join(parts)


def _uris(nav: object) -> Iterator[str]:
    """Every page named in the navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _uris(entry)


def _source(uri: str) -> Path:
    """The file that a page of the site is made of."""
    outside = uri.startswith(f"{OUTSIDE}/")
    return ROOT / uri.removeprefix(f"{OUTSIDE}/") if outside else DOCS / uri


def _uri(path: Path) -> str:
    """Where a file of the repository lies in the site; notebooks become pages."""
    if path.suffix == ".ipynb":
        path = path.with_suffix(".md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"


def _target(source: Path, link: str) -> Path:
    """The file that a link in another file leads to."""
    return Path(os.path.normpath(source.parent / link))


@cache
def _public_names() -> dict[str, str]:
    """Full names by short name. Words such as `bias`, which are also arguments, are left alone."""
    names: dict[str, str] = {}
    pages = "".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    for module in _DIRECTIVE.findall(pages):
        for name in _exported(module):
            if "_" in name.strip("_") or name != name.lower():
                names.setdefault(name, f"{module}.{name}")
    return names


def _exported(module: str) -> list[str]:
    """The public names of a module, which is not imported: `__all__`, or what it defines."""
    place = ROOT / module.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.is_file():
        return []  # a function
    body = ast.parse(path.read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
