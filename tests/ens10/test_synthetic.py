"""The synthetic world obeys its law, and nothing beats its optimum."""

import datetime as dt
import json

import numpy as np
import pytest
from eccodesreader import messages
from scipy import stats

from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.metrics import crps_ensemble, crps_normal
from ens10.source import open_source
from ens10.synthetic import World
from ens10.synthetic import atmosphere as laws
from ens10.synthetic.atmosphere import recipe


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """60 start dates on 12 x 24 points with three targets."""
    world = World(
        "12x24", range(2000, 2012), ["0104", "0315", "0621", "0906", "1231"],
        ["t2m", "u10", "z", "t"], seed=5, levels=(500, 850), steps=(0, 48),
    )  # fmt: skip
    world.write(tmp_path_factory.mktemp("world") / "w")
    return world


@pytest.fixture(scope="module")
def decoded(world):
    """Forecasts at 48 h and truth of t2m, by ecCodes: members, wind (date, member, point), y."""
    members, wind, truth = {}, {}, {}
    for keys, values in messages(*world.folder.glob("output.sfc.*")):
        if keys["step"] == 48:
            held = members if keys["shortName"] == "2t" else wind
            held.setdefault(keys["dataDate"], {})[keys["number"]] = values
    for keys, values in messages(*(world.folder / "truth").iterdir()):
        if keys["shortName"] == "2t":
            truth[keys["dataDate"]] = values
    starts = sorted(members)
    valid = [dt.datetime.strptime(str(s), "%Y%m%d") + dt.timedelta(days=2) for s in starts]
    return (
        np.array([[members[s][n] for n in range(1, 11)] for s in starts]),
        np.array([[wind[s][n] for n in range(1, 11)] for s in starts]),
        np.array([truth[int(f"{v:%Y%m%d}")] for v in valid]),
        np.array([v.timetuple().tm_yday for v in valid]),
    )


def test_optimum_is_the_law_applied_to_the_files(world, decoded):
    members, wind, _, day = decoded
    region = world.region.ravel()
    scale = recipe("t2m", None).spread
    cycle = 1 + 0.4 * np.cos(2 * np.pi * (day[:, None] - laws._PEAK[region]) / 365.25)
    response = laws._RESPONSE[region] * np.tanh(wind.mean(axis=1) / 5.0)
    mu = members.mean(axis=1) + scale * (laws._BIAS[region] * cycle + response)
    spread = members.std(axis=1, ddof=1)
    sigma = laws._DISPERSION[region] * spread + laws._NOISE[region] * scale
    best = world.optimum("t2m")
    assert best.attrs["forecast_kind"] == "normal"
    assert best.mu.attrs["units"] == best.sigma.attrs["units"] == "K"
    assert best.mu.attrs["standard_name"] == "air_temperature"
    assert "standard_name" not in best.sigma.attrs
    assert best.mu.dims == ("time", "latitude", "longitude")
    np.testing.assert_allclose(best.mu.to_numpy().reshape(mu.shape), mu, atol=1e-4)
    np.testing.assert_allclose(best.sigma.to_numpy().reshape(mu.shape), sigma, atol=1e-4)
    np.testing.assert_array_equal(best.valid_time.dt.dayofyear, day)
    assert set(np.unique(region)) == {0, 1, 2, 3}
    assert len(set(np.sign(laws._RESPONSE))) == 2  # no global model can have the response


@pytest.mark.parametrize("target", ["t2m", "z500", "t850"])
def test_truth_is_normal_around_the_optimum(world, target):
    name, level = ("t2m", None) if target == "t2m" else (target[0], int(target[1:]))
    best, truth = world.optimum(target), open_source(world.folder / "truth")
    field = truth[name] if level is None else truth[name].sel(level=level)
    y = field.sel(time=best.valid_time.to_numpy()).to_numpy().reshape(best.mu.shape)
    z = (y - best.mu.to_numpy()) / best.sigma.to_numpy()
    apart = z[:, 3:9:2, ::2].ravel()  # points further apart than the error's correlation
    assert stats.kstest(apart, "norm").pvalue > 1e-3
    for region in range(4):
        values = z[:, 2:-2][:, world.region[2:-2] == region]
        dates = values.mean(axis=1)
        assert abs(dates.mean()) < 4 * dates.std(ddof=1) / np.sqrt(len(dates))
        squares = (values**2).mean(axis=1)
        assert abs(squares.mean() - 1) < 4 * squares.std(ddof=1) / np.sqrt(len(dates))


