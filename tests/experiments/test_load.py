"""`load_model`: new forecasts in, corrected forecasts out, as `ens10 predict` has them."""

import shutil
import warnings

import dask.array as da
import numpy as np
import pytest
import realruns
import torch
import xarray as xr
import yaml
from scipy.stats import norm, rankdata

import ens10
from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.forecasts.load import BeyondTrainingWarning
from ens10.experiments.runs.reading import open_forecast, open_predictions
from ens10.experiments.training.run import run_stage
from ens10.models.statistical.coupling import dates_near
from ens10.source import open_source

TEST_YEARS = [2004, 2005]


@pytest.fixture(scope="module")
def forecast(world):
    """The GRIB files of the test dates, lazily."""
    whole = open_source(world.folder)
    tested = whole["valid_time"].isel(step=0).dt.year.isin(TEST_YEARS)
    return whole.isel(time=np.flatnonzero(tested))


@pytest.fixture(scope="module")
def model(runs):
    return ens10.load_model(runs["emos_local"])


@pytest.mark.parametrize("name", realruns.NAMES)
def test_grib_files_are_corrected_as_the_store_is_predicted(runs, forecast, name):
    corrected = ens10.load_model(runs[name])(forecast)
    predicted, _ = open_predictions(runs[name])
    xr.testing.assert_identical(corrected.compute(), predicted.compute())
    for variable in corrected.data_vars.values():
        assert variable.chunks[0] == (1,) * 8


def test_a_forecast_is_corrected_when_it_is_asked_for_and_one_date_at_a_time(model, forecast):
    read = []

    def note(block, block_info=None):
        read.append(block_info[0]["chunk-location"][0])
        return block

    t2m = forecast["t2m"]
    noted = da.map_blocks(note, t2m.data, dtype=t2m.dtype, meta=t2m.data._meta)
    corrected = model(forecast[["t2m"]].assign(t2m=(t2m.dims, noted, t2m.attrs)))
    assert read == []
    one = corrected["mu"].isel(time=3).compute()
    assert set(read) == {3}
    with_memory = model(forecast[["t2m"]].isel(time=3).load())
    assert with_memory["mu"].chunks is None
    np.testing.assert_array_equal(with_memory["mu"].squeeze("time"), one)


def test_names_order_and_orientation_of_others_are_recognised(model, forecast):
    one = forecast[["t2m"]].isel(time=[2]).load()
    turned = one.transpose("longitude", "latitude", ...).isel(latitude=slice(None, None, -1))
    turned = turned.rename(latitude="lat", longitude="lon", t2m="2t")
    turned["2t"] = turned["2t"].transpose("lon", ...)
    xr.testing.assert_identical(model(turned), model(one))


def test_what_does_not_fit_is_refused_before_anything_is_computed(runs, model, forecast):
    one = forecast.isel(time=[0])
    network = ens10.load_model(runs["unet"])
    other = one.drop_vars("valid_time").assign_coords(step=[24])
    warm = one.assign(t2m=one["t2m"].assign_attrs(units="furlong"))
    for wrong, said, error in (
        (one.drop_vars("u10"), "lacks u10, which unet takes; it has", ArgumentError),
        (one.isel(latitude=slice(1, None)), "7 latitudes.*8 latitudes", ArgumentError),
        (one.isel(number=slice(9)), "unet needs 10 members, found 9", ArgumentError),
        (other, r"\[24\], not at 48; unet was trained at 48 h", ArgumentError),
        (one.drop_vars("step").squeeze("step"), "lead time", ArgumentError),
        (warm, "furlong", (ArgumentError, FileError)),
    ):
        with pytest.raises(error, match=said):
            network(wrong)
    first = model(one.isel(number=slice(10)))
    more = xr.concat([one, one.assign_coords(number=one["number"] + 10)], "number")
    xr.testing.assert_identical(model(more).compute(), first.compute())  # of the first members


def test_a_season_without_training_dates_is_reported(model, forecast):
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeyondTrainingWarning)
        model(forecast)
    late = forecast.isel(time=slice(1, 3))
    late = late.drop_vars("valid_time").assign_coords(time=late["time"] + np.timedelta64(45, "D"))
    with pytest.warns(BeyondTrainingWarning, match="2 of 2 dates, the first 2004-05-") as told:
        model(late)
    assert {one.filename for one in told} == {__file__}  # at the user's line


