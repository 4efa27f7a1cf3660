"""`ens10 score --scores eecrps` of runs: members and climate from stores, and what is refused."""

import csv
import shutil

import numpy as np
import pytest
import xarray as xr
from realruns import command

from ens10.errors import FileError, MissingDataError
from ens10.experiments.runs.raw_ensemble import open_climate, open_raw
from ens10.experiments.runs.reading import open_forecast, open_predictions
from ens10.experiments.scoring.score import read_states, score_forecast
from ens10.grid import area_weights
from ens10.metrics import crps_normal, efi
from ens10.quantiles import ClimateOptions, model_climate, write_climate

SCORES = ("--scores", "crps", "eecrps")


@pytest.fixture(scope="module")
def judged(store, tmp_path_factory):
    """The store with its climate."""
    path = shutil.copytree(store, tmp_path_factory.mktemp("judged") / "store.zarr")
    write_climate(path, ClimateOptions(("t2m",), (48,), window=3))
    return path


def table(folder):
    with (folder / "scores.csv").open() as file:
        return {row["score"]: row for row in csv.DictReader(file)}


def by_hand(run, raw, judged):
    """Both normalisations on whole arrays."""
    forecast, truth = open_predictions(run)
    mu, sigma, y = (v.to_numpy().astype(float) for v in (forecast["mu"], forecast["sigma"], truth))
    x = open_predictions(raw)[0]["members"].to_numpy().astype(float)
    dates = forecast["time"].to_numpy()
    climate = model_climate(judged, "t2m", step=48, dates=dates, window=3)
    index = efi(
        x, climate.to_numpy().astype(float), member_dim=1, quantile_dim=1,
        levels=climate["quantile"].to_numpy(),
    )  # fmt: skip
    w = area_weights(truth["latitude"].to_numpy())[:, None] * np.abs(index)
    total = (w * crps_normal(mu, sigma, y)).sum()
    return total / (w / np.abs(index)).sum(), total / w.sum()


def test_from_a_prepared_store_and_from_a_run(runs, judged, tmp_path, capsys):
    wanted = by_hand(runs["mlp"], runs["raw"], judged)
    apart = shutil.copytree(runs["raw"] / "predictions.zarr", tmp_path / "apart.zarr")
    for raw in (judged, runs["raw"], apart):
        out = tmp_path / f"{raw.name}-scores"
        command(
            "score", runs["mlp"], *SCORES, "--raw", raw, "--climate", judged, "--out", out,
            "--reference", runs["raw"], "--by", "year",
        )  # fmt: skip
        got = table(out)
        assert float(got["eecrps"]["value"]) == pytest.approx(wanted[0], rel=2e-5)
        assert float(got["eecrps_weighted"]["value"]) == pytest.approx(wanted[1], rel=2e-5)
        assert got["eecrps"]["units"] == "K"
        named = "apart.zarr" if raw == apart else "raw"
        assert read_states(out).attrs["efi_source"] == named
        assert {"eecrpss", "eecrps_difference", "crps", "crpss"} <= set(got)
        said = capsys.readouterr().out
        assert f"eecrps {float(got['eecrps']['value']):.4g} [" in said
        assert "eecrps_weighted" in said.splitlines()[1]
        assert "eecrpss" in said


def test_the_method_is_chosen(runs, judged, tmp_path):
    options = ("--raw", runs["raw"], "--climate", judged, "--out", tmp_path)
    command("score", runs["mlp"], *SCORES, *options, "--efi-method", "ecmwf")
    states = read_states(tmp_path)
    assert states.attrs["efi_method"] == "ecmwf"
    exact = score_forecast(
        runs["mlp"], scores=["eecrps"], raw=judged, climate=judged, out=tmp_path / "e"
    )
    assert not np.allclose(states["abs_efi_sum"], exact.states["abs_efi_sum"], rtol=1e-4)
    np.testing.assert_allclose(states["abs_efi_sum"], exact.states["abs_efi_sum"], rtol=0.1)


