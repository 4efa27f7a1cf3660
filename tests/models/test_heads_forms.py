"""Heads of quantile functions, flows and families: where they start, what they are safe from."""

import math

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import FAMILIES
from ens10.models import BernsteinHead, CRPSLoss, FamilyHead, Normal, SplineHead
from ens10.models.heads import normal_coefficients

BOUNDED = {"lower": 0.0, "upper": 1000.0}  # far from the values of the batches
FAMILY_HEADS = {
    kind: FamilyHead(kind, **{name: BOUNDED[name] for name in cls.bounds}, df=5.0)
    for kind, cls in FAMILIES.items()
    if cls.head_channels
}
HEADS = {"bernstein": BernsteinHead(), "spline": SplineHead(), **FAMILY_HEADS}
# of the CRPS relative to the raw normal's: what another form of the same mean and spread costs
NORMAL = ("spline", "normal", "truncated_normal", "censored_normal")
COST = {"bernstein": 2e-3} | dict.fromkeys(NORMAL, 1e-5)
NO_MOMENTS = [kind for kind, cls in FAMILIES.items() if "mean" not in cls.kernels]


@pytest.fixture(params=HEADS)
def name(request):
    return request.param


def outputs_of(head, *grid, value=0.0):
    return torch.full((2, head.out_channels, *grid), value)


def test_an_output_of_zero_is_the_raw_ensemble(name, make_batches):
    batch = make_batches(1)[0]
    forecast = HEADS[name](outputs_of(HEADS[name], 8, 12), batch)
    if name in NO_MOMENTS:
        pytest.skip("no moments in closed form")
    torch.testing.assert_close(forecast.mean, batch["raw_mean"], rtol=0, atol=1e-3)
    spread = 4e-3 if name == "bernstein" else 1e-3
    torch.testing.assert_close(forecast.std, batch["raw_std"], rtol=spread, atol=0)
    normal = Normal(batch["raw_mean"], batch["raw_std"])
    y = normal.sample(1, torch.Generator().manual_seed(0))[:, 0]
    ratio = float(forecast.crps(y).mean() / normal.crps(y).mean())
    assert ratio == pytest.approx(1, abs=COST.get(name, 0.05))


def test_the_first_output_shifts_and_the_second_widens(name, make_batches):
    batch, head = make_batches(1)[0], HEADS[name]
    outputs = outputs_of(head, 8, 12)
    outputs[:, 0], outputs[:, 1] = 0.5, math.log(2)
    forecast = head(outputs, batch)
    if name in NO_MOMENTS:
        pytest.skip("no moments in closed form")
    moved = (forecast.mean - batch["raw_mean"]) / batch["raw_std"]
    assert moved.mean() == pytest.approx(0.5, abs=1e-3)
    wider = (forecast.std / batch["raw_std"]).mean()
    assert wider == pytest.approx(2, rel=5e-3)


def test_gaps_get_no_forecast_and_no_gradient(name, make_batches):
    batch, head = make_batches(1, missing=True)[0], HEADS[name]
    outputs = (0.3 * torch.randn(2, head.out_channels, 8, 12)).requires_grad_()
    losses = CRPSLoss()(head(outputs, batch), batch["target"])
    assert losses[:, 0, :3].isnan().all()
    assert losses[:, 1:].isfinite().all()
    torch.where(batch["weights"] > 0, losses, 0).sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[:, :, 0, :3] == 0).all()
    assert (outputs.grad[:, :2, 1:] != 0).any()


def test_no_spread_and_wild_outputs_are_finite(name):
    field = torch.full((2, 1, 3), 280.0)
    batch = {"raw_mean": field, "raw_std": torch.zeros_like(field)}
    for value in (-1e4, 0.0, 30.0):
        outputs = outputs_of(HEADS[name], 1, 3, value=value).requires_grad_()
        with torch.no_grad():
            outputs[:, 0] = 0
        loss = HEADS[name](outputs, batch).crps(field + 1)
        loss.sum().backward()
        assert loss.isfinite().all()
        assert outputs.grad.isfinite().all()


def test_half_precision_outputs_keep_that_of_the_raw_ensemble(name, make_batches):
    batch, head = make_batches(1, base=54321.0)[0], HEADS[name]
    if name in FAMILY_HEADS and "lower" in FAMILIES[name].bounds:
        head = FamilyHead(head.family, lower=0.0)
    outputs = 0.3 * torch.randn(2, head.out_channels, 8, 12)
    half = outputs.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        forecast = head(half, batch)
        crps = forecast.crps(batch["target"])
        high = forecast.quantile(0.9)
    assert crps.dtype == high.dtype == torch.float32
    plain = head(half.float(), batch)
    torch.testing.assert_close(crps, plain.crps(batch["target"]))
    torch.testing.assert_close(high, plain.quantile(0.9))


def test_bernstein_coefficients_rise_for_any_output(make_batches):
    head = BernsteinHead(degree=5)
    forecast = head(10 * torch.randn(2, 7, 8, 12), make_batches(1)[0])
    assert (forecast.coefficients.diff(dim=1) >= 0).all()
    assert forecast.coefficients.shape == (2, 6, 8, 12)


@pytest.mark.parametrize(("degree", "error"), [(1, 0.22), (4, 0.15), (12, 0.081)])
def test_bernstein_starts_near_a_normal(degree, error):
    """Root mean square distance of quantiles; a line is the least that there is."""
    b = normal_coefficients(degree)
    assert (np.diff(b) > 0).all()
    u = (np.arange(20_000) + 0.5) / 20_000
    k = np.arange(degree + 1)
    binomials = np.array([math.comb(degree, i) for i in k])
    q = (binomials * u[:, None] ** k * (1 - u[:, None]) ** (degree - k)) @ b
    z = torch.special.ndtri(torch.from_numpy(u)).numpy()
    assert np.sqrt(np.mean((q - z) ** 2)) < error


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BernsteinHead(degree=0), ArgumentError, "degree"),
        (lambda: BernsteinHead(floor=0.0), ArgumentError, "floor"),
        (lambda: SplineHead(pieces=1), ArgumentError, "pieces"),
        (lambda: SplineHead(reach=0.0), ArgumentError, "reach"),
        (lambda: FamilyHead("censored_normal"), ArgumentError, "has no bound"),
        (lambda: FamilyHead("logistic", lower=0.0), ArgumentError, "takes no bounds"),
        (
            lambda: FamilyHead("censored_normal", lower=1.0, upper=0.0),
            ArgumentError,
            "not below upper",
        ),
        (lambda: FamilyHead("student_t", df=2.0), ArgumentError, "df"),
        (lambda: FamilyHead("logistik"), UnknownNameError, "did you mean 'logistic'"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
