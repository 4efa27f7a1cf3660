"""What a GRIB file, netCDF file, folder or store holds, and whether it is whole."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import Ens10Error, FileError
from ens10.grib import Message, decode, is_grib, scan
from ens10.progress import track
from ens10.source import open_source
from ens10.store import StoreKind, open_store, store_kinds

# Below this share of dates x steps x members the fields may never have been meant to fill the
# whole cube: the members of a lagged ensemble have start dates and steps of their own.
_SPARSE = 0.5
_NETCDF_SUFFIXES = (".nc", ".nc4")


@dataclass
class Row:
    """One variable on one level, or (with a problem) one file that cannot be read.

    Attributes:
        name: cfgrib's name, or the file's.
        level: such as "surface" or "500 hPa".
        dates: number of start dates.
        first: first start date.
        last: last one.
        steps: lead times.
        members: number of members.
        missing: fields that lack, of all dates x steps x members.
        minimum: of all values.
        mean: of all values, unweighted.
        maximum: of all values.
        units: of the values.
        grid: in words.
        status: "ok", or what is wrong.
        note: what else there is to know.
    """

    name: str
    level: str = ""
    dates: int = 0
    first: str = ""
    last: str = ""
    steps: Sequence[Any] = field(default_factory=list)
    members: int = 0
    missing: int = 0
    minimum: float = np.nan
    mean: float = np.nan
    maximum: float = np.nan
    units: str = ""
    grid: str = ""
    status: str = "ok"
    note: str = ""


def inspect_path(path: Path | str, *, values: bool = True, progress: bool = False) -> list[Row]:
    """Describes what is at a path, one row for each variable and level.

    Files that cannot be read get a row that says why, and do not stop the others.

    Args:
        path: GRIB or netCDF file, folder of files, or store.
        values: whether to decode all values for minimum, mean and maximum.
        progress: show a progress bar.

    Raises:
        FileError: nothing is there.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    if (path / "zarr.json").exists():
        return _store_rows(path, values)
    files = [path] if path.is_file() else sorted(f for f in path.iterdir() if f.is_file())
    if not files:
        raise FileError(path, "the folder holds no files", "Give a folder of GRIB or netCDF files")
    messages: list[Message] = []
    rows: list[Row] = []
    for file in files:
        try:
            if is_grib(file):
                messages += scan(file)
            elif path.is_file() or file.suffix in _NETCDF_SUFFIXES:
                rows += _dataset_rows(open_source(file), values)
        except Ens10Error as error:
            rows.append(Row(file.name, status=str(error)))
    if not (messages or rows):
        raise FileError(
            path, "the folder holds no GRIB or netCDF files", "Give a folder of such files"
        )
    return [*_grib_rows(messages, values, progress), *rows]


def _grib_rows(messages: Sequence[Message], values: bool, progress: bool) -> list[Row]:
    groups: dict[tuple[str, str, int, str], list[Message]] = defaultdict(list)
    for m in messages:
        groups[m.name, m.level_type, m.level, str(m.grid)].append(m)
    moments = {key: _Moments() for key in groups}
    if values:
        ordered = [(key, m) for key, group in groups.items() for m in group]
        problems = _measure(ordered, moments, progress)
    else:
        problems = {}
    rows = [_grib_row(key, group, moments[key]) for key, group in sorted(groups.items())]
    for row, key in zip(rows, sorted(groups), strict=True):
        row.status = problems.get(key, row.status)
    return rows


class _Moments:
    """Running count, sum, minimum and maximum."""

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.minimum, self.maximum = np.inf, -np.inf

    def add(self, values: Any) -> None:
        there = values[np.isfinite(values)]
        if there.size:
            self.count += there.size
            self.total += float(there.sum(dtype=np.float64))
            self.minimum = min(self.minimum, float(there.min()))
            self.maximum = max(self.maximum, float(there.max()))

    def into(self, row: Row) -> Row:
        if self.count:
            row.minimum, row.maximum = self.minimum, self.maximum
            row.mean = self.total / self.count
        return row


