"""Parts of a self-contained HTML page: everything inline, nothing loaded, all text escaped."""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from ens10.experiments.writers import Column

_PARTS = "reporting"  # folder of the style and the script


def page(title: str, lead: str, sections: Mapping[str, str]) -> str:
    """The whole document.

    Args:
        title: plain text.
        lead: plain text of the first paragraph.
        sections: from heading (plain text) to content (HTML), in order.
    """
    ids = _anchors(list(sections))
    links = "\n".join(
        f'<li><a href="#{ids[heading]}">{escape(heading)}</a></li>' for heading in sections
    )
    parts = "\n".join(
        f'<section aria-labelledby="{ids[heading]}">\n<h2 id="{ids[heading]}">{escape(heading)}'
        f"</h2>\n{content}\n</section>"
        for heading, content in sections.items()
    )
    script = _file("script.js") if "data-choice=" in parts else ""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:  # this one script and no other
        digest = base64.b64encode(sha256(script.encode()).digest()).decode("ascii")
        policy += f"; script-src 'sha256-{digest}'"
    end = f"<script>{script}</script>\n" if script else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>
{_file("style.css")}
</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<nav aria-label="Contents">
<ul>
{links}
</ul>
</nav>
</header>
<main id="content" tabindex="-1">
{parts}
</main>
{end}</body>
</html>
"""


@cache
def _file(name: str) -> str:
    """A file that comes with the package, with the line ends that a browser sees."""
    text = (files("ens10.experiments") / _PARTS / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n").strip()


def _anchors(headings: Sequence[str]) -> dict[str, str]:
    """What stands behind # in a link to each heading."""
    found: dict[str, str] = {}
    for n, heading in enumerate(headings, 1):
        name = "part-" + (re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or str(n))
        found[heading] = f"{name}-{n}" if name in found.values() else name
    return found


def paragraphs(*texts: str, kind: str = "") -> str:
    """Paragraphs of plain text.

    Args:
        texts: one each.
        kind: class of the paragraphs, such as "note".
    """
    attribute = f' class="{kind}"' if kind else ""
    return "\n".join(f"<p{attribute}>{escape(text)}</p>" for text in texts)


def points(texts: Sequence[str]) -> str:
    """A list of sentences in plain text."""
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>\n{items}\n</ul>"


def facts(pairs: Mapping[str, str]) -> str:
    """A list of names and values, both plain text."""
    items = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items()
    )
    return f"<dl>\n{items}\n</dl>"


def details(summary: str, inside: str) -> str:
    """What is shown on demand.

    Args:
        summary: plain text.
        inside: HTML.
    """
    return f"<details>\n<summary>{escape(summary)}</summary>\n{inside}\n</details>"


def preformatted(text: str) -> str:
    """Plain text with its lines as they are, in a box that scrolls."""
    return _scrolling(f"<pre>{escape(text)}</pre>", "Text")


def table(columns: Sequence[Column], caption: str) -> str:
    """A table whose first column names the rows; it scrolls inside its box on a narrow screen.

    Intervals stand below their values, which keeps the columns narrow.
    """
    lines = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        first = f'<th scope="row">{escape(cells[0])}</th>'
        rest = "".join(
            f"<td{_number(column.numeric)}>{_cell(cell) if column.numeric else escape(cell)}</td>"
            for column, cell in zip(columns[1:], cells[1:], strict=True)
        )
        lines.append(f"<tr>{first}{rest}</tr>")
    return table_of(
        [column.heading for column in columns],
        lines,
        caption,
        numeric=[column.numeric for column in columns],
    )


def table_of(
    headings: Sequence[str], lines: Sequence[str], caption: str, *, numeric: Sequence[bool] = ()
) -> str:
    """A table of rows that are HTML already, in a box that scrolls.

    Args:
        headings: plain text.
        lines: the rows, as `<tr>` elements.
        caption: plain text.
        numeric: which columns are set to the right; all but the first if not given.
    """
    right = numeric or [n > 0 for n in range(len(headings))]
    head = "".join(
        f'<th scope="col"{_number(one)}>{escape(text)}</th>'
        for text, one in zip(headings, right, strict=True)
    )
    body = "\n".join(lines)
    inside = (
        f"<table>\n<caption><span>{escape(caption)}</span></caption>\n<thead>\n<tr>{head}</tr>\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )
    return _scrolling(inside, caption)


def _cell(text: str) -> str:
    value, bracket, interval = text.partition(" [")
    return escape(value) + (f" <small>[{escape(interval)}</small>" if bracket else "")


def figure(png: bytes, alt: str, caption: str) -> str:
    """A picture inside the page, with a text in its place and one below it."""
    data = base64.b64encode(png).decode("ascii")
    image = f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}">'
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f"<figure>\n{_scrolling(image, caption)}\n{below}\n</figure>"


def _scrolling(inside: str, label: str) -> str:
    """A box that scrolls sideways, reachable by keyboard as well."""
    attributes = f'class="scroll" role="region" tabindex="0" aria-label="{escape(label)}"'
    return f"<div {attributes}>\n{inside}\n</div>"


def _number(numeric: bool) -> str:
    return ' class="number"' if numeric else ""
