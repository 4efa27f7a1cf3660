"""Small run folders whose scores are made by score_states from forecasts of known quality."""

import json
import shutil

import numpy as np
import xarray as xr

from ens10.metrics import score_states

GRID = (6, 12)
# error left by each model (the optimum's noise is 1), sigma and parameters
MODELS = {"emos": (0.6, 1.17, 4), "unet": (0.3, 1.05, 636002), "optimum": (0.0, 1.0, None)}


def coordinates(dates, grid=GRID, region=None, start="2004-01-01"):
    time = np.datetime64(start, "ns") + np.arange(dates) * np.timedelta64(3, "D")
    if region is None:
        latitude = np.linspace(90, -90, 2 * grid[0] + 1)[1::2]
        longitude = np.arange(grid[1]) * 360 / grid[1]
    else:
        latitude, longitude = region
    return {
        "time": time,
        "valid_time": ("time", time + np.timedelta64(48, "h")),
        "step": ((), 48.0, {"units": "h"}),
        "latitude": latitude,
        "longitude": longitude,
    }


def world(dates=40, grid=GRID, region=None, start="2004-01-01", seed=0, members=5):
    """Truth, and forecasts by name: raw (biased, too narrow), emos, unet and the optimum."""
    rng = np.random.default_rng(seed)
    coords = coordinates(dates, grid, region, start)
    shape = (dates, len(coords["latitude"]), len(coords["longitude"]))
    dims = ("time", "latitude", "longitude")
    known = 280 + 5 * rng.normal(size=shape)
    attrs = {"units": "K"}
    truth = xr.DataArray(known + rng.normal(size=shape), coords, dims, attrs=attrs)
    x = known[:, None] + 0.8 + 0.5 * rng.normal(size=(dates, members, *shape[1:]))
    x += 0.4 * rng.normal(size=shape)[:, None]
    ensemble = xr.DataArray(x, coords, ("time", "number", *dims[1:]), attrs=attrs)
    kind = {"forecast_kind": "ensemble"}
    forecasts = {"raw": xr.Dataset({"members": ensemble}, attrs=kind)}
    for name, (error, sigma, _) in MODELS.items():
        mu = truth.copy(data=known + error * rng.normal(size=shape))
        variables = {"mu": mu, "sigma": xr.full_like(mu, sigma)}
        forecasts[name] = xr.Dataset(variables, attrs={"forecast_kind": "normal"})
    return truth, forecasts


def write_run(folder, states, provenance=None, log=None):
    folder.mkdir(parents=True)
    states.to_netcdf(folder / "scores.nc", engine="netcdf4")
    if provenance is not None:
        (folder / "provenance.json").write_text(json.dumps(provenance))
    if log is not None:
        (folder / "log").mkdir()
        (folder / "log" / "metrics.csv").write_text(log)
    return folder


def provenance_of(name, seed=0):
    kinds = {"raw": "reference", "optimum": "optimum"}
    return {
        "name": name,
        "kind": kinds.get(name, "model"),
        "seed": seed,
        "seconds": 12.3,
        "parameters": MODELS.get(name, (0, 0, None))[2],
        "target": "t2m",
        "target_units": "K",
        "step": 48,
        "step_units": "h",
        "protocol": "clean",
        "weights": "cell",
        "dates": {"train": 280, "val": 40, "test": 40},
        "years": {"train": [1998, 1999, 2000, 2002], "val": [2003], "test": [2004]},
        "versions": {"ens10": "0.1.0", "torch": "2.13.0"},
        "commit": "abc123",
        "data": {"store": "world.zarr", "checksum": "0011aabb"},
    }


def with_damaged_chunks(run, copy, name):
    """A copy whose predictions have a chunk a date and no manifest; a variable is damaged but for
    its first date, which is read when the store is opened."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("predictions.zarr"))
    store = copy / "predictions.zarr"
    with xr.open_zarr(run / "predictions.zarr", consolidated=False) as whole:
        parts = whole.load().drop_encoding().chunk(time=1)
    parts.to_zarr(store, consolidated=False)
    for chunk in (store / name / "c").rglob("*"):
        if chunk.is_file() and chunk.relative_to(store / name / "c").parts[0] != "0":
            chunk.write_bytes(b"damaged")
    return copy


def training_log(epochs=6, best=4):
    lines = ["epoch,step,train_loss,val_crps,val_loss"]
    for epoch in range(epochs):
        loss = 0.6 + 0.02 * abs(epoch - best)
        lines.append(f"{epoch},{10 * epoch},,{loss},{loss}")
        lines.append(f"{epoch},{10 * epoch},{0.7 / (1 + 0.1 * epoch)},,")
    return "\n".join(lines) + "\n"


def write_world(folder, names=("raw", "emos", "unet", "optimum"), weights="cell", **options):
    """Run folders by name."""
    truth, forecasts = world(**options)
    return {
        name: write_run(
            folder / name,
            score_states(forecasts[name], truth, weights=weights),
            provenance_of(name),
            training_log() if name == "unet" else None,
        )
        for name in names
    }
