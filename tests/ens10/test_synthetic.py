"""The synthetic world and the files that spell out their own coordinates."""

import datetime as dt
import json
from collections import Counter

import eccodes
import numpy as np
import pytest
from scipy import stats

from ens10 import open_store, prepare
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.metrics import crps_ensemble, crps_normal
from ens10.source import open_source
from ens10.synthetic import World, coded_value, write_coded
from ens10.synthetic import truth as laws
from ens10.synthetic.atmosphere import Atmosphere, Channel
from ens10.synthetic.recipes import climatology, recipe

KEYS = ("shortName", "paramId", "dataDate", "dataTime", "step", "number", "level", "typeOfLevel",
        "centre", "dataType", "bitsPerValue", "edition", "missingValue", "bitmapPresent",
        "packingType", "stream")  # fmt: skip


def messages(*paths):
    """(keys, values (rows x columns,)) of every message, by ecCodes alone."""
    for path in paths:
        with path.open("rb") as file:
            while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                keys = {key: eccodes.codes_get(handle, key) for key in KEYS}
                yield keys, eccodes.codes_get_values(handle)
                eccodes.codes_release(handle)


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
    assert best.mu.attrs["units"] == "K"
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


def test_files_are_those_of_ens10(tmp_path):
    names = ["sst", "t2m", "u10", "z", "t"]
    world = World("8x16", [1998, 2001], 2, names, seed=1, levels=(500, 850))
    folder = world.write(tmp_path / "w")
    kinds = {"sfc": ("0101", "0702"), "pl": ("0101", "0702")}
    expected = {f"output.{kind}.2018{day}" for kind, days in kinds.items() for day in days}
    assert {path.name for path in folder.iterdir()} == {*expected, "truth", "world.json"}
    assert world.targets == ["t2m", "z_500", "t_850"]
    for kind, fields in (("sfc", 3), ("pl", 4)):
        held = [keys for keys, _ in messages(folder / f"output.{kind}.20180702")]
        assert len(held) == 2 * 3 * fields * 10
        places = Counter(
            (k["paramId"], k["level"], k["dataDate"], k["step"], k["number"]) for k in held
        )
        assert set(places.values()) == {1}
        assert {k["dataDate"] for k in held} == {19980702, 20010702}
        assert {k["step"] for k in held} == {0, 24, 48}
        assert {k["number"] for k in held} == set(range(1, 11))
        same = {
            (k["centre"], k["dataType"], k["stream"], k["bitsPerValue"], k["edition"],
             k["packingType"], k["missingValue"], k["dataTime"]) for k in held
        }  # fmt: skip
        assert same == {("ecmf", "pf", "enfh", 16, 1, "grid_simple", 9999, 0)}
    params = {k["paramId"] for k, _ in messages(folder / "output.sfc.20180702")}
    assert params == {34, 167, 165}


def test_sst_is_missing_over_land_alone(tmp_path):
    world = World("12x24", [2000], ["0104"], ["sst", "t2m", "u10"], seed=2, members=3)
    path = world.write(tmp_path / "w") / "output.sfc.20180104"
    gaps = [v == 9999 for keys, v in messages(path) if keys["shortName"] == "sst"]
    assert len(gaps) == 9
    assert all((gap == gaps[0]).all() for gap in gaps)
    assert 0.1 < gaps[0].mean() < 0.7
    assert not any((v == 9999).any() for keys, v in messages(path) if keys["shortName"] != "sst")
    lazy = open_source(path)
    np.testing.assert_array_equal(lazy.sst.isnull().any(("time", "step", "number")).to_numpy(),
                                  gaps[0].reshape(12, 24))  # fmt: skip
    assert float(lazy.sst.min()) >= 271.3


def test_the_seed_decides_everything(tmp_path):
    def written(name, seed):
        folder = World("8x16", [2000, 2001], 2, ["t2m", "u10"], seed, members=2).write(
            tmp_path / name
        )
        return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    first, same, other = written("a", 1), written("b", 1), written("c", 2)
    assert first == same
    assert all(first[name] != other[name] for name in first)


def atmosphere(starts, members=4, steps=(0, 48), names=("t2m", "skt", "msl")):
    channels = [Channel(name, None) for name in names]
    return Atmosphere(np.linspace(90, -90, 10), 20, channels, steps, members, starts, seed=3)


