"""Forecasts at other stations than those of the training, and tables in and out."""

import numpy as np
import pandas as pd
import pytest
import realruns
import torch
import xarray as xr
from test_station_runs import at_stations

import ens10
from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.load import BeyondTrainingWarning, load_model
from ens10.loader import EnsembleDataModule
from ens10.source import open_source

DATES = slice(0, 3)


@pytest.fixture(scope="module")
def place(shared, world):
    """Files of four of five stations, their store and two runs; and the forecasts of all five."""

    def fill(folder):
        forecasts = at_stations(open_source(world.folder))[["t2m"]]
        truth = at_stations(open_source(world.folder / "truth", optional_dimensions=True))[["t2m"]]
        trained = [0, 1, 2, 3]
        forecasts.to_netcdf(folder / "forecasts.nc")
        forecasts.isel(station=trained).to_netcdf(folder / "past.nc")
        truth.isel(station=trained).to_netcdf(folder / "observations.nc")
        prepare(folder / "past.nc", folder / "store.zarr", truth=folder / "observations.nc")
        for name in ("emos_local", "emos_global", "emos_samos"):
            realruns.fit(name, folder / "store.zarr", folder / name)

    return shared("station_changes", fill)


@pytest.fixture(scope="module")
def today(place):
    """The forecasts of three dates at all five stations."""
    with xr.open_dataset(place / "forecasts.nc") as forecasts:
        return forecasts.isel(time=DATES).load()


def trained_result(run, place):
    """The corrected forecasts at the stations of the training, in their order."""
    return load_model(run)(xr.open_dataset(place / "past.nc").isel(time=DATES).load())


def test_a_station_that_is_missing_is_a_row_of_missing_values(place, today):
    expected = trained_result(place / "emos_local", place)
    model = load_model(place / "emos_local")
    lines = r"emos_local: the forecast lacks 1 station \(s1\) of the training.*missing there"
    with pytest.warns(BeyondTrainingWarning, match=lines):
        found = model(today.isel(station=[3, 0, 2]))
    assert found["station"].to_numpy().tolist() == ["s3", "s0", "s2", "s1"]
    for name in ("mu", "sigma"):
        np.testing.assert_array_equal(found[name][:, :3], expected[name][:, [3, 0, 2]])
        assert found[name][:, 3].isnull().all()
    np.testing.assert_array_equal(found["lat"], expected["lat"][[3, 0, 2, 1]])
    np.testing.assert_array_equal(found["altitude"], [3.0, 10.0, 1200.0, 250.0])


def test_a_new_station_gets_the_forecast_of_common_coefficients(place, today):
    """N(a + b mean, c^2 + d^2 variance) with the coefficients of the run, in double precision."""
    run = place / "emos_global"
    method = load_model(run)._module.method
    with pytest.warns(BeyondTrainingWarning, match=r"lacks 1 station \(s4\).*coefficients of all"):
        found = load_model(run)(today)
    members = today["t2m"].isel(step=0).astype("f8").transpose("time", "station", "number")
    mean, variance = members.mean("number"), members.var("number", ddof=1)
    mu = float(method.a) + float(method.b) * mean
    sigma = np.sqrt(float(method.c) ** 2 + float(method.d) ** 2 * variance)
    np.testing.assert_allclose(found["mu"], mu, rtol=1e-6)
    np.testing.assert_allclose(found["sigma"], sigma, rtol=1e-5)
    np.testing.assert_array_equal(found["mu"][:, :4], trained_result(run, place)["mu"])
    with pytest.warns(BeyondTrainingWarning) as lines:
        both = load_model(run)(today.isel(station=[4, 2, 1, 0]))
    assert len(lines) == 2  # s3 is missing, s4 is new
    assert both["station"].to_numpy().tolist() == ["s4", "s2", "s1", "s0", "s3"]
    np.testing.assert_array_equal(both["mu"][:, :4], found["mu"][:, [4, 2, 1, 0]])
    assert both["mu"][:, 4].isnull().all()


