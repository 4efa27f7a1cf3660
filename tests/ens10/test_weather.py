"""The fields of the displaced world: spectra, balance, ground and clusters of the members."""

import datetime as dt

import numpy as np
import pytest
from spectra import variance_by_degree

from ens10.synthetic import World
from ens10.synthetic.atmosphere import Channel
from ens10.synthetic.weather import LAPSE_RATE, Weather, climate, depth_below_ground

START = dt.date(2008, 1, 17)


@pytest.fixture(scope="module")
def fine():
    """Members of 8 dates on 97 x 96 points, (date, member, H, W) by channel, less the climate."""
    latitude = np.linspace(90, -90, 97)
    channels = [Channel(name, 500) for name in ("z", "t", "u", "v")]
    starts = [START + dt.timedelta(days=20 * n) for n in range(8)]
    weather = Weather(latitude, 96, channels, (48,), 2, starts, seed=1)
    fields = {c.name: [] for c in channels}
    for start in starts:
        for _, channel, members in weather.forecast(start):
            when = start + dt.timedelta(days=2)
            fields[channel.name].append(members - climate(channel, weather.ground, when))
    return weather, {name: np.array(values) for name, values in fields.items()}


@pytest.mark.parametrize(("names", "slope"), [("z", 3.0), ("t", 5 / 3), ("uv", 5 / 3)])
def test_small_scales_follow_the_power_laws(fine, names, slope):
    weather, fields = fine
    variance = sum(
        variance_by_degree(fields[name].mean(axis=1), weather.ground.latitude, 47) for name in names
    )
    degree = np.arange(16, 44)
    fitted = np.polyfit(np.log(degree), np.log(variance[degree]), 1)[0]
    assert fitted == pytest.approx(-slope, abs=0.25)


def test_the_wind_is_geostrophic_outside_the_tropics(fine):
    """Oracle: differences of the geopotential on the grid, over f + f0^2 / f.

    The balanced part of z falls off at the small scales: 2^(-1/3) = 0.79 at degree 14.
    """
    weather, fields = fine
    phi = np.deg2rad(weather.ground.latitude)
    f = 2 * 7.292e-5 * np.sin(phi)[:, None] + 1e-12
    f = f + (2 * 7.292e-5 * np.sin(np.deg2rad(15))) ** 2 / f
    z, radius = fields["z"], 6.371e6
    north = np.gradient(z, phi, axis=-2) / radius
    east = (np.roll(z, -1, -1) - np.roll(z, 1, -1)) / (4 * np.pi / 96)
    east /= radius * np.cos(phi)[:, None]
    rows = (np.abs(weather.ground.latitude) > 35) & (np.abs(weather.ground.latitude) < 75)
    for wind, geostrophic in ((fields["u"], -north / f), (fields["v"], east / f)):
        ours, theirs = wind[..., rows, :].ravel(), geostrophic[..., rows, :].ravel()
        assert np.corrcoef(ours, theirs)[0, 1] > 0.85
        assert np.polyfit(theirs, ours, 1)[0] == pytest.approx(0.82, abs=0.07)
    tropics = np.abs(weather.ground.latitude) < 10
    assert fields["u"][..., tropics, :].std() < 6


def test_the_ground_cools():
    world = World("33x64", [2008], 1, ["t2m", "t"], seed=2, kind="displaced", levels=(850,))
    ground = world._atmosphere.ground
    assert ground.orography[~ground.land].max() == 0
    assert 500 < ground.orography.max() <= 5000
    level = Channel("t2m", None)
    flat = climate(level, ground, START) + LAPSE_RATE * ground.orography
    for land in (ground.land, ~ground.land):  # nothing else depends on the longitude
        row = np.flatnonzero(land.sum(axis=1) > 5)[0]
        assert np.ptp(flat[row, land[row]]) < 1e-9
    warmer = climate(level, ground, START.replace(year=2018)) - climate(level, ground, START)
    np.testing.assert_allclose(warmer, 0.2)
    below = depth_below_ground(Channel("t", 850), ground)
    assert (below > 0).any()
    assert (below > 0).mean() < 0.2
    assert not below[ground.orography < 1000].any()


