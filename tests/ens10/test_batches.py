"""Batches, from a store and from any lazy dataset, without torch."""

import datetime as dt
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from batchtools import lazy, members_of, whole

from ens10 import catalog, open_store, prepare
from ens10.climate import Normaliser
from ens10.grid import area_weights, location_features
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.source import open_source
from ens10.store import forecasts
from ens10.synthetic import World, coded_value, write_coded

YEARS = range(2000, 2006)
INPUTS = ["t2m", "sst", "z500", "u10@24", "t2m@0"]


def test_no_torch_needed(store):
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['pytorch_lightning'] = None\n"
        "from ens10.loader import Batches\n"
        f"b = Batches({str(store)!r}, 't2m', extras=['location', 'day_of_year'], members=True)\n"
        "assert sum(len(x['dates']) for x in b) == len(b.dates)\n"
        "print(len(b.channels))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 2 * 3 + 1 + 5


def test_values_against_the_store_by_hand(store):
    batches = Batches(store, "t2m", INPUTS, "test", extras=["location", "day_of_year"],
                      members=True)  # fmt: skip
    got = whole(batches)
    truth = open_store(store, "truth")
    valid = truth.valid_time.sel(step=48).to_numpy()
    year = valid.astype("datetime64[Y]").astype(int) + 1970
    test, train = np.isin(year, [2004, 2005]), np.isin(year, [2000, 2001, 2002])
    inputs = [members_of(store, n, s, level) for n, s, level in
              (("t2m", 48, None), ("sst", 48, None), ("z", 48, 500), ("u10", 24, None),
               ("t2m", 0, None))]  # fmt: skip
    moments = [x.mean(axis=1) for x in inputs] + [x.std(axis=1, ddof=1) for x in inputs]
    assert batches.channels == (
        "t2m:mean", "sst:mean", "z_500:mean", "u10@24:mean", "t2m@0:mean",
        "t2m:std", "sst:std", "z_500:std", "u10@24:std", "t2m@0:std", "sst:mask",
        "sin_lat", "cos_lat_sin_lon", "cos_lat_cos_lon", "sin_day", "cos_day",
    )  # fmt: skip
    for c, moment in enumerate(moments):
        scale = moment[train].std(axis=0)
        floor = 0.05 * np.sqrt(np.nanmean(scale**2))
        want = (moment[test] - moment[train].mean(axis=0)) / np.maximum(scale, floor)
        np.testing.assert_allclose(got["features"][:, c], np.nan_to_num(want), atol=3e-3)
    land = np.isnan(inputs[1]).any(axis=1)[test]
    np.testing.assert_array_equal(got["features"][:, 10], ~land)
    np.testing.assert_array_equal(
        got["features"][:, 11:14], np.broadcast_to(location_features(
            batches.samples.latitude, batches.samples.longitude), (test.sum(), 3, 8, 16)),
    )  # fmt: skip
    day = np.array([(v - v.astype("datetime64[Y]")) / np.timedelta64(1, "D") for v in valid[test]])
    for c, wave in ((14, np.sin), (15, np.cos)):
        want = wave(2 * np.pi * day / 365.25)[:, None, None] + np.zeros((8, 16))
        np.testing.assert_allclose(got["features"][:, c], want, atol=1e-6)
    np.testing.assert_allclose(got["raw_mean"], moments[0][test], rtol=1e-6)
    np.testing.assert_allclose(got["raw_std"], moments[5][test], rtol=1e-5)
    np.testing.assert_array_equal(got["members"], inputs[0][test].astype(np.float32))
    np.testing.assert_array_equal(got["target"], truth.t2m.sel(step=48).to_numpy()[test])
    np.testing.assert_array_equal(got["dates"].astype("datetime64[s]"), valid[test])
    np.testing.assert_array_equal(batches.dates, valid[test])
    weights = area_weights(batches.samples.latitude)
    np.testing.assert_allclose(got["weights"], weights[:, None] + np.zeros((test.sum(), 8, 16)),
                               rtol=1e-6)  # fmt: skip
    assert got["weights"].sum() == pytest.approx(test.sum() * 8 * 16, rel=1e-6)
    assert {value.dtype for key, value in got.items() if key != "dates"} == {np.dtype("f4")}
    assert got["dates"].dtype == np.int64


def shuffled_axes(dataset):
    """The same data with other orders of dimensions, rows and columns."""
    order = ("latitude", "number", "time", "longitude", "step", "level")
    turned = dataset.isel(latitude=slice(None, None, -1)).transpose(*order, missing_dims="ignore")
    return turned.roll(longitude=5, roll_coords=True)


