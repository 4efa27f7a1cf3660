"""Every shipped model on awkward data: loss and gradients are finite and forecasts valid.

What a model cannot take is refused with one error; nothing ends in weights that are NaN.
"""

import copy
import functools

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentParser

from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.weights import load_weights
from ens10.experiments.training.data_numbers import read_config
from ens10.models import StatisticalPostProcessor
from ens10.models.statistical import Advection, AnomalyEMOS

# those of the heat experiment have data and a module of their own
NAMES = sorted(
    path.stem for path in config_path("raw").parent.glob("*.yaml") if "heat" not in path.stem
)
STATISTICAL = sorted(
    name for name in NAMES if "StatisticalPostProcessor" in config_path(name).read_text()
)
NETWORKS = [name for name in NAMES if name not in STATISTICAL]
GRID = (8, 16)
ITERATED = ("emos_csg", "emos_gev")  # ten to twenty seconds a case: these are in make test-all
OF_ITERATED = ("zero spread", "gaps", "one member")
CHANNELS = ("t2m:mean", "u10:mean", "v10:mean", "t2m:std")  # features of statistical methods
FAST = (
    *("mlp", "unet", "poet", "location_unet", "bernstein", "spline"),
    *("emos_seasonal", "isotonic"),
)


@functools.cache
def _made(name, grid):
    config = read_config(config_path(name))["model"]
    _set_grid(config, list(grid))
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(pl.LightningModule, "model")
    torch.manual_seed(0)
    return parser.instantiate_classes(parser.parse_object({"model": config})).model


def _set_grid(config, grid):
    for key, value in config.items():
        if key == "grid":
            config[key] = grid
        elif isinstance(value, dict):
            _set_grid(value, grid)


def module_of(name, grid=GRID):
    """The model of a configuration, for another grid, untrained."""
    module = copy.deepcopy(_made(name, tuple(grid)))
    module.log = lambda *args, **kwargs: None
    return module


def network_of(module):
    networks = getattr(module, "networks", None)
    return networks[0] if networks is not None else module.network


def batches_of(module, grid=GRID, dates=2, count=8, members=5):
    """Batches as the loader makes them; truth is the ensemble's mean, moved and with noise."""
    g = torch.Generator().manual_seed(1)
    batches = []
    for n in range(count):
        ensemble = 280 + 3 * torch.randn(dates, 1, *grid, generator=g)
        ensemble = ensemble + torch.randn(dates, members, *grid, generator=g)
        mean, spread = ensemble.mean(1), ensemble.std(1, correction=int(members > 1))
        shape = (dates, 4, *grid)
        if not isinstance(module, StatisticalPostProcessor):
            network = network_of(module)
            outer = (dates, members) if network.takes_members else (dates,)
            shape = (*outer, network.in_channels, *grid)
        day = 86400 * (40 * dates * n + 40 * torch.arange(dates))
        batches.append(
            {
                "features": torch.randn(*shape, generator=g),
                "raw_mean": mean,
                "raw_std": spread,
                "members": ensemble,
                "target": mean + 0.5 + torch.randn(dates, *grid, generator=g),
                "weights": torch.ones(dates, *grid),
                "dates": day,
            }
        )
    return batches


def zero_spread(batch):
    batch["raw_std"].zero_()
    batch["members"][:] = batch["raw_mean"].unsqueeze(1)
    if batch["features"].ndim == 5:
        batch["features"][:] = batch["features"][:, :1].clone()


def constant(batch):
    for key, value in (("features", 0.0), ("raw_mean", 280.0), ("target", 280.0)):
        batch[key].fill_(value)
    zero_spread(batch)


def huge(batch):
    """Features far outside those of the training, as of a variable in other units."""
    batch["features"].mul_(1e6)


def gaps(batch, value=torch.nan):
    """Points without truth and without a raw ensemble, as the loader passes them on."""
    for key in ("raw_mean", "raw_std"):
        batch[key][:, 2:4, 3] = value
    batch["members"][:, :, 2:4, 3] = value
    batch["target"][:, 2:5, 3] = 0
    batch["weights"][:, 2:5, 3] = 0


def infinite(batch):
    gaps(batch, torch.inf)


def no_truth(batch):
    batch["target"][0], batch["weights"][0] = 0, 0


CASES = {
    "ordinary": ({}, None),
    "zero spread": ({}, zero_spread),
    "constant fields": ({}, constant),
    "huge features": ({}, huge),
    "gaps": ({}, gaps),
    "infinite values": ({}, infinite),
    "a date without truth": ({}, no_truth),
    "one member": ({"members": 1}, None),
    "two members": ({"members": 2}, None),
    "one date": ({"dates": 1, "count": 1}, None),
    "one row": ({"grid": (1, 16)}, None),
}


def prepared(module, sizes, change):
    batches = batches_of(module, **sizes)
    for batch in batches:
        if change:
            change(batch)
    return batches


