"""The production of the world: units of one start date, resumable and shared by processes.

A year of nature is a chain of units, one for each start date. A process claims a year, so several
processes, on machines that share the folder, simulate different years. A unit is kept with its
checksum when it is complete; a killed process loses the unit that it was simulating.

    WORK/world.json                    what the world consists of
    WORK/units/1998/0104.npz           fields of nature and of the ensembles, 16-bit
    WORK/checkpoints/1998/0104.npz     nature after the unit; only the latest is kept
"""

import contextlib
import datetime as dt
import hashlib
import json
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ens10 import catalog
from ens10.durable import clear_leftovers, whole_path, write_whole
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.experiments.runs.claims import claim
from ens10.experiments.studies.physical_world.fields import (
    Array,
    ModelGrid,
    derive,
    pack_fields,
    unpack_fields,
)
from ens10.grib import MAX_MEMBERS

DATES = catalog.month_days()[1::2]  # every second start date of ENS-10: a week apart
STEPS = (0, 24, 48)  # hours
_EPOCH = dt.date(1970, 1, 1)
_SETTINGS = "world.json"

# Parameters of each variant of the forecast model at model_error = 1; 0 is nature. Relaxation times
# in hours. Heat exchange with the land (chl, clambda) gives T2m a bias and hardly changes Z500;
# that with the sea (chs) makes Z500 drift. "second" differs from nature in the other direction,
# but for clouds, drag and the sea: models of two centres share some of their errors.
CHANGES = {
    "first": {
        "convection": {"trcnv": 7.5, "entmax": 0.425, "rhbl": 0.88},
        "condensation": {"trlsc": 5.0, "rhlsc": 0.915},
        "shortwave_radiation": {"albcl": 0.405, "rhcl1": 0.325},
        "surface_flux": {"cdl": 2.1e-3, "chl": 1.75e-3, "chs": 0.94e-3, "clambda": 3.5},
        "vertical_diffusion": {"trshc": 7.5, "trvdi": 30.0},
    },
    "second": {
        "convection": {"trcnv": 4.5, "entmax": 0.575, "rhbl": 0.92},
        "condensation": {"trlsc": 3.0, "rhlsc": 0.885},
        "shortwave_radiation": {"albcl": 0.405, "rhcl1": 0.325},
        "surface_flux": {"cdl": 2.1e-3, "chl": 0.8e-3, "chs": 0.94e-3, "clambda": 10.5},
        "vertical_diffusion": {"trshc": 4.5, "trvdi": 18.0},
    },
}


