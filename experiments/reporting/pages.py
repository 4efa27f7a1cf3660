"""Self-contained HTML pages from Jinja2 templates: nothing is loaded, all text is escaped."""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ens10.errors import printable
from ens10.experiments.scoring.writers import number


def page(template: str, title: str, lead: str, **content: Any) -> str:
    """Return an HTML document.

    Args:
        template: name of a file in `templates/`, without its ending.
        title: plain text.
        lead: plain text of the first paragraph.
        content: other variables of the template.
    """
    page_template = _environment().get_template(f"{template}.html.j2")
    return page_template.render(title=title, lead=lead, **content).strip() + "\n"


@cache
def _environment() -> Environment:
    loader = PackageLoader("ens10.experiments.reporting")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_printable_text,
    )  # fmt: skip
    environment.filters["percent"] = lambda share: number(100 * share, ".1f")
    environment.globals |= {"anchors": _anchors, "digest": _digest}
    for name in ("style.css", "script.js"):
        text, *_ = loader.get_source(environment, name)
        # with the line ends that a browser sees: the digest of the script is of them
        environment.globals[name.partition(".")[0]] = Markup(text.replace("\r\n", "\n").strip())
    return environment


def _printable_text(value: Any) -> Any:
    """Return a plain text of a page without characters that hide or reverse others."""
    return printable(value, keep="\n") if type(value) is str else value


def _digest(script: str) -> str:
    """Return the base64 SHA-256 digest by which a page's content policy allows its script."""
    return b64encode(sha256(script.encode()).digest()).decode("ascii")


def _anchors(headings: Sequence[str]) -> dict[str, str]:
    """Return the unique anchor of each heading, which follows # in a link to it."""
    anchors: dict[str, str] = {}
    for n, heading in enumerate(headings, 1):
        name = "part-" + (re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or str(n))
        anchors[heading] = f"{name}-{n}" if name in anchors.values() else name
    return anchors
