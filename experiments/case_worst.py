"""The dates and regions with the most extreme truth, to choose a case study from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.experiments.case_inputs import Source, open_run
from ens10.experiments.case_regions import REGIONS, part_of_grid
from ens10.experiments.reading import reading
from ens10.grid import area_weights

Floats = npt.NDArray[np.float64]
_YEAR = 365.2425  # days
_FITTED = 12  # dates from which an annual cycle is fitted
_HALF_A_YEAR = 183  # days


@dataclass(frozen=True)
class Extreme:
    """One date in one region.

    Attributes:
        valid: date.
        region: name, or "S,W,N,E".
        size: mean |departure| over the region, in standard deviations.
        departure: mean departure, which tells warm from cold, in standard deviations.
        most: the largest |departure| of a point, with its sign.
    """

    valid: np.datetime64
    region: str
    size: float
    departure: float
    most: float


def most_extreme(
    run: Path | str, number: int, region: str | None = None, step: float | None = None
) -> list[Extreme]:
    """The dates whose truth departs most from the usual, the most extreme one first.

    The departure of a point is that from the mean and the annual cycle (one harmonic, fitted to
    the run's own dates), in standard deviations of what is left. Below 12 dates, or half a year,
    it is that from the mean alone.

    Args:
        run: run folder or predictions store with its truth.
        number: how many to list.
        region: where; None for every named region that the grid has points of, but the globe.
        step: where there are several.

    Raises:
        ArgumentError: no number; a region without points; fewer than 3 dates.
        FileError: no predictions.
    """
    if number < 1:
        raise ArgumentError("worst", f"expected 1 or more, got {number}")
    source = open_run(run, step)
    if source.truth is None or source.truth.sizes["time"] < 3:
        raise ArgumentError("worst", f"{source.name} has fewer than 3 dates", "Name a date")
    with reading(source.path):
        truth = source.truth.to_numpy().astype(np.float64)
    size = standardised(truth, source.valid)
    found = [e for name in _regions(source, region) for e in _of_region(source, size, name)]
    return sorted(found, key=lambda extreme: -extreme.size)[:number]


def standardised(truth: Floats, valid: npt.NDArray[np.datetime64]) -> Floats:
    """Departures from the mean and annual cycle of each point, in standard deviations.

    Args:
        truth: (time, ...); points with a gap have no departure.
        valid: (time,).

    Returns:
        Of the same shape; NaN where the truth never changes.
    """
    days = (valid - valid.min()) / np.timedelta64(1, "D")
    terms = [np.ones_like(days)]
    if len(days) >= _FITTED and days.max() >= _HALF_A_YEAR:
        angle = 2 * np.pi * days / _YEAR
        terms += [np.cos(angle), np.sin(angle)]
    basis = np.stack(terms, axis=1)
    flat = truth.reshape(len(truth), -1)
    rest = flat - basis @ (np.linalg.pinv(basis) @ flat)
    deviation = np.sqrt((rest**2).sum(axis=0) / (len(rest) - basis.shape[1]))
    usual = np.where(deviation > 1e-9 * np.abs(flat).max(axis=0), deviation, np.nan)
    made: Floats = (rest / usual).reshape(truth.shape)
    return made


def _regions(source: Source, region: str | None) -> list[str]:
    if region is not None:
        return [region]
    lat, lon = source.forecast["latitude"], source.forecast["longitude"]
    held = []
    for name in REGIONS:
        try:
            part_of_grid(name, lat, lon)
        except ArgumentError:
            continue
        held.append(name)
    return [name for name in held if name != "global"] or held


def _of_region(source: Source, size: Floats, region: str) -> list[Extreme]:
    rows, columns = part_of_grid(region, source.forecast["latitude"], source.forecast["longitude"])
    area = area_weights(source.forecast["latitude"].to_numpy())[rows][:, None]
    found = []
    for moment, field in zip(source.valid, size, strict=True):
        part = field[np.ix_(rows, columns)]
        there = np.isfinite(part)
        if not there.any():
            continue
        w, z = (area * there), np.where(there, part, 0.0)
        most = z.ravel()[int(np.argmax(np.abs(z)))]
        means = ((w * np.abs(z)).sum() / w.sum(), (w * z).sum() / w.sum())
        found.append(Extreme(moment, region, float(means[0]), float(means[1]), float(most)))
    return found


def listing(found: Sequence[Extreme]) -> str:
    """The list for a terminal, with how to draw one of them."""
    lines = [f"{'valid':<17}{'region':<16}{'mean |z|':>9}{'mean z':>8}{'most z':>8}"]
    for one in found:
        day = str(one.valid.astype("M8[m]"))
        day = day[:10] if day.endswith("T00:00") else day
        numbers = f"{one.size:>9.2f}{one.departure:>+8.2f}{one.most:>+8.2f}"
        lines.append(f"{day:<17}{one.region:<16}{numbers}")
    lines.append("z: truth less its mean and annual cycle on these dates, by its deviation")
    return "\n".join(lines)