def solve(method, batches):
    rows, columns = batches[0]["raw_mean"].shape[1:]
    for part in method.modules():
        if isinstance(part, Advection):
            latitude = np.linspace(80, -80, rows).tolist()
            part.place(CHANNELS, "t2m", latitude, np.arange(0, 360, 360 / columns).tolist())
        if isinstance(part, AnomalyEMOS):
            part.place(np.stack([*np.mgrid[:rows, :columns], np.full((rows, columns), np.nan)]))
    for batch in batches:
        method.collect(batch)
    method.solve()


def assert_valid(forecast, batch, point_mass=False):
    """The forecast is a distribution wherever it counts; maybe one of a single value."""
    there = batch["weights"] > 0
    for name, values in forecast.variables().items():
        if name in ("lower", "upper"):  # bounds, which may be infinite
            continue
        where = there if values.ndim == there.ndim else there.unsqueeze(1).expand_as(values)
        assert values[where].isfinite().all(), name
        if name in ("sigma", "scale"):
            assert (values[where] >= 0 if point_mass else values[where] > 0).all(), name
    low, middle, high = forecast.quantile(torch.tensor([0.1, 0.5, 0.9]))
    for values in (low, middle, high, forecast.mean, forecast.crps(batch["target"])):
        assert values[there].isfinite().all()
    assert (low[there] <= middle[there]).all()
    assert (middle[there] <= high[there]).all()
    assert (forecast.crps(batch["target"])[there] >= -1e-3).all()


def marks(name, case):
    if name in ITERATED and case not in OF_ITERATED:
        return pytest.mark.long
    return [] if name in FAST else pytest.mark.slow


def parameters(names):
    return [pytest.param(name, case, marks=marks(name, case)) for name in names for case in CASES]


# what a case may be refused for, in words of the one error
REFUSED = {
    "one member": ("at least 2 members", "members"),
    "one row": ("do not fit a grid of 1 x 16", "rows", "at least"),
    "one date": ("dates",),
}
# spread that the training data do not have: the forecast is one value there, see Normal
# (a window of fewer than three dates keeps the raw ensemble)
POINT_MASS = (
    *("bias_map", "climatology", "seasonal_climatology", "emos_window"),
    *("raw_normal", "raw_truncated", "raw_censored"),
)


def refusal(case, function):
    """The result of a function, or None if it refused the case in words that are expected."""
    try:
        return function()
    except ValueError as error:  # ArgumentError is one; configurations wrap it in another
        if not any(word in str(error) for word in REFUSED.get(case, ())):
            raise
        return None


def started(name, case):
    """A network's module with its batches and the loss of its first step."""
    sizes, change = CASES[case]
    module = module_of(name, sizes.get("grid", GRID))
    if module.method is None:
        sizes = sizes | {"count": 1}
    batches = prepared(module, sizes, change)
    if module.method is not None:
        solve(module.method, batches)
    return module, batches, module.training_step(batches[0])


@pytest.mark.parametrize(("name", "case"), parameters(NETWORKS))
def test_networks(name, case):
    found = refusal(case, lambda: started(name, case))
    if found is None:
        return
    module, batches, loss = found
    assert loss.isfinite()
    loss.backward()
    trained = [(n, p) for n, p in module.named_parameters() if p.grad is not None]
    assert trained
    for key, parameter in trained:
        assert parameter.grad.isfinite().all(), key
    torch.optim.Adam(module.parameters(), 1e-3).step()
    for key, parameter in module.named_parameters():
        assert parameter.isfinite().all(), key
    module.eval()
    with torch.no_grad():
        assert_valid(module(batches[0]), batches[0])


@pytest.mark.parametrize(("name", "case"), parameters(STATISTICAL))
def test_statistical_methods(name, case):
    sizes, change = CASES[case]
    module = module_of(name)
    batches = prepared(module, sizes, change)
    if refusal(case, lambda: [solve(module.method, batches)]) is not None:
        forecast = module(batches[-1])
        assert_valid(forecast, batches[-1], name in POINT_MASS)
        again = module_of(name)  # what is NaN in the fit is declared
        load_weights(again, "a run", module.state_dict(), batches[-1]["raw_mean"].shape[1:])
        same = again.method(batches[-1]).variables()
        for key, values in forecast.variables().items():
            torch.testing.assert_close(same[key], values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in NETWORKS]
)
def test_features_that_are_not_finite_end_the_training_before_a_step(name, value):
    module = module_of(name)
    batches = batches_of(module)
    if module.method is not None:
        solve(module.method, batches)
    batches[1]["features"][1, ..., 2, 3, 5] = value
    with pytest.raises(ArgumentError, match=r"train_loss: not finite.* feature 2\b"):
        module.training_step(batches[1])


def test_weights_that_are_not_finite_are_not_saved():
    module = module_of("mlp")
    module.on_save_checkpoint({})
    (parameter, *_) = module.network.parameters()
    parameter.data.view(-1)[3] = torch.nan
    with pytest.raises(ArgumentError, match=r"weights: not finite after the last step: network\."):
        module.on_save_checkpoint({})
