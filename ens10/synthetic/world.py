"""A synthetic dataset in ENS-10's file layout, whose best possible forecast is known."""

import datetime as dt
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10 import catalog
from ens10.channels import field_of, resolve, split
from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.grib import Encoder, LatLonGrid
from ens10.grid import grid_shape
from ens10.progress import track
from ens10.source import open_source
from ens10.source.opening import UNFINISHED
from ens10.synthetic.atmosphere import TARGET_STEP, Atmosphere, Channel, Law, law_of
from ens10.untrusted import parse_json

_PARAMETERS = "world.json"
_MOST_MEMBERS = 254  # one byte in GRIB edition 1, 255 of which means "missing"
_LONGEST_STEP = 240


class World:
    """Ensemble forecasts and their truth, all drawn from one seed.

    Args:
        grid: rows x columns, poles included, such as "46x96" or (46, 96); "361x720" is ENS-10's.
        years: hindcast years.
        dates: start dates as MMDD, or the number of evenly chosen dates of ENS-10's 105; None for
            all.
        variables: names in the catalogue; None for all surface variables.
        seed: seed of all random fields.
        levels: levels in hPa of the variables on pressure levels.
        steps: lead times in hours; must contain those of the truth.
        members: size of the ensemble.
        truth_steps: lead times in whole days, at whose valid dates there is truth. Its bias and
            noise grow with the lead time.

    Examples:
        >>> from ens10.synthetic import World
        >>> World("8x16", range(2000, 2006), 3, steps=(48,), members=3).write("world").name
        'world'

    Raises:
        ArgumentError: an invalid grid, date or step.
        UnknownNameError: a variable that the catalogue lacks.
    """

    def __init__(
        self,
        grid: str | Sequence[int] = "46x96",
        years: Sequence[int] = catalog.HINDCAST_YEARS,
        dates: Sequence[str] | int | None = None,
        variables: Sequence[str] | None = None,
        seed: int = 0,
        *,
        levels: Sequence[int] = (500, 850),
        steps: Sequence[int] = catalog.STEPS_HOURS,
        members: int = len(catalog.MEMBERS),
        truth_steps: Sequence[int] = (TARGET_STEP,),
    ) -> None:
        _check(steps, members, seed, truth_steps)
        rows, columns = grid_shape(grid)
        if rows < 4 or columns < 8:
            raise ArgumentError("grid", f"{rows}x{columns} is too small", "Pass 4x8 or more")
        requested = variables or catalog.names_of_kind("sfc")
        names = list(dict.fromkeys(catalog.variable(v).name for v in requested))
        self.grid = LatLonGrid(rows, columns, 90.0, -90.0, 0.0, 360.0 / columns)
        self.month_days = _month_days(dates)
        self.years = sorted({int(year) for year in years})
        if not self.years:
            raise ArgumentError("years", "there are none", "Pass at least one, such as 1998")
        self.folder: Path | None = None
        self._parameters = {
            "grid": f"{rows}x{columns}",
            "years": self.years,
            "dates": self.month_days,
            "variables": names,
            "seed": int(seed),
            "levels": [int(level) for level in levels],
            "steps": [int(step) for step in steps],
            "members": int(members),
        }
        self._truth_steps = sorted({int(step) for step in truth_steps})
        if self._truth_steps != [TARGET_STEP]:
            self._parameters["truth_steps"] = self._truth_steps
        self._refuse_shared_dates()
        self._members = int(members)
        self._atmosphere = Atmosphere(
            self.grid.latitude(),
            columns,
            list(_channels(names, levels)),
            steps,
            members,
            sorted(start for day in self.month_days for start in self._starts(day)),
            seed,
        )

    @classmethod
    def load(cls, folder: Path | str) -> "World":
        """Return the world that wrote a folder.

        Raises:
            FileError: no world was written there, or its parameters are damaged.
        """
        path = Path(folder) / _PARAMETERS
        if not path.is_file():
            raise FileError(path, "no such file", "Pass a folder that `ens10 synth` wrote")
        try:
            world = cls(**parse_json(path.read_text()))
        except (TypeError, ValueError) as error:
            raise FileError(
                path, f"no parameters of a world ({error})", "Write it again"
            ) from error
        world.folder = Path(folder)
        return world

    @property
    def targets(self) -> list[str]:
        """Return the channels with truth: t2m, z_500 and t_850, as far as the world has them."""
        laws = (self._law_or_none(target) for target in ("t2m", "z_500", "t_850"))
        return [law.channel for law in laws if law is not None]

    @property
    def region(self) -> npt.NDArray[np.int64]:
        """Return the hidden map (latitude, longitude); for checks only, it is not in any file."""
        return self._atmosphere.region

    def write(self, folder: Path | str, progress: bool = False) -> Path:
        """Write `output.{sfc,pl}.2018MMDD` and, in `truth/`, `era5.YYYY` for each valid year.

        The truth is computed from the forecasts as decoded from the files. An error removes the
        files written so far; a partial folder of a killed process is refused as a source, and
        removed by the next call.

        Args:
            folder: output folder; created if missing.
            progress: show progress bars.

        Raises:
            FileError: the folder holds files already.
        """
        folder = Path(folder)
        if (folder / UNFINISHED).exists():
            _clear(folder)
        if folder.is_file() or (folder.exists() and any(folder.iterdir())):
            raise FileError(folder, "the folder is not empty", "Choose another one")
        try:
            (folder / "truth").mkdir(parents=True)
            (folder / UNFINISHED).touch()
            days = self.month_days
            for day in track(days, "forecasts", len(days), progress):
                self._write_forecasts(folder, day)
            for day in track(days, "truth", len(days), progress):
                self._write_truth(folder, day)
            write_whole(folder / _PARAMETERS, json.dumps(self._parameters, indent=1) + "\n")
            (folder / UNFINISHED).unlink()
        except BaseException:
            _clear(folder)
            raise
        self.folder = folder
        return folder

    def optimum(
        self,
        target: str,
        members: int | None = None,
        progress: bool = False,
        step: int = TARGET_STEP,
    ) -> xr.Dataset:
        """Return the best possible forecast from all members, in closed form.

        Args:
            target: such as "t2m" or "z_500".
            members: number of members that the forecast may use; None for all.
            progress: show a progress bar.
            step: lead time in hours, one of those of the truth.

        Returns:
            A normal forecast: `mu` and `sigma` over (time, latitude, longitude), with
            `valid_time`.

        Raises:
            ArgumentError: the world was not written yet, `members` is less than all, or there is
                no truth at `step`.
        """
        if step not in self._truth_steps:
            reason = f"the world has truth at {self._truth_steps} h, not at {step} h"
            raise ArgumentError("step", reason, "Choose one of them")
        if self.folder is None:
            raise ArgumentError("World", "its files are not written yet", "Call write(folder)")
        if members not in (None, self._members):
            raise ArgumentError(
                "members",
                f"the optimum has no closed form for {members} of the {self._members} members",
                "Compare with the optimum of all of them",
            )
        law = self._law(target)
        days = track(self.month_days, "optimum", len(self.month_days), progress)
        parts = [self._best(self.folder, day, law, step) for day in days]
        best = xr.concat(parts, "time", data_vars="minimal").sortby("time")
        return best.assign_attrs(forecast_kind="normal", model="optimum")

    def _starts(self, month_day: str) -> list[dt.date]:
        try:
            return [dt.date(y, int(month_day[:2]), int(month_day[2:])) for y in self.years]
        except ValueError as error:
            reason = f"{month_day} is not a date in all of the years ({error})"
            raise ArgumentError("dates", reason, "Write MMDD, 0104 for 4 January") from error

    def _refuse_shared_dates(self) -> None:
        """Refuse lead times that two start dates reach on the same valid date."""
        starts = [start for day in self.month_days for start in self._starts(day)]
        valid = [start + dt.timedelta(hours=step) for start in starts for step in self._truth_steps]
        if len(set(valid)) < len(valid):
            reason = f"two start dates have truth on the same day at {self._truth_steps} h"
            raise ArgumentError("truth_steps", reason, "Choose closer lead times, or fewer dates")

    def _law(self, target: str) -> Law:
        names = [f"{c.name}_{c.level}" if c.level else c.name for c in self._atmosphere.channels]
        return law_of(resolve(target, names, "target"), names, self._atmosphere.region)

    def _law_or_none(self, target: str) -> Law | None:
        try:
            return self._law(target)
        except (ArgumentError, UnknownNameError):
            return None

    def _write_forecasts(self, folder: Path, month_day: str) -> None:
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            encoder = Encoder(self.grid, members=self._members)
            for start in self._starts(month_day):
                for step, channel, members in self._atmosphere.forecast(start):
                    kind = catalog.VARIABLES[channel.name].kind
                    if kind not in files:
                        path = folder / _file_name(kind, month_day)
                        files[kind] = stack.enter_context(path.open("wb"))
                    for number, field in enumerate(members, 1):
                        message = encoder.message(
                            field,
                            catalog.VARIABLES[channel.name],
                            date=int(f"{start:%Y%m%d}"),
                            step=step,
                            number=number,
                            level=channel.level or 0,
                        )
                        files[kind].write(message)

    def _write_truth(self, folder: Path, month_day: str) -> None:
        encoder = Encoder(self.grid, data_type="an", members=0)
        wanted = [(*named, step) for named in enumerate(self.targets) for step in self._truth_steps]
        for stream, target, step in wanted:
            best = self._best(folder, month_day, self._law(target), step)
            name, level = split(target) if target not in catalog.VARIABLES else (target, None)
            for n, start in enumerate(self._starts(month_day)):
                one = best.isel(time=n)
                truth = one["mu"] + one["sigma"] * self._atmosphere.error(start, stream, step)
                valid = str(one["valid_time"].dt.strftime("%Y%m%d").item())
                message = encoder.message(
                    truth.to_numpy(), catalog.VARIABLES[name], date=int(valid), level=level or 0
                )
                with (folder / "truth" / f"era5.{valid[:4]}").open("ab") as file:
                    file.write(message)

    def _best(self, folder: Path, month_day: str, law: Law, step: int) -> xr.Dataset:
        """Return mean and standard deviation of the truth, given the files of one month-day."""
        target, aux = (
            self._decode_members(folder, month_day, c, step) for c in (law.channel, law.aux)
        )
        mean, spread = target.mean("number"), target.std("number", ddof=1)
        days = target["valid_time"].dt.dayofyear.to_numpy()
        moments = [
            law.moments(mean[n].to_numpy(), spread[n].to_numpy(), wind, int(days[n]), step)
            for n, wind in enumerate(aux.mean("number").to_numpy())
        ]
        attributes = {"units": target.attrs.get("units", "")}
        mu, sigma = (mean.copy(data=np.stack(part)) for part in zip(*moments, strict=True))
        return xr.Dataset(
            {"mu": mu.assign_attrs(attributes), "sigma": sigma.assign_attrs(attributes)}
        )

    def _decode_members(
        self, folder: Path, month_day: str, channel: str, step: int
    ) -> xr.DataArray:
        """Read the members of a channel, (time, number, latitude, longitude), float64."""
        kind = "sfc" if channel in catalog.VARIABLES else "pl"
        dataset = open_source(folder / _file_name(kind, month_day))
        field = field_of(dataset, channel).sel(step=step)
        return field.compute(scheduler="synchronous").astype(np.float64)


