"""Real forecasts at stations: small files in the layout of each archive, and what is computed."""

import csv

import numpy as np
import pandas as pd
import properscoring
import pytest
import scipy.optimize
import scipy.stats
import xarray as xr

from ens10.errors import FileError, MissingDataError
from ens10.experiments.reproduce.published import load_published
from ens10.experiments.studies.real_stations import files, methods
from ens10.experiments.studies.real_stations.__main__ import PUBLISHED, main

TRAIN, TEST = 70, 110  # days of the imitation of Frankfurt


def rows_of(path):
    """The rows of a table by method and source."""
    with path.open() as file:
        return {(row["method"], row["source"]): row for row in csv.DictReader(file)}


def rain(members=4, days=TEST + 5):
    """Members and observations of rain in mm, many of them 0."""
    rng = np.random.default_rng(3)
    wet = rng.gamma(0.6, 3.0, days) * (rng.random(days) < 0.6)
    forecasts = np.clip(wet[:, None] * rng.lognormal(0.2, 0.5, (days, members)) - 0.3, 0, None)
    return pd.date_range("2007-01-06", periods=days), forecasts, wet


def write_table(path, with_high_resolution=True):
    """`rain` of isodistrreg, as R writes it: date, obs, HRES, perturbed members, control."""
    dates, members, observed = rain()
    names = [*(f"P{n}" for n in range(1, members.shape[1])), "CTR"]
    table = pd.DataFrame(members, columns=names)
    if with_high_resolution:
        table.insert(0, "HRES", 99.0)
    table.insert(0, "obs", observed)
    table.insert(0, "date", dates.strftime("%Y-%m-%d"))
    table.to_csv(path / "rain.csv", index=False)


def write_netcdf(path, late=0):
    dates, members, observed = rain()
    fields = (members[:, None, :, None] / 1000).astype("f4")
    axes = {"time": dates, "step": [30], "number": range(members.shape[1]), "station": ["10637"]}
    dims = list(axes)
    xr.Dataset({"tp": (dims, fields)}, axes).to_netcdf(path / "forecasts.nc")
    ends = {"time": dates + pd.Timedelta(hours=30 + late), "station": ["10637"]}
    truth = (observed[:, None] / 1000).astype("f4")
    xr.Dataset({"tp": (list(ends), truth)}, ends).to_netcdf(path / "observations.nc")


@pytest.fixture
def few_days(monkeypatch):
    monkeypatch.setattr(files, "FRANKFURT_DAYS", (TRAIN, TEST))
    monkeypatch.setattr(methods, "SEEDS", range(2))


