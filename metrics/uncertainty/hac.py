"""The Diebold-Mariano test of equal scores, of one series of dates or of all points of a map."""

import warnings
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import ndtr, stdtr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, RechunkWarning
from ens10.metrics._dispatch import refuse_datasets
from ens10.metrics._labels import rechunk, rechunk_coords, rechunk_message
from ens10.metrics._reduce import Nan
from ens10.metrics._tables import as_labelled

Kernel = Literal["bartlett", "rectangular"]
Alternative = Literal["two-sided", "less", "greater"]
Floats = npt.NDArray[np.float64]
_BLOCK_VALUES = 2**21  # differences worked on at once: 16 MiB in float64


def diebold_mariano(
    difference: Any,
    *,
    time_dim: Dim | None = None,
    horizon: int | None = None,
    lags: int | None = None,
    kernel: Kernel = "bartlett",
    small_sample: bool = True,
    alternative: Alternative = "two-sided",
    nan: Nan = "propagate",
) -> xr.Dataset:
    """Test if the mean of paired differences d_t of scores is 0, for dependent dates.

    t = mean(d) / sqrt(V / n), V = g_0 + 2 sum_{k <= lags} w_k g_k, with the autocovariances
    g_k = sum_t (d_t - mean) (d_{t+k} - mean) / n and the weights w_k = 1 - k / (lags + 1)
    ("bartlett", Newey and West 1987, doi:10.2307/1913610: never negative) or 1 ("rectangular",
    Diebold and Mariano 1995, doi:10.1080/07350015.1995.10524599).

    With `small_sample` V is divided by 1 - 1/n - 2 sum w_k (n - k) / n^2, the factor by which it is
    too small on average if dates are independent, and t is compared with Student's t with n - 1
    degrees of freedom. For the rectangular kernel this is the test of Harvey, Leybourne and
    Newbold (1997, doi:10.1016/S0169-2070(96)00719-4) with horizon = lags + 1; with lags = 0 it is
    the paired t test. Without it, t is compared with the normal distribution.

    Args:
        difference: the forecast's score less the reference's, date by date in time order.
        time_dim: the dimension of the dates: an axis, or a name for DataArrays; may be None for
            one-dimensional input. The other dimensions are tested point by point.
        horizon: the number of dates from a forecast's start to its valid time, both counted. The
            errors of forecasts up to horizon - 1 dates apart are dependent, so lags is
            horizon - 1.
        lags: number of autocovariances; pass this or `horizon`. None for both: `automatic_lags`,
            for the Bartlett kernel only.
        kernel: "bartlett" or "rectangular".
        small_sample: True for the small-sample correction above.
        alternative: alternative hypothesis on the mean: "two-sided", "less" (the forecast is
            better) or "greater".
        nan: "propagate" makes the results NaN of a series with a missing date; "omit" leaves those
            dates out and keeps the distances between the others.

    Returns:
        `difference` (mean), `standard_error` and `statistic` (t), `p_value`, `dates` (those
        present), over the other dimensions; lazy where the input is. All but `difference` and
        `dates` are NaN where there is nothing to test: equal differences on all dates (identical
        forecasts), fewer than lags + 2 dates, or a variance that the rectangular kernel makes 0
        or less (use "bartlett").

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import diebold_mariano
        >>> d = np.array([-0.3, -0.1, -0.4, 0.1, -0.2, -0.3])
        >>> test = diebold_mariano(d, lags=0)  # the paired t test
        >>> round(float(test["statistic"]), 3), round(float(test["p_value"]), 3)
        (-2.739, 0.041)

    Raises:
        UnknownNameError: an unknown kernel, alternative or policy.
        ArgumentError: no such dimension; dates out of order; fewer than lags + 2 dates; both
            `horizon` and `lags`, or neither for the rectangular kernel.
    """
    _check_names(kernel, alternative, nan)
    series = _series(difference, time_dim)
    n = series.sizes["time"]
    count = _lags(n, horizon, lags, kernel)
    kernel_weights = _weights(count, kernel)
    parts = xr.apply_ufunc(
        partial(_moments, weights=kernel_weights, omit=nan == "omit", small_sample=small_sample),
        series,
        input_core_dims=[["time"]],
        output_core_dims=[["part"]],
        dask="parallelized",
        dask_gufunc_kwargs={"output_sizes": {"part": 3}},
        output_dtypes=[np.float64],
    )
    mean, error, dates = (parts.isel(part=i, drop=True) for i in range(3))
    statistic = mean / error
    p = xr.apply_ufunc(
        partial(_p_value, alternative=alternative, student=small_sample),
        statistic,
        dates,
        dask="parallelized",
        output_dtypes=[np.float64],
    )
    units = {k: v for k, v in series.attrs.items() if k == "units"}
    fields = {
        "difference": mean.drop_attrs().assign_attrs(units),
        "standard_error": error.drop_attrs().assign_attrs(units),
        "statistic": statistic.drop_attrs(),
        "p_value": p.drop_attrs(),
        "dates": dates.astype(np.int64).drop_attrs(),
    }
    attrs = {"lags": count, "kernel": kernel, "alternative": alternative}
    return xr.Dataset(fields, attrs=attrs | {"small_sample": int(small_sample)})


