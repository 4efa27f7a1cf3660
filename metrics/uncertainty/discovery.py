"""Control of errors in many tests: their rate among findings, and the probability of any."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._labels import rechunk, rechunk_coords
from ens10.metrics._reduce import Over
from ens10.metrics._tables import as_labelled, names_of

Dependence = Literal["none", "spatial", "any"]
Floats = npt.NDArray[np.float64]


def benjamini_hochberg(
    p: Any, *, rate: float = 0.05, dim: Over = "all", dependence: Dependence = "none"
) -> xr.Dataset:
    """Return which tests are significant at a false discovery rate (Benjamini-Hochberg).

    Of m tests with sorted p values p_(1) <= ... <= p_(m), those are significant whose p value is
    at most the threshold, the largest p_(i) <= i / m level (Benjamini and Hochberg 1995,
    doi:10.1111/j.2517-6161.1995.tb02031.x): on average at most `rate` of what is found is false.

    Args:
        p: p values of any dimensions; missing values do not count as tests.
        rate: the false discovery rate, in (0, 1).
        dim: dimensions of the tests that form one family: numbers of axes, or names for
            DataArrays; "all". Other dimensions, such as steps, are tested separately.
        dependence: "none": level = rate, for tests that are independent or depend positively.
            "spatial": level = 2 rate, for the points of one map of the atmosphere, of which
            neighbours depend on each other: there the probability of any finding on a map without
            effect is then about `rate` (Wilks 2016, doi:10.1175/BAMS-D-15-00267.1).
            "any": level = rate / sum_{i <= m} 1 / i, which holds for every dependence (Benjamini
            and Yekutieli 2001, doi:10.1214/aos/1013699998).

    Returns:
        `significant` (bool, False where p is missing) and `adjusted` (p values to be compared
        with `rate`, at most 1) over the dimensions of p, `threshold` (NaN where nothing is
        significant) and `tests` (their number) over the other dimensions; lazy where p is.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import benjamini_hochberg
        >>> p = np.array([0.001, 0.012, 0.03, 0.4])
        >>> found = benjamini_hochberg(p, rate=0.05, dim="all", dependence="none")
        >>> found["significant"].values, found["adjusted"].values.round(3)
        (array([ True,  True,  True, False]), array([0.004, 0.024, 0.04 , 0.4  ]))

    Raises:
        UnknownNameError: an unknown dependence.
        ArgumentError: a rate outside (0, 1); no such dimension, or no tests; p values outside
            [0, 1] (of lazy ones, when they are computed).
    """
    if dependence not in get_args(Dependence):
        raise UnknownNameError("dependence", dependence, get_args(Dependence))
    tests = _significant(p, rate, dim, partial(_discovery_factors, dependence=dependence))
    return tests.assign_attrs(rate=rate, dependence=dependence)


def holm(p: Any, *, rate: float = 0.05, dim: Over = "all") -> xr.Dataset:
    """Return which tests are significant if any false finding is to have a small probability.

    Of m tests with sorted p values p_(1) <= ... <= p_(m), those are significant before the first
    p_(i) > rate / (m - i + 1) (Holm 1979, https://www.jstor.org/stable/4615733): the probability of
    any false finding is at most `rate`, for every dependence of the tests. It is for few tests that
    are named beforehand; `benjamini_hochberg` for many.

    Args:
        p: p values of any dimensions; missing values do not count as tests.
        rate: probability of any false finding, in (0, 1).
        dim: dimensions of the tests that form one family, as for `benjamini_hochberg`.

    Returns:
        `significant`, `adjusted`, `threshold` and `tests`, as of `benjamini_hochberg`.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import holm
        >>> found = holm(np.array([0.001, 0.012, 0.03, 0.4]), rate=0.05, dim="all")
        >>> found["significant"].values, found["adjusted"].values.round(3)
        (array([ True,  True, False, False]), array([0.004, 0.036, 0.06 , 0.4  ]))

    Raises:
        ArgumentError: as for `benjamini_hochberg`.
    """
    return _significant(p, rate, dim, _holm_factors).assign_attrs(rate=rate)


Factors = Callable[[npt.NDArray[Any], npt.NDArray[Any]], Any]


def _significant(p: Any, rate: float, dim: Over, factors: Factors) -> xr.Dataset:
    """Return the tests whose adjusted p value is at most `rate`.

    Args:
        p: p values.
        rate: that adjusted p values are compared with.
        dim: dimensions of the tests of one family.
        factors: (number of tests, rank from 1) to the factor of a p value.
    """
    if not 0.0 < rate < 1.0:
        raise ArgumentError("rate", f"expected a number between 0 and 1, got {rate}")
    labelled = as_labelled({"p": p})
    values = labelled["p"]
    names = names_of(labelled, dim, p)
    if any(values.sizes[name] == 0 for name in names):
        raise ArgumentError("p", f"there are no tests along {names}")
    if values.chunks is not None:
        values = rechunk_coords(rechunk(values, dict.fromkeys(names, -1)))
    adjusted = xr.apply_ufunc(
        partial(_adjusted_p_values, axes=len(names), factors=factors),
        values,
        input_core_dims=[names],
        output_core_dims=[names],
        dask="parallelized",
        output_dtypes=[np.float64],
    ).transpose(*values.dims)
    significant = adjusted <= rate
    fields = {
        "significant": significant,
        "adjusted": adjusted,
        "threshold": values.astype(np.float64).where(significant).max(names),
        "tests": values.notnull().astype(np.int64).sum(names),
    }
    bare = {name: field.drop_attrs() for name, field in fields.items()}
    return xr.Dataset(bare)


def _adjusted_p_values(p: npt.NDArray[Any], *, axes: int, factors: Factors) -> Floats:
    """Return the adjusted p values, from those times their factors.

    By Holm's method that of rank i is the largest of all j <= i, by others the least of all j >= i.
    """
    flat = p.reshape(*p.shape[: p.ndim - axes], -1).astype(np.float64)
    if bool(((flat < 0) | (flat > 1)).any()):
        raise ArgumentError("p", "values outside [0, 1]", "Pass p values, not test statistics")
    if flat.size == 0:
        return flat.reshape(p.shape)
    order = np.argsort(flat, axis=-1)  # missing ones last
    ranked = np.take_along_axis(flat, order, axis=-1)
    m = (~np.isnan(flat)).sum(axis=-1, keepdims=True)
    i = np.arange(1, flat.shape[-1] + 1)
    scaled = ranked * factors(m, i)
    if factors is _holm_factors:
        bounded = np.fmax.accumulate(scaled, axis=-1)
    else:
        bounded = np.fmin.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]
    bounded = np.where(np.isnan(ranked), np.nan, np.minimum(bounded, 1.0))
    adjusted = np.empty_like(flat)
    np.put_along_axis(adjusted, order, bounded, axis=-1)
    return adjusted.reshape(p.shape)


def _holm_factors(m: npt.NDArray[Any], i: npt.NDArray[Any]) -> Any:
    return m + 1 - i


def _discovery_factors(m: npt.NDArray[Any], i: npt.NDArray[Any], dependence: str) -> Any:
    """Return m / i times rate / level."""
    if dependence == "any":
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / i)])
        return (m / i) * np.take(harmonic, m)
    return (m / i) * (0.5 if dependence == "spatial" else 1.0)
