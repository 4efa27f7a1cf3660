"""Precipitation and wind speed: distributions of amounts, EMOS and heads, configurations."""

import csv

import numpy as np
import pytest
import torch

from ens10.cli import main
from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.runs.reading import open_predictions
from ens10.metrics.distributions.amounts import amount
from ens10.models import BernsteinHead, FamilyHead
from ens10.models.matching import advice_for_amounts
from ens10.models.statistical import AmountEMOS, SeasonalEMOS
from ens10.models.statistical.amount_emos import _AmountFit
from ens10.models.statistical.spool import Spool

FAMILIES = ("csgd", "censored_gev", "censored_logistic", "truncated_normal")
DATES, GRID = 160, (2, 3)


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("third", [-1.0, 0.0, 1e-4, 0.7])
def test_location_and_scale_are_the_moments_before_censoring(third):
    location, scale = double([4.0]), double([1.0])  # so that hardly any mass is censored
    gamma = amount("csgd", location, scale, double([third]))
    wanted = location + (np.exp(third) if third else 1.0)  # of the gamma variable
    torch.testing.assert_close(gamma.shape * gamma.scale, wanted, rtol=2e-3, atol=0)
    torch.testing.assert_close(gamma.shape.sqrt() * gamma.scale, scale, rtol=1e-12, atol=0)
    gev = amount("censored_gev", location, 0.3 * scale, double([third]), lower=-1e3)
    torch.testing.assert_close(gev.mean, location, rtol=1e-6, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_finite_for_dry_and_for_wild_predictors(family):
    at = [
        double([-50.0, 0.0, 0.0, 3.0]),
        double([1.0, 1e-4, 5.0, 0.01]),
        double([-9.0, 0.0, 9.0, 1.0]),
    ]
    inputs = [value.requires_grad_() for value in at]
    forecast = amount(family, *inputs)
    for y in (0.0, 2.0):
        scores = forecast.crps(torch.full((4,), y, dtype=torch.float64))
        assert bool(scores.isfinite().all())
        gradients = torch.autograd.grad(scores.sum(), inputs, retain_graph=True, allow_unused=True)
        assert all(bool(g.isfinite().all()) for g in gradients if g is not None)


def rain(seed=0, n=DATES):
    """Batches whose truth is a censored, shifted gamma variable with moments of the ensemble."""
    g = np.random.default_rng(seed)
    members = np.maximum(
        g.gamma(0.7, 4e-3, (n, 10, 1, 1)) * g.gamma(2, 0.5, (n, 10, *GRID)) - 1e-3, 0
    )
    mean, std = members.mean(1), members.std(1, ddof=1)
    location, scale = 1.3 * mean + 2e-4, np.sqrt(1e-8 + 0.5 * std**2 + 1e-3 * mean)
    law = amount(
        "csgd", *map(torch.from_numpy, (location, scale)), double(np.full_like(mean, np.log(5e-4)))
    )
    truth = law.quantile(0.5) * 0
    level = g.random(mean.shape)
    truth = law._quantile_at(torch.from_numpy(level)).clamp(min=0)
    batch = {"raw_mean": mean, "raw_std": std, "target": truth.numpy(), "members": members}
    batch = {k: torch.from_numpy(np.asarray(v, np.float32)) for k, v in batch.items()}
    dates = torch.arange(n, dtype=torch.int64) * 86400 * 7
    return batch | {"weights": torch.ones(n, *GRID), "dates": dates}, law


def solved(method, batch):
    method.collect(batch)
    method.solve()
    return method


def test_the_fit_is_near_the_law_and_better_than_other_families():
    training, _ = rain()
    test, law = rain(1)
    best = law.crps(test["target"].double()).mean()
    scores = {}
    for family in ("csgd", "censored_gev"):
        forecast = solved(AmountEMOS(family, threshold=1e-4, strength=300.0), training)(test)
        scores[family] = forecast.crps(test["target"]).mean() / best
        assert forecast.quantile(0.01).min() >= 0
    normal = solved(SeasonalEMOS(0, strength=300.0), training)(test)
    assert scores["csgd"] < 1.03
    assert scores["censored_gev"] < 1.06
    assert scores["csgd"] < 0.99 * normal.crps(test["target"]).mean() / best


@pytest.mark.parametrize("family", ["csgd", "censored_gev", "truncated_logistic"])
def test_derivatives_of_the_fit_are_those_of_its_value(family):
    spool, (batch, _) = Spool(), rain(2, 40)
    wet = (batch["members"] > 1e-4).float().mean(1)
    spool.append(
        [batch["raw_mean"], batch["raw_std"], wet, batch["target"]],
        batch["weights"],
        batch["dates"],
    )
    fit = _AmountFit(spool, family, 1, 10.0)
    theta = 0.2 * np.random.default_rng(0).normal(size=(6, 21)) - 0.1
    problem, _, _ = fit._problem(slice(0, 6), theta[0], 10.0)
    _, gradient, hessian = problem.evaluate(theta)
    step = 1e-5
    for k in (0, 4, 7, 11, 14, 18, 20):
        moved = [theta + s * step * np.eye(21)[k] for s in (1, -1)]
        (up, up_slope, _), (down, down_slope, _) = map(problem.evaluate, moved)
        np.testing.assert_allclose((up - down) / (2 * step), gradient[:, k], rtol=1e-4, atol=1e-7)
        bent = (up_slope - down_slope) / (2 * step)
        np.testing.assert_allclose(bent, hessian[:, k], rtol=0.03, atol=2e-3 * abs(hessian).max())


def test_points_with_few_dates_keep_the_raw_ensemble_and_gaps_stay():
    training, _ = rain(3, 40)
    training["weights"][5:, 0, 0] = 0
    method = solved(AmountEMOS("truncated_normal"), training)
    test, _ = rain(4, 8)
    forecast = method(test)
    torch.testing.assert_close(
        forecast.mu[:, 0, 0], test["raw_mean"][:, 0, 0], rtol=1e-4, atol=1e-6
    )
    test["raw_mean"][0, 1, 1] = torch.nan
    assert bool(method(test).mu[0, 1, 1].isnan())
    loaded = AmountEMOS("truncated_normal")
    loaded.load_state_dict(method.state_dict())
    torch.testing.assert_close(loaded(test).mu[1:], forecast.mu[1:])


def test_it_can_be_fitted_within_a_prediction():
    """As a sliding window does, in threads of dask as well as in this one."""
    training, _ = rain(3, 40)
    expected = solved(AmountEMOS(), training)
    with torch.inference_mode():
        method = solved(AmountEMOS(), training)
    torch.testing.assert_close(method.coefficients, expected.coefficients, rtol=1e-6, atol=1e-6)


def test_what_is_refused():
    with pytest.raises(UnknownNameError, match="csgd"):
        AmountEMOS("csg")
    with pytest.raises(ArgumentError, match="strength"):
        AmountEMOS(strength=-1.0)
    with pytest.raises(ArgumentError, match="members"):
        AmountEMOS().collect({k: v for k, v in rain(0, 12)[0].items() if k != "members"})
    with pytest.raises(ArgumentError, match="upper"):
        FamilyHead("censored_gev", lower=0.0, upper=1.0)


@pytest.mark.parametrize(
    "head",
    [
        FamilyHead("csgd", floor=1e-4),
        FamilyHead("censored_gev", lower=0.0, floor=1e-4),
        BernsteinHead(4, floor=1e-4, lower=0.0),
    ],
)
def test_an_untrained_head_is_like_the_raw_ensemble_and_never_below_0(head):
    raw_mean = torch.tensor([[[0.0, 2e-4, 5e-3, 0.03]]])
    raw_std = torch.tensor([[[0.0, 5e-4, 3e-3, 0.01]]])
    outputs = torch.zeros(1, head.out_channels, 1, 4, requires_grad=True)
    forecast = head(outputs, {"raw_mean": raw_mean, "raw_std": raw_std})
    forecast.crps(raw_mean + 1e-4).sum().backward()
    assert bool(outputs.grad.isfinite().all())
    with torch.no_grad():
        plain = head(outputs.detach(), {"raw_mean": raw_mean, "raw_std": raw_std})
    assert (plain.mean - raw_mean).abs().max() < 5e-4
    assert (plain.quantile([0.001, 0.5]) >= 0).all()
    if isinstance(head, FamilyHead):
        dry = 1 - plain.above(0.0)
        assert 0.4 < float(dry[..., 0]) < 0.8
        assert float(dry[..., 3]) < 0.05


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    names = ("t2m", "u10", "v10", "tp", "si10")
    world = ("8x16", range(2000, 2006), 6, names)
    return prepared(*world, steps=(0, 48), kind="displaced", members=5) / "store.zarr"


def command(*arguments, status=0):
    assert main([str(a) for a in arguments]) == status


def test_a_distribution_without_bound_is_pointed_out_in_one_line(store, tmp_path, capsys):
    def said(name, target):
        target = ["--data.target", target, "--data.inputs", f"[{target}]"]
        options = ["--config", config_path(name), "--data.store", store, *target, "--quiet"]
        command("fit", *options, "--run", tmp_path / f"{name}-{target[1]}")
        return [line for line in capsys.readouterr().err.splitlines() if "below 0" in line]

    assert said("emos_local", "tp") == [
        "ens10: tp is never below 0, but this model's forecasts can be. Use emos_csg or unet_csg."
    ]
    assert said("emos_local", "si10")[0].endswith("Use emos_truncated or unet_truncated.")
    assert said("emos_truncated", "si10") == said("emos_local", "t2m") == []
    heads = [FamilyHead("csgd"), BernsteinHead(lower=0.0), BernsteinHead(), FamilyHead("normal")]
    assert [bool(advice_for_amounts(head, ["tp"])) for head in heads] == [False, False, True, True]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("emos_csg", "csgd"),
        pytest.param("emos_gev", "censored_gev", marks=pytest.mark.slow),
        ("unet_csg", "csgd"),
        pytest.param("unet_truncated", "truncated_normal", marks=pytest.mark.slow),
        ("transformer_csg", "csgd"),
        pytest.param("transformer_truncated", "truncated_normal", marks=pytest.mark.slow),
    ],
)
def test_each_configuration_is_fitted_predicts_its_kind_and_is_scored(name, kind, store, tmp_path):
    run = tmp_path / name
    short = () if name.startswith("emos") else ("--trainer.max_epochs", 1)
    network = "--model.init_args.network.init_args"
    if name.startswith("unet"):
        short += (f"{network}.in_channels", 13)
    if name.startswith("transformer"):  # which sees the day of the year, and is bound to a grid
        short += (f"{network}.in_channels", 15, f"{network}.grid", "[8,16]")
    options = ["--config", config_path(name), "--data.store", store, "--run", run, "--quiet"]
    command("fit", *options, *short)
    command("predict", "--run", run, "--quiet")
    forecast, truth = open_predictions(run)
    assert forecast.attrs["forecast_kind"] == kind
    unit = forecast[next(iter(forecast.data_vars))].attrs["units"]
    assert unit in ("1", "m", "m s-1")
    command("score", run)
    with (run / "scores.csv").open() as file:
        rows = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}
    assert 0 < rows["crps"] < float(truth.max())
