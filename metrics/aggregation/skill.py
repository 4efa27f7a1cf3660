"""Skill scores of aggregated scores."""

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.aggregation.state import finish_mean


def skill_score(state: xr.Dataset, reference: xr.Dataset, name: str) -> xr.DataArray:
    """The skill score 1 - mean / reference's mean of means that are finished first.

    The mean of the skill scores of dates or points is another number, and no function of the mean
    scores: an easy date weighs as much as a hard one, and one on which the reference is nearly
    perfect can outweigh all others. So sum dates and points first (`total_over`, `group_state`)
    and call this last. On the limits of skill scores: Wheatcroft 2019,
    doi:10.1016/j.ijforecast.2018.11.010.

    Args:
        state: of the forecast, over whatever is to have a skill score of its own.
        reference: of the other, over the same.
        name: of the mean, such as "crps".

    Returns:
        1 is perfect, 0 no better than the reference; NaN where either has no weight or the
        reference's mean is 0.

    Raises:
        MissingDataError: coordinates (dates, steps, groups) that only one of the two has.
        ArgumentError: the two were scored on different points, in other units, or by another
            estimator.
    """
    parts = [f"{name}_{part}" for part in ("sum", "weight", "count")]
    ours, other = state[parts], reference[parts]
    for key in ("units", "estimator"):
        a, b = (s[parts[0]].attrs.get(key) for s in (ours, other))
        if a is not None and b is not None and a != b:
            raise ArgumentError("reference", f"its {name} has other {key} ({b}) than {a}")
    other = _ordered_like(ours, other)
    for part in parts[1:]:
        a, b = np.broadcast_arrays(ours[part].to_numpy(), other[part].to_numpy())
        if not np.allclose(a, b, rtol=1e-9):
            raise ArgumentError(
                "reference",
                f"its {name} has other points than the forecast's (their {part} differ)",
                "Mask the truth where either is missing, and weight both alike",
            )
    mean, of_reference = finish_mean(ours, name), finish_mean(other, name)
    skill = 1.0 - mean / of_reference.where(of_reference != 0)
    attrs = {"units": "1", "long_name": f"skill score of the mean {name}"}
    return skill.drop_attrs().assign_attrs(attrs).rename(f"{name}_skill")


def _ordered_like(state: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """The other state in the order of the first."""
    unpaired = []
    for dim, index in state.indexes.items():
        if dim not in other.indexes:
            unpaired.append(f"{dim} (only in the forecast)")
            continue
        for side, only in (
            ("forecast", index.difference(other.indexes[dim])),
            ("reference", other.indexes[dim].difference(index)),
        ):
            unpaired += [f"{dim} {str(v)[:19]} (only in the {side})" for v in only]
    unpaired += [f"{d} (only in the reference)" for d in set(other.dims) - set(state.dims)]
    if unpaired:
        raise MissingDataError("skill score", unpaired, "Score both on the same dates and points")
    return other.sel(dict(state.indexes.items())).transpose(*state.dims)
