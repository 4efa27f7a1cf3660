import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.layers.embedding import PointEmbedding, _interpolation_matrix, require_grid


def filled(grid, function, **options):
    """An embedding of one channel with the values of a function of latitude and longitude."""
    made = PointEmbedding(grid, 1, **options).double()
    latitude = torch.linspace(math.pi / 2, -math.pi / 2, grid[0], dtype=torch.float64)
    longitude = 2 * math.pi * torch.arange(grid[1], dtype=torch.float64) / grid[1]
    with torch.no_grad():
        made.maps[0].copy_(function(latitude[:, None], longitude[None])[None])
    return made


def slow_penalty(z, ridge, smoothness):
    """Point by point, from the definition."""
    rows, columns = z.shape[1:]
    latitude = [math.pi / 2 - math.pi * i / (rows - 1) for i in range(rows)]
    edges = [(a + b) / 2 for a, b in pairwise(latitude)]
    edges = [math.pi / 2, *edges, -math.pi / 2]
    area = [math.sin(a) - math.sin(b) for a, b in pairwise(edges)]
    total = 0.0
    for channel in z.tolist():
        for i in range(rows):
            share = area[i] / (2 * columns)
            length = max(math.cos(latitude[i]), 0.1) * 2 * math.pi / columns
            for j in range(columns):
                here, east = channel[i][j], channel[i][(j + 1) % columns]
                total += share * (ridge * here**2 + smoothness * ((east - here) / length) ** 2)
                if i + 1 < rows:
                    between = (area[i] + area[i + 1]) / 2 / (2 * columns)
                    slope = (channel[i + 1][j] - here) / (math.pi / (rows - 1))
                    total += smoothness * between * slope**2
    return total


def test_the_penalty_is_that_of_the_definition():
    torch.manual_seed(0)
    made = PointEmbedding((7, 10), 3, ridge=0.3, smoothness=0.02, levels=2, gain=3.0, start=1.0)
    with torch.no_grad():
        made.maps[0].normal_()
    expected = slow_penalty(made().double(), 0.3, 0.02)
    assert made.penalty().item() == pytest.approx(expected, rel=1e-5)


def test_the_penalty_of_a_smooth_map_is_that_of_the_sphere_on_any_grid():
    """z = cos(lat) cos(lon): mean of z^2 is 1/3, of the squared gradient 2/3."""

    def wave(latitude, longitude):
        return latitude.cos() * longitude.cos()

    for grid in ((46, 96), (91, 180), (181, 360)):
        assert filled(grid, wave, ridge=1, smoothness=0).penalty().item() == pytest.approx(
            1 / 3, rel=2e-3
        )
        assert filled(grid, wave, ridge=0, smoothness=1).penalty().item() == pytest.approx(
            2 / 3, rel=3e-3
        )


def test_a_seam_costs_only_where_longitude_is_periodic():
    def ramp(latitude, longitude):
        return longitude + 0 * latitude

    around, region = (
        filled((9, 16), ramp, ridge=0, smoothness=1, periodic_longitude=periodic).penalty().item()
        for periodic in (True, False)
    )
    assert around > 10 * region > 0


def test_coarse_levels_are_interpolated_and_periodic():
    made = PointEmbedding((8, 16), 1, levels=3, start=0.0)
    assert [tuple(m.shape) for m in made.maps] == [(1, 8, 16), (1, 4, 8), (1, 2, 4)]
    assert not made().any()
    with torch.no_grad():
        made.maps[2].fill_(1.5)
        made.maps[1].copy_(torch.arange(8.0).expand(1, 4, 8))
    middle = np.interp((np.arange(16) + 0.5) / 2 - 0.5, np.arange(-1, 9), [7, *range(8), 0])
    expected = torch.from_numpy(middle + 1.5).float().expand(8, 16)
    torch.testing.assert_close(made()[0], expected)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("coarse", [1, 2, 3, 8])
def test_weights_of_the_interpolation_sum_to_one(coarse, periodic):
    weights = _interpolation_matrix(8, coarse, periodic)
    torch.testing.assert_close(weights.sum(1), torch.ones(8))


def test_gain_multiplies_the_map_and_its_speed_but_not_its_start():
    maps, gradients = [], []
    for gain in (1.0, 5.0):
        torch.manual_seed(1)
        made = PointEmbedding((8, 16), 2, start=0.3, gain=gain)
        maps.append(made().detach())
        made().sum().backward()
        gradients.append(made.maps[0].grad)
    torch.testing.assert_close(maps[0], maps[1])
    torch.testing.assert_close(5 * gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PointEmbedding((8, 16), 0), "0 is less than 1"),
        (lambda: PointEmbedding((8, 16), 1, ridge=-1.0), "-1.0 is not 0 or more"),
        (lambda: PointEmbedding((8, 16), 1, smoothness=math.nan), "nan is not 0 or more"),
        (lambda: PointEmbedding((8, 16), 1, levels=5), "5 levels do not fit 8 x 16 points"),
        (
            lambda: require_grid(torch.zeros(1, 3, 4, 6), (8, 16), "Thing"),
            r"data have 4 x 6 points .* Thing learns maps of 8 x 16",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
