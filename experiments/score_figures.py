"""Draw all figures of the scores of runs, each as a PNG.

    python -m ens10.experiments.score_figures runs/raw runs/unet --out figures

The event of the reliability and ROC diagrams is a truth above a quantile (`--quantile`) of all
truth at its grid point.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from ens10.durable import whole_file
from ens10.errors import ArgumentError
from ens10.experiments.figures import skill_map
from ens10.experiments.reading import open_predictions
from ens10.grid import area_weights
from ens10.metrics import (
    event_sums,
    exceedance_event,
    exceedance_probability,
    exceedance_probability_normal,
    reliability_diagram,
    roc_curve,
    score_states,
    summarise,
)
from ens10.metrics import figures as draw
from ens10.stations import as_row, as_stations, has_stations
from ens10.usage import command_parser, reports_errors

_KINDS = ("normal", "ensemble")


def score_figures(
    runs: Sequence[Path | str], out: Path | str, *, reference: str = "raw", quantile: float = 0.9
) -> list[Path]:
    """Draw maps of skill and bias, histograms, diagrams, scores by latitude and a score card.

    Args:
        runs: run folders with predictions of normals or ensembles, of the same dates and grid.
        out: folder for the PNG files; made if needed.
        reference: name of the run that skill is measured against.
        quantile: of the truth at each grid point, over which an event begins.

    Returns:
        The files written.

    Raises:
        ArgumentError: the reference is none of the runs, or a run is neither normal nor ensemble.
        FileError: a run has no predictions.
    """
    paths = {Path(run).resolve().name: Path(run) for run in runs}
    if reference not in paths:
        raise ArgumentError("reference", f"{reference!r} is not among {sorted(paths)}")
    predictions = {name: open_predictions(run) for name, run in paths.items()}
    pairs = {name: (as_row(f), as_row(t)) for name, (f, t) in predictions.items()}
    for name, (forecast, _) in pairs.items():
        if forecast.attrs["forecast_kind"] not in _KINDS:
            raise ArgumentError("runs", f"{name} is a {forecast.attrs['forecast_kind']} forecast")
    states = {n: score_states(*pair, by=["latitude_band"]) for n, pair in pairs.items()}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, make in _makers(pairs, states, reference, quantile).items():
        with whole_file(folder / f"{name}.png") as file:
            make().savefig(file, format="png", dpi=150)
        files.append(folder / f"{name}.png")
    return files


def _makers(
    pairs: Mapping[str, tuple[xr.Dataset, xr.DataArray]],
    states: Mapping[str, xr.Dataset],
    reference: str,
    quantile: float,
) -> dict[str, Callable[[], Figure]]:
    others = [name for name in states if name != reference]
    units = str(states[reference]["crps_map_sum"].attrs.get("units", ""))
    sums = {name: _sums(*pair, quantile) for name, pair in pairs.items()}
    makers: dict[str, Callable[[], Figure]] = {
        "bias": lambda: draw.score_maps(
            {n: _bias(*pair) for n, pair in pairs.items()}, f"bias ({units})", signed="deviation"
        ),
        "histograms": lambda: draw.histogram_figure(_histograms(states)),
        "latitude": lambda: draw.latitude_figure({n: _by_row(s) for n, s in states.items()}),
        "reliability": lambda: draw.reliability_figure(
            {n: reliability_diagram(s, independent=0.01) for n, s in sums.items()}
        ),
        "roc": lambda: draw.roc_figure({n: roc_curve(s) for n, s in sums.items()}),
    }
    if has_stations(next(iter(pairs.values()))[1]):
        del makers["latitude"]  # stations have no rows
    if others:
        skills = {n: 100 * skill_map(states[n], states[reference]) for n in others}
        label = f"CRPSS against {reference} (%)"
        makers["skill"] = lambda: draw.score_maps(skills, label, signed="better")
        makers["card"] = lambda: _card(states, others, reference, label)
    return makers


def _mean(forecast: xr.Dataset) -> xr.DataArray:
    return forecast["members"].mean("number") if "members" in forecast else forecast["mu"]


def _bias(forecast: xr.Dataset, truth: xr.DataArray) -> xr.DataArray:
    return as_stations((_mean(forecast) - truth).mean("time").compute())


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


def _sums(forecast: xr.Dataset, truth: xr.DataArray, quantile: float) -> xr.Dataset:
    """Return the sums for a reliability diagram of values above a quantile of the truth.

    Probabilities are binned by the number of members above it, or in ten bins.
    """
    threshold = truth.load().quantile(quantile, "time").drop_vars("quantile")
    threshold = threshold.astype(truth.dtype).assign_attrs(truth.attrs)
    event = exceedance_event(truth, threshold)
    options: dict[str, Any] = {"bins": 10}
    if "members" in forecast:
        options = {"members": forecast.sizes["number"]}
        probability = exceedance_probability(forecast["members"], threshold, member_dim="number")
    else:
        probability = exceedance_probability_normal(forecast["mu"], forecast["sigma"], threshold)
    rows = xr.DataArray(
        area_weights(truth["latitude"].to_numpy()),
        dims="latitude",
        coords={"latitude": truth["latitude"]},
    )
    fields = [a.reset_coords(drop=True) for a in (probability, event)]
    return event_sums(*fields, dim="all", weights=rows, **options).compute()


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
    parser.add_argument("--quantile", type=float, default=0.9)
    for path in score_figures(**vars(parser.parse_args(arguments))):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
