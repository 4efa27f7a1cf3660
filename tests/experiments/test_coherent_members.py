"""Scores of whole fields: of perfect members, of noise, and of the small study from end to end."""

import numpy as np
import pytest
import xarray as xr

from ens10.experiments.studies import coherent_members as study
from ens10.grid import area_weights
from ens10.metrics import crps_ensemble, interval


@pytest.fixture
def fields():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 5, 12, 16)), rng.normal(size=(3, 12, 16))


def scores_of(x, y):
    area = area_weights(np.linspace(90, -90, y.shape[1]))
    threshold = np.full(y.shape[1:], 1.0)
    return study.field_scores(x, y, area, threshold, np.zeros((2, 4)))


def test_members_that_are_the_truth_have_scores_of_zero(fields):
    _, y = fields
    scores = scores_of(np.repeat(y[:, None], 5, axis=1), y)
    for name in (*study._NAMES, "fractions_difference"):
        np.testing.assert_allclose(scores[name], 0, atol=1e-6, err_msg=name)


def test_scores_of_means_and_maxima_are_those_of_the_regions(fields):
    x, y = fields
    scores = scores_of(x, y)
    weights = np.repeat(area_weights(np.linspace(90, -90, 12)), 16).reshape(12, 16)
    for name, reduce in (("mean", np.mean), ("max", np.max)):
        wanted, total = 0.0, 0.0
        for row in (0, 6):
            for column in (0, 8):
                at = (..., slice(row, row + 6), slice(column, column + 8))
                m, t = reduce(x[at], axis=(-2, -1)), reduce(y[at], axis=(-2, -1))
                crps = crps_ensemble(m, t, estimator="plain", member_dim=1)
                wanted, total = wanted + weights[at].mean() * crps, total + weights[at].mean()
        np.testing.assert_allclose(scores[f"crps_{name}"], wanted / total, rtol=1e-6)


def test_the_spectrum_of_one_wave():
    latitude = np.linspace(90, -90, 12)
    truth = xr.DataArray(np.zeros((1, 12, 16)), dims=("time", "latitude", "longitude"))
    truth = truth.assign_coords(latitude=latitude)
    wave = np.broadcast_to(np.cos(2 * np.pi * 3 * np.arange(16) / 16), (2, 5, 12, 16))
    power = study.spectrum(wave, truth)
    assert power.argmax() == 3
    np.testing.assert_allclose(np.delete(power, 3), 0, atol=1e-20)


def test_gains_of_several_trainings_have_the_variance_of_dates_and_trainings(tmp_path):
    rng = np.random.default_rng(4)
    dates = rng.uniform(0.9, 1.1, size=80)
    levels = {
        study.REFERENCE: (1.0, 1.02, 0.98),
        "location_unet, Schaake": (1.1, 1.122, 1.078),  # 10 % worse in each training
        "coherent_members, 50 quantiles": (0.8, 0.81, 0.82),
        "coherent_members, 10 quantiles": (1.001, 0.999, 1.0),
    }
    scores = []
    for seed in range(3):
        values = np.stack([level[seed] * dates for level in levels.values()])
        one = xr.Dataset(dict.fromkeys(study._NAMES, (("forecast", "time"), values)))
        scores.append(one.assign_coords(forecast=list(levels)))
        (tmp_path / f"seed{seed}").mkdir()
        scores[-1].to_netcdf(tmp_path / f"seed{seed}" / study.SCORES)
    by_name = {name: study._contrast(scores, name, "crps") for name in levels}
    better = by_name["coherent_members, 50 quantiles"]
    gains = 100 * (1 - np.array([0.8, 0.81 / 1.02, 0.82 / 0.98]))
    over_dates = interval(gains.mean() * dates / dates.mean())
    pooled = 1e4 * np.mean([np.var(level, ddof=1) for level in levels.values()])
    half = np.sqrt(((over_dates.upper - over_dates.lower) / 2) ** 2 + 1.959964**2 * 2 * pooled / 3)
    assert better.value == pytest.approx(gains.mean())
    assert (better.upper - better.lower) / 2 == pytest.approx(half, rel=2e-3)
    worse = by_name["location_unet, Schaake"]  # of the same trainings: dates alone
    over_dates = interval(10 * dates / dates.mean())
    assert worse.lower - worse.value == pytest.approx(over_dates.value - over_dates.upper, rel=0.2)
    text = study._write(tmp_path)
    assert text == (tmp_path / "table.md").read_text()
    assert "Means of 3 trainings" in text
    marked = {row.split(" | ")[0]: "≈" in row for row in text.splitlines() if "[" in row}
    assert [(name.split(", ")[1], level) for name, level in marked.items()] == [
        ("Schaake", False),
        ("50 quantiles", False),
        ("10 quantiles", True),
    ]


@pytest.mark.long
def test_the_study_trains_scores_and_draws(tmp_path, capsys):
    work, out = tmp_path / "work", tmp_path / "out"
    options = ["--grid", "12x16", "--years", "6", "--dates", "4", "--epochs", "1"]
    options += ["--flow-epochs", "1"]
    assert study.main([str(work), "--out", str(out), *options]) == 0
    table = (out / "table.md").read_text()
    assert table in capsys.readouterr().out
    with xr.open_dataset(out / study.SCORES) as scores:
        names = list(scores["forecast"].to_numpy())
        assert names[0] == study.REFERENCE
        assert {"flow, 10 quantiles", "flow, 50 quantiles", "flow, 50 draws"} <= set(names)
        same = scores["crps"].sel(forecast=["flow, 10 quantiles", study.REFERENCE])
        np.testing.assert_allclose(*same.mean("time"), rtol=1e-3)  # quantiles of the same margins
        # the law that the truth is drawn from has the least energy score
        energy = scores["energy"].mean("time")
        assert str(energy.idxmin().item()) == "law, 50 draws"
        ratios = study.power_ratios(scores, "law, 50 draws")
    assert all(0.5 < ratio < 2 for ratio in ratios)
    assert (out / "members.png").stat().st_size > 20_000
    (out / "table.md").unlink()
    assert study.main([str(tmp_path / "none"), "--out", str(out), "--tables"]) == 0
    assert (out / "table.md").read_text() == table
    given = [
        "--store",
        str(work / "seed0" / "store.zarr"),
        "--step",
        "48",
        "--inputs",
        "t2m",
        "msl",
    ]
    other = tmp_path / "other"
    short = ["--epochs", "1", "--flow-epochs", "1"]
    assert study.main([str(other), "--out", str(other / "out"), *given, *short]) == 0
    with xr.open_dataset(other / "out" / study.SCORES) as scores:
        shown = list(scores["forecast"].to_numpy())
        assert names == [*shown, "law, 50 draws"]
        assert np.isfinite(scores["energy"]).all()
