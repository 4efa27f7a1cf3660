"""Mixtures of experts in the place of a network's convolutions, by configuration."""

import pytest
import torch
from jsonargparse import ArgumentParser

from ens10.errors import ArgumentError
from ens10.models.layers import ExpertConvolution, Experts, SMoE2d
from ens10.models.networks import LocationUNet, Network

NETWORK = {
    "class_path": "ens10.models.networks.LocationUNet",
    "init_args": {
        "in_channels": 5,
        "grid": [9, 16],
        "widths": [4, 6],
        "convolution": {
            "class_path": "ens10.models.layers.ExpertConvolution",
            "init_args": {"experts": {"per_selected": 3, "routing_loss": False, "weighted": True}},
        },
    },
}


def built():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Network, "network")
    return parser.instantiate_classes(parser.parse_object({"network": NETWORK}))["network"]


def test_each_level_has_experts_on_its_own_grid():
    network = built()
    assert isinstance(network, LocationUNet)
    layers = [m for m in network.modules() if isinstance(m, SMoE2d)]
    shapes = [tuple(layer.gate.weight.shape) for layer in layers]
    assert shapes == [(12, 9, 16), (18, 5, 8), (12, 9, 16)]
    assert [layer.selected for layer in layers] == [4, 6, 4]
    assert all(layer.weighted and not layer.rule.classify for layer in layers)


def test_the_loss_teaches_experts_and_gates():
    torch.manual_seed(0)
    network = built()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # past the starts at zero
    outputs = network(torch.randn(2, 5, 9, 16))
    assert outputs.shape == (2, 2, 9, 16)
    outputs.square().mean().backward()
    assert [name for name, p in network.named_parameters() if not p.grad.any()] == []


def test_it_is_the_mixture_of_experts():
    torch.manual_seed(1)
    layer = ExpertConvolution(3, 4, (6, 8), Experts(per_selected=2))
    x = torch.randn(2, 3, 6, 8)
    inner = layer.layer
    assert isinstance(inner, SMoE2d)
    assert (inner.num_experts, inner.selected) == (8, 4)
    every = inner.experts(x)
    chosen = inner.gate.weight.topk(4, dim=0).indices.expand(2, 4, 6, 8)
    torch.testing.assert_close(layer(x), every.gather(1, chosen))


def test_experts_of_several_filters_have_fewer_gates():
    layer = ExpertConvolution(3, 12, (6, 8), Experts(filters=4, per_selected=2)).layer
    assert isinstance(layer, SMoE2d)
    assert (layer.num_experts, layer.selected, layer.out_channels) == (6, 3, 12)
    assert layer.gate.weight.shape == (6, 6, 8)
    assert layer.experts.weight.shape == (24, 3, 3, 3)


@pytest.mark.parametrize(
    ("channels", "grid", "experts", "message"),
    [
        (4, (0, 8), {}, "grid"),
        (12, (6, 8), {"filters": 5}, "12 channels are not a multiple"),
        (12, (6, 8), {"filters": 0}, "0"),
    ],
)
def test_what_does_not_fit(channels, grid, experts, message):
    with pytest.raises(ArgumentError, match=message):
        ExpertConvolution(3, channels, grid, Experts(**experts))
