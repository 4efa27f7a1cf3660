"""Open the raw ensemble and its model climate from stores, for scores of extremes."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.channels import field_of, step_number
from ens10.errors import ArgumentError, Ens10Error, FileError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.reading import open_forecast
from ens10.metrics.verification.efi_weights import NAME
from ens10.stations import COORDINATES

_RAW = "raw"  # the name of what a prepared store holds


def with_name(forecast: xr.Dataset, path: Path | str) -> xr.Dataset:
    """Return a forecast with the attribute `NAME`, by which raw ensembles are told from others.

    The name is that of its run, else the one that it has, else its path.
    """
    path = Path(path)
    for folder in (path, path.parent):
        if (folder / provenance.FILE).exists():
            name = str(provenance.read_provenance(folder).get("name", folder.resolve()))
            return forecast.assign_attrs({NAME: name})
    return forecast.assign_attrs({NAME: forecast.attrs.get(NAME, str(path.resolve()))})


def open_raw(path: Path | str, channel: str | None, forecast: xr.Dataset) -> xr.Dataset:
    """Open the raw ensemble at the steps of a forecast, lazily.

    Args:
        path: a prepared store; or a run folder or forecast store of an ensemble.
        channel: in a prepared store, such as "t2m" or "z_500".
        forecast: that is scored.

    Raises:
        FileError: no such store or forecast; a prepared store without members.
        UnknownNameError: no such channel.
        ArgumentError: the channel or the forecast's step is unknown; the store lacks its steps.
    """
    from ens10.store import forecasts

    kinds = _kinds(path)
    if not kinds:
        return with_name(open_forecast(path)[0], path)
    if not {"sfc", "pl"} & set(kinds):
        raise FileError(path, "holds no ensemble forecasts", "Give the store that has them")
    steps = _steps(forecast)
    field = field_of(forecasts(path, dask=False), _channel(channel))
    missing = [step for step in steps if step not in field["step"].to_numpy()]
    if missing:
        steps_text = ", ".join(f"{step:g}" for step in field["step"].to_numpy())
        raise ArgumentError("raw", f"{path} has no step {missing[0]}, but {steps_text}")
    if "step" in forecast.dims:
        members = field.sel(step=steps).assign_coords(step=forecast["step"].to_numpy())
    else:
        members = field.sel(step=steps[0])
    names = ("time", "valid_time", "step", "latitude", "longitude", *COORDINATES)
    coords = {name: members[name].load() for name in names if name in members.coords}
    bare = members.drop_vars([c for c in members.coords if c not in names]).assign_coords(coords)
    return xr.Dataset({"members": bare}, attrs={"forecast_kind": "ensemble", NAME: _RAW})


def open_climate(path: Path | str, channel: str | None, forecast: xr.Dataset) -> xr.DataArray:
    """Open the quantiles of the model climate of each date of a forecast, lazily.

    Args:
        path: a store that was prepared with its climate.
        channel: such as "t2m" or "z_500".
        forecast: whose start dates and steps count.

    Raises:
        FileError: no store there, or one without a climate.
        UnknownNameError, MissingDataError, ArgumentError: as `stored_climate`.
    """
    from ens10.quantiles import stored_climate  # it takes a second
    from ens10.store import store_kinds

    name, steps = _channel(channel), _steps(forecast)
    if "climate" not in store_kinds(path):
        steps_text = ",".join(map(str, steps))
        raise FileError(
            path,
            "holds no climate",
            f"Make one with `ens10 prepare SRC STORE --climate {name}@{steps_text}`",
        )
    dates = forecast["time"].to_numpy()
    climates = [stored_climate(path, name, dates, step=step) for step in steps]
    if "step" not in forecast.dims:
        return climates[0]
    return xr.concat(climates, xr.Variable("step", forecast["step"].to_numpy()))


def _kinds(path: Path | str) -> list[str]:
    from ens10.store import store_kinds

    try:
        return store_kinds(path)
    except Ens10Error:
        return []


def _channel(channel: str | None) -> str:
    if channel is None:
        raise ArgumentError(
            "channel", "the forecast does not say of what it is", "Give it with --channel t2m"
        )
    return channel


def _steps(forecast: xr.Dataset) -> list[float]:
    """Return lead times in hours, or in the units of the forecast's step; integers if whole."""
    if "level" in forecast.dims:
        raise ArgumentError("raw", "the forecast has several levels", "Score one level at a time")
    if "step" not in forecast.coords:
        raise ArgumentError("raw", "the forecast does not say its step", "Give it a coordinate")
    steps: Any = np.atleast_1d(forecast["step"].to_numpy())
    if steps.dtype.kind == "m":
        steps = steps / np.timedelta64(1, "h")
    return [step_number(round(float(step), 6)) for step in steps]
