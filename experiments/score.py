"""Predictions to scores: a netCDF file of additive states and a CSV of final numbers."""

import csv
from pathlib import Path

import xarray as xr

from ens10.errors import FileError
from ens10.experiments import provenance
from ens10.experiments.reading import open_predictions
from ens10.grid import Weighting
from ens10.metrics import score_states, summarise

STATES, TABLE = "scores.nc", "scores.csv"
SHOWN = ("crps", "crps_fair", "rmse", "spread_error")
BOUNDS = ("", "_lower", "_upper")


def score_run(path: Path | str, weights: Weighting | None = None) -> xr.Dataset:
    """Scores a run folder or a predictions store, and writes the result beside it.

    Args:
        path: a run folder, or a predictions store (its folder then gets the files).
        weights: area weights; None for those of the run's protocol ("cell" without a run).

    Returns:
        The additive states, as written to `scores.nc`.

    Raises:
        FileError: no predictions there.
    """
    path = Path(path)
    forecast, truth = open_predictions(path)
    folder = path if (path / provenance.FILE).exists() else path.parent
    known = provenance.read(folder) if (folder / provenance.FILE).exists() else {}
    states = score_states(forecast, truth, weights=weights or known.get("weights", "cell"))
    write_states(states, folder)
    return states


def in_words(states: xr.Dataset) -> str:
    """The scores with their confidence intervals in one line."""
    scores = summarise(states)
    parts = []
    for name in SHOWN:
        if name in scores:
            value, low, high = (float(scores[name + part]) for part in BOUNDS)
            units = str(scores[name].attrs.get("units", "")).replace("1", "")
            parts.append(f"{name} {value:.4g} [{low:.4g}, {high:.4g}] {units}".strip())
    return f"{'; '.join(parts)}; {int(scores['dates'])} dates"


def write_states(states: xr.Dataset, folder: Path) -> None:
    """Writes `scores.nc` and `scores.csv`."""
    partial = folder / f"{STATES}.partial"
    states.to_netcdf(partial, engine="netcdf4")
    partial.rename(folder / STATES)
    scores = summarise(states)
    with (folder / TABLE).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["score", "value", "lower", "upper", "units"])
        for name in SHOWN:
            if name in scores:
                row = [f"{float(scores[name + part]):.9g}" for part in BOUNDS]
                writer.writerow([name, *row, scores[name].attrs.get("units", "")])
        writer.writerow(["dates", int(scores["dates"]), "", "", ""])
        writer.writerow(["count", int(scores["count"]), "", "", ""])


def read_states(run: Path | str) -> xr.Dataset:
    """The states of a scored run.

    Raises:
        FileError: the run was not scored.
    """
    path = Path(run) / STATES
    if not path.is_file():
        raise FileError(run, f"not scored yet (it has no {STATES})", f"Run `ens10 score {run}`")
    return xr.load_dataset(path, engine="netcdf4")
