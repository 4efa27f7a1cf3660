"""The light road, run by the tests in an environment without extras: python FILE GRIB FOLDER."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray as xr

import ens10
from ens10.cli import main
from ens10.export import export
from ens10.extras import EXTRAS, MissingExtraError
from ens10.inspection import inspect_path
from ens10.loader import Batches
from ens10.metrics import crps_ensemble, crps_normal, efi, verify
from ens10.source import open_source
from ens10.synthetic import World


def expect(condition, what):
    """Like assert, also under -O."""
    if not condition:
        raise SystemExit(f"not true: {what}")


def command(*arguments, status=0):
    """What a command prints, which must end with this status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = main([str(a) for a in arguments])
    expect(ended == status, f"ens10 {arguments} ends with {status}: {err.getvalue()}")
    return err.getvalue() if status else out.getvalue()


def real_members(grib, folder):
    """A real GRIB file to a store."""
    store = ens10.prepare(grib, folder / "real")
    levels = ens10.open_store(store, "pl")
    expect(set(levels.data_vars) == {"z", "t"}, "the store has z and t")
    expect(levels.sizes["number"] == 10, "the store has ten members")
    expect(200 < float(levels.t.sel(level=500).mean()) < 280, "a temperature in kelvin")
    expect("500" in command("inspect", grib), "inspect lists the levels of a file")
    expect("z" in command("inspect", store), "inspect lists a store")
    code = "import sys, xarray; d = xarray.open_zarr(sys.argv[1], group='pl', consolidated=False)"
    tell = "print(float(d.t.mean()), 'ens10' in sys.modules)"
    plain = subprocess.run(
        [sys.executable, "-c", f"{code}; {tell}", store], capture_output=True, text=True, check=True
    )
    expect(
        np.isclose(float(plain.stdout.split()[0]), float(levels.t.mean())), "xarray knows packed16"
    )


def world(folder):
    """A small world to a store that is whole, by the commands; returns it."""
    made = World("8x16", range(2000, 2004), 3, ("t2m", "u10", "sst"), steps=(48,), members=3)
    made.write(folder / "world")
    raw, store = folder / "world", folder / "made"
    truth = ("--truth", raw / "truth")
    command("prepare", raw, store, *truth, "--climate", "t2m@48", "--climate-levels", "21")
    expect("intact" in command("verify", store, "--source", raw), "verify finds it whole")
    expect(ens10.verify(store).ok, "verify in Python")
    expect(all(row.status == "ok" for row in inspect_path(store)), "inspect finds it whole")
    expect(open_source(raw).sizes["number"] == 3, "the files are opened as they are")
    return store


def iterate(store):
    """Batches of every kind."""
    batches = Batches(store, "t2m", members=True, batch_size=2, protocol="clean")
    count = 0
    for batch in batches:
        count += len(batch["dates"])
        expect(batch["members"].shape[1:] == (3, 8, 16), "members of the target")
        expect(np.isfinite(batch["features"]).all(), "no gaps in the features")
        scores = crps_ensemble(batch["members"], batch["target"], estimator="fair", member_dim=1)
        expect(np.isfinite(scores).all(), "finite scores")
    expect(count == len(batches.dates) > 0, "every training date comes once")
    for kind in ("members", "slabs", "points"):
        shape = next(iter(Batches(store, "t2m", kind=kind)))["features"].shape
        expect(len(shape) == {"members": 5, "slabs": 4, "points": 2}[kind], f"features of {kind}")


def files(store, folder):
    """A store as files, which hold the same."""
    ours = ens10.open_store(store, "sfc")["t2m"]
    netcdf = export(store, folder / "t2m.nc", variables=["t2m"])
    with xr.open_dataset(netcdf, decode_timedelta=False) as dataset:
        expect(
            np.array_equal(dataset["t2m"].values, ours.values), "netCDF holds the store's values"
        )
    command("export", store, "--to", folder / "t2m.grib", "--variables", "t2m")
    again = open_source(folder / "t2m.grib")["t2m"]
    expect(np.array_equal(again.values, ours.values), "GRIB holds the store's values")


