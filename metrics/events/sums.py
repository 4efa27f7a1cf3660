"""Sums over bins of forecast probabilities, for reliability, ROC and value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import common_dtype
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.events._kernels import check_event, check_probability
from ens10.metrics.statistic import (
    Floats,
    StateVariable,
    Statistic,
    present_and_missing,
    sums_by_bin,
)

__all__ = ["event_sums"]

Array = npt.NDArray[Any]
_MOST_DIGITS = 6


@dataclass(frozen=True)
class Binning:
    """Bins of probabilities.

    Args:
        lower: lower edges of the bins, or the probabilities themselves.
        upper: upper edges, or again the probabilities.
        description: the bins in words; sums with different descriptions must not be added.
        place: function from probabilities to the numbers of their bins.
    """

    lower: Array
    upper: Array
    description: str
    place: Callable[[Array], Array]

    @property
    def single_valued(self) -> bool:
        """Return True if each bin stands for a single probability."""
        return self.lower is self.upper


def binning(
    bins: Any, members: int | None, digits: int | None, values: Callable[[], xr.DataArray]
) -> Binning:
    """Return the bins that the arguments of `event_sums` describe.

    Args:
        bins: a number of bins, their edges, or "unique".
        members: M, for bins at the M + 1 shares of M members.
        digits: number of decimals, for bins at the rounded probabilities.
        values: function that returns the probabilities for "unique".

    Raises:
        ArgumentError: not exactly one of `bins`, `members` and `digits`; a number out of range;
            invalid edges.
        UnknownNameError: an unknown word for `bins`.
    """
    options = {"bins": bins, "members": members, "digits": digits}
    option_names = [name for name, value in options.items() if value is not None]
    if len(option_names) != 1:
        description = " and ".join(option_names) or "none"
        raise ArgumentError("bins", f"expected one of bins, members and digits, got {description}")
    if members is not None:
        return _shares("members", members, 10**_MOST_DIGITS, f"shares of {members} members")
    if digits is not None:
        _check_whole("digits", digits, _MOST_DIGITS)
        return _shares("digits", 10**digits, 10**_MOST_DIGITS, f"{digits} decimals")
    if isinstance(bins, str):
        if bins != "unique":
            raise UnknownNameError("bins", bins, ["unique"])
        return _unique(values())
    return _between(bins)


def _shares(name: str, n: int, most: int, description: str) -> Binning:
    _check_whole(name, n, most)
    shares = np.arange(n + 1) / n
    return Binning(shares, shares, description, partial(_place_share, n=n, exact=name == "members"))


def _check_whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or int(value) != value or not 1 <= value <= most:
        raise ArgumentError(name, f"expected a whole number from 1 to {most}, got {value!r}")


def _between(bins: int | Sequence[float]) -> Binning:
    if isinstance(bins, int):
        _check_whole("bins", bins, 10**_MOST_DIGITS)
        edges = np.arange(bins + 1) / bins
    else:
        edges = np.asarray(bins, dtype=np.float64)
    rising = edges.ndim == 1 and len(edges) > 1 and bool((np.diff(edges) > 0).all())
    if not rising or edges[0] != 0 or edges[-1] != 1:
        raise ArgumentError("bins", f"expected edges that rise from 0 to 1, got {edges}")
    description = "edges " + ", ".join(f"{edge:.12g}" for edge in edges)
    return Binning(edges[:-1], edges[1:], description, partial(_place_between, edges=edges))


def _unique(p: xr.DataArray) -> Binning:
    values = np.unique(np.asarray(p.data))
    values = values[~np.isnan(values)]
    if not len(values):
        raise ArgumentError("probability", "all values are missing")
    exact = values.astype(np.float64)
    return Binning(exact, exact, "unique probabilities", partial(_place_among, values=exact))


def _place_share(p: Array, *, n: int, exact: bool) -> Array:
    scaled = p.astype(np.float64) * n
    index = np.rint(scaled).astype(np.int64)
    if exact and bool((abs(scaled - index) > 1e-3).any()):
        raise ArgumentError(
            "members",
            f"some probabilities are not multiples of 1/{n}",
            "Pass bins or digits instead",
        )
    return index


def _place_between(p: Array, *, edges: Array) -> Array:
    # in the precision of the probabilities: 0.7 in float32 is below 0.7 in float64
    index = np.searchsorted(edges.astype(p.dtype), p, side="right") - 1
    place: Array = np.minimum(index, len(edges) - 2)
    return place


def _place_among(p: Array, *, values: Array) -> Array:
    index = np.searchsorted(values, p.astype(np.float64))
    place: Array = np.minimum(index, len(values) - 1)
    return place


PARTS = {
    "count": "number of points",
    "weight": "sum of weights",
    "weight_square": "sum of squared weights",
    "probability": "sum of weight times probability",
    "probability_square": "sum of weight times squared probability",
    "event": "sum of weight times event",
    "product": "sum of weight times probability times event",
}


def event_sums(
    probability: Any,
    event: Any,
    *,
    dim: Over,
    bins: int | Sequence[float] | str | None = None,
    members: int | None = None,
    digits: int | None = None,
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Return additive sums of weights, probabilities and events per bin of probability.

    Exactly one of `bins`, `members` and `digits` says what a bin is.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors lose their gradients.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        dim: dimensions that are summed over: numbers of axes, names for DataArrays, or "all".
        bins: a number of equal bins; or their edges, from 0 to 1; or "unique": each probability
            that occurs is a bin (for `dim="all"` only, and lazy arrays are computed). Bins
            contain their lower edge, the last bin also its upper edge.
        members: M, for shares of M members: each of the M + 1 shares is a bin.
        digits: number of decimals to which probabilities are rounded; each value is a bin.
        weights: weights of the points, such as area weights.
        nan: "propagate" returns NaN sums if a point is missing; "omit" leaves such points out.

    Returns:
        A Dataset with one variable for each of `PARTS` over `bin` (whose coordinate is the
        lower edge, or the probability) and the remaining dimensions; float64, lazy if the
        arrays are. Merge several with `merge_states`.

    Raises:
        UnknownNameError: an unknown policy for NaN.
        ArgumentError: not exactly one kind of bins, or invalid edges; probabilities outside
            [0, 1], or that are not multiples of 1 / M; events other than 0 and 1 (on lazy
            arrays when computed); shapes, coordinates or weights that do not fit.
    """
    if nan not in get_args(Nan):
        raise UnknownNameError("nan", nan, get_args(Nan))
    arrays = {"probability": probability, "event": event}
    of_bins = binning(bins, members, digits, partial(_all_values, arrays, dim))
    labels = {"bin": of_bins.lower}
    parts = tuple(StateVariable(f"bin_{name}", labels) for name in PARTS)
    statistic = Statistic("event_sums", partial(_kernel, bins=of_bins), parts)
    sums = statistic.sums(arrays, dim=dim, weights=weights, nan="omit", unlike=list(arrays))
    terms = {
        name: sums[f"bin_{name}"].assign_attrs(long_name=long_name)
        for name, long_name in PARTS.items()
    }
    count = terms.pop("count")
    if nan == "propagate":
        terms = {name: part.where(sums["missing"] == 0) for name, part in terms.items()}
    count = count.astype(np.int64).assign_attrs(long_name=PARTS["count"])
    coords = {"bin": of_bins.lower, "bin_upper": ("bin", of_bins.upper)}
    return xr.Dataset({"count": count} | terms, attrs={"bins": of_bins.description}).assign_coords(
        coords
    )


