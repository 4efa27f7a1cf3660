"""Which variables and levels of the truth the forecasts have a use for."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.source.names import TRUTH_OPTION

_TOLERANCE_HPA = 1e-6


def wanted_fields(
    forecasts: xr.Dataset, truth: xr.Dataset, source: str, variables: Sequence[str] | None
) -> xr.Dataset:
    """The truth's variables that the forecasts hold too, on the levels that both have.

    Args:
        forecasts: in this package's layout.
        truth: likewise, without members.
        source: where the truth comes from, for errors.
        variables: names to keep instead of those that both have.

    Raises:
        MissingDataError: the truth lacks variables asked for, or has none of the forecasts'.
        ArgumentError: only one of the two has levels, or they have none in common.
        FileError: a field has no dates.
    """
    names = _names(forecasts, truth, source, variables)
    kept = truth[names]
    dateless = [str(name) for name in names if "time" not in truth[name].dims]
    if dateless:
        raise FileError(
            source, f"{', '.join(dateless)} has no dates", "Give truth with a time coordinate"
        )
    for name in names:
        if name in forecasts and ("level" in forecasts[name].dims) != ("level" in kept[name].dims):
            which = "the forecasts" if "level" in forecasts[name].dims else "the truth"
            raise ArgumentError(
                "truth",
                f"{name} has levels in {which} alone ({source})",
                f"Give its level as a coordinate in hPa, or map others with {TRUTH_OPTION} FILE",
            )
    return _on_common_levels(forecasts, kept, source)


def _names(
    forecasts: xr.Dataset, truth: xr.Dataset, source: str, variables: Sequence[str] | None
) -> list[Hashable]:
    held = ", ".join(map(str, truth.data_vars))
    if variables is not None:
        lacking = [name for name in variables if name not in truth.data_vars]
        if lacking:
            raise MissingDataError(source, lacking, f"The truth holds {held}")
        return list(variables)
    names = [name for name in truth.data_vars if name in forecasts.data_vars]
    names = [name for name in names if not _is_of_the_surface(truth[name], forecasts[name])]
    if not names:
        raise MissingDataError(
            source,
            [f"truth of any of {', '.join(map(str, forecasts.data_vars))}"],
            f"It holds {held}; map their names with {TRUTH_OPTION} FILE",
        )
    return names


def _is_of_the_surface(truth: xr.DataArray, forecast: xr.DataArray) -> bool:
    """The geopotential of the ground is no truth for that of pressure levels."""
    upper = "level" in forecast.dims and "level" not in truth.dims
    return upper and truth.attrs.get("GRIB_typeOfLevel") == "surface"


def _on_common_levels(forecasts: xr.Dataset, truth: xr.Dataset, source: str) -> xr.Dataset:
    if "level" not in truth.dims or "level" not in forecasts.dims:
        return truth
    held, wanted = truth["level"].to_numpy(), forecasts["level"].to_numpy()
    apart = np.abs(wanted[:, None].astype(np.float64) - held[None, :])
    both = apart.min(axis=1) <= _TOLERANCE_HPA
    if not both.any():
        raise ArgumentError(
            "truth",
            f"its levels ({_listed(held)} hPa, {source}) are none of the forecasts' "
            f"({_listed(wanted)} hPa)",
            f"Give truth on these levels, or name what to take with {TRUTH_OPTION} FILE",
        )
    places = apart.argmin(axis=1)[both]
    kept = truth
    if not np.array_equal(places, np.arange(held.size)):
        kept = truth.isel(level=places).assign_coords(level=forecasts["level"][both])
    own = {name: _own_levels(truth, forecasts, name, source) for name in kept.data_vars}
    return kept.assign(
        {
            name: kept[name].assign_attrs(levels_hpa=levels) if levels else kept[name]
            for name, levels in own.items()
        }
    )


def _own_levels(
    truth: xr.Dataset, forecasts: xr.Dataset, name: Hashable, source: str
) -> list[float]:
    """The levels that a variable has in both, where it need not have all; else an empty list."""
    sides = [
        side[name] for side in (truth, forecasts) if name in side and "level" in side[name].dims
    ]
    if not any("levels_hpa" in side.attrs for side in sides):
        return []
    held = [np.atleast_1d(side.attrs.get("levels_hpa", side["level"].to_numpy())) for side in sides]
    common = [level for level in held[0].tolist() if level in held[-1].tolist()]
    if not common:
        raise ArgumentError(
            "truth",
            f"its levels of {name} ({_listed(held[0])} hPa, {source}) are none of the forecasts' "
            f"({_listed(held[-1])} hPa)",
            f"Give truth on these levels, or name what to take with {TRUTH_OPTION} FILE",
        )
    return common


def _listed(levels: npt.NDArray[Any]) -> str:
    return ", ".join(f"{level:g}" for level in levels)
