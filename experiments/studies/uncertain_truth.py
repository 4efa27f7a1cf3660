"""Whether the ranking of methods survives errors of the truth.

    python -m ens10.experiments.studies.uncertain_truth OUT

At made-up stations, whose true state is known, methods are fitted to and scored against analyses:
the true state with normal errors, either random or correlated with those of the forecast model.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.unseen_places import make_stations
from ens10.metrics import score_states
from ens10.models.statistical import EMOS, AnomalyEMOS, Raw, StatisticalMethod, fit
from ens10.usage import command_parser, reports_errors

METHODS: Mapping[str, StatisticalMethod] = {
    "raw": Raw(),
    "emos_global": EMOS(),
    "emos_local": EMOS(local=True),
    "emos_samos": AnomalyEMOS(),
}
CASES = (  # deviation of the analysis error (K), its kind, correlation with the model's error
    (0.0, "none", 0.0),
    (0.5, "random", 0.0),
    (0.5, "correlated", 0.7),
    (1.0, "random", 0.0),
    (1.0, "correlated", 0.7),
)
_TRAINING = 2 / 3  # of the dates


def analysis(
    members: xr.DataArray, truth: xr.DataArray, error: float, correlation: float
) -> xr.DataArray:
    """Return the true state plus normal errors, correlated with the errors of the ensemble mean.

    Args:
        members: of the forecast.
        truth: the true state.
        error: standard deviation of the errors.
        correlation: with the errors of the ensemble mean, less the mean error of each place.
    """
    noise = np.random.default_rng(1).normal(size=truth.shape)
    model = members.mean("number") - truth
    model = (model - model.mean("time")) / model.std("time")
    errors: xr.DataArray = correlation * model + np.sqrt(1 - correlation**2) * noise
    return truth + error * errors


def scores(
    members: xr.DataArray, truth: xr.DataArray, error: float, correlation: float
) -> dict[str, list[float]]:
    """Return each method's CRPS against the true state, the analysis, and that with its error.

    Args:
        members: of the forecast.
        truth: the true state.
        error: of the analysis.
        correlation: see `analysis`.
    """
    analysed = analysis(members, truth, error, correlation)
    first = round(members.sizes["time"] * _TRAINING)
    past, later = {"time": slice(0, first)}, {"time": slice(first, None)}
    found = {}
    for name, method in METHODS.items():
        forecast = fit(method, members.isel(past), analysed.isel(past))(members.isel(later))
        pairs = ((truth, 0.0), (analysed, 0.0), (analysed, error))
        found[name] = [_crps(forecast, one.isel(later), e) for one, e in pairs]
    return found


def _crps(forecast: xr.Dataset, truth: xr.DataArray, error: float) -> float:
    states = score_states(forecast, truth, ["crps"], weights="none", truth_error=error)
    return float(states["crps_sum"].sum() / states["crps_weight"].sum())


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print the table; exit status 1, with one line, on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.uncertain_truth")
    parser.add_argument("out", type=Path, help="folder of the table")
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    members, truth = make_stations()
    rows: list[list[str | float]] = []
    for error, kind, correlation in CASES:
        found = scores(members, truth, error, correlation)
        label = f"{error:g} K, {kind}" if error else "none"
        columns = [*zip(("true state", "analysis", "with its error"), *found.values(), strict=True)]
        rows += [[label, *column] for column in (columns if error else columns[:1])]
    heads = ["error of the analysis", "scored against", *METHODS]
    shown = [[*map(str, row[:2]), *(f"{x:.3f}" for x in row[2:])] for row in rows]
    text = markdown_of(columns_of(heads, shown, text=[0, 1]))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(heads, rows)})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
