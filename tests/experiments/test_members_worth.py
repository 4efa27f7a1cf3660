"""What a forecast is worth in raw members, on Gaussian ensembles whose CRPS is known."""

import csv

import numpy as np
import pytest
import xarray as xr
from fakeruns import coordinates, provenance_of, with_damaged_chunks, write_run
from scipy.stats import norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.scoring.run_results import FinishedRun, read_run
from ens10.experiments.studies import members_worth
from ens10.experiments.studies.members_worth import (
    RawCurve,
    Worth,
    all_worths,
    equal_members,
    markdown,
    raw_curve,
    worth_figure,
    worth_in_words,
    worth_of,
    worths_by_size,
)
from ens10.metrics import Interval, crps_ensemble, score_states

GRID, DATES, HELD = (16, 32), 40, 6
BIAS, SPREAD = 0.5, 0.6  # of the raw members, around a truth of N(0, 1) about what is known
SIGMAS = {"good": 1.0, "middling": 2.3, "bad": 7.0}  # sigma of normals of the right mean


def gaussian(members, bias=BIAS, spread=SPREAD):
    """Mean CRPS of members N(bias, spread**2) of a truth N(0, 1), by E|X - Y| and E|X - X'|."""
    wide = np.hypot(1, spread)
    error = wide * 2 * norm.pdf(bias / wide) + bias * (2 * norm.cdf(bias / wide) - 1)
    return error - (1 - 1 / members) * spread / np.sqrt(np.pi)


def normal(sigma):
    """Mean CRPS of N(0, sigma**2)."""
    return gaussian(np.inf, 0.0, sigma)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    coords = coordinates(DATES, GRID)
    shape, dims = (DATES, *GRID), ("time", "latitude", "longitude")
    known = 280 + 5 * rng.normal(size=shape)
    truth = xr.DataArray(known + rng.normal(size=shape), coords, dims, attrs={"units": "K"})
    x = known[:, None] + BIAS + SPREAD * rng.normal(size=(DATES, HELD, *GRID))
    members = xr.DataArray(x, coords, ("time", "number", *dims[1:]), attrs=truth.attrs)
    forecasts = {"raw": xr.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})}
    for name, sigma in SIGMAS.items():
        mu = truth.copy(data=known)
        variables = {"mu": mu, "sigma": xr.full_like(mu, sigma)}
        forecasts[name] = xr.Dataset(variables, attrs={"forecast_kind": "normal"})
    return truth, forecasts


@pytest.fixture(scope="module")
def folders(data, tmp_path_factory):
    truth, forecasts = data
    folder = tmp_path_factory.mktemp("worth")
    made = {}
    for name, forecast in forecasts.items():
        states = score_states(forecast, truth, weights="cell")
        made[name] = write_run(folder / name, states, provenance_of(name))
    raw = forecasts["raw"].assign(truth=truth)
    raw.to_zarr(folder / "raw" / "predictions.zarr", consolidated=False)
    return made


@pytest.mark.parametrize("members", [1, 2, 5, 10, 37.5])
def test_the_number_of_members_is_found_again(members):
    plain, fair = gaussian(10), gaussian(np.inf)
    assert equal_members(gaussian(members), plain, fair, 10) == pytest.approx(members)
    curve = RawCurve("raw", "K", 10, plain, fair, {})
    assert curve.crps(members) == pytest.approx(gaussian(members))
    assert curve.members(gaussian(members)) == pytest.approx(members)


def test_no_number_of_members_reaches_the_limit():
    plain, fair = gaussian(10), gaussian(np.inf)
    assert equal_members(fair, plain, fair, 10) == np.inf
    assert equal_members(fair - 0.1, plain, fair, 10) == np.inf
    assert equal_members(2 * gaussian(1), plain, fair, 10) < 1
    # a calibrated ensemble of M members loses 1 / M of the best CRPS (Ferro et al. 2008)
    assert gaussian(4, 0, 1) == pytest.approx(1.25 * normal(1))
    with pytest.raises(ArgumentError, match="not above its fair one"):
        equal_members(1.0, fair, fair, 10)


def test_scored_runs_are_worth_what_the_formulas_say(folders):
    raw = read_run(folders["raw"])
    curve = raw_curve(raw)
    assert curve.ensemble_size == HELD
    for members in (1, 2, HELD, 100, np.inf):
        assert curve.crps(members) == pytest.approx(gaussian(members), rel=0.01)
    worth = {name: worth_of(read_run(folders[name]), raw) for name in SIGMAS}
    known = equal_members(normal(SIGMAS["middling"]), gaussian(HELD), gaussian(np.inf), HELD)
    assert 2 < known < 30
    made = worth["middling"].members
    assert made.lower < known < made.upper
    assert made.value == pytest.approx(known, rel=0.1)
    assert made.upper - made.lower < 0.6 * known
    assert worth["good"].members.value == np.inf
    assert worth["good"].members.upper == np.inf
    assert 0 < worth["bad"].members.value < 1
    assert worth["middling"].crps == pytest.approx(normal(SIGMAS["middling"]), rel=0.01)
    itself = worth_of(raw, raw).members
    assert (itself.value, itself.lower, itself.upper) == pytest.approx((HELD,) * 3)


