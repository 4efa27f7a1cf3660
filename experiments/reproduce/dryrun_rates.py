"""How fast the parts of a reproduction are: as measured, in a file, or on the spot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10.errors import FileError, MissingDataError
from ens10.progress import track
from ens10.untrusted import parse_json

FILE = "throughput.json"
PROTOCOL, TARGET, MEMBERS = "clean", "t2m", 10  # what models are measured with


@dataclass(frozen=True)
class Rates:
    """What was measured, on one grid.

    Seconds are those of one core (processor time), or of an accelerator where a model says so.

    Attributes:
        grid: rows and columns.
        machine: in words.
        prepare: seconds for a GRIB message.
        score: seconds for a date, of prediction and scores besides the model.
        climate: seconds for the model climate of a date, for each of its members.
        models: by name, see `dryrun_probe.measure`.
        reading_gb: that a network's training holds for its batches, besides its steps.
    """

    grid: tuple[int, int]
    machine: str
    prepare: float
    score: float
    climate: float
    models: Mapping[str, Mapping[str, Any]]
    reading_gb: float = 0.0

    def of(self, model: str) -> Mapping[str, Any]:
        """Those of a model.

        Raises:
            MissingDataError: it was not measured.
        """
        if model not in self.models:
            raise MissingDataError("throughput", [model], "Measure it on this machine with --probe")
        return self.models[model]


def kept_rates() -> Path:
    """The file that comes with the package."""
    return Path(str(files("ens10.experiments"))) / "results" / "full_size" / FILE


def read_rates(path: Path | None = None) -> Rates:
    """Read measured rates from a file like the one that comes with the package.

    Raises:
        FileError: no such file, or one of something else.
    """
    path = path or kept_rates()
    remedy = "Give a file like experiments/results/full_size/throughput.json"
    if not path.is_file():
        raise FileError(path, "no measured rates", remedy)
    try:
        held = parse_json(path.read_text())
        rows, columns = held.pop("grid")
        return Rates((rows, columns), **held)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(path, f"holds no measured rates ({error})", remedy) from error


def probed(rates: Rates, models: Sequence[str], progress: bool = True) -> Rates:
    """The same with models measured on this machine, at the same grid.

    Raises:
        Ens10Error: a model cannot be run.
    """
    from ens10.experiments.reproduce.dryrun_probe import measure_apart

    shown = track(models, "models", len(models), progress)
    found = {model: measure_apart(model, rates.grid) for model in shown}
    devices = ", ".join(sorted({str(one["device"]) for one in found.values()}))
    machine = f"{rates.machine}; models on this machine ({devices})"
    return replace(rates, machine=machine, models={**rates.models, **found})
