"""`--processor-time` and `--step-memory`: what fits, measured on copies."""

from types import SimpleNamespace

import pytest
import torch
import xarray as xr
import yaml
from realruns import StopAt, command, config_path

import ens10
from ens10.errors import ArgumentError
from ens10.experiments.runs.provenance import read_provenance
from ens10.experiments.training import limits
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP

STEP = 2.0  # seconds between two events on the patched clock


@pytest.fixture
def clock(monkeypatch):
    """A processor clock that advances by `STEP` at each event that is measured."""
    ticks = []
    now = lambda: ticks.append(0) or STEP * len(ticks)  # noqa: E731
    monkeypatch.setattr(limits, "time", SimpleNamespace(process_time=now, perf_counter=None))
    return ticks


def fit(store, run, *options, config="mlp", status=0):
    words = ["--config", config_path(config), "--data.store", store, "--run", run, "--quiet"]
    command("fit", *words, *options, status=status)
    return run


def config_of(run):
    return yaml.safe_load((run / "config.yaml").read_text())


def weights(run):
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def assert_same_weights(one, other):
    mine, its = weights(one), weights(other)
    assert mine.keys() == its.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], its[key], rtol=0, atol=0, equal_nan=True)


# an epoch of 12 dates, one each: a step has two events (4 s), a validation two, whose end is 2 s
# after its start: 50 s; 2 s before the first step
SMALL = ("--data.batch_size", 1)
EPOCH = 12 * 2 * STEP + STEP
BEFORE = STEP


@pytest.mark.parametrize(
    ("text", "epochs"),
    [("152s", 3), ("151 s", 2), ("2.6min", 3), ("0.05h", 3), ("52s", 1), ("10h", 719)],
)
def test_the_epochs_that_fit(monkeypatch, text, epochs):
    cost = limits.EpochCost(2 * STEP, EPOCH, BEFORE)
    monkeypatch.setattr(limits, "measure_epoch", lambda _: cost)
    assert limits.epochs_within(text, None)[0] == epochs


def test_the_epochs_are_recorded(store, tmp_path, clock, capsys):
    run = fit(store, tmp_path / "run", *SMALL, "--processor-time", "155s")
    assert config_of(run)["trainer"]["max_epochs"] == 3
    line = "ens10: 155s: 3 epochs of 50 s each, and what comes before 2.0 s\n"
    assert line in capsys.readouterr().err
    assert read_provenance(run)["processor_time"] == {
        "asked": "155s",
        "epochs": 3,
        "measured_seconds": {"step": 2 * STEP, "epoch": EPOCH, "before": BEFORE},
    }


def test_the_run_is_that_of_the_epochs_and_resumes(store, tmp_path, clock, monkeypatch):
    """Weights, order and random state are those of a run that was never measured."""
    timed = fit(store, tmp_path / "timed", *SMALL, "--processor-time", "155s")
    plain = fit(store, tmp_path / "plain", *SMALL, "--trainer.max_epochs", 3)
    assert config_of(timed) == config_of(plain)
    assert_same_weights(timed, plain)
    StopAt.stopped = False
    stop = ["--trainer.callbacks+=realruns.StopAt", "--trainer.callbacks.epoch=1"]
    stop += ["--trainer.callbacks.batch=4"]
    resumed = tmp_path / "resumed"
    fit(
        store, resumed, *SMALL, "--processor-time", "155s", *stop, "--trust", "realruns", status=130
    )
    count = len(clock)
    monkeypatch.setattr(limits, "measure_epoch", None)
    command("fit", "--run", resumed, "--resume", "--quiet", "--trust", "realruns")
    assert len(clock) == count
    assert_same_weights(resumed, plain)


@pytest.mark.parametrize(
    ("options", "epoch"),
    [
        # of each step a validation: 6 s with its start, and the 2 s of the validation itself
        (["--trainer.val_check_interval", 1], 12 * (3 * STEP + STEP)),
        # each third batch takes 10 s more, for the optimiser
        (["--trainer.accumulate_grad_batches", 3], 12 * 2 * STEP + 4 * 5 * STEP + STEP),
    ],
)
def test_an_epoch_with_what_comes_between_steps(
    store, tmp_path, clock, monkeypatch, options, epoch
):
    def step(self, trainer, *_):
        if trainer.accumulate_grad_batches > 1:
            clock.extend([0] * 5)

    monkeypatch.setattr(limits.StepClock, "on_before_optimizer_step", step, raising=False)
    run = fit(store, tmp_path / "run", *SMALL, *options, "--processor-time", "300s")
    measured = read_provenance(run)["processor_time"]["measured_seconds"]
    assert measured["epoch"] == epoch