def test_a_damaged_chunk_without_a_manifest_is_one_line(folders, tmp_path, capsys):
    damaged = with_damaged_chunks(folders["raw"], tmp_path / "raw", "members")
    assert members_worth.main([str(damaged), str(folders["good"]), "--measure", "2"]) == 1
    *_, said = capsys.readouterr().err.splitlines()  # before it, that there is no manifest
    assert f"{damaged}: a chunk cannot be read" in said


def test_bounds_may_hold_infinity(folders):
    """A forecast whose CRPS is about the limit: the bounds go from a number through infinity."""
    raw = read_run(folders["raw"])
    states = raw.states.drop_vars([v for v in raw.states if "fair" in str(v)])
    noise = 0.02 * np.random.default_rng(0).normal(size=DATES)
    states["crps_sum"] = (
        raw.states["crps_fair_sum"] + (noise - noise.mean()) * states["crps_weight"]
    )
    made = worth_of(FinishedRun("near", "model", states, {}), raw).members
    assert HELD < made.lower < np.inf
    assert made.upper == np.inf


def test_the_number_given_comes_from_sizes(folders):
    (folders["middling"] / "sizes.csv").write_text(
        f"members,crps,crps_fair\n2,{gaussian(3)},0\n4,{gaussian(9)},0\n{HELD},0.1,0\n"
    )
    curve = RawCurve("raw", "K", HELD, gaussian(HELD), gaussian(np.inf), {})
    found = worths_by_size(read_run(folders["middling"]), curve)
    assert [worth.input_members for worth in found] == [2, 4]
    assert [worth.members.value for worth in found] == pytest.approx([3, 9])
    assert np.isnan(found[0].members.lower)
    text = markdown(curve, found)
    assert "| middling | 2 |" in text
    assert f"middling given 4 members is no worse than the raw {HELD} " in text
    (folders["middling"] / "sizes.csv").unlink()


def test_words():
    def said(*bounds):
        return worth_in_words(Worth("x", None, 1.0, Interval(*bounds)))

    assert said(3.14159, 2.0, np.inf) == "3.1 [2.0, ∞]"
    assert said(44.4, 30.0, 61.0) == "44 [30, 61]"
    assert said(np.inf, 12.0, np.inf) == "more than any number (at least 12.0)"
    assert said(np.inf, np.inf, np.inf) == "more than any number"
    assert said(0.4, np.nan, np.nan) == "< 1"


def test_the_command(data, folders, tmp_path, capsys):
    truth, forecasts = data
    given = [str(folders[name]) for name in ("raw", *SIGMAS)]
    assert members_worth.main([*given, "--measure", "2", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "out" / "table.md").read_text()
    x = forecasts["raw"]["members"].isel(number=slice(2)).to_numpy()
    points = crps_ensemble(x, truth.to_numpy(), estimator="plain", member_dim=1)
    curve, worths = all_worths(given, measure=[2])
    assert curve.measured_crps[2] == pytest.approx(points.mean(), rel=0.01)
    assert f"| {curve.crps(2):.4f} | {curve.measured_crps[2]:.4f} |" in said
    with (tmp_path / "out" / "table.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["bad", "middling", "good"]
    assert float(rows["good"]["members"]) == np.inf
    assert (tmp_path / "out" / "worth.png").stat().st_size > 10_000
    _, lower = worth_figure(curve, worths).axes[:2]
    names = [label.get_text() for label in lower.get_yticklabels()]
    assert names == [f"raw, {HELD} members", *rows]
    assert lower.get_xlim()[1] < normal(SIGMAS["bad"])  # told in words at the edge


def test_what_is_refused(folders, capsys):
    good, raw = folders["good"], folders["raw"]
    with pytest.raises(UnknownNameError, match="'raw' is not known"):
        all_worths([good])
    with pytest.raises(ArgumentError, match="good is not scored as an ensemble"):
        all_worths([raw], good)
    with pytest.raises(ArgumentError, match="none beside the raw"):
        all_worths([raw], raw)
    with pytest.raises(ArgumentError, match="7 members of 6"):
        all_worths([raw, good], measure=[7])
    assert members_worth.main([str(good)]) == 1
    assert capsys.readouterr().err.startswith("ens10: raw: 'raw' is not known")
