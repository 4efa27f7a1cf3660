import math

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.models import MethodHead, PostProcessor
from ens10.models.networks import MLP
from ens10.models.statistical import EMOS, MemberByMember, SeasonalEMOS
from ens10.models.warmstart import unsolved_methods


def solved(method, batches):
    for batch in batches:
        method.collect(batch)
    method.solve()
    return method


def mean_crps(forecast_of, batches):
    total = weight = 0.0
    for batch in batches:
        crps = forecast_of(batch).crps(batch["target"])
        total += torch.where(batch["weights"] > 0, batch["weights"] * crps, 0).sum().item()
        weight += batch["weights"].sum().item()
    return total / weight


def test_an_output_of_zero_is_the_method_exactly(make_batches):
    batches = make_batches(missing=True)
    method = solved(SeasonalEMOS(harmonics=1, strength=30.0), batches)
    head = MethodHead(method)
    for batch in batches:
        zero = torch.zeros(2, 2, 8, 12)
        base, forecast = method(batch), head(zero, batch)
        torch.testing.assert_close(forecast.mu, base.mu, rtol=0, atol=0, equal_nan=True)
        valid = ~base.mu.isnan()
        torch.testing.assert_close(forecast.sigma[valid], base.sigma[valid], rtol=0, atol=0)
        assert forecast.sigma[~valid].isnan().all()


def test_outputs_move_it_in_units_of_the_methods_spread(make_batches):
    batches = make_batches()
    head = MethodHead(solved(EMOS(), batches))
    base = head.method(batches[0])
    outputs = torch.stack([torch.full((2, 8, 12), 0.5), torch.full((2, 8, 12), math.log(3))], 1)
    forecast = head(outputs, batches[0])
    torch.testing.assert_close(forecast.mu, base.mu + 0.5 * base.sigma)
    torch.testing.assert_close(forecast.sigma, 3 * base.sigma)


def test_a_method_without_spread_gives_the_floor_and_finite_gradients(make_batches):
    batches = make_batches()
    method = solved(EMOS(), batches)
    method.c.zero_()
    method.d.zero_()
    outputs = torch.zeros(2, 2, 8, 12, requires_grad=True)
    forecast = MethodHead(method, floor=0.01)(outputs, batches[0])
    torch.testing.assert_close(forecast.sigma, torch.full((2, 8, 12), 0.01))
    forecast.crps(batches[0]["target"]).sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[:, 0] != 0).all()


def test_no_gradient_where_the_forecast_is_missing(make_batches):
    batches = make_batches(missing=True)
    head = MethodHead(solved(EMOS(), batches))
    outputs = torch.zeros(2, 2, 8, 12, requires_grad=True)
    batch = batches[0]
    crps = head(outputs, batch).crps(batch["target"])
    torch.where(batch["weights"] > 0, batch["weights"] * crps, 0).sum().backward()
    assert outputs.grad.isfinite().all()
    assert not outputs.grad[:, :, 0, :3].any()
    assert outputs.grad[:, :, 1:].all()


def trainer(folder, epochs):
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )


def model(rate=0.0):
    torch.manual_seed(0)
    network = MLP(4)
    last = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)][-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    head = MethodHead(SeasonalEMOS(harmonics=1, strength=30.0))
    return PostProcessor(network, head, optimizer=lambda p: torch.optim.SGD(p, lr=rate))


def test_the_untrained_network_scores_as_the_method(make_batches, tmp_path):
    batches = make_batches(20)
    loader = DataLoader(batches[:15], batch_size=None)
    made, train = model(), trainer(tmp_path, 1)
    assert unsolved_methods(made) == [made.head.method]
    train.fit(made, loader, DataLoader(batches[15:], batch_size=None))
    assert not unsolved_methods(made)
    emos = solved(SeasonalEMOS(harmonics=1, strength=30.0), batches[:15])
    expected = mean_crps(emos, batches[15:])
    assert train.callback_metrics["val_crps"].item() == pytest.approx(expected, rel=1e-6)
    assert made.method is made.head.method
    assert made.method.fitted_parameters == emos.fitted_parameters > 0


def test_a_solved_method_is_not_solved_again(make_batches, tmp_path):
    first = make_batches(6)
    made = model()
    solved(made.method, first)
    before = made.method.coefficients.clone()
    others = [{**batch, "target": batch["target"] + 5} for batch in first]
    loader = DataLoader(others, batch_size=None)
    trainer(tmp_path, 1).fit(made, loader, loader)
    assert torch.equal(made.method.coefficients, before)


def test_checkpoint_restores_method_and_network(make_batches, tmp_path):
    batches = make_batches(6)
    loader, train = DataLoader(batches, batch_size=None), trainer(tmp_path, 2)
    made = model(rate=0.05)
    train.fit(made, loader, loader)
    train.save_checkpoint(tmp_path / "made.ckpt")
    again, fresh = trainer(tmp_path, 1), model()
    loaded = again.predict(fresh, loader, ckpt_path=tmp_path / "made.ckpt", weights_only=True)
    with torch.no_grad():
        assert torch.equal(loaded[0].forecast.mu, made.eval()(batches[0]).mu)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (MemberByMember(), "forecasts Ensemble, MethodHead needs"),
        (SeasonalEMOS(0, family="logistic", strength=30.0), "forecasts Logistic, MethodHead needs"),
        (None, "has no coefficients yet"),
    ],
    ids=["members", "logistic", "not solved"],
)
def test_a_method_that_gives_no_normal(method, message, make_batches):
    batches = make_batches(6)
    head = MethodHead(solved(method, batches)) if method else MethodHead()
    with pytest.raises(ArgumentError, match=message):
        head(torch.zeros(2, 2, 8, 12), batches[0])


def test_the_floor_is_positive():
    with pytest.raises(ArgumentError, match="0 is not positive"):
        MethodHead(floor=0)


def test_patches_are_refused(make_batches, tmp_path):
    batches = [{**b, "rows": torch.zeros(2), "columns": torch.zeros(2)} for b in make_batches(2)]
    loader = DataLoader(batches, batch_size=None)
    with pytest.raises(ArgumentError, match="whole fields, not patches"):
        trainer(tmp_path, 1).fit(model(), loader)
