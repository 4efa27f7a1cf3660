"""The files of the synthetic world: layout, determinism, statistics, refusals."""

import datetime as dt
from collections import Counter

import numpy as np
import pytest
from eccodesreader import messages

from ens10.errors import ArgumentError, FileError
from ens10.source import open_source
from ens10.synthetic import World
from ens10.synthetic import atmosphere as laws
from ens10.synthetic.atmosphere import Atmosphere, Channel, climatology, recipe


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
        ({"levels": [850.5]}, "not whole numbers"),
        ({"variables": ["z"], "levels": []}, "levels: there are none for z"),
        ({"grid": "46"}, "ROWSxCOLUMNS"),
        ({"grid": "2x96"}, "4x8 or more"),
        ({"grid": "46x-96"}, "grid: '46x-96' is not a grid. Write ROWSxCOLUMNS"),
        ({"grid": (46, 96, 2)}, r"grid: \(46, 96, 2\) is not a grid"),
        ({"grid": (46.0, 96)}, r"grid: \(46.0, 96\) is not a grid"),
        ({"grid": ("8", None)}, "is not a grid"),
        ({"grid": 46}, "grid: 46 is not a grid"),
        ({"grid": None}, "grid: None is not a grid"),
        ({"grid": (2, 96)}, "grid: 2x96 is too small. Pass 4x8 or more"),
        ({"steps": [0, 24]}, "48 is missing"),
        ({"steps": [-24, 48]}, "hours from 0"),
        ({"steps": [48, 48]}, "each once"),
        ({"dates": ["01-04"]}, "is not of the form MMDD"),
        ({"dates": ["0229"]}, "not a date in all of the years"),
        ({"dates": ["1332"]}, "not a date in all of the years"),
        ({"dates": []}, "none is given"),
        ({"dates": 0}, "0 of 105 dates"),
        ({"dates": 106}, "106 of 105 dates"),
        ({"members": 1}, "2 to 254 members"),
        ({"members": 300}, "2 to 254 members"),
        ({"years": []}, "years: there are none"),
        ({"years": [1677, 2001]}, "years: 1677 to 2001 are not within 1678 to 2261"),
        ({"years": [2262]}, "not within 1678 to 2261"),
        ({"seed": -1}, "seed: -1 is negative"),
    ],
)
def test_impossible_worlds(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        World(**{"grid": "8x16", "years": [2001, 2002], "dates": 1, **arguments})


def test_a_level_that_is_named_twice_counts_once(tmp_path):
    names, levels = ["t", "u10"], ((850,), (850, 850))
    worlds = [World("8x16", [2000], 1, names, members=2, levels=one) for one in levels]
    first, second = (world.write(tmp_path / f"w{n}") for n, world in enumerate(worlds))
    files = {path.relative_to(first) for path in first.rglob("*") if path.is_file()}
    assert len(files) == 4
    assert all((first / path).read_bytes() == (second / path).read_bytes() for path in files)


@pytest.mark.parametrize("year", [1678, 2261])
def test_the_truth_of_the_first_and_the_last_year_has_its_dates(year, tmp_path):
    winds = ["t2m", "u10", "v10"]
    world = World("8x16", [year], ["0104", "1231"], winds, members=2, steps=(48,))
    files = sorted(path.name for path in (world.write(tmp_path / "w") / "truth").iterdir())
    assert files == [f"era5.{year}", f"era5.{year + 1}"]


@pytest.mark.parametrize("grid", ["9x16", "9X16", (9, 16), [9, 16], np.array([9, 16])])
def test_a_grid_is_text_or_two_numbers(grid, tmp_path):
    made = World(grid, [2000], 1, ["t2m"], members=2, steps=(48,))
    assert (made.grid.rows, made.grid.columns) == (9, 16)
    read = World.load(made.write(tmp_path / "w"))
    assert read.grid == made.grid
    assert (read.region == made.region).all()


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