def test_first_steps_that_take_longer_count_once(store, tmp_path, clock, monkeypatch):
    def step(self, trainer, *_):
        if len(self.times["start"]) == 1:
            clock.extend([0] * 50)

    monkeypatch.setattr(limits.StepClock, "on_before_optimizer_step", step, raising=False)
    run = fit(store, tmp_path / "run", *SMALL, "--processor-time", "300s")
    measured = read_provenance(run)["processor_time"]["measured_seconds"]
    # the first step has no wait for a batch: an event less than the others
    assert measured == {"step": 2 * STEP, "epoch": EPOCH, "before": BEFORE + 49 * STEP}


def test_the_schedule_ends_with_the_epochs(store, tmp_path, clock):
    options = ["--model.init_args.scheduler", "torch.optim.lr_scheduler.CosineAnnealingLR"]
    run = fit(store, tmp_path / "run", *SMALL, *options, "--processor-time=155s")
    assert config_of(run)["model"]["init_args"]["scheduler"]["init_args"]["T_max"] == 3


def test_an_object_keeps_its_weights(store, tmp_path, clock, monkeypatch):
    torch.manual_seed(1)
    model = PostProcessor(MLP(in_channels=23), ResidualNormalHead())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen, measure_epoch = [], limits.measure_epoch

    def measure(probe):
        cost = measure_epoch(probe)
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return cost

    monkeypatch.setattr(limits, "measure_epoch", measure)
    options = {"batch_size": 1, "processor_time": "105s", "quiet": True}
    run = ens10.fit(store, model, run=tmp_path / "run", **options)
    assert config_of(run.path)["trainer"]["max_epochs"] == 2
    assert seen[0].keys() == before.keys()
    assert all(torch.equal(seen[0][name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("51s",), "an epoch takes 50 s, and what comes before 2.0 s: more than 51s"),
        (("10 weeks",), "'10 weeks' is no time"),
        (("10min", "--trainer.max_epochs", 3), "--trainer.max_epochs is given, too"),
        (("10min", "--trainer.fast_dev_run", "true"), "a trial run of a few batches has no epochs"),
        (("10min", "--trainer.devices", 2, "--trainer.accelerator", "cpu"), "not in 2"),
    ],
)
def test_refused(store, tmp_path, clock, capsys, options, words):
    run = tmp_path / "run"
    fit(store, run, *SMALL, "--processor-time", *options, status=1)
    assert words in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.parametrize("text", ["600", "0s", "nan s", "-3 s", "1 h 2 min", ""])
def test_no_time(text):
    with pytest.raises(ArgumentError, match="is no time"):
        limits.epochs_within(text, None)


def test_refused_elsewhere(store, tmp_path, clock, capsys):
    """A method, a run that exists, a configuration with the option, and two limits in Python."""
    fit(store, tmp_path / "m", "--processor-time", "1h", config="emos_global", status=1)
    assert "is solved in one pass" in capsys.readouterr().err
    run = fit(store, tmp_path / "run", "--trainer.max_epochs", 1)
    command("fit", "--run", run, "--resume", "--processor-time", "1h", status=1)
    assert "is for a training that begins" in capsys.readouterr().err
    path = tmp_path / "own.yaml"
    path.write_text(config_path("mlp").read_text() + "processor_time: 10min\n")
    command("fit", "--config", path, "--data.store", store, "--run", tmp_path / "y", status=1)
    assert "Give it on the command line" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="is given, too"):
        ens10.fit(store, "mlp", run=tmp_path / "z", max_epochs=2, processor_time="10min")
    with pytest.raises(ArgumentError, match="--step-memory: is for trainings on a store"):
        ens10.fit(xr.DataArray([0.0]), "emos_global", step_memory="1GB")


class Counter(limits._StepBytes):
    """The bytes that a step keeps, as many for each date."""

    def on_before_backward(self, *rest):
        super().on_before_backward(*rest)
        number = len(self.counts)
        COUNTED.append(self.counts[-1])
        self.counts[-1] = number * 1_000_000, number * 100_000


COUNTED = []


