"""The run folder: complete, re-usable, resumable, station by station or in one go."""

import csv
import json
import shutil
import signal
from itertools import count
from types import SimpleNamespace

import pytest
import realruns
import torch
import yaml
from realruns import command, finish, fit, subprocess_of

from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError
from ens10.experiments.runs import fit_cost, provenance
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.run_results import read_run
from ens10.experiments.training.run import run_stage
from ens10.synthetic import World

NAMES = ("raw", "emos_global", "emos_local", "mlp", "unet")


def checkpoint(run, which="last"):
    return torch.load(run / "checkpoints" / f"{which}.ckpt", weights_only=True)


def log(run):
    with (run / "log" / "metrics.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def assert_same_weights(one, other):
    mine, its = checkpoint(one)["state_dict"], checkpoint(other)["state_dict"]
    assert mine.keys() == its.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], its[key], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_folder_is_complete(runs, name):
    run = runs[name]
    assert {path.name for path in run.iterdir()} == {
        "config.yaml",
        "provenance.json",
        "log",
        "checkpoints",
        "predictions.zarr",
        "scores.nc",
        "scores.csv",
    }
    saved = {"best.ckpt", "last.ckpt"} | ({"previous.ckpt"} if name in ("mlp", "unet") else set())
    assert {p.name for p in (run / "checkpoints").iterdir()} == saved
    known = json.loads((run / "provenance.json").read_text())
    assert known["name"] == name
    assert known["kind"] == ("reference" if name == "raw" else "model")
    assert known["dates"] == {"train": 12, "val": 4, "test": 8}
    assert known["years"] == {"train": [2000, 2001, 2002], "val": [2003], "test": [2004, 2005]}
    assert known["target"] == "t2m"
    assert known["target_units"] == "K"
    assert known["seed"] == 0
    assert type(known["seconds"]) is float
    assert known["versions"]["torch"]
    assert len(known["data"]["checksum"]) == 16
    finished = read_run(run)
    assert finished.kind == known["kind"]
    epochs = realruns.EPOCHS if name in ("mlp", "unet") else 1
    assert [epoch.number for epoch in finished.log] == list(range(epochs))


@pytest.mark.parametrize(
    ("name", "parameters"), [("raw", 0), ("emos_global", 4), ("emos_local", 4 * 8 * 16)]
)
def test_fitted_coefficients_are_counted_as_parameters(runs, name, parameters):
    assert provenance.read_provenance(runs[name])["parameters"] == parameters


def test_the_networks_parameters_are_counted(runs):
    held = checkpoint(runs["unet"])["state_dict"]
    trained = [v for k, v in held.items() if k.endswith(("weight", "bias"))]
    assert provenance.read_provenance(runs["unet"])["parameters"] == sum(v.numel() for v in trained)


def test_the_configuration_of_a_run_makes_the_same_run(runs, store, tmp_path):
    command("fit", "--config", runs["mlp"] / "config.yaml", "--run", tmp_path / "mlp", "--quiet")
    finish(tmp_path / "mlp")
    for file in ("config.yaml", "scores.csv"):
        assert (tmp_path / "mlp" / file).read_bytes() == (runs["mlp"] / file).read_bytes()
    assert_same_weights(tmp_path / "mlp", runs["mlp"])
    content = yaml.safe_load((runs["mlp"] / "config.yaml").read_text())
    assert content["data"]["store"] == str(store)
    assert content["trainer"]["max_epochs"] == realruns.EPOCHS
    assert "seed" not in content["data"]


def test_another_seed_gives_another_network_and_the_same_emos(runs, store, tmp_path):
    for name in ("mlp", "emos_local"):
        other = finish(fit(name, store, tmp_path / name, "--seed_everything", 1))
        same = (other / "scores.csv").read_bytes() == (runs[name] / "scores.csv").read_bytes()
        assert same == (name == "emos_local")


