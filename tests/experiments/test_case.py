"""`ens10 case`: one event's maps and numbers by hand, and what is refused."""

import csv
import json

import numpy as np
import pytest
import xarray as xr
from fakeruns import with_damaged_chunks, world
from matplotlib.image import imread
from realruns import command
from scipy.special import ndtri

from ens10.cli import main
from ens10.errors import ArgumentError, Ens10Error, MissingDataError, UnknownNameError
from ens10.experiments.reporting.case import Numbers, area_mean, numbers_of, read_event
from ens10.experiments.reporting.case_inputs import (
    REGIONS,
    file_name,
    in_words,
    most_extreme,
    part_of_grid,
    region_box,
    standardise_truth,
)
from ens10.experiments.reporting.figures import case_figure
from ens10.experiments.scoring.writers import csv_of_records
from ens10.grid import area_weights
from ens10.metrics import crps_ensemble, crps_normal, efi
from ens10.metrics.figures.maps import map_grid
from ens10.quantiles import model_climate
from ens10.store import open_store

DATE = "2004-01-12"  # start 10 January
BOX = "-50,140,50,-130"  # across the date line, columns 150 to 210 of the fake grid


def write(folder, name, forecast, truth, **known):
    run = folder / name
    forecast.assign(truth=truth).to_zarr(run / "predictions.zarr", consolidated=False)
    if known:
        (run / "provenance.json").write_text(json.dumps({"name": name, **known}))
    return run


@pytest.fixture(scope="module")
def made():
    return world(dates=8)


@pytest.fixture(scope="module")
def runs(made, tmp_path_factory):
    truth, forecasts = made
    folder = tmp_path_factory.mktemp("case")
    return {n: write(folder, n, forecasts[n], truth, target="t2m") for n in ("raw", "emos", "unet")}


def region_of(field):
    """The box and the date by hand: columns from 150 to 210, rows within 50 degrees."""
    rows = np.abs(field["latitude"]) <= 50
    columns = (field["longitude"] >= 140) & (field["longitude"] <= 230)
    return field.isel(time=3).isel(latitude=rows.to_numpy(), longitude=columns.to_numpy())


def test_numbers_are_those_of_whole_arrays(runs, made):
    truth, forecasts = made
    event = read_event(list(runs.values()), DATE, BOX)
    raw, emos, _ = numbers_of(event)
    y, held = region_of(truth), region_of(forecasts["emos"])
    w = area_weights(truth["latitude"].to_numpy())[np.abs(truth["latitude"].to_numpy()) <= 50]
    w = np.broadcast_to(w[:, None], y.shape)
    crps = crps_normal(held["mu"].to_numpy(), held["sigma"].to_numpy(), y.to_numpy())
    x = region_of(forecasts["raw"])["members"]
    other = crps_ensemble(x.to_numpy(), y.to_numpy(), estimator="plain", member_dim=0)
    assert emos.crps == pytest.approx(np.average(crps, weights=w), rel=1e-9)
    assert raw.crps == pytest.approx(np.average(other, weights=w), rel=1e-9)
    assert emos.gain == pytest.approx(raw.crps - emos.crps, rel=1e-9)
    assert emos.skill == pytest.approx(1 - emos.crps / raw.crps, rel=1e-9)
    assert emos.better == pytest.approx(np.average(crps < other, weights=w))
    error = x.mean("number") - y
    assert raw.error == pytest.approx(np.average(error, weights=w))
    assert raw.rmse == pytest.approx(np.sqrt(np.average(error**2, weights=w)))
    assert raw.spread == pytest.approx(np.sqrt(np.average(x.var("number", ddof=1), weights=w)))
    assert np.isnan(raw.gain)
    assert np.isnan(raw.crps_extreme)
    rows = list(csv.DictReader(csv_of_records(Numbers, [raw, emos], ".9g").splitlines()))
    assert float(rows[1]["crps"]) == pytest.approx(emos.crps, rel=1e-8)
    assert rows[0]["gain"] == ""


def test_points_without_truth_leave_the_means(runs, made, tmp_path):
    truth, forecasts = made
    gaps = truth.where(truth["longitude"] != 180)
    paths = [write(tmp_path, n, forecasts[n], gaps) for n in ("raw", "emos")]
    event = read_event(paths, DATE, BOX)
    assert int(event.truth.isnull().sum()) == event.truth.sizes["latitude"]
    whole = read_event([runs["raw"], runs["emos"]], DATE, BOX)
    field = whole.forecasts[1].crps
    there = field.where(field["longitude"] != 180)
    assert numbers_of(event)[1].crps == pytest.approx(area_mean(there, whole.weights))
    assert np.isnan(area_mean(there * np.nan, whole.weights))
    assert case_figure(event).axes


