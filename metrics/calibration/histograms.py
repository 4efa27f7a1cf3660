"""Rank histograms, PIT histograms and tests of their flatness.

A calibrated forecast has a flat histogram: U-shaped means too little spread, a dome too much,
a slope a bias. Counts are additive: those of blocks of dates sum to those of all.
"""

from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import chdtrc

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import Array, as_array, compilable, refuse_datasets
from ens10.metrics._labels import rechunk, rechunk_coords
from ens10.metrics._point_random import dimension_keys, uniform
from ens10.metrics._reduce import Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.statistic import MEMBER, SUM, block_sums

__all__ = ["histogram_flatness", "pit_counts", "pit_histogram", "rank_histogram"]

Counts = npt.NDArray[np.int64]
RankNan = Literal["omit", "skip-members"]


def rank_histogram(
    members: Any,
    y: Any,
    *,
    member_dim: int | str,
    seed: int | None = None,
    dim: Over = "all",
    nan: str = "omit",
) -> xr.Dataset:
    """Count the rank of the observation among the M members (rank or Talagrand histogram).

    Rank 0 is below all members and M above all; an observation that equals k members takes one
    of the k + 1 possible ranks at random, with equal probability (Hamill 2001,
    doi:10.1175/1520-0493(2001)129<0550:IORHFV>2.0.CO;2). The random number of a point is a hash of
    `seed` and of the point's coordinates (its position along dimensions without coordinates), so
    chunks, blocks and order do not matter.

    Args:
        members: the ensemble.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        seed: seed of the random ranks among ties; None if there are none.
        dim: dimensions that are counted over: axes of `y`, names, or "all"; other dimensions
            are kept, such as latitude for counts by band.
        nan: "omit" leaves out points with a NaN; "skip-members" ranks among the m members that
            are present and spreads their m + 1 ranks evenly over the M + 1 at random, so that
            the histogram of a calibrated forecast stays flat. Points without y or any member
            are left out.

    Returns:
        `count` (int64) over `rank` = 0 .. M and the kept dimensions; `missing` (int64), the
        points left out. Lazy if an array is. All points count equally, without area weights.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import rank_histogram
        >>> members, y = np.array([[1.0, 2.0, 3.0]] * 4), np.array([0.5, 1.5, 2.5, 2.6])
        >>> rank_histogram(members, y, member_dim=1)["count"].values
        array([1, 1, 2, 0])

    Raises:
        ArgumentError: no such dimension, observations with a member axis, units or coordinates
            that differ, a seed that is not a whole number; without a seed a point that needs a
            random rank (lazy arrays when computed).
        UnknownNameError: an unknown policy for NaN.
    """
    if nan not in get_args(RankNan):
        raise UnknownNameError("nan", nan, get_args(RankNan))
    labelled = as_labelled({"members": members, "y": y}, {"members": {MEMBER: member_dim}})
    M = labelled["members"].sizes[MEMBER]
    if M < 1:
        raise ArgumentError("members", "there are none to rank among")
    points = {"members": labelled["members"].isel({MEMBER: 0}, drop=True), "y": labelled["y"]}
    names = names_of(points, dim, members)
    keys = dimension_keys(points, 0 if seed is None else seed)
    kernel = partial(_rank_counts, skip=nan == "skip-members", seeded=seed is not None)
    sums = block_sums(
        "rank_histogram", kernel, [labelled["members"], labelled["y"], *keys], names, M + 2
    )
    return _table(sums, xr.DataArray(np.arange(M + 1), dims="rank"), "rank of the observation")


