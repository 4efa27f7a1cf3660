"""The layer within training steps: scaled losses, accumulation, several layers, processes."""

import copy
import gc
import pickle
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ens10.errors import ArgumentError
from ens10.models.layers.smoe import ComparingSMoE2d, ConvGate, SMoE2d, TensorGate, track_loss
from ens10.models.layers.smoe.routing import layer_of

GRID = (6, 8)


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(**options):
    """Two layers with gates of their own and a third with the gate of the first."""
    torch.manual_seed(0)
    shared = TensorGate(4, 2, GRID)
    layers = [
        SMoE2d(3, 4, 2, shared, **options),
        nn.ReLU(inplace=True),
        SMoE2d(2, 6, 2, ConvGate(2, 6), weighted=True, **options),
        SMoE2d(2, 4, 2, shared, **options),
    ]
    return nn.Sequential(*layers).double()


def data(count=4):
    return noise(count, 3, *GRID), noise(count, 2, *GRID, seed=2)


MARGINS = [
    {"margin": 0.1, "damping_margin": 0.2},
    {"margin": 0.3, "damping_margin": 0.1, "relative_margins": True},
]


def loss_of(model, x, t):
    return track_loss((model(x) - t).square().mean(), model)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("margins", MARGINS)
def test_accumulated_half_batches_equal_one_batch(margins):
    whole, halves = network(**margins), network(**margins)
    x, t = data()
    loss_of(whole, x, t).backward()
    for part in (slice(0, 2), slice(2, 4)):
        (loss_of(halves, x[part], t[part]) / 2).backward()
    for name, gradient in gradients(halves).items():
        torch.testing.assert_close(gradient, gradients(whole)[name], rtol=1e-10, atol=1e-14)


class Tracked(pl.LightningModule):
    """The training step as a module has to write it."""

    def __init__(self, **options):
        super().__init__()
        self.network = network(**MARGINS[0], **options)

    def training_step(self, batch):
        return loss_of(self.network, *batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def trained(folder, epochs=1, **options):
    """By Lightning, two half batches a step."""
    module = Tracked(**options)
    dataset = torch.utils.data.TensorDataset(*data())
    trainer = pl.Trainer(
        max_epochs=epochs,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, torch.utils.data.DataLoader(dataset, batch_size=2))
    return module.network


def test_lightning_accumulates_as_one_batch(tmp_path):
    halves, whole, (x, t) = trained(tmp_path), network(**MARGINS[0]), data()
    loss_of(whole, x, t).backward()
    torch.optim.SGD(whole.parameters(), lr=0.5).step()
    for parameter, expected in zip(halves.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-10, atol=1e-14)
    copied = copy.deepcopy(halves)
    assert torch.equal(copied(x), halves(x))


@pytest.mark.slow  # compiles for three layers
def test_lightning_accumulates_with_the_compiled_form(tmp_path):
    """Three steps of two half batches each: its scale of the loss is that of one half."""
    compiled = trained(tmp_path, epochs=3, kernel="compiled")
    eager, before = trained(tmp_path, epochs=3, kernel="eager"), network()
    for weight, expected, first in zip(
        compiled.parameters(), eager.parameters(), before.parameters(), strict=True
    ):
        scale = expected.abs().max().item()
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-12 * scale)
        assert not torch.equal(weight, first)


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-10])
@pytest.mark.parametrize("margins", MARGINS)
def test_a_scaled_loss_gives_the_scaled_gradients(scale, margins):
    plain, scaled = network(**margins), network(**margins)
    x, t = data()
    loss_of(plain, x, t).backward()
    (scale * loss_of(scaled, x, t)).backward()
    for name, gradient in gradients(scaled).items():
        torch.testing.assert_close(gradient / scale, gradients(plain)[name], rtol=0, atol=0)


def test_a_gradient_scaler_gives_the_same_updates():
    plain, scaled = network(**MARGINS[0]), network(**MARGINS[0])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (plain, scaled)]
    x, t = data()
    for _ in range(5):  # the scale grows meanwhile
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(plain, x, t).backward()
        optimizers[0].step()
        scaler.scale(loss_of(scaled, x, t)).backward()
        scaler.step(optimizers[1])
        scaler.update()
    assert scaler.get_scale() > 2.0**16
    for parameter, expected in zip(scaled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-10, atol=1e-14)


def test_gradients_of_layers_in_a_row_are_those_of_each_alone():
    """Each layer judges by the gradient that reaches it, and passes the damped one on."""
    model, (x, t) = network(), data()
    maps = [x]
    for layer in model:
        maps.append(layer(maps[-1].clone()))
    loss_of(model, x, t).backward()
    together = gradients(model)
    gradient = 2 * (maps[-1].detach() - t) / t.numel()
    model.zero_grad()
    for layer, features in zip(reversed(model), reversed(maps[:-1]), strict=True):
        features = features.detach().clone().requires_grad_()
        product = (layer(features.clone()) * gradient).sum()
        track_loss(product, model).backward()
        gradient = features.grad
    for name, alone in gradients(model).items():
        torch.testing.assert_close(together[name], alone, rtol=1e-10, atol=1e-14)


