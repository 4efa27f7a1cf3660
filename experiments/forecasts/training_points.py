"""Points, units and windows of a forecast beside those of a training.

Grids must agree, and stations are matched by name.

A station of the training that the forecast lacks is a column of missing values. A station that the
training lacks is forecast by methods whose coefficients hold at any point, and missing otherwise.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, DataNote, listing
from ens10.loader.datamodule import TrainingData
from ens10.loader.samples import Samples
from ens10.source.units import unit_of
from ens10.stations import COORDINATES, STATION, coordinates, places_of

_NEAR_DEGREES = 1e-3


class BeyondTrainingWarning(DataNote):
    """A forecast differs from those of the training in a way that may cost skill."""


def warn_beyond_training(text: str) -> None:
    """Give a `BeyondTrainingWarning` at the line of the user that led to it, outside `ens10`."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "ens10":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, BeyondTrainingWarning, stacklevel=level)


def check_points(samples: Samples, training: TrainingData, name: str) -> None:
    """Refuse data at other points than those of the training.

    Args:
        samples: the data.
        training: of the model.
        name: of the model, for errors.

    Raises:
        ArgumentError: another grid, or other stations.
    """
    if training.stations != samples.station_names:
        points = [
            listing(names) or "a grid" for names in (samples.station_names, training.stations)
        ]
        reason = f"the forecast has {points[0]}; {name} was trained on {points[1]}"
        raise ArgumentError(
            "stations", reason, "Select the stations of the training, in their order"
        )
    for axis in ("latitude", "longitude"):
        expected, actual = np.asarray(getattr(training, axis)), getattr(samples, axis)
        same = expected.size == actual.size and np.abs(expected - actual).max() < _NEAR_DEGREES
        if expected.size and not same:
            raise ArgumentError(
                "grid",
                f"the forecast has {_axis(axis, actual)}; {name} was trained on "
                f"{_axis(axis, expected)}",
                "Interpolate the forecast, or train on its grid",
            )


def check_units(samples: Samples, training: TrainingData, place: int) -> None:
    """Reject a target, inputs or lead times in other units than those of the training.

    Args:
        samples: the forecasts.
        training: of the model.
        place: of its target among those of the forecasts.

    Units of inputs are compared where both data state them.

    Raises:
        ArgumentError: the units differ; the error names both.
    """
    target_units = str(samples.targets[place].attributes.get("units", ""))
    pairs = {"the lead time": (samples.step_units, training.step_units)}
    for channel, units in training.input_units.items():
        own = samples.units.get(channel) or units
        pairs[channel] = (own, units or own)
    pairs[training.target] = (target_units, training.units)
    for name, (units, trained) in pairs.items():
        if unit_of(units) != unit_of(trained):
            reason = f"{name} of the forecast is in {units!r}, that of the training was in"
            raise ArgumentError("units", f"{reason} {trained!r}", "Convert the forecast")


def check_windows(samples: Samples, training: TrainingData, channels: Sequence[str]) -> None:
    """Reject sums over other windows than those of the training.

    Args:
        samples: the forecasts.
        training: of the model.
        channels: that the model takes, those at other lead times with `@step`.

    Raises:
        ArgumentError: the windows of a channel differ; the error names both.
    """
    trained = training.windows
    for channel in dict.fromkeys(name.partition("@")[0] for name in channels):
        windows = samples.windows.get(channel), trained.get(channel)
        if windows[0] != windows[1]:
            one, many = windows[0] or "the start", windows[1] or "the start"
            one = f"the sum {'of' if windows[0] else 'since'} {one}"
            many = f"sums {'of' if windows[1] else 'since'} {many}"
            reason = f"{channel} is {one}, the run was trained on {many}"
            remedy = "Give a forecast of the same window, or train on this one"
            raise ArgumentError("forecast", reason, remedy)


def _axis(name: str, values: npt.NDArray[Any]) -> str:
    return f"{values.size} {name}s from {values[0]:g} to {values[-1]:g}"


class Columns(NamedTuple):
    """Stations of a result, and where a model computes them.

    Attributes:
        coordinates: of the stations, as xarray takes them.
        places: column of the model for each station of the result; -1 for none.
    """

    coordinates: dict[str, Any]
    places: npt.NDArray[np.int64]


def at_places(
    values: npt.NDArray[Any], places: npt.NDArray[np.int64], axis: int = -1
) -> npt.NDArray[Any]:
    """Return values at these places of an axis, NaN where a place is -1."""
    result = np.take(values, np.maximum(places, 0), axis)
    np.moveaxis(result, axis, -1)[..., places < 0] = np.nan
    return result


def match_stations(
    data: xr.Dataset, training: TrainingData, name: str, *, takes_new: bool
) -> tuple[xr.Dataset, Columns | None]:
    """Return forecasts at the stations that a model computes, and those of the result.

    Stations that the forecast lacks are appended, with missing values. If the model takes new ones,
    it computes all; otherwise those of the training, and the others are missing in the result. One
    line names each kind.

    Args:
        data: forecasts of stations as a row.
        training: of the model.
        name: of the model, for the lines.
        takes_new: True if the model's coefficients hold at any station.

    Returns:
        The forecasts, unchanged if the model takes none of their stations; and the stations of the
        result, None if they are those of the forecasts.
    """
    trained, own = training.stations, [str(one) for one in data[STATION].to_numpy().tolist()]
    new = [one for one in own if one not in set(trained)]
    missing = [one for one in trained if one not in set(own)]
    if len(new) == len(own) and not takes_new:
        return data, None
    if missing:
        lacks = f"the forecast lacks {_counted(missing)} of the training"
        warn_beyond_training(f"{name}: {lacks}; the result is missing there")
        data = _with_stations(data, training, own, missing)
    if new:
        effect = "the result is missing there, since the model was fitted to each station"
        if takes_new:
            effect = "they are forecast with the coefficients of all stations"
        warn_beyond_training(
            f"{name}: the training lacks {_counted(new)} of the forecast; {effect}"
        )
    names = [*own, *missing]
    if takes_new or names == trained:
        return data, None
    places = {key: (STATION, v.values, v.attrs) for key, v in coordinates(data).items()}
    row = data.isel(longitude=places_of(trained, names))
    row = row.assign_coords(longitude=np.arange(len(trained)))
    return row, Columns(places, places_of(names, trained))


def _with_stations(
    data: xr.Dataset, training: TrainingData, present: Sequence[str], names: Sequence[str]
) -> xr.Dataset:
    """Append stations of the training, with missing values."""
    own = {key: data[key] for key in COORDINATES if key in data.coords}
    longer = data.drop_vars(list(own)).reindex(longitude=np.arange(len(present) + len(names)))
    for key, field in own.items():
        if key == STATION:
            values = np.array([*present, *names], np.dtypes.StringDType())
        else:
            places = training.places.get(key, [np.nan])
            known = dict(zip(training.stations, places, strict=False))
            values = np.append(field, [known.get(name, np.nan) for name in names])
        longer = longer.assign_coords({key: ("longitude", values, field.attrs)})
    return longer


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} station{'s' if len(names) > 1 else ''} ({listing(names)})"