def _rank_counts(
    x: Array, y: Array, *keys: Any, skip: bool, seeded: bool
) -> npt.NDArray[np.float64]:
    M = x.shape[0]
    below, equal, present = members_below(x, y)
    short = (present < M) & (present > 0) & skip
    ranks = below.astype(np.int64)
    at = np.nonzero(((equal > 0) & (present == M)) | short)  # elsewhere the rank is sure
    if at[0].size and not seeded:
        reason = f"{at[0].size} points have members equal to the observation, or missing ones"
        raise ArgumentError("seed", f"{reason}: their ranks are random", "Pass a number: seed=0")
    if at[0].size:
        random = uniform(*(key[at] for key in keys))
        # ranks among m members are stretched over those among M
        stretch = np.where(short[at], (M + 1) / (present[at] + 1), 1.0)
        ranks[at] = ((below[at] + random * (equal[at] + 1)) * stretch).astype(np.int64)
    ranks[(present < M) & ~short] = -1
    return counts_of(ranks, M + 1)


def counts_of(index: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.float64]:
    """Count the values 0 .. size - 1 in each row, and in the last column the value -1."""
    from ens10.metrics.calibration._compiled import add_counts

    counts = np.zeros((index.shape[0], size + 1))
    add_counts(index, counts)
    return counts


def members_below(x: Array, y: Array) -> tuple[Any, Any, Any]:
    """Count the members below y, equal to it, and present (not NaN).

    Args:
        x: members first, (M, ...).
        y: observations that broadcast to (...); where one is NaN no member counts as present.
    """
    from ens10.metrics.calibration._compiled import count_below

    shape = x.shape[1:]
    flat = compilable(x).reshape(x.shape[0], -1)
    observed = compilable(np.broadcast_to(y, shape)).reshape(-1)
    below, equal, present = (np.zeros(observed.size, dtype=np.int32) for _ in range(3))
    count_below(flat, observed, below, equal, present)
    return below.reshape(shape), equal.reshape(shape), present.reshape(shape)


def observation_ranks(x: Array, y: Array, uniform: npt.NDArray[np.float64]) -> Counts:
    """Return the rank of each observation among its members; -1 where one of them is NaN.

    Args:
        x: members first, (M, ...).
        y: observations, what broadcasts to (...).
        uniform: (...), numbers in [0, 1) that choose among ties.
    """
    below, equal, present = members_below(x, y)
    ranks = below + (uniform * (equal + 1)).astype(np.int64)
    return np.where(present < x.shape[0], -1, ranks)


def pit_histogram(values: Any, bins: int = 20, *, dim: Over = "all") -> xr.Dataset:
    """Count PIT values in equal bins of [0, 1].

    Args:
        values: PIT values. 1 falls into the last bin.
        bins: number of bins.
        dim: dimensions that are counted over: axes, names, or "all"; the others are kept.

    Returns:
        `count` (int64) over `pit_bin`, the centres, and the kept dimensions; `missing` (int64),
        the number of NaN, which are left out. Lazy if `values` are.

    Raises:
        ArgumentError: values outside [0, 1] (lazy ones when computed), or no bins.
    """
    _check_bins(bins)
    labelled = as_labelled({"values": values})
    names = names_of(labelled, dim, values)
    sums = block_sums(
        "pit_histogram", partial(_pit_counts, bins=bins), [labelled["values"]], names, bins + 1
    )
    centres = xr.DataArray((np.arange(bins) + 0.5) / bins, dims="pit_bin")
    return _table(sums, centres, "probability integral transform of the observation")


def pit_counts(values: Any, bins: int = 20) -> Counts:
    """Count the PIT values of one numpy array in equal bins; shape (bins,)."""
    _check_bins(bins)
    refuse_datasets({"values": values})
    return _pit_counts(as_array(values).reshape(1, -1), bins)[0, :-1].astype(np.int64)


def _pit_counts(values: Array, bins: int) -> npt.NDArray[np.float64]:
    valid_values = values[~np.isnan(values)]
    if valid_values.size and not 0.0 <= valid_values.min() <= valid_values.max() <= 1.0:
        raise ArgumentError(
            "values", f"between {valid_values.min():.6g} and {valid_values.max():.6g}, not 0 and 1"
        )
    with np.errstate(invalid="ignore"):  # NaN, which has no whole number
        index = np.minimum((values.astype(np.float64) * bins).astype(np.int64), bins - 1)
    return counts_of(np.where(np.isnan(values), -1, index), bins)


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise ArgumentError("bins", f"expected one or more, got {bins}")


