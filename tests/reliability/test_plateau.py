"""A schedule that follows the validation loss: a resumed fit takes the same steps."""

import signal

import pytest
from stops import assert_same_run, fit, resume, saved, stop_at

PLATEAU = ("--model.init_args.scheduler", "torch.optim.lr_scheduler.ReduceLROnPlateau")
# each epoch counts as a bad one, and the next has a tenth of the rate
OPTIONS = (
    *PLATEAU,
    *("--model.init_args.scheduler.init_args.patience", 0),
    *("--model.init_args.scheduler.init_args.threshold", 1.0),
)


@pytest.fixture(scope="module")
def plateau(store, tmp_path_factory):
    run = fit(store, tmp_path_factory.mktemp("plateau") / "mlp", *OPTIONS)
    (state,) = saved(run)["lr_schedulers"]
    assert state["num_bad_epochs"] == 0
    assert state["_last_lr"][0] < 1e-3  # or the test shows nothing
    return run


@pytest.mark.parametrize(
    ("hook", "epoch", "batch", "number", "status"),
    [
        ("on_train_epoch_start", 2, 0, 0, 130),  # killed: from the end of the epoch before
        ("on_train_batch_end", 1, 1, signal.SIGTERM, 143),  # from within
        pytest.param("on_validation_batch_end", 1, 0, signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("on_train_epoch_end", 1, 0, signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_fit_takes_every_step_of_a_plateau_schedule(
    store, plateau, tmp_path, hook, epoch, batch, number, status
):
    run = tmp_path / "mlp"
    fit(store, run, *OPTIONS, *stop_at(hook, epoch, batch, number), status=status)
    resume(run)
    assert_same_run(run, plateau)
    mine, its = (saved(r)["optimizer_states"][0]["param_groups"] for r in (run, plateau))
    assert mine == its
