"""Make the stored runs anew: run folders, bundles and their forecasts, which later code must open.

    python tests/stored_runs.py WORK

Writes tests/data/stored/runs.tar.xz. Do this only if a format changes on purpose: what the archive
holds stands for the runs that people have.

store.zarr, forecast.nc      prepared data of a small world, and two dates of another one
NAME/                        run folder: one fit (of networks, one epoch), predictions and scores
NAME.ens10, NAME.nc          its bundle, and what `ens10 apply` makes of forecast.nc with it
resumed/NAME/                log and predictions of a network after a second epoch
"""

import argparse
import os
import re
import shutil
import sys
import tarfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import xarray as xr

ARCHIVE = Path(__file__).parent / "data" / "stored" / "runs.tar.xz"
# units, level, size and smallest difference of each variable
VARIABLES = {
    "t2m": ("K", 280.0, 3.0, 1 / 16),
    "u10": ("m s**-1", 0.0, 4.0, 1 / 16),
    "v10": ("m s**-1", 0.0, 4.0, 1 / 16),
    "tp": ("m", 0.0, 0.004, 2.0**-14),
}
QUANTILES = (0.1, 0.9)
REGIONS = """
model:
  class_path: ens10.models.StatisticalPostProcessor
  init_args:
    method: {class_path: ens10.models.statistical.RegionalRegression, init_args: {regions: 2}}
data: {target: t2m}
trainer: {max_epochs: 1, accelerator: cpu, devices: 1}
"""
METHOD, NETWORK = "--model.init_args.method.init_args.", "--model.init_args.network.init_args."
# Adam with an epsilon far above the rounding of gradients, which it else amplifies
STEADY = ("--model.init_args.optimizer.init_args.eps=1e-4", "--trainer.max_epochs=1")
STEADY += ("--trainer.accelerator=cpu", "--trainer.devices=1", "--data.batch_size=2")
STEADY += ("--model.init_args.optimizer.init_args.lr=0.03",)
STATISTICAL = {
    "raw": (),
    "climatology": (),
    "seasonal_climatology": (f"{METHOD}harmonics=1",),
    "bias_map": (),
    "emos_global": (),
    "emos_local": (),
    "emos_paper": (),
    "emos_window": (f"{METHOD}days=1000",),
    "emos_seasonal": (),
    "emos_logistic": (),
    "emos_truncated": (),
    "emos_censored": (),
    "emos_ridge": (),
    "emos_advection": (),
    "emos_boosting": (f"{METHOD}steps=50",),
    "emos_csg": (),
    "emos_gev": (),
    "member_by_member": (),
    "isotonic": (f"{METHOD}levels=5", f"{METHOD}nodes=6"),
    "ecc": (),
    "schaake": (f"{METHOD}members=3",),
    "regions": (),
    "two_targets": ("--data.target=[t2m,u10]", "--data.inputs=[t2m,u10]"),
}
NETWORKS = {
    "unet": (*STEADY, f"{NETWORK}in_channels=11"),
    "smoe_unet": (
        *STEADY,
        f"{NETWORK}width=2",
        f"{NETWORK}in_channels=11",
        f"{NETWORK}grid=[8,8]",
        f"{NETWORK}experts.filters=1",
    ),
    "transformer_members": (
        *STEADY,
        "--data.inputs=[t2m,u10,v10,tp]",
        f"{NETWORK}in_channels=13",
        f"{NETWORK}grid=[8,8]",
        f"{NETWORK}widths=[4,4,4]",
        f"{NETWORK}embedding=2",
        f"{NETWORK}embedding_levels=2",
        f"{NETWORK}block.init_args.heads=2",
        f"{NETWORK}block.init_args.key_channels=2",
    ),
}
RUNS = {**STATISTICAL, **NETWORKS}
CONFIGS = {"two_targets": "emos_local"}  # of another name than the run


def command(*arguments):
    """Run a command of ens10 in this process."""
    from ens10.cli import main

    if status := main([str(argument) for argument in arguments]):
        sys.exit(status)


def predict_and_score(run, store):
    command("predict", "--run", run, "--data.store", store, "--quiet")
    command("score", run)


def resume(run, store):
    """Train one epoch more."""
    command("fit", "--run", run, "--resume", "--trainer.max_epochs=2", "--data.store", store,
            "--quiet")  # fmt: skip


def apply_bundle(bundle, forecast, out):
    from ens10.experiments.forecasts.apply import apply
    from ens10.experiments.forecasts.products import Products

    return apply([bundle], forecast, out, products=Products(QUANTILES))


