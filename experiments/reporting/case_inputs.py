"""Inputs of a case study: its region, forecasts and truth; and a search for extreme dates."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.raw_ensemble import open_raw
from ens10.experiments.runs.reading import open_forecast, reading
from ens10.grid import area_weights
from ens10.metrics import region_boxes
from ens10.metrics.distributions.forecast_dataset import checked_forecast
from ens10.metrics.groups import Box
from ens10.stations import has_stations
from ens10.untrusted import read_mapping

# South, north, west and east edge in degrees, as of `region_boxes`.
REGIONS: dict[str, Box] = {
    "global": (-90.0, 90.0, -180.0, 180.0),
    "europe": (35.0, 75.0, -12.5, 42.5),
    "conus": (24.0, 50.0, -125.0, -66.0),
    "north_america": (25.0, 60.0, -145.0, -50.0),
    "south_america": (-56.0, 13.0, -82.0, -34.0),
    "africa": (-35.0, 37.0, -18.0, 52.0),
    "asia": (25.0, 65.0, 60.0, 145.0),
    "south_asia": (5.0, 38.0, 60.0, 100.0),
    "australia": (-45.0, -10.0, 110.0, 155.0),
    "pacific": (-30.0, 30.0, 150.0, -80.0),
    "arctic": (60.0, 90.0, -180.0, 180.0),
    "antarctic": (-90.0, -60.0, -180.0, 180.0),
}
_CIRCLE = 360.0
_REGION_HINT = "Give a name, or SOUTH,WEST,NORTH,EAST in degrees, such as 35,-12.5,75,42.5"


def region_box(region: str) -> Box:
    """Return the south, north, west and east edge of a region, degrees.

    Args:
        region: a name of `REGIONS`; or "S,W,N,E" in degrees. A box whose east lies west of its
            west goes across the meridian at which longitudes start anew.

    Raises:
        UnknownNameError: another name.
        ArgumentError: not four numbers, no latitudes or longitudes, or south not below north.
    """
    name = region.strip().lower()
    if name in REGIONS:
        return REGIONS[name]
    parts = name.split(",")
    if len(parts) == 1:
        raise UnknownNameError("region", region, [*REGIONS, "S,W,N,E"])
    try:
        south, west, north, east = (float(part) for part in parts)
    except ValueError:
        raise ArgumentError("region", f"{region!r} is not four numbers", _REGION_HINT) from None
    if not -90.0 <= south < north <= 90.0:
        reason = f"south {south:g} and north {north:g} are no latitudes that rise"
        raise ArgumentError("region", reason, _REGION_HINT)
    if not -360.0 <= west <= 360.0 or not -360.0 <= east <= 360.0:
        raise ArgumentError("region", f"{west:g} or {east:g} is no longitude", _REGION_HINT)
    if east - west >= _CIRCLE:  # 0 to 360 is not the meridian that 0 to 0 is
        west, east = -180.0, 180.0
    return south, north, west, east


def part_of_grid(
    region: str, latitude: xr.DataArray, longitude: xr.DataArray
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows and columns of the grid points in a region.

    Args:
        region: as for `region_box`.
        latitude: of the grid's rows, degrees north.
        longitude: of its columns, degrees east.

    Raises:
        UnknownNameError, ArgumentError: as `region_box`; a region without any point of the grid.
    """
    box = region_box(region)
    try:
        inside = region_boxes({region: box}, latitude, longitude).to_numpy()[0] > 0
    except ArgumentError as error:
        lat, lon = latitude.to_numpy(), longitude.to_numpy()
        reason = f"{region!r} holds no point of the grid, which goes from {lat.min():g} to "
        reason += f"{lat.max():g} north and from {lon.min():g} to {lon.max():g} east"
        raise ArgumentError("region", reason, "Give a region that has some") from error
    return np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))


def in_words(region: str) -> str:
    """Return a region's name, if it has one, and its edges, for titles."""
    south, north, west, east = region_box(region)
    edges = f"{_lat(south)} to {_lat(north)}, {_lon(west)} to {_lon(east)}"
    name = region.strip().lower()
    return f"{name} ({edges})" if name in REGIONS else edges


def file_name(region: str) -> str:
    """Return a region as a part of a folder's name."""
    name = region.strip().lower()
    if name in REGIONS:
        return name
    south, north, west, east = region_box(region)
    return "_".join((_lat(south), _lon(west), _lat(north), _lon(east))).replace("°", "")


def _lat(degrees: float) -> str:
    return f"{abs(degrees):g}°" + ("S" if degrees < 0 else "N" if degrees > 0 else "")


