"""Sums per forecast probability: the state of reliability, ROC, economic value and CORP.

They add over blocks of points: `merge_states` joins those of several dates, and what is finished
from the whole is as if it had been computed at once.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import common_dtype
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.events._binning import Binning, binning
from ens10.metrics.events._checks import check_event, check_probability, check_sizes
from ens10.metrics.events._sums import binned, sums_over

Array = npt.NDArray[Any]
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
    """Additive sums of weights, probabilities and events, per bin of probability.

    Exactly one of `bins`, `members` and `digits` says what a bin is.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors lose their gradients.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        dim: dimensions that are summed over: numbers of axes, names for DataArrays, or "all".
        bins: a number of equal bins; or their edges, from 0 to 1; or "unique": each probability
            that occurs is a bin (for `dim="all"` only, and lazy arrays are computed). Bins
            contain their lower edge, the last one both.
        members: M, for shares of M members: each of the M + 1 shares is a bin.
        digits: probabilities are rounded to that many decimals, and each is a bin.
        weights: of the points, such as area weights.
        nan: "propagate" makes the sums NaN over points of which one is missing; "omit" leaves
            such points out.

    Returns:
        A Dataset with one variable for each of `PARTS` over `bin` (whose coordinate is the
        lower edge, or the probability) and the dimensions that are left; float64, lazy if the
        arrays are. Merge several with `merge_states`.

    Raises:
        UnknownNameError: another policy.
        ArgumentError: not exactly one kind of bins, or edges that are none; probabilities outside
            [0, 1], or that are no shares of M members; events other than 0 and 1 (on lazy
            arrays when computed); shapes, coordinates or weights that do not fit.
    """
    if nan not in get_args(Nan):
        raise UnknownNameError("nan", nan, get_args(Nan))
    given = {"probability": probability, "event": event}
    arrays = as_labelled(given, unlike=list(given))
    names = names_of(arrays, dim, next((v for v in given.values() if not np.isscalar(v)), None))
    if weights is not None:
        arrays["weights"] = _fitted(weights, given, arrays)
    check_sizes(arrays)
    ready = [arrays["probability"], arrays["event"], arrays.get("weights", xr.DataArray(1.0))]
    if isinstance(bins, str) and set(names) != set(names_of(arrays, "all", None)):
        raise ArgumentError("bins", '"unique" needs dim="all"', "Give members or digits instead")
    made = binning(bins, members, digits, ready[0])
    kernel = partial(_sums, bins=made, omit=nan == "omit")
    sums = sums_over(kernel, ready, names, {"part": len(PARTS), "bin": len(made.lower)})
    found = {
        name: sums.isel(part=i).assign_attrs(long_name=long_name)
        for i, (name, long_name) in enumerate(PARTS.items())
    }
    found["count"] = found["count"].astype(np.int64).assign_attrs(long_name=PARTS["count"])
    coords = {"bin": made.lower, "bin_upper": ("bin", made.upper)}
    return xr.Dataset(found, attrs={"bins": made.told}).assign_coords(coords)


def _sums(p: Array, o: Array, w: Array, *, bins: Binning, omit: bool) -> Array:
    """Rows of sums by part and bin, of rows of points."""
    check_probability("probability", p)
    check_event("event", o)
    missing = np.isnan(p) | np.isnan(o) | np.isnan(w)
    p = np.where(missing, 0, p).astype(common_dtype(p), copy=False)
    w, o = (np.where(missing, 0, a).astype(np.float64) for a in (w, o))
    index, n = bins.place(p), len(bins.lower)
    count, weight, square, event = binned(index, (~missing, w, w * w, w * o), n)
    if bins.pooled:
        q = bins.lower
        moments = np.stack([q * weight, q * q * weight, q * event])
    else:
        wq = w * p
        moments = binned(index, (wq, wq * p, wq * o), n)
    sums = np.stack([count, weight, square, moments[0], moments[1], event, moments[2]], axis=1)
    if not omit:
        sums[missing.any(axis=1), 1:] = np.nan
    return sums


def _fitted(weights: Any, given: Any, arrays: dict[str, xr.DataArray]) -> xr.DataArray:
    """The weights beside the points; they must have no dimensions of their own."""
    together = as_labelled({**given, "weights": weights}, unlike=[*given, "weights"])
    if any(together[name].sizes != array.sizes for name, array in arrays.items()):
        raise ArgumentError("weights", "a shape that does not broadcast to the probabilities")
    extra = set(together["weights"].dims) - {d for a in arrays.values() for d in a.dims}
    if extra:
        raise ArgumentError(
            "weights", f"dimensions {sorted(map(str, extra))} that the points have not"
        )
    return together["weights"]
