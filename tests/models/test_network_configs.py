"""Configurations of the papers' networks, trained a little through the real command line."""

import csv
import shutil

import numpy as np
import pytest
import torch
import xarray as xr
import yaml

from ens10.cli import main
from ens10.experiments.demo import config_path
from ens10.experiments.runs.reading import open_predictions

NAMES = {
    "lenet": "normal",
    "transformer": "normal",
    "transformer_points": "normal",
    "transformer_neighbours": "normal",
    "transformer_members": "normal_mixture",
    "saet": "normal",
    "poet": "ensemble",
    "poet_almost_fair": "ensemble",
    "poet_calibrated": "ensemble",
    "poet_paper": "normal",
    "saet_paper": "normal",
    "saet_calibrated": "normal",
    "groenquist": "normal",
    "coherent_members": "ensemble",
}
RARE = ("poet", "poet_almost_fair", "saet", "groenquist", "lenet")  # close to others
GRID = ("--model.init_args.network.init_args.grid", "[8,16]")
OF_A_GRID = (
    *("groenquist", "transformer_points", "poet_calibrated", "saet_calibrated"),
    "coherent_members",
    *("poet_paper", "saet_paper", "transformer_neighbours", "transformer_members"),
)
GRIDS = dict.fromkeys(OF_A_GRID, GRID)
# without pressure levels; two levels of the network, of which the coarser has 4 x 8 points
FEW = ("--data.inputs", "[t2m,u10]", "--model.init_args.network.init_args.in_channels", 2)
SMALL = ("--model.init_args.network.init_args.attention_levels", 1)
SMALL += ("--model.init_args.network.init_args.widths", "[8,16]")
OPTIONS = {"poet_paper": (*FEW, *SMALL), "saet_paper": FEW}


GRIDS_OF_ANOTHER = ("--model.init_args.network.init_args.grid", "[9,16]")


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    return prepared("8x16", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"


def command(*arguments, status=0):
    assert main([str(a) for a in arguments]) == status


def fit(name, store, run, *options, status=0):
    config = ["--config", config_path(f"{name}"), "--trainer.max_epochs", 2]
    options = (*GRIDS.get(name, ()), *OPTIONS.get(name, ()), *options)
    command("fit", *config, "--data.store", store, "--run", run, "--quiet", *options, status=status)


@pytest.fixture(scope="module")
def coherent(store, tmp_path_factory):
    """A run of coherent members; what predicts into its folder does so in a copy."""
    run = tmp_path_factory.mktemp("coherent") / "run"
    fit("coherent_members", store, run)
    return run


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in RARE else ()) for n in NAMES],
)
def test_a_few_steps_train_predict_and_score(name, store, tmp_path, request):
    run = tmp_path / name
    if name == "coherent_members":
        shutil.copytree(request.getfixturevalue("coherent"), run)
    else:
        fit(name, store, run)
    with (run / "log" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["train_loss"]) for row in rows if row["train_loss"]]
    assert losses[-1] < losses[0]
    command("predict", "--run", run, "--quiet")
    forecast, _ = open_predictions(run)
    assert forecast.attrs["forecast_kind"] == NAMES[name]
    command("score", run)
    with (run / "scores.csv").open() as file:
        crps = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}["crps"]
    assert 0.1 < crps < 5


@pytest.mark.slow
def test_another_number_of_members_than_in_training(store, tmp_path):
    """Trained on five, asked for all ten."""
    run = tmp_path / "poet"
    fit("poet", store, run, "--data.ensemble", 5)
    command("predict", "--run", run, "--quiet")
    assert open_predictions(run)[0].sizes["number"] == 5
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["ensemble"] = None
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    command("predict", "--run", run, "--quiet")
    assert open_predictions(run)[0].sizes["number"] == 10


