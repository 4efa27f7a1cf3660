"""What cannot work is one clear line on the command line, whatever part of the models it meets."""

import pickle
import re
import shutil

import pytest
import pytorch_lightning as pl
import torch
import yaml
from torch import Tensor

from ens10.cli import main
from ens10.errors import FileError
from ens10.experiments.demo import config_path
from ens10.experiments.runs.checkpoints import checkpoint_shapes, differences
from ens10.models.layers.smoe import FixedGate, SMoE2d, TensorGate
from ens10.models.networks.base import Network

NETWORK = "--model.init_args.network"
INPUTS = ["t2m", "u10", "v10", "tp"]


class OneSMoE(Network):
    """One layer of experts; with `oracle`, on a map that is given."""

    def __init__(
        self, in_channels: int, experts: int, selected: int, grid: list[int], oracle: bool = False
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, selected
        gate = TensorGate(experts, selected, grid)
        chosen = FixedGate(gate.weight.detach()) if oracle else gate
        self.layer = SMoE2d(in_channels, experts, selected, chosen)

    def forward(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.layer(features)
        return outputs


class Spoil(pl.Callback):
    """A batch with NaN in a feature of its last date."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == 1:
            batch["features"][-1, 0, 3, 4] = torch.nan


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    return prepared("8x16", range(2000, 2006), 2, INPUTS, seed=0, steps=(48,)) / "store.zarr"


@pytest.fixture
def ens10(capsys):
    """Runs a command; gives its one line of complaint, if it was refused."""

    def run(*arguments, status=0):
        assert main([str(a) for a in arguments]) == status
        said = capsys.readouterr().err
        assert said.count("\n") == int(status == 1), said
        return said

    return run


def fitting(name, store, run, channels, *options):
    config = ["--config", config_path(name), "--data.store", store, "--run", run, "--quiet"]
    sizes = [f"{NETWORK}.init_args.in_channels", channels, "--trainer.max_epochs", 1]
    return "fit", *config, *sizes, *options


@pytest.fixture(scope="module")
def lenet(store, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "lenet"
    assert main([str(a) for a in fitting("lenet", store, run, 11)]) == 0
    return run


def with_experts(store, run, experts, selected, grid, oracle="false"):
    given = {"in_channels": 11, "experts": experts, "selected": selected, "oracle": oracle}
    options = [f"{NETWORK}.class_path", f"{__name__}.OneSMoE"]
    for name, value in {**given, "grid": grid}.items():
        options += [f"{NETWORK}.init_args.{name}", value]
    # a configuration of its own, since that of another network has settings of its own
    config = {
        "model": {
            "class_path": "ens10.models.PostProcessor",
            "init_args": {
                "network": {"class_path": f"{__name__}.OneSMoE", "init_args": {}},
                "head": "ens10.models.ResidualNormalHead",
            },
        },
        "data": {"target": "t2m", "extras": ["location"], "batch_size": 2},
        "trainer": {"max_epochs": 1},
    }
    path = run.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(config))
    return "fit", "--config", path, "--data.store", store, "--run", run, "--quiet", *options


def test_experts_that_fit_are_trained(store, tmp_path, ens10):
    ens10(*with_experts(store, tmp_path / "run", 4, 2, "[8,16]"))


WIDE = (f"{NETWORK}.init_args.out_channels", 3)
SPOIL = ("--trainer.callbacks", f"{__name__}.Spoil", "--data.batch_size", 2)
REFUSED = {
    "a gate map of another size": (
        lambda *place: with_experts(*place, 4, 2, "[16,8]", "true"),
        r"does not fit the data: grid is \[16, 8\]\. Set grid to \[8, 16\], or leave it out",
    ),
    "more experts selected than exist": (
        lambda *place: with_experts(*place, 2, 3, "[8,16]"),
        "selected: 3 of 2 experts",
    ),
    "a network that does not fit the head": (
        lambda *place: fitting("lenet", *place, 11, *WIDE),
        "LeNet delivers 3 channels, ResidualNormalHead takes 2",
    ),
    "fewer members than the model needs": (
        lambda *place: fitting("saet", *place, 7, "--data.ensemble", 1),
        "at least 2 members",
    ),
    "fields in half precision": (
        lambda *place: fitting("lenet", *place, 11, "--trainer.precision", "bf16-true"),
        "precision: bf16-true rounds.*Set precision to bf16-mixed",
    ),
    "a loss of NaN": (
        lambda *place: fitting("lenet", *place, 11, *SPOIL),
        "train_loss: not finite for valid date 200.-..-..",
    ),
}


@pytest.mark.parametrize(("command", "told"), REFUSED.values(), ids=REFUSED)
def test_a_training_that_cannot_be(command, told, store, tmp_path, ens10):
    assert re.search(told, ens10(*command(store, tmp_path / "run"), status=1))


@pytest.mark.parametrize(
    ("inputs", "word"), [("[t2m, z500]", "'z500' is not known"), ("[t2m, u10@24]", "'24'")]
)
def test_inputs_that_the_store_lacks(inputs, word, store, tmp_path, ens10):
    run = tmp_path / "run"
    said = ens10(*fitting("lenet", store, run, 7, "--data.inputs", inputs), status=1)
    assert word in said
    assert not run.exists()


def test_a_checkpoint_of_another_architecture(lenet, store, tmp_path, ens10):
    unet = tmp_path / "unet"
    ens10(*fitting("unet", store, unet, 11))
    best = lenet / "checkpoints" / "best.ckpt"
    said = ens10("predict", "--run", unet, "--quiet", "--ckpt_path", best, status=1)
    assert f"{best}: of another model: it lacks network.down_0.0.weight" in said
    assert "the model lacks network.layers.0.weight" in said
    assert "config.yaml" in said


def edited(lenet, tmp_path, change):
    run = tmp_path / "lenet"
    shutil.copytree(lenet, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    change(config)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run


@pytest.mark.parametrize("command", [("test",), ("fit", "--resume")])
def test_a_configuration_of_another_network(command, lenet, tmp_path, ens10):
    def another(config):
        network = {"class_path": "ens10.models.networks.MLP", "init_args": {"in_channels": 11}}
        config["model"]["init_args"]["network"] = network

    run = edited(lenet, tmp_path, another)
    said = ens10(*command, "--run", run, "--quiet", status=1)
    assert "other shapes: network.layers.0.weight (6, 11, 5, 5), in the model (128, 11)" in said


def test_features_in_another_order(lenet, tmp_path, ens10):
    """Trained on all channels, in the order of the store."""
    run = edited(lenet, tmp_path, lambda config: config["data"].update(inputs=INPUTS))
    said = ens10("predict", "--run", run, "--quiet", status=1)
    assert "inputs: the features t2m:mean, u10:mean" in said
    assert "are not those of the training, u10:mean" in said


class Opens:
    """Does what it likes when it is unpickled."""

    def __reduce__(self):
        return print, ("this code was run",)


def test_a_checkpoint_with_objects_is_not_loaded(lenet, tmp_path, capsys, monkeypatch):
    """Whatever torch and Lightning are asked for."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = tmp_path / "other.ckpt"
    torch.save({"state_dict": {}, "epoch": 0, "other": Opens()}, path)
    command = ["predict", "--run", lenet, "--quiet", "--ckpt_path", path, "--weights_only", "false"]
    assert main([str(a) for a in command]) == 1
    said = capsys.readouterr()
    assert f"{path}: holds more than tensors and plain values" in said.err
    assert said.err.count("\n") == 1
    assert "this code was run" not in said.out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such checkpoint"),
        (b"", "damaged"),
        (b"not a checkpoint", "damaged"),
        (pickle.dumps({"state_dict": {}, "other": Opens()}), "more than tensors"),
        ("half", "damaged"),
        ({"weights": torch.zeros(2)}, "no state_dict"),
    ],
    ids=["missing", "empty", "text", "objects", "half", "no state"],
)
def test_a_file_that_is_no_checkpoint(content, says, lenet, tmp_path):
    path = tmp_path / "other.ckpt"
    if content == "half":
        whole = (lenet / "checkpoints" / "best.ckpt").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(FileError, match=says) as refused:
        checkpoint_shapes(path)
    assert str(path) in str(refused.value)


def test_our_own_are_loaded_without_running_anything(lenet, ens10):
    best, last = (lenet / "checkpoints" / f"{which}.ckpt" for which in ("best", "last"))
    assert checkpoint_shapes(best)["network.layers.0.weight"] == (6, 11, 5, 5)
    ens10("predict", "--run", lenet, "--quiet", "--ckpt_path", last, "--weights_only", "true")


def test_differences_of_two_models():
    held = {"a": (2,), "b": (3, 1), "c": (1,)}
    wanted = {"a": (2,), "b": (3, 2), **{f"d{n}": (1,) for n in range(5)}}
    assert differences(held, held) == []
    assert differences(held, wanted) == [
        "it lacks d0, d1, d2 and 2 more",
        "the model lacks c",
        "other shapes: b (3, 1), in the model (3, 2)",
    ]
