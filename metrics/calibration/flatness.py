"""How far a histogram of ranks or PIT values is from flat, and in what way."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import chdtrc

from ens10.errors import ArgumentError
from ens10.metrics._labels import fitted_coords, rechunked

_STATISTICS = {
    "reliability_index": "sum of the distances of the frequencies from a flat histogram",
    "delta": "squared distance from flat, in units of its expectation if calibrated",
    "chi2": "chi-square statistic of flatness",
    "chi2_p": "probability of so large a chi-square if calibrated",
    "slope": "linear contrast: above 0 where observations lie high in the forecast",
    "slope_p": "probability of so large a slope if calibrated",
    "u_shape": "quadratic contrast: above 0 where the spread is too small",
    "u_shape_p": "probability of so large a u_shape if calibrated",
    "rest_p": "probability of so large a chi-square besides slope and u_shape if calibrated",
}


def histogram_flatness(counts: Any) -> xr.Dataset:
    """Summaries of a rank or PIT histogram with n bins and N points.

    With counts s_k and their expectation e = N / n:
    `reliability_index` sum |s_k / N - 1 / n| (Delle Monache et al. 2006,
    doi:10.1029/2005JD006917), 0 if flat; `delta` sum (s_k - e)^2 / (N (n - 1) / n) (Candille
    and Talagrand 2005, doi:10.1256/qj.04.71), 1 in expectation for N independent points of a
    calibrated forecast; `chi2` sum (s_k - e)^2 / e with n - 1 degrees of freedom, and its parts
    (Jolliffe and Primo 2008, doi:10.1175/2007MWR2219.1) along the linear contrast (`slope`) and
    the quadratic one (`u_shape`), each standard normal if calibrated.

    The probabilities hold for independent points; neighbours on a grid are not, and for them
    they are far too small.

    Args:
        counts: of `rank_histogram` or `pit_histogram` (the Dataset or its `count`), with a
            dimension `rank` or `pit_bin`.

    Returns:
        These values over the other dimensions, and `points` N; NaN where N is 0, the contrasts
        also where there are too few bins. Lazy if the counts are.

    Raises:
        ArgumentError: no such dimension, or fewer than two bins.
    """
    counted = counts["count"] if isinstance(counts, xr.Dataset) else counts
    dims = [d for d in ("rank", "pit_bin") if d in getattr(counted, "dims", ())]
    if not dims:
        had = getattr(counted, "dims", ())
        raise ArgumentError("counts", f"no dimension rank or pit_bin, only {had}")
    if counted.sizes[dims[0]] < 2:
        raise ArgumentError("counts", "a histogram needs two or more bins")
    if counted.chunks is not None:
        counted = fitted_coords(rechunked(counted, {dims[0]: -1}))
    found = xr.apply_ufunc(
        _flatness,
        counted,
        input_core_dims=[dims],
        output_core_dims=[["statistic"]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {"statistic": len(_STATISTICS)}},
        keep_attrs=False,
    )
    named = {
        name: found.isel(statistic=i).assign_attrs(long_name=text, units="1")
        for i, (name, text) in enumerate(_STATISTICS.items())
    }
    points = counted.sum(dims[0]).assign_attrs(long_name="number of points", units="1")
    return xr.Dataset({**named, "points": points})


def _flatness(counts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Statistics last, from bins last."""
    n = counts.shape[-1]
    s = counts.astype(np.float64)
    total = s.sum(axis=-1, keepdims=True)
    e = np.where(total > 0, total, np.nan) / n
    residual = (s - e) / np.sqrt(e)
    chi2 = (residual**2).sum(axis=-1)
    slope, u_shape = (residual @ contrast for contrast in contrasts(n))
    rest = np.maximum(chi2 - slope**2 - u_shape**2, 0.0)
    index = np.abs(s - e).sum(axis=-1) / (n * e[..., 0])
    above = chdtrc(n - 3, rest) if n > 3 else np.full_like(chi2, np.nan)
    return np.stack(
        [
            *(index, chi2 / (n - 1), chi2, chdtrc(n - 1, chi2)),
            *(slope, chdtrc(1, slope**2), u_shape, chdtrc(1, u_shape**2), above),
        ],
        axis=-1,
    )


def contrasts(n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The linear and the quadratic contrast of n bins: orthogonal, of length 1 and sum 0.

    The quadratic one of two bins is NaN: there is none.
    """
    k = np.arange(n) - (n - 1) / 2
    curve = k**2 - (k**2).mean()
    length = np.sqrt((curve**2).sum())
    return k / np.sqrt((k**2).sum()), curve / length if n > 2 else np.full(n, np.nan)
