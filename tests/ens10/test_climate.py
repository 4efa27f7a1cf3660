import numpy as np
import pytest
import xarray as xr
from gribfiles import GRID
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10 import open_store, prepare
from ens10.climate import blocks, normaliser, sums_of_years
from ens10.errors import ArgumentError

STARTS = np.array(["2014-06-01", "2014-12-31", "2015-01-01", "2015-12-30", "2016-12-31"], "M8[ns]")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    members = rng.normal(280, 5, size=(5, 3, 4, GRID.rows, GRID.columns)).astype("f4")
    members[:, :, :, 0] = np.nan  # land
    members[1, :, 2, 1] = np.nan  # one member, one date
    dims = ("time", "step", "number", "latitude", "longitude")
    coordinates = {
        "time": STARTS,
        "step": [0, 24, 48],
        "number": [1, 2, 3, 4],
        "latitude": GRID.latitude(),
        "longitude": GRID.longitude(),
    }
    dataset = xr.Dataset({"sst": (dims, members)}, coordinates).chunk(time=1, step=1)
    return prepare(dataset, tmp_path_factory.mktemp("climate") / "s"), members


def test_moments_equal_numpy(store):
    path, members = store
    statistics = open_store(path, "statistics").sel(channel="sst")
    wide = members.astype("f8")
    np.testing.assert_array_equal(statistics.ensemble_mean, wide.mean(2).astype("f4"))
    np.testing.assert_array_equal(statistics.ensemble_std, wide.std(2, ddof=1).astype("f4"))


@settings(max_examples=20, deadline=None)
@given(
    years=st.sets(st.sampled_from([2014, 2015, 2016, 2017])),
    target_step=st.sampled_from([0, 24, 48]),
    step=st.sampled_from([0, 24, 48]),
    kind=st.sampled_from(["mean", "std"]),
)
def test_sums_of_any_years_equal_direct_ones(store, years, target_step, step, kind):
    statistics = open_store(store[0], "statistics")
    valid = STARTS + np.timedelta64(target_step, "h")
    chosen = np.isin(valid.astype("M8[Y]").astype(int) + 1970, list(years))
    values = statistics[f"ensemble_{kind}"].sel(step=step).to_numpy()[chosen].astype("f8")
    count, total, square = sums_of_years(statistics, years, target_step, step, kind)
    np.testing.assert_array_equal(count, np.isfinite(values).sum(0))
    np.testing.assert_allclose(total, np.nansum(values, 0), rtol=1e-13)
    np.testing.assert_allclose(square, np.nansum(values**2, 0), rtol=1e-13)
    assert not count[:, 0].any()


def test_blocks_share_their_years_at_every_step():
    valid = STARTS[:, None] + np.array([0, 24, 48], "m8[h]")
    years, member = blocks(valid)
    assert member == [0, 1, 2, 3, 4]
    assert years.tolist()[3:] == [[2015, 2015, 2016], [2016, 2017, 2017]]
    assert blocks(valid[[0, 0, 1]])[1] == [0, 0, 1]


def sums(values):
    ok = np.isfinite(values)
    held = np.where(ok, values, 0.0)
    return ok.sum(0), held.sum(0), (held**2).sum(0)


@pytest.mark.parametrize("epsilon", ["paper", "relative"])
def test_normaliser_scales_as_named(epsilon):
    values = np.random.default_rng(1).normal(270, 3, size=(50, 2, 4, 5))
    made = normaliser(["a", "b"], *sums(values), epsilon)
    add = 0.1 if epsilon == "paper" else 0.0
    np.testing.assert_allclose(made.mean, values.mean(0), rtol=1e-6)
    np.testing.assert_allclose(made.scale, values.std(0) + add, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-9, 1.0, 273.15, 5e5])
def test_normaliser_never_divides_by_nothing(size):
    values = np.full((30, 3, 2, 3), size)
    values[:, 0, 0, 0] += np.random.default_rng(0).normal(size=30) * size / 10
    values[:, 1] = np.nan
    made = normaliser(["part", "none", "constant"], *sums(values))
    typical = made.scale[0, 0, 0] / np.sqrt(6)  # root mean square; one point of six varies
    np.testing.assert_allclose(made.scale[0].min(), 0.05 * typical, rtol=1e-5)
    features = values[:1].astype("f4")
    made.apply(features)
    assert np.isfinite(features).all()
    assert not features[0, 1].any()
    assert np.abs(features[0, 2]).max() < 1.0  # a constant stays near 0
    with pytest.raises(ArgumentError, match="normalisation statistics"):
        made.apply(features[..., :2])
