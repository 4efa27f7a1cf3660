"""Statistical methods fitted anew for each forecast, on the last days before its start."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import xarray as xr
import yaml
from docblocks import commands

from ens10.cli import main
from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.load import BeyondTrainingWarning, load_model
from ens10.experiments.runs.reading import open_predictions
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models import StatisticalPostProcessor
from ens10.models.heads import MethodHead
from ens10.models.statistical import ECC, EMOS, SlidingWindow
from ens10.source import open_source
from ens10.store import open_store

DAYS, LEAD, WINDOW = 80, np.timedelta64(48, "h"), 25
RULES = "{name: daily, val: 0.1, test: 0.3}"


@pytest.fixture(scope="module")
def data():
    """Daily forecasts of 80 days at 4 x 6 points, with a bias that drifts, and their truth."""
    random = np.random.default_rng(3)
    start = np.datetime64("2002-01-01", "ns") + np.arange(DAYS) * np.timedelta64(1, "D")
    place = {"latitude": [60.0, 20.0, -20.0, -60.0], "longitude": np.arange(0.0, 360, 60)}
    signal = 280 + 5 * random.normal(size=(DAYS, 1, 1, 4, 6))
    drift = np.linspace(0, 4, DAYS)[:, None, None, None, None]
    members = (signal + drift + random.normal(size=(DAYS, 1, 8, 4, 6))).astype("f4")
    truth = (signal[:, :, 0] + random.normal(size=(DAYS, 1, 4, 6))).astype("f4")
    coords = {"time": start, "step": ("step", [48], {"units": "h"}), **place}
    valid = {"valid_time": (("time", "step"), (start + LEAD)[:, None])}
    kelvin, dims = {"units": "K"}, ("time", "step", "number", "latitude", "longitude")
    forecast = xr.Dataset({"t2m": (dims, members, kelvin)}, {**coords, "number": range(8), **valid})
    analysis = xr.Dataset({"t2m": (dims[:2] + dims[3:], truth, kelvin)}, {**coords, **valid})
    return forecast, analysis


def corrected(forecast, truth, method, **options):
    """The normals of the test dates, by date, through Lightning."""
    module = EnsembleDataModule(
        forecast, inputs=["t2m"], protocol=yaml.safe_load(RULES), truth=truth, **options
    )
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = StatisticalPostProcessor(method)
    trainer.fit(model, datamodule=module)
    found = trainer.predict(model, datamodule=module)
    return {int(one.dates[0]): one.forecast for one in found}, model, trainer


@pytest.fixture(scope="module")
def windowed(data):
    return corrected(*data, SlidingWindow(EMOS(local=True), WINDOW))[0]


def by_hand(data, date):
    """EMOS on the 25 valid dates up to the start of the forecast, selected by xarray."""
    forecast, truth = (one["t2m"].isel(step=0) for one in data)
    start = np.datetime64(date, "s") - LEAD
    past = slice(start - np.timedelta64(WINDOW - 1, "D") - LEAD, start - LEAD)
    members = forecast.sel(time=past).to_numpy().astype(float)
    assert len(members) == WINDOW
    y = torch.tensor(truth.sel(time=past).to_numpy())
    emos = EMOS(local=True)
    days = forecast.sel(time=past)["time"].to_numpy() + LEAD
    emos.collect(batch_of(members, y, days))
    emos.solve()
    one = forecast.sel(time=[start]).to_numpy().astype(float)
    return emos(batch_of(one, y[:1], np.array([date]).astype("M8[s]")))


def batch_of(members, y, days):
    mean, std = members.mean(1), members.std(1, ddof=1)
    dates = torch.tensor(days.astype("M8[s]").astype(int))
    fields = {"raw_mean": torch.tensor(mean).float(), "raw_std": torch.tensor(std).float()}
    area = torch.tensor([1.0, 2.0, 2.0, 1.0]).reshape(1, 4, 1).expand_as(y)
    return {**fields, "target": y, "weights": area.contiguous(), "dates": dates}


def test_each_date_equals_a_fit_by_hand(data, windowed):
    assert len(windowed) == 24
    for date, forecast in list(windowed.items())[::5]:
        want = by_hand(data, date)
        torch.testing.assert_close(forecast.mu, want.mu, rtol=0, atol=2e-4)
        torch.testing.assert_close(forecast.sigma, want.sigma, rtol=2e-4, atol=2e-4)


def test_later_truth_changes_nothing(data, windowed):
    """Truth after the start of a forecast; truth at its start enters."""
    forecast, truth = data
    dates = list(windowed)
    middle = np.datetime64(dates[10], "s")
    changed = truth.copy(deep=True)
    valid = truth["valid_time"].to_numpy()[:, 0]
    later = valid > middle - LEAD
    changed["t2m"][later] += 7
    other = corrected(forecast, changed, SlidingWindow(EMOS(local=True), WINDOW))[0]
    for n, date in enumerate(dates):
        same = torch.equal(other[date].mu, windowed[date].mu)
        assert same == (n <= 10), n


def test_a_window_follows_a_bias_that_drifts(data, windowed):
    forecast, truth = data
    fixed = corrected(forecast, truth, EMOS(local=True))[0]
    y = {int(date): field for date, field in zip(
        truth["valid_time"].to_numpy()[:, 0].astype("M8[s]").astype(int),
        torch.tensor(truth["t2m"].to_numpy()[:, 0]), strict=True)}  # fmt: skip
    crps = [
        torch.stack([one.crps(y[date][None]) for date, one in run.items()]).mean().item()
        for run in (windowed, fixed)
    ]
    assert crps[0] < 0.9 * crps[1]


def test_batches_of_several_dates_and_members_in_order(data, windowed):
    method = SlidingWindow(EMOS(local=True), WINDOW)
    _, model, trainer = corrected(*data, method, batch_size=4)
    trainer.validate(model, datamodule=trainer.datamodule, verbose=False)
    one = trainer.datamodule.batches("val")
    loss = trainer.callback_metrics["val_crps"].item()
    trainer.datamodule.batch_size = 1
    trainer.validate(model, datamodule=trainer.datamodule, verbose=False)
    assert len(one) == 2
    assert trainer.callback_metrics["val_crps"].item() == pytest.approx(loss, rel=1e-6)
    coupled = corrected(*data, ECC(SlidingWindow(EMOS(local=True), WINDOW)), members=True)[0]
    date = list(windowed)[3]
    assert coupled[date].mean.mean() == pytest.approx(windowed[date].mu.mean().item(), abs=0.05)


def test_windows_that_cannot_be(data):
    with pytest.raises(ArgumentError, match="days: 0 is too few"):
        SlidingWindow(EMOS(), 0)
    with pytest.raises(ArgumentError, match="no coefficients for the training dates"):
        MethodHead(ECC(SlidingWindow(EMOS())))
    gap = [one.isel(time=np.r_[:40, 75:80]) for one in data]
    with pytest.raises(ArgumentError, match="no date with truth in the 3 days before its start"):
        corrected(*gap, SlidingWindow(EMOS(), 3))


@pytest.fixture(scope="module")
def run(prepared, tmp_path_factory):
    """The run of the page on a store of daily forecasts."""
    days = [f"{month:02d}{day:02d}" for month in (6, 7) for day in range(1, 31)]
    world = prepared("6x12", (2001,), days, ("t2m", "u10"), steps=(48,))
    folder = tmp_path_factory.mktemp("window")
    configs = folder / "experiments" / "configs"
    configs.mkdir(parents=True)
    (configs / "emos_window.yaml").write_text(config_path("emos_window").read_text())
    (folder / "store.zarr").symlink_to(world / "store.zarr")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        listed = commands("docs/in_use.md", run=False)
        listed = [words for words in listed if any("window" in word for word in words)]
        assert [words[0] for words in listed] == ["fit", "predict", "score"]
        for words in listed:
            assert main(words) == 0
    return folder / "runs" / "window", world / "store.zarr"


def test_the_command_line(run):
    folder, store = run
    forecast = open_predictions(folder / "predictions.zarr")[0]
    assert forecast.sizes["time"] == 30
    truth = open_store(store, "truth")["t2m"].sel(step=48)
    statistics = open_store(store, "statistics").sel(step=48, channel="t2m")
    start = forecast["time"].to_numpy()[7]
    past = statistics.sel(time=slice(start - LEAD - np.timedelta64(24, "D"), start - LEAD))
    assert past.sizes["time"] == 25
    bias = truth.sel(time=past["time"]) - past["ensemble_mean"]
    assert (folder / "scores.csv").is_file()
    moved = forecast["mu"].sel(time=start) - statistics["ensemble_mean"].sel(time=start)
    weights = np.cos(np.deg2rad(truth["latitude"]))
    means = [float(x.weighted(weights).mean()) for x in (moved, bias)]
    assert means[0] == pytest.approx(means[1], abs=0.3)


def test_a_loaded_model_states_its_window(run):
    folder, store = run
    model = load_model(folder)
    forecast = open_source(store.parent / "world")[["t2m"]]
    with pytest.warns(BeyondTrainingWarning, match=r"window .* 2001-06-07 to 2001-07-01; fit it"):
        later = model(forecast.isel(time=slice(-3, None)).load())
    assert later.sizes["time"] == 3
    with pytest.raises(ArgumentError, match="before the end of the window"):
        model(forecast.isel(time=slice(0, 3)).load())
