"""Losses against sums that are written out, and what they refuse."""

import math

import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions import location_scale
from ens10.models import (
    CRPSLoss,
    EnergyLoss,
    Ensemble,
    LogScoreLoss,
    MembersCRPSLoss,
    Normal,
    SpectralCRPSLoss,
    SumLoss,
    ThresholdCRPSLoss,
    VariogramLoss,
)


def noise(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def normal():
    return Normal(noise(0, 2, 3, 4), (0.5 * noise(1, 2, 3, 4)).exp())


@pytest.fixture
def members():
    return Ensemble(noise(2, 2, 5, 3, 8))


def test_log_score_is_minus_the_logarithm_of_the_density(normal):
    y = noise(3, 2, 3, 4)
    wanted = -torch.distributions.Normal(normal.mu, normal.sigma).log_prob(y)
    torch.testing.assert_close(LogScoreLoss()(normal, y), wanted)
    student = location_scale("student_t", normal.mu, normal.sigma, df=5.0)
    wanted = -torch.distributions.StudentT(5.0, normal.mu, normal.sigma).log_prob(y)
    torch.testing.assert_close(LogScoreLoss()(student, y), wanted)


def dense(forecast, y, lower, upper, steps=1500):
    """int (F - 1{x >= y})^2 dx between thresholds, by steps."""
    lower, upper = max(lower, -15.0), min(upper, 15.0)
    step = (upper - lower) / steps
    total = torch.zeros_like(y)
    for n in range(steps):
        x = torch.full_like(y, lower + (n + 0.5) * step)
        total += (forecast.cdf(x) - (x >= y).double()).square() * step
    return total


@pytest.mark.parametrize("bounds", [(-0.5, 1.0), (0.3, math.inf), (-math.inf, 0.3)])
def test_thresholds_are_limits_of_the_integral(bounds, normal):
    y, small = noise(3, 2, 3, 4), Ensemble(noise(4, 2, 5, 3, 4))
    for forecast in (normal, small):
        got = ThresholdCRPSLoss(*bounds)(forecast, y)
        torch.testing.assert_close(got, dense(forecast, y, *bounds), rtol=0, atol=0.02)


@pytest.mark.parametrize("family", ["logistic", "censored_normal", "truncated_normal", "student_t"])
def test_thresholds_of_families_in_closed_form_or_by_quantiles(family, normal):
    y, bounded = noise(3, 2, 3, 4).abs(), family.startswith(("censored", "truncated"))
    limits = {"lower": 0.0} if bounded else {"df": 6.0}
    forecast = location_scale(family, normal.mu, normal.sigma, **limits)
    got = ThresholdCRPSLoss(-0.4, 0.8)(forecast, y)
    torch.testing.assert_close(got, dense(forecast, y, -0.4, 0.8, 100), rtol=0, atol=1e-2)


@pytest.mark.parametrize(("estimator", "a"), [("plain", 1.0), ("fair", 1.25), ("almost_fair", 1.2)])
def test_members_crps_by_all_pairs(estimator, a, members):
    x, y = members.members, noise(5, 2, 3, 8)
    pairs = (x[:, :, None] - x[:, None]).abs().sum((1, 2)) / 2
    wanted = (x - y[:, None]).abs().mean(1) - a * pairs / 25
    loss = MembersCRPSLoss(estimator, alpha=0.8)
    torch.testing.assert_close(loss(members, y), wanted)


def energy(x, y):
    """Plain energy score of members (M, P) and truth (P)."""
    first = sum(torch.linalg.vector_norm(m - y) for m in x) / len(x)
    pairs = sum(torch.linalg.vector_norm(m - n) for m in x for n in x)
    return first - pairs / (2 * len(x) ** 2)


def test_spectral_term_is_the_energy_score_of_each_wave(members):
    x, y = members.members, noise(5, 2, 3, 8)
    wanted = torch.zeros(2, 3, dtype=torch.float64)
    for date in range(2):
        for row in range(3):
            for wave in range(5):
                angle = 2 * math.pi * wave * torch.arange(8, dtype=torch.float64) / 8
                of = torch.stack([angle.cos(), -angle.sin()], 1) / 8
                score = energy(x[date, :, row] @ of, y[date, row] @ of)
                wanted[date, row] += score * (1 if wave in (0, 4) else 2)
    got = SpectralCRPSLoss()(members, y)
    assert got.shape == y.shape
    torch.testing.assert_close(got, wanted[..., None].expand_as(y))


def test_energy_of_rows_and_of_fields_with_their_area(members):
    x, y = members.members, noise(5, 2, 3, 8)
    weights = torch.rand(2, 3, 1, dtype=torch.float64).expand(2, 3, 8)
    rows = EnergyLoss("row")(members, y)
    torch.testing.assert_close(rows[1, 2, 0], energy(x[1, :, 2], y[1, 2]) / math.sqrt(8))
    assert (rows == rows[..., :1]).all()
    fields = EnergyLoss("field")(members, y, weights)
    share = (weights[1] / weights[1].sum()).sqrt().flatten()
    wanted = energy(x[1].flatten(1) * share, y[1].flatten() * share)
    torch.testing.assert_close(fields[1], wanted.expand(3, 8))
    level = Ensemble(noise(6, 2, 5, 1, 1).expand(2, 5, 3, 8))
    at = torch.zeros_like(y)
    torch.testing.assert_close(EnergyLoss()(level, at, weights), level.crps(at))


@pytest.mark.parametrize("loss", [SpectralCRPSLoss(), EnergyLoss("row"), EnergyLoss("field")])
def test_gaps_count_as_no_difference(loss, members):
    """Members are missing at one point, the truth (0, with a weight of 0) at another."""
    x, y = (members.members + 280).clone(), noise(5, 2, 3, 8) + 280
    weights = torch.ones_like(y)
    y[:, 0, 1], weights[:, 0, 1] = 0, 0
    x[:, 2, 0, 3] = torch.nan
    weights[:, 0, 3] = 0
    filled = x.clone()
    filled[:, :, 0, 1], filled[:, :, 0, 3] = y[:, None, 0, 1], y[:, None, 0, 3]
    x.requires_grad_()
    got = SumLoss([loss], [2.0]).evaluate(Ensemble(x), y, weights) / 2
    torch.testing.assert_close(got, loss(Ensemble(filled), y, weights))
    got.sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[:, :, 0, [1, 3]] == 0).all()