@pytest.mark.slow
def test_station_by_station_is_in_one_go(runs, tmp_path):
    """Predictions and scores of fresh processes, from the checkpoint alone."""
    run = runs["unet"]
    copy = tmp_path / "unet"
    left_out = shutil.ignore_patterns("predictions.zarr", "scores.*", "log")
    shutil.copytree(run, copy, ignore=left_out)
    for arguments in (("predict", "--run", copy, "--quiet"), ("score", copy)):
        done = subprocess_of(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
    forecast, truth = open_predictions(copy)
    before, truth_before = open_predictions(run)
    assert forecast.identical(before)
    assert truth.identical(truth_before)
    assert (copy / "scores.csv").read_bytes() == (run / "scores.csv").read_bytes()


def test_the_best_checkpoint_is_that_of_the_least_validation_loss(store, tmp_path):
    # the learning rate is so large that later epochs are worse
    rate = ["--model.init_args.optimizer.init_args.lr", "1.0"]
    run = fit("mlp", store, tmp_path / "mlp", *rate, epochs=4)
    losses = {int(row["epoch"]): row["val_loss"] for row in log(run) if "val_loss" in row}
    assert sorted(losses) == [0, 1, 2, 3]
    best = checkpoint(run, "best")
    assert best["epoch"] == min(losses, key=losses.get)
    done = run_stage("validate", ["--run", str(run), "--quiet"]).trainer.callback_metrics
    assert float(done["val_loss"]) == pytest.approx(min(losses.values()), rel=1e-5)
    assert checkpoint(run)["epoch"] == 3


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """A run of four epochs that nothing interrupted."""
    return finish(fit("mlp", store, tmp_path_factory.mktemp("whole") / "mlp", epochs=4))


@pytest.mark.parametrize("at", [(1, 0), (2, 1), pytest.param((0, 1), marks=pytest.mark.slow)])
def test_a_resumed_fit_is_an_uninterrupted_one(store, whole, tmp_path, at):
    realruns.StopAt.stopped = False
    stop = ["--trainer.callbacks+", "realruns.StopAt"]
    for option, value in zip(("epoch", "batch"), at, strict=True):
        stop += [f"--trainer.callbacks.{option}", value]
    parts = tmp_path / "b" / "mlp"
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_stage("fit", _fit_arguments("mlp", store, parts, *stop))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert realruns.StopAt.stopped
    assert (parts / "checkpoints" / "last.ckpt").is_file() == (at[0] > 0)
    command("fit", "--run", parts, "--resume", "--quiet")
    assert_same_weights(parts, whole)
    assert log(parts) == log(whole)
    schedules = [checkpoint(run)["lr_schedulers"] for run in (parts, whole)]
    assert schedules[0] == schedules[1]
    assert checkpoint(parts, "best")["epoch"] == checkpoint(whole, "best")["epoch"]
    finish(parts)
    assert (parts / "scores.csv").read_bytes() == (whole / "scores.csv").read_bytes()


def _fit_arguments(name, store, run, *options, epochs=4):
    config = ["--config", str(realruns.config_path(name)), "--data.store", str(store)]
    limit = ["--trainer.max_epochs", str(epochs)]
    return [*config, "--run", str(run), "--quiet", *limit, *map(str, options)]


def test_resuming_a_finished_fit_changes_nothing(runs, tmp_path):
    for name in ("mlp", "emos_local"):
        run = tmp_path / name
        shutil.copytree(runs[name], run)
        command("fit", "--run", run, "--resume", "--quiet")
        assert_same_weights(run, runs[name])
        assert log(run) == log(runs[name])
        for file in ("config.yaml", "scores.csv"):
            assert (run / file).read_bytes() == (runs[name] / file).read_bytes()
        finish(run)
        assert (run / "scores.csv").read_bytes() == (runs[name] / "scores.csv").read_bytes()


def test_a_finished_fit_can_be_resumed_for_more_epochs(runs, whole, tmp_path):
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 4)
    assert_same_weights(run, whole)
    assert log(run) == log(whole)


def test_the_cost_of_a_resumed_fit_includes_what_earlier_processes_spent(
    runs, tmp_path, monkeypatch
):
    """Also of processes that were killed, which could not write it: it is in the checkpoint."""
    readings = count()
    clock = SimpleNamespace(perf_counter=lambda: 20.0, process_time=lambda: next(readings))
    monkeypatch.setattr(fit_cost, "time", clock)
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    content = checkpoint(run)
    content["callbacks"]["FitCost"] |= {"cpu_seconds": 1000.0, "seconds": 2000.0}
    torch.save(content, run / "checkpoints" / "last.ckpt")
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 4)
    known = provenance.read_provenance(run)
    spent = checkpoint(run)["callbacks"]["FitCost"]
    assert 1000 < spent["cpu_seconds"] < known["cpu_seconds"] == 1000 + next(readings) - 1
    assert spent["seconds"] == known["seconds"] == 2000  # of a clock that stands still


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_a_stage_needs_a_run(tmp_path, stage):
    with pytest.raises(FileError, match=r"no run .*ens10 fit"):
        run_stage(stage, ["--run", str(tmp_path / "none")])
    with pytest.raises(ArgumentError, match="--run"):
        run_stage(stage, [])


def test_resuming_nothing_is_told(tmp_path, capsys):
    command("fit", "--run", tmp_path / "none", "--resume", status=1)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_holds_a_run_is_refused(runs, store, capsys):
    before = (runs["mlp"] / "config.yaml").read_bytes()
    arguments = ["--config", realruns.config_path("raw"), "--data.store", store]
    command("fit", *arguments, "--run", runs["mlp"], status=1)
    message = capsys.readouterr().err
    assert "--resume" in message
    assert message.count("\n") == 1
    assert (runs["mlp"] / "config.yaml").read_bytes() == before


