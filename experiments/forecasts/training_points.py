"""Points of a forecast beside those of a training: grids must agree, stations are matched by name.

A station of the training that the forecast lacks is a column of missing values. A station that the
training lacks is forecast by methods whose coefficients hold at any point, and missing otherwise.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, DataNote, listing
from ens10.loader.datamodule import TrainingData
from ens10.loader.samples import Samples
from ens10.stations import COORDINATES, STATION

_NEAR_DEGREES = 1e-3


class BeyondTrainingWarning(DataNote):
    """A forecast differs from those of the training in a way that may cost skill."""


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


def _axis(name: str, values: npt.NDArray[Any]) -> str:
    return f"{values.size} {name}s from {values[0]:g} to {values[-1]:g}"


@dataclass(frozen=True)
class Columns:
    """Stations of a result, and where a model computes them.

    Attributes:
        coordinates: of the stations, as xarray takes them.
        places: column of the model for each station of the result; -1 for none.
    """

    coordinates: dict[str, Any]
    places: npt.NDArray[np.int64]

    def spread(self, values: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Return values of the model's columns at the stations of the result, NaN at others."""
        return at_places(values, self.places, axis)


def at_places(
    values: npt.NDArray[Any], places: npt.NDArray[np.int64], axis: int = -1
) -> npt.NDArray[Any]:
    """Return values at these places of an axis, NaN where a place is -1."""
    result = np.take(values, np.maximum(places, 0), axis)
    np.moveaxis(result, axis, -1)[..., places < 0] = np.nan
    return result


def station_names(data: xr.Dataset) -> list[str]:
    """Return the names of the stations of a row, as text."""
    return [str(name) for name in data[STATION].to_numpy().tolist()]


def places_of(names: Sequence[str], available: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the place of each name among the available ones, -1 for others."""
    places = {name: n for n, name in enumerate(available)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def with_missing_stations(data: xr.Dataset, training: TrainingData, name: str) -> xr.Dataset:
    """Append the stations that the training has and the forecast lacks, with missing values.

    Args:
        data: forecasts of stations as a row.
        training: of the model.
        name: of the model, for the line that names these stations.
    """
    present = station_names(data)
    missing = [n for n, station in enumerate(training.stations) if station not in set(present)]
    if not missing:
        return data
    names = [training.stations[n] for n in missing]
    note = f"{name}: the forecast lacks {_counted(names)} of the training; the result is missing"
    warnings.warn(f"{note} there", BeyondTrainingWarning, stacklevel=4)
    own = {key: data[key] for key in COORDINATES if key in data.coords}
    added = {key: [training.places[key][n] for n in missing] for key in training.places}
    unknown = [np.nan] * len(missing)
    joined = {
        key: np.append(field.to_numpy(), added.get(key, unknown))
        for key, field in own.items()
        if key != STATION
    }
    joined[STATION] = _joined_names(own[STATION].to_numpy(), names)
    longer = data.drop_vars(list(own)).reindex(longitude=np.arange(len(present) + len(missing)))
    return longer.assign_coords(
        {key: ("longitude", joined[key], field.attrs) for key, field in own.items()}
    )


def _joined_names(present: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
    """Return names with further ones, as whole numbers if all of them are."""
    texts = np.array([*map(str, present.tolist()), *names], np.dtypes.StringDType())
    is_number = present.dtype.kind in "iu" and all(name.lstrip("-").isdigit() for name in names)
    return texts.astype(present.dtype) if is_number else texts


def note_new_stations(names: Sequence[str], name: str, *, takes_new: bool) -> None:
    """Say which stations the training lacks, and what becomes of them.

    Args:
        names: of these stations.
        name: of the model.
        takes_new: True if the model's coefficients hold at any station.
    """
    effect = (
        "they are forecast with the coefficients of all stations"
        if takes_new
        else "the result is missing there, since the model was fitted to each station"
    )
    note = f"{name}: the training lacks {_counted(names)} of the forecast; {effect}"
    warnings.warn(note, BeyondTrainingWarning, stacklevel=4)


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} station{'s' if len(names) > 1 else ''} ({listing(names)})"
