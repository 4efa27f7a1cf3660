"""`ens10 score` of stores that no run made: other truth, groups, a reference, files that stay."""

import csv
import sys

import numpy as np
import pytest
import xarray as xr
from fakeruns import world
from realruns import command

from ens10.errors import FileError, UnknownNameError
from ens10.experiments.runs.reading import open_forecast, open_truth
from ens10.experiments.scoring.score import read_states, score_forecast
from ens10.metrics import monthly_quantiles, summarise, verify


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores of an ensemble and of normals, with the truth apart."""
    path = tmp_path_factory.mktemp("stores")
    truth, forecasts = world(dates=20)
    truth.rename("t2m").to_dataset().to_netcdf(path / "truth.nc")
    for name in ("raw", "emos"):
        forecasts[name].chunk(time=3).to_zarr(path / f"{name}.zarr", consolidated=False)
    forecasts["emos"].to_netcdf(path / "emos.nc")
    land = (truth["longitude"] < 180) + 0.0 * truth.isel(time=0)
    land.drop_vars(("time", "valid_time", "step")).rename("lsm").to_netcdf(path / "land.nc")
    return path


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_store_with_the_truth_elsewhere(folder, tmp_path, capsys):
    options = ("--truth", folder / "truth.nc", "--out", tmp_path)
    command("score", folder / "raw.zarr", *options)
    truth, forecasts = world(dates=20)
    wanted = verify(forecasts["raw"], truth)
    got = {row["score"]: row for row in rows(tmp_path / "scores.csv")}
    assert float(got["crps"]["value"]) == pytest.approx(float(wanted["crps"]), rel=1e-8)
    assert float(got["rmse"]["upper"]) == pytest.approx(float(wanted["rmse_upper"]), rel=1e-8)
    assert "20 dates" in capsys.readouterr().out
    command("score", folder / "emos.nc", *options)
    from_file = (tmp_path / "scores.csv").read_bytes()
    command("score", folder / "emos.zarr", *options)
    assert (tmp_path / "scores.csv").read_bytes() == from_file


def test_groups_a_reference_and_a_cross_check(folder, tmp_path, capsys):
    options = ("--truth", folder / "truth.nc", "--land", folder / "land.nc", "--out", tmp_path)
    groups = ("--by", "surface", "month", "--cross-check", "50")
    command("score", folder / "emos.zarr", *options, *groups, "--reference", folder / "raw.zarr")
    out = capsys.readouterr().out
    assert "crpss" in out
    assert "50 points" in out
    truth, forecasts = world(dates=20)
    half = truth["longitude"] < 180
    alone = verify(forecasts["emos"], truth.where(half), reference=forecasts["raw"], by=("month",))
    for row in rows(tmp_path / "groups.csv"):
        if row["surface"] == "land":
            value = float(alone[row["score"]].sel(month=int(row["month"])))
            assert float(row["value"]) == pytest.approx(value, rel=1e-8)
            lengths = alone[row["score"]].attrs["block_length"]
            place = list(alone["month"].to_numpy()).index(int(row["month"]))
            assert float(row["block_length"]) == pytest.approx(lengths[place], rel=1e-3)
            assert int(row["count"]) == int(alone["count"].sel(month=int(row["month"])))
    assert {row["surface"] for row in rows(tmp_path / "groups.csv")} == {"land", "sea"}
    command("score", folder / "emos.zarr", *options)
    assert not (tmp_path / "groups.csv").exists()


def test_what_fails_leaves_the_files(folder, tmp_path, capsys):
    options = ("--truth", folder / "truth.nc", "--out", tmp_path)
    command("score", folder / "raw.zarr", *options)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for bad, told in (
        (("--scores", "crsp"), "did you mean 'crps'"),
        (("--by", "seasons"), "did you mean 'season'"),
        (("--by", "surface"), "Pass land"),
        (("--scheduler", "thread"), "did you mean 'threads'"),
        (("--reference", folder / "none.zarr"), "holds no predictions"),
        (("--cross-check", "0"), "one point or more"),
    ):
        command("score", folder / "raw.zarr", *options, *bad, status=1)
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    command("score", folder / "raw.zarr", folder / "emos.zarr", "--out", tmp_path, status=1)
    assert "several forecasts" in capsys.readouterr().err


def test_truth_is_found_or_asked_for(folder, tmp_path, capsys):
    command("score", folder / "raw.zarr", status=1)
    assert "--truth STORE" in capsys.readouterr().err
    two = xr.load_dataset(folder / "truth.nc")
    two.assign(d2m=two["t2m"]).to_netcdf(tmp_path / "two.nc")
    with pytest.raises(FileError, match="holds 2 variables: t2m, d2m"):
        open_truth(tmp_path / "two.nc")
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        open_truth(tmp_path / "two.nc", "t2")
    states = score_forecast(
        folder / "raw.zarr", truth=tmp_path / "two.nc", variable="t2m", out=tmp_path / "new"
    ).states
    xr.testing.assert_identical(read_states(tmp_path / "new")["crps_sum"], states["crps_sum"])
    length = summarise(states)["crps"].attrs["block_length"]
    assert states["crps_sum"].attrs["block_length_crps"] == length
    lines = (tmp_path / "new" / "scores.csv").read_text().splitlines()
    assert lines[0].endswith(",block_length")
    assert next(line for line in lines if line.startswith("crps,")).endswith(f",{length:g}")
    (tmp_path / "bad.nc").write_bytes(b"no netCDF")
    with pytest.raises(FileError, match="cannot be read as netCDF"):
        open_forecast(tmp_path / "bad.nc")


def test_truth_of_a_prepared_store(store, runs, tmp_path):
    beside = score_forecast(runs["raw"], out=tmp_path / "a").states
    apart = score_forecast(runs["raw"], truth=store, out=tmp_path / "b").states
    np.testing.assert_allclose(apart["crps_sum"], beside["crps_sum"], rtol=1e-5)


@pytest.mark.parametrize("name", ["z500", "z_500"])  # a run's target has the second name
def test_truth_of_a_pressure_level_is_found(tmp_path, name):
    values = np.random.default_rng(0).normal(size=(2, 2, 3))
    fields = xr.Dataset({"z": (("time", "level", "longitude"), values)}, {"level": [500, 850]})
    fields.assign(t2m=fields["z"][:, 0]).to_netcdf(tmp_path / "truth.nc")
    found = open_truth(tmp_path / "truth.nc", name)
    np.testing.assert_array_equal(found, values[:, 0])
    assert found.dims == ("time", "longitude")
    with pytest.raises(UnknownNameError, match="Known: t2m, z_500, z_850"):
        open_truth(tmp_path / "truth.nc", "z300")


def test_anomalies_events_and_intervals(store, runs, tmp_path, capsys):
    names = ["acc", "csi_280", "interval_score_0.9"]
    out = ("--out", tmp_path)
    command("score", runs["mlp"], "--scores", *names, "--climatology", store, *out)
    forecast, truth = open_forecast(runs["mlp"])
    scored = np.unique(forecast["valid_time"].dt.year)
    observed = open_truth(store, "t2m")
    years = observed["valid_time"].dt.year
    valid = observed["valid_time"].dt.month.where(~years.isin(scored))
    means = observed.isel(step=0).groupby(valid.isel(step=0).rename("month")).mean("time")
    expected = verify(forecast, truth, names, climatology=means)
    got = {row["score"]: row for row in rows(tmp_path / "scores.csv")}
    for name in names:
        assert float(got[name]["value"]) == pytest.approx(float(expected[name]), rel=1e-6)
    assert 0 < float(got["acc"]["value"]) < 1
    means.rename("t2m").to_netcdf(tmp_path / "means.nc")
    command("score", runs["mlp"], "--scores", "acc", "--climatology", tmp_path / "means.nc", *out)
    again = {row["score"]: row for row in rows(tmp_path / "scores.csv")}
    assert float(again["acc"]["value"]) == pytest.approx(float(got["acc"]["value"]), rel=1e-6)
    command("score", runs["mlp"], "--scores", "acc", *out, status=1)
    assert "--climatology" in capsys.readouterr().err


def test_local_extremes_with_a_store(store, runs, tmp_path, capsys):
    """Thresholds are quantiles of the truth of the years that are not scored, by month."""
    command("score", runs["mlp"], "--climatology", store, "--out", tmp_path)
    said = capsys.readouterr().out
    forecast, truth = open_forecast(runs["mlp"])
    years = np.unique(truth["valid_time"].dt.year).tolist()
    past = open_truth(store, "t2m")
    thresholds = monthly_quantiles(past, [0.95, 0.99], without_years=years).rename("t2m")
    names = [f"{score}_local_{level}" for score in ("brier", "twcrps") for level in (0.95, 0.99)]
    expected = verify(forecast, truth, names, thresholds=thresholds)
    found = {row["score"]: float(row["value"]) for row in rows(tmp_path / "scores.csv")}
    for name in names:
        assert found[name] == pytest.approx(float(expected[name]), rel=1e-6)
        assert f"{name} {found[name]:.4g}" in said
    thresholds.to_netcdf(tmp_path / "quantiles.nc")
    again = ["--climatology", tmp_path / "quantiles.nc", "--out", tmp_path / "again"]
    (tmp_path / "again").mkdir()
    command("score", runs["mlp"], *again)
    assert (tmp_path / "again" / "scores.csv").read_text() == (tmp_path / "scores.csv").read_text()


def test_a_cross_check_without_properscoring_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "properscoring", None)
    options = ("--truth", folder / "truth.nc", "--cross-check")
    command("score", folder / "raw.zarr", *options, status=1)
    assert "pip install properscoring" in capsys.readouterr().err


def test_scores_only_of_histograms(folder, tmp_path, capsys):
    options = ("--truth", folder / "truth.nc", "--out", tmp_path, "--scores", "histogram")
    command("score", folder / "raw.zarr", *options)
    assert "histograms of 20 dates" in capsys.readouterr().out
    assert int(read_states(tmp_path)["rank_count"].sum()) == 20 * 6 * 12


@pytest.mark.slow
def test_on_a_cluster_the_same_bits(folder, tmp_path):
    from distributed import LocalCluster

    options = ("--truth", folder / "truth.nc", "--by", "latitude_band")
    command("score", folder / "raw.zarr", *options, "--out", tmp_path / "here")
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as cluster:
        address = cluster.scheduler_address
        command(
            "score", folder / "raw.zarr", *options, "--out", tmp_path / "there",
            "--scheduler", address,
        )  # fmt: skip
    xr.testing.assert_identical(read_states(tmp_path / "here"), read_states(tmp_path / "there"))
    for name in ("scores.csv", "groups.csv"):
        here, there = ((tmp_path / d / name).read_bytes() for d in ("here", "there"))
        assert here == there


def test_a_scheduler_that_is_not_there(folder, tmp_path, capsys, monkeypatch):
    import dask

    options = ("--truth", folder / "truth.nc", "--out", tmp_path)
    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        command(
            "score", folder / "raw.zarr", *options, "--scheduler", "tcp://127.0.0.1:9", status=1
        )
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_every_requested_score_is_printed(folder, tmp_path, capsys):
    names = ["crps", "csi_281", "quantile_score_0.9", "hersbach", "interval_score_0.8"]
    options = ("--truth", folder / "truth.nc", "--reference", folder / "raw.zarr", "--by", "season")
    command("score", folder / "raw.zarr", *options, "--out", tmp_path, "--scores", *names)
    line, heads, *_ = capsys.readouterr().out.splitlines()
    got = {row["score"]: row for row in rows(tmp_path / "scores.csv")}
    for name in ("crps", "crpss", "csi_281", "quantile_score_0.9", "interval_score_0.8"):
        value, low, high = (float(got[name][k]) for k in ("value", "lower", "upper"))
        assert f"{name} {value:.4g} [{low:.4g}, {high:.4g}]" in line
        assert name in heads.split()
    terms = dict(part.split(" ")[:2] for part in line.split(": ", 1)[1].split("; ")[:-2])
    total = float(terms["hersbach_reliability"]) + float(terms["hersbach_potential"])
    assert total == pytest.approx(float(got["crps"]["value"]), rel=1e-3)