@pytest.mark.parametrize(
    "kind",
    [
        "grib",
        "zarr",
        "axes",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("memory", "store")),
    ],
)
def test_a_lazy_dataset_gives_the_batches_of_the_store(tiny, store, tmp_path, kind):
    data, truth = lazy(tiny)
    if kind == "memory":
        data, truth = data.load(), truth.load()
    elif kind == "zarr":
        data.to_zarr(tmp_path / "z", consolidated=False)
        data = xr.open_zarr(tmp_path / "z", consolidated=False)
    elif kind == "axes":
        data, truth = shuffled_axes(data), shuffled_axes(truth)
    elif kind == "store":
        data, truth = forecasts(store), open_store(store, "truth")
    settings = {"extras": ["day_of_year"], "members": True, "batch_size": 4, "seed": 3}
    for split in ("train", "test") if kind == "grib" else ("test",):
        stored = Batches(store, "t2m", INPUTS, split, **settings)
        streamed = Batches(data, "t2m", INPUTS, split, truth=truth, **settings)
        assert streamed.channels == stored.channels
        pairs = list(zip(stored, streamed, strict=True))
        assert len(pairs) == len(stored)
        for want, got in pairs:
            assert set(got) == set(want)
            for key in want:
                if key == "features":  # sums in another order: 1 ulp of float32
                    np.testing.assert_allclose(got[key], want[key], rtol=1e-5, atol=1e-5)
                else:
                    np.testing.assert_array_equal(got[key], want[key])


def test_data_stay_lazy(tiny):
    """Making a batch of one date touches no other date."""
    data, truth = lazy(tiny)
    times, touched = data.time.to_numpy(), []

    def watch(values):
        touched.append(values.shape)
        return values

    watched = data.assign(t2m=xr.apply_ufunc(
        watch, data.t2m, dask="parallelized", output_dtypes=[np.float32]))  # fmt: skip
    flat = np.zeros((2, 8, 16), np.float32)
    statistics = Normaliser(("t2m:mean", "t2m:std"), flat, flat + 1)
    batches = Batches(watched, "t2m", ["t2m"], "test", truth=truth, normaliser=statistics)
    touched.clear()
    batches.batch(np.array([3]))
    assert len(times) == 18
    assert [shape for shape in touched if 0 not in shape] == [(1, 1, 4, 8, 16)]


