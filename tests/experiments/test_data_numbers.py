"""Numbers of a configuration that follow from the data: channels, grids, positions, schedules."""

import json
from pathlib import Path

import pytest
import yaml

from ens10 import catalog
from ens10.cli import main
from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.runner.key import digest_of
from ens10.experiments.training.data_numbers import (
    missing_numbers,
    numbers_of_network,
    read_config,
    shape_of,
    shape_of_ens10,
    value_at,
)
from ens10.models.networks.base import DataShape
from ens10.synthetic import World
from ens10.untrusted import read_mapping

CONFIGS = {path.stem: path for path in sorted(config_path("raw").parent.glob("*.yaml"))}
OF_A_STORE = {name: path for name, path in CONFIGS.items() if not name.startswith("heat")}
FAST = ("location_smoe", "groenquist", "mlp_embedding", "emos_local", "poet_paper")
NETWORK = "model.init_args.network.init_args"
DIGESTS = json.loads((Path(__file__).parents[1] / "data" / "config_digests.json").read_text())


@pytest.mark.parametrize("name", DIGESTS)
def test_keys_of_kept_results_hold_the_numbers(name):
    """Digests of the configurations from when all numbers stood in them."""
    assert digest_of(read_config(CONFIGS[name])) == DIGESTS[name]


def test_no_configuration_of_a_store_sets_what_follows_from_the_data():
    kept = []
    for name, path in OF_A_STORE.items():
        content = read_mapping(path)
        numbers = numbers_of_network(content["model"], shape_of_ens10(content["data"]))
        kept += [f"{name}: {key}" for key in numbers if value_at(content, key) is not None]
    assert kept == []


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two surface variables at 48 h, and all of the configurations' inputs, on 8 x 16 points."""
    folder, years, days = tmp_path_factory.mktemp("worlds"), range(1998, 2008), ["0104", "0701"]
    options = {"levels": (500, 850), "kind": "displaced", "seed": 4, "members": 5}
    names = [*catalog.names_of_kind("sfc"), *catalog.names_of_kind("pl"), "si10"]
    World("8x16", years, days, names, **options).write(folder / "world")
    made = {"two": folder / "two.zarr", "all": folder / "all.zarr"}
    options = {"truth": folder / "world" / "truth", "progress": False}
    prepare(folder / "world", made["all"], **options)
    prepare(folder / "world", made["two"], variables=["t2m", "tp"], steps=[48], **options)
    return made


def fit(config, store, run, *options, status=0):
    short = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    words = [
        "fit",
        "--config",
        str(config),
        "--data.store",
        str(store),
        "--run",
        str(run),
        "--quiet",
    ]
    assert main([*words, *short, *map(str, options)]) == status
    return read_mapping(Path(run) / "config.yaml") if status == 0 else None


def marks(name, size):
    if name in FAST:
        return ()
    return pytest.mark.slow if size == "two" else pytest.mark.long


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=marks(name, size))
        for name in OF_A_STORE
        for size in ("two", "all")
    ],
)
def test_every_configuration_trains_on_another_grid(stores, tmp_path, name, size, capfd):
    content = read_mapping(OF_A_STORE[name])
    others = {"si10": ["--data.target=tp"], "t850": ["--data.target=t2m"]}
    target = others.get(content["data"]["target"], []) if size == "two" else []
    needed = dict.fromkeys(("emos_advection", "emos_neighbours"), "u10")
    needed["groenquist_paper"] = "the data have none of z500"
    if size == "two" and name in needed:
        fit(OF_A_STORE[name], stores[size], tmp_path / "run", *target, status=1)
        said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("ens10: ")]
        assert needed[name] in said[-1]
        return
    config = fit(OF_A_STORE[name], stores[size], tmp_path / "run", *target)
    said = capfd.readouterr().err
    shape = shape_of(config["data"], stores[size])
    for key, value in numbers_of_network(config["model"], shape).items():
        assert value_at(config, key) == value
    assert shape.grid == (8, 16)
    inputs = content["data"].get("inputs")
    if size == "two" and inputs and set(inputs) - {"t2m", "tp"}:
        assert config["data"]["inputs"] == [one for one in inputs if one in ("t2m", "tp")]
        assert "ens10: inputs: the data have no" in said
    else:
        assert config["data"]["inputs"] == inputs
        assert "inputs: the data" not in said


def test_a_demand_for_inputs_is_not_cut(store, tmp_path, capfd):
    fit(CONFIGS["unet"], store, tmp_path / "run", "--data.inputs=[t2m,z500]", status=1)
    assert "'z500' is not known" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_numbers(stores, tmp_path):
    run = tmp_path / "run"
    first = fit(CONFIGS["location_unet"], stores["two"], run)
    assert value_at(first, "model.init_args.scheduler.init_args.T_max") == 1
    assert main(["fit", "--run", str(run), "--resume", "--trainer.max_epochs=2", "--quiet"]) == 0
    assert value_at(read_mapping(run / "config.yaml"), f"{NETWORK}.grid") == [8, 16]
    assert (
        value_at(read_mapping(run / "config.yaml"), "model.init_args.scheduler.init_args.T_max")
        == 1
    )


