"""Draw all figures of the scores of runs, each as a PNG.

    python -m ens10.experiments.score_figures runs/raw runs/unet --out figures

The event of the reliability and ROC diagrams is a truth above a quantile (`--quantile`) of all
truth at its grid point.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from ens10.durable import whole_file
from ens10.errors import ArgumentError
from ens10.experiments.figures import skill_map
from ens10.experiments.reading import open_predictions
from ens10.experiments.reporting.diagnostics import QUANTILE, Diagnosis, diagnose
from ens10.metrics import figures as draw
from ens10.metrics import reliability_diagram, roc_curve, score_states, summarise
from ens10.stations import as_row, has_stations
from ens10.usage import command_parser, reports_errors


def score_figures(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    reference: str = "raw",
    quantile: float = QUANTILE,
) -> list[Path]:
    """Draw maps of skill and bias, histograms, diagrams, scores by latitude and a score card.

    Args:
        runs: run folders with predictions, of the same dates and grid.
        out: folder for the PNG files; made if needed.
        reference: name of the run that skill is measured against.
        quantile: of the truth at each grid point, over which an event begins.

    Returns:
        The files written.

    Raises:
        ArgumentError: the reference is none of the runs.
        FileError: a run has no predictions.
    """
    paths = {Path(run).resolve().name: Path(run) for run in runs}
    if reference not in paths:
        raise ArgumentError("reference", f"{reference!r} is not among {sorted(paths)}")
    states, diagnoses = {}, {}
    for name, path in paths.items():
        forecast, truth = open_predictions(path)
        states[name] = score_states(as_row(forecast), as_row(truth), by=["latitude_band"])
        dates = states[name]["time"].to_numpy()
        diagnosis = diagnose(path, dates, quantile=quantile, by_members=True)
        if diagnosis is not None:
            diagnoses[name] = diagnosis
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, make in _makers(diagnoses, states, reference).items():
        with whole_file(folder / f"{name}.png") as file:
            make().savefig(file, format="png", dpi=150)
        files.append(folder / f"{name}.png")
    return files


def _makers(
    diagnoses: Mapping[str, Diagnosis], states: Mapping[str, xr.Dataset], reference: str
) -> dict[str, Callable[[], Figure]]:
    others = [name for name in states if name != reference]
    units = str(states[reference]["crps_map_sum"].attrs.get("units", ""))
    makers: dict[str, Callable[[], Figure]] = {
        "bias": lambda: draw.score_maps(
            {n: one.bias for n, one in diagnoses.items()}, f"bias ({units})", signed="deviation"
        ),
        "histograms": lambda: draw.histogram_figure(_histograms(states)),
        "latitude": lambda: draw.latitude_figure({n: _by_row(s) for n, s in states.items()}),
        "reliability": lambda: draw.reliability_figure(
            {n: reliability_diagram(d.events, independent=0.01) for n, d in diagnoses.items()}
        ),
        "roc": lambda: draw.roc_figure({n: roc_curve(d.events) for n, d in diagnoses.items()}),
    }
    if has_stations(states[reference]):
        del makers["latitude"]  # stations have no rows
    if others:
        skills = {n: 100 * skill_map(states[n], states[reference]) for n in others}
        label = f"CRPSS against {reference} (%)"
        makers["skill"] = lambda: draw.score_maps(skills, label, signed="better")
        makers["card"] = lambda: _card(states, others, reference, label)
    return makers


def _by_row(states: xr.Dataset) -> xr.DataArray:
    totals = states[[f"crps_map_{part}" for part in ("sum", "weight")]].sum("longitude")
    mean = totals["crps_map_sum"] / totals["crps_map_weight"]
    attrs = {"long_name": "mean CRPS", "units": states["crps_map_sum"].attrs.get("units", "")}
    return mean.rename("crps").assign_attrs(attrs)


def _histograms(states: Mapping[str, xr.Dataset]) -> dict[str, xr.DataArray]:
    histograms = {}
    for name, state in states.items():
        kind = "rank" if "rank_count" in state else "pit"
        counts = state[f"{kind}_count"]
        extra = [d for d in counts.dims if d not in ("rank", "pit_bin")]
        histograms[f"{name}: {kind.upper() if kind == 'pit' else kind}"] = counts.sum(extra)
    return histograms


def _card(
    states: Mapping[str, xr.Dataset], others: Sequence[str], reference: str, label: str
) -> Figure:
    parts: dict[str, list[xr.DataArray]] = {"crpss": [], "crpss_lower": [], "crpss_upper": []}
    for name in others:
        scores = summarise(states[name], states[reference], by=["latitude_band"])
        for part, cells in parts.items():
            cells.append(100 * scores[part].expand_dims(run=[name]))
    skill, lower, upper = (xr.concat(c, "run", join="exact") for c in parts.values())
    return draw.score_card(skill, lower, upper, label=label)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 with one line on bad input."""
    parser = command_parser(
        "python -m ens10.experiments.score_figures", (__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--reference", default="raw")
    parser.add_argument("--quantile", type=float, default=QUANTILE)
    for path in score_figures(**vars(parser.parse_args(arguments))):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
