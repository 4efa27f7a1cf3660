"""From a forecast and the truth to a Dataset of scores with confidence bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.grid import Weighting
from ens10.metrics.extremes import FrozenEFI
from ens10.metrics.states import NanPolicy
from ens10.metrics.uncertainty import Method, check_paired_dates
from ens10.metrics.verification.alignment import (
    Join,
    check_same_grid,
    checked_forecast,
    left_out,
    matched,
)
from ens10.metrics.verification.kinds import kind_of
from ens10.metrics.verification.raw_input import with_raw
from ens10.metrics.verification.states import PIT_BINS, states_of
from ens10.metrics.verification.summary import summarise
from ens10.metrics.verification.table import SCORES, named, undefined
from ens10.metrics.verification.zones import ZONES, Box, zones_of


def verify(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    weights: Weighting = "cell",
    by: Sequence[str] = (),
    reference: xr.Dataset | None = None,
    nan: NanPolicy = "omit",
    join: Join = "exact",
    bins: int = PIT_BINS,
    seed: int = 0,
    bands: Any = None,
    land: xr.DataArray | None = None,
    regions: Mapping[str, Box] | None = None,
    scheduler: Any = None,
    progress: bool = False,
    raw: xr.Dataset | xr.DataArray | FrozenEFI | None = None,
    climate: xr.DataArray | None = None,
    efi_method: str = "exact",
    scores_raw: bool = False,
    confidence: float = 0.95,
    method: Method = "bootstrap",
    block_length: int | None = None,
) -> xr.Dataset:
    """Scores of a forecast, with confidence bounds over dates: `summarise(score_states(...))`.

    With a reference, points where either forecast is missing are left out of both.

    Args:
        forecast: as for `score_states`.
        truth: as for `score_states`.
        scores: as for `score_states`.
        weights: "cell" areas, "cos" or "none".
        by: as for `summarise`.
        reference: a forecast of the same dates, often the raw ensemble, for skill scores.
        nan: "omit" or "propagate".
        join: "exact" refuses dates that are not everywhere; "inner" leaves them out and warns.
        bins: of the PIT histogram.
        seed: of the random ranks and of the bootstrap.
        bands: as for `score_states`.
        land: as for `score_states`.
        regions: as for `score_states`.
        scheduler: as for `score_states`.
        progress: whether to show a progress bar.
        raw: as for `score_states`; the reference may be this ensemble.
        climate: as for `score_states`.
        efi_method: as for `score_states`.
        scores_raw: as for `score_states`.
        confidence: of the bounds.
        method: "bootstrap" or "student" (for few dates).
        block_length: dates in a block of the bootstrap; None as for `summarise`.

    Returns:
        As `summarise`.

    Examples:
        >>> import ens10, xarray
        >>> from ens10.metrics import verify
        >>> members = ens10.open_store("store.zarr", "sfc")["t2m"].isel(step=0)
        >>> raw = xarray.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})
        >>> truth = ens10.open_store("store.zarr", "truth")["t2m"].isel(step=0)
        >>> found = verify(raw, truth, ["crps"], method="student")
        >>> bool(found["crps_lower"] < found["crps"] < found["crps_upper"])
        True

    Raises:
        ArgumentError, UnknownNameError, MissingDataError: as `score_states` and `summarise`.
    """
    states, other = paired_states(
        forecast,
        truth,
        scores,
        reference=reference,
        weights=weights,
        by=by,
        nan=nan,
        join=join,
        bins=bins,
        seed=seed,
        bands=bands,
        land=land,
        regions=regions,
        scheduler=scheduler,
        progress=progress,
        raw=raw,
        climate=climate,
        efi_method=efi_method,
        scores_raw=scores_raw,
    )
    return summarise(
        states,
        other,
        by=by,
        confidence=confidence,
        method=method,
        seed=seed,
        block_length=block_length,
    )


def paired_states(
    forecast: xr.Dataset,
    truth: xr.DataArray,
    scores: Sequence[str] | None = None,
    *,
    reference: xr.Dataset | None = None,
    weights: Weighting = "cell",
    by: Sequence[str] = (),
    nan: NanPolicy = "omit",
    join: Join = "exact",
    bins: int = PIT_BINS,
    seed: int = 0,
    bands: Any = None,
    land: xr.DataArray | None = None,
    regions: Mapping[str, Box] | None = None,
    scheduler: Any = None,
    progress: bool = False,
    raw: xr.Dataset | xr.DataArray | FrozenEFI | None = None,
    climate: xr.DataArray | None = None,
    efi_method: str = "exact",
    scores_raw: bool = False,
) -> tuple[xr.Dataset, xr.Dataset | None]:
    """The states of a forecast and of its reference, on the points that both have.

    Arguments and errors as for `verify`; of `by`, the zones count.
    """
    settings: Any = {
        "weights": weights,
        "zones": zones_of(
            forecast, [n for n in by if n in ZONES], bands=bands, land=land, regions=regions
        ),
        "nan": nan,
        "join": join,
        "bins": bins,
        "seed": seed,
        "scheduler": scheduler,
        "progress": progress,
    }
    asked = [scores]
    if reference is None:
        forecasts = [matched(forecast, truth, join)]
    else:
        forecast, reference = _same_dates(forecast, reference, join)
        forecasts = [matched(forecast, truth, join), matched(reference, truth, join, "reference")]
        asked.append(_compared(scores, forecasts[1].forecast))
    forecasts, index = with_raw(
        forecasts,
        scores,
        raw=raw,
        climate=climate,
        method=efi_method,
        scores_raw=scores_raw,
        join=join,
    )
    made = states_of(forecasts, asked, index=index, **settings)
    return made[0], made[1] if reference is not None else None


def _same_dates(
    forecast: xr.Dataset, reference: xr.Dataset, join: Join
) -> tuple[xr.Dataset, xr.Dataset]:
    checked, other = checked_forecast(forecast), checked_forecast(reference, "reference")
    check_same_grid("reference", checked, other.to_dataarray())
    if join == "exact":
        check_paired_dates(checked, other)
        return forecast, reference.sel(time=forecast["time"])
    dates = forecast["time"].to_numpy()
    common = dates[np.isin(dates, reference["time"].to_numpy())]
    unpaired = np.setxor1d(dates, reference["time"].to_numpy())
    if unpaired.size:
        told = [str(t)[:19] for t in unpaired]
        left_out(unpaired.size, unpaired.size + common.size, "in one forecast only", told)
    return forecast.sel(time=common), reference.sel(time=common)


def _compared(scores: Sequence[str] | None, reference: xr.Dataset) -> list[str]:
    """The scores of the reference: those that have a skill score and that it has itself."""
    kind, members = kind_of(reference, "reference").name, reference.sizes.get("number")
    usual = [name for name, score in SCORES.items() if score.usual]
    found = []
    for name in usual if scores is None else scores:
        base = name if name in SCORES else name.rpartition("_")[0]
        if base in SCORES and SCORES[base].skill and not undefined(base, kind, members):
            found.append(named(name).name)
    return found
