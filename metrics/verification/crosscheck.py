"""Cross-check of the CRPS at a sample of points against properscoring."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics.distributions.registry import distribution_class, kind_of
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.verification.alignment import Join, match_truth
from ens10.metrics.verification.block_scoring import load

_DATES = 8  # most dates that are read
_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


@dataclass(frozen=True)
class CrossCheck:
    """Result of a cross-check.

    Attributes:
        points: number of points compared.
        largest: largest absolute difference, divided by the mean CRPS of the sample.
        tolerance: largest difference accepted, for the precision of the forecast.
    """

    points: int
    largest: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Return True if the difference is within the tolerance."""
        return self.largest <= self.tolerance

    def __str__(self) -> str:
        """Return the result as one sentence."""
        return (
            f"cross-check with properscoring: {self.points} points, largest difference "
            f"{self.largest:.2g} of the mean CRPS (at most {self.tolerance:g})"
        )


def cross_check(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    points: int = 1000,
    *,
    seed: int = 0,
    join: Join = "exact",
) -> CrossCheck:
    """Compare the CRPS of points drawn at random with properscoring's, in float64.

    Args:
        forecast: a forecast of kind "normal" or "ensemble".
        truth: the truth, over time [, step] [, level], latitude, longitude.
        points: number of points drawn, from at most eight dates.
        seed: seed of the draw.
        join: "exact" refuses dates without truth, "inner" leaves them out.

    Raises:
        ArgumentError: properscoring is not installed or has no score for this kind; fewer than
            one point; no point that has truth and forecast.
    """
    kind = kind_of(forecast).kind
    if kind not in ("normal", "ensemble"):
        raise ArgumentError("cross-check", f"properscoring has no CRPS of {kind} forecasts")
    if points < 1:
        raise ArgumentError("cross-check", f"expected one point or more, got {points}")
    try:
        oracle: Any = import_module("properscoring")
    except ModuleNotFoundError as error:
        raise ArgumentError(
            "cross-check",
            "properscoring is not installed",
            "Install it with: pip install properscoring==0.1",
        ) from error
    match = match_truth(forecast, truth, join)
    rng = np.random.default_rng(seed)
    n = match.forecast.sizes["time"]
    dates = np.sort(rng.permutation(n)[: min(n, points, _DATES)])
    share = -(-points // len(dates))
    crps_parts, other_parts = [], []
    for i, date in enumerate(dates):
        number = min(share, points - i * share)
        crps, other = _crps_of_date(match.part(slice(date, date + 1)), kind, number, rng, oracle)
        crps_parts.append(crps)
        other_parts.append(other)
    crps, other = np.concatenate(crps_parts).astype(np.float64), np.concatenate(other_parts)
    if not crps.size:
        raise ArgumentError("cross-check", "no point of the sample has truth and forecast")
    largest = np.abs(crps - other).max() / max(float(other.mean()), np.finfo(np.float64).tiny)
    dtype = str(np.concatenate(crps_parts).dtype)
    return CrossCheck(crps.size, float(largest), _TOLERANCE.get(dtype, 1e-5))


def _crps_of_date(match: Any, kind: str, number: int, rng: np.random.Generator, oracle: Any) -> Any:
    """Return the CRPS of this package and of properscoring at some points of one date."""
    block = load([match])
    place = (0, *(int(rng.integers(size)) for size in block.truth.shape[1:3]))
    arrays = {name: values[place] for name, values in block.arrays[0].items()}
    y = block.truth[place].astype(next(iter(arrays.values())).dtype, copy=False)
    score = Pair(distribution_class(kind).from_variables(arrays, {}), y).field("crps")
    valid = np.flatnonzero(~np.isnan(score))
    sample = rng.permutation(valid)[: max(number, 0)]
    flat = {k: v.reshape(*v.shape[:-2], -1)[..., sample] for k, v in arrays.items()}
    wide = {k: v.astype(np.float64) for k, v in flat.items()}
    observed = y.ravel()[sample].astype(np.float64)
    if kind == "ensemble":
        return score.ravel()[sample], oracle.crps_ensemble(observed, wide["members"].T)
    mu, sigma = wide["mu"], wide["sigma"]
    with np.errstate(divide="ignore", invalid="ignore"):
        oracle_crps = oracle.crps_gaussian(observed, mu, sigma)
    # properscoring gives NaN where sigma is 0
    return score.ravel()[sample], np.where(sigma == 0, np.abs(observed - mu), oracle_crps)