@pytest.mark.parametrize("name", ["members", "truth"])
def test_a_damaged_chunk_without_a_manifest_is_one_line(runs, tmp_path, capsys, name):
    damaged = with_damaged_chunks(runs["raw"], tmp_path / "raw", name)
    words = (damaged, runs["emos"], "--region", BOX, "--out", tmp_path / "out")
    command("case", *words, "--date", DATE, status=1)
    if name == "truth":
        command("case", damaged, "--worst", 1, status=1)
    said = capsys.readouterr().err
    assert said.count(f"{damaged}: a chunk cannot be read") == 1 + (name == "truth")
    assert all(line.startswith("ens10: ") for line in said.splitlines())


def test_the_index_is_of_the_raw_ensemble_against_its_climate(store, tmp_path):
    """The raw ensemble and its climate come from a prepared store."""
    truth = open_store(store, "truth")["t2m"].isel(step=0, drop=True).load()
    last = truth.isel(time=[-2, -1]).assign_coords(step=48).drop_vars("valid_time")
    last = last.assign_coords(valid_time=("time", last["time"].to_numpy() + np.timedelta64(2, "D")))
    normal = xr.Dataset(
        {"mu": last + 1, "sigma": xr.full_like(last, 2)}, attrs={"forecast_kind": "normal"}
    )
    run = write(tmp_path, "shifted", normal, last, target="t2m")
    date = str(last["valid_time"].to_numpy()[1])[:10]
    event = read_event([run], date, "global", raw=store)
    members = open_store(store, "sfc")["t2m"].sel(step=48).isel(time=-1).to_numpy()
    start = last["time"].to_numpy()[1:]
    climate = model_climate(store, "t2m", step=48, dates=start)[0]
    levels = climate["quantile"].to_numpy()
    wanted = efi(members, climate.to_numpy(), member_dim=0, quantile_dim=0, levels=levels)
    np.testing.assert_allclose(event.efi, wanted, atol=1e-6)
    np.testing.assert_allclose(event.departure, last[1] - climate[50], rtol=1e-6)
    assert "members of the training years" in event.climate
    shown = event.forecasts[1]
    w = np.abs(wanted) * area_weights(last["latitude"].to_numpy())[:, None]
    by_index = np.average(shown.crps.to_numpy(), weights=w)
    assert numbers_of(event)[1].crps_extreme == pytest.approx(by_index, rel=1e-5)
    assert event.forecasts[0].name == "raw"
    figure = case_figure(event)
    assert {"EFI of raw", "departure", "shifted"} <= {a.get_title(loc="left") for a in figure.axes}


def test_other_kinds_have_a_centre_and_a_spread(runs, made, tmp_path):
    truth, forecasts = made
    mu = forecasts["emos"]["mu"]
    levels = xr.DataArray(np.arange(1, 200) / 200, dims="quantile")
    z = xr.apply_ufunc(ndtri, levels)
    values = (mu + 2.0 * z).assign_coords(quantile=levels.to_numpy()).assign_attrs(units="K")
    kinds = {
        "quantiles": xr.Dataset({"values": values}, attrs={"forecast_kind": "quantiles"}),
        "logistic": xr.Dataset(
            {"mu": mu, "sigma": xr.full_like(mu, 1.5)}, attrs={"forecast_kind": "logistic"}
        ),
    }
    paths = [write(tmp_path, name, forecast, truth) for name, forecast in kinds.items()]
    event = read_event([runs["raw"], *paths], DATE, "global")
    centre = mu.isel(time=3)
    for shown, spread in zip(event.forecasts[1:], (2.0, 1.5 * np.pi / np.sqrt(3)), strict=True):
        np.testing.assert_allclose(shown.centre, centre, rtol=1e-6)
        np.testing.assert_allclose(shown.spread, spread, rtol=2e-4)


@pytest.mark.parametrize("east", [360, 180])
def test_regions_wrap(east):
    longitude = np.arange(0, 360, 30.0)
    longitude = xr.DataArray((longitude + east) % 360 - (360 - east), dims="longitude")
    latitude = xr.DataArray([60.0, 0.0, -60.0], dims="latitude")
    rows, columns = part_of_grid(BOX, latitude, longitude)
    assert rows.tolist() == [1]
    assert sorted(longitude.to_numpy()[columns] % 360) == [150, 180, 210]
    field = xr.DataArray(np.zeros((1, 3)), {"latitude": [0.0], "longitude": longitude[columns]},
                         ("latitude", "longitude"))  # fmt: skip
    assert np.ptp(map_grid(field).x) == 90  # in one piece
    assert in_words(BOX) == "50°S to 50°N, 140°E to 130°W"
    assert in_words("Europe") == "europe (35°N to 75°N, 12.5°W to 42.5°E)"
    assert region_box("35,-10,70,40") == (35, 70, -10, 40)
    assert in_words("-30,0,30,360") == "30°S to 30°N, 180°W to 180°E"
    assert file_name("-30,0,30,360") != file_name("-30,0,30,0")  # a belt, and one meridian of it
    for box in REGIONS.values():
        assert -90 <= box[0] < box[1] <= 90