def thin_unet(run, channels=2):
    """Set all but a few channels of a U-Net's checkpoints to 0, so that 7 MB compress to nothing.

    The other channels of a layer get no gradient then, and stay 0.
    """
    import torch

    for path in Path(run, "checkpoints").glob("*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        state = checkpoint["state_dict"]
        names = [name for name in state if name.endswith((".weight", ".bias"))]
        moments = checkpoint["optimizer_states"][0]["state"]
        assert len(moments) == len(names)
        for n, name in enumerate(names):
            values = [state[name], moments[n]["exp_avg"], moments[n]["exp_avg_sq"]]
            assert all(value.shape == state[name].shape for value in values)
            for value in values:
                _thin(name, value, channels)
        for name in state:
            if name.endswith("running_mean"):
                state[name][channels:] = 0
            elif name.endswith("running_var"):
                state[name][channels:] = 1
        for name in names:  # of batch normalisations
            if state[name].ndim == 1 and name.endswith("weight"):
                state[name][channels:] = 1
        torch.save(checkpoint, path)


def _thin(name, value, channels):
    """Keep the first channels of a layer, and of both halves of what it takes behind a pass."""
    if len(value) > channels:
        value[channels:] = 0
    if value.ndim == 4 and value.shape[1] > 11:
        half = value.shape[1] // 2 if re.search(r"up_\d\.0\.", name) else value.shape[1]
        value[:, channels:half], value[:, half + channels :] = 0, 0


def small_world(seed, years, dates=("01-10", "05-10", "09-10"), members=3):
    """Forecasts and truth of t2m, u10, v10 and tp on 8 x 8 points, in xarray."""
    random = np.random.RandomState(seed)  # its numbers are the same in every version of numpy
    start = np.array([f"{y}-{d}" for y in years for d in dates], "datetime64[ns]")
    shape = (len(start), 1, members, 8, 8)
    season = np.cos(2 * np.pi * (start - start.astype("M8[Y]")) / np.timedelta64(365, "D"))
    season = season.reshape(-1, 1, 1, 1, 1)
    row = np.cos(np.radians(np.linspace(90, -90, 8)))[:, None]
    coords = {
        "time": start,
        "step": ("step", [48], {"units": "h"}),
        "number": np.arange(members),
        "latitude": ("latitude", np.linspace(90, -90, 8), {"units": "degrees_north"}),
        "longitude": ("longitude", np.arange(8) * 45.0, {"units": "degrees_east"}),
    }
    forecasts, truth = {}, {}
    for name, (units, level, size, step) in VARIABLES.items():
        common = size * random.normal(size=(len(start), 1, 1, 8, 8))
        middle = level + size * (season + row) + common
        values = middle + 0.4 * size * random.normal(size=shape)
        error = 0.3 * size * random.normal(size=(8, 8)) * (1 + 0.5 * season[:, 0, 0])
        error = error + 0.6 * size * random.normal(size=(len(start), 8, 8))
        both = [values, values[:, 0].mean(1) + error]
        # few digits: small files
        both = [np.round(x / step) * step for x in both]
        if name == "tp":
            both = [np.maximum(x, 0) for x in both]
        attrs = {"units": units} | ({"window": "since start"} if name == "tp" else {})
        forecasts[name] = (tuple(coords), both[0].astype(np.float32), attrs)
        truth[name] = (("time", "latitude", "longitude"), both[1].astype(np.float32), attrs)
    valid = {**coords, "time": start + np.timedelta64(48, "h")}
    valid = {name: valid[name] for name in ("time", "latitude", "longitude")}
    return xr.Dataset(forecasts, coords), xr.Dataset(truth, valid)


def make_data():
    """Write store.zarr and forecast.nc into the working folder."""
    from ens10.convert import prepare

    forecasts, truth = small_world(0, range(2000, 2008))
    prepare(forecasts, "store.zarr", truth=truth[["t2m", "u10", "tp"]], codec="lz4", workers=1)
    forecast, _ = small_world(1, [2009], ("01-12", "05-08"))
    forecast.to_netcdf("forecast.nc", engine="netcdf4")


def make_run(name):
    """Write one run and what comes of it into the working folder."""
    from ens10.experiments.demo import config_path
    from ens10.experiments.forecasts.bundle import bundle

    config = CONFIGS.get(name, name)
    if name == "regions":
        Path("regions.yaml").write_text(REGIONS)
    path = Path("regions.yaml") if name == "regions" else config_path(config)
    command("fit", "--config", path, "--data.store", "store.zarr", "--run", name, "--quiet",
            *RUNS[name])  # fmt: skip
    if name == "unet":
        thin_unet(name)
    predict_and_score(name, "store.zarr")
    Path(f"{name}.ens10").unlink(missing_ok=True)
    bundle(name, f"{name}.ens10", licence="CC0-1.0")
    if name in NETWORKS:
        copy = Path("resumed", name)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(name, copy)
        resume(copy, "store.zarr")
        command("predict", "--run", copy, "--data.store", "store.zarr", "--quiet")
        for path in copy.iterdir():
            if path.name not in ("log", "predictions.zarr"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    apply_bundle(f"{name}.ens10", "forecast.nc", f"{name}.nc")


def pack(folder, archive):
    """Write the archive, of equal bytes for equal files."""

    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return None if Path(info.name).name.endswith(".lock") else info

    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as file:
        for path in sorted(folder.iterdir()):
            if path.name not in ("regions.yaml", "state"):
                file.add(path, path.name, filter=plain)


def main(arguments=None):
    """Make all runs that the working folder lacks, and pack them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder for what is packed; what it has is kept")
    given = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_STATE_HOME"] = str(given.work.resolve() / "state")
    with chdir(given.work):
        if not Path("forecast.nc").exists():
            make_data()
        for name in RUNS:
            if not Path(f"{name}.nc").exists():
                print(name, file=sys.stderr)
                shutil.rmtree(name, ignore_errors=True)
                make_run(name)
    pack(given.work, ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
