"""Parts of a self-contained HTML page: everything inline, nothing loaded, all text escaped."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from ens10.experiments.writers import Column

_CSS = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #55606c; --line: #d5dbe1;
  --paper: #ffffff; --shade: #f3f5f7; --link: #005a9c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #a3adb8; --line: #3a444f;
  --paper: #151a20; --shade: #1f262e; --link: #7dbdf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; }
p, li, dd { max-width: 46rem; overflow-wrap: anywhere; }
.lead { font-size: 1.1rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .6rem .75rem; color: var(--soft); }
th, td { padding: .4rem .5rem; text-align: left; white-space: nowrap;
  border-top: 1px solid var(--line); vertical-align: top; }
.scroll + dl, .scroll + p { margin-top: 1rem; }
thead th { background: var(--shade); white-space: normal; }
td small { display: block; color: var(--soft); }
tbody th { position: sticky; left: 0; background: var(--paper); font-weight: 600; }
.number { text-align: right; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .3rem 1.25rem;
  margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; }
figure { margin: 1.25rem 0 0; max-width: 60rem; }
figure img { display: block; width: 100%; min-width: 34rem; background: #ffffff; }
figcaption { margin-top: .5rem; color: var(--soft); font-size: .9rem; max-width: 46rem; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; } }
@media print { .scroll { overflow: visible; } }
""".strip()


def page(title: str, lead: str, sections: Mapping[str, str]) -> str:
    """The whole document.

    Args:
        title: plain text.
        lead: plain text of the first paragraph.
        sections: from heading (plain text) to content (HTML), in order.
    """
    ids = {heading: f"part-{n}" for n, heading in enumerate(sections, 1)}
    links = "\n".join(
        f'<li><a href="#{ids[heading]}">{escape(heading)}</a></li>' for heading in sections
    )
    parts = "\n".join(
        f'<section aria-labelledby="{ids[heading]}">\n<h2 id="{ids[heading]}">{escape(heading)}'
        f"</h2>\n{content}\n</section>"
        for heading, content in sections.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{_CSS}
</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<nav aria-label="Contents">
<ul>
{links}
</ul>
</nav>
</header>
<main>
{parts}
</main>
</body>
</html>
"""


def paragraphs(*texts: str) -> str:
    """Paragraphs of plain text."""
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def facts(pairs: Mapping[str, str]) -> str:
    """A list of names and values, both plain text."""
    items = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items()
    )
    return f"<dl>\n{items}\n</dl>"


def table(columns: Sequence[Column], caption: str) -> str:
    """A table whose first column names the rows; it scrolls inside its box on a narrow screen.

    Intervals stand below their values, which keeps the columns narrow.
    """
    head = "".join(
        f'<th scope="col"{_number(column)}>{escape(column.heading)}</th>' for column in columns
    )
    lines = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        first = f'<th scope="row">{escape(cells[0])}</th>'
        rest = "".join(
            f"<td{_number(column)}>{_cell(cell) if column.numeric else escape(cell)}</td>"
            for column, cell in zip(columns[1:], cells[1:], strict=True)
        )
        lines.append(f"<tr>{first}{rest}</tr>")
    body = "\n".join(lines)
    inside = (
        f"<table>\n<caption>{escape(caption)}</caption>\n<thead>\n<tr>{head}</tr>\n</thead>\n"
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


def _number(column: Column) -> str:
    return ' class="number"' if column.numeric else ""
