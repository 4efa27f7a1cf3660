"""Configurations carried over to other targets, ensembles and protocols; cells of them."""

import csv
import functools
import operator
import shutil

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from realruns import kept_run
from test_ablation_configs import parser_of

from ens10 import catalog
from ens10.convert import prepare
from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.runner import running
from ens10.experiments.runner.tasks import Task, task_options
from ens10.experiments.runner.trainings import find_cells
from ens10.experiments.studies import matrix
from ens10.experiments.training.data_numbers import read_config, training_batches
from ens10.synthetic import World

CONFIGS = config_path("raw").parent
CHANNELS = "--model.init_args.network.init_args.in_channels"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A working folder with the tiny world of one seed, all variables on one level."""
    top = tmp_path_factory.mktemp("tasks")
    names = [*catalog.names_of_kind("sfc"), *catalog.names_of_kind("pl")]
    world = World("6x8", range(2000, 2004), 3, names, seed=0, levels=(500,), steps=(48,))
    world.write(top / "seed0" / "world")
    prepare(world.folder, top / "seed0" / "store.zarr", truth=world.folder / "truth")
    return top


def options(work, model, *task):
    store = work / "seed0" / "store.zarr"
    found = task_options(config_path(model), Task(*task), store)
    return dict(option.removeprefix("--").split("=", 1) for option in found)


@pytest.mark.parametrize("model", ["raw", "emos_paper", "unet", "poet", "transformer", "lenet"])
def test_the_usual_task_changes_nothing(work, model):
    assert options(work, model) == {}  # so that cells from before there were tasks count


def test_all_models_see_the_inputs_of_the_task_but_those_of_the_target_alone(work):
    key = CHANNELS.removeprefix("--")
    task = ("clean", "t2m", 10, ("t2m", "msl", "t500"))
    inputs = {"data.inputs": "[t2m,msl,t500]"}
    assert options(work, "emos_local", *task) == {}
    assert options(work, "emos_ridge", *task) == inputs
    assert options(work, "unet", *task) == {**inputs, key: "9"}  # means, deviations, location
    found = options(work, "transformer_points", *task)
    inner = "model.init_args.network.init_args.network.init_args.in_channels"
    shipped = config_path("transformer_points")
    network = read_config(shipped)["model"]["init_args"]["network"]["init_args"]
    added = network["network"]["init_args"]["in_channels"] - network["in_channels"]
    assert int(found[inner]) - int(found[key]) == added
    with pytest.raises(UnknownNameError, match="t999"):
        options(work, "unet", "clean", "t2m", 10, ("t999",))


def test_the_lead_time_is_told_to_every_model(work):
    for model in ("raw", "unet"):
        assert options(work, model, "clean", "t2m", 10, (), 48) == {"data.step": "48"}
    with pytest.raises(ArgumentError, match="not at 24"):
        options(work, "unet", "clean", "t2m", 10, (), 24)


def test_inputs_channels_and_members_follow_the_task(work):
    key = CHANNELS.removeprefix("--")
    assert options(work, "emos_global", "clean", "z500", 5) == {
        "data.target": "z500",
        "data.inputs": "[z500]",
        "data.ensemble": "5",
    }
    assert options(work, "emos_neighbours", "clean", "z500", 5)["data.inputs"] == "[z500,u500,v500]"
    # the parameters of the paper: 22 and 14 channels, and three of the location
    assert options(work, "paper_unet", "paper", "z500") == {"data.target": "z500", key: "14"}
    assert options(work, "paper_mlp", "paper", "t2m") == {}
    assert options(work, "unet", "paper") == {"data.protocol": "paper", key: "25"}
    assert options(work, "poet", "clean", "z500")[key] == "10"
    assert options(work, "smoe_unet")["model.init_args.network.init_args.grid"] == "[6,8]"


def built(work, model, *task):
    """The network of a configuration that was carried over, and the channels that it is given."""
    given = options(work, model, *task)
    content = read_config(config_path(model))
    for path, value in given.items():
        *parents, last = path.split(".")
        functools.reduce(operator.getitem, parents, content)[last] = yaml.safe_load(value)
    store = work / "seed0" / "store.zarr"
    channels = training_batches(content["data"], store).channels
    models = parser_of(model=pl.LightningModule)
    make = getattr(models, "instantiate", None) or models.instantiate_classes
    return make(models.parse_object({"model": content["model"]})).model.network, channels


INPUTS = [("t2m", ()), ("z500", ()), ("t2m", ("t500", "msl", "t2m")), ("z500", ("sst", "z500"))]


@pytest.mark.parametrize(("target", "inputs"), INPUTS)
def test_the_position_of_the_target_follows_the_inputs(work, target, inputs):
    network, channels = built(work, "groenquist", "clean", target, 10, inputs)
    name = target.replace("z500", "z_500")
    assert channels[network.bias.mean] == f"{name}:mean"
    assert channels[network.spread.spread] == f"{name}:std"
    assert network.in_channels == len(channels)


@pytest.mark.parametrize(("target", "inputs"), [*INPUTS, ("t2m", ("t2m", "skt", "msl"))])
def test_the_channels_that_vary_between_members_follow_the_inputs(work, target, inputs):
    network, channels = built(work, "unet_members", "clean", target, 10, inputs)
    constant = ("sst:mask", "sin_lat", "cos_lat_sin_lon", "cos_lat_cos_lon")
    assert not set(channels[: network.varying_channels]) & set(constant)
    assert set(channels[network.varying_channels :]) <= set(constant)
    features = torch.randn(1, 4, len(channels), 16, 16)
    assert network(features).shape == (1, network.out_channels, 16, 16)


def test_a_configuration_of_fewer_members_keeps_their_number(work):
    assert "data.ensemble" not in options(work, "groenquist")  # its five of the ten
    assert "data.ensemble" not in options(work, "groenquist", "clean", "t2m", 5)


def test_what_cannot_follow_is_refused(work, tmp_path):
    unknown = tmp_path / "unknown.yaml"
    text = config_path("unet_members").read_text()
    unknown.write_text(text.replace("ens10.models.networks.WithMembers", "mine.Around"))
    with pytest.raises(ArgumentError, match=r"network: mine[.]Around does not say which numbers"):
        task_options(unknown, Task(target="z500"), work / "seed0" / "store.zarr")
    with pytest.raises(ArgumentError, match="inputs: the target is not among them"):
        options(work, "groenquist", "clean", "z500", 5, ("t500", "t2m"))
    with pytest.raises(ArgumentError, match=r"members: 4, but the model is of 5\."):
        options(work, "groenquist", "clean", "t2m", 4)
    with pytest.raises(ArgumentError, match=r"members: 11, but .* has 10"):
        options(work, "raw", "clean", "t2m", 11)
    with pytest.raises(UnknownNameError, match="z850"):
        options(work, "raw", "clean", "z850")


def test_a_table_names_the_model_that_cannot_follow(work, tmp_path, capsys):
    store = str(work / "seed0" / "store.zarr")
    where = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--store", store]
    what = ["--targets", "z500", "--inputs", "t500", "--models", "raw", "groenquist"]
    assert matrix.main([*where, *what]) == 1
    assert "model groenquist: inputs: the target is not among them" in capsys.readouterr().err


def test_a_task_has_folders_of_its_own_and_the_usual_one_has_those_from_before(work, tmp_path):
    def cell(task):
        return find_cells(["raw"], [0], work, tmp_path, CONFIGS, task=task)[0]

    plain, usual, other = cell(None), cell(Task()), cell(Task("paper", "z500", 5))
    assert plain.run == usual.run != other.run
    assert plain.place == usual.place == "seed0/raw"
    assert plain.key == usual.key != other.key
    assert other.place == "paper-z500-5/seed0/raw"
    assert other.store == plain.store
    assert len({c.claim for c in (plain, other)}) == 2
    assert "paper, z500, 5 members" in other.name


@pytest.fixture(scope="module")
def done(work, tmp_path_factory):
    """The raw ensemble of five members, as a process of its own would do it on a user's data."""
    out, elsewhere = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("elsewhere")
    store = shutil.copytree(work / "seed0" / "store.zarr", elsewhere / "mine.zarr")
    task = Task("paper", "z500", 5)
    found = find_cells(["raw"], [1], elsewhere, out, CONFIGS, None, task, store)[0]
    children = running.Children()
    with children.end_after():
        assert running.start_cell(found, 1, children) is None
    return found


def test_the_process_does_the_very_cell(done):
    assert done.status() == "complete"  # same key: same options, data, code
    run = kept_run(done)
    known = run.provenance
    assert (known["target"], known["protocol"], known["weights"]) == ("z_500", "paper", "none")
    assert known["seed"] == 1
    assert run.states.attrs["members"] == 5
    config = yaml.safe_load(done.results.files(done.place)["config.yaml"])
    assert (config["data"]["ensemble"], config["data"]["store"]) == (5, "mine.zarr")


def test_the_eecrps_is_kept(done):
    states = kept_run(done).states_of("eecrps")
    with (done.run / "scores.csv").open() as file:
        crps = next(float(row["value"]) for row in csv.DictReader(file) if row["score"] == "crps")
    eecrps = float(states["eecrps_sum"].sum() / states["eecrps_weight"].sum())
    assert 0 < eecrps < 0.8 * crps  # the paper's index is below 0.791
    assert np.isfinite(states["abs_efi_sum"]).all()
