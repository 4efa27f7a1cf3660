"""The raw ensemble, or its index, as it is given to be scored with: checked, and aligned."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics.distributions.registry import kind_of
from ens10.metrics.extremes import EFIMethod, FrozenEFI, Origin, origin
from ens10.metrics.scores.registry import extras
from ens10.metrics.verification.alignment import (
    APART,
    GRID,
    Join,
    Matched,
    check_same_grid,
    checked_forecast,
    left_out,
)
from ens10.metrics.verification.options import EFIOptions
from ens10.metrics.verification.raw import RawIndex, Role, another, improper

NAME = "forecast_name"  # attribute by which a forecast is known again
_REMEDY = 'Give those of the same dates; join="inner" leaves out the dates that they do not have'


def with_raw(
    forecasts: list[Matched], scores: Sequence[str] | None, efi: EFIOptions, join: Join
) -> tuple[list[Matched], RawIndex | None]:
    """Validate and align the raw ensemble that supplies the EFI weights.

    Args:
        forecasts: the scored one and its reference, which may be the raw ensemble itself.
        scores: names of the scores of the first.
        efi: the raw ensemble and its climate.
        join: of the dates.

    Returns:
        The forecasts on the dates that the raw ensemble has, and its index; None if no score
        needs it.

    Raises:
        ArgumentError, MissingDataError, UnknownNameError: as `score_states`.
    """
    if not _needed(scores, efi):
        return forecasts, None
    if efi.method not in get_args(EFIMethod):
        raise UnknownNameError("efi_method", efi.method, get_args(EFIMethod))
    fields, made, method = _fields(efi.raw, efi.climate, efi.method)
    forecasts = _common_dates(forecasts, fields, join)
    first = forecasts[0].forecast
    units = forecasts[0].truth.attrs.get("units")
    placed = {name: _placed(name, field, first, units) for name, field in fields.items()}
    apart = (first.sizes.get("step", 1), first.sizes.get("level", 1))
    roles: list[Role] = ["any"] * len(forecasts)
    roles[0] = _role(first, made, efi.scores_raw)
    return forecasts, RawIndex(placed, apart, made, method, tuple(roles))


def _needed(scores: Sequence[str] | None, efi: EFIOptions) -> bool:
    needed = "efi" in extras(scores)
    if needed and efi.raw is None:
        raise ArgumentError(
            "scores", "eecrps weights with the raw ensemble's EFI", "Give raw and climate"
        )
    if not needed and (efi.raw is not None or efi.climate is not None):
        raise ArgumentError(
            "climate" if efi.raw is None else "raw",
            "no score that is asked for needs it",
            "Add eecrps to the scores",
        )
    return needed


def _fields(
    raw: Any, climate: xr.DataArray | None, method: str
) -> tuple[dict[str, xr.DataArray], Origin, str]:
    if isinstance(raw, xr.DataArray):
        raw = FrozenEFI.from_dataarray(raw)
    if isinstance(raw, FrozenEFI):
        if method not in ("exact", raw.method):
            raise ArgumentError("efi_method", f"{method}, but the EFI was made by {raw.method}")
        if climate is not None:
            raise ArgumentError("climate", "the EFI is made already", "Leave it out")
        return {"index": raw.to_dataarray()}, raw.origin, raw.method
    if not isinstance(raw, xr.Dataset):
        raise ArgumentError("raw", f"{type(raw).__name__} is no ensemble forecast and no FrozenEFI")
    if kind_of(raw, "raw").kind != "ensemble":
        raise ArgumentError(
            "raw", f"a forecast of kind {kind_of(raw).kind}", "Give the ensemble's members"
        )
    if climate is None:
        raise ArgumentError(
            "climate", "the EFI needs one", "Give quantiles, as of ens10.quantiles.stored_climate"
        )
    members = checked_forecast(raw, "raw")["members"]
    made = Origin(str(raw.attrs.get(NAME, "raw")))
    return {"members": members, "climate": climate}, made, method


def _common_dates(
    forecasts: list[Matched], fields: dict[str, xr.DataArray], join: Join
) -> list[Matched]:
    dates = forecasts[0].forecast["time"].to_numpy()
    there = np.ones(dates.size, bool)
    for name, field in fields.items():
        what = _name(name)
        if "time" not in field.dims or "time" not in field.indexes:
            raise ArgumentError(what, f"dimensions {field.dims} without dates")
        if field.indexes["time"].has_duplicates:
            raise ArgumentError(what, "a date comes twice in its coordinate time")
        own = np.isin(dates, field["time"].to_numpy())
        if not own.all() and join == "exact":
            raise MissingDataError(what, [str(t)[:19] for t in dates[~own]], _REMEDY)
        there &= own
    if there.all():
        return forecasts
    if not there.any():
        raise ArgumentError("raw", "it has no date of the forecast")
    told = [str(t)[:19] for t in dates[~there]]
    left_out(len(told), there.size, "not in the raw ensemble and its climate", told)
    return [Matched(f.forecast.isel(time=there), f.truth, f.places[there]) for f in forecasts]


def _placed(
    name: str, field: xr.DataArray, first: xr.Dataset, units: str | None
) -> xr.DataArray:  # fmt: skip
    """A field with the forecast's dates, steps and levels, dimensions in order."""
    what = _name(name)
    core = {"members": ("number",), "climate": ("quantile",), "index": ()}[name]
    apart = tuple(dim for dim in APART if dim in first.dims)
    wanted = ("time", *apart, *core, *GRID)
    if set(field.dims) != set(wanted):
        raise ArgumentError(what, f"dimensions {field.dims} instead of {wanted}")
    if "quantile" in core and "quantile" not in field.coords:
        raise ArgumentError(what, "its coordinate quantile is missing", "Give the levels there")
    check_same_grid(what, first, field)
    own = field.attrs.get("units")
    if core and units and own and own != units:
        raise ArgumentError(what, f"in {own}, the truth in {units}", "Bring all to one unit")
    for dim in apart:
        lacking = np.setdiff1d(first[dim].to_numpy(), field[dim].to_numpy())
        if lacking.size:
            raise MissingDataError(what, [f"{dim} {value}" for value in lacking])
    chosen = field.sel({dim: first[dim].to_numpy() for dim in ("time", *apart)})
    if "valid_time" in chosen.coords and "valid_time" in first.coords:
        mine, its = (
            d["valid_time"].transpose("time", ...).to_numpy().astype("M8[ns]")
            for d in (first, chosen)
        )
        if not np.array_equal(mine, its):
            raise ArgumentError(what, "valid at other times than the forecast (another step?)")
    return chosen.transpose(*wanted)


def _name(field: str) -> str:
    return "climate" if field == "climate" else "raw"


def _role(forecast: xr.Dataset, made: Origin, scores_raw: bool) -> Role:
    """What is left to be seen of the values, after the names."""
    marks: tuple[str, ...] = ()
    members = forecast.get("members")
    if members is not None and members.chunks is not None:
        marks = origin("lazy", members).marks
    same = made.same_as(Origin(str(forecast.attrs.get(NAME, "")), marks))
    if same and not scores_raw:
        raise improper(made)
    if scores_raw and not same and members is None:
        raise another(made)
    if same:
        return "any"
    return "raw" if scores_raw else "other"
