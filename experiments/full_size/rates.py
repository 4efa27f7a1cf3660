"""The rates that `ens10 reproduce --plan` scales: from the log, and from steps of each model."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ens10.durable import write_whole
from ens10.experiments.reproduce.dryrun_probe import measure_apart
from ens10.experiments.reproduce.dryrun_rates import FILE
from ens10.experiments.studies.reproduce.command import MODELS
from ens10.progress import track
from ens10.quantiles.kernel import quantiles_of
from ens10.untrusted import read_mapping

NAMES = tuple(dict.fromkeys(name for names in MODELS.values() for name in names))
_CLIMATE = (1530, 8192)  # members of 17 years in a window of 9 dates, and points
_LEVELS = 101


def climate_seconds(grid: tuple[int, int]) -> float:
    """Processor seconds of one member in the model climate of a date, without its reading."""
    rng = np.random.default_rng(0)
    members = rng.standard_normal(_CLIMATE, dtype=np.float32)
    levels = np.linspace(0, 1, _LEVELS)
    quantiles_of([members[:, :512]], levels)  # compiles
    begun = time.process_time()
    quantiles_of([members], levels)
    return (time.process_time() - begun) / members.size * grid[0] * grid[1]


def rates_of(log: Mapping[str, Any], models: Mapping[str, Any], climate: float) -> dict[str, Any]:
    """The content of the file of rates.

    Args:
        log: of all stations.
        models: as measured, by name.
        climate: from `climate_seconds`.
    """
    rows, columns = map(int, log["grid"].split("x"))
    stations, machine = log["stations"], log["machine"]
    messages = log["dates"] * log["members"] * log["variables"]
    scored = stations["unet: score"]
    return {
        "grid": [rows, columns],
        "machine": f"{machine['processor']} ({machine['cores']} cores)",
        "prepare": float(f"{stations['prepare']['cpu_seconds'] / messages:.4g}"),
        "score": float(f"{scored['cpu_seconds'] / scored['dates']:.4g}"),
        "climate": float(f"{climate:.4g}"),
        "reading_gb": round(
            max(0.0, stations["unet: fit"]["own_gb"] - models["unet"]["memory_gb"]), 2
        ),
        "models": dict(models),
    }


def write_rates(
    log: Mapping[str, Any], out: Path, work: Path, names: Sequence[str] = NAMES
) -> Path:
    """Measures the models that are not measured yet, and writes the file.

    Args:
        log: of all stations.
        out: folder of the file.
        work: folder that keeps what was measured before an interruption.
        names: of configurations.

    Raises:
        Ens10Error: a model could not be run.
    """
    rows, columns = map(int, log["grid"].split("x"))
    kept = work / "probes.json"
    found = read_mapping(kept) if kept.exists() else {}
    left = [name for name in names if name not in found]
    for name in track(left, "models", len(left)):
        found[name] = measure_apart(name, (rows, columns))
        write_whole(kept, json.dumps(found, indent=1) + "\n")
    ordered = {name: found[name] for name in names}
    content = rates_of(log, ordered, climate_seconds((rows, columns)))
    path = out / FILE
    write_whole(path, json.dumps(content, indent=1) + "\n")
    return path
