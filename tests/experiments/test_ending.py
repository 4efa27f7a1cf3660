"""How a fit ends, its progress bar, and the first options of its help."""

import csv
import re
import shlex
from types import SimpleNamespace

import pytest
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.trainer.states import TrainerFn
from realruns import command, config_path

from ens10.cli import main
from ens10.experiments.runs import provenance
from ens10.experiments.runs.progress import DatesProgressBar
from ens10.experiments.runs.provenance import duration
from ens10.experiments.runs.runlog import RunLog
from ens10.experiments.training.options import FIRST_OPTIONS
from ens10.loader.datamodule import EnsembleDataModule


def fit(name, store, run, *options):
    command("fit", "--config", config_path(name), "--data.store", store, "--run", run, *options)


def validation_losses(run):
    with (run / "log" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["val_loss"]]
    return {int(row["epoch"]): float(row["val_loss"]) for row in rows}


def last_line(capsys):
    return capsys.readouterr().out.rstrip("\n").rpartition("\n")[2]


def time_of(run):
    return duration(provenance.read_provenance(run)["seconds"])


def test_a_fit_ends_with_its_best_loss_and_a_command_that_runs(store, tmp_path, capsys):
    run = tmp_path / "a run"
    # the learning rate is so large that later epochs are worse
    rate = ["--model.init_args.optimizer.init_args.lr", "1.0"]
    fit("mlp", store, run, "--trainer.max_epochs", 3, *rate)
    line = last_line(capsys)
    losses = validation_losses(run)
    assert len(losses) == 3
    epoch = min(losses, key=losses.get)
    loss = f"Best validation loss {losses[epoch]:.4g} in epoch {epoch} (the first is 0)"
    start, _, next_command = line.partition(" Next: ")
    assert start == f"{loss}, trained in {time_of(run)}."
    words = shlex.split(next_command)
    assert words == ["ens10", "predict", "--run", str(run)]
    assert main([*words[1:]]) == 0
    start, _, next_command = last_line(capsys).partition(". Next: ")
    assert start == f"Wrote the predictions of {run}"
    words = shlex.split(next_command)
    assert words == ["ens10", "score", str(run)]
    assert main(words[1:]) == 0
    assert (run / "scores.nc").is_file()


def test_a_method_that_is_solved_once_has_no_best_epoch(store, tmp_path, capsys):
    run = tmp_path / "emos"
    fit("emos_global", store, run)
    (loss,) = validation_losses(run).values()
    start = f"Validation loss {loss:.4g}, trained in {time_of(run)}. Next: ens10 predict --run "
    assert last_line(capsys) == f"{start}{run}"


def test_a_quiet_fit_prints_nothing(store, tmp_path, capsys):
    fit("raw", store, tmp_path / "raw", "--quiet")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([], ""),
        ([0.25], "validation loss 0.25"),
        (["nan", 0.512345, 0.75], "best validation loss 0.5123 in epoch 1 (the first is 0)"),
        (["nan", "nan"], "best validation loss nan in epoch 0 (the first is 0)"),
    ],
)
def test_the_least_of_the_logged_losses(tmp_path, losses, words):
    log = RunLog(tmp_path)
    log.log_metrics({"train_loss": 0.1, "epoch": 0})
    for epoch, loss in enumerate(losses):
        log.log_metrics({"val_loss": loss, "epoch": epoch})
    assert log.best_validation() == words


@pytest.mark.parametrize(
    ("stage", "training", "speed"),
    [
        ("FITTING", True, "6.00 dates/s"),  # 12 dates in 4 batches
        ("FITTING", False, "4.00 dates/s"),  # 4 in 2
        ("TESTING", False, "5.33 dates/s"),  # 8 in 3
        ("PREDICTING", False, "2.00 dates/s"),  # one by one
    ],
)
def test_the_bar_shows_dates_a_second(store, stage, training, speed):
    bar = DatesProgressBar()
    bar.train_progress_bar_id = 7
    data = EnsembleDataModule(str(store), target="t2m", batch_size=3)
    trainer = SimpleNamespace(datamodule=data, state=SimpleNamespace(fn=TrainerFn[stage]))
    column = bar.configure_columns(trainer)[-1]
    task = SimpleNamespace(id=7 if training else 8, speed=2.0)
    assert column.render(task).plain == speed
    task.speed = None
    assert column.render(task).plain == "0.00 dates/s"


def test_the_bar_shows_losses_and_no_version_of_the_log():
    bar, model = DatesProgressBar(), SimpleNamespace()
    trainer = SimpleNamespace(
        loggers=[CSVLogger(".", version="log")], progress_bar_metrics={"val_loss": 0.25}
    )
    assert bar.get_metrics(trainer, model) == {"val_loss": 0.25}


def test_the_help_begins_with_the_ten_usual_options(capsys):
    for stage in ("predict", "fit"):  # the description of the first stays with it
        with pytest.raises(SystemExit):
            main([stage, "--help"])
        text = capsys.readouterr().out
        assert ("Run inference" in text) == (stage == "predict")
    usage, _, first = text.partition("Options that people use first:\n")
    assert usage.startswith("usage: ens10 fit --config FILE --data.store STORE --run RUN [options]")
    assert usage.count("\n") == 4
    shown = re.findall(r"^  (?:-c CONFIG, )?(--\S+)", first.partition("\n\n")[0], re.MULTILINE)
    assert tuple(shown) == FIRST_OPTIONS
    assert len(shown) == 10
    everything = re.findall(r"^  (?:-\w \w+, )?(--\S+)", text, re.MULTILINE)
    assert len(everything) == len(set(everything))
    assert {"--quiet", "--trainer.strategy", "--data.kind", "--ckpt_path"} < set(everything)
