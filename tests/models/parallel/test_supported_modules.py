"""Which modules may be split between processes, and what is said of others."""

import inspect
import pkgutil
from importlib import import_module

import pytest
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ens10 import models
from ens10.errors import ArgumentError
from ens10.models import (
    DeepEnsemble,
    EnergyLoss,
    MembersHead,
    MethodHead,
    PostProcessor,
    ResidualNormalHead,
    SharedTrunk,
    StatisticalPostProcessor,
    layers,
)
from ens10.models.heads import Head, HeadOnMethod
from ens10.models.layers import NeighbourhoodBlock, SameConv2d, smoe
from ens10.models.layers.norm import GroupNorm
from ens10.models.losses import Loss
from ens10.models.networks import (
    MLP,
    SAET,
    LocationUNet,
    Network,
    PaperPoET,
    PoET,
    SMoEUNet,
    UNet,
    WithMembers,
)
from ens10.models.networks.unet import UNetBody
from ens10.models.parallel import supported_modules
from ens10.models.parallel.supported_modules import register_supported, require_supported
from ens10.models.statistical import EMOS, MemberByMember
from ens10.models.statistical.base import GridBuffers, StatisticalMethod

GRID = (12, 16)


def on_head(network):
    return PostProcessor(network, ResidualNormalHead())


def with_gate(gate):
    return on_head(SMoEUNet(4, GRID, places=["last"], last_gate=gate, width=2))


VARIANTS = [
    lambda: on_head(LocationUNet(4, GRID, block=NeighbourhoodBlock)),
    lambda: with_gate(smoe.RegionGate(3)),
    lambda: on_head(WithMembers(MLP(16), 4)),
]


@pytest.mark.parametrize("make", VARIANTS, ids=lambda make: type(make().network).__name__)
def test_models_of_the_package_are_known(make):
    require_supported(make())


def test_models_of_members_and_several_networks_are_known():
    for network in (PoET(4), SAET(4)):
        require_supported(PostProcessor(network, MembersHead(), EnergyLoss()))
    require_supported(DeepEnsemble(lambda: UNet(4), ResidualNormalHead(), size=2))
    require_supported(SharedTrunk(LocationUNet(4, GRID, 4), ResidualNormalHead(), 2))
    require_supported(PostProcessor(MLP(4), MethodHead()))
    require_supported(PostProcessor(PoET(4, grid=GRID), MembersHead()))


def modules_of_the_package():
    for found in pkgutil.walk_packages(models.__path__, "ens10.models."):
        module = import_module(found.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, nn.Module) and kind.__module__ == found.name:
                yield kind


def test_every_module_of_the_package_declares_whether_it_can_be_split():
    """A layer that declares `splittable = True` needs a test against the serial one."""
    bases = {Network, UNetBody, Head, HeadOnMethod, Loss, smoe.Gate, GridBuffers, StatisticalMethod}
    fitted = {kind for kind in modules_of_the_package() if issubclass(kind, StatisticalMethod)}
    silent = {k for k in set(modules_of_the_package()) - bases if "splittable" not in vars(k)}
    named = {kind.__name__ for kind in silent - fitted if not inspect.isabstract(kind)}
    assert named == {
        "ModuleNetwork",  # of a user's module, about which nothing is known
        "Advection",  # of regressions, which are fitted in one process
        "Neighbours",  # the same
        "PlaceRegression",  # the same
        "TargetMethods",  # copies of a method, which would each be split
        "TrainedModule",
        "_FieldsLoss",
        "_ForecastModule",
        "_MembersLoss",
    }
    assert len(supported_modules._supported_kinds & fitted) == 3


UNKNOWN = [
    (nn.BatchNorm2d(3), r"statistics would cover one part only; use ens10\.models\.layers\.Batch"),
    (nn.InstanceNorm2d(3), "layers.GroupNorm"),
    (nn.GroupNorm(1, 3), "layers.GroupNorm"),
    (nn.LayerNorm((3, *GRID)), "ChannelNorm"),
    (nn.Conv2d(3, 3, 3, padding=1), "SameConv2d"),
    (nn.Conv2d(3, 3, 1, stride=2), "SameConv2d"),
    (nn.Conv2d(3, 3, 1, padding=1), "SameConv2d"),
    (nn.ConvTranspose2d(3, 3, 2, 2), "neighbouring parts"),
    (layers.FinnAttention(4, 2, stride=3), "cross the border; set stride to 1"),
    (PaperPoET(4), "cross the border; use ens10.models.networks.PoET"),
    (nn.Dropout(0.1), "set p to 0"),
    (nn.Dropout2d(0.1), "draw"),
    (nn.MultiheadAttention(4, 2, dropout=0.1), "set dropout to 0"),
    (nn.Upsample(scale_factor=2), "upsample_twice"),
    (nn.MaxPool2d(3, 2), "pooling of 2 x 2"),
    (nn.MaxPool2d(2, 2, dilation=2), "pooling of 2 x 2"),
    (nn.AvgPool2d(2, ceil_mode=True), "pooling of 2 x 2"),
    (nn.AdaptiveAvgPool2d(1), "pooling"),
    (nn.ReflectionPad2d(1), "pad"),
    (nn.RReLU(), "it is not known"),
    (nn.Softmax2d(), "it is not known"),
    (nn.LSTM(3, 3), "it is not known"),
    (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "it is not known"),
    (MemberByMember(), "maps of the whole grid"),
]


