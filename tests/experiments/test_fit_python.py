"""`ens10.fit` and `ens10.Run`: the same runs as from the shell, of models of any kind."""

import csv
import os
import signal
import subprocess
import sys
import threading

import matplotlib as mpl
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import xarray as xr
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from realruns import command, config_path
from torch import nn

import ens10
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.runs.provenance import read_provenance
from ens10.experiments.runs.reading import open_predictions
from ens10.loader import EnsembleDataModule
from ens10.models import PostProcessor, ResidualNormalHead, statistical
from ens10.models.networks import MLP
from ens10.signals import Terminated

QUIET = {"quiet": True, "max_epochs": 1}
NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self, in_channels, hidden=4):
        super().__init__()
        self.in_channels, self.hidden = in_channels, hidden
        first, last = nn.Conv2d(in_channels, hidden, 1), nn.Conv2d(hidden, 2, 1)
        self.layers = nn.Sequential(first, nn.ReLU(), last)
    def forward(self, features):
        return self.layers(features)
"""


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def config_of(run):
    return yaml.safe_load((run.path / "config.yaml").read_text())


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, which Python does not search for modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".", str(tmp_path))])
    yield tmp_path
    sys.modules.pop("my_network", None)


@pytest.fixture(scope="module")
def shell(store, tmp_path_factory):
    """A run of the command line, with two epochs."""
    run = tmp_path_factory.mktemp("shell") / "mlp"
    options = ["--data.store", store, "--trainer.max_epochs", 2, "--quiet", "--run", run]
    command("fit", "--config", config_path("mlp"), *options)
    command("predict", "--run", run, "--quiet")
    return run


def assert_same_run(one, other):
    for name in ("config.yaml", "log/metrics.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert files_of(one / "predictions.zarr") == files_of(other / "predictions.zarr")


@pytest.mark.parametrize("as_file", [False, True])
def test_the_same_run_from_python(store, shell, here, as_file):
    model = config_path("mlp") if as_file else "mlp"
    run = ens10.fit(str(store), model, target="t2m", max_epochs=2, quiet=True)
    assert run.path.as_posix() == "runs/mlp-1"
    run.predict(quiet=True)
    assert_same_run(run.path, shell)
    again = ens10.fit(str(store), model, **QUIET)
    assert again.path.as_posix() == "runs/mlp-2"


def test_the_methods_of_a_run_are_the_commands(store, shell, world, tmp_path):
    run = ens10.Run(shell)
    forecast, _ = open_predictions(shell)
    run.score(by=["season"])
    command("score", shell, "--out", tmp_path / "scores", "--by", "season")
    table = (tmp_path / "scores" / "scores.csv").read_text()
    assert (shell / "scores.csv").read_text() == table
    with mpl.rc_context({"figure.constrained_layout.use": True}):  # of the user: no warning
        page = run.report(tmp_path / "report")
    assert page == tmp_path / "report" / "index.html"
    assert page.is_file()
    file = world.folder / "output.sfc.20180402"
    out = run.apply(file, tmp_path / "today.nc")
    corrected = run.apply(file)
    xr.testing.assert_allclose(xr.open_dataset(out)["mu"].load(), corrected["mu"].compute())
    dates = np.intersect1d(corrected["time"], forecast["time"])
    assert dates.size > 0
    expected = forecast["mu"].sel(time=dates)
    found = corrected["mu"].sel(time=dates)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    shared = ens10.load_model(run.bundle(tmp_path / "model.ens10"))
    again = shared(ens10.source.open_source(file))
    np.testing.assert_allclose(again["mu"].sel(time=dates), expected, rtol=1e-6)


def test_objects_of_each_kind_train_alike(store, here):
    """The same initial weights as network, with a head, and as Lightning module."""
    channels = len(EnsembleDataModule(str(store), "t2m").channels)
    (here / "my_network.py").write_text(NET)
    sys.path.append(str(here))
    from my_network import Net

    class Same(nn.Module):  # nothing can import it
        def __init__(self, layers):
            super().__init__()
            self.layers = layers

        def forward(self, features):
            return self.layers(features)

    def made():
        torch.manual_seed(3)
        return Net(channels)

    def predicted(model, **options):
        options |= {"target": "t2m", "batch_size": 4, "seed": 3} | QUIET
        run = ens10.fit(str(store), model, **options)
        return run, run.predict(quiet=True).load()

    plain, expected = predicted(made(), head=ResidualNormalHead())
    assert plain.path.name == "net-1"
    network = config_of(plain)["model"]["init_args"]["network"]["init_args"]
    assert network["module"] == {
        "class_path": "my_network.Net", "init_args": {"in_channels": channels, "hidden": 4},
    }  # fmt: skip
    assert (network["in_channels"], network["out_channels"]) == (channels, 2)
    layers, found = predicted(Same(made().layers))
    xr.testing.assert_identical(found, expected)
    assert config_of(layers)["model"] is None
    _, found = predicted(Net)  # made after the seed was set, as in a configuration
    xr.testing.assert_identical(found, expected)
    torch.manual_seed(3)
    module = PostProcessor(MLP(channels), ResidualNormalHead())
    run, _ = predicted(module)
    assert config_of(run)["model"] == {
        "class_path": "ens10.models.PostProcessor",
        "init_args": {
            "network": {
                "class_path": "ens10.models.networks.MLP", "init_args": {"in_channels": channels},
            },
            "head": {"class_path": "ens10.models.ResidualNormalHead"},
        },
    }  # fmt: skip
    method, _ = predicted(statistical.EMOS(local=True), inputs=["t2m"])
    assert read_provenance(method.path)["parameters"] > 0


def test_a_model_that_no_class_path_builds(store, here, capsys, world):
    channels = len(EnsembleDataModule(str(store), "t2m").channels)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(channels, 2, 1)

        def forward(self, features):
            return self.layer(features)

    torch.manual_seed(1)
    run = ens10.fit(str(store), Net(), target="t2m", **QUIET)
    line = "the run cannot build its model, which later needs model=: model.network.module: "
    assert f"ens10: {line}" in capsys.readouterr().err
    assert "Net is defined in" in read_provenance(run.path)["model_not_built"]
    expected = run.predict(quiet=True).load()
    reopened = ens10.Run(run.path, Net(), head=ResidualNormalHead())  # with other weights
    xr.testing.assert_identical(reopened.predict(quiet=True).load(), expected)
    corrected = reopened.apply(world.folder / "output.sfc.20180402")
    dates = np.intersect1d(corrected["time"], expected["time"])
    np.testing.assert_allclose(
        corrected["mu"].sel(time=dates), expected["mu"].sel(time=dates), rtol=1e-6
    )
    for refused in (
        lambda: ens10.Run(run.path).predict(),
        lambda: run.bundle("model.ens10"),
        lambda: ens10.load_model(run.path),
    ):
        with pytest.raises(FileError, match=r"object in Python, which no class path.*model=\.\.\."):
            refused()
    capsys.readouterr()
    command("predict", "--run", run.path, status=1)
    assert capsys.readouterr().err.count("\n") == 1
    # resumed with the object, it goes on from its checkpoint
    longer = ens10.fit(run=run.path, model=Net(), resume=True, max_epochs=2, quiet=True)
    with (longer.path / "log" / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file) if row["val_loss"]] == ["0", "1"]


def test_a_class_in_a_file_of_the_working_folder(store, here, capsys):
    config = yaml.safe_load(config_path("mlp").read_text())
    module = "ens10.models.networks.module_network.ModuleNetwork"
    arguments = {"module": {"class_path": "my_network.Net", "init_args": {"in_channels": 26}}}
    config["model"]["init_args"]["network"] = {"class_path": module, "init_args": arguments}
    (here / "mine.yaml").write_text(yaml.safe_dump(config))
    words = ["fit", "--config", "mine.yaml", "--data.store", store, "--run", "mine", "--quiet"]
    with pytest.raises(SystemExit):
        command(*words)
    assert "No module named 'my_network'; run the command in the folder of my_network.py" in (
        capsys.readouterr().err
    )
    (here / "my_network.py").write_text(NET)
    before = list(sys.path)
    command(*words, "--trainer.max_epochs", 1)
    assert sys.path == [*before, str(here)]
    command("predict", "--run", "mine", "--quiet")
    assert open_predictions("mine")[0]["mu"].sizes["time"] == 8


class Count(pl.Callback):
    """Counts the batches of a training."""

    batches = 0

    def on_train_batch_end(self, *_):
        self.batches += 1


def test_loggers_and_callbacks_are_added_to_the_runs_own(store, here, capsys):
    counted = Count()
    logger = CSVLogger("logs", name="", version="", flush_logs_every_n_steps=1)
    options = {"callbacks": [counted], "logger": logger, "enable_model_summary": True}
    run = ens10.fit(str(store), "mlp", quiet=True, max_epochs=2, batch_size=4, **options)
    assert counted.batches == 2 * 3  # 12 dates
    assert "Total params" in capsys.readouterr().out

    def losses(file):
        with file.open() as lines:
            return [float(r["val_loss"]) for r in csv.DictReader(lines) if r["val_loss"]]

    assert losses(here / "logs" / "metrics.csv") == losses(run.path / "log" / "metrics.csv")
    assert len(losses(here / "logs" / "metrics.csv")) == 2
    kinds = {"callbacks": ["Count"], "logger": ["CSVLogger"]}
    assert read_provenance(run.path)["python_objects"] == kinds
    command("fit", "--run", run.path, "--resume", "--quiet")
    said = capsys.readouterr().err
    assert "ens10: callbacks: trained with Count of Python, and resumed without" in said
    # of the command line too
    words = ["--data.store", store, "--run", "shell", "--quiet", "--trainer.max_epochs", 1]
    logged = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "other"]
    command("fit", "--config", config_path("mlp"), *words, *logged)
    assert list((here / "other").rglob("metrics.csv"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"logger": True}, "trainer.logger: a run has its own log"),
        ({"default_root_dir": "x"}, "trainer.default_root_dir: a run writes into its own folder"),
        ({"enable_checkpointing": False}, "trainer.enable_checkpointing: a run keeps checkpoints"),
        ({"callbacks": [ModelCheckpoint(monitor="val_loss")]}, "as best.ckpt. Leave ModelCheck"),
        ({"max_epochs": "three"}, "trainer.max_epochs"),
        ({"max_epoch": 3}, "did you mean 'max_epochs'"),
        ({"head": ResidualNormalHead()}, "head: is for networks; a configuration has its own"),
        ({"truth": xr.DataArray(0.0)}, "truth: is for members in a DataArray"),
        ({"resume": True}, "run: which run to resume is not said"),
        ({"model": "mlq"}, "did you mean 'mlp'"),
        ({"model": MLP(23)}, "max_epochs: is missing"),
        ({"model": MLP(23), "max_epochs": 1, "cache": object()}, "cache: a object is no plain"),
        ({"model": 3, "max_epochs": 1}, "model: a int is no model"),
        ({"model": nn.Conv2d(5, 2, 1), "max_epochs": 1}, r"Conv2d fails on features of the shape"),
        ({"model": nn.Flatten(), "max_epochs": 1}, r"Flatten gives \(1, 2944\) for features"),
        ({"model": nn.Conv2d(23, 3, 1), "max_epochs": 1}, "delivers 3 channels"),
        ({"model": statistical.EMOS(), "head": ResidualNormalHead()}, "a EMOS has its own"),
    ],
)
def test_refusals_leave_nothing(store, here, options, words):
    with pytest.raises((ArgumentError, UnknownNameError), match=words) as told:
        ens10.fit(**{"data": str(store), "model": "mlp"} | options)
    assert "\n" not in str(told.value)
    assert list(here.rglob("config.yaml")) == []
    assert list(here.rglob("*.ckpt")) == []


class EndAt(pl.Callback):
    """Sends this process a signal after a batch of the second epoch."""

    def __init__(self, number):
        self.number = number

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 0):
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_training_that_was_ended_resumes_as_if_it_was_not(store, shell, here, number):
    def fit(**options):
        return ens10.fit(str(store), "mlp", run="ended", max_epochs=2, quiet=True, **options)

    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    if number == signal.SIGKILL:
        child = os.fork()
        if child == 0:
            fit(callbacks=EndAt(number))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    else:
        with pytest.raises((Terminated, KeyboardInterrupt), match=r"|resume with"):
            fit(callbacks=EndAt(number))
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before
    run = fit(resume=True)
    run.predict(quiet=True)
    assert_same_run(run.path, shell)


CELL = """
import os, signal
import pytorch_lightning as pl
import ens10
class End(pl.Callback):
    def on_train_epoch_end(self, *_):
        os.kill(os.getpid(), signal.SIGTERM)
