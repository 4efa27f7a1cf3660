"""The compiled choice and classification against sorting and the formula, at all numbers."""

import pytest
import torch

from ens10.models.layers.smoe import compiled
from ens10.models.layers.smoe.gates import largest_weights, planes
from ens10.models.layers.smoe.routing import classification_gradient

SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 3e38)


def weights(*shape, dtype=torch.float32):
    """With many that are equal, and all special ones."""
    random = torch.Generator().manual_seed(1)
    R = torch.randn(shape, generator=random).mul(4).round().div(3).to(dtype)
    places = torch.randint(R.numel(), (R.numel() // 10,), generator=random)
    R.view(-1)[places] = torch.tensor(SPECIAL, dtype=dtype).repeat(len(places))[: len(places)]
    return R


# of 4 experts or fewer at 16 points or more registers hold the keys, else a network sorts them
@pytest.mark.parametrize(("E", "k"), [(8, 1), (8, 2), (64, 3), (64, 4), (6, 4), (9, 2), (16, 9)])
@pytest.mark.parametrize("grid", [(7, 5), (5, 16), (3, 5)])
def test_prefers_the_largest_and_of_equal_ones_the_first(E, k, grid):
    R = weights(2, E, *grid)
    wanted = R.argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(planes(largest_weights(R, k)), wanted)


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("samples", [1, 2])
def test_classification_gradient_is_the_formula(dtype, samples):
    """Of weights up to where sigmoid is 0 or 1, at more points than are looked at together."""
    R = torch.linspace(-1200, 1200, 5 * 61 * 23, dtype=dtype).view(5, 61, 23)
    R = torch.cat([R, R / 1000, R / 100]).flip(1)[None].repeat(samples, 1, 1, 1)
    R[0, 3, 4, 5] = torch.nan
    chosen, random = largest_weights(R, 3), torch.Generator().manual_seed(2)
    wrong, scale = torch.rand(2, 3, 61, 23, generator=random) < 0.4, torch.tensor(4.0)
    found = compiled.classification_gradient(R, chosen, wrong, scale)
    wanted = classification_gradient(R, chosen, wrong, scale)
    rtol = 1e-13 if dtype == torch.float64 else 1e-6
    atol = rtol * wanted.nan_to_num().abs().max().item()
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol, equal_nan=True)
    assert found.isnan().sum() == 1