def test_poet_with_weights_at_each_point_is_bound_to_its_grid(store, tmp_path, capsys):
    grid = "--model.init_args.network.init_args.grid"
    fit("poet", store, tmp_path / "bound", grid, "[8,16]")
    fit("poet", store, tmp_path / "wrong", grid, "[16,8]", status=1)
    assert "Use data on the grid of the training" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("poet", ("--data.members", "false"), "Set data.members to true"),
        ("saet", ("--data.kind", "fields"), "Set data.kind to members"),
        ("groenquist", GRIDS_OF_ANOTHER, "Set grid to [8, 16], or leave it out"),
        ("transformer", ("--data.ensemble", "1"), "needs at least 2 members"),
    ],
)
def test_one_clear_error(name, options, message, store, tmp_path, capsys):
    fit(name, store, tmp_path / "run", *options, status=1)
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_another_number_of_generated_members_than_in_the_configuration(store, coherent, tmp_path):
    """As an option of prediction; they can be repeated, and the first are those of fewer."""
    run = shutil.copytree(coherent, tmp_path / "coherent")
    head = "--model.init_args.head.init_args."
    options = ("--run", run, "--quiet", f"{head}variant=random")
    members = []
    for number in (4, 7, 7):
        command("predict", *options, f"{head}members={number}")
        members.append(open_predictions(run)[0]["members"].load())
    assert members[1].equals(members[2])
    np.testing.assert_allclose(members[0], members[1][:, :4], atol=1e-3)
    assert members[1].sizes["number"] == 7
    command("score", run)
    command("apply", run, store, "--out", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as applied:
        assert applied.sizes["number"] == 50


def test_as_many_members_as_are_asked_for(store, coherent, tmp_path):
    for draws in (3, 7):
        out = tmp_path / f"{draws}.nc"
        command("apply", coherent, store, "--out", out, "--draws", draws)
        with xr.open_dataset(out) as members:
            (name,) = [n for n, held in members.data_vars.items() if "number" in held.dims]
            field = members[name]
            assert field.sizes["number"] == draws
            assert np.isfinite(field).all()
            assert (field.std("number") > 0).all()


def test_the_published_mixed_model_trains_in_stages(prepared, tmp_path):
    """The weights of the spread net move after those of the bias net only."""
    torch.set_num_threads(1)
    world = ("16x16", range(2000, 2006), 2, ("t2m", "u10"))
    store = prepared(*world, seed=0, steps=(48,)) / "store.zarr"
    network = "--model.init_args.network.init_args"
    options = ["--data.inputs", "[t2m,u10]", "--data.target", "t2m", f"{network}.in_channels", 7]
    options += [f"{network}.inputs", 2, f"{network}.target", 0, f"{network}.grid", "[16,16]"]
    config = ["--config", config_path("groenquist_paper"), "--data.store", store, "--quiet"]
    weights = {}
    for epochs in (1, 7):
        run = tmp_path / str(epochs)
        command("fit", *config, *options, "--run", run, "--trainer.max_epochs", epochs)
        (last,) = (run / "checkpoints").glob("last*")
        weights[epochs] = torch.load(last, weights_only=False)["state_dict"]
    names = ("network.spread.last.1.weight", "network.bias.unet.last.weight")
    resting, training = ([w[name].abs().sum() > 0 for name in names] for w in weights.values())
    assert resting == [False, True]
    assert training == [True, True]
    command("predict", "--run", run, "--quiet")
    assert open_predictions(run)[0].attrs["forecast_kind"] == "normal"


@pytest.mark.parametrize(
    ("draws", "said"), [(1, "draws: 1 is less than 2"), (20, "draws no members")]
)
def test_a_wrong_number_of_draws_is_refused(store, coherent, tmp_path, capsys, draws, said):
    run = coherent
    if draws == 20:  # by a model that draws none
        run = tmp_path / "run"
        fit("lenet", store, run, "--trainer.max_epochs", 1)
    command("apply", run, store, "--out", tmp_path / "o.nc", "--draws", draws, status=1)
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "o.nc").exists()