@pytest.mark.parametrize(
    ("region", "kind", "told"),
    [
        ("europa", UnknownNameError, "did you mean 'europe'"),
        ("1,2,3", ArgumentError, "is not four numbers"),
        ("50,0,40,10", ArgumentError, "no latitudes that rise"),
        ("0,-500,10,0", ArgumentError, "no longitude"),
        ("1,1,2,2", ArgumentError, "'1,1,2,2' holds no point of the grid, which goes from -75"),
    ],
)
def test_a_region_that_cannot_be(runs, region, kind, told):
    with pytest.raises(kind, match=told):
        read_event([runs["raw"], runs["emos"]], DATE, region)


@pytest.mark.parametrize(
    ("date", "told"),
    [
        ("2004-01-14", "no forecast valid on 2004-01-14; the nearest is 2004-01-15. It has 8"),
        ("2004-01-10", "starts on that date is valid on 2004-01-12"),
        ("12 January", "'12 January' is no date"),
        ("2004-02-31", "is no date"),
        ("2004-01", "is no date"),
    ],
)
def test_a_date_that_no_run_has(runs, date, told):
    with pytest.raises(ArgumentError, match=told):
        read_event([runs["raw"], runs["emos"]], date, "global")


def test_runs_that_do_not_belong_together(runs, made, tmp_path):
    truth, forecasts = made
    emos, raw = forecasts["emos"], runs["raw"]

    def refused(kind, told, *paths, **options):
        with pytest.raises(kind, match=told):
            read_event(paths, DATE, "global", **options)

    other = write(tmp_path, "z", emos, truth, target="z_500")
    refused(ArgumentError, "different targets: t2m in raw, z_500 in z", raw, other)
    warmer = write(tmp_path, "warmer", emos, truth + 1)
    refused(ArgumentError, "raw and warmer have different truth", raw, warmer)
    later = write(tmp_path, "later", emos.assign_coords(step=72.0), truth.assign_coords(step=72.0))
    refused(ArgumentError, "different steps: 48.0 in raw, 72.0 in later", raw, later)
    fewer = write(tmp_path, "fewer", emos.isel(latitude=slice(4)), truth.isel(latitude=slice(4)))
    refused(MissingDataError, "the latitudes of raw", raw, fewer)
    refused(ArgumentError, "two are called 'emos'", raw, runs["emos"], runs["emos"])
    refused(ArgumentError, "none beside the raw", raw)
    refused(ArgumentError, r"none of the runs \(emos\) is called 'raw'", runs["emos"])
    refused(ArgumentError, "emos has no members", runs["unet"], raw=runs["emos"])
    refused(ArgumentError, "step 48 alone", raw, runs["emos"], step=24)


def test_the_command_writes_a_picture_a_table_and_a_page(runs, tmp_path, capsys):
    paths = [runs["emos"], runs["raw"]]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".case.png.0011aabb.tmp").write_text("half")  # of a killed call
    command("case", "--date", DATE, "--region", BOX, *paths, "--out", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"case.png", "index.html", "numbers.csv"}
    said = capsys.readouterr().out
    assert "t2m on 2004-01-12, 50°S to 50°N, 140°E to 130°W" in said
    assert "emos: CRPS" in said
    pixels = imread(tmp_path / "out" / "case.png")
    assert pixels[..., :3].std() > 0.05
    page = (tmp_path / "out" / "index.html").read_text()
    assert "CRPS gained" in page
    assert "Better than raw (% of area)" in page
    assert "none: the runs do not say from which store" in page
    assert "CRPS by |EFI|" not in page
    with (tmp_path / "out" / "numbers.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["raw", "emos"]
    assert main(["case", "--region", "global", str(runs["raw"])]) == 1
    assert "--date: not given. List events" in capsys.readouterr().err


def test_the_most_extreme_dates_come_first(made, tmp_path, capsys):
    truth, forecasts = made
    calm = 280 + np.random.default_rng(0).normal(size=truth.shape)
    calm[5, 3:, :6] -= 9.0
    path = write(tmp_path, "raw", forecasts["raw"], truth.copy(data=calm))
    first, second = most_extreme(path, 2, "-90,0,0,160")
    assert str(first.valid)[:10] == "2004-01-18"
    assert first.departure == pytest.approx(-first.magnitude)
    assert first.magnitude > 1.5 * second.magnitude
    command("case", "--worst", "3", path)
    assert len(capsys.readouterr().out.splitlines()) == 5
    with pytest.raises(Ens10Error, match="expected 1 or more"):
        most_extreme(path, 0)


def test_an_annual_cycle_is_no_extreme():
    valid = np.datetime64("2000-01-01", "s") + np.arange(100) * np.timedelta64(7, "D")
    angle = 2 * np.pi * np.arange(100) * 7 / 365.2425
    noise = np.random.default_rng(0).normal(size=100)
    z = standardise_truth((300 + 30 * np.cos(angle + 1) + noise)[:, None], valid)[:, 0]
    assert np.corrcoef(z, noise)[0, 1] > 0.98
    assert z.std() == pytest.approx(1, abs=0.05)
    assert np.isnan(standardise_truth(np.full((9, 1), 273.15), valid[:9])).all()
