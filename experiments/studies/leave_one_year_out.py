"""Statistical methods on few years: each year is predicted from a fit to all other years.

python -m ens10.experiments.studies.leave_one_year_out STORE --target t2m --out DIR
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from ens10.channels import resolve, step_number
from ens10.errors import ArgumentError, MissingDataError
from ens10.experiments import provenance
from ens10.experiments.commands import add_cell_options, refuse_file
from ens10.experiments.run_results import load_states
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import run_cells
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.trainings import states_file
from ens10.experiments.tables import FEW_DATES
from ens10.experiments.writers import ABSENT, columns_of, csv_of, markdown_of
from ens10.grid import Weighting
from ens10.loader.batch import Batch
from ens10.loader.batches import Batches
from ens10.loader.datamodule import as_tensors
from ens10.metrics import score_states, summarise
from ens10.metrics.uncertainty import Method
from ens10.models.statistical import EMOS, Climatology, Raw
from ens10.models.statistical.base import StatisticalMethod
from ens10.progress import track
from ens10.protocol import Protocol
from ens10.store import open_store
from ens10.usage import command_parser, reports_errors

METHODS: dict[str, Callable[[], StatisticalMethod]] = {
    "raw": Raw,
    "climatology": Climatology,
    "emos_global": EMOS,
    "emos_local": lambda: EMOS(local=True),
}
_STATIONS = ("ens10.loader", "ens10.models.statistical", "ens10.metrics")
_BLOCKS = "block bootstrap, blocks by the dependence of the dates"


@dataclass(frozen=True)
class Line:
    """One method at one step; bounds are of the interval over start dates.

    Attributes:
        step: lead time, in the store's units.
        method: name.
        dates: number of start dates.
        crps: mean CRPS (value, lower, upper), in the target's units.
        difference: mean CRPS less that of raw (value, lower, upper).
        crpss: skill against raw (value, lower, upper).
    """

    step: float
    method: str
    dates: int
    crps: tuple[float, float, float]
    difference: tuple[float, float, float]
    crpss: tuple[float, float, float]


def cross_validate(
    store: Path | str,
    target: str,
    *,
    methods: Sequence[str] = tuple(METHODS),
    weights: Weighting = "none",
    progress: bool = False,
) -> list[Line]:
    """Return the scores of each method at each step, each year predicted from all other years.

    Args:
        store: prepared data with truth.
        target: channel, without a step.
        methods: names of `METHODS`; "raw" is always among them.
        weights: area weights of the scores and fits.
        progress: show a progress bar.

    Raises:
        ArgumentError: fewer than three years, which leave too few to fit.
    """
    truth_steps = np.atleast_1d(open_store(store, "truth")["step"].to_numpy())
    steps = [step_number(step) for step in truth_steps]
    names = tuple(dict.fromkeys(["raw", *methods]))
    lines = []
    for step in track(steps, "steps", len(steps), progress):
        states = _states(store, f"{target}@{step}", names, weights)
        lines += [_line(step, name, states[name], states["raw"]) for name in names]
    return lines


@dataclass(frozen=True)
class StepCell(Cell):
    """All methods at one step, each year predicted from all other years.

    Args:
        store: prepared data, with truth.
        target: channel, without a step.
        step: lead time, in the store's units.
        out: folder of the results.
    """

    store: Path
    target: str
    step: float
    out: Path

    @property
    def name(self) -> str:
        """Model, seed or variant in words, for progress and error messages."""
        return f"{self.target} at step {self.step}"

    @property
    def place(self) -> str:
        """Its place in the archive, by target and step."""
        return f"{self.target}/step{self.step}"

    @property
    def scratch(self) -> Path:
        """Folder of its claim and log."""
        return self.out / "work" / self.target

    def current_key(self) -> Key:
        """Return the key, which includes the names of the methods."""
        config = {"target": self.target, "step": self.step, "methods": list(METHODS)}
        return key_of(config, provenance.checksum(self.store), _STATIONS)

    def compute(self) -> dict[str, bytes]:
        """Return the states of each method's scores."""
        states = _states(self.store, f"{self.target}@{self.step}", tuple(METHODS), "none")
        return {f"{name}.nc": states_file(one) for name, one in states.items()}


def read_lines(cells_folder: Path, cells: Sequence[StepCell]) -> list[Line]:
    """Return the lines of the unpacked cells that exist, a line for each step and method."""
    lines = []
    for cell in cells:
        folder = cells_folder / cell.place
        if folder.is_dir():
            raw = load_states(folder / "raw.nc")
            by_method = {name: load_states(folder / f"{name}.nc") for name in METHODS}
            lines += [_line(cell.step, name, states, raw) for name, states in by_method.items()]
    return lines


def _states(
    store: Path | str, target: str, names: Sequence[str], weights: Weighting
) -> dict[str, xr.Dataset]:
    """Return the score states of each method over all years, each predicted from the others."""
    data = _all_dates(store, target, weights)
    year_of = data.samples.valid_time[data.index].astype("datetime64[Y]")
    forecasts: dict[str, list[xr.Dataset]] = {name: [] for name in names}
    for year in np.unique(year_of):
        methods = {name: METHODS[name]() for name in names}
        for i in data.index[year_of != year]:
            batch = as_tensors(data.batch(np.array([i])))
            for method in methods.values():
                method.collect(batch)
        for method in methods.values():
            method.solve()
        for i in data.index[year_of == year]:
            batch = as_tensors(data.batch(np.array([i])))
            for name, method in methods.items():
                forecasts[name].append(_forecast(method, batch, data, int(i)))
    truth = _truth(data)
    return {
        name: score_states(_sort_dates(parts, truth), truth, weights=weights)
        for name, parts in forecasts.items()
    }