def test_a_fit_that_cannot_begin_leaves_no_run_behind(store, tmp_path, capsys):
    wrong = ["--model.init_args.network.init_args.in_channels", "7"]
    run = tmp_path / "mlp"
    command("fit", *_fit_arguments("mlp", store, run, *wrong), status=1)
    assert "26" in capsys.readouterr().err
    fit("mlp", store, run)


def test_the_checkpoint_tells_features_and_statistics(runs):
    held = checkpoint(runs["unet"], "best")["EnsembleDataModule"]
    assert held["channels"][:2] == ["sst:mean", "tcw:mean"]
    assert held["channels"][-1] == "sst:mask"
    assert held["mean"].shape == held["scale"].shape == (23, 8, 16)
    assert provenance.read_provenance(runs["unet"])["channels"][:23] == held["channels"]


def test_a_run_without_validation_of_an_earlier_version(store, tmp_path):
    """Its checkpoint has the state of checkpoints under the name of Lightning's own."""
    rules = ["--data.protocol.train", 0.6, "--data.protocol.val", 0, "--data.protocol.test", 0.4]
    run = finish(fit("emos_local", store, tmp_path / "run", *rules, "--data.protocol.name", "part"))
    kept = open_predictions(run)[0].load()
    file = run / "checkpoints/best.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    states = checkpoint["callbacks"]
    checkpoint["callbacks"] = {
        key.replace("RunCheckpoints", "ModelCheckpoint"): state for key, state in states.items()
    }
    assert checkpoint["callbacks"].keys() != states.keys()
    torch.save(checkpoint, file)
    command("predict", "--run", run, "--quiet")
    again = open_predictions(run)[0].load()
    assert again.identical(kept)


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """Another store on the same grid, of other years and another climate."""
    world = World("8x16", range(2010, 2014), 3, seed=5, steps=(48,))
    folder = world.write(tmp_path_factory.mktemp("later") / "world")
    prepare(folder, folder.parent / "store.zarr", truth=folder / "truth")
    return folder.parent / "store.zarr"


def test_other_data_are_predicted_with_the_trainings_statistics(runs, later, tmp_path):
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    done = run_stage("predict", ["--run", str(run), "--quiet", "--data.store", str(later)])
    used = done.datamodule.batches("test").normaliser
    held = checkpoint(run, "best")["EnsembleDataModule"]
    torch.testing.assert_close(torch.from_numpy(used.mean), held["mean"], rtol=0, atol=0)
    forecast, _ = open_predictions(run)
    assert set(forecast["time"].dt.year.to_numpy()) == {2012, 2013}
    fresh = fit("mlp", later, tmp_path / "fresh")
    own = checkpoint(fresh, "best")["EnsembleDataModule"]["mean"]
    assert not torch.allclose(own, held["mean"])


@pytest.mark.parametrize(
    ("grid", "variables", "says"),
    [
        ("8x16", ["t2m", "u10", "v10", "tp"], "inputs|sst"),
        ("12x16", None, "grid"),
    ],
)
def test_data_that_do_not_fit_the_checkpoint_are_refused(
    runs, tmp_path, capsys, grid, variables, says
):
    world = World(grid, range(2010, 2014), 1, variables, seed=5, steps=(48,))
    folder = world.write(tmp_path / "world")
    prepare(folder, tmp_path / "store.zarr", truth=folder / "truth")
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    arguments = ["--run", run, "--quiet", "--data.store", tmp_path / "store.zarr"]
    command("predict", *arguments, status=1)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert any(word in message for word in says.split("|"))
    assert (run / "predictions.zarr" / "zarr.json").is_file()  # those of before


def test_inputs_in_another_order_are_refused(store, tmp_path, capsys):
    options = ["--model.init_args.network.init_args.in_channels", 7]
    run = fit("mlp", store, tmp_path / "mlp", *options, "--data.inputs", "[t2m, u10]")
    other = ["--data.inputs", "[u10, t2m]"]
    command("predict", "--run", run, "--quiet", *other, status=1)
    assert "t2m:mean" in capsys.readouterr().err


@pytest.mark.slow
def test_a_quiet_run_says_nothing(store, tmp_path):
    run = tmp_path / "mlp"
    config = ["--config", realruns.config_path("mlp"), "--data.store", store]
    limit = ["--trainer.max_epochs", 1]
    done = subprocess_of("fit", *config, "--run", run, "--quiet", *limit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = subprocess_of("predict", "--run", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "arning" not in done.stdout