def _lon(degrees: float) -> str:
    east = degrees if degrees == 180.0 else (degrees + 180.0) % 360.0 - 180.0
    return f"{abs(east):g}°" + ("W" if east < 0 else "E" if east > 0 else "")


RAW = "raw"
_CONFIG = "config.yaml"
_DAY = 10  # characters of a date
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}(:\d{2})?)?$")


@dataclass(frozen=True, eq=False)
class Source:
    """A run's predictions, lazily, at one step.

    Attributes:
        name: of the run.
        forecast: over time, [number or quantile,] latitude, longitude.
        truth: over time, latitude, longitude; None of a prepared store.
        provenance: of the run; empty without one.
        store: the prepared store in its configuration; None without one, or if it is not there.
        path: of the run or store, for errors.
    """

    name: str
    forecast: xr.Dataset
    truth: xr.DataArray | None
    provenance: Mapping[str, Any]
    store: Path | None
    path: Path

    @property
    def valid(self) -> npt.NDArray[np.datetime64]:
        """Valid dates, to the second."""
        name = "valid_time" if "valid_time" in self.forecast.coords else "time"
        dates: npt.NDArray[np.datetime64] = self.forecast[name].to_numpy().astype("M8[s]")
        return dates

    @property
    def step(self) -> float | None:
        """Lead time in hours, or in the units of the coordinate `step`; None without one."""
        return float(self.forecast["step"]) if "step" in self.forecast.coords else None


def open_sources(
    runs: Sequence[Path | str], raw: Path | str | None = None, step: float | None = None
) -> tuple[list[Source], Source]:
    """Open the predictions of runs, and the raw ensemble.

    Args:
        runs: run folders or predictions stores, which hold their truth.
        raw: the raw ensemble: a run, a forecast store or a prepared store; None for the run that
            is called "raw".
        step: to show, where there are several.

    Returns:
        All runs but the raw ensemble, in their order, and the raw ensemble.

    Raises:
        ArgumentError: no run but the raw ensemble; two of one name; no raw ensemble, or one
            without members; different targets, units or steps; several steps or levels.
        FileError: no predictions.
        MissingDataError: runs on different grids.
    """
    sources = [open_run(run, step) for run in runs]
    names = [source.name for source in sources]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ArgumentError("runs", f"two are called {duplicates[0]!r}", "Give each its own name")
    if raw is not None:
        first = sources[0].forecast if sources else None
        basis = _open_raw_ensemble(Path(raw), step, first, sources[0].provenance if sources else {})
        others = [source for source in sources if source.name != basis.name]
    else:
        raw_runs = [source for source in sources if source.name == RAW]
        if not raw_runs:
            reason = f"none of the runs ({', '.join(names)}) is called {RAW!r}"
            raise ArgumentError("raw", reason, "Give the raw ensemble with --raw RUN_OR_STORE")
        basis, others = raw_runs[0], [source for source in sources if source is not raw_runs[0]]
    if "members" not in basis.forecast:
        raise ArgumentError("raw", f"{basis.name} has no members", "Give the raw ensemble")
    if not others:
        raise ArgumentError("runs", "there is none beside the raw ensemble", "Give one or more")
    for source in others:
        _check_compatible(basis, source)
    return others, basis


def open_run(path: Path | str, step: float | None = None) -> Source:
    """Open the predictions of one run, with their truth.

    Args:
        path: a run folder or a predictions store.
        step: to take, where there are several.

    Raises:
        FileError: no predictions, or no truth beside them.
        ArgumentError: stations instead of a grid; several steps or levels.
    """
    path = Path(path)
    forecast, truth = open_forecast(path, dask=True)
    if truth is None:
        raise FileError(path, "holds no truth", "Give what `ens10 predict` wrote")
    folder = path if (path / provenance.FILE).exists() else path.parent
    facts = provenance.read_provenance(folder) if (folder / provenance.FILE).exists() else {}
    name = str(facts.get("name") or path.resolve().name)
    if has_stations(forecast):
        reason = f"{path} has stations, and a case is a map of a grid"
        raise ArgumentError("runs", reason, "Show the stations with `ens10 report`")
    predictions = checked_forecast(_select_single(forecast, step, path), name).assign_attrs(
        forecast.attrs
    )
    observed = _select_single(truth, step, path).transpose("time", "latitude", "longitude")
    return Source(name, predictions, observed, facts, _store_of(folder), path)


def _open_raw_ensemble(
    path: Path, step: float | None, like: xr.Dataset | None, facts: Mapping[str, Any]
) -> Source:
    """Open the raw ensemble of the option `raw`: a run, or a forecast store or prepared store."""
    try:
        return open_run(path, step)
    except FileError:
        if like is None:
            raise
    members = open_raw(path, facts.get("target"), like)
    ensemble = checked_forecast(_select_single(members, step, path), RAW).assign_attrs(
        members.attrs
    )
    return Source(RAW, ensemble, None, {}, path, path)


