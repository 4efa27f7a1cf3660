"""The truth of the displaced world obeys its law, and its optimum needs all that is known."""

import datetime as dt

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ens10.channels import field_of
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.metrics import score_states
from ens10.metrics.distributions import Distribution
from ens10.source import open_source
from ens10.synthetic import World
from ens10.synthetic.displaced import DISPLACED_TARGETS, displace

VARIABLES = ("t2m", "u10", "v10", "tp", "si10", "z", "t", "u", "v")
# t2m and tp of members, mean and deviation of the optimum, truth of t2m and z_500
RECORDED = [
    286.40933, 288.09293, 287.79605, 289.26675, 66.082474, 0.0, 0.0, 287.23767, 294.57898,
    288.87471, 1.5746332, 1.4467845, 0.34063468, 284.13583, 288.21201, 288.21786, 56041.496,
    56000.496, 56416.246,
]  # fmt: skip
KINDS = {"tp": "csgd", "si10": "truncated_normal"}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def make(folder, grid="12x24", years=range(2000, 2012), members=6):
    world = World(
        grid, years, ["0104", "0315", "0621", "0906", "1231"], VARIABLES, seed=5,
        levels=(500, 850), steps=(48,), members=members, kind="displaced",
    )  # fmt: skip
    world.write(folder)
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """60 start dates on 12 x 24 points with all targets."""
    return make(tmp_path_factory.mktemp("displaced") / "w")


@pytest.fixture(scope="module")
def forecasts(world):
    """The optimum and the truth of each target."""
    truth, held = open_source(world.folder / "truth"), {}
    for target in world.targets:
        best = world.optimum(target)
        y = field_of(truth, target).sel(time=best.valid_time.to_numpy())
        y = y.to_numpy().astype(np.float64).reshape(len(best.time), 12, 24)
        held[target] = best, y
    return held


def test_parameters_of_the_optimum_have_their_own_units(forecasts):
    units = {name: a.attrs["units"] for name, a in forecasts["tp"][0].data_vars.items()}
    assert units == {"shape": "1", "scale": "m", "shift": "m"}
    for best, _ in forecasts.values():
        assert not any("standard_name" in a.attrs for a in best.data_vars.values())


def crps(best, y):
    return np.asarray(Distribution.from_dataset(best).crps(y), np.float64)


def by_date(values):
    """Mean over the points of rows away from the poles, by date."""
    return values[:, 1:-1].mean(axis=(1, 2))


def t_value(values):
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))


def test_targets_and_kinds(world, forecasts):
    assert world.targets == list(DISPLACED_TARGETS) == list(forecasts)
    for target, (best, _) in forecasts.items():
        assert best.attrs["forecast_kind"] == KINDS.get(target, "normal_mixture")
        assert best.sizes["time"] == 60
        assert best["valid_time"].dims == ("time",)
    units = {name: next(iter(best.values())).attrs["units"] for name, (best, _) in forecasts.items()
             if name != "tp"}  # fmt: skip
    assert units == {"t2m": "K", "z_500": "m2 s-2", "t_850": "K", "si10": "m s-1"}
    weights = forecasts["t2m"][0]["component_weights"]
    np.testing.assert_allclose(weights.sum("component"), 1.0, atol=1e-6)


@pytest.mark.parametrize("target", DISPLACED_TARGETS)
def test_pit_of_the_truth_is_uniform(world, forecasts, target):
    best, y = forecasts[target]
    pit = Distribution.from_dataset(best).pit(y)
    apart = pit[:, 3:9:2, ::2].ravel()
    assert stats.kstest(apart, "uniform").pvalue > 1e-3
    for region in range(4):
        inside = pit[:, 2:-2][:, world.region[2:-2] == region]
        assert abs(t_value(inside.mean(axis=1) - 0.5)) < 4
        assert abs(t_value((inside**2).mean(axis=1) - 1 / 3)) < 4
    if target in KINDS:
        assert y.min() >= 0
    if target == "tp":
        assert 0.1 < (y == 0).mean() < 0.7


@pytest.mark.parametrize("target", DISPLACED_TARGETS)
def test_closed_form_crps_is_the_integral_of_the_quantile_score(forecasts, target):
    """Oracle: 2 int (1{y < q} - p) (q - y) dp by the midpoint rule over 2,000 levels."""
    best, y = forecasts[target]
    points = {"time": slice(0, 60, 20), "latitude": slice(2, 10, 3), "longitude": slice(0, 24, 9)}
    some, at = best.isel(points), y[::20, 2:10:3, ::9]
    p = (np.arange(2000) + 0.5) / 2000
    q = np.asarray(Distribution.from_dataset(some).quantile(p), np.float64)
    p = p[:, None, None, None]
    oracle = 2 * ((at < q) - p) * (q - at)
    np.testing.assert_allclose(crps(some, at), oracle.mean(axis=0), rtol=5e-3, atol=1e-3 * at.std())