def _measure(
    ordered: Sequence[tuple[Any, Message]], moments: dict[Any, _Moments], progress: bool
) -> dict[Any, str]:
    problems: dict[Any, str] = {}
    shown = progress and len(ordered) > 2000
    for key, message in track(ordered, "inspect", len(ordered), shown):
        with message.path.open("rb") as file:
            try:
                moments[key].add(decode(message, file))
            except Ens10Error as error:
                problems[key] = str(error)
    return problems


def _grib_row(key: tuple[str, str, int, str], group: Sequence[Message], moments: _Moments) -> Row:
    name, level_type, level, grid = key
    times, steps = {m.time for m in group}, {m.step for m in group}
    numbers = {m.number for m in group}
    places = {(m.time, m.step, m.number) for m in group}
    whole = len(times) * len(steps) * len(numbers)
    lagged = len(places) < _SPARSE * whole and _is_lagged(places)
    missing, twice = 0 if lagged else whole - len(places), len(group) - len(places)
    problems = [f"{missing} fields missing"] if missing else []
    problems += [f"{twice} given twice"] if twice else []
    units = {"isobaricInhPa": "hPa", "isobaricInPa": "Pa"}.get(level_type)
    row = Row(
        name=name,
        level=f"{level} {units}" if units else level_type,
        dates=len(times),
        first=str(min(times))[:13],
        last=str(max(times))[:13],
        steps=sorted(steps),
        members=len(numbers),
        missing=missing,
        units=group[0].units,
        grid=grid,
        status="; ".join(problems) or "ok",
        note="lagged: members of different start dates and steps" if lagged else "",
    )
    return moments.into(row)


def _is_lagged(places: set[tuple[Any, int, Any]]) -> bool:
    """Whether every valid time has equally many fields, from starts and steps that differ."""
    fields = Counter(time + np.timedelta64(step, "h") for time, step, _ in places)
    return len(set(fields.values())) == 1


def _store_rows(path: Path, values: bool) -> list[Row]:
    rows: list[Row] = []
    kinds: dict[str, StoreKind] = {"sfc": "sfc", "pl": "pl", "truth": "truth"}
    for kind in store_kinds(path):
        if kind in kinds:
            rows += _dataset_rows(open_store(path, kinds[kind]), values, kind)
    return rows


def _dataset_rows(dataset: xr.Dataset, values: bool, kind: str = "") -> list[Row]:
    rows = []
    for name, variable in dataset.data_vars.items():
        levels = variable["level"].to_numpy().tolist() if "level" in variable.dims else [None]
        for level in levels:
            one = variable if level is None else variable.sel(level=level)
            moments = _Moments()
            row = _dataset_row(str(name), kind, level, one)
            for i in range(one.sizes.get("time", 1) if values else 0):
                date = one.isel(time=i).to_numpy()
                moments.add(date)
                row.missing += int(np.isnan(date).all(axis=(-2, -1)).sum())
            if row.missing:
                row.status = f"{row.missing} fields missing"
            rows.append(moments.into(row))
    return rows


def _dataset_row(name: str, kind: str, level: Any, one: xr.DataArray) -> Row:
    times = one["time"].to_numpy()
    latitude, longitude = one["latitude"].to_numpy(), one["longitude"].to_numpy()
    surface = kind if kind == "truth" else "surface"
    return Row(
        name=name,
        level=surface if level is None else f"{level:g} hPa",
        dates=len(times),
        first=str(times.min())[:13],
        last=str(times.max())[:13],
        steps=np.atleast_1d(one["step"].to_numpy()).tolist() if "step" in one.coords else [],
        members=int(one.sizes.get("number", 1)),
        units=str(one.attrs.get("units", "")),
        grid=f"{len(latitude)} x {len(longitude)}, {latitude[0]:g} to {latitude[-1]:g} N, "
        f"{longitude[0]:g} to {longitude[-1]:g} E",
    )
