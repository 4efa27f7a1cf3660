"""The files of Frankfurt, Innsbruck and EUPPBench as members and truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from ens10.errors import FileError, MissingDataError

Array = npt.NDArray[Any]
FRANKFURT_DAYS = (1809, 3255)  # the training ends with the first, the test with the second
STEP = 30  # hours after the start at which the 24-hour window of Frankfurt ends
_HIGH_RESOLUTION = "HRES"  # the deterministic run, which is no member of the ensemble
_PLACES = {
    "10637": {"lat": 50.05, "lon": 8.6, "altitude": 112.0},
    "11120": {"lat": 47.26, "lon": 11.36, "altitude": 579.0},
}
_FORECASTS = "stations_ensemble_reforecasts_surface"
_OBSERVATIONS = "stations_reforecasts_observations_surface"


@dataclass(frozen=True)
class Pairs:
    """Members and truth of one station on the same start dates.

    Attributes:
        members: over time, number and station.
        truth: over time and station, in the units of the members.
    """

    members: xr.DataArray
    truth: xr.DataArray

    def dates(self, first: int, end: int) -> "Pairs":
        """Return the dates from the position `first` up to, without, `end`."""
        part = {"time": slice(first, end)}
        return Pairs(self.members.isel(part), self.truth.isel(part))


def frankfurt(folder: Path) -> tuple[Pairs, Pairs]:
    """Return training and test data of 24-hour precipitation at Frankfurt airport, in m.

    Args:
        folder: with `rain.csv`, which R writes of `rain` in the package isodistrreg (mm), or with
            `forecasts.nc` and `observations.nc` of precipitation `tp` in m over the same dates.

    Raises:
        MissingDataError: neither is there.
        FileError: fewer dates than the test needs.
    """
    table = folder / "rain.csv"
    pairs = _read_table(table, "10637", 0.001, "m") if table.exists() else _read_netcdf(folder)
    train, test = FRANKFURT_DAYS
    if (dates := pairs.truth.sizes["time"]) < test:
        raise FileError(folder, f"{dates} days; the test ends with day {test:,}", "Copy all days")
    return pairs.dates(0, train), pairs.dates(train, test)


def innsbruck(folder: Path, variable: str) -> tuple[Pairs, Pairs]:
    """Return training and test data at Innsbruck airport, winter dates.

    Args:
        folder: with `epp_VARIABLE_train.csv` and `epp_VARIABLE_test.csv`: date, observation and
            the members, of the R package ensemblepp.
        variable: "temp" (degC) or "rain" (square roots of mm).

    Raises:
        MissingDataError: no such files.
    """
    units = {"temp": "degC", "rain": "mm^0.5"}[variable]
    files = (folder / f"epp_{variable}_{part}.csv" for part in ("train", "test"))
    train, test = (_read_table(file, "11120", 1.0, units) for file in files)
    return train, test


def _read_table(path: Path, station: str, factor: float, units: str) -> Pairs:
    """Read a table of date, observation and members; values are multiplied by the factor."""
    if not path.exists():
        raise MissingDataError(path.parent, [path.name], "Copy it there")
    try:
        table = pd.read_csv(path, index_col=0).drop(columns=_HIGH_RESOLUTION, errors="ignore")
        values = factor * table.to_numpy(np.float64)
        dates = pd.DatetimeIndex(pd.to_datetime(table.index)).to_numpy().astype("M8[ns]")
    except (ValueError, TypeError) as error:
        remedy = "Write a row for each date: date, observation and members"
        raise FileError(path, f"no table of forecasts ({error})", remedy) from error
    return _pairs(dates, values[:, 1:], values[:, 0], station, units)


def _read_netcdf(folder: Path) -> Pairs:
    files = [folder / f"{name}.nc" for name in ("forecasts", "observations")]
    if missing := [file.name for file in files if not file.exists()]:
        raise MissingDataError(folder, ["rain.csv", *missing], "Copy the table or the two files")
    members, truth = (xr.load_dataset(file)["tp"] for file in files)
    members = members.isel(step=0, station=0).transpose("time", "number")
    ends = members["time"].to_numpy() + np.timedelta64(STEP, "h")
    if not np.array_equal(ends, truth["time"].to_numpy()):
        reason = f"its dates are not those of {files[0].name}, {STEP} h later"
        raise FileError(files[1], reason, "Write the end of each window, in the same order")
    values = members.to_numpy(), truth.isel(station=0).to_numpy()
    return _pairs(members["time"].to_numpy(), *values, "10637", "m")


def _pairs(dates: Array, members: Array, truth: Array, station: str, units: str) -> Pairs:
    places = {k: ("station", [v]) for k, v in _PLACES[station].items()}
    coordinates = {"time": dates, "station": [station], **places}
    ahead = {**coordinates, "number": np.arange(members.shape[1])}
    dims, attrs = ("time", "number", "station"), {"units": units}
    return Pairs(
        xr.DataArray(members[..., None], ahead, dims, attrs=attrs),
        xr.DataArray(truth[:, None], coordinates, ("time", "station"), attrs=attrs),
    )


def euppbench(folder: Path, variables: Sequence[str]) -> tuple[xr.Dataset, xr.Dataset]:
    """Return the reforecasts at the stations of EUPPBench, and their observations of t2m.

    Args:
        folder: with the Zarr stores of the archive under their names,
            `stations_ensemble_reforecasts_surface_COUNTRY.zarr` and
            `stations_reforecasts_observations_surface_COUNTRY.zarr`, of one or more countries.
        variables: names of those to read where the stores have them.

    Raises:
        MissingDataError: no forecasts, or forecasts of a country without its observations.
    """
    ahead = sorted(folder.glob(f"{_FORECASTS}*.zarr"))
    observed = [folder / path.name.replace(_FORECASTS, _OBSERVATIONS) for path in ahead]
    missing = [path.name for path in observed if not path.exists()]
    if missing or not ahead:
        raise MissingDataError(folder, missing or [f"{_FORECASTS}_COUNTRY.zarr"], "Copy them there")
    return _joined(ahead, variables), _joined(observed, ["t2m"])


def _joined(paths: Sequence[Path], variables: Sequence[str]) -> xr.Dataset:
    """Return the stations of several stores as one lazy dataset."""
    stores = [xr.open_zarr(path, decode_timedelta=True) for path in paths]
    parts = [store[[v for v in variables if v in store]] for store in stores]
    options: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    joined: xr.Dataset = xr.concat(parts, "station_id", **options)
    return joined