def test_the_part_that_fits(store, tmp_path, capsys, monkeypatch):
    """The largest divisor of the batch; limits of batches stand for as many dates."""
    monkeypatch.setattr(limits, "_StepBytes", Counter)
    COUNTED.clear()
    options = ["--data.batch_size", 6, "--trainer.max_epochs", 2]
    options += ["--trainer.limit_train_batches", 2]
    # 16 bytes of each of 3714 parameters, and 1.3 MB of each date: 3 dates in 4 MB, not 6
    run = fit(store, tmp_path / "run", *options, "--step-memory", "4MB")
    err = capsys.readouterr().err
    line = "4MB: batches of 6, which take 0.00786 GB (counted, not measured), are trained in parts"
    assert f"ens10: {line} of 3, with 0.00396 GB\n" in err
    config = config_of(run)
    assert config["data"]["batch_size"] == 3
    assert config["trainer"]["accumulate_grad_batches"] == 2
    assert config["trainer"]["limit_train_batches"] == 4
    assert read_provenance(run)["step_memory"]["bytes"] == 16 * 3714 + 3 * 1_300_000
    # of each point the hidden layer, twice at most, in float32, and fields of one value
    (one, largest), (two, _) = COUNTED
    hidden, points = 128 * 4, 8 * 16
    assert largest == hidden * points
    assert hidden * points <= two - one <= (2 * hidden + 60 * 4) * points
    whole = fit(store, tmp_path / "whole", *options)
    for name, value in weights(whole).items():
        if name.startswith("network"):
            torch.testing.assert_close(weights(run)[name], value, rtol=1e-3, atol=1e-5)


def test_limits_of_all_stages_count_parts():
    given = dict.fromkeys(limits._COUNT_BATCHES, 3) | {"overfit_batches": 0.0}
    options = limits._options_of_parts(given, 2, 4)
    assert options.pop("data.batch_size") == 2
    assert options.pop("trainer.accumulate_grad_batches") == 4
    names = [name for name in limits._COUNT_BATCHES if name != "overfit_batches"]
    assert options == {f"trainer.{name}": 12 for name in names}


def test_one_date_is_counted_alone(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(limits, "_StepBytes", Counter)
    COUNTED.clear()
    fit(store, tmp_path / "run", *SMALL, "--trainer.max_epochs", 1, "--step-memory", "4MB")
    assert "ens10: 4MB: batches of 1 fit, with 0.00136 GB" in capsys.readouterr().err
    assert len(COUNTED) == 1


def test_a_step_that_fails_ends_the_count(store, tmp_path, monkeypatch):
    def forward(*_):
        raise ArgumentError("forward", "fails")

    monkeypatch.setattr(MLP, "forward", forward)
    fit(store, tmp_path / "run", "--trainer.max_epochs", 1, "--step-memory", "4MB", status=1)
    # nothing is kept by hooks: they would be refused here
    with torch.autograd.graph.disable_saved_tensors_hooks("a hook is left"):
        torch.ones(2, requires_grad=True).exp()


def test_parts_are_refused_or_warned_of(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(limits, "_StepBytes", Counter)
    options = ["--trainer.max_epochs", 1, "--step-memory"]
    for number, (more, words) in enumerate(
        [
            (["4 horses"], "'4 horses' is not a size"),
            (["1MB"], "a step of one date takes 0.00136 GB, more than 1MB"),
            (["4MB", "--trainer.limit_val_batches=0.5"], "0.5 of an epoch may end within a batch"),
            (
                ["4MB", "--data.batch_size=8", "--trainer.val_check_interval=1"],
                "1 batches, of which the last one of an epoch has less than 8 dates",
            ),
            (["4MB", "--data.kind", "points"], "parts of a batch are whole fields, not points"),
        ]
    ):
        fit(store, tmp_path / str(number), *options, *more, status=1)
        assert words in capsys.readouterr().err
    run = fit(store, tmp_path / "all", *options, "1GB")
    assert "ens10: 1GB: batches of 4 fit, with 0.00526 GB" in capsys.readouterr().err
    assert config_of(run)["data"]["batch_size"] == 4
    unet = config_path("unet")
    words = ["--config", unet, "--data.store", store, "--run", tmp_path / "unet", "--quiet"]
    command("fit", *words, *options, "13MB")
    assert "NOT the same training: its batch normalisation sees" in capsys.readouterr().err
