"""Analyses, which are the true state with errors; and stores that have them for the truth."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.channels import channel_names, field_of, resolve, split
from ens10.convert import prepare
from ens10.experiments.runs.claims import make_once
from ens10.experiments.runs.provenance import checksum
from ens10.store import forecasts, open_store
from ens10.synthetic.sphere import SphereFields

AGAINST = ("true state", "analysis", "with its error")
NONE = "none"
CORRELATIONS: Mapping[str, float] = {"random": 0.0, "correlated": 0.7}  # with the model's error
_SHARE = 0.5  # of the analysis error in the root mean square error of the ensemble mean
_LENGTH_KM = 1000.0  # of the random part


def analysis(
    mean: xr.DataArray, truth: xr.DataArray, error: Any, correlation: float, noise: Any
) -> xr.DataArray:
    """Return the true state plus normal errors, correlated with the errors of the ensemble mean.

    Args:
        mean: of the ensemble, over time and places.
        truth: the true state.
        error: standard deviation of the errors, a number or one for each place.
        correlation: with the errors of the ensemble mean, less the mean error of each place.
        noise: standard normal numbers of the shape of `truth`.
    """
    model = mean - truth
    model = (model - model.mean("time")) / model.std("time")
    errors: xr.DataArray = correlation * model + np.sqrt(1 - correlation**2) * noise
    analysed: xr.DataArray = truth + error * errors
    return analysed


def read_fields(store: Path, target: str, step: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the ensemble mean and the truth of all dates of a store, (time, rows, columns)."""
    members = field_of(forecasts(store), target).sel(step=step)
    truth = field_of(open_store(store, "truth"), target).sel(step=step)
    return members.mean("number").load(), truth.load()


def analysis_error(mean: xr.DataArray, truth: xr.DataArray) -> xr.DataArray:
    """Return the deviation of the analysis error at each point: half the RMSE of the forecast."""
    error: xr.DataArray = _SHARE * ((mean - truth) ** 2).mean("time") ** 0.5
    return error


def analysis_store(store: Path, case: str, target: str, step: int, folder: Path) -> Path:
    """Return a store of the same forecasts whose truth are analyses; make it if it is missing.

    The random part of the errors is smooth in space, independent of date to date, and the same in
    all cases.

    Args:
        store: of forecasts and the true state on a global grid.
        case: "none" for the store itself, or a name in `CORRELATIONS`.
        target: channel.
        step: lead time, h.
        folder: in which the store is made; its name contains the checksum of the data.
    """
    if case == NONE:
        return store
    path = folder / f"{case}-{target}-{step}-{checksum(store)}.zarr"

    def make() -> None:
        mean, truth = read_fields(store, target, step)
        smooth = SphereFields.gaussian(
            truth["latitude"].to_numpy(), truth.sizes["longitude"], _LENGTH_KM
        )
        noise = smooth.draw(np.random.default_rng(1), truth.sizes["time"])
        error = analysis_error(mean, truth)
        analysed = analysis(mean, truth, error, CORRELATIONS[case], noise)
        truths = open_store(store, "truth")
        name, level = split(resolve(target, channel_names(truths)))
        field = analysed.astype(np.float32).assign_attrs(truths[name].attrs).expand_dims("step")
        if level is not None:
            field = field.assign_coords(level=float(level)).expand_dims("level")
        prepare(forecasts(store).sel(step=[step]), path, truth=field.to_dataset(name=name))

    make_once(path, make)
    return path