def _table(sums: xr.DataArray, labels: xr.DataArray, description: str) -> xr.Dataset:
    totals = sums.astype(np.int64)
    name = str(labels.dims[0])
    count = totals.isel({SUM: slice(None, -1)}).rename({SUM: name})
    count = count.assign_coords({name: labels.to_numpy()})
    count[name].attrs["long_name"] = description
    return xr.Dataset(
        {
            "count": count.assign_attrs(long_name="number of points", units="1"),
            "missing": totals.isel({SUM: -1}).assign_attrs(long_name="points left out", units="1"),
        }
    )


_FLATNESS = {
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
    """Summarise the deviation from flatness of a rank or PIT histogram (n bins, N points).

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
        counts: result of `rank_histogram` or `pit_histogram` (the Dataset or its `count`).

    Returns:
        These values over the other dimensions, and `points` N; NaN where N is 0, the contrasts
        also where there are too few bins. Lazy if the counts are.

    Raises:
        ArgumentError: no such dimension, or fewer than two bins.
    """
    histogram = counts["count"] if isinstance(counts, xr.Dataset) else counts
    dims = [d for d in ("rank", "pit_bin") if d in getattr(histogram, "dims", ())]
    if not dims:
        actual_dims = getattr(histogram, "dims", ())
        raise ArgumentError("counts", f"no dimension rank or pit_bin, only {actual_dims}")
    if histogram.sizes[dims[0]] < 2:
        raise ArgumentError("counts", "a histogram needs two or more bins")
    if histogram.chunks is not None:
        histogram = rechunk_coords(rechunk(histogram, {dims[0]: -1}))
    statistics = xr.apply_ufunc(
        _flatness,
        histogram,
        input_core_dims=[dims],
        output_core_dims=[["statistic"]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {"statistic": len(_FLATNESS)}},
        keep_attrs=False,
    )
    variables = {
        name: statistics.isel(statistic=i).assign_attrs(long_name=text, units="1")
        for i, (name, text) in enumerate(_FLATNESS.items())
    }
    points = histogram.sum(dims[0]).assign_attrs(long_name="number of points", units="1")
    return xr.Dataset({**variables, "points": points})


def _flatness(counts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the summaries along the last axis, from counts with bins along the last axis."""
    n = counts.shape[-1]
    s = counts.astype(np.float64)
    total = s.sum(axis=-1, keepdims=True)
    e = np.where(total > 0, total, np.nan) / n
    residual = (s - e) / np.sqrt(e)
    chi2 = (residual**2).sum(axis=-1)
    slope, u_shape = (residual @ contrast for contrast in contrasts(n))
    remainder = np.maximum(chi2 - slope**2 - u_shape**2, 0.0)
    index = np.abs(s - e).sum(axis=-1) / (n * e[..., 0])
    p_remainder = chdtrc(n - 3, remainder) if n > 3 else np.full_like(chi2, np.nan)
    return np.stack(
        [
            *(index, chi2 / (n - 1), chi2, chdtrc(n - 1, chi2)),
            *(slope, chdtrc(1, slope**2), u_shape, chdtrc(1, u_shape**2), p_remainder),
        ],
        axis=-1,
    )


def contrasts(n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the linear and the quadratic contrast of n bins: orthogonal, norm 1, sum 0.

    The quadratic contrast of two bins does not exist and is NaN.
    """
    k = np.arange(n) - (n - 1) / 2
    curve = k**2 - (k**2).mean()
    length = np.sqrt((curve**2).sum())
    return k / np.sqrt((k**2).sum()), curve / length if n > 2 else np.full(n, np.nan)