def _select_single(data: Any, step: float | None, path: Path) -> Any:
    """Select one step and one level; raise ArgumentError if there are several to choose from."""
    if "step" in data.dims:
        steps = [float(value) for value in np.atleast_1d(data["step"].to_numpy())]
        if step is None and len(steps) > 1:
            reason = f"{path} has the steps {', '.join(f'{value:g}' for value in steps)}"
            raise ArgumentError("step", reason, "Choose one with --step")
        if step is not None and step not in steps:
            raise ArgumentError("step", f"{path} has no step {step:g}", "Choose one that it has")
        data = data.isel(step=0 if step is None else steps.index(step))
    elif step is not None and "step" in data.coords and float(data["step"]) != step:
        reason = f"{path} has the step {float(data['step']):g} alone"
        raise ArgumentError("step", reason, "Leave out --step")
    if "level" in data.dims:
        if data.sizes["level"] > 1:
            raise ArgumentError("runs", f"{path} has several levels", "Give runs of one level")
        data = data.isel(level=0)
    return data


def _store_of(folder: Path) -> Path | None:
    """Return the store of a run's configuration, or None if it is not there."""
    try:
        store = Path(read_mapping(folder / _CONFIG)["data"]["store"])
    except (FileError, KeyError, TypeError):
        return None
    return store if store.exists() else None


def _check_compatible(basis: Source, other: Source) -> None:
    """Refuse runs of different targets, units, steps or grids."""
    pairs: dict[str, tuple[Any, Any]] = {
        "targets": (basis.provenance.get("target"), other.provenance.get("target")),
        "units": (_units(basis), _units(other)),
        "steps": (basis.step, other.step),
    }
    for quantity, (first, second) in pairs.items():
        if first is not None and second is not None and first != second:
            reason = f"different {quantity}: {first} in {basis.name}, {second} in {other.name}"
            raise ArgumentError("runs", reason, "Make one case of each")
    for dim in ("latitude", "longitude"):
        first, second = basis.forecast[dim].to_numpy(), other.forecast[dim].to_numpy()
        if first.shape != second.shape or not np.allclose(first, second, rtol=0, atol=1e-4):
            raise MissingDataError(other.name, [f"the {dim}s of {basis.name}"], "Give one grid")


def _units(source: Source) -> str | None:
    field = source.truth if source.truth is not None else source.forecast["members"]
    return field.attrs.get("units")


def date_index(source: Source, date: str) -> int:
    """Return the index of a valid date among the dates of a source.

    Args:
        source: forecasts of a run.
        date: such as 2006-01-03, or 2006-01-03T12 where a day has several.

    Raises:
        ArgumentError: not a date; a date that the run lacks, with the nearest that it has; a day
            with several dates.
    """
    moment = parse_date(date)
    valid = source.valid
    whole_day = len(date.strip()) <= _DAY
    same = valid.astype("M8[D]") == moment.astype("M8[D]") if whole_day else valid == moment
    places = np.flatnonzero(same)
    if places.size == 1:
        return int(places[0])
    if places.size > 1:
        text = ", ".join(str(valid[n])[:16] for n in places)
        raise ArgumentError("date", f"{date} has several: {text}", "Give one with its hour")
    nearest = valid[int(np.argmin(np.abs(valid - moment)))]
    text = f"{source.name} has no forecast valid on {date}; the nearest is {_format(nearest)}"
    starts = source.forecast["time"].to_numpy().astype("M8[D]")
    matches = np.flatnonzero(starts == moment.astype("M8[D]"))
    if matches.size:
        text += f" (the forecast that starts on that date is valid on {_format(valid[matches[0]])})"
    raise ArgumentError("date", text, f"It has {len(valid)} from {_span(valid)}")


def parse_date(date: str) -> np.datetime64:
    """Parse a date such as 2006-01-03 or 2006-01-03T12.

    Raises:
        ArgumentError: not a date.
    """
    try:
        if _DATE.match(date.strip()):
            return np.datetime64(date.strip(), "s")
    except ValueError:
        pass
    raise ArgumentError("date", f"{date!r} is no date", "Give it as 2006-01-31")


def _format(moment: np.datetime64) -> str:
    text = str(moment)
    return text[:_DAY] if text.endswith("T00:00:00") else text[:16]


def _span(valid: npt.NDArray[np.datetime64]) -> str:
    return f"{_format(valid.min())} to {_format(valid.max())}"


Floats = npt.NDArray[np.float64]
_YEAR = 365.2425  # days
_MIN_CYCLE_DATES = 12  # dates from which an annual cycle is fitted
_HALF_A_YEAR = 183  # days