def test_an_untracked_loss_is_refused_and_a_frozen_gate_needs_none():
    model, (x, t) = network(), data()
    with pytest.raises(ArgumentError, match=r"track_loss\(loss, network\) before backward"):
        (model(x) - t).square().mean().backward()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("gate" not in name)
    (model(x) - t).square().mean().backward()
    (network().eval()(x) - t).square().mean().backward()
    with torch.no_grad():
        assert loss_of(model, x, t) > 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_is_refused(bad):
    model, (x, t) = network(), data()
    t[1, 0, 2, 3] = bad
    with pytest.raises(ArgumentError, match=r"gradient: .* not finite"):
        loss_of(model, x, t).backward()


def test_half_precision_leaves_overflow_to_the_scaler():
    torch.manual_seed(0)
    layer = SMoE2d(3, 4, 2, TensorGate(4, 2, GRID)).half()
    y = layer(noise(1, 3, *GRID).half())
    (track_loss(y.square().mean(), layer) * torch.inf).backward()
    assert not layer.experts.weight.grad.isfinite().all()


def test_mixed_precision_trains():
    torch.manual_seed(0)
    layer = SMoE2d(3, 4, 2, ConvGate(3, 4), weighted=True, filters=2)
    x = noise(2, 3, *GRID).float()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        assert y.dtype == torch.bfloat16
        assert layer.route(x).dtype == torch.float32
        loss = track_loss(y.float().square().mean(), layer)
    loss.backward()
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters())
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


def test_activation_checkpointing_changes_nothing():
    plain, saving = network(), network()
    x, t = data()
    loss_of(plain, x, t).backward()
    y = checkpoint(saving, x, use_reentrant=False)
    track_loss((y - t).square().mean(), saving).backward()
    for name, gradient in gradients(saving).items():
        assert torch.equal(gradient, gradients(plain)[name])


class Watching(TensorGate):
    """Notes whether it is looked into: what is there cannot be told from outside."""

    def forward(self, features):
        self.compiled = torch.compiler.is_compiling()
        return super().forward(features)


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_torch_compile_takes_the_layers_into_one_graph():
    torch.manual_seed(0)
    last = ComparingSMoE2d(2, 4, Watching(4, 1, GRID), filters=2)
    plain = nn.Sequential(*network(), nn.ReLU(), last).float()  # whose loops are compiled
    x, t = (values.float() for values in data())
    compiled = copy.deepcopy(plain)
    loss_of(plain, x, t).backward()
    y = torch.compile(compiled, backend="eager", fullgraph=True)(x)
    track_loss((y - t).square().mean(), compiled).backward()
    assert compiled[-1].gate.compiled
    for name, gradient in gradients(compiled).items():
        assert torch.equal(gradient, gradients(plain)[name])


def test_a_copy_is_found_by_a_key_of_its_own():
    layer = SMoE2d(2, 4, 2, TensorGate(4, 2, GRID))
    copies = copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))
    assert all(layer_of(one.key) is one for one in (layer, *copies))


LAYERS = [
    lambda: SMoE2d(2, 4, 2, TensorGate(4, 2, GRID)),
    lambda: ComparingSMoE2d(2, 4, TensorGate(4, 1, GRID)),
]


@pytest.mark.parametrize("make", LAYERS)
def test_a_layer_may_be_gone_before_the_backward_pass(make):
    x = noise(1, 2, *GRID).float().requires_grad_()

    def loss_of_a_local_layer():
        return loss_of(make(), x, 0.0)

    loss = loss_of_a_local_layer()
    gc.collect()
    loss.backward()
    assert x.grad.abs().sum() > 0


def moved(values):
    """The same values with another order in memory."""
    return values.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("loops", [False, True])
def test_operators_return_the_layout_that_graphs_expect(loops):
    layers = [make() for make in LAYERS]
    for layer in layers:
        layer.state.loss_scale = torch.ones(())
    gate, choices = moved(noise(2, 4, *GRID).float()), torch.randint(4, (2, *GRID, 2))
    gradient = moved(noise(2, 2, 3, *GRID).float())
    check = partial(torch.library.opcheck, test_utils="test_faketensor")
    arguments = (gradient, None, gate, choices, None, None, layers[0].key, loops)
    check(torch.ops.ens10.classify_choices.default, arguments)
    values = moved(noise(2, 4, 3, *GRID).float())
    arguments = (gradient[:, :1], values, gate, choices[..., :1], None, layers[1].key)
    check(torch.ops.ens10.compare_experts.default, arguments)


def test_distributed_training_takes_many_steps(tmp_path):
    """One backward pass a step: every parameter is ready once."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    try:
        plain, x_t = network(), data()
        model = nn.parallel.DistributedDataParallel(network())
        for each in (plain, model):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                loss_of(each, *x_t).backward()
                optimizer.step()
        for trained, expected in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(trained, expected)
    finally:
        torch.distributed.destroy_process_group()


def test_routing_learns_which_expert_is_right():
    """Two experts that are given and right in one half of the grid each."""
    torch.manual_seed(0)
    layer = SMoE2d(1, 2, 1, TensorGate(2, 1, GRID), kernel_size=1, margin=1e-3)
    layer.experts.weight.data[:] = torch.tensor([1.0, -1.0]).view(2, 1, 1, 1)
    layer.experts.weight.requires_grad_(False)
    layer.gate.weight.data[:] = torch.tensor([0.1, 0.0]).view(2, 1, 1)
    signs = torch.ones(GRID)
    signs[:, 4:] = -1
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for step in range(60):
        x = noise(8, 1, *GRID, seed=step).float()
        optimizer.zero_grad()
        track_loss((layer(x) - signs * x).square().mean(), layer).backward()
        optimizer.step()
    assert torch.equal(layer.choices(x)[0, 0] == 0, signs > 0)