def test_mountains_widen_the_ensemble():
    starts = [START + dt.timedelta(days=7 * n) for n in range(40)]
    weather = Weather(
        np.linspace(90, -90, 33), 64, [Channel("t2m", None)], (48,), 10, starts, seed=2
    )
    made = (next(weather.forecast(start))[2].std(axis=0, ddof=1) for start in starts)
    spread, height = np.mean(list(made), axis=0), weather.ground.orography
    spread -= spread.mean(axis=1, keepdims=True) - spread.mean()  # without the part of the latitude
    slope, lowland = np.polyfit(height.ravel(), spread.ravel(), 1)
    assert slope / lowland == pytest.approx(0.4 / 1500, rel=0.5)


def test_the_members_have_clusters():
    """Sarle's coefficient (skewness squared + 1) / kurtosis is above that of normal samples."""
    starts = [START + dt.timedelta(days=7 * n) for n in range(30)]
    weather = Weather(
        np.linspace(90, -90, 13), 24, [Channel("t2m", None)], (48,), 10, starts, seed=3
    )
    normal = np.random.default_rng(0).standard_normal((30, 10, 13, 24))

    def shape(members):
        z = members - members.mean(axis=1, keepdims=True)
        z = z / z.std(axis=1, keepdims=True)
        return ((z**3).mean(axis=1) ** 2 + 1) / (z**4).mean(axis=1)

    ours = np.array([next(weather.forecast(start))[2] for start in starts])
    by_date = shape(ours).mean(axis=(1, 2))
    expected = shape(normal).mean()
    assert by_date.mean() > expected + 4 * by_date.std(ddof=1) / np.sqrt(30)


def test_dates_do_not_depend_on_the_order_of_calls():
    starts = [START + dt.timedelta(days=3 * n) for n in range(4)]
    args = (np.linspace(90, -90, 9), 16, [Channel("t2m", None), Channel("u10", None)], (0, 48), 3)
    forward, backward = (Weather(*args, starts, seed=4) for _ in range(2))
    first = [list(forward.forecast(start)) for start in starts]
    errors = [forward.error(start, 0) for start in starts]
    for n in (3, 1, 0, 2):
        np.testing.assert_array_equal(backward.error(starts[n], 0), errors[n])
        for ours, other in zip(backward.forecast(starts[n]), first[n], strict=True):
            assert ours[:2] == other[:2]
            np.testing.assert_array_equal(ours[2], other[2])
    other = Weather(*args, starts, seed=5)
    assert not np.array_equal(next(other.forecast(START))[2], first[0][0][2])


def test_signals_go_on_from_start_to_start_and_spread_grows():
    starts = [START + dt.timedelta(days=3 * n) for n in range(80)]
    weather = Weather(
        np.linspace(90, -90, 13), 24, [Channel("msl", None)], (0, 48), 6, starts, seed=6
    )
    members = np.array([[m for _, _, m in weather.forecast(start)] for start in starts])
    late = members.mean(axis=2)[:, 1, 3:10] - members.mean(axis=(0, 2))[1, 3:10]
    following = (late[1:] * late[:-1]).mean() / (late**2).mean()
    assert following == pytest.approx(0.45, abs=0.1)
    assert (late[4:] * late[:-4]).mean() / (late**2).mean() == pytest.approx(0, abs=0.1)
    spread = members.std(axis=2, ddof=1)
    np.testing.assert_allclose(spread[:, 0] / spread[:, 1], 0.35, rtol=1e-2)


def test_values_are_physical(tmp_path):
    from ens10.catalog import names_of_kind, variable

    names = (*names_of_kind("sfc"), "si10", *names_of_kind("pl"))
    world = World(
        "24x48", [2008], ["0117", "0716"], names, 7, kind="displaced", levels=(10, 500, 1000),
        members=4, steps=(24, 48),
    )  # fmt: skip
    for start in world._starts("0117") + world._starts("0716"):
        held = {}
        for step, channel, members in world._atmosphere.forecast(start):
            low, high = variable(channel.name).valid_range
            assert np.nanmin(members) >= low, channel
            assert np.nanmax(members) <= high, channel
            held[step, channel.name, channel.level] = members
        assert 0.05 < (held[48, "tp", None] == 0).mean() < 0.8
        assert (held[48, "tp", None] >= held[48, "cp", None]).all()
        speed = np.hypot(held[48, "u10", None], held[48, "v10", None])
        np.testing.assert_allclose(held[48, "si10", None], speed, rtol=1e-5)
        assert np.isnan(held[24, "sst", None]).any()
