"""The fields of a dataset one by one, as GRIB tells them apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ens10.catalog import Variable
from ens10.errors import ArgumentError
from ens10.export.message import variable_of

_INSTEAD = "Export to netCDF"
_MOST_IN_OCTET, _MOST_IN_TWO_OCTETS = 255, 65535


@dataclass(frozen=True)
class Cell:
    """One variable and level at one date and step.

    Attributes:
        variable: what GRIB calls it.
        name: the dataset's name of it.
        level: hPa, 0 at the surface.
        time: start.
        valid: valid time.
        step: hours.
        where: positions in the dataset along time, step and level.
    """

    variable: Variable
    name: str
    level: float
    time: np.datetime64
    valid: np.datetime64
    step: int
    where: dict[str, int]


def check_for_grib(dataset: xr.Dataset, kind: str) -> None:
    """Refuses what GRIB edition 1 cannot tell.

    Raises:
        ArgumentError: statistics, predictions, steps that are no hours, levels in parts of
            a Pa, members beyond 255.
    """
    if "forecast_kind" in dataset.attrs or kind in ("statistics", "climate"):
        what = "predictions" if "forecast_kind" in dataset.attrs else kind
        raise ArgumentError("to", f"GRIB holds no {what}", _INSTEAD)
    steps, units = dataset["step"].to_numpy(), dataset["step"].attrs.get("units", "h")
    if units != "h" or np.any(steps != steps.astype(np.int64)) or steps.min() < 0:
        raise ArgumentError("steps", f"GRIB needs whole hours, not {units}", _INSTEAD)
    valid = dataset["valid_time"].transpose("time", "step").to_numpy()
    ahead = valid - dataset["time"].to_numpy()[:, None]
    if np.any(ahead != steps.astype("timedelta64[h]")[None, :]):
        raise ArgumentError("steps", "a valid time is not the start plus the step", _INSTEAD)
    for number in dataset["number"].to_numpy() if "number" in dataset.dims else ():
        if not 0 <= number <= _MOST_IN_OCTET:
            raise ArgumentError("members", f"GRIB has no member {number}", _INSTEAD)
    levels = dataset["level"].to_numpy() if "level" in dataset.dims else np.array([1])
    pascal = np.round(levels * 100.0)
    fraction = levels != levels.astype(np.int64)
    if np.any(fraction & ((pascal / 100.0 != levels) | (pascal > _MOST_IN_TWO_OCTETS))):
        raise ArgumentError("levels", "GRIB edition 1 has whole hPa or Pa only", _INSTEAD)


def cells_of(dataset: xr.Dataset) -> Iterator[Cell]:
    """Everything that the dataset holds, by date and step, then variable and level."""
    held = [part for field in dataset.data_vars.values() for part in _parts(field)]
    valid = dataset["valid_time"].transpose("time", "step").to_numpy()
    steps = dataset["step"].to_numpy().tolist()
    for i, time in enumerate(dataset["time"].to_numpy()):
        for j, step in enumerate(steps):
            for variable, name, level, at in held:
                where = {"time": i, "step": j, **at}
                yield Cell(variable, name, level, time, valid[i, j], int(step), where)


def _parts(field: xr.DataArray) -> list[tuple[Variable, str, float, dict[str, int]]]:
    """A variable on each level that it has."""
    variable, name = variable_of(field), str(field.name)
    if "level" not in field.dims:
        return [(variable, name, 0, {})]
    levels: list[Any] = field["level"].to_numpy().tolist()
    own = np.atleast_1d(field.attrs.get("levels_hpa", levels)).tolist()
    return [
        (variable, name, float(level), {"level": n})
        for n, level in enumerate(levels)
        if level in own
    ]
