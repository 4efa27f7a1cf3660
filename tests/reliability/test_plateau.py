"""A schedule that follows the validation loss: a resumed fit takes the same steps."""

import signal

import pytest
from stops import assert_same_run, fit, resume, saved, stop_at

from ens10.models import PostProcessor

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
        pytest.param(
            "on_train_epoch_start", 2, 0, 0, 130, marks=pytest.mark.slow
        ),  # killed: from the end of the epoch before
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


class StepByStep(PostProcessor):
    """Its schedule follows the loss of each batch."""

    def _step(self, batch, stage):
        loss = super()._step(batch, stage)
        if stage == "train":
            self.log("batch_loss", loss, on_step=True, on_epoch=False)
        return loss

    def configure_optimizers(self):
        both = super().configure_optimizers()
        both["lr_scheduler"] |= {"monitor": "batch_loss", "interval": "step"}
        return both


STEPWISE = ("--model", "test_plateau.StepByStep", *OPTIONS)


def test_a_schedule_that_follows_each_batch_resumes_from_the_end_of_an_epoch(store, tmp_path):
    """Lightning steps it after the callbacks of a batch: a checkpoint there would lack the step."""
    whole = fit(store, tmp_path / "whole", *STEPWISE)
    (state,) = saved(whole)["lr_schedulers"]
    assert state["_last_lr"][0] < 1e-5  # it stepped more often than there are epochs
    run = tmp_path / "mlp"
    stop = stop_at("on_train_batch_end", 1, 1, signal.SIGTERM)
    fit(store, run, *STEPWISE, *stop, status=143)
    assert saved(run)["epoch"] == 0
    resume(run)
    assert_same_run(run, whole)