@dataclass(frozen=True)
class PhysicalWorld:
    """Settings of a world: dates, ensembles, and the errors of the forecast model.

    Attributes:
        years: of nature, each from initial noise of its own; the calendar's only.
        dates: start dates, MMDD, at least 4 days apart.
        perfect_years: years with ensembles of the nature model as well.
        members: size of the ensembles.
        amplitude: of analysis errors, in standard deviations of nature over five weeks.
        model_error: distance of the forecast model's parameters from nature's; see `CHANGES`.
        diffusion: factor of the forecast model's diffusion times.
        time_step: s.
        spin_up: days from initial noise to the first analysis, a day before the first start date.
        seed: of all random numbers.
        variant: of the forecast model, a name in `CHANGES`. Variants of one world have the same
            nature and analyses; their members have other perturbations.
    """

    years: tuple[int, ...]
    dates: tuple[str, ...] = DATES
    perfect_years: tuple[int, ...] = ()
    members: int = 10
    amplitude: float = 0.15
    model_error: float = 0.75
    diffusion: float = 0.8
    time_step: int = 2700
    spin_up: int = 100
    seed: int = 0
    variant: str = "first"

    def __post_init__(self) -> None:
        """Refuse settings that would fail only during the simulation."""
        if self.variant not in CHANGES:
            raise UnknownNameError("variant", self.variant, CHANGES)
        self._check_dates()
        valid = {
            f"2 to {MAX_MEMBERS}": ("members", 2 <= self.members <= MAX_MEMBERS),
            "60 days or more": ("spin_up", self.spin_up >= 60),
            "seconds that divide a day, such as 2700": (
                "time_step",
                self.time_step > 0 and 86400 % self.time_step == 0,
            ),
            "a finite number of at least 0": ("amplitude", 0 <= self.amplitude < math.inf),
            "a finite number above 0": ("diffusion", 0 < self.diffusion < math.inf),
            "a finite number": ("model_error", math.isfinite(self.model_error)),
            "0 or more": ("seed", self.seed >= 0),
        }
        for possible, (name, is_valid) in valid.items():
            if not is_valid:
                problem = f"{getattr(self, name)} cannot be used"
                raise ArgumentError(name, problem, f"Pass {possible}")

    def _check_dates(self) -> None:
        for date in self.dates:
            if len(date) != 4 or not date.isdigit():
                raise ArgumentError("dates", f"{date!r} is not of the form MMDD", "Write 0104")
        if list(self.dates) != sorted(set(self.dates)):
            raise ArgumentError("dates", "not in the order of the calendar, or some are repeated")
        if extra_years := sorted(set(self.perfect_years) - set(self.years)):
            message = f"{', '.join(map(str, extra_years))} not simulated"
            raise ArgumentError("perfect_years", message, "Choose from the years (--perfect-years)")
        try:
            days = [self.start(year, date) for year in self.years for date in self.dates]
        except ValueError as error:
            raise ArgumentError("dates", f"no date of the calendar ({error})") from error
        if not days:
            raise ArgumentError("years", "there are none", "Pass at least one, such as 1998")
        gaps = np.diff([day.toordinal() for day in days])
        if (gaps < STEPS[-1] // 24 + 2).any():
            raise ArgumentError("dates", "two start dates are less than 4 days apart", "Pass fewer")

    @staticmethod
    def start(year: int, month_day: str) -> dt.date:
        """Return a start date."""
        return dt.date(year, int(month_day[:2]), int(month_day[2:]))

    @property
    def units(self) -> list[tuple[int, str]]:
        """Return year and date of all units, by year."""
        return [(year, date) for year in self.years for date in self.dates]

    def ensembles(self, year: int) -> list[str]:
        """Return the ensembles of a year's units."""
        return ["forecast", *(["perfect"] if year in self.perfect_years else [])]

    def save(self, work: Path) -> None:
        """Write the settings, or check that the folder holds the same ones.

        Raises:
            FileError: another world is in the folder.
        """
        path = work / _SETTINGS
        if not path.exists():
            work.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(asdict(self), indent=1) + "\n")
        elif PhysicalWorld.load(work) != self:
            raise FileError(path, "another world is there", "Choose another folder")

    @classmethod
    def load(cls, work: Path) -> "PhysicalWorld":
        """Return the world that was written to a folder.

        Raises:
            FileError: there is none, or its settings are damaged.
        """
        path = work / _SETTINGS
        try:
            values = json.loads(path.read_text())
            lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
            return cls(**{**values, **lists})
        except FileNotFoundError as error:
            raise FileError(path, "no such file", "Run `simulate` first") from error
        except (TypeError, ValueError) as error:
            raise FileError(path, f"damaged ({error})", "Restore it") from error


class Model(Protocol):
    """Interface of the simulation, as `simulation.Worker` implements it."""

    def answer(self, request: dict[str, Any]) -> None:
        """Write the files that the request names."""


