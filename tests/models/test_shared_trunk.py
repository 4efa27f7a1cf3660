"""Members that share a trunk, against networks of one member each with the same weights."""

import copy

import pytest
import pytorch_lightning as pl
import torch
from torch.func import functional_call
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.models import MethodHead, PostProcessor, ResidualNormalHead, SharedTrunk, TargetHeads
from ens10.models.deep_ensemble import average_forecasts
from ens10.models.networks import MLP, ConvNeXt, LocationUNet, Transformer, UNet
from ens10.models.shared_trunk import MemberScales
from ens10.models.statistical import EMOS

GRID, SIZE = (8, 12), 3


def trunk(size=SIZE, kind=LocationUNet):
    """A network with the outputs of all members, none of whose parameters is zero."""
    torch.manual_seed(0)
    options = {"widths": (4, 6), "embedding": 2, "ridge": 0.1, "grid": GRID}
    made = kind(4, out_channels=2 * size, **(options if kind is LocationUNet else {}))
    for parameter in made.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    return made


def member(network, k, size=SIZE):
    """Weights of the network of one member alone: W s r^T, b s, and the outputs of its own."""
    weights = {}
    for name, part in network.named_modules():
        plain, scales = name.removesuffix(".conv"), network.get_submodule(name.rpartition(".")[0])
        own = dict(part.named_parameters(prefix=plain, recurse=False))
        if isinstance(scales, MemberScales):
            before = scales.before[k] if part.groups == 1 else torch.ones(1)
            after = scales.after[k] * (1 if part.groups == 1 else scales.before[k])
            own[f"{plain}.weight"] = (
                part.weight * after[:, None, None, None] * before[:, None, None]
            )
            own[f"{plain}.bias"] = part.bias * scales.after[k]
        if not isinstance(part, MemberScales):
            weights |= own
    for name in ("last.weight", "last.bias"):  # heads, members, channels
        rows = weights[name]
        weights[name] = rows.unflatten(0, (-1, size, 2))[:, k].flatten(0, 1)
    return weights


def silent(model):
    model.log = lambda *_, **__: None
    return model


@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize("kind", [LocationUNet, ConvNeXt])
def test_forecasts_and_gradients_are_those_of_networks_with_tied_weights(
    make_batches, scales, kind
):
    batch = {
        k: v.double() if v.is_floating_point() else v
        for k, v in make_batches(1, dates=4)[0].items()
    }
    model = silent(SharedTrunk(trunk(kind=kind), ResidualNormalHead(), SIZE, scales)).double()
    alone = trunk(1, kind).double()

    def forecast_of(k, dates=slice(None)):
        part = {name: values[dates] for name, values in batch.items()}
        outputs = functional_call(alone, member(model.network, k), part["features"])
        return ResidualNormalHead()(outputs, part), part

    joint = model(batch)
    expected = average_forecasts([forecast_of(k)[0] for k in range(SIZE)])
    torch.testing.assert_close(joint.mu, expected.mu, rtol=1e-12, atol=0)
    torch.testing.assert_close(joint.sigma, expected.sigma, rtol=1e-12, atol=0)

    loss, total = 0.0, batch["weights"].sum()
    for date, k in enumerate((2, 0, 1, 2)):  # in turn: the second batch begins at date 4
        forecast, part = forecast_of(k, slice(date, date + 1))
        loss = loss + (forecast.crps(part["target"]) * part["weights"]).sum() / total
    penalty = model.network.penalty()
    loss = loss if penalty is None else loss + penalty
    parameters = list(model.network.parameters())
    expected = torch.autograd.grad(loss, parameters)
    found = torch.autograd.grad(model.training_step(batch, 2), parameters)
    assert all(gradient.any() for gradient in found)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_equal_members_are_the_single_network(make_batches):
    batch = make_batches(1)[0]
    single = PostProcessor(trunk(1), ResidualNormalHead())
    model = SharedTrunk(trunk(), ResidualNormalHead(), SIZE)
    before = model(batch)
    own = {"last.weight", "last.bias"}
    state = single.network.state_dict()
    for name, parameter in model.network.named_parameters():
        if name.endswith((".before", ".after")):
            parameter.data.fill_(1)
            continue
        plain = state[name.replace(".conv.", ".")]
        if name.replace(".conv.", ".") in own:
            plain = plain.unflatten(0, (-1, 1, 2)).repeat_interleave(SIZE, 1).flatten(0, 2)
        parameter.data.copy_(plain)
    torch.testing.assert_close(model(batch).mu, single(batch).mu, rtol=1e-6, atol=0)
    torch.testing.assert_close(model(batch).sigma, single(batch).sigma, rtol=1e-6, atol=0)
    assert not torch.allclose(before.sigma, single(batch).sigma, rtol=1e-3)


@pytest.mark.parametrize("scales", [False, True])
def test_one_member_is_the_plain_network(make_batches, scales):
    batch = make_batches(1)[0]
    single = silent(PostProcessor(trunk(1), ResidualNormalHead()))
    model = silent(SharedTrunk(trunk(1), ResidualNormalHead(), 1, scales))
    assert model.network.state_dict().keys() == single.network.state_dict().keys()
    assert torch.equal(model(batch).sigma, single(batch).sigma)
    assert torch.equal(model.training_step(batch, 5), single.training_step(batch))


def test_training_reaches_all_members_with_one_date_a_batch(make_batches, tmp_path):
    torch.manual_seed(0)
    network = LocationUNet(4, GRID, out_channels=2 * SIZE, widths=(4,), embedding=2)
    model = SharedTrunk(network, MethodHead(EMOS()), SIZE, scales=False)
    train = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    loader = DataLoader(make_batches(6, dates=1), batch_size=None)
    train.fit(model, loader, loader)
    heads = network.last.weight.detach().unflatten(0, (-1, SIZE, 2))
    assert heads.flatten(2).any(-1).all()  # all were zero
    assert not torch.allclose(heads[:, 0], heads[:, 1])
    assert torch.equal(copy.deepcopy(model)(loader.dataset[0]).mu, model(loader.dataset[0]).mu)


def test_several_targets(make_batches):
    batch = make_batches(1)[0]
    for name in ("raw_mean", "raw_std", "target"):
        batch[name] = batch[name][:, None].repeat(1, 2, 1, 1)
    heads = TargetHeads([ResidualNormalHead(), ResidualNormalHead()], scales=(1.0, 2.0))
    model = silent(SharedTrunk(trunk(2 * SIZE), heads, SIZE))
    assert [tuple(one.mean.shape) for one in model(batch)] == [(2, *GRID)] * 2
    assert model.training_step(batch, 0).isfinite()


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (trunk, 0, "0 is less than 1"),
        (trunk, 5, r"takes 5 times 2\. Set out_channels to 10"),
        (lambda: UNet(4, 6), SIZE, "UNet has batch normalisation"),
        (lambda: Transformer(4, 6), SIZE, "Transformer has features of each ensemble member"),
        (lambda: MLP(4, out_channels=6), SIZE, "has no convolution"),
    ],
    ids=["no member", "outputs", "UNet", "Transformer", "MLP"],
)
def test_what_is_refused(make, size, message):
    network = make()
    with pytest.raises(ArgumentError, match=message):
        SharedTrunk(network, ResidualNormalHead(), size)


def test_batch_normalisation_without_scales():
    SharedTrunk(UNet(4, 6), ResidualNormalHead(), SIZE, scales=False)