@pytest.mark.parametrize("target", DISPLACED_TARGETS)
def test_no_changed_forecast_beats_the_optimum(forecasts, target):
    best, y = forecasts[target]
    optimum = crps(best, y)
    centre, width = {
        "tp": ("shift", "scale"), "si10": ("mu", "sigma")
    }.get(target, ("mu", "sigma"))  # fmt: skip
    changes = {
        "higher": {centre: best[centre] + 0.15 * best[width]},
        "lower": {centre: np.maximum(best[centre] - 0.15 * best[width], 0.0)},
        "wider": {width: 1.25 * best[width]},
        "narrower": {width: 0.8 * best[width]},
    }
    for name, change in changes.items():
        loss = by_date(crps(best.assign(change), y) - optimum)
        assert t_value(loss) > 3, name
    # the score that the optimum expects of itself, from other draws than the truth
    known = Distribution.from_dataset(best)
    draws = np.moveaxis(np.asarray(known.sample(6, 1), np.float64), -3, 0)
    expected = np.mean([np.asarray(known.crps(one)) for one in draws], axis=0)
    assert abs(t_value(by_date(optimum - expected))) < 4


@pytest.mark.parametrize(
    ("target", "worth"),
    [
        ("t2m", ("neighbours", "flow", "place", "members")),
        slow("t_850", ("neighbours", "flow", "place", "members")),
        slow("z_500", ("neighbours", "place", "members")),
        slow("tp", ("neighbours", "flow", "place", "members")),
        slow("si10", ("neighbours", "place")),
    ],
)
def test_each_knowledge_is_worth_something(world, forecasts, target, worth):
    best, y = forecasts[target]
    optimum = crps(best, y)
    for knowledge in worth:
        less = world.optimum(target, without=knowledge)
        assert less.attrs["forecast_kind"] == best.attrs["forecast_kind"]
        loss = by_date(crps(less, y) - optimum)
        assert t_value(loss) > 2.5, knowledge


def test_the_ground_shapes_bias_and_error(world):
    """Of still air, the forecast is biased by the height that the model lacks; mountains widen."""
    ground = world._atmosphere.ground
    members = 280.0 + np.array([-1.0, 0.0, 1.0])[:, None, None] * np.ones(ground.region.shape)
    still = np.zeros_like(members)
    best = world.law("t2m").distribution(members, still, still, dt.date(2005, 3, 1))
    known = {name: np.asarray(values) for name, values in best.values_by_name.items()}
    centre = known["mu"][:3].mean(axis=0)  # of the moved members, whose average departure is 0
    flat = known["sigma"][0] / (1 + 0.3 * ground.orography / 1500)
    for region in range(4):
        inside = ground.region == region
        slope = np.polyfit(ground.unresolved_orography[inside], centre[inside], 1)[0]
        assert slope == pytest.approx(-6.5e-3, rel=1e-6)
        np.testing.assert_allclose(flat[inside], flat[inside][0])
    assert np.ptp(known["sigma"][0][ground.region == 0]) > 0


@pytest.mark.parametrize("target", ["t2m", "z_500", "t_850"])
def test_errors_are_skewed_and_heavy_tailed(world, forecasts, target):
    """Errors in units of the expected deviation: a normal has skewness and excess kurtosis 0."""
    best, y = forecasts[target]
    known = Distribution.from_dataset(best)
    errors = (y - np.asarray(known.mean)) / np.asarray(known.std)
    for region, sign in enumerate([-1, 1, 1, -1]):
        inside = errors[:, 1:-1][:, world.region[1:-1] == region].ravel()
        assert sign * stats.skew(inside) > 0.25
        assert stats.kurtosis(inside) > 0.7


def test_the_drift_of_the_years_is_known_to_the_optimum(world, forecasts):
    """The bias without drift is that of 2008; it departs by the years from there."""
    best, _ = forecasts["t_850"]
    apart = (best["mu"] - world.optimum("t_850", without="year")["mu"]).isel(component=0)
    years = best["valid_time"].dt.year.to_numpy() - 2008
    per_year = apart[years != 0] / years[years != 0][:, None, None]
    assert float(per_year.std("time").max()) < 1e-4
    assert float(np.abs(per_year).min()) > 0


def test_scores_of_states_are_those_of_the_distribution(world, forecasts):
    for target, (best, y) in forecasts.items():
        truth = xr.DataArray(
            y, dims=("time", "latitude", "longitude"),
            coords={"time": best.valid_time.to_numpy(), "latitude": best.latitude,
                    "longitude": best.longitude},
        )  # fmt: skip
        states = score_states(best, truth, weights="none")
        mean = float(states["crps_sum"].sum() / states["crps_weight"].sum())
        assert mean == pytest.approx(crps(best, y).mean(), rel=1e-5), target