ens10.fit("store.zarr", "mlp", run="ended", max_epochs=2, quiet=True, callbacks=End())
"""
NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
first = shell.run_cell(sys.argv[1])
shell.run_cell("print('goes on', signal.getsignal(signal.SIGTERM).name)")
print(type(first.error_in_exec).__name__, first.error_in_exec.line)
"""


def test_a_signal_ends_the_cell_and_not_the_kernel(store, tmp_path):
    (tmp_path / "store.zarr").symlink_to(store)
    command = [sys.executable, "-c", NOTEBOOK, CELL]
    options = {"capture_output": True, "text": True, "timeout": 500, "cwd": tmp_path}
    done = subprocess.run(command, env=os.environ | {"HOME": str(tmp_path)}, **options)
    assert "goes on SIG_DFL" in done.stdout, done.stderr
    line = "Terminated terminated; resume with `ens10 fit --run ended --resume`"
    assert done.stdout.rstrip().endswith(line)
    assert done.returncode == 0


def test_no_handler_is_set_from_another_thread(store, here):
    before, seen, runs = signal.getsignal(signal.SIGTERM), [], []

    class Look(pl.Callback):
        def on_train_batch_end(self, *_):
            seen.append(signal.getsignal(signal.SIGTERM))

    def work():
        runs.append(ens10.fit(str(store), "mlp", callbacks=[Look()], **QUIET))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert set(seen) == {before}
    assert runs[0].path.as_posix() == "runs/mlp-1"