def test_a_sum_is_the_sum(members):
    y = noise(5, 2, 3, 8)
    loss = SumLoss([MembersCRPSLoss("fair"), SpectralCRPSLoss("fair")], [1.0, 0.1])
    wanted = MembersCRPSLoss("fair")(members, y) + 0.1 * SpectralCRPSLoss("fair")(members, y)
    torch.testing.assert_close(loss(members, y), wanted)
    torch.testing.assert_close(SumLoss([CRPSLoss(), CRPSLoss()])(members, y), 2 * members.crps(y))


@pytest.mark.parametrize("loss", [MembersCRPSLoss(), SpectralCRPSLoss(), EnergyLoss()])
def test_losses_of_members_refuse_others(loss, normal):
    with pytest.raises(ArgumentError, match=r"forecast is Normal.*MembersHead"):
        loss(normal, torch.zeros(2, 3, 4))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: LogScoreLoss()(x, torch.zeros(2, 3, 8)), ArgumentError, "no density"),
        (lambda _: ThresholdCRPSLoss(1.0, 1.0), ArgumentError, "not below upper"),
        (lambda _: SumLoss([]), ArgumentError, "at least one"),
        (lambda _: SumLoss([CRPSLoss()], [1.0, 2.0]), ArgumentError, "factors"),
        (lambda _: MembersCRPSLoss(alpha=1.5), ArgumentError, "alpha"),
        (lambda _: SpectralCRPSLoss("fairr"), UnknownNameError, "did you mean 'fair'"),
        (lambda _: EnergyLoss("fields"), UnknownNameError, "did you mean 'field'"),
        (lambda _: VariogramLoss(patch=[1, 1]), ArgumentError, "patch"),
        (lambda _: VariogramLoss(patch=[2]), ArgumentError, "patch"),
        (lambda _: VariogramLoss(patch=[0, 4]), ArgumentError, "patch"),
        (
            lambda x: EnergyLoss("patch", patch=[4, 4])(x, noise(3, 2, 3, 8)),
            ArgumentError,
            "smaller patch",
        ),
        (lambda _: VariogramLoss(estimator="almost_fair"), UnknownNameError, "almost_fair"),
        (lambda _: VariogramLoss(0), ArgumentError, "order"),
    ],
)
def test_what_is_refused(call, error, message, members):
    with pytest.raises(error, match=message):
        call(members)


def on_patches(score, members, y, starts, size):
    """The scores of each patch, (N, H, W), each point with that of the first patch with it."""
    found = torch.full_like(y, math.nan)
    for row in starts[0]:
        for column in starts[1]:
            at = (..., slice(row, row + size[0]), slice(column, column + size[1]))
            value = score(members[at], y[at])[:, None, None].expand_as(found[at])
            found[at] = torch.where(found[at].isnan(), value, found[at])
    return found


# 2 divides the 8 columns, and the last patch of 2 rows of 3 overlaps the first
PATCHES = {"starts": ([0, 1], [0, 4]), "size": (2, 4)}


def test_energy_of_patches_is_the_sum_over_their_points(members):
    y, M = noise(3, 2, 3, 8), 5

    def score(x, y):
        def norm(d):
            return d.square().mean((-2, -1)).sqrt()

        apart = norm(x[:, :, None] - x[:, None]).sum((1, 2))
        return norm(x - y[:, None]).mean(1) - apart / (2 * M * (M - 1))

    wanted = on_patches(score, members.members, y, **PATCHES)
    loss = EnergyLoss("patch", "fair", patch=[2, 4])
    torch.testing.assert_close(loss(members, y), wanted)
    assert loss.needs_grid
    assert not EnergyLoss().needs_grid


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_variogram_score_of_patches_is_the_mean_over_pairs(order, members):
    y, M = noise(3, 2, 3, 8), 5

    def score(x, y):
        x, y = x.flatten(-2), y.flatten(-2)
        of_members = (x[..., :, None] - x[..., None, :]).abs() ** order
        of_truth = (y[..., :, None] - y[..., None, :]).abs() ** order
        pairs = (of_members.mean(1) - of_truth) ** 2 - of_members.var(1) / M
        return pairs.sum((-2, -1)) / (8 * 7)

    wanted = on_patches(score, members.members, y, **PATCHES)
    loss = VariogramLoss(order, patch=[2, 4])
    torch.testing.assert_close(loss(members, y), wanted)
    far = Ensemble(members.members + 280.0)  # a bias common to all does not matter
    torch.testing.assert_close(loss(far, y), wanted)


def test_variogram_of_patches_without_truth_is_zero(members):
    y, weights = noise(3, 2, 3, 8), torch.ones(2, 3, 8)
    full = VariogramLoss(patch=[3, 4]).evaluate(members, y, weights)
    weights[0, 1, 2] = 0
    y[0, 1, 2] = math.nan
    part = VariogramLoss(patch=[3, 4]).evaluate(members, y, weights)
    assert (part[0, :, :4] == 0).all()
    torch.testing.assert_close(part[0, :, 4:], full[0, :, 4:])
    torch.testing.assert_close(part[1], full[1])