def _clear(folder: Path) -> None:
    """Remove the files of an incomplete world, and no other files."""
    shutil.rmtree(folder / "truth", ignore_errors=True)
    for file in folder.glob("output.*"):
        file.unlink(missing_ok=True)
    (folder / UNFINISHED).unlink(missing_ok=True)


def _check(steps: Sequence[int], members: int, seed: int, truth_steps: Sequence[int]) -> None:
    if not truth_steps or any(step <= 0 or step % 24 for step in truth_steps):
        raise ArgumentError("truth_steps", f"{list(truth_steps)} are not whole days, in hours")
    for step in truth_steps:
        if step not in steps:
            raise ArgumentError("steps", f"{step} is missing", f"The truth belongs to {step} h")
    if min(steps) < 0 or max(steps) > _LONGEST_STEP or len(set(steps)) < len(steps):
        raise ArgumentError("steps", f"hours from 0 to {_LONGEST_STEP}, each once, are possible")
    if not 2 <= members <= _MOST_MEMBERS:
        raise ArgumentError("members", f"2 to {_MOST_MEMBERS} members are possible, not {members}")
    if seed < 0:
        raise ArgumentError("seed", f"{seed} is negative", "Pass 0 or more")


def _file_name(kind: str, month_day: str) -> str:
    return f"output.{kind}.{catalog.MODEL_YEAR}{month_day}"


def _channels(names: Sequence[str], levels: Sequence[int]) -> Iterator[Channel]:
    for name in names:
        if catalog.VARIABLES[name].kind == "sfc":
            yield Channel(name, None)
        else:
            yield from (Channel(name, int(level)) for level in levels)


def _month_days(dates: Sequence[str] | int | None) -> list[str]:
    calendar = catalog.month_days()
    if dates is None:
        return list(calendar)
    if isinstance(dates, int):
        if not 1 <= dates <= len(calendar):
            raise ArgumentError("dates", f"{dates} of {len(calendar)} dates cannot be taken")
        picked = np.linspace(0, len(calendar), dates, endpoint=False).astype(int)
        return [calendar[i] for i in picked]
    unknown = [d for d in dates if len(d) != 4 or not d.isdigit()]
    if unknown:
        raise ArgumentError(
            "dates", f"{unknown[0]!r} is not of the form MMDD", "Write 0104 for 4 January"
        )
    if not dates:
        raise ArgumentError("dates", "none is given", "Leave them out for all of ENS-10's")
    return sorted(set(dates))
