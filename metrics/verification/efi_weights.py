"""The raw ensemble's EFI, which weights the EECRPS: validated, aligned, read block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._dispatch import Array
from ens10.metrics.distributions.forecast_dataset import GRID, STEP_AND_LEVEL, checked_forecast
from ens10.metrics.distributions.registry import kind_of
from ens10.metrics.extremes import EFIMethod, FrozenEFI, Origin, efi, origin
from ens10.metrics.scores.registry import required_inputs
from ens10.metrics.verification.alignment import (
    Join,
    MatchedForecast,
    check_same_grid,
    warn_left_out,
)
from ens10.metrics.verification.options import EFIOptions
from ens10.stations import as_row

Role = Literal["other", "raw", "any"]
NAME = "forecast_name"  # attribute that identifies a forecast
_REMEDY = 'Give those of the same dates; join="inner" leaves out the dates that they lack'


@dataclass(frozen=True)
class EFIWeights:
    """The raw ensemble and its climate, or its EFI, on the dates of a forecast; lazy until `load`.

    Attributes:
        fields: "members" and "climate", or "index"; dimensions in order, time as the forecast's.
        steps_and_levels: numbers of steps and levels of the forecast, 1 without that dimension.
        origin: identity of the ensemble that the index is computed from.
        method: method of `efi`.
        roles: role of each scored forecast: "other" must not be the raw ensemble, "raw" must be.
    """

    fields: dict[str, xr.DataArray]
    steps_and_levels: tuple[int, int]
    origin: Origin
    method: str
    roles: tuple[Role, ...]

    def part(self, dates: slice) -> "EFIWeights":
        """Return the weights of some of the dates."""
        return replace(self, fields={k: v.isel(time=dates) for k, v in self.fields.items()})

    @property
    def size(self) -> int:
        """Return the number of values to read."""
        return sum(field.size for field in self.fields.values())

    def load(self) -> "LoadedEFIWeights":
        """Read the values."""
        arrays = {}
        for name, field in self.fields.items():
            core = [d for d in field.dims if d not in ("time", *STEP_AND_LEVEL)]
            shape = [field.sizes["time"], *self.steps_and_levels, *(field.sizes[d] for d in core)]
            arrays[name] = field.to_numpy().reshape(shape)
        levels = None
        if "climate" in self.fields:
            levels = self.fields["climate"]["quantile"].to_numpy().astype(np.float64)
        return LoadedEFIWeights(arrays, levels, self.origin, self.method, self.roles)


@dataclass(frozen=True)
class LoadedEFIWeights:
    """A block of EFI weights in memory.

    Attributes:
        arrays: as `EFIWeights.fields`, (dates, steps, levels, [core,] H, W).
        levels: levels of the climate's quantiles; None for an index.
        origin: identity of the ensemble that the index is computed from.
        method: method of `efi`.
        roles: role of each scored forecast.
    """

    arrays: dict[str, Array]
    levels: npt.NDArray[np.float64] | None
    origin: Origin
    method: str
    roles: tuple[Role, ...]

    def index(self) -> Array:
        """Return the EFI, (dates, steps, levels, H, W)."""
        if "index" in self.arrays:
            return self.arrays["index"]
        members, climate = self.arrays["members"], self.arrays["climate"]
        shape = members.shape[:3]
        indices = [
            efi(
                members[case], climate[case], method=self.method,
                member_dim=0, quantile_dim=0, levels=self.levels,
            )
            for case in np.ndindex(shape)
        ]  # fmt: skip
        efi_index: Array = np.stack(indices).reshape(*shape, *members.shape[4:])
        return efi_index

    def check(self, forecast_members: Sequence[Array | None]) -> None:
        """Check by their values that forecasts are, or are not, the raw ensemble of the index.

        Args:
            forecast_members: members of each forecast; None for other kinds.

        Raises:
            ArgumentError: a date of an "other" forecast equals the raw ensemble, or no date of
                a "raw" forecast does.
        """
        marks: set[str] | None = None
        for members, role in zip(forecast_members, self.roles, strict=True):
            if members is None or role == "any":
                continue
            if marks is None:
                raw = self.arrays.get("members")
                marks = set(self.origin.marks) if raw is None else _marks(raw)
            forecast_marks = _marks(members)
            if forecast_marks & marks and role == "other":
                raise _improper_weight_error(self.origin)
            if forecast_marks and not forecast_marks & marks and role == "raw":
                raise _other_ensemble_error(self.origin)


def _marks(values: Array) -> set[str]:
    """Return fingerprints of the dates, except constant ones, which may coincide by chance."""
    varied = [
        date for date in values if np.fmin.reduce(date, axis=None) < np.fmax.reduce(date, axis=None)
    ]
    return set(origin("values", *varied).marks)


def _improper_weight_error(raw: Origin) -> ArgumentError:
    """Return the error for a forecast that is weighted by its own index."""
    return ArgumentError(
        "raw",
        f"the scored forecast is {raw.source!r}, the ensemble of the EFI, which is improper",
        "Take the raw ensemble; to score it itself, set scores_raw (--scores-raw)",
    )


def _other_ensemble_error(raw: Origin) -> ArgumentError:
    """Return the error for `scores_raw` with a forecast that is not the raw ensemble."""
    return ArgumentError(
        "scores_raw",
        f"the EFI is of {raw.source!r}, the forecast is another",
        "Leave it out, or give both the same forecast_name if they are one",
    )


def align_efi_weights(
    forecasts: list[MatchedForecast], scores: Sequence[str] | None, efi: EFIOptions, join: Join
) -> tuple[list[MatchedForecast], EFIWeights | None]:
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
        ArgumentError, MissingDataError, UnknownNameError: inputs that do not match or are missing.
    """
    if not _needs_efi(scores, efi):
        return forecasts, None
    if efi.method not in get_args(EFIMethod):
        raise UnknownNameError("efi_method", efi.method, get_args(EFIMethod))
    fields, raw, method = _fields(efi.raw, efi.climate, efi.method)
    forecasts = _common_dates(forecasts, fields, join)
    first = forecasts[0].forecast
    units = forecasts[0].truth.attrs.get("units")
    aligned_fields = {name: _as_field(name, field, first, units) for name, field in fields.items()}
    steps_and_levels = (first.sizes.get("step", 1), first.sizes.get("level", 1))
    roles: list[Role] = ["any"] * len(forecasts)
    roles[0] = _role(first, raw, efi.scores_raw)
    return forecasts, EFIWeights(aligned_fields, steps_and_levels, raw, method, tuple(roles))


