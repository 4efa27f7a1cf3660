"""The location-aware U-Net and its ensembles through the real command line."""

import csv
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml

import ens10
from ens10 import catalog
from ens10.cli import main
from ens10.experiments.demo import config_path
from ens10.experiments.runs.reading import open_predictions
from ens10.source import open_source

NETWORK = "--model.init_args.network.init_args."
STRENGTH = "--model.init_args.head.init_args.method.init_args.strength"


# 4 means, 4 deviations, 1 mask, 3 of location, 2 of the day
FEW = ["--data.inputs", "[t2m,u10,sst,t2m@0]", NETWORK + "in_channels", 14]


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    names = ("t2m", "u10", "sst")
    return prepared("8x16", range(2000, 2005), 4, names, steps=(0, 48)) / "store.zarr"


def command(*arguments, status=0):
    assert main([str(a) for a in arguments]) == status


def fit(name, store, run, *options, epochs=2, grid="[8,16]", status=0, inner=""):
    given = ["--config", config_path(name), "--trainer.max_epochs", epochs, "--quiet"]
    options = (NETWORK + inner + "grid", grid, *options)
    command("fit", *given, "--data.store", store, "--run", run, *options, status=status)


def logged(run, column):
    with (run / "log" / "metrics.csv").open() as file:
        return [float(row[column]) for row in csv.DictReader(file) if row[column]]


@pytest.mark.parametrize(
    "name",
    ["location_unet", "shared_trunk", pytest.param("deep_ensemble", marks=pytest.mark.slow)],
)
def test_a_few_steps_train_resume_predict_and_score(name, store, tmp_path):
    run = tmp_path / name
    fit(name, store, run, *FEW)
    losses = logged(run, "train_loss")
    assert losses[-1] < losses[0]
    method = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 3)
    assert len(logged(run, "train_loss")) == 3
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    kept = [key for key in method if key.startswith("head.method.")]
    assert kept
    assert all(torch.equal(method[key], state[key]) for key in kept)
    command("predict", "--run", run, "--quiet")
    assert open_predictions(run)[0].attrs["forecast_kind"] == "normal"
    command("score", run)
    with (run / "scores.csv").open() as file:
        crps = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}["crps"]
    assert 0.1 < crps < 3
    if name == "shared_trunk":  # a bundle gives the forecasts of the run for other files
        command("bundle", run, "--out", tmp_path / "one.ens10")
        forecast, _ = open_predictions(run)
        date = open_source(store.parent / "world").sel(time=forecast["time"].to_numpy()[:1]).load()
        found = ens10.load_model(tmp_path / "one.ens10")(date)
        np.testing.assert_allclose(found["mu"], forecast["mu"][:1], rtol=1e-6)


def test_without_a_step_it_is_the_statistical_method(store, tmp_path):
    """Learning rate 0: validation scores are those of seasonal EMOS, run as a model of its own."""
    rate = "--model.init_args.optimizer.init_args.lr"
    fit("location_unet", store, tmp_path / "unet", *FEW, rate, 0.0, STRENGTH, 20.0, epochs=1)
    method = {"class_path": "ens10.models.statistical.SeasonalEMOS"}
    method["init_args"] = {"harmonics": 1, "strength": 20.0}
    model = {"class_path": "ens10.models.StatisticalPostProcessor", "init_args": {"method": method}}
    config = tmp_path / "emos.yaml"
    data = {"target": "t2m", "inputs": ["t2m"], "store": str(store)}
    config.write_text(yaml.safe_dump({"model": model, "data": data, "trainer": {"max_epochs": 1}}))
    command("fit", "--config", config, "--run", tmp_path / "emos", "--quiet")
    unet, emos = (logged(tmp_path / name, "val_crps") for name in ("unet", "emos"))
    assert unet == pytest.approx(emos, rel=1e-6)


def test_one_clear_error_for_another_grid(store, tmp_path, capsys):
    fit("location_unet", store, tmp_path / "run", *FEW, grid="[16,8]", status=1)
    said = " ".join(capsys.readouterr().err.split())
    assert "does not fit the data: grid is [16, 8]. Set grid to [8, 16], or leave it out" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_processes_start_from_the_method_of_all_dates(store, tmp_path):
    """Each trains on half of the dates, yet the coefficients are those of one process."""
    together = ["--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy", "ddp"]
    states = []
    for name, options in (("alone", []), ("both", together)):
        given = ["--config", config_path("location_unet"), *FEW, NETWORK + "grid", "[8,16]"]
        given += ["--data.store", store, "--trainer.max_epochs", 1, "--run", tmp_path / name]
        program = [sys.executable, "-m", "ens10", "fit", "--quiet", *given, *options]
        done = subprocess.run(
            list(map(str, program)),
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr
        path = tmp_path / name / "checkpoints" / "last.ckpt"
        states.append(torch.load(path, weights_only=True)["state_dict"])
    assert "MEMBER: 2/2" in done.stderr
    for key in ("coefficients", "centre", "floor", "solved"):
        one, two = (state[f"head.method.{key}"] for state in states)
        assert torch.equal(one, two)
        assert one.any()


@pytest.mark.slow
def test_the_shipped_inputs(prepared, tmp_path):
    names = (*catalog.names_of_kind("sfc"), *catalog.names_of_kind("pl"))
    every = prepared("8x16", range(2000, 2005), 4, names, steps=(0, 24, 48)) / "store.zarr"
    for name in ("location_unet", "shared_trunk", "deep_ensemble", "location_smoe"):
        run = tmp_path / name
        inner = "network.init_args." if name == "location_smoe" else ""
        # an epoch trains each member of a shared trunk on a fifth of the dates
        fit(name, every, run, inner=inner, epochs=4 if name == "shared_trunk" else 2)
        losses = logged(run, "train_loss")
        assert losses[-1] < losses[0]
        command("predict", "--run", run, "--quiet")
