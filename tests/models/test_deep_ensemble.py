import copy

import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.metrics.distributions import Ensemble, Normal, Quantiles, location_scale
from ens10.models import DeepEnsemble, MembersHead, MethodHead, PostProcessor, ResidualNormalHead
from ens10.models.deep_ensemble import average_forecasts
from ens10.models.layers import Experts
from ens10.models.networks import MLP, LocationUNet, SMoEResNet
from ens10.models.statistical import EMOS


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def network():
    return LocationUNet(4, (8, 12), widths=(4, 6), embedding=2, ridge=0.1)


def ensemble(size=3, head=None):
    torch.manual_seed(0)
    return DeepEnsemble(network, head or ResidualNormalHead(), size, optimizer=sgd)


def fitted(model, batches, folder):
    train = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    loader = DataLoader(batches, batch_size=None)
    train.fit(model, loader, loader)
    return train


def test_each_network_is_trained_as_it_would_be_alone(make_batches, tmp_path):
    batches = make_batches(missing=True)
    together = ensemble()
    starts = copy.deepcopy(together.networks)
    assert not torch.equal(starts[0].stem.weight, starts[1].stem.weight)
    train = fitted(together, batches, tmp_path)
    losses = []
    for start, trained in zip(starts, together.networks, strict=True):
        alone = PostProcessor(start, ResidualNormalHead(), optimizer=sgd)
        losses.append(fitted(alone, batches, tmp_path).callback_metrics)
        for one, other in zip(alone.network.parameters(), trained.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    for name in ("train_loss", "val_loss"):
        mean = sum(metrics[name] for metrics in losses) / 3
        if name == "train_loss":
            torch.testing.assert_close(train.callback_metrics[name], mean)
        else:
            assert train.callback_metrics[name] < mean


def test_gates_are_taught_as_they_would_be_alone(make_batches):
    """The routing classification goes by the scale of the loss, here half that of the sum."""
    batch = make_batches(1)[0]

    def network():
        experts = Experts(quantile=0.6)
        return SMoEResNet(4, (8, 12), width=4, blocks=1, experts=experts, zero_init=False)

    torch.manual_seed(0)
    together = DeepEnsemble(network, ResidualNormalHead(), 2)
    alone = [PostProcessor(copy.deepcopy(n), ResidualNormalHead()) for n in together.networks]
    for model in (together, *alone):
        model.log = lambda *_, **__: None
        (model.training_step(batch) / 2).backward()
    for one, trained in zip(alone, together.networks, strict=True):
        for wanted, found in zip(one.network.parameters(), trained.parameters(), strict=True):
            assert wanted.grad.any()
            torch.testing.assert_close(found.grad, wanted.grad)


def test_a_method_is_solved_once_for_all(make_batches, tmp_path):
    method, batches = EMOS(), make_batches()
    model = ensemble(2, MethodHead(method))
    fitted(model, batches, tmp_path)
    expected = EMOS()
    for batch in batches:
        expected.collect(batch)
    expected.solve()
    assert torch.equal(method.bias, expected.bias)
    assert model.method is method


values = st.floats(-50, 50, width=32)
spreads = st.floats(0.0625, 20, width=32)


def field(numbers):
    return torch.tensor(numbers, dtype=torch.float64).reshape(1, 1, -1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(values, spreads, spreads), min_size=1, max_size=6), values)
def test_never_worse_than_its_parts_on_average(rows, truth):
    y = field([truth])
    normals = [Normal(field([mu]), field([sigma])) for mu, sigma, _ in rows]
    logistic = [location_scale("logistic", field([mu]), field([sigma])) for mu, sigma, _ in rows]
    members = [
        Ensemble(torch.tensor([mu - a, mu, mu + b], dtype=torch.float64).view(1, 3, 1, 1))
        for mu, a, b in rows
    ]
    for parts in (normals, members):
        parts_mean = sum(part.crps(y) for part in parts) / len(parts)
        assert average_forecasts(parts).crps(y).item() <= parts_mean.item() + 1e-9
    # of the logistic one, quantiles at 99 levels are averaged: compare like with like
    levels = average_forecasts(logistic[:1]).levels
    p = torch.tensor(levels, dtype=torch.float64)
    parts = [Quantiles(part.quantile(p).transpose(0, 1), levels) for part in logistic]
    parts_mean = sum(part.crps(y) for part in parts) / len(parts)
    assert average_forecasts(logistic).crps(y).item() <= parts_mean.item() + 1e-9


def test_parameters_of_normals_are_averaged_which_averages_their_quantiles():
    parts = [Normal(field([1.0, 2.0]), field([0.5, 1.0])), Normal(field([3.0, 0]), field([1.5, 3]))]
    joint = average_forecasts(parts)
    assert torch.equal(joint.mu, field([2.0, 1.0]))
    assert torch.equal(joint.sigma, field([1.0, 2.0]))
    for q in (0.1, 0.5, 0.93):
        torch.testing.assert_close(joint.quantile(q), sum(part.quantile(q) for part in parts) / 2)


def test_members_are_pooled():
    one, two = (torch.randn(2, m, 3, 4) for m in (3, 5))
    joint = average_forecasts([Ensemble(one, "fair"), Ensemble(two, "fair")])
    assert torch.equal(joint.members, torch.cat([one, two], 1))
    assert joint.estimator == "fair"


def test_what_cannot_be_averaged_or_trained_together(make_batches):
    normal = Normal(field([0.0]), field([1.0]))
    with pytest.raises(ArgumentError, match="Ensemble and Normal: must be of one kind"):
        average_forecasts([normal, Ensemble(torch.zeros(1, 2, 1, 1))])
    with pytest.raises(ArgumentError, match="none: must be of one kind"):
        average_forecasts([])
    with pytest.raises(ArgumentError, match="0 is less than 1"):
        ensemble(0)
    with pytest.raises(ArgumentError, match="delivers outputs of a grid point"):
        DeepEnsemble(lambda: MLP(4, out_channels=1), MembersHead(), 2)

    class Learned(ResidualNormalHead):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(()))

    with pytest.raises(ArgumentError, match="has parameters, which the networks would share"):
        ensemble(2, Learned())
    with pytest.raises(ArgumentError, match="Set the network's in_channels"):
        ensemble(2)(make_batches(1, channels=7)[0])