def test_no_forecast_beats_the_optimum(world, decoded):
    members, _, y, _ = decoded
    best = world.optimum("t2m")
    mu, sigma = (best[name].to_numpy().reshape(y.shape) for name in ("mu", "sigma"))
    optimum = crps_normal(mu, sigma, y)
    apart = (optimum - sigma / np.sqrt(np.pi)).mean(axis=1)
    assert abs(apart.mean()) < 3 * apart.std(ddof=1) / np.sqrt(len(apart))
    raw = crps_ensemble(members, y, estimator="plain", member_dim=1)
    fair = crps_ensemble(members, y, estimator="fair", member_dim=1)
    bias = (mu - y).mean()
    others = {
        "warmer": crps_normal(mu + 0.1, sigma, y),
        "colder": crps_normal(mu - 0.1, sigma, y),
        "wider": crps_normal(mu, 1.1 * sigma, y),
        "narrower": crps_normal(mu, 0.9 * sigma, y),
        "raw": raw,
        "fair raw": fair,
        "global shift": crps_normal(members.mean(axis=1) - bias, members.std(axis=1, ddof=1), y),
    }
    losses = {name: (crps - optimum).mean() for name, crps in others.items()}
    assert min(losses.values()) > 0, losses
    assert losses["raw"] > 0.3 * optimum.mean()  # there is something to win


def test_error_is_no_part_of_the_forecasts(world, decoded):
    """What is left of the truth correlates with no field of the forecasts."""
    members, wind, y, _ = decoded
    best = world.optimum("t2m")
    z = (y - best.mu.to_numpy().reshape(y.shape)) / best.sigma.to_numpy().reshape(y.shape)
    for field in (*members[:, :3].swapaxes(0, 1), wind.mean(axis=1), members.std(axis=1)):
        anomaly = field - field.mean(axis=0)
        correlation = (z * anomaly).mean(axis=1) / anomaly.std()
        assert abs(correlation.mean()) < 4 * correlation.std(ddof=1) / np.sqrt(len(y))


def test_fewer_members_have_no_closed_form(world):
    with pytest.raises(ArgumentError, match="no closed form for 5 of the 10 members"):
        world.optimum("t2m", members=5)
    assert world.optimum("t2m", members=10).equals(world.optimum("t2m"))
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        world.optimum("t2n")
    with pytest.raises(ArgumentError, match="not written yet"):
        World("8x16", [2000], 1).optimum("t2m")


def test_a_start_at_the_end_of_the_year_has_its_truth_in_the_next(world):
    names = {path.name for path in (world.folder / "truth").iterdir()}
    assert names == {f"era5.{year}" for year in range(2000, 2013)}
    last = [keys for keys, _ in messages(world.folder / "truth" / "era5.2012")]
    assert {keys["dataDate"] for keys in last} == {20120102}
    assert sorted((k["shortName"], k["level"]) for k in last) == [("2t", 0), ("t", 850), ("z", 500)]
    assert {(k["dataType"], k["step"], k["edition"]) for k in last} == {("an", 0, 1)}


def test_load(world, tmp_path):
    again = World.load(world.folder)
    np.testing.assert_array_equal(again.region, world.region)
    assert again.optimum("z_500").equals(world.optimum("z_500"))
    assert again.targets == world.targets == ["t2m", "z_500", "t_850"]
    with pytest.raises(FileError, match="ens10 synth"):
        World.load(tmp_path)
    for text in ("{", '["a"]', '{"planet": 3}'):
        (tmp_path / "world.json").write_text(text)
        with pytest.raises(FileError, match="no parameters of a world"):
            World.load(tmp_path)
    held = json.loads((world.folder / "world.json").read_text())
    assert held["years"] == list(range(2000, 2012))