def test_statistics_come_from_training_years_alone(tiny, store):
    data, truth = lazy(tiny)
    data = data.load()
    late = data["valid_time"].sel(step=48).dt.year.to_numpy() >= 2004
    changed = data.copy(deep=True)
    changed["t2m"][np.flatnonzero(late)] += 40.0
    for protocol, same in (("clean", True), ("paper", False)):
        before, after = (
            Batches(each, "t2m", ["t2m", "u10"], protocol=protocol, truth=truth).normaliser
            for each in (data, changed)
        )
        assert np.array_equal(before.mean[0], after.mean[0]) is same
        assert np.array_equal(before.mean[1], after.mean[1])
    paper = Batches(store, "t2m", ["t2m"], protocol="paper").normaliser
    held = np.isin(data["valid_time"].sel(step=48).dt.year, YEARS)
    mean = members_of(store, "t2m", 48).mean(axis=1)[held]
    np.testing.assert_allclose(paper.mean[0], mean.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(paper.scale[0], mean.std(axis=0) + 0.1, rtol=1e-4)
    spread = members_of(store, "t2m", 48).std(axis=1, ddof=0)[held]
    np.testing.assert_allclose(paper.mean[1], spread.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(paper.scale[1], spread.std(axis=0) + 0.1, rtol=1e-3)


def test_all_surface_variables_are_22_channels_of_the_paper(tmp_path):
    folder = World("8x16", range(2000, 2004), 1, seed=1, members=2, steps=(48,)).write(
        tmp_path / "w"
    )
    data, truth = open_source(folder), open_source(folder / "truth")
    paper = Batches(data, "t2m", protocol="paper", truth=truth)
    clean = Batches(data, "t2m", protocol="clean", truth=truth)
    names = catalog.names_of_kind("sfc")
    want = [f"{name}:{moment}" for moment in ("mean", "std") for name in names]
    assert paper.channels == tuple(want)
    assert len(paper.channels) == 22
    assert clean.channels == (*want, "sst:mask")
    for batches in (paper, clean):
        got = whole(batches)
        assert np.isfinite(got["features"]).all()
        assert got["features"].shape[1] == len(batches.channels)
    biased = whole(paper)["raw_std"] / np.sqrt(0.5)
    np.testing.assert_allclose(whole(Batches(
        data, "t2m", protocol=Protocol(val="test", weighting="none"), truth=truth))["raw_std"],
        biased, rtol=1e-5)  # fmt: skip
    assert np.unique(whole(paper)["weights"]).tolist() == [1.0]


def test_gaps_of_target_and_truth(tiny):
    data, truth = lazy(tiny)
    truth = truth.load()
    holed = truth.assign(sst=truth.t2m.copy())
    holed["sst"][..., 2, 3] = np.nan
    batches = Batches(data, "sst", ["t2m"], "test", truth=holed)
    got = whole(batches)
    land = np.isnan(data.sst.isel(time=0).sel(step=48)).any("number").to_numpy()
    assert 0 < land.sum() < land.size
    np.testing.assert_array_equal(np.isnan(got["raw_mean"]), np.broadcast_to(
        land, got["raw_mean"].shape))  # fmt: skip
    out = land.copy()
    out[2, 3] = True
    for values in (got["weights"], got["target"]):
        np.testing.assert_array_equal(values == 0, np.broadcast_to(out, values.shape))
    assert all(np.isfinite(got[key]).all() for key in ("features", "target", "weights"))
    infinite = truth.assign(t2m=truth.t2m.where(truth.t2m < 290, np.inf))
    got = whole(Batches(data, "t2m", ["t2m"], "test", truth=infinite))
    assert np.isfinite(got["target"]).all()
    assert ((got["target"] == 0) == (got["weights"] == 0)).all()


STARTS = [dt.date(2000 + n, 5, 1) for n in range(5)]


def test_inputs_are_the_fields_they_name(tmp_path):
    folder = write_coded(tmp_path / "c", starts=STARTS, variables=("t2m", "msl", "z"),
                         levels=(500, 850), shape=(8, 16))  # fmt: skip
    # names that the catalogue lacks, since no catalogued variable can have such values
    data = open_source(folder).rename(t2m="tt", msl="mm", z="zz")
    for field in data.data_vars.values():
        field.attrs.clear()
    truth = (data.sel(step=48, number=1) + 0.5).drop_vars(["step", "number"])
    truth = truth.swap_dims(time="valid_time").drop_vars("time").rename(valid_time="time")
    prepare(data, tmp_path / "s", truth=truth)
    row, column = np.arange(8)[:, None], np.arange(16)
    inputs = ["zz850@0", "mm", "tt@24", "tt", "zz500@24"]
    named = ["zz_850@0", "mm", "tt", "tt@24", "zz_500@24"]  # grouped by step
    steps, channels = [0, 2, 2, 1, 1], [3, 1, 0, 0, 2]
    plain = Normaliser(
        tuple(f"{n}:{m}" for m in ("mean", "std") for n in named),
        np.zeros((10, 8, 16), np.float32), np.ones((10, 8, 16), np.float32),
    )  # fmt: skip
    for source in ({"data": tmp_path / "s"}, {"data": data, "truth": truth}):
        for target, c in (("tt@48", 0), ("zz850@48", 3), ("mm", 1)):
            got = Batches(**source, target=target, inputs=inputs, normaliser=plain, members=True)
            batch = got.batch(np.array([4, 2]))
            for n, d in enumerate((4, 2)):
                for k, (s, channel) in enumerate(zip(steps, channels, strict=True)):
                    want = np.mean(
                        [coded_value(d, s, m, channel, row, column) for m in range(3)], axis=0
                    )
                    np.testing.assert_allclose(batch["features"][n, k], want, rtol=1e-6)
                held = [coded_value(d, 2, m, c, row, column) for m in range(3)]
                np.testing.assert_array_equal(batch["members"][n], held)
                np.testing.assert_allclose(batch["raw_mean"][n], np.mean(held, axis=0), rtol=1e-6)
                np.testing.assert_allclose(batch["target"][n], held[0] + 0.5, atol=0.5)
            np.testing.assert_array_equal(
                batch["dates"].astype("datetime64[s]").astype("datetime64[D]"),
                np.array([f"{STARTS[d]:%Y}-05-03" for d in (4, 2)], dtype="datetime64[D]"),
            )


def test_default_inputs_are_those_on_the_targets_level(store):
    assert Batches(store, "z500").channels == ("z_500:mean", "t_500:mean", "z_500:std", "t_500:std")
    names = ("sst", "u10", "t2m")
    assert Batches(store, "2t").channels[:3] == tuple(f"{name}:mean" for name in names)


def test_levels_between_whole_hectopascals_and_names_with_digits(tiny, tmp_path):
    data, truth = lazy(tiny)
    data = data[["t2m", "z"]].load().assign(wind_10=data.u10.load())
    data["z"].attrs.pop("levels_hpa", None)
    data = data.assign_coords(level=[0.5, 850.0])
    truth = truth.load()[["t2m", "z"]].sel(level=[500]).assign_coords(level=[0.5])
    truth = truth.assign(wind_10=truth.t2m)
    truth["z"].attrs.pop("levels_hpa", None)
    prepare(data, tmp_path / "s", truth=truth)
    for source in ({"data": tmp_path / "s"}, {"data": data, "truth": truth}):
        assert Batches(**source, target="t2m").inputs == [("t2m", 48), ("wind_10", 48)]
        upper = Batches(**source, target="z0.5", members=True)
        assert upper.inputs == [("z_0.5", 48)]
        want = data.z.sel(step=48, level=0.5).to_numpy()[0]
        np.testing.assert_array_equal(upper.batch(np.array([0]))["members"][0], want)
        flat = Batches(**source, target="wind_10", members=True)
        want = data.wind_10.sel(step=48).to_numpy()[0]
        np.testing.assert_array_equal(flat.batch(np.array([0]))["members"][0], want)


def test_one_member_and_one_step_need_no_dimensions(tiny):
    data, truth = lazy(tiny)
    one = data[["t2m", "u10"]].sel(step=48, number=2).load()
    got = whole(Batches(one, "t2m", split="test", truth=truth))
    np.testing.assert_array_equal(got["raw_std"], 0.0)
    np.testing.assert_array_equal(
        got["raw_mean"], one.t2m.to_numpy()[np.isin(one.valid_time.dt.year, (2004, 2005))]
    )