def test_the_table_of_frankfurt(tmp_path, few_days, monkeypatch):
    write_table(tmp_path)
    kept = {name: methods.FRANKFURT[name] for name in ("raw", "emos_csg", "isotonic")}
    monkeypatch.setattr(methods, "FRANKFURT", kept)
    assert main(["frankfurt", str(tmp_path), str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out" / "table-frankfurt.csv")
    _, members, observed = rain()
    raw = properscoring.crps_ensemble(observed, members)[TRAIN:TEST].mean()
    assert float(rows["raw", ""]["crps"]) == pytest.approx(raw, rel=1e-5)
    assert {row["dates"] for row in rows.values()} == {str(TEST - TRAIN), ""}
    network = rows["small network", ""]
    assert 0.1 * raw < float(network["crps"]) < 1.5 * raw
    gain = float(network["crps"]) - raw
    assert float(network["difference"]) == pytest.approx(gain, abs=1e-4)
    assert float(rows["IDR", "isodistrreg"]["crps"]) == 0.738465
    text = (tmp_path / "out" / "table-frankfurt.md").read_text()
    assert "| IDR (isodistrreg) | 0.738465 | – | – |" in text
    assert text.index("| raw ") < text.index("| Raw (isodistrreg)")


def test_table_and_netcdf_of_frankfurt_are_the_same(tmp_path, few_days):
    (tmp_path / "nc").mkdir()
    write_table(tmp_path)
    write_netcdf(tmp_path / "nc")
    for ours, theirs in zip(
        files.frankfurt(tmp_path), files.frankfurt(tmp_path / "nc"), strict=True
    ):
        xr.testing.assert_allclose(ours.members, theirs.members, atol=1e-8)
        xr.testing.assert_allclose(ours.truth, theirs.truth, atol=1e-8)
    _, members, observed = rain()
    test = files.frankfurt(tmp_path)[1]
    np.testing.assert_allclose(test.members[:, :, 0], members[TRAIN:TEST] / 1000)
    np.testing.assert_allclose(test.truth[:, 0], observed[TRAIN:TEST] / 1000)
    assert test.members.attrs["units"] == "m"


def test_files_of_frankfurt_that_cannot_be_used(tmp_path, monkeypatch):
    with pytest.raises(MissingDataError, match=r"rain\.csv; forecasts\.nc; observations\.nc"):
        files.frankfurt(tmp_path)
    write_netcdf(tmp_path)
    with pytest.raises(FileError, match="115 days; the test ends with day 3,255"):
        files.frankfurt(tmp_path)
    write_netcdf(tmp_path, late=6)
    with pytest.raises(FileError, match=r"observations\.nc.*not those of forecasts\.nc, 30 h"):
        files.frankfurt(tmp_path)
    (tmp_path / "rain.csv").write_text("date,obs,CTR,P1\n2007-01-06,0,a,1\n")
    with pytest.raises(FileError, match=r"rain\.csv: no table of forecasts .*date, observation"):
        files.frankfurt(tmp_path)
    assert main(["innsbruck", str(tmp_path), str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


def winters(seed, days=60, members=5, rooted=False):
    """Dates, observations and members of one table of Innsbruck."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0.0, 4.0, days)
    ahead = (
        0.6 * truth[:, None] - 3 + rng.normal(0, 1, (days, 1)) + rng.normal(size=(days, members))
    )
    if rooted:
        truth, ahead = np.sqrt(np.clip(truth, 0, None)), np.sqrt(np.clip(ahead + 3, 0, None))
    return pd.date_range(f"{2000 + seed}-12-01", periods=days), truth, ahead


def write_innsbruck(path):
    for variable, observed in (("temp", "obs"), ("rain", "rain")):
        for seed, part in enumerate(("train", "test")):
            dates, truth, ahead = winters(seed, rooted=variable == "rain")
            table = pd.DataFrame(ahead, columns=[f"{variable}fc.{n + 1}" for n in range(5)])
            table.insert(0, observed, truth)
            table.insert(0, "date", dates.strftime("%Y-%m-%d"))
            table.to_csv(path / f"epp_{variable}_{part}.csv", index=False)


def emos_by_scipy(score, train, test):
    """CRPS on the test dates of N(a + b mean, c^2 + d^2 var) of least mean score in training."""

    def parameters(x, data):
        mean, variance = data[1].mean(1), data[1].var(1, ddof=1)
        return x[0] + x[1] * mean, np.sqrt(x[2] ** 2 + x[3] ** 2 * variance)

    def loss(x):
        return score(train[0], *parameters(x, train)).mean()

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20000, "maxfev": 20000}
    found = scipy.optimize.minimize(loss, [0, 1, 1, 1], method="Nelder-Mead", options=options)
    return properscoring.crps_gaussian(test[0], *parameters(found.x, test)).mean()


def minus_log_likelihood(truth, mu, sigma):
    return -scipy.stats.norm.logpdf(truth, mu, sigma)


def test_the_tables_of_innsbruck(tmp_path):
    write_innsbruck(tmp_path)
    assert main(["innsbruck", str(tmp_path), str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out" / "table-innsbruck-temp.csv")
    train, test = (winters(seed)[1:] for seed in (0, 1))
    raw = properscoring.crps_ensemble(*test).mean()
    by_crps = emos_by_scipy(properscoring.crps_gaussian, train, test)
    by_likelihood = emos_by_scipy(minus_log_likelihood, train, test)
    assert abs(by_crps - by_likelihood) > 1e-3
    for name, expected in (
        ("raw", raw), ("emos_local", by_crps), ("emos_local by likelihood", by_likelihood),
    ):  # fmt: skip
        assert float(rows[name, ""]["crps"]) == pytest.approx(expected, rel=2e-4)
    assert float(rows["emos_local", ""]["crpss"]) == pytest.approx(1 - by_crps / raw, abs=2e-4)
    rows = rows_of(tmp_path / "out" / "table-innsbruck-rain.csv")
    raw = properscoring.crps_ensemble(*winters(1, rooted=True)[1:]).mean()
    assert float(rows["raw", ""]["crps"]) == pytest.approx(raw, rel=1e-5)
    assert float(rows["emos_censored without a season", ""]["crps"]) < raw
    text = (tmp_path / "out" / "table-innsbruck-rain.md").read_text()
    assert "CRPS (mm^0.5)" in text
    assert "60 test dates; square roots of rain" in text


STATIONS = {"germany": [81, 105], "austria": [11035]}
RUNS, LEADS, MEMBERS = (
    pd.DatetimeIndex(["2017-03-02", "2017-06-01", "2017-09-07"]),
    (24, 72, 120),
    3,
)


def temperatures(country):
    """Forecasts (station, run, member, year, step) and truth (run, year, step, station), in K."""
    rng = np.random.default_rng(len(country))
    size = (len(STATIONS[country]), len(RUNS), 20, len(LEADS))
    truth = 280 + 8 * rng.normal(size=size)
    bias = np.arange(1, size[0] + 1)[:, None, None, None]
    error = rng.normal(size=size) * np.sqrt(np.arange(1, 4))
    ahead = (truth + bias + error)[:, :, None] + 0.5 * rng.normal(size=(*size[:2], MEMBERS, 20, 3))
    return ahead.astype("f4"), np.moveaxis(truth, 0, -1).astype("f4")


def write_euppbench(folder):
    """The stores of the stations of two countries, with the archive's names and dimensions."""
    for country, ids in STATIONS.items():
        ahead, truth = temperatures(country)
        common = {"station_id": ids, "time": RUNS, "year": np.arange(1, 21),
                  "step": pd.to_timedelta(LEADS, "h"),
                  "station_name": ("station_id", [f"{country} {n}" for n in ids])}  # fmt: skip
        where = {"latitude": 48.0 + np.arange(len(ids)), "longitude": np.full(len(ids), 9.0),
                 "altitude": np.full(len(ids), 300.0)}  # fmt: skip
        starts = np.array(
            [[r.replace(year=1996 + y) for y in range(1, 21)] for r in RUNS], "M8[ns]"
        )
        valid = starts[:, :, None] + np.asarray(LEADS, "m8[h]")
        dims = ("station_id", "time", "number", "year", "step", "surface")
        wind = ahead - 275
        fields = {"t2m": (ahead, "K"), "u10": (wind, "m s**-1"), "cape": (wind, "J kg**-1")}
        stores = {
            "ensemble_reforecasts": xr.Dataset(
                {name: (dims, x[..., None], {"units": u}) for name, (x, u) in fields.items()},
                {**common, "number": np.arange(MEMBERS), "surface": [0.0],
                 "valid_time": (("time", "year", "step"), valid),
                 **{f"station_{k}": ("station_id", v) for k, v in where.items()}},
            ),
            "reforecasts_observations": xr.Dataset(
                {"t2m": (("time", "year", "step", "station_id"), truth, {"units": "K"})},
                {**common, **{k: ("station_id", v) for k, v in where.items()}},
            ),
        }  # fmt: skip
        for name, dataset in stores.items():
            path = folder / f"stations_{name}_surface_{country}.zarr"
            dataset.to_zarr(path, zarr_format=2, consolidated=True)


def test_euppbench_at_one_lead_time(tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "SEEDS", range(2))
    write_euppbench(tmp_path)
    data = files.euppbench(tmp_path, methods.VARIABLES)
    assert set(data[0]) == {"t2m", "u10"}
    states = methods.score_euppbench(data, 72, tmp_path / "work", max_epochs=2)
    means = {
        name: float(s["crps_sum"].sum() / s["crps_weight"].sum()) for name, s in states.items()
    }
    assert {s.sizes["time"] for s in states.values()} == {9}  # of 2014 to 2016, three runs each
    raw, emos = [], []
    for country in STATIONS:
        ahead, truth = temperatures(country)
        for n in range(len(STATIONS[country])):
            # years 1 to 17 are 1997 to 2013; those after them the test
            pairs = [
                (truth[:, part, 1, n].ravel(), np.moveaxis(ahead[n, :, :, part, 1], 1, -1)
                 .reshape(-1, MEMBERS))
                for part in (slice(0, 17), slice(17, 20))
            ]  # fmt: skip
            raw.append(properscoring.crps_ensemble(*pairs[1]).mean())
            emos.append(emos_by_scipy(properscoring.crps_gaussian, *pairs))
    assert means["raw"] == pytest.approx(np.mean(raw), rel=1e-4)
    assert means["emos_local"] == pytest.approx(np.mean(emos), rel=2e-3)
    drn = []
    for seed in range(2):
        run = tmp_path / "work" / "drn-t2m@72" / str(seed)
        kept = xr.open_zarr(run / "predictions.zarr")
        assert kept["mu"].size == 9 * 3
        drn.append(properscoring.crps_gaussian(kept["truth"], kept["mu"], kept["sigma"]).mean())
    assert means["DRN"] == pytest.approx(np.mean(drn), rel=1e-4)
    assert drn[0] != drn[1]


def test_countries_without_observations(tmp_path):
    with pytest.raises(MissingDataError, match=r"reforecasts_surface_COUNTRY\.zarr"):
        files.euppbench(tmp_path, ["t2m"])
    write_euppbench(tmp_path)
    (tmp_path / "stations_reforecasts_observations_surface_austria.zarr").rename(tmp_path / "x")
    with pytest.raises(MissingDataError, match=r"observations_surface_austria\.zarr"):
        files.euppbench(tmp_path, ["t2m"])


def test_the_published_values_at_stations():
    found = load_published(PUBLISHED)
    values = {(v.line, v.target): v.number for v in found.values}
    leads = [f"euppbench_{step}h" for step in methods.STEPS]
    assert [values["DRN", lead] for lead in leads] == [0.620, 0.859, 1.190]
    assert [values["Best graph network", lead] for lead in leads] == [0.617, 0.846, 1.183]
    assert values["Raw", "frankfurt"] == 0.856518
    assert set(found.units) == {v.target for v in found.values}
