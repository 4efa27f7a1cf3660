"""Networks of the package as the shipped configurations build them: the tables of many tests.

A network is in these tables once a configuration in experiments/configs/ names it.
"""

from functools import cache
from pathlib import Path

import torch
from jsonargparse import ArgumentParser
from torch.utils.flop_counter import FlopCounterMode

from ens10.experiments.training.data_numbers import read_config
from ens10.models.layers.smoe import SMoE2d
from ens10.models.networks import Network

ROOT = Path(__file__).parents[2]
CONFIGS = {path.stem: path for path in sorted((ROOT / "experiments" / "configs").glob("*.yaml"))}


@cache
def _model(name, grid=(46, 96)):
    return read_config(CONFIGS[name], grid=grid)["model"]


def is_statistical(name):
    return _model(name)["class_path"].endswith("StatisticalPostProcessor")


MODELS = [n for n in CONFIGS if not n.startswith("heat_")]  # those are an experiment of their own
CONFIGURED = [n for n in MODELS if not is_statistical(n)]  # configurations with a network
# the first configuration of each network, by the name of its class
NETWORKS = {
    _model(name)["init_args"]["network"]["class_path"].rpartition(".")[2]: name
    for name in reversed(CONFIGURED)
}


def instance(base, description):
    """What the command line builds, without data."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(base, "part")
    return parser.instantiate_classes(parser.parse_object({"part": description}))["part"]


def network(name, grid):
    """The network of a configuration on another grid; nothing in it starts at zero."""
    torch.manual_seed(0)
    made = instance(Network, _model(name, grid)["init_args"]["network"])
    for parameter in made.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def has_grid(name):
    """Whether a configuration's network has values at each point."""
    return "'grid'" in str(_model(name)["init_args"]["network"])


def input_shape(made, samples=2, members=3):
    """Of the features, without rows and columns."""
    outer = (samples, members) if made.takes_members else (samples,)
    return (*outer, made.in_channels)


def count(model):
    """The number of trained parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def work(networks, members, grid):
    """Multiply-adds of a pass of a date, in millions; whether its outputs are all zeros.

    Of experts only those that are selected count, whether the layer computes the others or not.
    """
    zero, entered, experts = True, [], []
    counter = FlopCounterMode(display=False)

    def enter(layer, inputs):
        entered.append(counter.get_total_flops())

    def leave(layer, inputs, outputs):
        own = counter.get_total_flops() - entered.pop()
        filters = layer.experts.weight[0].numel()
        experts.append(2 * outputs.numel() * filters - own)

    for layer in (part for made in networks for part in made.modules()):
        if isinstance(layer, SMoE2d):
            layer.register_forward_pre_hook(enter)
            layer.register_forward_hook(leave)
    with counter:
        for made in networks:
            outputs = made.eval()(torch.randn(*input_shape(made, 1, members), *grid))
            zero = zero and not outputs.any()
    return (counter.get_total_flops() + sum(experts)) / 2e6, zero