def _needs_efi(scores: Sequence[str] | None, efi: EFIOptions) -> bool:
    needs_index = "efi" in required_inputs(scores)
    if needs_index and efi.raw is None:
        raise ArgumentError(
            "scores", "eecrps weights with the raw ensemble's EFI", "Pass raw and climate"
        )
    if not needs_index and (efi.raw is not None or efi.climate is not None):
        raise ArgumentError(
            "climate" if efi.raw is None else "raw",
            "no score that is asked for needs it",
            "Add eecrps to the scores",
        )
    return needs_index


def _fields(
    raw: Any, climate: xr.DataArray | None, method: str
) -> tuple[dict[str, xr.DataArray], Origin, str]:
    if isinstance(raw, xr.DataArray):
        raw = FrozenEFI.from_dataarray(raw)
    if isinstance(raw, FrozenEFI):
        if method not in ("exact", raw.method):
            raise ArgumentError("efi_method", f"{method}, but the EFI was made by {raw.method}")
        if climate is not None:
            raise ArgumentError("climate", "raw is an EFI already", "Leave climate out")
        return {"index": raw.to_dataarray()}, raw.origin, raw.method
    if not isinstance(raw, xr.Dataset):
        raise ArgumentError(
            "raw", f"a {type(raw).__name__} is neither an ensemble forecast nor a FrozenEFI"
        )
    if kind_of(raw, "raw").kind != "ensemble":
        raise ArgumentError(
            "raw", f"a forecast of kind {kind_of(raw).kind}", "Pass the ensemble's members"
        )
    if climate is None:
        raise ArgumentError(
            "climate", "the EFI needs its quantiles", "Pass those of ens10.quantiles.stored_climate"
        )
    members = checked_forecast(raw, "raw")["members"]
    raw_origin = Origin(str(raw.attrs.get(NAME, "raw")))
    return {"members": members, "climate": climate}, raw_origin, method


