"""ConvNeXt against its description, and trained through the command line."""

import csv

import pytest
import torch
from registered import CONFIGS
from torch.nn import functional

from ens10.cli import main
from ens10.errors import ArgumentError
from ens10.models.networks import ConvNeXt


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def test_parameters_as_stated():
    assert sum(p.numel() for p in ConvNeXt(14).parameters()) == 69_938


def test_it_is_its_description():
    """Every channel has a 7x7 filter of its own; the rest of a block is at each point."""
    network = ConvNeXt(3, width=6, depth=2, layer_scale=0.5, zero_init=False).double()
    x = noise(2, 3, 9, 12)
    fields = functional.conv2d(x, network.first.weight, network.first.bias, padding=1)
    for block in network.blocks:
        weight, bias = block.depthwise.weight, block.depthwise.bias
        channels = [
            functional.conv2d(fields[:, [c]], weight[[c]], bias[[c]], padding=3) for c in range(6)
        ]
        points = torch.cat(channels, 1).permute(0, 2, 3, 1)
        mean, variance = points.mean(-1, keepdim=True), points.var(-1, unbiased=False, keepdim=True)
        norm, up, _, down = block.points
        points = (points - mean) / (variance + 1e-6).sqrt() * norm.weight + norm.bias
        hidden = points @ up.weight.T + up.bias
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))  # GELU
        assert hidden.shape[-1] == 24
        change = hidden @ down.weight.T + down.bias
        fields = fields + 0.5 * change.permute(0, 3, 1, 2)
    last = functional.layer_norm(fields.permute(0, 2, 3, 1), (6,), eps=1e-6)
    expected = functional.conv2d(last.permute(0, 3, 1, 2), network.last.weight, network.last.bias)
    torch.testing.assert_close(network(x), expected, rtol=1e-10, atol=1e-12)


def test_a_point_sees_six_rows_and_columns_more_with_each_block():
    network = ConvNeXt(1, width=4, depth=2, layer_scale=1.0, zero_init=False).double()
    x = noise(1, 1, 21, 23).requires_grad_()
    network(x)[0, 0, 10, 11].backward()
    rows, columns = x.grad[0, 0].nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (3, 17, 4, 18)


@pytest.mark.parametrize(("option", "value"), [("depth", 0), ("expansion", 0), ("kernel_size", 4)])
def test_an_option_outside_its_range(option, value):
    with pytest.raises(ArgumentError, match=option):
        ConvNeXt(3, **{option: value})


def test_its_configuration_trains_and_scores_better_than_it_starts(prepared, tmp_path):
    torch.set_num_threads(1)
    store = prepared("8x16", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"
    fit = ["fit", "--config", CONFIGS["convnext"], "--data.store", store, "--quiet"]
    run = ["--run", tmp_path / "run"]
    assert main([str(a) for a in (*fit, *run, "--trainer.max_epochs", 3)]) == 0
    for command in (["predict", *run, "--quiet"], ["score", tmp_path / "run"]):
        assert main([str(a) for a in command]) == 0
    with (tmp_path / "run" / "scores.csv").open() as file:
        scores = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}
    with (tmp_path / "run" / "log" / "metrics.csv").open() as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert 0.1 < scores["crps"] < losses[0]
    assert losses[-1] < losses[0]
