"""What `prepare` can be asked for: parts of the source, statistics, packing, climate."""

import json

import numpy as np
import pytest
import xarray as xr
import zarr
from gribfiles import GRID, cube, values_of
from storetools import contents

from ens10 import open_store, prepare
from ens10.catalog import VARIABLES
from ens10.convert import ensemble_moments, verify
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.grib import Encoder
from ens10.quantiles import parse_climate
from ens10.selection import date_places
from ens10.source import open_source
from ens10.store import store_kinds
from ens10.store.manifest import read_manifest


@pytest.fixture(scope="module")
def lazily(tiny):
    return open_source(tiny / "w")


@pytest.mark.parametrize("lazy", [False, True])
def test_parts(tiny, lazily, tmp_path, lazy):
    source = lazily if lazy else tiny / "w"
    asked = {"levels": [500], "steps": [24, 48], "members": [1, 3], "dates": ["2001", "2003-07"]}
    store = prepare(source, tmp_path / "s", variables=["2t", "z", "t"], **asked)
    want = lazily.sel(level=[500], step=[24, 48], number=[1, 3])
    want = want.isel(
        time=want.time.dt.year.isin([2001]) | (want.time.dt.strftime("%Y%m") == "200307")
    )
    assert want.sizes["time"] == 4
    for kind, names in (("sfc", ["t2m"]), ("pl", ["t", "z"])):
        got = open_store(store, kind)
        assert sorted(got.data_vars) == names
        for name in names:
            np.testing.assert_array_equal(got[name], want[name])
            assert got[name].dtype == np.float32
    channels = open_store(store, "statistics").channel.to_numpy().tolist()
    assert channels == ["t2m", "z_500", "t_500"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"variables": ["t2n"]}, "variables: 't2n' is not known; did you mean 't2m'"),
        ({"levels": [501]}, "levels: .*501.* is not known"),
        ({"steps": [36]}, "steps: .*36.* is not known"),
        ({"members": [9]}, "members: .*9.* is not known"),
        ({"members": 9}, "members: needs 9 members, found 4"),
        ({"dates": ["2011"]}, "dates: '2011' is not known"),
        ({"dates": ["last year"]}, "dates: 'last year' is not a date"),
        ({"ensembles": [5]}, "ensembles: needs 5 members, found 4"),
        ({"codec": "zip"}, "codec"),
        ({"workers": 0}, "workers"),
    ],
)
def test_what_is_not_there(tiny, tmp_path, asked, words):
    with pytest.raises(ArgumentError, match=words):
        prepare(tiny / "w", tmp_path / "s", **asked)
    assert not list(tmp_path.iterdir())


def test_dates_in_every_form():
    times = np.array(["2000-01-04", "2000-07-02", "2001-01-04T12", "2002-12-31"], "M8[ns]")
    for asked, want in [
        (["2000"], [0, 1]), (["2001-01-04"], [2]), (["2000-02:2001"], [1, 2]),
        (["2002-12-31", "2000-01"], [0, 3]), (["2001-01-04T12:2001-01-04"], [2]),
    ]:  # fmt: skip
        assert date_places(times, asked) == want
    with pytest.raises(UnknownNameError):
        date_places(times, ["2001:2000"])


def test_first_members_and_their_statistics(write, tmp_path):
    fields = cube(members=4)
    store = prepare(write(fields), tmp_path / "s", ensembles=[2, 3])
    held = open_store(store, "sfc").t2m
    statistics = open_store(store, "statistics")
    for suffix, k in (("", 4), ("_first2", 2), ("_first3", 3)):
        mean, spread = ensemble_moments(held[:, :, :k].to_numpy(), axis=2)
        for kind, want in (("mean", mean), ("std", spread)):
            got = statistics[f"ensemble_{kind}{suffix}"].sel(channel="t2m")
            np.testing.assert_array_equal(got, want)
            wide = want.astype(np.float64)
            for part, sums in (("sum", wide), ("square_sum", wide**2), ("count", wide * 0 + 1)):
                got = statistics[f"{kind}{suffix}_{part}"].sel(channel="t2m").sum("block")
                np.testing.assert_array_equal(got, sums[0] + sums[1] + sums[2])  # by date
    first = prepare(write(fields), tmp_path / "first", members=2)
    np.testing.assert_array_equal(open_store(first, "sfc").t2m, held[:, :, :2])
    np.testing.assert_allclose(held[0, 0, 0], values_of(fields[0]), rtol=1e-4)


def test_lz4_holds_the_same(small, tmp_path):
    packed = prepare(small / "w", tmp_path / "s", codec="lz4")
    for kind in ("sfc", "pl"):
        plain = open_store(small / "s.zarr", kind)
        theirs = zarr.open_group(str(packed), mode="r")[kind]
        for name in plain.data_vars:
            np.testing.assert_array_equal(open_store(packed, kind)[name], plain[name])
            np.testing.assert_array_equal(theirs[name][...], plain[name])
            codecs = json.loads((packed / kind / name / "zarr.json").read_text())["codecs"]
            assert codecs[1]["configuration"]["cname"] == "lz4"
    assert verify(packed).ok


