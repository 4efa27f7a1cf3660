"""What the extreme forecast index is given: libraries, lazy climates, gaps, and what is refused."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.extremes import cpf, efi, sot
from ens10.quantiles import model_climate

LEVELS = np.linspace(0, 1, 101)
LAG = np.timedelta64(48, "h")
METHODS = ("exact", "ecmwf", "ens10-paper")


def case(seed=0, shape=(3, 4, 5), M=6, K=101):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(M, *shape)), np.sort(rng.normal(size=(K, *shape[1:])), axis=0)


def levels_of(method):
    return LEVELS[::5] if method == "ens10-paper" else LEVELS


def indices(K=101):
    """Every function of members and climate, by a name."""
    axes = {"member_dim": 0, "quantile_dim": 0}
    every = {
        "sot": lambda x, q, **o: sot(x, q, **{"levels": LEVELS, "level": 90, **axes, **o}),
        "cpf": lambda x, q, **o: cpf(x, q, **{"levels": LEVELS, **axes, **o}),
    }
    for method in METHODS:
        base = {"levels": levels_of(method), "method": method, **axes}
        every[method] = lambda x, q, base=base, **o: efi(x, q, **{**base, **o})
    return every


EVERY = indices()


def climate_for(name, climate):
    return climate[::5] if name == "ens10-paper" else climate


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(sorted(EVERY)),
    member=st.integers(0, 3),
    quantile=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_all_libraries_agree(name, member, quantile, seed):
    x, q = case(seed)
    q = climate_for(name, q)
    wanted = EVERY[name](x, q)
    x, q = np.moveaxis(x, 0, member), np.moveaxis(q, 0, quantile)
    call = {"member_dim": member, "quantile_dim": quantile}
    np.testing.assert_array_equal(EVERY[name](x, q, **call), wanted)
    tensors = EVERY[name](torch.tensor(x), torch.tensor(q.copy()), **call)
    np.testing.assert_allclose(tensors, wanted, atol=1e-14)
    cut = [2] * 4
    cut[member] = -1
    lazy = EVERY[name](da.from_array(x, chunks=cut), da.from_array(q), **call)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy, wanted)
    outer, inner = ["time", "latitude", "longitude"], ["latitude", "longitude"]
    dims = outer.copy(), inner.copy()
    dims[0].insert(member, "number")
    dims[1].insert(quantile, "quantile")
    labelled = (xr.DataArray(a, dims=d) for a, d in zip((x, q), dims, strict=True))
    got = EVERY[name](*labelled, member_dim="number", quantile_dim="quantile")
    np.testing.assert_array_equal(got.transpose(*outer), wanted)


def test_the_lazy_climate_of_each_date():
    time = np.array(
        [f"{year}-{day}" for year in range(1998, 2018) for day in ("01-04", "01-08", "01-11")],
        "M8[ns]",
    )
    rng = np.random.default_rng(1)
    grid = {"latitude": np.linspace(90, -90, 3), "longitude": np.arange(4) * 90.0}
    members = xr.DataArray(
        rng.normal(280, 3, size=(time.size, 5, 3, 4)).astype(np.float32),
        dims=("time", "number", *grid),
        coords={"time": time, "valid_time": ("time", time + LAG), **grid},
        attrs={"units": "K"},
    )
    judged = members.isel(time=slice(-6, None)).chunk({"time": 1})
    climate = model_climate(members, step=None, dates=judged["time"].to_numpy())
    got = efi(judged, climate, member_dim="number", quantile_dim="quantile")
    assert dask.is_dask_collection(got)
    assert got.chunks[0] == (1,) * 6
    assert set(got.coords) == set(judged.coords)
    assert got.dims == ("time", "latitude", "longitude")
    x, q = judged.isel(time=2), climate.isel(time=2)
    wanted = efi(x.to_numpy(), q.to_numpy(), member_dim=0, quantile_dim=0, levels=LEVELS)
    np.testing.assert_array_equal(got.isel(time=2), wanted)
    with pytest.raises(ArgumentError, match="units differ: members in degC, climate in K"):
        efi(
            judged.assign_attrs(units="degC"), climate, member_dim="number", quantile_dim="quantile"
        )
    with pytest.raises(ArgumentError, match="climate: its latitude differs from that of members"):
        efi(judged[:, :, :2], climate, member_dim="number", quantile_dim="quantile")


@pytest.mark.parametrize("method", METHODS)
def test_missing_members(method):
    x, q = case(2, (1, 1, 5))
    x[0, ..., 1], x[:2, ..., 2], x[:, ..., 3] = np.nan, np.nan, np.nan
    index, q = EVERY[method], climate_for(method, q)
    got = index(x, q)[0, 0]
    assert np.isnan(got[1:4]).all()
    assert np.isfinite(got[[0, 4]]).all()
    skipped = index(x, q, nan="skip-members")[0, 0]
    np.testing.assert_allclose(skipped[2], index(x[2:], q)[0, 0, 2], atol=1e-15)
    assert np.isnan(skipped[3])
    mean = index(x, q, dim="all", nan="omit")
    assert mean == pytest.approx(got[[0, 4]].mean())
    tensors = torch.tensor(x), torch.tensor(q)
    np.testing.assert_allclose(index(*tensors, nan="skip-members")[0, 0], skipped, atol=1e-14)


def test_missing_members_have_no_gradient():
    x, q = (torch.tensor(a) for a in case(3, (1, 1, 3)))
    x[0, ..., 1] = torch.nan
    x.requires_grad_()
    EVERY["exact"](x, q, dim="all", nan="skip-members").backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[0, 0, 0, 1] == 0


@pytest.mark.parametrize("name", EVERY)
def test_a_point_without_climate(name):
    x, q = case(4, (2, 3, 400))  # as sea temperature over land
    q[:, 1, 7] = np.nan
    q = climate_for(name, q)
    wanted = np.zeros((2, 3, 400), bool)
    wanted[:, 1, 7] = True
    np.testing.assert_array_equal(np.isnan(EVERY[name](x, q)), wanted)
    np.testing.assert_array_equal(EVERY[name](torch.tensor(x), torch.tensor(q)).isnan(), wanted)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, da.asarray])
def test_climates_that_are_refused(name, kind):
    x, q = case(5, (2, 3, 70))
    q = climate_for(name, q)
    bad = q.copy()
    bad[[3, 4], 2, 68] = bad[[4, 3], 2, 68]
    with pytest.raises(ArgumentError, match="climate: quantiles that do not ascend"):
        np.asarray(EVERY[name](kind(x), kind(bad)))
    gap = q.copy()
    gap[0, 2, 5] = np.nan
    with pytest.raises(ArgumentError, match="climate: NaN among the quantiles"):
        np.asarray(EVERY[name](kind(x), kind(gap)))
    # lazily, nothing is said before it is computed
    assert isinstance(EVERY[name](da.asarray(x), da.asarray(bad)), da.Array)


@pytest.mark.parametrize("name", EVERY)
def test_one_member_is_refused(name):
    x, q = case(6, M=1)
    with pytest.raises(ArgumentError, match="members: 1 member is not a distribution"):
        EVERY[name](x, climate_for(name, q))


def test_levels_that_are_refused():
    x, q = case(7)
    call = {"member_dim": 0, "quantile_dim": 0}
    with pytest.raises(ArgumentError, match="levels: the climate has no coordinate of levels"):
        efi(x, q, **call)
    with pytest.raises(ArgumentError, match=r"levels: shape \(100,\) for 101 quantiles"):
        efi(x, q, levels=LEVELS[:-1], **call)
    for wrong in (LEVELS[::-1], LEVELS * 100, LEVELS - 0.1, LEVELS * np.nan):
        with pytest.raises(ArgumentError, match="they do not ascend from 0 or more to 1 or less"):
            efi(x, q, levels=wrong, **call)
    with pytest.raises(ArgumentError, match=r'"ecmwf" needs 101 quantiles .* got 21 from 0 to 1'):
        efi(x, q[::5], levels=LEVELS[::5], method="ecmwf", **call)
    with pytest.raises(ArgumentError, match=r'"ens10-paper" needs 21 quantiles .* got 101'):
        efi(x, q, levels=LEVELS, method="ens10-paper", **call)
    with pytest.raises(ArgumentError, match="evenly from 0 to 1"):
        efi(x, q, levels=LEVELS**1.1, method="ecmwf", **call)
    held = xr.DataArray(q, dims=("quantile", "a", "b"), coords={"quantile": LEVELS})
    named = xr.DataArray(x, dims=("number", "t", "a", "b"))
    with pytest.raises(ArgumentError, match="they differ from the climate's coordinate"):
        efi(named, held, levels=LEVELS**2, member_dim="number", quantile_dim="quantile")
    with pytest.raises(ArgumentError, match="climate has no dimension 'percentile'"):
        efi(named, held, member_dim="number", quantile_dim="percentile")


def test_other_arguments_that_are_refused():
    x, q = case(8)
    call = {"member_dim": 0, "quantile_dim": 0, "levels": LEVELS}
    with pytest.raises(UnknownNameError, match="method: 'ecmfw' is not known; did you mean 'ecmwf"):
        efi(x, q, method="ecmfw", **call)
    with pytest.raises(UnknownNameError, match="nan: 'skip' is not known"):
        efi(x, q, nan="skip", **call)
    for method, epsilon in (("exact", 0.1), ("ecmwf", 0.0), ("ecmwf", -1.0), ("ecmwf", np.nan)):
        with pytest.raises(ArgumentError, match=r"epsilon: .* It belongs to"):
            efi(x, q, method=method, epsilon=epsilon, **call)
    with pytest.raises(ArgumentError, match="climate: shapes that do not fit"):
        efi(x, q[:, :3], **call)
    with pytest.raises(ArgumentError, match="climate: the index has no gradient for its climate"):
        efi(torch.tensor(x), torch.tensor(q, requires_grad=True), **call)
    with pytest.raises(ArgumentError, match="members: efi has no gradient"):
        efi(torch.tensor(x, requires_grad=True), torch.tensor(q), method="ecmwf", **call)


def test_no_dates_and_half_precision():
    climate = np.linspace(-2, 2, 101)[:, None].repeat(3, 1)
    for dtype in (np.float16, np.float32):
        given = {"member_dim": 0, "quantile_dim": 0, "levels": np.linspace(0, 1, 101)}
        none = np.zeros((4, 0, 3), dtype)
        assert efi(none, climate.astype(dtype), **given).shape == (0, 3)
        some = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(dtype)
        wanted = efi(some.astype(np.float64), climate.astype(dtype).astype(np.float64), **given)
        got = efi(some, climate.astype(dtype), **given)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, atol=2e-3)