def automatic_lags(n: int) -> int:
    """Return the lags of the Bartlett kernel for n dates: floor(4 (n / 100)^(2/9)), at most n - 2.

    This is the data-independent rule of Newey and West (1994, doi:10.2307/2297912); for strong
    dependence (such as overlapping forecasts) pass `horizon` or more lags.
    """
    return max(0, min(n - 2, int(4.0 * (n / 100.0) ** (2.0 / 9.0))))


def _check_names(kernel: str, alternative: str, nan: str) -> None:
    for name, value, choices in (
        ("kernel", kernel, get_args(Kernel)),
        ("alternative", alternative, get_args(Alternative)),
        ("nan", nan, get_args(Nan)),
    ):
        if value not in choices:
            raise UnknownNameError(name, value, choices)


def _series(difference: Any, time_dim: Dim | None) -> xr.DataArray:
    """Return the differences as a DataArray with the dates, named time, in one chunk."""
    refuse_datasets({"difference": difference})
    if time_dim is None and np.ndim(difference) != 1:
        raise ArgumentError(
            "time_dim", f"None, of differences with {np.ndim(difference)} dimensions", "Name it"
        )
    is_dataarray = isinstance(difference, xr.DataArray)
    dim = time_dim if time_dim is not None else str(difference.dims[0]) if is_dataarray else 0
    labelled = as_labelled({"difference": difference}, {"difference": {"time": dim}})
    series = labelled["difference"]
    index = series.indexes.get("time")
    if index is not None and not (index.is_monotonic_increasing and index.is_unique):
        raise ArgumentError("difference", "its dates are not in order", f"Use .sortby({dim!r})")
    if series.chunks is None:
        return series
    blocks = len(series.variable.chunksizes["time"])
    if blocks > 1:
        warnings.warn(
            rechunk_message("diebold_mariano", "difference", [blocks]), RechunkWarning, stacklevel=3
        )
    others = {d: "auto" for d in series.dims if d != "time"} if blocks > 1 else {}
    return rechunk_coords(rechunk(series, {"time": -1, **others}))


def _lags(n: int, horizon: int | None, lags: int | None, kernel: str) -> int:
    if horizon is not None and lags is not None:
        raise ArgumentError("lags", "passed together with horizon", "Pass one: lags = horizon - 1")
    if horizon is None and lags is None and kernel == "rectangular":
        raise ArgumentError("horizon", 'needed for the kernel "rectangular"')
    for name, value, least in (("horizon", horizon, 1), ("lags", lags, 0)):
        if value is not None and (value != int(value) or value < least):
            raise ArgumentError(name, f"expected a whole number from {least}, got {value}")
    count = automatic_lags(n) if lags is None else int(lags)
    count = count if horizon is None else int(horizon) - 1
    if n < count + 2:
        raise ArgumentError(
            "difference", f"{n} dates are too few for {count} lags", f"{count + 2} are needed"
        )
    return count


def _weights(lags: int, kernel: str) -> Floats:
    k = np.arange(1, lags + 1)
    return 1.0 - k / (lags + 1.0) if kernel == "bartlett" else np.ones(lags)


def _moments(
    series: npt.NDArray[Any], *, weights: Floats, omit: bool, small_sample: bool
) -> Floats:
    """Return mean, standard error and number of dates along the last axis (dates last in input).

    A few points are processed at a time, so that a map of many dates is not copied as a whole.
    """
    n, shape = series.shape[-1], series.shape[:-1]
    flat = np.moveaxis(series, -1, 0).reshape(n, -1)
    moments = np.empty((flat.shape[1], 3))
    each = max(1, _BLOCK_VALUES // max(1, n))
    for start in range(0, flat.shape[1], each):
        points = slice(start, start + each)
        moments[points] = _block(flat[:, points].astype(np.float64), weights, omit, small_sample)
    return moments.reshape(*shape, 3)


def _block(d: Floats, weights: Floats, omit: bool, small_sample: bool) -> Floats:
    """Return mean, standard error and number of dates, (points, 3), of differences (n, points)."""
    valid = ~np.isnan(d)
    count = valid.sum(axis=0).astype(np.float64)
    filled = np.where(valid, d, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = filled.sum(axis=0) / count
        away = np.where(valid, filled - mean, 0.0)
        variance = np.einsum("tp,tp->p", away, away) / count
        expected = 1.0 - 1.0 / count
        present = valid.astype(np.float64)
        for k, w in enumerate(weights, start=1):
            variance += 2.0 * w * np.einsum("tp,tp->p", away[:-k], away[k:]) / count
            expected -= 2.0 * w * np.einsum("tp,tp->p", present[:-k], present[k:]) / count**2
        squared = variance / count / (expected if small_sample else 1.0)
    varies = np.where(valid, d, -np.inf).max(axis=0) > np.where(valid, d, np.inf).min(axis=0)
    tested = varies & (count >= weights.size + 2) & (expected > 0) & (squared > 0)
    if not omit:
        complete = valid.all(axis=0)
        mean, tested = np.where(complete, mean, np.nan), tested & complete
    error = np.sqrt(np.where(tested, squared, np.nan))
    return np.stack([mean, error, count], axis=-1)


def _p_value(statistic: Any, dates: Any, *, alternative: str, student: bool) -> Any:
    below = {"two-sided": -np.abs(statistic), "less": statistic, "greater": -statistic}
    t = below[alternative]
    p = stdtr(dates - 1.0, t) if student else ndtr(t)
    return np.minimum(1.0, 2.0 * p) if alternative == "two-sided" else p
