"""A synthetic dataset in ENS-10's file layout, whose best possible forecast is known."""

import datetime as dt
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10 import catalog
from ens10.channels import channel_names, field_of, resolve, split
from ens10.convert.plan import differences
from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError, UnknownNameError, listing
from ens10.grib import MAX_MEMBERS, Encoder, LatLonGrid
from ens10.grid import grid_shape
from ens10.partial import write_folder
from ens10.progress import track
from ens10.source import open_source
from ens10.source.folders import UNFINISHED
from ens10.synthetic.atmosphere import TARGET_STEP, Atmosphere, Channel, Law, law_of
from ens10.synthetic.displaced import DISPLACED_TARGETS, DisplacedLaw, displaced_law
from ens10.synthetic.weather import Weather
from ens10.untrusted import parse_json

WorldKind = Literal["pointwise", "displaced"]
AnyLaw = Law | DisplacedLaw

_PARAMETERS = "world.json"
_LONGEST_STEP = 240
_YEARS = (1678, 2261)  # range of NumPy's times in nanoseconds


class World:
    """Ensemble forecasts and their truth, all drawn from one seed.

    There are two kinds. The pointwise world is for tests, the demonstration and examples: its
    truth at a point is normal, a function of the forecast at that point alone, its variables are
    independent and its fields smooth (Gaussian spectra). A regression at each point attains nearly
    all that can be attained, so that it cannot rank models. The displaced world is for comparing
    models: its truth is the forecast moved by a flow-dependent vector, with skewed, heavy-tailed
    errors by place, flow and member, orography, drift over the years, precipitation and wind
    speed; its fields have power-law spectra and balanced winds (`ens10.synthetic.weather`, and
    `ens10.synthetic.displaced` for the truth). The best possible forecast is known in closed form
    in both.

    Args:
        grid: rows x columns, poles included, such as "46x96" or (46, 96); "361x720" is ENS-10's.
        years: hindcast years.
        dates: start dates as MMDD, or a number of evenly spaced dates among ENS-10's 105; None
            for all.
        variables: names in the catalogue; None for all surface variables of ENS-10. The displaced
            world has the wind speed, si10, as well.
        seed: seed of all random fields.
        levels: levels in hPa of the variables on pressure levels.
        steps: lead times in hours; must contain those of the truth.
        members: size of the ensemble.
        truth_steps: lead times in whole days, at whose valid dates there is truth. Its bias and
            noise grow with the lead time.
        kind: "pointwise" or "displaced".

    Examples:
        >>> from ens10.synthetic import World
        >>> World("8x16", range(2000, 2006), 3, steps=(48,), members=3).write("world").name
        'world'

    Raises:
        ArgumentError: an invalid grid, date, year, level or step.
        UnknownNameError: a variable that the catalogue or the kind of world lacks, or an unknown
            kind.
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
        kind: WorldKind = "pointwise",
    ) -> None:
        if kind not in get_args(WorldKind):
            raise UnknownNameError("kind", kind, get_args(WorldKind))
        _check(steps, members, seed, truth_steps)
        rows, columns = grid_shape(grid)
        if rows < 4 or columns < 8:
            raise ArgumentError("grid", f"{rows}x{columns} is too small", "Pass 4x8 or more")
        requested = variables or catalog.names_of_kind("sfc")
        names = list(dict.fromkeys(catalog.variable(v).name for v in requested))
        levels = _levels(levels, names)
        self.grid = LatLonGrid(rows, columns, 90.0, -90.0, 0.0, 360.0 / columns)
        self.month_days = _month_days(dates)
        self.years = sorted({int(year) for year in years})
        if not self.years:
            raise ArgumentError("years", "there are none", "Pass at least one, such as 1998")
        if not (_YEARS[0] <= self.years[0] and self.years[-1] <= _YEARS[1]):
            first, last = self.years[0], self.years[-1]
            reason = f"{first} to {last} are not within {_YEARS[0]} to {_YEARS[1]}"
            raise ArgumentError("years", reason, "Choose others: times in nanoseconds end there")
        self.folder: Path | None = None
        self._parameters = {
            "grid": f"{rows}x{columns}", "years": self.years, "dates": self.month_days,
            "variables": names, "seed": int(seed), "levels": levels,
            "steps": [int(step) for step in steps], "members": int(members),
        }  # fmt: skip
        self._truth_steps = sorted({int(step) for step in truth_steps})
        if self._truth_steps != [TARGET_STEP]:
            self._parameters["truth_steps"] = self._truth_steps
        self._refuse_shared_dates()
        if kind != "pointwise":
            self._parameters["kind"] = kind
        self.kind, self._members = kind, int(members)
        generator = Weather if kind == "displaced" else Atmosphere
        channels = list(_channels(names, levels))
        starts = sorted(start for day in self.month_days for start in self._starts(day))
        self._atmosphere = generator(
            self.grid.latitude(), columns, channels, steps, members, starts, seed
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
            reason = f"no parameters of a world ({error})"
            raise FileError(path, reason, "Write it again") from error
        world.folder = Path(folder)
        return world

    @property
    def targets(self) -> list[str]:
        """Return the channels with truth: those targets of which the world has the winds, too."""
        return [law.channel for law in self._laws() if not isinstance(law, ArgumentError)]

    @property
    def missing_winds(self) -> list[str]:
        """Return a line for each target that has no truth because the world lacks its winds."""
        return [law.reason for law in self._laws() if isinstance(law, ArgumentError)]

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

    def write_once(self, folder: Path | str, progress: bool = False) -> "World":
        """Write the world unless a folder holds it already, and return the world of the folder.

        Another process that writes the same folder is waited for. An interrupted call is repeated.

        Args:
            folder: output folder, inside an existing one or a new one.
            progress: show progress bars.

        Raises:
            FileError: the folder holds another world, whose settings are listed.
        """
        write_folder(Path(folder), lambda path: self.write(path, progress), *_FILES)
        world = World.load(folder)
        if changes := differences(world._parameters, self._parameters):
            reason = f"holds a world of other settings ({listing(changes)})"
            raise FileError(folder, reason, "Work in another folder")
        return world

    def optimum(
        self, target: str, members: int | None = None, progress: bool = False,
        step: int = TARGET_STEP, without: str | Sequence[str] = (),
    ) -> xr.Dataset:  # fmt: skip
        """Return the best possible forecast from all members, in closed form.

        Args:
            target: such as "t2m" or "z_500".
            members: number of members that the forecast may use; None for all.
            progress: show a progress bar.
            step: lead time in hours, one of those of the truth.
            without: of the displaced world, what the forecast lacks, to measure what it is worth:
                "neighbours" (no displacement), "flow" (displacement and preference by the
                climatological wind), "place" (the hidden map's mean in its place), "members" (the
                normal with the mean and deviation of the mixture; for tp and si10 the mean
                deviation) or "year" (no drift).

        Returns:
            A forecast over (time, [component,] latitude, longitude), with `valid_time`, of the
            kind in `attrs["forecast_kind"]`: "normal" with `mu` and `sigma` in the pointwise
            world; in the displaced one "normal_mixture", "csgd" for tp and "truncated_normal" for
            si10, as float32.

        Raises:
            ArgumentError: the world was not written yet, `members` is less than all, there is no
                truth at `step`, or `without` in the pointwise world.
            UnknownNameError: the world has no such channel, or an unknown name in `without`.
        """
        if step not in self._truth_steps:
            reason = f"the world has truth at {self._truth_steps} h, not at {step} h"
            raise ArgumentError("step", reason, "Choose one of them")
        if self.folder is None:
            raise ArgumentError("World", "its files are not written yet", "Call write(folder)")
        if members not in (None, self._members):
            reason = f"the optimum has no closed form for {members} of the {self._members} members"
            raise ArgumentError("members", reason, "Compare with the optimum of all of them")
        law = self.law(target)
        without = [without] if isinstance(without, str) else list(without)
        if without and not isinstance(law, DisplacedLaw):
            raise ArgumentError("without", "the pointwise world has one optimum", "Leave it out")
        if isinstance(law, DisplacedLaw):
            law = law.remove_knowledge(without)
        days = track(self.month_days, "optimum", len(self.month_days), progress)
        dtype = np.float32 if self.kind == "displaced" else np.float64  # mixtures are large
        files = (ForecastFiles(self.folder, day) for day in days)
        parts = [law.forecast(one.members(law.channels, step), step).astype(dtype) for one in files]
        best = xr.concat(parts, "time", data_vars="minimal").sortby("time")
        return best.assign_attrs(model="optimum")

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

    def law(self, target: str) -> AnyLaw:
        """Return the law of a target: the distribution of its truth, given the forecasts.

        Raises:
            UnknownNameError: the world has no such channel.
            ArgumentError: the channel has no truth, or the world lacks the winds that determine it.
        """
        names = [f"{c.name}_{c.level}" if c.level else c.name for c in self._atmosphere.channels]
        channel = resolve(target, names, "target")
        if isinstance(self._atmosphere, Weather):
            return displaced_law(channel, names, self._atmosphere.ground)
        return law_of(channel, names, self._atmosphere.region)

    def _laws(self) -> Iterator[AnyLaw | ArgumentError]:
        """Yield the law of each target among the channels, or the error of a missing wind."""
        for target in DISPLACED_TARGETS if self.kind == "displaced" else ("t2m", "z_500", "t_850"):
            try:
                yield self.law(target)
            except UnknownNameError:
                continue
            except ArgumentError as error:
                yield error

    def _write_forecasts(self, folder: Path, month_day: str) -> None:
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            encoder = Encoder(self.grid, members=self._members)
            for start in self._starts(month_day):
                date = int(f"{start:%Y%m%d}")
                for step, channel, members in self._atmosphere.forecast(start):
                    variable = catalog.variable(channel.name)
                    kind = variable.kind
                    if kind not in files:
                        path = folder / _file_name(kind, month_day)
                        files[kind] = stack.enter_context(path.open("wb"))
                    for number, field in enumerate(members, 1):
                        label = {"step": step, "number": number, "level": channel.level or 0}
                        message = encoder.message(field, variable, date=date, **label)
                        files[kind].write(message)

    def _write_truth(self, folder: Path, month_day: str) -> None:
        encoder = Encoder(self.grid, data_type="an", members=0)
        files = ForecastFiles(folder, month_day)
        cases = [(*pair, step) for pair in enumerate(self.targets) for step in self._truth_steps]
        for stream, target, step in cases:
            law = self.law(target)
            best = law.forecast(files.members(law.channels, step), step)
            name, level = split(target)
            for n, start in enumerate(self._starts(month_day)):
                distribution = best.isel(time=n)
                truth = law.truth(distribution, self._atmosphere.error(start, stream, step))
                valid = str(distribution["valid_time"].dt.strftime("%Y%m%d").item())
                variable = catalog.variable(name)
                message = encoder.message(truth, variable, date=int(valid), level=level or 0)
                with (folder / "truth" / f"era5.{valid[:4]}").open("ab") as file:
                    file.write(message)


class ForecastFiles:
    """Reader of the forecasts of one month and day, which decodes each channel once.

    Args:
        folder: of the world.
        month_day: MMDD.
    """

    def __init__(self, folder: Path, month_day: str) -> None:
        self._folder, self._month_day = folder, month_day
        self._datasets: dict[str, xr.Dataset] = {}
        self._members: dict[tuple[str, int], xr.DataArray] = {}

    @property
    def channels(self) -> list[str]:
        """Return the names of all channels."""
        paths = {k: self._folder / _file_name(k, self._month_day) for k in ("sfc", "pl")}
        kinds = [kind for kind, path in paths.items() if path.exists()]
        return [name for kind in kinds for name in channel_names(self._dataset(kind))]

    def members(self, channels: Sequence[str], step: int) -> dict[str, xr.DataArray]:
        """Read the members of channels, each (time, number, latitude, longitude), float64."""
        for channel in channels:
            if (channel, step) not in self._members:
                kind = catalog.variable(split(channel)[0]).kind
                field = field_of(self._dataset(kind), channel).sel(step=step)
                decoded = field.compute(scheduler="synchronous").astype(np.float64)
                self._members[channel, step] = decoded
        return {channel: self._members[channel, step] for channel in channels}

    def _dataset(self, kind: str) -> xr.Dataset:
        if kind not in self._datasets:
            path = self._folder / _file_name(kind, self._month_day)
            self._datasets[kind] = open_source(path)
        return self._datasets[kind]


# what a world consists of, as earlier versions left it where a world is written
_FILES = ("output.*", "truth", _PARAMETERS, UNFINISHED)


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
            remedy = f"Add it: the truth is at {step} h; --truth-steps changes that"
            raise ArgumentError("steps", f"{step} is missing", remedy)
    if min(steps) < 0 or max(steps) > _LONGEST_STEP or len(set(steps)) < len(steps):
        raise ArgumentError("steps", f"hours from 0 to {_LONGEST_STEP}, each once, are possible")
    if not 2 <= members <= MAX_MEMBERS:
        raise ArgumentError("members", f"2 to {MAX_MEMBERS} members are possible, not {members}")
    if seed < 0:
        raise ArgumentError("seed", f"{seed} is negative", "Pass 0 or more")


def _file_name(kind: str, month_day: str) -> str:
    return f"output.{kind}.{catalog.MODEL_YEAR}{month_day}"


def _channels(names: Sequence[str], levels: Sequence[int]) -> Iterator[Channel]:
    for name in names:
        if catalog.variable(name).kind == "sfc":
            yield Channel(name, None)
        else:
            yield from (Channel(name, level) for level in levels)


def _levels(levels: Sequence[int], names: Sequence[str]) -> list[int]:
    """Return the levels, each once, as whole numbers."""
    if any(int(level) != level for level in levels):
        raise ArgumentError("levels", f"{list(levels)} are not whole numbers, in hPa")
    unique_levels = list(dict.fromkeys(map(int, levels)))
    on_levels = [name for name in names if catalog.variable(name).kind == "pl"]
    if on_levels and not unique_levels:
        raise ArgumentError("levels", f"there are none for {', '.join(on_levels)}", "Add one: 500")
    return unique_levels


def _month_days(dates: Sequence[str] | int | None) -> list[str]:
    calendar = catalog.month_days()
    if dates is None:
        return list(calendar)
    if isinstance(dates, int):
        if not 1 <= dates <= len(calendar):
            raise ArgumentError("dates", f"{dates} of {len(calendar)} dates cannot be taken")
        positions = np.linspace(0, len(calendar), dates, endpoint=False).astype(int)
        return [calendar[i] for i in positions]
    unknown = [d for d in dates if len(d) != 4 or not d.isdigit()]
    if unknown:
        reason = f"{unknown[0]!r} is not of the form MMDD"
        raise ArgumentError("dates", reason, "Write 0104 for 4 January")
    if not dates:
        raise ArgumentError("dates", "none is given", "Leave them out for all of ENS-10's")
    return sorted(set(dates))
