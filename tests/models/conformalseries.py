"""A series of forecasts whose model is replaced in the middle, and the table of how each method of
calibration covers it: `python tests/models/conformalseries.py` writes it into docs/in_use.md.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from ens10.models.conformal import calibrate_quantiles

PAGE = Path(__file__).parents[2] / "docs" / "in_use.md"
LEVELS = [0.1, 0.9]
DAYS, CHANGE, SHIFT = 500, 250, 4.0
_NORMAL = 1.2815515655446004  # the 0.9 quantile
_METHODS = (
    ("none", None, {}),
    ("`split`, all dates", "split", {}),
    ("`split`, the last 50", "split", {"window": 50}),
    ("`adaptive`, the last 50", "adaptive", {"window": 50}),
    ("`pid`", "pid", {}),
)


def series(days, change=None, shift=0.0, seed=1, points=50):
    """Daily forecasts N(0, 1), two days ahead, of truth that is N(0.5, 1.5), and later larger.

    The model is replaced at `change`: from there the truth is larger by `shift`.
    """
    rng = np.random.default_rng(seed)
    start = pd.date_range("2001-01-01", periods=days)
    truth = rng.normal(0.5, 1.5, (days, points))
    if change is not None:
        truth[change:] += shift
    coords = {"time": start, "valid_time": ("time", start + pd.Timedelta("48h"))}
    quantiles = np.empty((days, 2, points))
    quantiles[:, 0], quantiles[:, 1] = -_NORMAL, _NORMAL
    dims = ("time", "quantile_level", "station")
    found = xr.DataArray(quantiles, dims=dims, coords={**coords, "quantile_level": LEVELS})
    return found, xr.DataArray(truth, dims=("time", "station"), coords=coords)


def covered(quantiles, truth):
    """The share of points that the interval covers, by date."""
    inside = (truth > quantiles.isel(quantile_level=0)) & (
        truth <= quantiles.isel(quantile_level=1)
    )
    return inside.mean("station").to_numpy()


def coverage(quantiles, truth, days):
    """The share of dates and points that the interval covers."""
    return float(covered(quantiles, truth)[days].mean())


def rows():
    """For each method: coverage before the change, in ten dates after it, and later; recovery."""
    raw, truth = series(DAYS, CHANGE, SHIFT)
    for name, method, options in _METHODS:
        found = raw if method is None else calibrate_quantiles(raw, truth, method, **options)
        share = covered(found, truth)
        shares = [share[150:250].mean(), share[252:262].mean(), share[310:].mean()]
        means = np.convolve(share[CHANGE:], np.ones(20) / 20, mode="valid")
        reached = np.flatnonzero(means >= 0.75)
        yield name, shares, int(reached[0]) if reached.size else None


def table():
    """The table in Markdown."""
    head = "| calibration | before | ten dates after | from 60 after | dates until 0.75 |"
    lines = [head, "|---|---|---|---|---|"]
    for name, shares, dates in rows():
        cells = [*(f"{share:.2f}" for share in shares), "never" if dates is None else str(dates)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page):
    """The page with the table of today's code."""
    pattern = re.compile(r"(<!-- calibration -->\n).*?(\n<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + table() + match[2], page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