def _all_dates(store: Path | str, target: str, weights: Weighting) -> Batches:
    """Return batches of all dates as one split, opened once for all folds.

    Their features are normalised with all years, so the methods of a fold must not use them.
    """
    years = _years(store, target)
    protocol = Protocol("leave-one-year-out", [], [], years, weighting=weights)
    channel = [target.partition("@")[0]]
    return Batches(store, target, channel, "train", protocol=protocol, members=True, shuffle=False)


def _truth(data: Batches) -> xr.DataArray:
    samples, index = data.samples, data.index
    coordinates = {
        "time": samples.time[index],
        "valid_time": ("time", samples.valid_time[index]),
        "latitude": samples.latitude,
        "longitude": samples.longitude,
    }
    dims = ("time", "latitude", "longitude")
    return xr.DataArray(np.stack([samples.truth(int(i)) for i in index]), coordinates, dims)


def _sort_dates(parts: Sequence[xr.Dataset], truth: xr.DataArray) -> xr.Dataset:
    """Return the forecasts of all folds in the order of the truth's dates."""
    return xr.concat(parts, "time", combine_attrs="override").sel(time=truth["time"].to_numpy())


def _years(store: Path | str, target: str) -> list[int]:
    step = step_number(target.partition("@")[2])
    valid = open_store(store, "truth")["valid_time"].sel(step=step)
    years = sorted(set(valid.dt.year.to_numpy().tolist()))
    if len(years) < 3:
        raise ArgumentError(
            "store", f"it has {len(years)} years", "Three are the least to fit on two"
        )
    return years


def _forecast(method: StatisticalMethod, batch: Batch, data: Batches, i: int) -> xr.Dataset:
    samples = data.samples
    with torch.no_grad():
        predictive = method(batch)
    coordinates = {
        "time": samples.time[[i]],
        "valid_time": ("time", samples.valid_time[[i]]),
        "step": samples.step,
        "latitude": samples.latitude,
        "longitude": samples.longitude,
    }
    return predictive.to_dataset(coordinates, samples.attributes.get("units", ""))


def _line(step: float, name: str, states: xr.Dataset, raw: xr.Dataset) -> Line:
    dates = states.sizes["time"]
    method: Method = "student" if dates < FEW_DATES else "bootstrap"
    scores = summarise(states, raw, method=method)

    def bounds(score: str) -> tuple[float, float, float]:
        low, high = float(scores[f"{score}_lower"]), float(scores[f"{score}_upper"])
        return float(scores[score]), low, high

    crps, difference, skill = (bounds(s) for s in ("crps", "crps_difference", "crpss"))
    return Line(step, name, dates, crps, difference, skill)


def markdown(lines: Sequence[Line], target: str, units: str, step_units: str) -> str:
    """Return the table of all steps and methods as Markdown."""
    heads = [f"lead ({step_units})", "method", f"CRPS ({units})", f"CRPS less raw ({units})"]
    rows = []
    for line in lines:
        value, low, high = line.crps
        crps = f"{value:.3f} [{low:.3f}, {high:.3f}]"
        if line.method == "raw":
            rows.append([str(line.step), "raw", crps, ABSENT, ABSENT])
            continue
        change = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*line.difference)
        skill = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*line.crpss)
        rows.append([str(line.step), line.method, crps, change, skill])
    dates = lines[0].dates
    interval = "Student's t" if dates < FEW_DATES else _BLOCKS
    table = markdown_of(columns_of([*heads, "CRPSS"], rows, text=range(5)), escape=False)
    return (
        f"{table}\n{target}; each year predicted by a fit to the others; plain CRPS for the "
        "members of raw, closed form for the normals; no area weights; in brackets 95 % intervals "
        f"over {dates} start dates ({interval}, paired where a difference is shown).\n"
    )


def to_csv(lines: Sequence[Line]) -> str:
    """Return all numbers as CSV, one row for each step and method."""
    parts = ("", "_lower", "_upper")
    scores = [f"{score}{part}" for score in ("crps", "difference", "crpss") for part in parts]
    rows = [[n.step, n.method, n.dates, *n.crps, *n.difference, *n.crpss] for n in lines]
    return csv_of(["step", "method", "dates", *scores], rows, ".6g")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.leave_one_year_out")
    parser.add_argument("store", type=Path)
    parser.add_argument("--target", default="t2m")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    add_cell_options(parser)
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    truth = open_store(options.store, "truth")
    units = truth[resolve(options.target, [str(v) for v in truth])].attrs.get("units", "")
    steps = [step_number(step) for step in np.atleast_1d(truth["step"].to_numpy())]
    for step in steps:
        _years(options.store, f"{options.target}@{step}")
    cells = [StepCell(options.store, options.target, step, options.out) for step in steps]
    failed = False
    if not options.tables:
        counts = {"workers": options.workers, "threads": options.threads}
        failed = run_cells(cells, **counts, older=options.keep_older).failed
    with Results(options.out).temporary_folder() as cells_folder:
        lines = read_lines(cells_folder, cells)
    if not lines:
        raise MissingDataError(options.out, [cell.name for cell in cells], "See above")
    table = markdown(lines, options.target, units, truth["step"].attrs.get("units", "h"))
    write_files(options.out, {"table.md": table, "table.csv": to_csv(lines)})
    print(table)
    return int(failed)


if __name__ == "__main__":  # cells are pickled by the name of this module
    from ens10.experiments.studies.leave_one_year_out import main as command

    sys.exit(command())