def _all_values(arrays: dict[str, Any], dim: Over) -> xr.DataArray:
    """Return all probabilities, for bins="unique", which needs sums over all dimensions.

    Raises:
        ArgumentError: only some dimensions are summed over.
    """
    labelled = as_labelled(arrays, unlike=list(arrays))
    first = next((v for v in arrays.values() if not np.isscalar(v)), None)
    if set(names_of(labelled, dim, first)) != set(names_of(labelled, "all", None)):
        raise ArgumentError("bins", '"unique" needs dim="all"', "Pass members or digits instead")
    return labelled["probability"]


def _kernel(p: Array, o: Array, w: Array, *, bins: Binning) -> Floats:
    """Return sums by part and bin for rows of points, and counts of present and missing points."""
    check_probability("probability", p)
    check_event("event", o)
    missing = np.isnan(p) | np.isnan(o) | np.isnan(w)
    p = np.where(missing, 0, p).astype(common_dtype(p), copy=False)
    w, o = (np.where(missing, 0, a).astype(np.float64) for a in (w, o))
    index, n = bins.place(p), len(bins.lower)
    first = sums_by_bin(index, n, ~missing, w, w * w)
    events = sums_by_bin(index, n, w * o)
    if bins.single_valued:
        q, weight = bins.lower, first[:, n : 2 * n]
        moments = np.concatenate([q * weight, q * q * weight, events, q * events], axis=1)
    else:
        wq = w * p
        moments = sums_by_bin(index, n, wq, wq * p, w * o, wq * o)
    return np.concatenate([first, moments, present_and_missing(~missing)], axis=1)
