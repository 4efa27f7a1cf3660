"""Each year predicted from the others, on a file in the layout of the seasonal forecasts."""

import csv
import shutil
from importlib.resources import files

import numpy as np
import properscoring
import pytest
import realruns
import scipy.stats
import xarray as xr
import zarr

from ens10.errors import ArgumentError
from ens10.experiments.runner import running
from ens10.experiments.runs.raw_ensemble import open_raw
from ens10.experiments.studies import leave_one_year_out as loyo

MAPPING = files("ens10.experiments") / "mappings" / "seas5_era5_t2m.yaml"
MEMBERS, LEADS, GRID = 15, 3, (4, 5)


def write_seasonal(path, years=6, seed=0, first=1):
    rng = np.random.default_rng(seed)
    truth = 280 + 2 * rng.normal(size=(years, LEADS, *GRID))
    signal = truth + 1.5 + 0.7 * rng.normal(size=truth.shape)
    members = signal + 0.5 * rng.normal(size=(MEMBERS, *truth.shape))
    starts = [np.datetime64(f"{2000 + n}-11-01", "ns") for n in range(years)]
    dims = ("init", "lead", "lat", "lon")
    dataset = xr.Dataset(
        {
            "t2m_fc": (("member", *dims), members.astype("f4"), {"units": "K"}),
            "t2m_era5": (dims, truth.astype("f4"), {"units": "K"}),
        },
        {
            "member": np.arange(1, MEMBERS + 1),
            "init": starts,
            "lead": np.arange(first, LEADS + first),
            "lat": np.linspace(48.0, 45.0, GRID[0]),
            "lon": np.linspace(-2.0, 2.0, GRID[1]),
        },
    )
    dataset.to_netcdf(path, engine="netcdf4")
    return dataset


def prepared(folder, years=6):
    dataset = write_seasonal(folder / "seasonal.nc", years)
    source = folder / "seasonal.nc"
    store = folder / "store.zarr"
    realruns.command("prepare", source, store, "--truth", source, "--names", MAPPING)
    return dataset, store


@pytest.fixture(scope="module")
def seasonal(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("seasonal"))


@pytest.fixture(scope="module")
def lines(seasonal):
    return {(line.step, line.method): line for line in lines_of(seasonal[1], (1, 2, 3))}


def lines_of(store, steps, names=tuple(loyo.METHODS)):
    return [
        line
        for step in steps
        for line in loyo.lines_of(step, loyo.score_methods(store, f"t2m@{step}", names))
    ]


def test_every_method_at_every_lead(lines):
    assert list(lines) == [(step, name) for step in (1, 2, 3) for name in loyo.METHODS]
    assert {line.dates for line in lines.values()} == {6}


@pytest.mark.parametrize("lead", [1, 2, 3])
def test_raw_is_what_properscoring_says_without_weights(seasonal, lines, lead):
    dataset, _ = seasonal
    part = dataset.sel(lead=lead).transpose("init", "lat", "lon", "member").astype(float)
    crps = properscoring.crps_ensemble(
        part["t2m_era5"].transpose("init", "lat", "lon").to_numpy(), part["t2m_fc"].to_numpy()
    )
    found = lines[lead, "raw"].crps
    value, low, high = found.value, found.lower, found.upper
    assert value == pytest.approx(crps.mean(), rel=1e-6)
    dates = crps.mean((1, 2))
    interval = scipy.stats.t.interval(0.95, 5, dates.mean(), scipy.stats.sem(dates))
    assert (low, high) == pytest.approx(interval, rel=1e-5)


@pytest.mark.parametrize("lead", [1, 3])
def test_climatology_is_that_of_the_other_years(seasonal, lines, lead):
    truth = seasonal[0]["t2m_era5"].sel(lead=lead).to_numpy().astype(float)
    folds = [np.delete(truth, n, axis=0) for n in range(6)]
    moments = [(others.mean(0), others.std(0, ddof=1)) for others in folds]
    crps = np.stack(
        [properscoring.crps_gaussian(y, *m) for y, m in zip(truth, moments, strict=True)]
    )
    line = lines[lead, "climatology"]
    assert line.crps.value == pytest.approx(crps.mean(), rel=1e-5)
    raw = lines[lead, "raw"].crps.value
    assert line.difference.value == pytest.approx(crps.mean() - raw, rel=1e-4)
    assert line.crpss.value == pytest.approx(1 - crps.mean() / raw, rel=1e-4)