def test_fields_do_not_depend_on_the_order_of_writing():
    starts = [dt.date(2000, 1, 3) + dt.timedelta(days=4 * n) for n in range(3)]
    forwards, backwards = atmosphere(starts), atmosphere(starts)
    drawn = {start: [f for _, _, f in forwards.forecast(start)] for start in starts}
    for start in reversed(starts):
        again = [f for _, _, f in backwards.forecast(start)]
        np.testing.assert_array_equal(again, drawn[start])
        np.testing.assert_array_equal(forwards.error(start, 0), backwards.error(start, 0))
        assert not np.array_equal(forwards.error(start, 0), forwards.error(start, 1))


def test_statistics_of_the_forecasts():
    """Signal and spread as the recipes say; memory from start to start; families share."""
    starts = [dt.date(2000, 1, 3) + dt.timedelta(days=4 * n) for n in range(300)]
    world = atmosphere(starts, members=4)
    signal, ratio, spread = [], [], []
    for start in starts:
        fields = {(step, c.name): f.astype(float) for step, c, f in world.forecast(start)}
        day = (start + dt.timedelta(days=2)).timetuple().tm_yday
        climate = climatology(recipe("msl", None), np.linspace(90, -90, 10), world.land, day)
        mass = (fields[48, "msl"].mean(axis=0) - climate) / recipe("msl", None).signal
        heat = fields[48, "t2m"].mean(axis=0)
        signal.append([mass, heat, fields[48, "skt"].mean(axis=0)])
        early, late = (fields[step, "msl"].std(axis=0, ddof=1) for step in (0, 48))
        ratio.append(np.median(early / late))
        spread.append(((late / recipe("msl", None).spread) ** 2).mean())
    mass, heat, skin = np.moveaxis(np.array(signal), 1, 0)
    share = (recipe("msl", None).spread / recipe("msl", None).signal) ** 2 / 4
    assert mass.var() == pytest.approx(1 + 1.13 * share, rel=0.05)
    assert (mass[1:] * mass[:-1]).mean() == pytest.approx(0.476, abs=0.04)  # 0.5 ** lag, 3 terms
    assert (mass[4:] * mass[:-4]).mean() == pytest.approx(0.0, abs=0.05)
    np.testing.assert_allclose(ratio, 0.35, rtol=2e-3)
    assert np.mean(spread) == pytest.approx(np.exp(0.35**2), rel=0.05)  # of a lognormal factor
    season = np.array([s.timetuple().tm_yday for s in starts])
    winter = (season < 60)[:, None, None]
    paired = [np.where(winter, x - x[season < 60].mean(axis=0), 0.0) for x in (heat, skin, mass)]
    matrix = np.corrcoef([p.ravel() for p in paired])
    assert matrix[0, 1] == pytest.approx(0.8, abs=0.08)
    assert abs(matrix[0, 2]) < 0.1


def test_climatology_by_hemisphere_and_season():
    latitude, land = np.array([90.0, 30.0, 0.0, -30.0, -90.0]), np.zeros((5, 4), dtype=bool)
    look = recipe("t2m", None)
    july, january = (climatology(look, latitude, land, day)[:, 0] for day in (200, 17))
    assert july[0] == pytest.approx(look.pole + look.season)
    assert july[-1] == pytest.approx(look.pole - look.season)
    assert july[2] == january[2] == look.equator
    assert january[0] < july[0]
    swing = climatology(look, latitude, ~land, 200)[0, 0] - look.pole
    assert swing == pytest.approx(look.land * look.season)


def test_values_lie_within_the_catalogues_ranges(tmp_path):
    from ens10.catalog import VARIABLES

    names = list(VARIABLES)
    folder = World("8x16", [2000], ["0702"], names, members=2, levels=(10, 500, 1000)).write(
        tmp_path / "w"
    )
    seen = set()
    for path in folder.glob("output.*"):
        lazy = open_source(path)
        for name, field in lazy.data_vars.items():
            low, high = VARIABLES[name].valid_range
            assert low <= float(field.min()), name
            assert float(field.max()) <= high, name
            assert float(field.std()) > 0, name
            seen.add(name)
    assert seen == set(names)


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


