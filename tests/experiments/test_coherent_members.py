"""Scores of whole fields: of perfect members, of noise, and of the small study from end to end."""

import numpy as np
import pytest
import xarray as xr

from ens10.experiments.studies import coherent_members as study
from ens10.grid import area_weights
from ens10.metrics import crps_ensemble


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
