"""Skill at places that were left out of the training, by their distance to those of the training.

    python -m ens10.experiments.studies.unseen_places OUT
    python -m ens10.experiments.studies.unseen_places OUT --store stations.zarr --target t2m@48

The places are in four folds. The methods are fitted to the places of the other folds, and scored on
the last third of the dates. Without a store the stations are made up: their climates and biases
follow altitude, a smooth field, and noise of each station.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.loader.batches import open_samples
from ens10.metrics import score_states
from ens10.models.statistical import EMOS, AnomalyEMOS, Raw, RawNormal, StatisticalMethod, fit
from ens10.models.statistical.place_regression import chords, places_in, unit_vectors
from ens10.stations import as_row, as_stations, has_stations
from ens10.store import open_store
from ens10.usage import command_parser, reports_errors

Array = npt.NDArray[Any]
METHODS: Mapping[str, StatisticalMethod] = {
    "raw": Raw(),
    "raw_normal": RawNormal(),
    "emos_global": EMOS(),
    "emos_samos": AnomalyEMOS(),
}
OWN: Mapping[str, StatisticalMethod] = {  # with past truth of each place
    "emos_local, fitted there": EMOS(local=True),
    "emos_samos, fitted there": AnomalyEMOS(),
}
_FOLDS = 4
_FEWEST = 8  # places, of which six are in a fit
_TRAINING = 2 / 3  # of the dates
_EARTH_KM = 6371.0


def make_stations(places: int = 120, dates: int = 240, seed: int = 0) -> tuple[xr.DataArray, ...]:
    """Return members and truth (K) of made-up stations: N(0, 1) anomalies times a local climate.

    Args:
        places: number of stations, between 47 and 55 degrees north and 6 and 15 degrees east.
        dates: 60 a year.
        seed: of all random numbers.
    """
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(47, 55, places), rng.uniform(6, 15, places)
    altitude = rng.gamma(1.0, 400.0, places)
    vectors = unit_vectors(np.stack([lat, lon]))
    smooth = np.linalg.cholesky(np.exp(-_EARTH_KM * chords(vectors, vectors) / 200))
    fields, own = smooth @ rng.normal(size=(places, 4)), rng.normal(size=(places, 2))
    season = np.cos(2 * np.pi * np.arange(dates) / 60)[:, None]
    mean = 285 - 0.6 * (lat - 50) - 0.005 * altitude + 0.5 * own[:, 0] - (8 + fields[:, 0]) * season
    scale = 3 * np.exp(0.2 * fields[:, 1])
    bias = fields[:, 2] - 0.003 * altitude + 0.3 * own[:, 1]
    weather = 0.9 * rng.normal(size=(dates, 1)) + 0.4 * rng.normal(size=(dates, places)) @ smooth.T
    spread = 0.35 * np.exp(0.3 * rng.normal(size=(dates, places)))
    members = weather[:, None] + spread[:, None] * rng.normal(size=(dates, 10, places))
    error = np.hypot(0.15, 0.9 * spread) * rng.normal(size=(dates, places))
    truth = np.exp(0.1 * fields[:, 3]) * (0.9 * members.mean(1) + error)
    hours = (np.arange(dates) * 365.2425 / 60 * 24).astype("m8[h]")
    coordinates = {
        "time": np.datetime64("2001-01-01", "ns") + hours,
        "station": [f"{n:03}" for n in range(places)],
        "lat": ("station", lat),
        "lon": ("station", lon),
        "altitude": ("station", altitude),
    }
    ahead = xr.DataArray(
        mean[:, None] + scale * members, coordinates, ("time", "number", "station")
    )
    observed = mean + bias * (1 + 0.3 * season) + scale * truth
    return ahead, xr.DataArray(observed, coordinates, ("time", "station"))


def read_stations(store: Path, target: str) -> tuple[xr.DataArray, ...]:
    """Return members and truth of a prepared store of stations, on the dates that have both.

    Raises:
        ArgumentError: the store has a grid.
    """
    samples = open_samples(store, target)
    forecast, truth = (open_store(store, kind)[samples.target] for kind in ("sfc", "truth"))
    if not has_stations(forecast):
        raise ArgumentError("store", "it has a grid, not stations", "Prepare one of stations")
    parts = [as_stations(one.sel(step=samples.step)) for one in (forecast, truth)]
    return parts[0].load(), parts[1].load()


def crps_of_places(members: xr.DataArray, truth: xr.DataArray) -> dict[str, Array]:
    """Return the mean CRPS of the last third of the dates at each place, by method.

    Args:
        members: of all places.
        truth: of all places.

    Raises:
        ArgumentError: too few places for the folds.
    """
    if members.sizes["station"] < _FEWEST:
        reason = f"{members.sizes['station']} stations are too few to leave some out"
        raise ArgumentError("store", reason, f"Use {_FEWEST} or more")
    first = round(members.sizes["time"] * _TRAINING)
    past, later = {"time": slice(0, first)}, {"time": slice(first, None)}
    numbers = np.arange(members.sizes["station"])
    found = {name: np.full(len(numbers), np.nan) for name in METHODS}
    for fold in range(_FOLDS):
        held, kept = (
            numbers[mask] for mask in (numbers % _FOLDS == fold, numbers % _FOLDS != fold)
        )
        for name, method in METHODS.items():
            train = {**past, "station": kept}
            fitted = fit(method, members.isel(train), truth.isel(train), join="inner")
            test = {**later, "station": held}
            found[name][held] = _map(fitted(members.isel(test)), truth.isel(test))
    for name, method in OWN.items():
        fitted = fit(method, members.isel(past), truth.isel(past), join="inner")
        found[name] = _map(fitted(members.isel(later)), truth.isel(later))
    return found


def _map(forecast: xr.Dataset, truth: xr.DataArray) -> Array:
    states = score_states(forecast, truth, ["crps"], weights="none", join="inner")
    return np.asarray(states["crps_map_sum"] / states["crps_map_weight"])


def nearest_km(members: xr.DataArray) -> Array:
    """Return the distance of each place, km, to the nearest of those in other folds."""
    lat, lon, _ = places_in(as_row(members).coords.to_dataset())[:, 0]
    vectors, folds = unit_vectors(np.stack([lat, lon])), np.arange(len(lat)) % _FOLDS
    same = folds[:, None] == folds
    chord = np.where(same, np.inf, chords(vectors, vectors)).min(1)
    return np.asarray(2 * _EARTH_KM * np.arcsin(chord / 2))


def groups(members: xr.DataArray) -> dict[str, Array]:
    """Return masks of the places: all, and thirds by distance and by altitude."""
    size = members.sizes["station"]
    masks = {"all": np.ones(size, bool)}
    values = {"km to the nearest": nearest_km(members)}
    if "altitude" in members.coords and members["altitude"].notnull().any():
        values["m of altitude"] = members["altitude"].to_numpy()
    for label, x in values.items():
        edges = np.nanquantile(x, [0, 1 / 3, 2 / 3, 1])
        for n, (low, high) in enumerate(itertools.pairwise(edges)):
            inside = (x >= low) & ((x < high) | (n == 2))
            masks[f"{low:.0f} to {high:.0f} {label}"] = inside
    return masks


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print the table; exit status 1, with one line, on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.unseen_places")
    parser.add_argument("out", type=Path, help="folder of the table")
    parser.add_argument("--store", type=Path, help="prepared, of stations; default: made up")
    parser.add_argument("--target", default="t2m", help="channel and lead time, such as t2m@48")
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    data = read_stations(options.store, options.target) if options.store else make_stations()
    scores = crps_of_places(*data)
    rows = [
        [label, int(mask.sum()), *(float(np.nanmean(x[mask])) for x in scores.values())]
        for label, mask in groups(data[0]).items()
    ]
    heads = ["places left out", "number", *scores]
    shown = [[str(row[0]), str(row[1]), *(f"{x:.2f}" for x in row[2:])] for row in rows]
    text = markdown_of(columns_of(heads, shown, text=[0]))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(heads, rows)})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
