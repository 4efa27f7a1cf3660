"""What a case study reads of the runs: the forecasts and the truth of one date in one region."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments import provenance
from ens10.experiments.raw_ensemble import open_raw
from ens10.experiments.reading import open_forecast
from ens10.metrics.verification.alignment import checked_forecast
from ens10.stations import has_stations
from ens10.untrusted import read_mapping

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
        known: its provenance; empty without one.
        store: the prepared store that it was made from, if its configuration tells one.
        path: of the run or store, for errors.
    """

    name: str
    forecast: xr.Dataset
    truth: xr.DataArray | None
    known: Mapping[str, Any]
    store: Path | None
    path: Path

    @property
    def valid(self) -> npt.NDArray[np.datetime64]:
        """Valid dates, to the second."""
        name = "valid_time" if "valid_time" in self.forecast.coords else "time"
        found: npt.NDArray[np.datetime64] = self.forecast[name].to_numpy().astype("M8[s]")
        return found

    @property
    def step(self) -> float | None:
        """Hours, or what units the step is in."""
        return float(self.forecast["step"]) if "step" in self.forecast.coords else None


def open_sources(
    runs: Sequence[Path | str], raw: Path | str | None = None, step: float | None = None
) -> tuple[list[Source], Source]:
    """The runs, and the raw ensemble among or beside them.

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
    opened = [open_run(run, step) for run in runs]
    names = [source.name for source in opened]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError("runs", f"two are called {twice[0]!r}", "Give each its own name")
    if raw is not None:
        first = opened[0].forecast if opened else None
        basis = _raw_beside(Path(raw), step, first, opened[0].known if opened else {})
        others = [source for source in opened if source.name != basis.name]
    else:
        found = [source for source in opened if source.name == RAW]
        if not found:
            told = f"none of the runs ({', '.join(names)}) is called {RAW!r}"
            raise ArgumentError("raw", told, "Give the raw ensemble with --raw RUN_OR_STORE")
        basis, others = found[0], [source for source in opened if source is not found[0]]
    if "members" not in basis.forecast:
        raise ArgumentError("raw", f"{basis.name} has no members", "Give the raw ensemble")
    if not others:
        raise ArgumentError("runs", "there is none beside the raw ensemble", "Give one or more")
    for source in others:
        _check_alike(basis, source)
    return others, basis


def open_run(path: Path | str, step: float | None = None) -> Source:
    """The predictions of one run, with their truth.

    Args:
        path: a run folder or a predictions store.
        step: to take, where there are several.

    Raises:
        FileError: no predictions, or no truth beside them.
        ArgumentError: several steps or levels.
    """
    path = Path(path)
    forecast, truth = open_forecast(path, dask=True)
    if truth is None:
        raise FileError(path, "holds no truth", "Give what `ens10 predict` wrote")
    folder = path if (path / provenance.FILE).exists() else path.parent
    known = provenance.read(folder) if (folder / provenance.FILE).exists() else {}
    name = str(known.get("name") or path.resolve().name)
    if has_stations(forecast):
        reason = f"{path} has stations, and a case is a map of a grid"
        raise ArgumentError("runs", reason, "Show the stations with `ens10 report`")
    chosen = checked_forecast(_single(forecast, step, path), name).assign_attrs(forecast.attrs)
    observed = _single(truth, step, path).transpose("time", "latitude", "longitude")
    return Source(name, chosen, observed, known, _store_of(folder), path)


def _raw_beside(
    path: Path, step: float | None, like: xr.Dataset | None, known: Mapping[str, Any]
) -> Source:
    """The raw ensemble that is given apart: a run, or a prepared store."""
    try:
        return open_run(path, step)
    except FileError:
        if like is None:
            raise
    members = open_raw(path, known.get("target"), like)
    chosen = checked_forecast(_single(members, step, path), RAW).assign_attrs(members.attrs)
    return Source(RAW, chosen, None, {}, path, path)


def _single(data: Any, step: float | None, path: Path) -> Any:
    """Without dimensions of steps and levels."""
    if "step" in data.dims:
        held = [float(value) for value in np.atleast_1d(data["step"].to_numpy())]
        if step is None and len(held) > 1:
            told = f"{path} has the steps {', '.join(f'{value:g}' for value in held)}"
            raise ArgumentError("step", told, "Choose one with --step")
        if step is not None and step not in held:
            raise ArgumentError("step", f"{path} has no step {step:g}", "Choose one that it has")
        data = data.isel(step=0 if step is None else held.index(step))
    elif step is not None and "step" in data.coords and float(data["step"]) != step:
        told = f"{path} has the step {float(data['step']):g} alone"
        raise ArgumentError("step", told, "Leave out --step")
    if "level" in data.dims:
        if data.sizes["level"] > 1:
            raise ArgumentError("runs", f"{path} has several levels", "Give runs of one level")
        data = data.isel(level=0)
    return data


def _store_of(folder: Path) -> Path | None:
    """The store that a run was made from, if it is where it was."""
    try:
        store = Path(read_mapping(folder / _CONFIG)["data"]["store"])
    except (FileError, KeyError, TypeError):
        return None
    return store if store.exists() else None


def _check_alike(basis: Source, other: Source) -> None:
    """Refuses runs of different targets, units, steps or grids."""
    pairs: dict[str, tuple[Any, Any]] = {
        "targets": (basis.known.get("target"), other.known.get("target")),
        "units": (_units(basis), _units(other)),
        "steps": (basis.step, other.step),
    }
    for what, (mine, its) in pairs.items():
        if mine is not None and its is not None and mine != its:
            told = f"different {what}: {mine} in {basis.name}, {its} in {other.name}"
            raise ArgumentError("runs", told, "Make one case of each")
    for dim in ("latitude", "longitude"):
        mine, its = basis.forecast[dim].to_numpy(), other.forecast[dim].to_numpy()
        if mine.shape != its.shape or not np.allclose(mine, its, rtol=0, atol=1e-4):
            raise MissingDataError(other.name, [f"the {dim}s of {basis.name}"], "Give one grid")


def _units(source: Source) -> str | None:
    held = source.truth if source.truth is not None else source.forecast["members"]
    return held.attrs.get("units")


def place_of(source: Source, date: str) -> int:
    """The place of a valid date.

    Args:
        source: of the dates.
        date: such as 2006-01-03, or 2006-01-03T12 where a day has several.

    Raises:
        ArgumentError: not a date; a date that the run lacks, with the nearest that it has; a day
            with several dates.
    """
    wanted = moment_of(date)
    valid = source.valid
    whole_day = len(date.strip()) <= _DAY
    same = valid.astype("M8[D]") == wanted.astype("M8[D]") if whole_day else valid == wanted
    found = np.flatnonzero(same)
    if found.size == 1:
        return int(found[0])
    if found.size > 1:
        told = ", ".join(str(valid[n])[:16] for n in found)
        raise ArgumentError("date", f"{date} has several: {told}", "Give one with its hour")
    nearest = valid[int(np.argmin(np.abs(valid - wanted)))]
    told = f"{source.name} has no forecast valid on {date}; the nearest is {_shown(nearest)}"
    starts = source.forecast["time"].to_numpy().astype("M8[D]")
    begun = np.flatnonzero(starts == wanted.astype("M8[D]"))
    if begun.size:
        told += f" (the forecast that starts on that date is valid on {_shown(valid[begun[0]])})"
    raise ArgumentError("date", told, f"It has {len(valid)} from {_span(valid)}")


def moment_of(date: str) -> np.datetime64:
    """A date as a moment.

    Raises:
        ArgumentError: it is none.
    """
    try:
        if _DATE.match(date.strip()):
            return np.datetime64(date.strip(), "s")
    except ValueError:
        pass
    raise ArgumentError("date", f"{date!r} is no date", "Give it as 2006-01-31")


def _shown(moment: np.datetime64) -> str:
    text = str(moment)
    return text[:_DAY] if text.endswith("T00:00:00") else text[:16]


def _span(valid: npt.NDArray[np.datetime64]) -> str:
    return f"{_shown(valid.min())} to {_shown(valid.max())}"