def test_quantiles_and_probabilities_are_those_of_the_distribution(model, forecast):
    made = model(
        forecast.isel(time=[1, 4]).load(), quantiles=[0.9, 0.1],
        probabilities=[">280.5", "<260", "> 270"],
    )  # fmt: skip
    known = norm(made["mu"].astype(float), made["sigma"].astype(float))
    assert made["quantile_level"].to_numpy().tolist() == [0.1, 0.9]
    for level in (0.1, 0.9):
        found = made["t2m_quantile"].sel(quantile_level=level)
        np.testing.assert_allclose(found, known.ppf(level), rtol=1e-6)
    assert made["t2m_probability_above"].sizes["threshold_above"] == 2
    for threshold in (270, 280.5):
        found = made["t2m_probability_above"].sel(threshold_above=threshold)
        np.testing.assert_allclose(found, known.sf(threshold), atol=2e-6)
    found = made["t2m_probability_below"].squeeze("threshold_below")
    np.testing.assert_allclose(found, known.cdf(260), atol=2e-6)
    for option, wrong in (("quantiles", [1.0]), ("probabilities", ["280"]), ("members", "copula")):
        with pytest.raises(ArgumentError):
            model(forecast, **{option: wrong})


def test_members_have_the_order_of_the_raw_ones_or_of_the_past(model, forecast, store):
    few = forecast.isel(time=[0, 5]).load()
    made = model(few, members="ecc")
    raw = few["t2m"].squeeze("step").transpose("time", "number", ...)
    np.testing.assert_array_equal(rankdata(made["t2m"], axis=1), rankdata(raw, axis=1))
    levels = (np.arange(10) + 0.5) / 10
    known = norm(
        made["mu"].expand_dims(number=10, axis=1), made["sigma"].expand_dims(number=10, axis=1)
    )
    np.testing.assert_allclose(
        np.sort(made["t2m"], axis=1), known.ppf(levels[None, :, None, None]), rtol=1e-6
    )
    shuffled = model(few, members="schaake")["t2m"]
    truth = ens10.open_store(store, "truth")["t2m"].squeeze("step")
    past = truth.sel(time=truth["valid_time"].dt.year < 2003)
    seconds = past["valid_time"].to_numpy().astype("datetime64[s]").astype(int)
    for date in shuffled:
        when = int(date["valid_time"].to_numpy().astype("datetime64[s]").astype(int))
        template = past[dates_near(seconds, when, 10, 30.0, 0)]
        np.testing.assert_array_equal(rankdata(date, axis=0), rankdata(template, axis=0))
    drawn = model(few, members="sample", seed=3)["t2m"]
    z = (drawn - made["mu"]) / made["sigma"]
    assert abs(float(z.mean())) < 0.1
    assert abs(float(z.std()) - 1) < 0.1
    np.testing.assert_array_equal(drawn, model(few, members="sample", seed=3)["t2m"])


def test_code_of_others_is_not_imported(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs["mlp"], run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["model"]["init_args"]["network"]["class_path"] = "evil.Network"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(FileError, match="--trust evil"):
        ens10.load_model(run)
    with pytest.raises(FileError, match="not a run"):
        ens10.load_model(tmp_path)


def test_a_run_whose_checkpoint_does_not_know_its_data_can_be_loaded(runs, tmp_path, forecast):
    run = tmp_path / "run"
    shutil.copytree(runs["mlp"], run)
    best = run / "checkpoints" / "best.ckpt"
    held = torch.load(best, weights_only=True)
    del held["EnsembleDataModule"]["trained"]
    torch.save(held, best)
    one = forecast.isel(time=[0])
    corrected = ens10.load_model(run)(one).compute()
    xr.testing.assert_identical(corrected, ens10.load_model(runs["mlp"])(one).compute())
    with pytest.raises(ArgumentError, match="grid"):
        ens10.load_model(run)(one.isel(latitude=slice(1, None)))


def test_a_store_without_truth_is_predicted(runs, world, forecast, tmp_path):
    bare = prepare(forecast, tmp_path / "bare.zarr")
    run = tmp_path / "unet"
    shutil.copytree(runs["unet"], run)
    (run / "scores.nc").unlink()
    realruns.command("predict", "--run", run, "--quiet", "--data.store", bare)
    predicted, truth = open_forecast(run)
    assert truth is None
    xr.testing.assert_identical(predicted.load(), open_predictions(runs["unet"])[0].load())
    xr.testing.assert_identical(ens10.load_model(run)(bare).compute(), predicted)
    for stage in ("validate", "test"):
        with pytest.raises(MissingDataError, match="the truth"):
            run_stage(stage, ["--run", str(run), "--quiet", "--data.store", str(bare)])