def _common_dates(
    forecasts: list[MatchedForecast], fields: dict[str, xr.DataArray], join: Join
) -> list[MatchedForecast]:
    dates = forecasts[0].forecast["time"].to_numpy()
    common = np.ones(dates.size, bool)
    for name, field in fields.items():
        label = _name(name)
        if "time" not in field.dims or "time" not in field.indexes:
            raise ArgumentError(label, f"dimensions {field.dims} without dates")
        if field.indexes["time"].has_duplicates:
            raise ArgumentError(label, "a date occurs twice in its coordinate time")
        present = np.isin(dates, field["time"].to_numpy())
        if not present.all() and join == "exact":
            raise MissingDataError(label, [str(t)[:19] for t in dates[~present]], _REMEDY)
        common &= present
    if common.all():
        return forecasts
    if not common.any():
        raise ArgumentError("raw", "it has no date of the forecast")
    missing = [str(t)[:19] for t in dates[~common]]
    warn_left_out(len(missing), common.size, "not in the raw ensemble and its climate", missing)
    return [
        MatchedForecast(f.forecast.isel(time=common), f.truth, f.positions[common])
        for f in forecasts
    ]


def _as_field(
    name: str, field: xr.DataArray, first: xr.Dataset, units: str | None
) -> xr.DataArray:  # fmt: skip
    """Select the forecast's dates, steps and levels of a field, and order its dimensions."""
    label, field = _name(name), as_row(field)
    core = {"members": ("number",), "climate": ("quantile",), "index": ()}[name]
    extra_dims = tuple(dim for dim in STEP_AND_LEVEL if dim in first.dims)
    expected = ("time", *extra_dims, *core, *GRID)
    if set(field.dims) != set(expected):
        raise ArgumentError(label, f"dimensions {field.dims} instead of {expected}")
    if "quantile" in core and "quantile" not in field.coords:
        raise ArgumentError(
            label,
            "its coordinate quantile is missing",
            "Add the quantile levels as that coordinate",
        )
    check_same_grid(label, first, field)
    field_units = field.attrs.get("units")
    if core and units and field_units and field_units != units:
        raise ArgumentError(
            label, f"in {field_units}, the truth in {units}", "Bring all to one unit"
        )
    for dim in extra_dims:
        missing = np.setdiff1d(first[dim].to_numpy(), field[dim].to_numpy())
        if missing.size:
            raise MissingDataError(label, [f"{dim} {value}" for value in missing])
    selection = field.sel({dim: first[dim].to_numpy() for dim in ("time", *extra_dims)})
    if "valid_time" in selection.coords and "valid_time" in first.coords:
        forecast_times, field_times = (
            d["valid_time"].transpose("time", ...).to_numpy().astype("M8[ns]")
            for d in (first, selection)
        )
        if not np.array_equal(forecast_times, field_times):
            raise ArgumentError(label, "valid at other times than the forecast (another step?)")
    return selection.transpose(*expected)


def _name(field: str) -> str:
    return "climate" if field == "climate" else "raw"


def _role(forecast: xr.Dataset, raw: Origin, scores_raw: bool) -> Role:
    """Return the role of a forecast, from its name and that of the raw ensemble."""
    marks: tuple[str, ...] = ()
    members = forecast.get("members")
    if members is not None and members.chunks is not None:
        marks = origin("lazy", members).marks
    same = raw.same_as(Origin(str(forecast.attrs.get(NAME, "")), marks))
    if same and not scores_raw:
        raise _improper_weight_error(raw)
    if scores_raw and not same and members is None:
        raise _other_ensemble_error(raw)
    if same:
        return "any"
    return "raw" if scores_raw else "other"
