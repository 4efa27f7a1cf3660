"""What a step takes is counted right, and the model of its time does what the formula says."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from ranks import own, shard
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from ens10.errors import ArgumentError
from ens10.models.domain import use
from ens10.models.networks import MLP, SAET, LeNet, SMoEUNet, UNet
from ens10.models.networks.base import Network
from ens10.models.parallel.cost import (
    ChosenLat,
    Footprint,
    Split,
    choose_lat,
    footprint,
    footprints,
    plan,
    splits,
)

ROOT = Path(__file__).parents[3]
GRID = (48, 64)
# of the paper's U-Net: (channels before and after, level)
CONVOLUTIONS = [
    (5, 32, 0), (32, 32, 0), (32, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 2), (128, 128, 2),
    (128, 64, 2), (128, 64, 1), (64, 32, 1), (64, 32, 0), (32, 32, 0), (32, 2, 0),
]  # fmt: skip
UPSAMPLED = [(64, 2), (32, 1)]


def unet(channels=5, **options):
    torch.manual_seed(0)
    return UNet(channels, **options)


@cache
def counted(lat=1, lon=1, grid=GRID, channels=5, samples=2):
    return footprint(unet(channels), (samples, channels), grid, lat, lon)


def halves(samples, width):
    """Bytes that one side of every halo has, there and back, and how many there are."""
    there = [before * (width >> level) for before, _, level in CONVOLUTIONS]
    there += [channels * (width >> level) for channels, level in UPSAMPLED]
    back = there[1:]  # nobody wants the gradient of the features
    return 4 * samples * sum(there), 4 * samples * sum(back), len(there), len(back)


def test_messages_are_those_of_the_formula():
    there, back, messages, backward = halves(2, GRID[1])
    two, three = counted(2), counted(3)
    assert (two.bytes, two.messages) == (there + back, messages + backward)
    # a part in the middle has two neighbours
    assert (three.bytes, three.messages) == (2 * two.bytes, 2 * two.messages)
    norms = [after for _, after, _ in CONVOLUTIONS[:-1]]
    assert two.sums == 3 * len(norms)
    assert two.summed_bytes == 4 * sum(4 * channels + 1 for channels in norms)


def sent(grid, lat, lon):
    """What this rank sent in a step."""
    network, domain = unet(), shard(grid, lat, lon, 2)
    with use(domain):
        network(own(domain, torch.randn(2, 5, *grid))).sum().backward()
    found = domain.exchange.traffic
    return found.messages, found.bytes, found.sums, found.summed_bytes


@pytest.mark.parametrize(("grid", "lat", "lon"), [(GRID, 2, 1), ((37, 50), 2, 1), (GRID, 2, 2)])
def test_messages_are_those_of_processes(ranks, grid, lat, lon):
    found = ranks(lat * lon, sent, grid, lat, lon)
    one = footprint(unet(), (2, 5), grid, lat, lon, dtype=torch.float64)
    assert (one.messages, one.bytes, one.sums, one.summed_bytes) == tuple(
        max(numbers) for numbers in zip(*found, strict=True)
    )


def test_operations_and_activations_are_those_of_a_real_step():
    network = unet()
    known = {p.data_ptr() for p in (*network.parameters(), *network.buffers())}
    sizes, kept = {}, []

    def keep(tensor):
        if tensor.data_ptr() not in known:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            kept.append(tensor)
        return tensor

    with FlopCounterMode(display=False) as flops:
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = network(torch.randn(2, 5, *GRID))
        outputs.sum().backward()
    assert counted().flops == flops.get_total_flops()
    assert counted().activation_bytes == sum(sizes.values())
    assert counted().largest_activation == max(sizes.values())
    assert counted().parameters == sum(p.numel() for p in network.parameters())


def test_activations_fall_with_the_parts():
    one, two, four = (counted(lat, 1, (361, 720), 20, 1).activation_bytes for lat in (1, 2, 4))
    # the whole grid keeps copies of fields that were padded where a number of rows is odd
    assert 0.45 < two / one <= 0.55
    assert 0.5 < four / two <= 0.53
    assert four / one <= 0.32
    assert counted(2).parameters == counted().parameters


def test_memory_is_parameters_with_adam_and_activations():
    one = counted()
    fields = one.activation_bytes + 3 * one.largest_activation
    assert one.memory == 16 * one.parameters + fields
    twice = one.times(2)
    assert (twice.samples, twice.flops) == (2, 2 * one.flops)
    assert twice.activation_bytes == 2 * one.activation_bytes


def test_bfloat16_halves_fields_and_messages():
    half = footprint(unet(), (2, 5), GRID, 2, dtype=torch.bfloat16)
    assert half.bytes == counted(2).bytes / 2
    assert half.flops == counted(2).flops
    # where a maximum was stays an integer
    assert half.activation_bytes < 0.53 * counted(2).activation_bytes
    assert half.parameter_bytes == counted(2).parameter_bytes


def test_the_network_stays_as_it_is():
    network = unet().eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    footprint(network, (1, 5), GRID, 2)
    assert not network.training
    assert all(p.grad is None and p.device.type == "cpu" for p in network.parameters())
    assert all(bool((network.state_dict()[name] == value).all()) for name, value in before.items())
    assert torch.autocast.__module__ == "torch.amp.autocast_mode"  # what counting put aside


@pytest.mark.parametrize("make", [lambda: SMoEUNet(5, GRID), lambda: SAET(5)], ids=["smoe", "saet"])
def test_networks_that_look_at_values_are_counted(make):
    network = make()
    shape = (1, 10, 5) if network.takes_members else (1, 5)
    one, two = (footprint(network, shape, GRID, lat) for lat in (1, 2))
    assert 0.45 * one.flops < two.flops < 0.6 * one.flops
    assert one.messages == 0 < two.messages


def test_one_device_sends_nothing():
    assert counted().messages == counted().sums == counted().bytes == 0


def test_the_processor_of_the_benchmark():
    measured = json.loads((ROOT / "benchmarks/results/unet_step.json").read_text())
    one = footprint(unet(22), (1, 22), (361, 720))
    assert one.core_seconds == pytest.approx(measured["seconds_of_a_step"], rel=0.1)
    # 28 bytes a parameter are Adam's
    few = Footprint(1, 7 * 10**9, 56 * 10**7 - 28000, 0, 0, 1000, 0, 0, 0, 0)
    assert few.core_seconds == pytest.approx(0.1 + 0.1)


def test_splits_are_all_products():
    found = [(s.data, s.lat, s.lon) for s in splits(4)]
    assert sorted(found) == [(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)]


@cache
def of_lenet(samples, lat, lon):
    return footprint(LeNet(5), (samples, 5), GRID, lat, lon)


def test_a_plan_divides_a_sample_least():
    roomy = plan(of_lenet, 4, 1e9, 2)
    assert {o.split.data for o in roomy.options} == {1, 2}  # 4 groups have not a sample each
    found = [tuple(o.split) for o in roomy.options]
    assert found == [(2, 2, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2), (1, 1, 4)]
    assert "counted, not measured" in str(roomy)
    needs = {o.split: o.footprint.memory for o in roomy.options}
    least = min(needs.values())
    tight = plan(of_lenet, 4, least, 2)
    assert needs[tight.best.split] == least
    refused = [o for o in tight.options if needs[o.split] > least]
    assert refused
    assert all("needs" in o.refusal for o in refused)
    with pytest.raises(ArgumentError, match=rf"the least is {least / 1e9:.3g} GB.*not measured"):
        plan(of_lenet, 4, least - 1, 2)


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_plan_of_nothing_is_refused(wrong):
    devices, memory, batch = wrong
    with pytest.raises(ArgumentError, match="0 is not positive"):
        plan(of_lenet, devices, memory, batch)


@pytest.mark.parametrize(
    ("lat", "lon", "bands"),
    [(2, 1, "2 row bands"), (1, 3, "3 column bands"), (2, 3, "2 row bands x 3 column bands")],
)
def test_the_bands_of_a_split_are_named(lat, lon, bands):
    assert str(ChosenLat(lat, "so", lon)) == f"each sample is split into {bands}, since so"


def test_a_split_that_is_refused_is_not_advised():
    assert choose_lat(Mean(), (1, 5), GRID, 4, 1e9).more == 0
    assert choose_lat(unet(), (1, 5), (12, 64), 15, 1e9).more == 3  # units of 4 rows
    assert choose_lat(unet(), (1, 5), (8, 64), 3, 1e9).more == 0


class Mean(Network):
    """Wrong on a part: its mean would be of the part."""

    def __init__(self):
        super().__init__()
        self.in_channels = self.out_channels = 5
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features):
        return self.scale * (features - features.mean(dim=(-2, -1), keepdim=True))


def test_what_cannot_be_split_is_refused_with_the_reason():
    unknown = plan(footprints(Mean(), (5,), GRID), 2, 1e9, 2)
    assert unknown.best.split == Split(2, 1, 1)
    assert all("Mean" in o.refusal for o in unknown.options[1:])
    thin = footprints(unet(), (5,), (8, 64))
    with pytest.raises(ArgumentError, match="8 rows or columns in units of 4"):
        thin(1, 3, 1)


def test_lat_is_as_small_as_memory_allows():
    network = MLP(5)
    one, two = (footprint(network, (1, 5), GRID, lat).memory for lat in (1, 2))
    roomy = choose_lat(network, (1, 5), GRID, 4, one)
    assert roomy.lat == 1
    amount = f"{one / 1e9:.3g} GB of {one / 1e9:.3g} GB a process (counted, not measured)"
    advice = "; set --trainer.strategy.lat 2 to split them"
    assert str(roomy) == f"samples are not split, since one part fits: {amount}{advice}"
    assert str(choose_lat(network, (1, 5), GRID, 1, one)) == str(roomy).removesuffix(advice)
    tight = choose_lat(network, (1, 5), GRID, 4, one - 1)
    assert tight.lat == 2
    need, memory = f"{two / 1e9:.3g} GB", f"{(one - 1) / 1e9:.3g} GB"
    assert str(tight) == (
        f"each sample is split into 2 row bands, since lat=1 needs {one / 1e9:.3g} GB, "
        f"and lat=2 {need} of {memory} a process (counted, not measured)"
    )
    assert choose_lat(network, (1, 5), GRID, 3, two).lat == 3  # 2 does not divide the world
    with pytest.raises(ArgumentError, match="lat=2 needs"):
        choose_lat(network, (1, 5), GRID, 2, two - 1)
    with pytest.raises(ArgumentError, match="do not divide"):
        choose_lat(network, (1, 5), GRID, 3, one, lon=2)