def test_a_new_station_gets_the_climate_of_its_place(place, today):
    """With `emos_samos`; the others keep their own, in any order."""
    run = place / "emos_samos"
    expected = trained_result(run, place)
    with pytest.warns(BeyondTrainingWarning, match=r"lacks 1 station \(s4\).*coefficients of all"):
        found = load_model(run)(today.isel(station=[4, 2, 1, 0, 3]))
    np.testing.assert_array_equal(found["mu"][:, 1:], expected["mu"][:, [2, 1, 0, 3]])
    method = load_model(run)._module.method
    lat, lon, altitude = (today[n][[4]].to_numpy() for n in ("lat", "lon", "altitude"))
    method.move(np.array([-1]), np.stack([lat, lon, altitude])[:, None])
    raw = today["t2m"].isel(step=0, station=[4]).transpose("time", "station", "number")
    batch = {
        "raw_mean": torch.from_numpy(raw.mean("number").to_numpy()[:, None]),
        "raw_std": torch.from_numpy(raw.std("number", ddof=1).to_numpy()[:, None]),
        "dates": torch.from_numpy(
            today["valid_time"].to_numpy().ravel().astype("M8[s]").astype(int)
        ),
    }
    alone = method(batch)
    np.testing.assert_allclose(found["mu"][:, 0], alone.mu[:, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(found["sigma"][:, 0], alone.sigma[:, 0, 0], rtol=1e-4)


def test_a_new_station_is_missing_where_each_has_its_coefficients(place, today):
    with pytest.warns(BeyondTrainingWarning, match=r"lacks 1 station \(s4\).*to each station"):
        found = load_model(place / "emos_local")(today)
    expected = trained_result(place / "emos_local", place)
    np.testing.assert_array_equal(found["mu"][:, :4], expected["mu"])
    assert found["mu"][:, 4].isnull().all()
    with pytest.raises(ArgumentError, match=r"the forecast has s4; emos_local was trained on s0"):
        load_model(place / "emos_local")(today.isel(station=[4]))


def test_products_at_stations_that_come_and_go(place, today):
    """Past truth belongs to the stations of the training, whatever the order of the forecast."""
    options = {"quantiles": [0.9], "shift_of_tails": True, "members": "schaake"}
    with pytest.warns(BeyondTrainingWarning):
        found = load_model(place / "emos_global")(today.isel(station=[4, 2, 0]), **options)
    past = xr.open_dataset(place / "past.nc").isel(time=DATES).load()
    expected = load_model(place / "emos_global")(past, **options)
    places = [2, 0, 1, 3]
    for name in ("t2m_quantile", "t2m_sot", "t2m"):
        ours, theirs = found[name].isel(station=[1, 2]), expected[name].isel(station=places[:2])
        np.testing.assert_array_equal(ours, theirs)
    assert found["t2m_sot"].isel(station=0).isnull().all()
    assert found["t2m_quantile"].isel(station=0).notnull().all()
    assert found["t2m"].isel(station=[3, 4]).isnull().all()


def test_runs_of_other_stations_are_refused(place, tmp_path, world):
    trained = [1, 2, 3, 4]
    forecasts = at_stations(open_source(world.folder))[["t2m", "msl"]].isel(station=trained)
    forecasts.to_netcdf(tmp_path / "past.nc")
    truth = at_stations(open_source(world.folder / "truth", optional_dimensions=True))
    prepare(tmp_path / "past.nc", tmp_path / "s.zarr", truth=truth.isel(station=trained))
    options = ["--data.target", "t850"] if "t850" in truth else ["--data.target", "t2m"]
    other = realruns.fit("emos_local", tmp_path / "s.zarr", tmp_path / "other", *options)
    with pytest.raises(ArgumentError, match="runs"):
        apply([place / "emos_local", other], forecasts, tmp_path / "out.nc")


NAMES = {"station": "stn", "time": "init", "step": "lead", "number": "member", "lat": "y",
         "lon": "x", "altitude": "z"}  # fmt: skip


def write_table(data, path, order=NAMES, separator=",", seed=0):
    """A table of forecasts whose rows are in a random order."""
    frame = data["t2m"].to_dataframe().reset_index().drop(columns="valid_time")
    frame = frame.sample(frac=1, random_state=seed)
    frame["time"] = frame["time"].dt.strftime("%Y%m%d")
    frame = frame[[*order, "t2m"]].rename(columns=order)
    frame.to_csv(path, index=False, sep=separator) if path.suffix == ".csv" else frame.to_parquet(
        path
    )
    return frame


def names_file(folder):
    path = folder / "names.yaml"
    mapping = ", ".join(f"{theirs}: {ours}" for ours, theirs in NAMES.items())
    path.write_text(f"dimensions: {{{mapping}}}\nvariables: {{t2m: t2m}}\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_comes_out_as_it_came_in(place, today, tmp_path, suffix, capsys):
    table, out = tmp_path / f"today{suffix}", tmp_path / f"corrected{suffix}"
    raw = write_table(today.isel(station=[3, 0, 4]), table, separator=";")
    command = ["apply", place / "emos_local", table, "--out", out, "--names", names_file(tmp_path)]
    realruns.command(*command, "--quantiles", 0.1, 0.9)
    said = capsys.readouterr().err
    assert "lacks 2 stations (s1, s2)" in said
    assert "lacks 1 station (s4)" in said
    assert f"ens10: {out}: 9 of 15 rows have no value" in said  # s1, s2 and s4, three dates each
    if suffix == ".csv":
        found = pd.read_csv(out, sep=";", parse_dates=["init"])
    else:
        found = pd.read_parquet(out)
    columns = [name for ours, name in NAMES.items() if ours != "number"]
    values = ["mu", "sigma", "t2m_quantile_0.1", "t2m_quantile_0.9"]
    assert found.columns.tolist() == [*columns, *values]
    raw["init"] = pd.to_datetime(raw["init"], format="%Y%m%d")
    rows = raw[columns].drop_duplicates(["stn", "init", "lead"]).reset_index(drop=True)
    assert len(rows) == 9
    pd.testing.assert_frame_equal(found[:9][columns], rows, check_dtype=False)
    assert found["stn"][9:].value_counts().to_dict() == {"s1": 3, "s2": 3}
    assert found[values][9:].isna().all(axis=None)
    np.testing.assert_allclose(found["y"][9:], found["stn"][9:].map(today["lat"].to_series()))
    expected = trained_result(place / "emos_local", place)
    for _, row in found[:9].iterrows():
        if row["stn"] == "s4":
            assert row[values].isna().all()
            continue
        one = expected.sel(time=row["init"]).isel(station=int(row["stn"][1:]))
        assert row["mu"] == pytest.approx(float(one["mu"]), rel=1e-7)
        assert row["t2m_quantile_0.9"] == pytest.approx(
            float(one["mu"]) + 1.2815515655446004 * float(one["sigma"]), rel=1e-6
        )


def test_rows_of_other_lead_times_truth_in_the_mapping_and_units_are_a_line_each(
    place, today, tmp_path, capsys
):
    table, out = tmp_path / "today.csv", tmp_path / "corrected.csv"
    raw = write_table(today.isel(station=[0, 1, 2, 3]), table)
    step = float(today["step"].squeeze())
    pd.concat([raw, raw.assign(lead=step + 24), raw[:5].assign(lead=step + 48)]).to_csv(table)
    names = names_file(tmp_path)
    with names.open("a") as file:
        file.write("truth: {obs: t2m}\n")
    command = ["apply", place / "emos_local", table, "--names", names, "--missing", "nan"]
    for path in (out, tmp_path / "corrected.nc"):
        realruns.command(*command, "--out", path)
        lines = capsys.readouterr().err.splitlines()
        left_out = f"{len(raw) + 5} rows of the lead times {step + 24:g}, {step + 48:g} h are left"
        assert [line for line in lines if "lead time" in line] == [
            f"ens10: {table}: {left_out} out: {step:g} h is corrected"
        ]
        assert [line for line in lines if "no units are stated" in line] == [
            f"ens10: {table}: no units are stated; those of ENS-10 are assumed: t2m K"
        ]
    assert set(pd.read_csv(out)["lead"]) == {step}
    expected = trained_result(place / "emos_local", place)
    with xr.open_dataset(tmp_path / "corrected.nc") as found:
        np.testing.assert_allclose(found["mu"], expected["mu"], rtol=1e-6)


def test_scores_of_dates_of_the_training_are_said(place, tmp_path, capsys):
    store = ens10.open_store(place / "store.zarr", "sfc")
    split = EnsembleDataModule(str(place / "store.zarr"), target="t2m")
    trained = [len(split.batches(name).index) for name in ("train", "test")]
    out = apply([place / "emos_local"], place / "past.nc", tmp_path / "all.nc")
    realruns.command("score", out, "--truth", place / "store.zarr")
    said = capsys.readouterr().err
    assert f"all.nc: {trained[0]} of its {store.sizes['time']} dates are those of the tr" in said
    with xr.open_dataset(place / "past.nc") as past:
        last = past.isel(time=slice(-trained[1], None)).load()
    apply([place / "emos_local"], last, tmp_path / "new.nc")
    realruns.command("score", tmp_path / "new.nc", "--truth", place / "store.zarr")
    assert "of the training" not in capsys.readouterr().err


def test_members_are_rows(place, today, tmp_path):
    table, out = tmp_path / "today.csv", tmp_path / "members.csv.gz"
    plain = {name: name for name in NAMES}
    raw = write_table(today.isel(station=[0, 1, 2, 3]), table, plain)
    apply([place / "emos_local"], table, out, members="ecc")
    found = pd.read_csv(out, compression="gzip")
    assert found.columns.tolist() == [*NAMES, "mu", "sigma", "t2m"]
    keys = ["station", "step", "number", "lat", "lon", "altitude"]
    pd.testing.assert_frame_equal(found[keys], raw[keys].reset_index(drop=True), check_dtype=False)
    ranks = [frame.groupby(["station", "time"])["t2m"].rank() for frame in (found, raw)]
    np.testing.assert_array_equal(*ranks)


def test_other_files_of_stations_give_a_table_with_our_names(place, today, tmp_path):
    out = apply([place / "emos_local"], today.isel(station=[2, 0, 1, 3]), tmp_path / "out.csv")
    found = pd.read_csv(out)
    names = ["station", "time", "step", "lat", "lon", "altitude", "mu", "sigma"]
    assert found.columns.tolist() == names
    assert found["station"].tolist() == ["s2", "s0", "s1", "s3"] * 3


def test_what_a_table_cannot_be(place, today, tmp_path, runs, world):
    out = tmp_path / "out.csv"
    with pytest.raises(ArgumentError, match="a row for each station, and this is a grid"):
        apply([runs["emos_local"]], world.folder, out)
    trained = today.isel(station=[0, 1, 2, 3])
    out.write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match="exists already"):
        apply([place / "emos_local"], trained, out)
    with pytest.raises(FileError, match="--force does not replace it"):
        apply([place / "emos_local"], trained, out, force=True)
    assert out.read_text() == "a,b\n1,2\n"
    out.unlink()
    apply([place / "emos_local"], trained, out)
    first = out.read_bytes()
    apply([place / "emos_local"], trained.isel(time=[0]), out, force=True)
    assert len(pd.read_csv(out)) == 4
    assert first.startswith(out.read_bytes())
    assert not list(tmp_path.glob("*.partial"))
    assert ens10.load_model is not None