def test_the_raw_ensemble_itself(runs, judged, tmp_path, capsys):
    store = shutil.copytree(runs["raw"] / "predictions.zarr", tmp_path / "other.zarr")
    for path, raw in ((runs["raw"], judged), (store, runs["raw"])):
        options = ("--raw", raw, "--climate", judged, "--out", tmp_path / "o")
        named = ("--channel", "2t")
        command("score", path, *SCORES, *options, *named, status=1)
        error = capsys.readouterr().err
        assert "improper" in error
        assert "--scores-raw" in error
        command("score", path, *SCORES, *options, *named, "--scores-raw")
        assert "eecrps" in capsys.readouterr().out
    command("score", runs["mlp"], *SCORES, *options, "--scores-raw", status=1)
    assert "the EFI is of 'raw', the forecast is another" in capsys.readouterr().err


def test_what_is_missing_is_said(runs, store, judged, tmp_path, capsys):
    few = open_forecast(runs["raw"])[0].isel(time=slice(1, None)).load()
    few.to_zarr(tmp_path / "few.zarr", consolidated=False)
    apart = shutil.copytree(runs["mlp"] / "predictions.zarr", tmp_path / "mlp.zarr")
    fine = {"--raw": judged, "--climate": judged, "--out": tmp_path / "out"}
    for path, changed, told in (
        (runs["mlp"], {"--climate": store}, "`ens10 prepare SRC STORE --climate t2m@48`"),
        (runs["mlp"], {"--climate": tmp_path / "none"}, "no such store"),
        (runs["mlp"], {"--climate": None}, "climate: the EFI needs its quantiles"),
        (runs["mlp"], {"--raw": None}, "Pass raw and climate"),
        (runs["mlp"], {"--raw": runs["mlp"]}, "a forecast of kind normal"),
        (runs["mlp"], {"--raw": tmp_path / "none"}, "holds no predictions"),
        (runs["mlp"], {"--raw": tmp_path / "few.zarr"}, "raw: 1 part is missing: 2004"),
        (runs["mlp"], {"--channel": "t2n"}, "did you mean 't2m'"),
        (apart, {}, "--channel t2m"),
    ):
        given = [str(w) for pair in (fine | changed).items() if pair[1] is not None for w in pair]
        command("score", path, *SCORES, *given, status=1)
        error = capsys.readouterr().err
        assert told in error, error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    command("score", runs["mlp"], "--scores", "crps", "--raw", judged, status=1)
    assert "Add eecrps to the scores" in capsys.readouterr().err


def test_steps_of_a_forecast(runs, judged):
    forecast = open_forecast(runs["mlp"])[0]
    stepped = forecast.expand_dims(step=[np.timedelta64(48, "h")])
    raw, one = (open_raw(judged, "t2m", f)["members"] for f in (stepped, forecast))
    np.testing.assert_array_equal(raw.sel(step="48h"), one)
    climate, one = (open_climate(judged, "t2m", f) for f in (stepped, forecast))
    np.testing.assert_array_equal(climate.sel(step="48h"), one)
    assert climate["step"].dtype == stepped["step"].dtype
    late = forecast.assign_coords(step=72)
    with pytest.raises(ValueError, match="has no step 72, but 48"):
        open_raw(judged, "t2m", late)
    with pytest.raises(ValueError, match="does not say its step"):
        open_raw(judged, "t2m", forecast.drop_vars("step"))
    with pytest.raises(ValueError, match="one level at a time"):
        open_raw(judged, "t2m", forecast.expand_dims(level=[500]))
    early = forecast.assign_coords(time=forecast["time"] + np.timedelta64(1, "D"))
    with pytest.raises(MissingDataError, match="the climate of"):
        open_climate(judged, "t2m", early)


def test_a_store_without_members(judged, tmp_path, runs):
    bare = shutil.copytree(judged, tmp_path / "bare", ignore=shutil.ignore_patterns("sfc", "pl"))
    with pytest.raises(FileError, match="holds no ensemble forecasts"):
        open_raw(bare, "t2m", open_forecast(runs["mlp"])[0])


def test_blocks_of_a_store_are_one_pass(runs, judged, tmp_path, monkeypatch):
    from ens10.metrics.verification import block_scoring

    options = {"scores": ["crps", "eecrps"], "raw": judged, "climate": judged}
    whole = score_forecast(runs["mlp"], out=tmp_path, **options).states
    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", 1)
    xr.testing.assert_identical(score_forecast(runs["mlp"], out=tmp_path, **options).states, whole)
