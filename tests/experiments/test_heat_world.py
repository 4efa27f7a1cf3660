"""Heat runs against closed forms and a slow loop over points."""

import numpy as np
import pytest

from ens10.errors import ArgumentError
from ens10.experiments.studies.heat import HeatWorld
from ens10.experiments.studies.heat.world import diffuse, initial_field, region_map


def slowly(field, rates):
    """The formula, point by point, zero outside."""
    H, W = field.shape
    after = np.empty_like(field)
    for i in range(H):
        for j in range(W):
            around = sum(
                field[y, x]
                for y, x in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))
                if 0 <= y < H and 0 <= x < W
            )
            after[i, j] = field[i, j] + rates[i, j] * (around - 4 * field[i, j])
    return after


def test_a_step_is_the_formula_at_each_point():
    rng = np.random.default_rng(0)
    fields, rates = rng.normal(size=(2, 5, 7)), rng.uniform(0, 0.25, (5, 7))
    expected = np.stack([slowly(field, rates) for field in fields])
    np.testing.assert_allclose(diffuse(fields, rates), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("n", [1, 6])
def test_an_eigenmode_decays_at_its_rate(m, n):
    """sin(m pi i / (H + 1)) sin(n pi j / (W + 1)) is 0 just outside the grid on all sides."""
    H, W, a = 9, 12, 0.2
    i, j = np.arange(1, H + 1)[:, None], np.arange(1, W + 1)
    mode = np.sin(m * np.pi * i / (H + 1)) * np.sin(n * np.pi * j / (W + 1))
    factor = 1 - 4 * a * (
        np.sin(m * np.pi / 2 / (H + 1)) ** 2 + np.sin(n * np.pi / 2 / (W + 1)) ** 2
    )
    after = mode
    for _ in range(20):
        after = diffuse(after, a)
    np.testing.assert_allclose(after, factor**20 * mode, atol=1e-13)


def test_heat_is_kept_away_from_the_edge():
    field = np.zeros((21, 21))
    field[10, 10] = 1.0
    spread = 0.0
    for step in range(1, 10):
        field = diffuse(field, 0.1)
        assert field.sum() == pytest.approx(1.0, abs=1e-14)
        spread = (field * (np.arange(21) - 10.0) ** 2).sum()
        assert spread == pytest.approx(2 * 0.1 * step)  # the variance of a random walk


def test_no_point_passes_its_neighbours():
    """The maximum principle, for coefficients up to 1/4, and never below 0."""
    world = HeatWorld((20, 24), seed=3)
    runs = world.runs(3, 30)
    before = np.pad(runs[:, :-1], ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifts = [(0, 1), (2, 1), (1, 0), (1, 2), (1, 1)]
    around = np.stack([before[..., y : y + 20, x : x + 24] for y, x in shifts])
    assert (runs[:, 1:] <= around.max(0) * (1 + 1e-6)).all()
    assert (runs[:, 1:] >= around.min(0) * (1 - 1e-6)).all()
    assert (runs > 0).all()


def test_runs_follow_the_hidden_coefficients():
    world = HeatWorld((12, 10), (0.0, 0.1, 0.25), seed=1)
    runs = world.runs(2, 5)
    assert runs.shape == (2, 6, 12, 10)
    assert runs.dtype == np.float32
    for step in range(5):
        expected = slowly(runs[1, step].astype(float), world.rates)
        np.testing.assert_allclose(runs[1, step + 1], expected, rtol=2e-6)
    still = world.regions == 0
    np.testing.assert_array_equal(runs[:, 5][:, still], runs[:, 0][:, still])


def test_seeds_and_streams():
    world = HeatWorld((16, 16), seed=5)
    np.testing.assert_array_equal(world.runs(2, 3), HeatWorld((16, 16), seed=5).runs(2, 3))
    np.testing.assert_array_equal(world.runs(2, 3)[:1], world.runs(1, 3))  # more runs add to them
    assert not (world.runs(2, 1, 0) == world.runs(2, 1, 1)).all()
    assert (HeatWorld((16, 16), seed=6).regions != world.regions).any()


def test_initial_fields_are_noise_and_hot_points():
    world = HeatWorld((40, 40), seed=2)
    rng = np.random.default_rng(0)
    counts = set()
    for _ in range(40):
        field = initial_field(world.regions, rng)
        hot = field == 1.0
        each = [int(hot[world.regions == r].sum()) for r in range(3)]
        assert max(each) <= 3
        assert min(each) >= 1
        assert field[~hot].max() < 0.1
        counts.add(max(each))
    assert counts == {1, 2, 3}


def test_the_map_has_all_regions_and_hangs_together():
    for seed in range(3):
        regions = HeatWorld(seed=seed).regions
        shares = np.bincount(regions.ravel(), minlength=3) / regions.size
        assert (shares > 0.2).all()
        same = (regions[:, 1:] == regions[:, :-1]).mean()
        assert 0.55 < same < 0.8  # a third if each point were drawn alone


def test_the_odds_of_a_point_beside_one():
    """In a single row a point has 1/3 + 2/15 for the region of the one before."""
    row = region_map((1, 20000), 3, np.random.default_rng(0))[0]
    assert (row[1:] == row[:-1]).mean() == pytest.approx(1 / 3 + 2 / 15, abs=0.015)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"coefficients": (0.1, 0.3)}, "unstable"),
        ({"coefficients": ()}, "coefficients"),
        ({"grid": (0, 4)}, "grid"),
    ],
)
def test_one_clear_error(options, word):
    with pytest.raises(ArgumentError, match=word):
        HeatWorld(**options)
