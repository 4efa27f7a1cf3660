"""Networks of mixtures of experts and of members, trained a little through the command line."""

import csv

import pytest
import torch

from ens10.cli import main
from ens10.experiments.demo import config_path
from ens10.experiments.runs.reading import open_predictions

GRID = "--model.init_args.network.init_args.grid"
ROUTED = ("--model.init_args.network.init_args.experts.routing_loss", "true")
# above log 2 = 0.69, its value where gates are at 0; theirs start at random
ROUTING_LOSS = {"smoe_resnet": 1, "smoe_paper": 1.5}
CONFIGS = {
    "smoe_unet": (GRID, "[8,16]"),
    "smoe_paper": (GRID, "[8,16]"),
    "smoe_regions": (GRID, "[8,16]"),
    "smoe_resnet": (GRID, "[8,16]", *ROUTED),
    "unet_members": (),
}


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    return prepared("8x16", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"


def command(*arguments, status=0):
    assert main([str(a) for a in arguments]) == status


def fit(name, store, run, *options, status=0):
    config = ["--config", config_path(name), "--trainer.max_epochs", 2, "--run", run, "--quiet"]
    command("fit", *config, "--data.store", store, *options, status=status)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_few_steps_train_predict_and_score(name, store, tmp_path):
    run = tmp_path / name
    fit(name, store, run, *CONFIGS[name])
    with (run / "log" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["train_loss"]) for row in rows if row["train_loss"]]
    assert losses[-1] < losses[0]
    routing = [float(value) for row in rows if (value := row.get("train_routing_loss"))]
    most = ROUTING_LOSS.get(name)
    assert len(routing) == (2 if most else 0)  # one for each epoch
    assert all(0.1 < value < most for value in routing)
    command("predict", "--run", run, "--quiet")
    assert open_predictions(run)[0].attrs["forecast_kind"] == "normal"
    command("score", run)
    with (run / "scores.csv").open() as file:
        crps = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}["crps"]
    assert 0.1 < crps < 5


@pytest.mark.slow
def test_gates_move_and_go_with_the_checkpoint(store, tmp_path):
    runs = {}
    for name, scale in (("still", "0"), ("moved", "0.003")):
        rate = ("--model.init_args.optimizer.init_args.lr", scale)
        fit("smoe_resnet", store, tmp_path / name, *CONFIGS["smoe_resnet"][:2], *rate)
        (path,) = (tmp_path / name / "checkpoints").glob("last.ckpt")
        state = torch.load(path, weights_only=True)["state_dict"]
        runs[name] = {key: value for key, value in state.items() if "gate.weight" in key}
    assert len(runs["moved"]) == 4
    for key, start in runs["still"].items():
        assert start.shape[1:] == (8, 16)
        assert ((runs["moved"][key] - start) != 0).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("smoe_unet", (GRID, "[16,8]"), "Set grid to [8, 16], or leave it out"),
        ("smoe_resnet", (GRID, "[16,8]"), "Set grid to [8, 16], or leave it out"),
        ("unet_members", ("--data.kind", "fields"), "Set data.kind to members"),
        ("unet_members", ("--data.ensemble", "1"), "needs at least 2 members"),
    ],
)
def test_one_clear_error(name, options, message, store, tmp_path, capsys):
    fit(name, store, tmp_path / "run", *options, status=1)
    assert message in " ".join(capsys.readouterr().err.split())
