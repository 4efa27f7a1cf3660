"""Panels of which one is shown: tabs or a slider where scripts run, all of them elsewhere."""

from collections.abc import Mapping
from html import escape


def choice(
    panels: Mapping[str, str], label: str, *, name: str, level: int = 3, slider: bool = False
) -> str:
    """One panel as it is; of several, all below each other, which the page's script makes tabs of.

    Args:
        panels: from title (plain text) to content (HTML).
        label: what is chosen, in words.
        name: choices of one name follow each other.
        level: of the headings that stand above the panels where no script runs.
        slider: a slider instead of tabs, for what has an order.
    """
    if len(panels) == 1:
        return next(iter(panels.values()))
    parts = "\n".join(
        f'<div class="panel" data-title="{escape(title)}">\n'
        f'<h{level} class="panel-title">{escape(title)}</h{level}>\n{content}\n</div>'
        for title, content in panels.items()
    )
    kind = " data-slider" if slider else ""
    told = f'data-choice="{escape(name)}" data-label="{escape(label)}"{kind}'
    return f"<div {told}>\n{parts}\n</div>"
