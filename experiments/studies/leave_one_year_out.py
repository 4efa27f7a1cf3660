"""Statistical methods on few years: each year is predicted from a fit to all other years.

python -m ens10.experiments.studies.leave_one_year_out STORE --target t2m --out DIR
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from ens10.channels import resolve, step_number
from ens10.errors import ArgumentError, MissingDataError
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.trainings import states_file
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.run_results import load_states
from ens10.experiments.scoring.tables import FEW_DATES, interval_of
from ens10.experiments.scoring.writers import ABSENT, columns_of, csv_of, markdown_of
from ens10.experiments.studies.study import compute, run_study, study_parser, with_bounds
from ens10.loader.batch import Batch
from ens10.loader.batches import Batches
from ens10.loader.datamodule import as_tensors
from ens10.metrics import Interval, score_states, summarise
from ens10.metrics.uncertainty import Method
from ens10.models.statistical import EMOS, Climatology, Raw, RawNormal
from ens10.models.statistical.base import StatisticalMethod
from ens10.protocol import Protocol
from ens10.store import open_store
from ens10.usage import reports_errors

METHODS: dict[str, Callable[[], StatisticalMethod]] = {
    "raw": Raw,
    "raw_normal": RawNormal,
    "climatology": Climatology,
    "emos_global": EMOS,
    "emos_local": lambda: EMOS(local=True),
}
_STATIONS = ("ens10.loader", "ens10.models.statistical", "ens10.metrics")
_BLOCKS = "block bootstrap, blocks by the dependence of the dates"


@dataclass(frozen=True)
class Line:
    """One method at one step, with intervals over start dates.

    Attributes:
        step: lead time, in the store's units.
        method: name.
        dates: number of start dates.
        crps: mean CRPS, in the target's units.
        difference: mean CRPS less that of raw.
        crpss: skill against raw.
    """

    step: float
    method: str
    dates: int
    crps: Interval
    difference: Interval
    crpss: Interval


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
        states = score_methods(self.store, f"{self.target}@{self.step}")
        return {f"{name}.nc": states_file(one) for name, one in states.items()}


def read_lines(cells_folder: Path, cells: Sequence[StepCell]) -> list[Line]:
    """Return the lines of the unpacked cells that exist, a line for each step and method."""
    lines = []
    for cell in cells:
        folder = cells_folder / cell.place
        if folder.is_dir():
            states = {name: load_states(folder / f"{name}.nc") for name in METHODS}
            lines += lines_of(cell.step, states)
    return lines


def score_methods(
    store: Path | str, target: str, names: Sequence[str] = tuple(METHODS)
) -> dict[str, xr.Dataset]:
    """Return the score states of each method over all years, each predicted from the others.

    The features are normalised with all years, so the methods must not use them.

    Args:
        store: prepared data with truth.
        target: channel and step, such as "t2m@1".
        names: of methods in `METHODS`.

    Raises:
        ArgumentError: fewer than three years, which leave too few to fit.
    """
    protocol = Protocol("leave-one-year-out", [], [], _years(store, target), weighting="none")
    channel = [target.partition("@")[0]]
    options: dict[str, Any] = {"protocol": protocol, "members": True, "shuffle": False}
    data = Batches(store, target, channel, "train", **options)  # opened once for all folds
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
    times = truth["time"].to_numpy()

    def states(parts: Sequence[xr.Dataset]) -> xr.Dataset:
        joined = xr.concat(parts, "time", combine_attrs="override").sel(time=times)
        return score_states(joined, truth, weights="none")

    return {name: states(parts) for name, parts in forecasts.items()}


def _coordinates(data: Batches, index: Any) -> dict[str, Any]:
    samples = data.samples
    return {
        "time": samples.time[index],
        "valid_time": ("time", samples.valid_time[index]),
        "latitude": samples.latitude,
        "longitude": samples.longitude,
    }


def _truth(data: Batches) -> xr.DataArray:
    fields = np.stack([data.samples.truth(int(i)) for i in data.index])
    dims = ("time", "latitude", "longitude")
    return xr.DataArray(fields, _coordinates(data, data.index), dims)


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
    with torch.no_grad():
        predictive = method(batch)
    coordinates = {**_coordinates(data, [i]), "step": data.samples.step}
    return predictive.to_dataset(coordinates, data.samples.attributes.get("units", ""))


def lines_of(step: float, states: Mapping[str, xr.Dataset]) -> list[Line]:
    """Return a line for each method from the states of their scores, "raw" among them."""
    lines = []
    for name, own in states.items():
        dates = own.sizes["time"]
        scores = summarise(own, states["raw"], method=_method(dates))
        bounds = [interval_of(scores, score) for score in ("crps", "crps_difference", "crpss")]
        lines.append(Line(step, name, dates, *bounds))
    return lines


def _method(dates: int) -> Method:
    return "student" if dates < FEW_DATES else "bootstrap"


def markdown(lines: Sequence[Line], target: str, units: str, step_units: str) -> str:
    """Return the table of all steps and methods as Markdown."""
    heads = [f"lead ({step_units})", "method", f"CRPS ({units})", f"CRPS less raw ({units})"]
    rows = []
    for line in lines:
        changes = [ABSENT, ABSENT]
        if line.method != "raw":
            changes = [with_bounds(score, "+.3f") for score in (line.difference, line.crpss)]
        rows.append([str(line.step), line.method, with_bounds(line.crps, ".3f"), *changes])
    dates = lines[0].dates
    interval = "Student's t" if _method(dates) == "student" else _BLOCKS
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
    rows = [
        [n.step, n.method, n.dates]
        + [x for i in (n.crps, n.difference, n.crpss) for x in (i.value, i.lower, i.upper)]
        for n in lines
    ]
    return csv_of(["step", "method", "dates", *scores], rows, ".6g")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("leave_one_year_out", work="store")
    parser.add_argument("--target", default="t2m")
    options = parser.parse_args(arguments)
    truth = open_store(options.store, "truth")
    steps = [step_number(step) for step in np.atleast_1d(truth["step"].to_numpy())]
    resolve(options.target, [str(v) for v in truth])
    for step in steps:
        _years(options.store, f"{options.target}@{step}")
    cells = [StepCell(options.store, options.target, step, options.out) for step in steps]

    def write(cells_folder: Path, _: Outcome) -> str:
        lines = read_lines(cells_folder, cells)
        if not lines:
            raise MissingDataError(options.out, [cell.name for cell in cells], "See above")
        units = truth[resolve(options.target, [str(v) for v in truth])].attrs.get("units", "")
        table = markdown(lines, options.target, units, truth["step"].attrs.get("units", "h"))
        write_files(options.out, {"table.md": table, "table.csv": to_csv(lines)})
        return table

    return run_study(options, lambda: compute(cells, options), write)


if __name__ == "__main__":  # cells are pickled by the name of this module
    from ens10.experiments.studies.leave_one_year_out import main as command

    sys.exit(command())