class JcmProcess:
    """The worker process in jcm's environment.

    Args:
        python: of jcm's environment.
        world: its settings.
        cache: folder of compiled models, which spares later processes the compilation.
        log: file of what the worker prints.
    """

    def __init__(self, python: Path, world: PhysicalWorld, cache: Path, log: Path) -> None:
        settings = {**asdict(world), "lead_days": STEPS[-1] // 24, "cache": str(cache)}
        settings["changes"] = CHANGES[world.variant]
        settings["stream"] = 1 + list(CHANGES).index(world.variant)
        self._log = log
        script = str(Path(__file__).with_name("simulation.py"))
        command = [str(python), script, json.dumps(settings)]
        pipe = subprocess.PIPE
        with log.open("a") as file:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=file, text=True
            )
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None and replies is not None  # noqa: PT018
        self._requests, self._replies = requests, replies

    def answer(self, request: dict[str, Any]) -> None:
        """Send one request and wait for the reply.

        Raises:
            FileError: the worker failed; its log says why.
        """
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except BrokenPipeError as error:
            raise self._failure("the worker ended") from error
        reply = self._replies.readline()
        if not reply:
            raise self._failure("the worker ended")
        reason = json.loads(reply)["error"]
        if reason:
            raise self._failure(reason)

    def close(self) -> None:
        """End the worker."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait()
        self._replies.close()

    def _failure(self, reason: str) -> FileError:
        return FileError(self._log, f"the simulation failed: {reason}", "See the end of this log")


def unit_path(work: Path, year: int, date: str) -> Path:
    """Return the file of a unit."""
    return work / "units" / str(year) / f"{date}.npz"


def simulate(
    work: Path,
    world: PhysicalWorld,
    model: Callable[[], Model],
    report: Callable[[str], object] = print,
    stop: float | None = None,
) -> list[tuple[int, str]]:
    """Simulate the units that are missing, except for the years of other processes.

    Args:
        work: folder of the world.
        world: its settings.
        model: starts the model; called if something is missing.
        report: receives a line for each unit.
        stop: time (of `time.monotonic`) after which no unit is begun; None to simulate all.

    Returns:
        The units that are still missing.

    Raises:
        FileError: another world is in the folder, or the model failed.
    """
    world.save(work)
    models: list[Model] = []
    for year in world.years:
        if _is_year_complete(work, world, year):
            continue
        with claim(work / "claims" / str(year)) as has_claim:
            # checked again: another process may have completed the year before the claim
            if has_claim and not _is_year_complete(work, world, year):
                models = models or [model()]
                _simulate_year(_Chain(work, world, year, models[0]), report, stop)
    return [unit for unit in world.units if not is_complete(unit_path(work, *unit))]


def _is_year_complete(work: Path, world: PhysicalWorld, year: int) -> bool:
    return all(is_complete(unit_path(work, year, date)) for date in world.dates)


@dataclass(frozen=True)
class _Chain:
    work: Path
    world: PhysicalWorld
    year: int
    model: Model

    def checkpoint(self, date: str) -> Path:
        return self.work / "checkpoints" / str(self.year) / f"{date}.npz"

    def advance(self, before: str | None, date: str) -> None:
        """Simulate one unit from the checkpoint of the date before."""
        unit, new_checkpoint = unit_path(self.work, self.year, date), self.checkpoint(date)
        unit.parent.mkdir(parents=True, exist_ok=True)
        new_checkpoint.parent.mkdir(parents=True, exist_ok=True)
        complete, raw = is_complete(unit), unit.with_suffix(".raw")
        day = (self.world.start(self.year, date) - _EPOCH).days
        with whole_path(new_checkpoint) as partial:
            request = {
                "checkpoint": None if before is None else str(self.checkpoint(before)),
                "start_day": day,
                "seed": [self.world.seed, self.year, int(date)],
                "ensembles": [] if complete else self.world.ensembles(self.year),
                "fields": str(raw),
                "next": str(partial),
            }
            self.model.answer(request)
        _write_checksum(new_checkpoint)
        if not complete:
            _write_unit(unit, raw)
        raw.unlink()
        if before is not None:
            for path in (self.checkpoint(before), _checksum_path(self.checkpoint(before))):
                path.unlink(missing_ok=True)


def _simulate_year(chain: _Chain, report: Callable[[str], object], stop: float | None) -> None:
    dates, paths = chain.world.dates, [chain.checkpoint(date) for date in chain.world.dates]
    units = unit_path(chain.work, chain.year, dates[0]).parent
    for folder in (paths[0].parent, units):
        clear_leftovers(folder)
    for raw in units.glob("*.raw"):  # of a killed process
        raw.unlink()
    complete = [is_complete(unit_path(chain.work, chain.year, date)) for date in dates]
    first, last = complete.index(False), len(complete) - complete[::-1].index(False)
    # Without a checkpoint the chain is simulated again: nature alone for the units that are kept.
    begin = max((n + 1 for n in range(first) if is_complete(paths[n])), default=0)
    if begin and not _is_intact(paths[begin - 1]):
        place = f"{chain.year}-{dates[begin - 1]}"
        report(f"{place}: the checksum of its checkpoint is wrong; the year is simulated again")
        begin = 0
    for n in range(begin, last):
        if stop is not None and time.monotonic() > stop:
            return
        clock = time.monotonic()
        chain.advance(dates[n - 1] if n else None, dates[n])
        report(f"{chain.year}-{dates[n]}: {time.monotonic() - clock:.0f} s")


def is_complete(path: Path) -> bool:
    """Return True if a file and its checksum are there."""
    return path.exists() and _checksum_path(path).exists()


def read_unit(work: Path, year: int, date: str) -> dict[str, Array]:
    """Return the fields of one unit.

    Args:
        work: folder of the world.
        year: of the unit.
        date: of the unit, MMDD.

    Returns:
        `nature` (step, channel, lat, lon) and, of each ensemble, (member, step, channel, lat, lon).

    Raises:
        MissingDataError: it is not simulated yet.
        FileError: its checksum is wrong.
    """
    path = unit_path(work, year, date)
    if not is_complete(path):
        raise MissingDataError(work, [f"unit {year}-{date}"], "Run `simulate` again")
    if not _is_intact(path):
        raise FileError(path, "its checksum is wrong", "Remove it, and run `simulate` again")
    with np.load(path) as file:
        kinds = {name.partition("_")[0] for name in file.files}
        return {
            kind: unpack_fields(
                {part: file[f"{kind}_{part}"] for part in ("packed", "offset", "scale")}
            )
            for kind in sorted(kinds)
        }


def _write_unit(unit: Path, raw: Path) -> None:
    """Derive ENS-10's fields of a unit from the raw file, pack and write them."""
    arrays: dict[str, Array] = {}
    with np.load(raw) as file:
        grid = ModelGrid.of(file)
        for kind in ("nature", "forecast", "perfect"):
            if f"{kind}_levels" not in file.files:
                continue
            runs = derive(file[f"{kind}_levels"], file[f"{kind}_surface"], grid)
            packed = pack_fields(runs[0] if kind == "nature" else runs)
            arrays.update({f"{kind}_{part}": values for part, values in packed.items()})
    with whole_path(unit) as partial, partial.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    _write_checksum(unit)


def _is_intact(path: Path) -> bool:
    return _checksum(path) == _checksum_path(path).read_text().split()[0]


def checksums(work: Path, units: Sequence[tuple[int, str]]) -> list[str]:
    """Return the checksums of the complete units, as lines in the format of `sha256sum`."""
    paths = [unit_path(work, *unit) for unit in units]
    return [_checksum_path(path).read_text().strip() for path in paths if is_complete(path)]


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _write_checksum(path: Path) -> None:
    name = f"{path.parent.name}/{path.name}"
    write_whole(_checksum_path(path), f"{_checksum(path)}  {name}\n")


def describe(world: PhysicalWorld) -> str:
    """Return the settings in one line."""
    settings = {**asdict(world), "years": f"{world.years[0]}-{world.years[-1]}"}
    settings |= {"dates": len(world.dates)}
    del settings["perfect_years"]
    if world.variant == PhysicalWorld.variant:
        del settings["variant"]
    return ", ".join(f"{name} {value}" for name, value in settings.items())
