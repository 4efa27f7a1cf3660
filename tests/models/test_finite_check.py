"""The check of a training step on the device: messages of the plain check, and clean weights."""

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP, UNet

COUNT = 5


def model(on_device, network=None):
    torch.manual_seed(0)
    module = PostProcessor(network or UNet(4), ResidualNormalHead())
    module.checks_on_device = on_device
    return module


def fit(module, batches, device="cpu", callbacks=(), **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator=device,
        devices=1,
        enable_checkpointing=bool(callbacks),
        callbacks=list(callbacks),
        **quiet,
        **options,
    )
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return trainer


def error_of(module, batches, **options):
    with pytest.raises(ArgumentError) as caught:
        fit(module, batches, **options)
    return str(caught.value)


def state_after(batches, **options):
    """Weights and moments after a training on these batches, by the plain check."""
    module = model(on_device=False)
    if batches:
        fit(module, batches, **options)
    return module.network.state_dict()


def assert_state(module, expected):
    for name, value in module.network.state_dict().items():
        torch.testing.assert_close(value.cpu(), expected[name].cpu(), rtol=0, atol=0)


@pytest.mark.parametrize("bad", [0, 2, COUNT - 1])
@pytest.mark.parametrize("key", ["target", "features"])
def test_the_same_error_and_the_state_before_the_bad_batch(bad, key, make_batches):
    batches = make_batches(COUNT)
    batches[bad][key][1, ..., 3, 5] = torch.nan
    module = model(on_device=True)
    error = error_of(module, batches)
    assert error.startswith("train_loss: not finite for valid date")
    assert f" 1970-01-{2 * bad + 2:02d}T00, where these inputs are NaN" in error
    assert error == error_of(model(on_device=False), batches)
    assert_state(module, state_after(batches[:bad]))


def test_a_finite_training_is_the_same(make_batches):
    batches = make_batches(COUNT)
    module = model(on_device=True)
    trainer = fit(module, batches)
    assert_state(module, state_after(batches))
    assert module._finite is None
    assert not hasattr(trainer.optimizers[0], "found_inf")


@pytest.mark.parametrize("bad", [2, 3])
def test_accumulation_keeps_the_flag(bad, make_batches):
    batches = make_batches(6)
    batches[bad]["target"][0, 1, 1] = torch.inf
    module = model(on_device=True)
    error = error_of(module, batches, accumulate_grad_batches=2)
    assert f"train_loss: not finite for valid date 1970-01-{2 * bad + 1:02d}T00" in error
    expected = state_after(batches[:2], accumulate_grad_batches=2)
    for name, value in module.network.named_parameters():
        torch.testing.assert_close(value.detach(), expected[name], rtol=0, atol=0)
    assert all(v.isfinite().all() for v in module.network.state_dict().values())


@pytest.mark.parametrize("bad", [1, COUNT - 1])
def test_gradients_that_are_not_finite_leave_the_weights(bad, make_batches):
    batches, module, calls = make_batches(COUNT), model(on_device=True), []

    def spoil(gradient):
        calls.append(0)
        return gradient * torch.nan if len(calls) == bad + 1 else gradient

    next(module.network.parameters()).register_hook(spoil)
    days = f"1970-01-{2 * bad + 1:02d}T00, 1970-01-{2 * bad + 2:02d}T00"
    error = error_of(module, batches)
    assert error.startswith(f"gradients: not finite for valid dates {days}, where the loss is")
    assert_state(module, state_after(batches[:bad]))


@pytest.mark.parametrize("bad", [2, COUNT - 1])
def test_no_checkpoint_of_a_bad_step(bad, make_batches, tmp_path):
    batches = make_batches(COUNT)
    batches[bad]["target"][0, 1, 1] = torch.nan
    saved = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    error_of(model(on_device=True), batches, callbacks=[saved])
    names = sorted(path.stem for path in tmp_path.glob("*.ckpt"))
    assert names == [f"step={n}" for n in range(1, bad + 1)]


def test_validation_comes_after_the_check(make_batches):
    batches = make_batches(COUNT)
    batches[1]["target"][0, 1, 1] = torch.nan
    module = model(on_device=True)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, val_check_interval=2,
        num_sanity_val_steps=0,
    )  # fmt: skip
    seen = []
    module.validation_step = lambda batch: seen.append(batch)
    loader = DataLoader(batches, batch_size=None)
    with pytest.raises(ArgumentError, match="train_loss: not finite for valid date 1970-01-03"):
        trainer.fit(module, loader, loader)
    assert not seen


def test_other_optimisers_keep_the_plain_check(make_batches):
    sgd = lambda parameters: torch.optim.SGD(parameters, 0.01)  # noqa: E731
    module = PostProcessor(MLP(4), ResidualNormalHead(), optimizer=sgd)
    module.checks_on_device = True
    seen = []
    module.on_train_epoch_end = lambda: seen.append(module._finite)
    fit(module, make_batches(1))
    assert seen == [None]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("bad", [0, 2, COUNT - 1])
def test_on_a_gpu(bad, make_batches):
    batches = make_batches(COUNT)
    batches[bad]["target"][1, 3, 5] = torch.nan
    module = model(on_device=None)  # chosen by the device
    error = error_of(module, batches, device="gpu")
    assert module._finite is not None
    assert error == error_of(model(on_device=False), batches, device="gpu")
    assert all(v.isfinite().all() for v in module.network.state_dict().values())