def scores(store, folder):
    """Known values, and the scores of a forecast by the command."""
    unit = (np.sqrt(2) - 1) / np.sqrt(np.pi)
    expect(abs(crps_normal(0.0, 1.0, 0.0) - unit) < 1e-12, "the CRPS of a unit normal at its mean")
    members = xr.DataArray([[0.0, 2.0], [0.0, 4.0]], dims=("time", "number"))
    plain = crps_ensemble(
        members, xr.DataArray([1.0, 2.0], dims="time"), estimator="plain", member_dim="number"
    )
    expect(plain.values.tolist() == [0.5, 1.0], "the plain CRPS of two members")
    ensemble = ens10.open_store(store, "sfc")["t2m"].isel(step=0)
    forecast = xr.Dataset({"members": ensemble}, attrs={"forecast_kind": "ensemble"}).load()
    truth = ens10.open_store(store, "truth")["t2m"].isel(step=0).load()
    table = verify(forecast, truth, ["crps"], method="student")
    forecast.drop_encoding().to_netcdf(folder / "forecast.nc")
    command("score", folder / "forecast.nc", "--truth", store, "--variable", "t2m",
            "--scores", "crps", "--out", folder / "scores")  # fmt: skip
    expect((folder / "scores" / "scores.csv").exists(), "score writes a table")
    expect(float(table["crps"].max()) > 0, "verify finds the CRPS")
    climate = ens10.open_store(store, "climate")["t2m"].isel(judged_year=0, month_day=0, step=0)
    index = efi(ensemble.isel(time=0), climate, member_dim="number", quantile_dim="quantile")
    expect(float(abs(index).max()) <= 1, "an extreme forecast index")


def told(extras, *arguments):
    """A command that needs extras says so in one line."""
    bars, _, said = command(*arguments, status=1).rpartition("ens10: ")
    expect("ens10: " not in bars and said.count("\n") == 1, f"{arguments} says one line: {said}")
    named = f", of the extra {extras.replace(',', ', ')}"
    remedy = ". Install it with: pip install '"
    expect(
        named in said and remedy in said and "ens10[" not in said,
        f"{arguments} names {extras}: {said}",
    )


def extras_are_told(store, folder):
    """What needs an extra names it, on the command line and in Python."""
    for stage in ("fit", "validate", "test", "predict"):
        told("train", stage, "--help")
    told("train", "plan", "--config", "unet.yaml", "--devices", 4, "--memory", 40)
    for stage in ("demo", "reproduce"):
        told("train,plot", stage, "--out", folder / stage)
    told("plot", "report", "runs/raw", "--out", folder / "report")
    told("plot", "case", "runs/raw", "--date", "2016-01-31", "--region", "europe")
    address = ("--scheduler", "tcp://localhost:1")
    told("cluster", "prepare", folder / "world", folder / "other", *address)
    told(
        "cluster", "score", folder / "forecast.nc", "--truth", store, "--variable", "t2m", *address
    )
    told("cloud", "prepare", "gs://bucket/data.zarr", folder / "remote")
    for module, name in (("models", "PostProcessor"), ("loader", "EnsembleDataModule")):
        try:
            exec(f"from ens10.{module} import {name}")
        except MissingExtraError as error:
            expect("of the extra train. " in str(error), f"{name} names its extra")
        else:
            raise SystemExit(f"{name} needs no torch")


def no_extras():
    """Nothing above imported what only extras bring, and nothing of it is here."""
    for module in EXTRAS:
        expect(module not in sys.modules, f"{module} is not imported")
        try:
            __import__(module)
        except ModuleNotFoundError:
            continue
        raise SystemExit(f"{module} is installed here")


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:])
    expect("ECMWF" in command("info"), "info says what ENS-10 is")
    expect("torch not installed" in command("env"), "env says what is not there")
    real_members(source, out)
    prepared = world(out)
    iterate(prepared)
    files(prepared, out)
    scores(prepared, out)
    extras_are_told(prepared, out)
    no_extras()
    print("done")
