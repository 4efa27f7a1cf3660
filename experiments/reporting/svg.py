"""Small charts as SVG inside the page: its colours, light or dark, and its fonts.

Lengths are of the picture's own units, which a panel shows at about one to a pixel.
"""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from matplotlib.ticker import MaxNLocator

_LEFT, _RIGHT, _TOP, _BOTTOM = 34.0, 8.0, 8.0, 20.0  # margins, for the axes' labels


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round numbers within bounds, at most so many (or two more)."""
    if not high > low:
        return [low]
    found = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [float(t) for t in found if low - slack <= t <= high + slack]


def label(value: float) -> str:
    """A number on an axis, with a minus that is one."""
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}".replace("-", "−")


class Plot:
    """Axes of one panel, and marks on them.

    Args:
        x: ends of the x axis, in data.
        y: ends of the y axis, in data.
        size: width and height of the panel, with its labels.
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        size: tuple[float, float] = (180.0, 124.0),
    ) -> None:
        self.x, self.y, self.size = x, y, size
        self.marks: list[str] = []
        self._left, self._width = _LEFT, size[0] - _LEFT - _RIGHT
        self._top, self._height = _TOP, size[1] - _TOP - _BOTTOM

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the data lies in the picture."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self._left + across * self._width, self._top + (1 - up) * self._height

    def rectangle(self, x: tuple[float, float], y: tuple[float, float], kind: str) -> None:
        """A filled rectangle."""
        left, bottom = self.at(x[0], y[0])
        right, top = self.at(x[1], y[1])
        self.marks.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{max(bottom - top, 0.0):.1f}"/>'
        )

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through points; it is broken where one is not finite."""
        parts: list[list[str]] = [[]]
        for x, y in points:
            if np.isfinite(x) and np.isfinite(y):
                parts[-1].append("{:.1f},{:.1f}".format(*self.at(x, y)))
            elif parts[-1]:
                parts.append([])
        self.marks += [
            f'<polyline class="{kind}" points="{" ".join(part)}"/>' for part in parts if part
        ]

    def dot(self, x: float, y: float, kind: str = "fill", radius: float = 3.0) -> None:
        """A dot."""
        px, py = self.at(x, y)
        self.marks.append(f'<circle class="{kind}" cx="{px:.1f}" cy="{py:.1f}" r="{radius:g}"/>')

    def ticks(self, x: Sequence[float], y: Sequence[float]) -> None:
        """Labels of both axes, lines of the grid at those of y, and a frame."""
        for value in y:
            py = self.at(self.x[0], value)[1]
            end = self._left + self._width
            ends = f'x1="{self._left:g}" x2="{end:g}" y1="{py:.1f}" y2="{py:.1f}"'
            self.marks.insert(0, f'<line class="grid" {ends}/>')
            self._text(self._left - 4, py + 4, label(value), "end")
        for value in x:
            self.note(value, label(value))
        bottom = self._top + self._height
        self.marks.append(
            f'<line class="frame" x1="{self._left:g}" x2="{self._left + self._width:g}" '
            f'y1="{bottom:g}" y2="{bottom:g}"/>'
        )

    def note(self, x: float, told: str) -> None:
        """A label of the x axis."""
        self._text(self.at(x, self.y[0])[0], self._top + self._height + 14, told, "middle")

    def _text(self, x: float, y: float, told: str, anchor: str) -> None:
        self.marks.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(told)}</text>'
        )

    def picture(self, told: str) -> str:
        """The SVG.

        Args:
            told: what stands in its place for those who do not see it.
        """
        return picture("\n".join(self.marks), self.size, told)


def picture(inside: str, size: tuple[float, float], told: str, kind: str = "chart") -> str:
    """An SVG element as wide as its box, with a text in its place."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {size[0]:g} {size[1]:g}" role="img" '
        f'aria-label="{escape(told)}">\n{inside}\n</svg>'
    )


def panels(made: Sequence[tuple[str, str]], *, wide: bool = False, kind: str = "") -> str:
    """Pictures with their titles, as many beside each other as there is room for.

    Args:
        made: title (HTML) and picture.
        wide: for pictures that want more room.
        kind: a further class of each.
    """
    several = "panels wide" if wide else "panels"
    inner = f' class="{kind}"' if kind else ""
    figures = "\n".join(
        f"<figure{inner}>\n<figcaption>{title}</figcaption>\n{drawn}\n</figure>"
        for title, drawn in made
    )
    return f'<div class="{several}">\n{figures}\n</div>'