def test_members_without_a_store(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    members = ens10.open_store(str(store), "sfc")["t2m"].isel(step=0).load()
    truth = ens10.open_store(str(store), "truth")["t2m"].isel(step=0).load()
    model = ens10.fit(members, "emos_local", truth=truth)
    expected = statistical.fit(statistical.EMOS(local=True), members, truth)
    xr.testing.assert_identical(model(members), expected(members))
    with pytest.raises(ArgumentError, match="unet trains on a store, not on arrays") as raised:
        ens10.fit(members, "unet", truth=truth)
    call = str(raised.value).partition("Prepare one: ")[2].partition(", and pass")[0]
    prepared = eval(call, {"ens10": ens10, "members": members, "truth": truth})
    opened = (ens10.open_store(str(one), "sfc")["t2m"] for one in (prepared, store))
    np.testing.assert_array_equal(*opened)
    with pytest.raises(ArgumentError, match="truth: is missing"):
        ens10.fit(members, statistical.EMOS())
    with pytest.raises(ArgumentError, match="a ResidualNormalHead does not fit arrays"):
        ens10.fit(members, ResidualNormalHead(), truth=truth)


def test_the_public_names_are_shown():
    assert {"Run", "fit", "load_model", "open_store", "save_run"} < set(dir(ens10))
    assert not {"Any", "TYPE_CHECKING", "import_module", "_HOMES"} & set(dir(ens10))
    assert all(getattr(ens10, name) is not None for name in dir(ens10))
