"""One property after the other over every network that a shipped configuration names."""

import model_lists
import pytest
import torch
from registered import NETWORKS, ROOT, has_grid, input_shape, network

from ens10.errors import ArgumentError
from ens10.models import networks
from ens10.models.layers.smoe import track_loss

GRID = (16, 32)
NESTED = {"BiasNet", "PaperBiasUNet", "PaperSpreadNet", "SpreadNet"}  # parts of Groenquist


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_the_lists_of_exports_are_those_of_the_code():
    for package in model_lists.OTHERS:
        text = (ROOT / "models" / package / "__init__.py").read_text()
        assert text == model_lists.exports(package), "run python tests/model_lists.py"


def test_every_network_has_a_configuration():
    assert set(NETWORKS) == set(networks.__all__) - {"Network"} - NESTED
    for name in networks.__all__:
        assert "splittable" in vars(getattr(networks, name)) or name == "Network"


@pytest.mark.parametrize("kind", NETWORKS)
def test_outputs_have_the_declared_shape_and_all_parameters_gradients(kind):
    made = network(NETWORKS[kind], GRID)
    shape = input_shape(made)
    outputs = made(noise(*shape, *GRID))
    members = shape[1:-1] if made.gives_members else ()
    assert outputs.shape == (shape[0], *members, made.out_channels, *GRID)
    track_loss((outputs - noise(*outputs.shape)).square().mean(), made).backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    total = sum(float(p.grad.abs().sum()) for p in made.parameters())
    assert total > 0


def outputs_of(kind, grid):
    """Of the network for a grid, or None if it or its input is refused."""
    try:
        made = network(NETWORKS[kind], grid).eval()
        return made(noise(*input_shape(made), *grid))
    except ValueError as error:  # that of a configuration has the network's as its cause
        cause = error
        while not isinstance(cause, ArgumentError) and cause.__cause__:
            cause = cause.__cause__
        if not isinstance(cause, ArgumentError):
            raise
        return None


@pytest.mark.parametrize("grid", [(1, 1), (3, 2), (9, 17), (17, 32)], ids=str)
@pytest.mark.parametrize("kind", NETWORKS)
def test_any_grid_is_taken_or_if_small_refused_with_an_error_of_ours(kind, grid):
    outputs = outputs_of(kind, grid)
    if outputs is None:
        assert min(grid) < 9
    else:
        assert outputs.shape[-2:] == grid
        assert outputs.isfinite().all()


@pytest.mark.parametrize("kind", [kind for kind in NETWORKS if not has_grid(NETWORKS[kind])])
def test_what_has_no_values_at_points_commutes_with_turning_the_globe(kind):
    """By as many columns as halve to a whole number; otherwise there would be a seam."""
    made = network(NETWORKS[kind], GRID).double().eval()
    x = noise(*input_shape(made), *GRID).double()
    with torch.no_grad():
        turned, expected = made(x.roll(8, -1)), made(x).roll(8, -1)
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