def test_only_empty_folders_are_written(tmp_path):
    world = World("8x16", [2000], 1, ["t2m", "u10"], members=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    for taken in (tmp_path / "full", tmp_path / "full" / "mine.txt"):
        with pytest.raises(FileError, match="Choose another one"):
            world.write(taken)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert world.write(tmp_path / "empty") == tmp_path / "empty"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variables": ["t2n"]}, "did you mean 't2m'"),
        ({"variables": ["z"], "levels": [501]}, "levels: 501 is not known"),
        ({"grid": "46"}, "ROWSxCOLUMNS"),
        ({"grid": "2x96"}, "at least 4x8"),
        ({"grid": "46x-96"}, "'46x-96' is no grid"),
        ({"steps": [0, 24]}, "48 is missing"),
        ({"steps": [-24, 48]}, "hours from 0"),
        ({"steps": [48, 48]}, "each once"),
        ({"dates": ["01-04"]}, "is no MMDD"),
        ({"dates": ["0229"]}, "no date in all of the years"),
        ({"dates": ["1332"]}, "no date in all of the years"),
        ({"dates": []}, "none is given"),
        ({"dates": 0}, "0 of 105 dates"),
        ({"dates": 106}, "106 of 105 dates"),
        ({"members": 1}, "2 to 254 members"),
        ({"members": 300}, "2 to 254 members"),
        ({"years": []}, "years: none is given"),
        ({"seed": -1}, "seed: -1 is negative"),
    ],
)
def test_impossible_worlds(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        World(**{"grid": "8x16", "years": [2001, 2002], "dates": 1, **arguments})


def test_things_given_twice_count_once(tmp_path):
    world = World("8x16", [2001, 2001], ["0104", "0104"], ["2t", "t2m", "u10"], members=2)
    held = list(messages(world.write(tmp_path / "w") / "output.sfc.20180104"))
    assert len(held) == 2 * 3 * 2


def test_truth_needs_the_wind():
    assert World("8x16", [2000], 1, ["t2m"]).targets == []
    assert World("8x16", [2000], 1, ["z", "u", "t"]).targets == ["z_500", "t_850"]
    assert World("8x16", [2000], 1, ["z", "t", "u10"]).targets == ["z_500", "t_850"]
    assert World("8x16", [2000], 1, ["z", "t", "u"], levels=[500]).targets == ["z_500"]
    with pytest.raises(ArgumentError, match="needs u10"):
        laws.law_of("t2m", ["t2m", "v10"], np.zeros((2, 2), dtype=int))
    for held, aux in ((["z_500", "u_500", "u10"], "u_500"), (["z_500", "u_850", "u10"], "u10")):
        assert laws.law_of("z_500", held, np.zeros((2, 2), dtype=int)).aux == aux
    with pytest.raises(ArgumentError, match="needs u_500 or u10"):
        laws.law_of("z_500", ["z_500", "u_850"], np.zeros((2, 2), dtype=int))


STARTS = [dt.date(2003, 1, 2), dt.date(2003, 12, 31), dt.date(2004, 6, 7)]
STEPS = (0, 24, 48, 72)


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    return write_coded(
        tmp_path_factory.mktemp("coded"), starts=STARTS, steps=STEPS, members=5,
        variables=("t2m", "z", "msl"), levels=(850, 500), shape=(7, 12),
    )  # fmt: skip


def test_every_coordinate_survives_the_way_into_the_store(coded, tmp_path):
    store = prepare(coded, tmp_path / "s")
    surface, upper = open_store(store, "sfc"), open_store(store, "pl")
    lazy = open_source(coded)
    channels = [
        ("t2m", None, 0), ("z", 850, 1), ("z", 500, 2), ("msl", None, 3),
    ]  # fmt: skip
    row, column = np.arange(7)[:, None], np.arange(12)
    for name, level, c in channels:
        held = surface[name] if level is None else upper[name].sel(level=level)
        source = lazy[name] if level is None else lazy[name].sel(level=level)
        for d, start in enumerate(STARTS):
            for s, step in enumerate(STEPS):
                for m in range(5):
                    place = {"time": np.datetime64(start), "step": step, "number": m + 1}
                    want = coded_value(d, s, m, c, row, column)
                    np.testing.assert_array_equal(held.sel(place), want)
                    np.testing.assert_array_equal(source.sel(place), want)
    np.testing.assert_array_equal(surface.latitude, np.linspace(90, -90, 7))
    np.testing.assert_array_equal(surface.longitude, np.arange(12) * 30.0)


def test_coded_values_are_readable():
    assert int(coded_value(2, 3, 1, 0, 4, 27)) == 2310427
    for name in ("date", "step", "member", "channel", "row"):
        digits = dict.fromkeys(("date", "step", "member", "channel", "row", "column"), 0)
        with pytest.raises(ArgumentError, match=f"{name}: only positions 0 to 9"):
            coded_value(**{**digits, name: 10})
    with pytest.raises(ArgumentError, match="column"):
        coded_value(0, 0, 0, 0, 0, 100)
