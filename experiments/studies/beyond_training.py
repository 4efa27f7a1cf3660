"""Forecasts beyond what the training has seen, in a climate with a trend.

    python -m ens10.experiments.studies.beyond_training OUT

Made-up temperatures at stations warm by a tenth of a kelvin a year. The forecast model is biased,
varies too little and is too sure of itself. Methods are fitted to the first years and scored on the
last ones: on all dates, and on those whose ensemble mean is above each one of the training (a
choice by the forecast, so that scores stay proper). "0.99 exceeded" is the share of those dates
with a truth above the forecast's quantile at 0.99; 0.01 is right.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.metrics import score_states
from ens10.models.statistical import (
    EMOS,
    Climatology,
    IsotonicRegression,
    MemberByMember,
    Raw,
    RawNormal,
    SeasonalEMOS,
    StatisticalMethod,
    fit,
)
from ens10.usage import command_parser, count, reports_errors

METHODS: Mapping[str, StatisticalMethod] = {
    "raw": Raw(),
    "raw_normal": RawNormal(),
    "climatology": Climatology(),
    "emos_local": EMOS(local=True),
    "emos_seasonal": SeasonalEMOS(),
    "member_by_member": MemberByMember(),
    "isotonic": IsotonicRegression(),
    "isotonic, Pareto tails": IsotonicRegression(tails="both"),
}
YEARS, PAST = 20, 12
_DATES = 73  # a year: every fifth day
_TREND = 0.1  # K a year


def make_world(places: int = 100, seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """Return members and truth (K) at stations, of every fifth day of `YEARS` years.

    Args:
        places: number of stations, each with weather of its own.
        seed: of all random numbers.
    """
    rng = np.random.default_rng(seed)
    dates = YEARS * _DATES
    year = (np.arange(dates) / _DATES)[:, None]
    cycle = 290 + rng.normal(0, 3, places) - 8 * np.cos(2 * np.pi * year) + _TREND * year
    known, unknown = rng.normal(0, 3, (dates, places)), rng.normal(0, 1, (dates, places))
    noise = rng.normal(0, 0.8, (dates, 10, places))
    centre = 290 + 0.85 * (cycle + known - 290) - rng.normal(1, 0.5, places)
    days = (365.25 / _DATES * 24 * np.arange(dates)).astype("m8[h]")
    coordinates = {
        "time": np.datetime64("2001-01-01", "ns") + days,
        "station": [f"{n:03}" for n in range(places)],
        "lat": ("station", np.linspace(45, 55, places)),
        "lon": ("station", np.linspace(5, 15, places)),
    }
    members = xr.DataArray(centre[:, None] + noise, coordinates, ("time", "number", "station"))
    return members, xr.DataArray(cycle + known + unknown, coordinates, ("time", "station"))


def scores_of(members: xr.DataArray, truth: xr.DataArray) -> list[dict[str, Any]]:
    """Fit each method to the first years; return its scores on the others, a row each.

    Args:
        members: (time, number, station).
        truth: (time, station).
    """
    past, later = ({"time": part} for part in (slice(0, PAST * _DATES), slice(PAST * _DATES, None)))
    mean = members.mean("number")
    beyond = mean.isel(later) > mean.isel(past).max("time")
    rows = []
    for name, method in METHODS.items():
        fitted = fit(method, members.isel(past), truth.isel(past))
        forecast: xr.Dataset = fitted(members.isel(later), quantiles=[0.99])
        row: dict[str, Any] = {"method": name}
        observed = truth.isel(later)
        for label, dates in (("all", observed), ("beyond", observed.where(beyond))):
            dates = dates.dropna("time", how="all")
            one = forecast.sel(time=dates["time"])
            states = score_states(one, dates, ["crps"], weights="none")
            row[label] = float(states["crps_sum"].sum() / states["crps_weight"].sum())
        exceeded = observed > forecast["forecast_quantile"].isel(quantile_level=0)
        row["0.99 exceeded"] = float(exceeded.where(beyond).mean())
        rows.append({**row, "cases": int(beyond.sum())})
    return rows


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print the table, means over worlds; exit status 1, with one line, on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.beyond_training")
    parser.add_argument("out", type=Path, help="folder of the table")
    parser.add_argument("--seeds", type=count, default=3, help="worlds (default: %(default)s)")
    parser.add_argument("--places", type=count, default=100, help="stations (default: %(default)s)")
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    worlds = [scores_of(*make_world(options.places, seed)) for seed in range(options.seeds)]
    names = ("all", "beyond", "0.99 exceeded", "cases")
    rows = [
        [same[0]["method"], *(float(np.mean([row[name] for row in same])) for name in names)]
        for same in zip(*worlds, strict=True)
    ]
    heads = ["method", "CRPS, all dates (K)", "CRPS beyond (K)", "0.99 exceeded", "dates beyond"]
    shown = [[str(row[0]), *(f"{x:.3f}" for x in row[1:4]), f"{row[4]:,.0f}"] for row in rows]
    text = markdown_of(columns_of(heads, shown))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(heads, rows)})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