@pytest.mark.parametrize(("module", "reason"), UNKNOWN, ids=lambda x: type(x).__name__)
def test_other_modules_are_refused(module, reason):
    model = on_head(UNet(4))
    model.network.down_0.append(nn.Sequential(nn.ReLU(), module))
    with pytest.raises(ArgumentError, match=reason) as caught:
        require_supported(model)
    kind = type(module).__name__
    assert f"because of network.down_0.6.1 ({kind})" in str(caught.value)
    assert "`splittable = True` in their class" in str(caught.value)


ALIKE = [
    nn.Conv2d(3, 3, 1, padding="same"),
    nn.Conv2d(4, 4, 1, groups=2),
    nn.MaxPool2d(2),
    nn.AvgPool2d((2, 2)),
    nn.Dropout(0.0),
    nn.TransformerEncoderLayer(4, 2, dropout=0.0),
    nn.MultiheadAttention(4, 2),
    GroupNorm(1, 3),
]


@pytest.mark.parametrize("module", ALIKE, ids=lambda x: type(x).__name__)
def test_what_looks_at_a_point_or_halves_is_known(module):
    require_supported(nn.Sequential(module, nn.GELU()))


class Bent(SameConv2d):
    """A subclass may look where it will."""

    def forward(self, fields):
        return super().forward(fields.flip(-1))


class Mine(Network):
    """A network of a user."""

    in_channels = out_channels = 2

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, features):
        return self.inside(features)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: with_gate(smoe.RegionGate(3, advection=True)), "Advection"),
        (
            lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, dropout=0.1)),
            r"0\.self_attn \(MultiheadAttention\), 0\.dropout ",
        ),
        (lambda: nn.Sequential(Bent(2, 2)), r"because of 0 \(Bent\)\. Bent: its filter"),
        (
            lambda: StatisticalPostProcessor(EMOS()),
            r"because of the model \(StatisticalPostProcessor\)",
        ),
    ],
    ids=["advection", "dropout in a transformer", "a subclass", "a statistical method"],
)
def test_whole_models_are_refused(make, reason):
    with pytest.raises(ArgumentError, match=reason):
        require_supported(make())


def test_all_of_them_are_named_at_once():
    model = nn.Sequential(nn.BatchNorm2d(2), Mine(nn.Dropout(0.5)), nn.BatchNorm2d(2))
    with pytest.raises(ArgumentError) as caught:
        require_supported(model)
    text = str(caught.value)
    assert "because of 0 (BatchNorm2d), 1 (Mine), 2 (BatchNorm2d). BatchNorm2d: its" in text
    assert text.count("statistics") == 1


@pytest.fixture
def declared():
    before = set(supported_modules._supported_kinds)
    assert register_supported(Mine) is Mine
    yield
    supported_modules._supported_kinds.clear()
    supported_modules._supported_kinds.update(before)


def test_ones_own_modules_are_declared(declared):
    require_supported(on_head(Mine(MLP(2))))
    with pytest.raises(ArgumentError, match=r"because of network\.inside\.0 \(BatchNorm2d\)"):
        require_supported(on_head(Mine(nn.Sequential(nn.BatchNorm2d(2)))))


class Declared(Mine):
    """It declares itself; a subclass of it does not."""

    splittable = True


class Derived(Declared):
    pass


def test_a_class_declares_itself_and_not_its_subclasses():
    require_supported(Declared(MLP(2)))
    with pytest.raises(ArgumentError, match=r"because of the model \(Derived\)"):
        require_supported(Derived(MLP(2)))


def test_a_network_that_pools_says_how_often_it_halves_the_grid(declared):
    model = on_head(Mine(nn.Sequential(nn.MaxPool2d(2))))
    with pytest.raises(ArgumentError, match=r"network\.inside\.0 halve the grid, but .* is 0"):
        require_supported(model)
    model.network.halvings = 1
    require_supported(model)


def test_checkpointed_blocks_are_looked_into():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = UNet(4)
    model.down_0 = checkpoint_wrapper(model.down_0)
    require_supported(model)
    model.down_1 = checkpoint_wrapper(nn.Sequential(nn.BatchNorm2d(2)))
    with pytest.raises(ArgumentError, match=r"down_1\._checkpoint_wrapped_module\.0 \(BatchNorm"):
        require_supported(model)


def _sharded_parameters():
    model = UNet(4)
    mesh = init_device_mesh("cpu", (1,))
    for part in (model.down_0, model.down_1[0], model):
        fully_shard(part, mesh=mesh)
    require_supported(model)
    names = [type(part).__name__ for part in (model, model.down_0, model.down_1[0])]
    model.bottom[1] = fully_shard(nn.BatchNorm2d(2), mesh=mesh)
    with pytest.raises(ArgumentError, match=r"because of bottom\.1 \(FSDPBatchNorm2d\)"):
        require_supported(model)
    return names


def test_modules_with_sharded_parameters_are_known(ranks):
    assert ranks(1, _sharded_parameters) == [["FSDPUNet", "FSDPSequential", "FSDPSameConv2d"]]
