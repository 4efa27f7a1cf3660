"""The stations of one year of data: which command each is, and what it leaves."""

import csv
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ens10.durable import write_whole
from ens10.experiments import provenance
from ens10.experiments.demo import config_path
from ens10.experiments.full_size import clock
from ens10.untrusted import read_mapping

MODELS = ("raw", "unet", "smoe_unet")
EVENT, REGION = "1999-01-03", "europe"  # a valid date of the test
# The year's valid dates are in 1998 (training) and 1999 (test); none are kept for validation.
_PROTOCOL = {"name": "one_year", "test": [1999], "val": 0}
_GRID = "model.init_args.network.init_args.grid"
_ENS10 = (sys.executable, "-m", "ens10")


@dataclass(frozen=True)
class Station:
    """A command.

    Attributes:
        name: in the log.
        what: in words.
        command: with its arguments.
        makes: what it leaves, removed before it is done again.
        facts: about what it made, for the log.
    """

    name: str
    what: str
    command: tuple[str, ...]
    makes: Path | None
    facts: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True)
class Place:
    """Where the data are, and how large.

    Attributes:
        work: folder for everything large.
        grid: rows x columns.
        dates: of the 105 start dates; None for all.
    """

    work: Path
    grid: str = "361x720"
    dates: int | None = None

    @property
    def world(self) -> Path:
        """The GRIB files."""
        return self.work / "world"

    @property
    def store(self) -> Path:
        """The prepared data."""
        return self.work / "store.zarr"

    def run(self, model: str) -> Path:
        """The run of a model."""
        return self.work / "runs" / model

    def stations(self, cores: int) -> list[Station]:
        """All stations, in order."""
        data = [_world(self, cores), _prepare(self, cores), _verify(self), _free(self)]
        runs = [station for model in MODELS for station in _model(self, model)]
        return [*data, *runs, _report(self), _case(self)]


def _world(place: Place, cores: int) -> Station:
    module = "ens10.experiments.full_size.world"
    dates = ("--dates", str(place.dates)) if place.dates else ()
    command = (sys.executable, "-m", module, str(place.world), "--grid", place.grid, *dates)
    what = f"synthetic forecasts and truth, as GRIB files, with {cores} processes"
    command = (*command, "--workers", str(cores))
    return Station("synth", what, command, place.world, lambda: _disk(place.world))


def _prepare(place: Place, cores: int) -> Station:
    store, truth = str(place.store), str(place.world / "truth")
    command = ("prepare", str(place.world), store, "--truth", truth, "--workers", str(cores))
    what = f"a store from the files, with {cores} processes"
    return Station("prepare", what, (*_ENS10, *command), None, lambda: _disk(place.store))


def _verify(place: Place) -> Station:
    store, world = str(place.store), str(place.world)
    command = ("verify", store, "--source", world, "--truth", f"{world}/truth")
    what = "all checksums, and 64 fields decoded again"
    return Station("verify", what, (*_ENS10, *command), None)


def _free(place: Place) -> Station:
    code = "import pathlib, sys; [f.unlink() for f in pathlib.Path(sys.argv[1]).glob('output.*')]"
    command = (sys.executable, "-c", code, str(place.world))
    return Station("free", "removes the forecasts' files", command, None)


def _model(place: Place, model: str) -> list[Station]:
    run = place.run(model)
    changes = place.work / "one_year.yaml"
    rows, columns = place.grid.split("x")
    fit = ["fit", "--config", str(config_path(model)), "--config", str(changes), "--quiet"]
    fit += ["--run", str(run), "--trainer.max_epochs", "1"]
    if model != "raw":
        fit += ["--trainer.callbacks", f"{clock.__name__}.{clock.StepClock.__name__}"]
    if _GRID.rpartition(".")[2] in _network(model):
        fit += [f"--{_GRID}=[{rows},{columns}]"]
    epoch = "nothing to learn" if model == "raw" else "one epoch"
    return [
        Station(f"{model}: fit", epoch, (*_ENS10, *fit), run, lambda: _trained(run)),
        Station(
            f"{model}: predict", "the test dates",
            (*_ENS10, "predict", "--run", str(run), "--quiet"), None,
            lambda: _disk(run / "predictions.zarr"),
        ),
        Station(
            f"{model}: score", "sums, intervals, table", (*_ENS10, "score", str(run)), None,
            lambda: _scored(run),
        ),
    ]  # fmt: skip


def _report(place: Place) -> Station:
    out = place.work / "report"
    runs = [str(place.run(model)) for model in MODELS]
    command = (*_ENS10, "report", *runs, "--out", str(out))
    return Station("report", "tables, figures and a page", command, out)


def _case(place: Place) -> Station:
    out = place.work / "case"
    runs = [str(place.run(model)) for model in MODELS]
    command = (*_ENS10, "case", *runs, "--date", EVENT, "--region", REGION, "--out", str(out))
    return Station("case", f"maps of {EVENT} in {REGION}", command, out)


def write_protocol(place: Place) -> None:
    """Writes the configuration that every run gets besides its own: data and protocol."""
    content = {"data": {"store": str(place.store), "protocol": _PROTOCOL}}
    place.work.mkdir(parents=True, exist_ok=True)
    write_whole(place.work / "one_year.yaml", yaml.safe_dump(content))


def remove(station: Station) -> None:
    """Removes what an interrupted call left; `prepare` goes on where it was."""
    if station.makes is not None:
        shutil.rmtree(station.makes, ignore_errors=True)


def _network(model: str) -> dict[str, Any]:
    held = read_mapping(config_path(model))["model"]["init_args"]
    found: dict[str, Any] = held.get("network", {}).get("init_args", {})
    return found


def _disk(folder: Path) -> dict[str, Any]:
    return {"gigabytes": round(size_of(folder) / 1e9, 3)}


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _trained(run: Path) -> dict[str, Any]:
    known = provenance.read(run)
    steps = run / clock.FILE
    timed = {"after_first_step": read_mapping(steps)} if steps.exists() else {}
    return {"parameters": known["parameters"], "dates": known["dates"]} | timed


def _scored(run: Path) -> dict[str, Any]:
    with (run / "scores.csv").open(newline="") as file:
        return {row["score"]: float(row["value"]) for row in csv.DictReader(file)}