def test_integers_are_kept_as_they_were_packed(tiny, store):
    name = "sfc/u10/c/0/0/0/0/0"
    rows, columns = 8, 16
    header = 32 + 4 * 64
    assert (store / name).stat().st_size == -(-header // 64) * 64 + 4 * rows * columns * 2
    plan = read_manifest(store).plan
    kinds = [name.split(".")[1] for name, _ in plan["source"]["files"]]
    assert kinds == ["pl"] * 3 + ["sfc"] * 3
    assert str(tiny) not in (store / "manifest/json/c/0").read_text()


def test_with_a_climate(small, tmp_path):
    climate = parse_climate(["t2m@48"], levels=21, protocol="clean")
    store = prepare(small / "w", tmp_path / "s", climate=climate)
    assert open_store(store, "climate").sizes["quantile"] == 21
    assert verify(store).ok
    before = contents(store)
    fields = [name for name in before if name.startswith("climate/t2m/c/")]
    for damage in (fields[:3], ["climate/longitude/c/0", fields[-1]], ["zarr.json"]):
        for name in damage:
            (store / name).write_bytes(before[name][:-1])
        assert [name for name, _ in verify(store).damaged] == sorted(damage)
        assert verify(store, source=small / "w", repair=True).ok
        assert contents(store) == before


def test_impossible_values_name_the_message(write, tmp_path):
    fields = [("z", 0, 20160101, 24, 1), ("tcc", 0, 20160101, 24, 1)]
    source = write(fields)
    with pytest.raises(FileError, match=r"a.grib at byte \d+: tcc runs from 27\d"):
        prepare(source, tmp_path / "s", variables=["tcc"])


def test_a_folder_of_grib_and_netcdf(write, tmp_path):
    names = (("t2m", 0), ("z", 500))
    write(cube(names[:1]), "in/a.grib")
    write(cube(names[1:]), "upper.grib")
    open_source(tmp_path / "upper.grib").to_netcdf(tmp_path / "in" / "b.nc")
    mixed = prepare(tmp_path / "in", tmp_path / "mixed")
    pure = prepare(write(cube(names), "both.grib"), tmp_path / "pure")
    for kind, name in (("sfc", "t2m"), ("pl", "z")):
        np.testing.assert_array_equal(open_store(mixed, kind)[name], open_store(pure, kind)[name])
    xr.testing.assert_identical(
        open_store(mixed, "statistics").drop_attrs(), open_store(pure, "statistics").drop_attrs()
    )


def test_variables_on_different_levels(write, tmp_path):
    names = (("z", 500), ("z", 850), ("t", 850))
    source = write(cube(names))
    for asked in (source, open_source(source)):
        store = prepare(asked, tmp_path / "s", force=True)
        held = open_store(store, "pl")
        assert held.t.sel(level=500).isnull().all()
        np.testing.assert_array_equal(held.t, open_source(source).t)
        np.testing.assert_array_equal(held.z, open_source(source).z)
        channels = open_store(store, "statistics").channel.to_numpy().tolist()
        assert channels == ["z_500", "z_850", "t_850"]
        assert verify(store).ok


def test_the_manifest_is_an_array_that_zarr_knows(tiny):
    store = tiny / "s.zarr"
    held = zarr.open_group(store, mode="r")
    assert "manifest" in dict(held.members())
    text = bytes(held["manifest/json"][...])
    assert text == (store / "manifest/json/c/0").read_bytes()
    assert text == bytes(held["manifest/copy"][...])
    assert json.loads(text)["plan"] == read_manifest(store).plan
    opened = xr.open_zarr(store, group="manifest", consolidated=False)
    assert sorted(opened) == ["copy", "json"]
    assert not xr.open_zarr(store, consolidated=False).data_vars
    assert store_kinds(store) == ["pl", "sfc", "statistics", "truth"]


def test_values_that_cannot_be_are_accepted_when_asked(write, tmp_path):
    fields = [f for f in cube() if f[0] == "t2m"]
    encoder, source = Encoder(GRID), tmp_path / "a.grib"
    raw = [
        encoder.message(values_of(f) - 290, VARIABLES["t2m"], date=f[2], step=f[3], number=f[4])
        for f in fields
    ]
    source.write_bytes(b"".join(raw))
    with pytest.raises(FileError, match=r"a.grib at byte \d+: .*lies between.*give --any-values"):
        prepare(source, tmp_path / "s")
    with pytest.raises(FileError, match="any_values: False, now True"):
        prepare(source, tmp_path / "s", any_values=True)
    store = prepare(source, tmp_path / "s", any_values=True, force=True)
    np.testing.assert_array_equal(
        open_store(store, "sfc")["t2m"][0, 0, 0], open_source(source)["t2m"][0, 0, 0]
    )
    (store / "sfc/t2m/c/1/0/0/0/0").unlink()
    assert verify(store, source=source, repair=True).ok


def test_what_another_call_asks_for_is_told_in_words(small, tmp_path):
    source, climate = small / "w", parse_climate(["t2m@48"])
    store = prepare(source, tmp_path / "s", truth=source / "truth", climate=climate)
    with pytest.raises(FileError) as caught:
        prepare(source, store)
    told = "made with --climate t2m@48, now without --climate; made with --truth truth, now without"
    assert told in str(caught.value)
    assert "{" not in str(caught.value)
    with pytest.raises(FileError, match="made without --climate, now with --climate t2m@48"):
        prepare(source, small / "s.zarr", truth=source / "truth", climate=climate)


def test_a_climate_that_cannot_be_is_refused_before_any_work(write, tmp_path, monkeypatch):
    monkeypatch.setattr("ens10.convert.preparation.work_on", lambda *_: pytest.fail("worked"))
    with pytest.raises(UnknownNameError, match="climate: step"):
        prepare(write(cube()), tmp_path / "s", climate=parse_climate(["t2m@999"]))
