"""`ens10 blend`: one forecast from the predictions of several runs, date by date."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.command_options import BlendOptions
from ens10.errors import ArgumentError
from ens10.experiments.forecasts.past_forecasts import target_of
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.reading import open_predictions, store_of
from ens10.grid import area_weights
from ens10.metrics.distributions import Distribution
from ens10.metrics.distributions.quantiles import LEVELS
from ens10.metrics.verification.alignment import check_same_grid, valid_times
from ens10.models.blending import Blend
from ens10.options import chosen, takes
from ens10.partial import RESULT, Partial, check_target
from ens10.signals import stoppable
from ens10.stations import as_row, as_stations, has_stations
from ens10.store import consolidate
from ens10.store.manifest import record_files
from ens10.store.opening import (
    FORMAT_ATTRIBUTE,
    PREDICTIONS_FORMAT,
    PREDICTIONS_PLAN,
    is_predictions,
)


@takes(BlendOptions)
def blend_runs(
    runs: Sequence[Path | str],
    out: Path | str,
    options: BlendOptions | None = None,
    **named: Any,
) -> dict[str, float]:
    """Write the blend of several runs on all dates that one of them predicted.

    Args:
        runs: run folders or predictions, with truth, of one target and lead time.
        out: Zarr store to write, which `ens10 score` takes: quantiles and truth.
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The last weight of each run in the linear pool.

    Raises:
        FileError: no predictions, or `out` exists.
        ArgumentError: fewer than two runs, or other units, lead times or points.
        MissingDataError: other grid points.
        UnknownNameError: another method.
    """
    options, path = chosen(BlendOptions, options, named), Path(out)
    check_target(path, options.force, is_predictions, "a store of predictions")
    sources = [_source(Path(run)) for run in runs]
    blend = Blend(len(sources), LEVELS, options.method)
    for other in sources[1:]:
        _check_alike(sources[0], other)
    partial = Partial(path, RESULT, is_older=is_predictions)
    result = partial.path / RESULT
    with partial.lock("ens10 blend", hold=hold_lock), stoppable():
        partial.clear()
        names = [source.name for source in sources]
        if len(set(names)) < len(names):  # such as one method on two ensembles
            names = [str(run) for run in runs]
        blended = _blended(sources, blend).assign_attrs(blend_of=names, blended_by=options.method)
        as_stations(blended).chunk(time=1).to_zarr(result, mode="w", consolidated=False)
        consolidate(result)
        record_files(result, PREDICTIONS_PLAN)
        partial.publish()
    return dict(zip(names, blend.weights.tolist(), strict=True))


def _source(run: Path) -> "_Source":
    forecast, truth = open_predictions(run)
    facts = target_of(store_of(run)), str(truth.attrs.get("units", "")), float(forecast["step"])
    return _Source(run.name, as_row(forecast), as_row(truth), facts)


@dataclass
class _Source:
    """The predictions of one run, as a grid.

    Attributes:
        name: of the run.
        forecast: its parameters.
        truth: of its dates.
        facts: target ("" if unknown), units and lead time.
    """

    name: str
    forecast: xr.Dataset
    truth: xr.DataArray
    facts: tuple[str, str, float]

    def quantiles(self, date: np.datetime64) -> Any:
        """Return the forecast that starts at a date as quantiles (K, points), NaN without one."""
        places = np.flatnonzero(self.forecast["time"].to_numpy() == date)
        if not places.size:
            return np.full((len(LEVELS), self.truth.isel(time=0).size), np.nan)
        field = Distribution.from_dataset(self.forecast.isel(time=places[:1]).load())
        return np.asarray(field.quantile(np.array(LEVELS)), np.float64).reshape(len(LEVELS), -1)


def _check_alike(first: _Source, other: _Source) -> None:
    """Refuse predictions of other units, lead times or points than the first."""
    check_same_grid("runs", first.forecast, other.truth)
    if first.facts != other.facts and not (
        first.facts[1:] == other.facts[1:] and "" in (first.facts[0], other.facts[0])
    ):
        (target, units, step), (its_target, its_units, its_step) = first.facts, other.facts
        reason = f"{other.name} is of {its_target} in {its_units} at step {its_step:g}"
        remedy = "Blend runs of one target and lead time"
        own = f"{first.name} of {target} in {units} at {step:g}"
        raise ArgumentError("runs", f"{reason}, {own}", remedy)


def _blended(sources: Sequence[_Source], blend: Blend) -> xr.Dataset:
    """Return the quantiles of all dates, each by the truth that was known at its start."""
    truth = xr.concat([source.truth.load() for source in sources], "time", join="override")
    truth = truth.drop_duplicates("time").sortby("time")
    starts, known = truth["time"].to_numpy(), valid_times(truth).ravel()
    shape, rows = truth.shape[1:], area_weights(truth["latitude"].to_numpy(), "cell")
    uniform = has_stations(as_stations(truth))
    weights = np.broadcast_to(np.ones(1) if uniform else rows[:, None], shape).ravel()
    values = np.empty((len(starts), len(LEVELS), *shape), np.float32)
    order, learned = np.argsort(known, kind="stable"), 0
    for n, start in enumerate(starts):
        while learned < len(order) and known[order[learned]] <= start:
            past = order[learned]
            quantiles = np.stack([source.quantiles(starts[past]) for source in sources])
            blend.learn(quantiles, truth[past].to_numpy().astype(np.float64).ravel(), weights)
            learned += 1
        quantiles = np.stack([source.quantiles(start) for source in sources])
        values[n] = blend.forecast(quantiles).reshape(len(LEVELS), *shape)
    dims = ("time", "quantile", *truth.dims[1:])
    attrs = {"units": str(truth.attrs.get("units", "")), "long_name": "quantiles of the blend"}
    for coordinate in truth.coords.values():
        coordinate.encoding = {}
    return xr.Dataset(
        {"values": (dims, values, attrs), "truth": truth.rename("truth").drop_encoding()},
        {"quantile": list(LEVELS), **truth.coords},
        {"forecast_kind": "quantiles", FORMAT_ATTRIBUTE: PREDICTIONS_FORMAT},
    )
