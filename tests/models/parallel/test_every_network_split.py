"""Every network that a configuration names: parts of the grid give what the whole gives."""

from functools import partial

import pytest
from ranks import assert_as_serial
from registered import NETWORKS, input_shape, network

from ens10.errors import ArgumentError
from ens10.models.layers.smoe import SMoE2d
from ens10.models.parallel import require_supported

GRID = (19, 32)


def plain(name):
    """Experts without the routing loss, which `test_sharded_smoe` compares in a training step."""
    made = network(name, GRID)
    for part in made.modules():
        if isinstance(part, SMoE2d):
            part.eval()
    return made


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_declares_truly_whether_it_can_be_split(ranks, kind):
    made = plain(NETWORKS[kind])
    if made.splittable is not True:
        with pytest.raises(ArgumentError, match=made.splittable.split(";")[0]):
            require_supported(made)
        return
    require_supported(made)
    sizes = {"shape": input_shape(made), "halvings": made.halvings, "odd": made.odd}
    assert_as_serial(ranks, partial(plain, NETWORKS[kind]), GRID, 2, **sizes)