@dataclass(frozen=True)
class Extreme:
    """How far the truth of one date departs from the usual in one region.

    Attributes:
        valid: date.
        region: name, or "S,W,N,E".
        magnitude: mean |departure| over the region, in standard deviations.
        departure: mean departure, which tells warm from cold, in standard deviations.
        largest: the largest |departure| of a point, with its sign.
    """

    valid: np.datetime64
    region: str
    magnitude: float
    departure: float
    largest: float


def most_extreme(
    run: Path | str, number: int, region: str | None = None, step: float | None = None
) -> list[Extreme]:
    """Return the dates whose truth departs most from the usual, the most extreme one first.

    The departure of a point is that from the mean and the annual cycle (one harmonic, fitted to
    the run's own dates), in standard deviations of the residual. Below 12 dates, or half a year,
    it is that from the mean alone.

    Args:
        run: run folder or predictions store with its truth.
        number: how many to list.
        region: where; None for every named region that the grid has points of, but the globe.
        step: where there are several.

    Raises:
        ArgumentError: no number; a region without points; fewer than 3 dates.
        FileError: no predictions.
    """
    if number < 1:
        raise ArgumentError("worst", f"expected 1 or more, got {number}")
    source = open_run(run, step)
    if source.truth is None or source.truth.sizes["time"] < 3:
        raise ArgumentError("worst", f"{source.name} has fewer than 3 dates", "Name a date")
    with reading(source.path):
        truth = source.truth.to_numpy().astype(np.float64)
    size = standardise_truth(truth, source.valid)
    extremes = [e for name in _regions(source, region) for e in _extremes_in(source, size, name)]
    return sorted(extremes, key=lambda extreme: -extreme.magnitude)[:number]


def standardise_truth(truth: Floats, valid: npt.NDArray[np.datetime64]) -> Floats:
    """Return departures from the mean and annual cycle of each point, in standard deviations.

    Args:
        truth: (time, ...); points with a gap have no departure.
        valid: (time,).

    Returns:
        Of the same shape; NaN where the truth never changes.
    """
    days = (valid - valid.min()) / np.timedelta64(1, "D")
    terms = [np.ones_like(days)]
    if len(days) >= _MIN_CYCLE_DATES and days.max() >= _HALF_A_YEAR:
        angle = 2 * np.pi * days / _YEAR
        terms += [np.cos(angle), np.sin(angle)]
    basis = np.stack(terms, axis=1)
    flat = truth.reshape(len(truth), -1)
    residual = flat - basis @ (np.linalg.pinv(basis) @ flat)
    deviation = np.sqrt((residual**2).sum(axis=0) / (len(residual) - basis.shape[1]))
    scale = np.where(deviation > 1e-9 * np.abs(flat).max(axis=0), deviation, np.nan)
    departures: Floats = (residual / scale).reshape(truth.shape)
    return departures


def _regions(source: Source, region: str | None) -> list[str]:
    if region is not None:
        return [region]
    lat, lon = source.forecast["latitude"], source.forecast["longitude"]
    names = []
    for name in REGIONS:
        try:
            part_of_grid(name, lat, lon)
        except ArgumentError:
            continue
        names.append(name)
    return [name for name in names if name != "global"] or names


def _extremes_in(source: Source, size: Floats, region: str) -> list[Extreme]:
    rows, columns = part_of_grid(region, source.forecast["latitude"], source.forecast["longitude"])
    area = area_weights(source.forecast["latitude"].to_numpy())[rows][:, None]
    extremes = []
    for moment, field in zip(source.valid, size, strict=True):
        part = field[np.ix_(rows, columns)]
        valid = np.isfinite(part)
        if not valid.any():
            continue
        w, z = (area * valid), np.where(valid, part, 0.0)
        most = z.ravel()[int(np.argmax(np.abs(z)))]
        means = ((w * np.abs(z)).sum() / w.sum(), (w * z).sum() / w.sum())
        extremes.append(Extreme(moment, region, float(means[0]), float(means[1]), float(most)))
    return extremes


def format_extremes(extremes: Sequence[Extreme]) -> str:
    """Return the dates as lines for a terminal, with an explanation of z."""
    lines = [f"{'valid':<17}{'region':<16}{'mean |z|':>9}{'mean z':>8}{'most z':>8}"]
    for extreme in extremes:
        numbers = f"{extreme.magnitude:>9.2f}{extreme.departure:>+8.2f}{extreme.largest:>+8.2f}"
        lines.append(f"{_format(extreme.valid):<17}{extreme.region:<16}{numbers}")
    lines.append("z: truth less its mean and annual cycle on these dates, by its deviation")
    return "\n".join(lines)
