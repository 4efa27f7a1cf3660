"""SIGTERM and Ctrl-C: one line, the status of the signal, and a fit that can be resumed."""

import signal

import pytest
import stops
from realruns import command
from stops import assert_same_run, fit, resume, saved, stop_at

from ens10.signals import Interrupted, Stop, Terminated, stoppable

TERM, INT = signal.SIGTERM, signal.SIGINT
SLOW = [
    ("on_train_batch_end", 0, 0),
    ("on_train_batch_end", 1, stops.BATCHES - 1),
    ("on_validation_start", 2, 0),
    ("on_train_epoch_start", 1, 0),
    ("on_train_epoch_end", 1, 0),
    ("on_train_epoch_end", 2, 0),
]
QUICK = [("on_train_batch_end", 1, 1, TERM, 143), ("on_validation_batch_end", 1, 0, INT, 130)]
PLACES = QUICK + [pytest.param(*place, TERM, 143, marks=pytest.mark.slow) for place in SLOW]


@pytest.mark.parametrize(("hook", "epoch", "batch", "number", "status"), PLACES)
def test_a_signal_ends_a_fit_that_resumes_as_if_uninterrupted(
    store, whole, tmp_path, capfd, hook, epoch, batch, number, status
):
    run = tmp_path / "mlp"
    handler = signal.getsignal(number)
    fit(store, run, *stop_at(hook, epoch, batch, number), status=status)
    said = capfd.readouterr().err
    word = "interrupted" if number == INT else "terminated"
    assert said == f"ens10: {word}; resume with `ens10 fit --run {run} --resume`\n"
    assert signal.getsignal(number) == handler
    if hook.endswith("batch_end"):  # nothing at all was lost
        steps = stops.BATCHES if "validation" in hook else batch + 1
        assert saved(run)["global_step"] == epoch * stops.BATCHES + steps
    assert not list(run.rglob("*.lock"))
    resume(run)
    assert_same_run(run, whole)


@pytest.mark.slow
def test_a_method_that_is_stopped_begins_anew(store, tmp_path, capfd):
    """It collects all dates before it solves, so that a part of an epoch is of no use."""
    run = tmp_path / "emos"
    given = ["--config", stops.config_path("emos_global"), "--data.store", store, "--run", run]
    stopped = ["--quiet", *stop_at("on_train_batch_end", 0, 1, TERM)]
    command("fit", *given, *stopped, status=143)
    assert not (run / "checkpoints" / "last.ckpt").exists()
    resume(run)
    given[-1] = tmp_path / "whole"
    command("fit", *given, "--quiet")
    mine, its = saved(run)["state_dict"], saved(tmp_path / "whole")["state_dict"]
    assert all(value.equal(its[key]) for key, value in mine.items())


def test_a_second_signal_ends_at_once_and_one_that_is_passed_on_does_not(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ens10.signals.time.monotonic", lambda: now[0])
    stop = Stop()
    stop.deferred = True
    stop.handle(INT)
    now[0] += 0.1
    stop.handle(TERM)  # the same request, from the process that started this one
    assert stop.signal == INT
    now[0] += 5
    with pytest.raises(Interrupted):
        stop.handle(INT)
    with pytest.raises(Terminated) as ended:
        Stop().handle(TERM)
    assert ended.value.code == 143


def test_handlers_of_before_are_restored_and_ignored_signals_stay_so():
    before = signal.signal(TERM, signal.SIG_IGN)
    try:
        with stoppable():
            assert signal.getsignal(TERM) == signal.SIG_IGN
            assert signal.getsignal(INT) != before
        assert signal.getsignal(TERM) == signal.SIG_IGN
    finally:
        signal.signal(TERM, before)
