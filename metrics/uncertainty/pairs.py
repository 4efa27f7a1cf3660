"""Forecasts compared date by date, and the statistics of summed states."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.states import finish_mean

Floats = npt.NDArray[np.float64]
Sums = Mapping[str, Floats]


def paired_sums(states: xr.Dataset, reference: xr.Dataset, name: str) -> dict[str, Floats]:
    """Return the sums and weights of one mean of two forecasts, date by date.

    Args:
        states: states of the forecast, over `time`.
        reference: states of the reference.
        name: name of the mean, such as "crps".

    Returns:
        `sum`, `weight`, `reference_sum`, `reference_weight`, each of shape (n,).

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: the two were scored on different points.
    """
    ref = _on_same_points(states, reference, name)
    return mean_sums(states, name) | {f"reference_{k}": v for k, v in mean_sums(ref, name).items()}


def daily_differences(states: xr.Dataset, reference: xr.Dataset, name: str) -> xr.DataArray:
    """Return the mean score of each date less that of the reference, for `diebold_mariano`.

    Args:
        states: states of the forecast, over `time` and other dimensions (points of a map, bands).
        reference: states of the reference.
        name: name of the mean, such as "crps".

    Returns:
        Differences, negative where the forecast is better; NaN for dates without points. In
        `diebold_mariano` all dates count equally, whatever their weights.

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: the two were scored on different points.
    """
    ref = _on_same_points(states, reference, name)
    other = finish_mean(ref, name).assign_coords(states[f"{name}_sum"].coords)
    difference: xr.DataArray = finish_mean(states, name) - other
    return difference.assign_attrs(states[f"{name}_sum"].attrs).rename(f"{name}_difference")


def paired_differences(score: xr.DataArray, reference: xr.DataArray) -> xr.DataArray:
    """Return scores less those of a reference on the same dates and points; lazy where they are.

    Args:
        score: scores of the forecast, over `time` and other dimensions.
        reference: scores of the reference; its dates may be in another order.

    Returns:
        Negative where the forecast is better.

    Raises:
        MissingDataError: dates that only one of them has.
        ArgumentError: other dimensions or coordinates.
    """
    check_paired_dates(score, reference)
    if set(score.dims) != set(reference.dims):
        raise ArgumentError(
            "reference", f"it is over {reference.dims}, the score over {score.dims}"
        )
    other = reference.sel(time=score["time"])
    try:
        _, other = xr.align(score, other, join="exact")
    except ValueError as error:
        raise ArgumentError("reference", f"other coordinates than the score ({error})") from error
    units = {k: v for k, v in score.attrs.items() if k == "units"}
    difference: xr.DataArray = score - other
    return difference.drop_attrs().assign_attrs(units)


def _on_same_points(states: xr.Dataset, reference: xr.Dataset, name: str) -> xr.Dataset:
    check_paired_dates(states, reference)
    ref = reference.sel(time=states["time"])
    for part in ("count", "weight"):
        ours, other = states[f"{name}_{part}"], ref[f"{name}_{part}"]
        same = ours.sizes == other.sizes and ours.dims == other.dims
        if not same or not np.allclose(ours, other, rtol=1e-9):
            raise ArgumentError(
                "reference",
                f"its {name} has other points than the forecast's (their {part}s differ)",
                "Mask the truth where either is missing, and weight both alike",
            )
    return ref


def check_paired_dates(
    forecast: xr.Dataset | xr.DataArray, reference: xr.Dataset | xr.DataArray
) -> None:
    """Refuse a comparison of forecasts with different dates.

    Raises:
        MissingDataError: dates that only one of them has; it names them.
    """
    dates, reference_dates = forecast["time"].to_numpy(), reference["time"].to_numpy()
    unpaired = [
        f"{str(t)[:19]} (only in the forecast)" for t in np.setdiff1d(dates, reference_dates)
    ]
    unpaired += [
        f"{str(t)[:19]} (only in the reference)" for t in np.setdiff1d(reference_dates, dates)
    ]
    if unpaired:
        raise MissingDataError("paired dates", unpaired, "Score both forecasts on the same dates")


def mean_sums(states: xr.Dataset, name: str) -> dict[str, Floats]:
    """Return `sum` and `weight` of one mean, date by date, each of shape (n,)."""
    return {part: states[f"{name}_{part}"].to_numpy() for part in ("sum", "weight")}


def mean_of(s: Sums) -> Floats:
    """Return sum / weight; NaN where the weight is 0."""
    return _ratio(s["sum"], s["weight"])


def difference_of(s: Sums) -> Floats:
    """Return the mean of the forecast less that of the reference; below 0 if better."""
    return mean_of(s) - _ratio(s["reference_sum"], s["reference_weight"])


def skill_of(s: Sums) -> Floats:
    """Return the skill score 1 - mean / reference mean; 1 is perfect, 0 equals the reference."""
    return 1.0 - _ratio(mean_of(s), _ratio(s["reference_sum"], s["reference_weight"]))


def _ratio(above: Floats, below: Floats) -> Floats:
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    empty = np.full(np.broadcast_shapes(above.shape, below.shape), np.nan)
    np.divide(above, below, out=empty, where=below != 0)
    return empty