def test_the_same_seed_writes_the_same_files(tmp_path):
    first, again = (make(tmp_path / name, "8x16", [2000], members=3) for name in "ab")
    names = [path.relative_to(first.folder) for path in first.folder.rglob("*") if path.is_file()]
    assert len(names) == 10 + 2 + 1
    for name in names:
        assert (first.folder / name).read_bytes() == (again.folder / name).read_bytes(), name
    loaded = World.load(again.folder)
    assert loaded.kind == "displaced"
    np.testing.assert_array_equal(loaded.region, first.region)
    assert loaded.optimum("tp").equals(first.optimum("tp"))


def test_invalid_arguments(world, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'displaced'"):
        World("12x24", [2000], 1, kind="displacd")
    with pytest.raises(UnknownNameError, match="did you mean 'flow'"):
        world.optimum("t2m", without="flows")
    with pytest.raises(UnknownNameError):
        world.optimum("u10x")
    with pytest.raises(ArgumentError, match="no truth of u10"):
        world.optimum("u10")
    plain = World("8x16", [2000], ["0104"], ["t2m", "u10"], steps=(48,), members=2)
    plain.write(tmp_path / "plain")
    with pytest.raises(ArgumentError, match="the pointwise world has one optimum"):
        plain.optimum("t2m", without="flow")
    lonely = World("8x16", [2000], 1, ["t2m", "u10"], kind="displaced")
    assert lonely.targets == []
    (tmp_path / "world.json").write_text('{"kind": "flat"}')
    with pytest.raises(FileError, match="no parameters of a world"):
        World.load(tmp_path)
    with pytest.raises(UnknownNameError):
        World("8x16", [2000], 1, ["si10"])  # the pointwise world has none


def test_displacement_follows_great_circles():
    """Oracle: smooth fields of the Cartesian coordinates at points rotated as vectors."""
    latitude, columns = np.linspace(90, -90, 181), 360
    phi, lam = np.deg2rad(latitude)[:, None], np.deg2rad(np.arange(columns))[None, :]

    def cartesian(phi, lam):
        return np.stack(
            np.broadcast_arrays(np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi))
        )

    here = cartesian(phi, lam)
    to_east = np.stack(np.broadcast_arrays(-np.sin(lam), np.cos(lam), 0 * phi))
    to_north = np.cross(here, to_east, axis=0)
    rng = np.random.default_rng(0)
    east, north = 400 * rng.standard_normal((2, 181, 360))
    distance = np.hypot(east, north)
    direction = (east * to_east + north * to_north) / distance
    there = here * np.cos(distance / 6371.0) + direction * np.sin(distance / 6371.0)

    def smooth(x):
        return np.stack([x[0], x[1] * x[2], x[2], x[0] * x[1] - x[2] ** 2])

    moved = displace(smooth(here), latitude, east, north)
    np.testing.assert_allclose(moved, smooth(there), atol=3e-4)
    still = displace(smooth(here), latitude, 0 * east, 0 * north)
    np.testing.assert_allclose(still, smooth(here), atol=1e-12)


def test_truth_at_several_lead_times(tmp_path):
    world = World(
        "8x16", [2000, 2001], ["0104", "0621"], ["t2m", "u10", "v10", "tp"], 3, steps=(24, 48),
        members=3, kind="displaced", truth_steps=(24, 48),
    )  # fmt: skip
    world.write(tmp_path / "w")
    day, two = (world.optimum("tp", step=step) for step in (24, 48))
    assert (two.valid_time - day.valid_time == np.timedelta64(1, "D")).all()
    ratio = float(two["shift"].mean() / day["shift"].mean())
    assert ratio == pytest.approx(2.0, rel=1e-5)  # accumulated since the start


def test_the_pointwise_world_is_unchanged(tmp_path):
    """Values of the files and the optimum, recorded before the displaced world existed."""
    world = World(
        "8x16", range(2000, 2002), ["0104", "1231"], ["t2m", "u10", "sst", "tp", "z", "t", "u"], 3,
        levels=(500, 850), steps=(0, 24, 48), members=4, truth_steps=(24, 48),
    )  # fmt: skip
    world.write(tmp_path / "w")
    assert "kind" not in (tmp_path / "w" / "world.json").read_text()
    surface = open_source(tmp_path / "w" / "output.sfc.20180104")
    best, truth = world.optimum("t2m"), open_source(tmp_path / "w" / "truth")
    found = [
        *surface["t2m"][0, 2, 1, 3, :4].to_numpy(),
        *surface["tp"][1, 1, 0, 2, :3].to_numpy() * 1e4,
        *best["mu"][1, 3, :3].to_numpy(),
        *best["sigma"][1, 3, :3].to_numpy(),
        *truth["t2m"].sel(time="2000-01-06").to_numpy().reshape(8, 16)[3, :3],
        *truth["z"].sel(time="2000-01-06", level=500).to_numpy().reshape(8, 16)[3, :3],
    ]
    np.testing.assert_allclose(found, RECORDED, rtol=2e-6)
    assert best["valid_time"][0] == np.datetime64(dt.datetime(2000, 1, 6))
