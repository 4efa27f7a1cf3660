"""Gradients of a batch in parts, accumulated by Lightning, against those of the whole batch."""

from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from ens10.models import DeepEnsemble, PostProcessor, ResidualNormalHead, SharedTrunk
from ens10.models.networks import MLP, LeNet, UNet

SGD = partial(torch.optim.SGD, lr=0.1)
ADAM = partial(torch.optim.Adam, lr=0.01, eps=1e-4)
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class Penalised(MLP):
    """A network whose penalty depends on its weights."""

    def penalty(self):
        return 0.1 * sum(parameter.square().sum() for parameter in self.parameters())


def batches_of(dates, size, missing=True):
    """Batches of `size` of the same random dates, whose weights and numbers of gaps differ."""
    rng = torch.Generator().manual_seed(0)

    def noise(*shape):
        return torch.randn(dates, *shape, 16, 16, generator=rng, dtype=torch.float64)

    weights = noise().abs()
    if missing:
        weights[torch.rand(weights.shape, generator=rng) < 0.4] = 0
        weights[1], weights[-1] = 0, weights[-1] * 5
    whole = {
        "features": noise(4),
        "raw_mean": noise(),
        "raw_std": 0.5 + noise().abs(),
        "target": 2 + noise(),
        "weights": weights,
        "dates": 86400 * torch.arange(dates),
    }
    return [
        {key: value[n : n + size] for key, value in whole.items()} for n in range(0, dates, size)
    ]


def weights_after(make, optimizer, batches, parts=1, epochs=1, **options):
    torch.manual_seed(0)
    module = make()(optimizer=optimizer).double()
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        precision="64-true",
        accumulate_grad_batches=parts,
        enable_checkpointing=False,
        **QUIET,
        **options,
    )
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return trainer, torch.cat([p.detach().flatten() for p in module.parameters()])


def processor(network, **options):
    return partial(PostProcessor, network(4, **options), ResidualNormalHead())


def deep_ensemble():
    return partial(DeepEnsemble, partial(MLP, 4), ResidualNormalHead(), 2)


def shared_trunk():
    return partial(SharedTrunk, LeNet(4, 6), ResidualNormalHead(), 3)


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(processor, MLP), id="mlp"),
        pytest.param(partial(processor, LeNet), id="lenet"),
        pytest.param(partial(processor, Penalised), id="penalty"),
        pytest.param(deep_ensemble, id="deep ensemble"),
        pytest.param(shared_trunk, id="shared trunk"),
    ],
)
@pytest.mark.parametrize("size", [1, 2])
def test_parts_are_the_batch(make, optimizer, size):
    """11 dates in batches of 4: the last one has 3, in parts of 2 the last has one."""
    whole, expected = weights_after(make, optimizer, batches_of(11, 4))
    trainer, found = weights_after(make, optimizer, batches_of(11, size), 4 // size)
    assert trainer.global_step == whole.global_step == 3
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < 1e-12


def test_without_accumulation_nothing_is_multiplied(monkeypatch):
    monkeypatch.setattr("ens10.models.postprocessor.AccumulatedParts.weighted", None)
    weights_after(partial(processor, MLP), SGD, batches_of(4, 2))


def test_a_batch_without_any_truth_changes_nothing():
    batches = batches_of(4, 1)
    for batch in batches:
        batch["weights"][:] = 0
    made = processor(MLP)
    before = torch.cat([p.detach().flatten() for p in made.args[0].parameters()]).double()
    _, after = weights_after(lambda: made, SGD, batches, 2)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_batch_without_any_truth_keeps_its_penalty():
    found = []
    for size in (4, 1):
        batches = batches_of(4, size)
        for batch in batches:
            batch["weights"][:] = 0
        found.append(weights_after(lambda: processor(Penalised), SGD, batches, 4 // size)[1])
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)
    assert found[0].abs().sum() > 0


def test_batch_normalisation_is_not_equal():
    make = partial(processor, UNet)
    _, expected = weights_after(make, SGD, batches_of(4, 4, missing=False))
    _, found = weights_after(make, SGD, batches_of(4, 2, missing=False), 2)
    assert (found - expected).abs().max() > 1e-6