def test_emos_removes_the_bias(lines):
    assert all(lines[step, "emos_global"].difference.upper < 0 for step in (1, 2, 3))


def test_half_months_are_scored(tmp_path):
    """Leads of 0.5, 1.5 and 2.5 months keep their halves to the last table."""
    dataset = write_seasonal(tmp_path / "a.nc", first=0.5)
    (tmp_path / "n.yaml").write_text(MAPPING.read_text().replace("first: 1", "first: 0"))
    realruns.command(
        "prepare", tmp_path / "a.nc", tmp_path / "s.zarr", "--names", tmp_path / "n.yaml"
    )
    lines = lines_of(tmp_path / "s.zarr", (0.5, 1.5, 2.5), ("raw",))
    assert [line.step for line in lines] == [0.5, 1.5, 2.5]
    members, truth = dataset["t2m_fc"].to_numpy(), dataset["t2m_era5"].to_numpy()
    crps = properscoring.crps_ensemble(truth, members, axis=0).mean(axis=(0, 2, 3))
    np.testing.assert_allclose([line.crps.value for line in lines], crps, rtol=1e-6)
    forecast = xr.Dataset(coords={"step": 2.5})
    raw = open_raw(tmp_path / "s.zarr", "t2m", forecast)["members"]
    np.testing.assert_array_equal(raw, np.moveaxis(members[:, :, 2], 0, 1))


def test_no_fit_sees_its_own_year(seasonal, tmp_path, monkeypatch):
    """With the truth of one year poisoned the forecasts of that year alone stay as they were."""
    store = shutil.copytree(seasonal[1], tmp_path / "store.zarr")
    seen = []
    original = loyo.score_states
    monkeypatch.setattr(
        loyo, "score_states", lambda f, t, **k: seen.append(f.load()) or original(f, t, **k)
    )
    names = ("raw", "climatology", "emos_global", "emos_local")
    loyo.score_methods(store, "t2m@2", names)
    truth = zarr.open_group(str(store), mode="r+")["truth/t2m"]
    truth[3] = np.asarray(truth[3]) + 40
    shutil.rmtree(store / "manifest")  # whose checksums are those of before
    loyo.score_methods(store, "t2m@2", names)
    before, after = dict(zip(names, seen[:4], strict=True)), dict(zip(names, seen[4:], strict=True))
    assert before["raw"].identical(after["raw"])
    for name in names[1:]:
        same = (before[name]["mu"] == after[name]["mu"]).all(("latitude", "longitude"))
        assert same.to_numpy().tolist() == [n == 3 for n in range(6)]


def test_the_command_writes_the_table(seasonal, lines, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(running, "start_cell", realruns.compute_here)
    words = [str(seasonal[1]), "--out", str(tmp_path / "out")]
    assert loyo.main(words) == 0
    capsys.readouterr()
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: f"{cell.name} again")
    assert loyo.main(words) == 0  # from the kept states
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in capsys.readouterr().out
    assert "| lead (months) | method | CRPS (K) |" in table
    assert "6 start dates (Student's t" in table
    with (tmp_path / "out" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(loyo.METHODS)
    for row in rows:
        line = lines[int(row["step"]), row["method"]]
        assert float(row["crps"]) == pytest.approx(line.crps.value, rel=1e-5)
        assert f"| {line.step} | {line.method} | {line.crps.value:.3f} [" in table


def test_too_few_years(tmp_path, capsys):
    _, store = prepared(tmp_path, years=2)
    with pytest.raises(ArgumentError, match="2 years"):
        loyo.score_methods(store, "t2m@1")
    capsys.readouterr()
    assert loyo.main([str(store), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("ens10: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["t2n", "u10"])
def test_a_target_that_the_store_lacks(seasonal, tmp_path, capsys, target):
    arguments = [str(seasonal[1]), "--target", target, "--out", str(tmp_path / "out")]
    assert loyo.main(arguments) == 1
    assert target in capsys.readouterr().err