def test_all_wrong_numbers_are_told_at_once(stores, tmp_path, capfd):
    wrong = [f"--{NETWORK}.in_channels=80", f"--{NETWORK}.grid=[46,96]"]
    fit(CONFIGS["location_unet"], stores["two"], tmp_path / "run", *wrong, status=1)
    said = capfd.readouterr().err
    # mean and deviation of t2m and tp; location 3, day of year 2
    right = "Set in_channels to 9, grid to [8, 16], or leave them out"
    assert "network: does not fit the data: in_channels is 80, grid is [46, 96]. " + right in said


def test_a_schedule_needs_an_end(stores, tmp_path, capfd):
    options = ["--trainer.max_epochs=-1", "--trainer.max_steps=2"]
    fit(CONFIGS["location_unet"], stores["two"], tmp_path / "run", *options, status=1)
    assert "T_max: not set, and the trainer has no limit of epochs" in capfd.readouterr().err
    fit(CONFIGS["location_unet"], stores["two"], tmp_path / "run", *options,
        "--model.init_args.scheduler.init_args.T_max=2")  # fmt: skip


def test_numbers_of_nested_networks():
    """Context adds three channels, an embedding its own; deviations and a code are added."""
    inner = {"class_path": "ens10.models.networks.Transformer", "init_args": {"width": 8}}
    outer = {"context": 2, "embedding": 4, "network": inner}
    network = {"class_path": "ens10.models.networks.MemberContext", "init_args": outer}
    model = {"init_args": {"network": network}}
    shape = DataShape(15, (8, 16), inputs=11, fixed=4, target=0)
    assert numbers_of_network(model, shape) == {
        f"{NETWORK}.in_channels": 15,
        f"{NETWORK}.grid": [8, 16],
        f"{NETWORK}.network.init_args.in_channels": 15 + 3 * 2 + 4,
    }
    network["class_path"] = "ens10.models.networks.WithMembers"
    network["init_args"] = {
        "pools": ["max"],
        "channels": 5,
        "network": {**inner, "class_path": "ens10.models.networks.UNet"},
    }
    assert numbers_of_network(model, shape) == {
        f"{NETWORK}.in_channels": 15,
        f"{NETWORK}.fixed": 4,
        f"{NETWORK}.network.init_args.in_channels": 15 + 11 + 5,
    }


def test_a_network_that_needs_the_target():
    network = {"class_path": "ens10.models.networks.Groenquist"}
    shape = DataShape(10, (8, 16), inputs=4, fixed=2, target=None)
    with pytest.raises(ArgumentError, match="inputs: the target is not among them"):
        missing_numbers({"model": {"init_args": {"network": network}}}, shape)


def test_a_class_of_the_user(stores, tmp_path, monkeypatch):
    """Arguments without default and with a name of `DataShape` are filled in."""
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "from ens10.models.networks import Network\n"
        "class Net(Network):\n"
        "    def __init__(self, in_channels: int, grid: tuple[int, int], hidden: int = 4):\n"
        "        super().__init__()\n"
        "        self.in_channels, self.out_channels, self.grid = in_channels, 2, grid\n"
        "        self.layer = nn.Conv2d(in_channels, 2, 1)\n"
        "    def forward(self, features):\n"
        "        return self.layer(features)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    content = read_mapping(CONFIGS["mlp"])
    content["model"]["init_args"]["network"] = {"class_path": "mynet.Net"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    config = fit(tmp_path / "mine.yaml", stores["two"], tmp_path / "run")
    assert value_at(config, f"{NETWORK}.in_channels") == 4 + 3
    assert value_at(config, f"{NETWORK}.grid") == [8, 16]


def test_another_class_takes_over_a_configuration(stores, tmp_path, monkeypatch):
    """Its network lacks numbers when the class is replaced, and would be dropped."""
    (tmp_path / "mymodule.py").write_text(
        "from ens10.models import PostProcessor\nclass Mine(PostProcessor):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    options = ["--model", "mymodule.Mine", "--model.init_args.network.init_args.hidden", 6]
    config = fit(CONFIGS["mlp"], stores["two"], tmp_path / "run", *options)
    assert config["model"]["class_path"] == "mymodule.Mine"
    assert value_at(config, f"{NETWORK}.in_channels") == 4 + 3
    assert value_at(config, f"{NETWORK}.hidden") == 6


def test_an_option_corrects_a_number_of_the_file(stores, tmp_path):
    content = read_mapping(CONFIGS["mlp"])
    content["model"]["init_args"]["network"]["init_args"] = {"in_channels": 26}
    (tmp_path / "set.yaml").write_text(yaml.safe_dump(content))
    config = fit(
        tmp_path / "set.yaml", stores["two"], tmp_path / "run", f"--{NETWORK}.in_channels=7"
    )
    assert value_at(config, f"{NETWORK}.in_channels") == 7
