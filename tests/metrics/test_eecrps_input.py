"""How an EFI knows what it was made of, and what a weighted CRPS refuses."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.extremes import FrozenEFI, eecrps, eecrps_state, frozen_efi, origin

LEVELS = np.linspace(0, 1, 101)
AXES = {"member_dim": 0, "quantile_dim": 0, "levels": LEVELS}
EMOS = origin("emos")


def case(seed=0, shape=(3, 4), M=5):
    rng = np.random.default_rng(seed)
    members = rng.normal(size=(M, *shape)).astype(np.float32)
    climate = np.sort(rng.normal(size=(101, *shape)), axis=0)
    return members, climate, rng.gamma(2, size=shape)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    axes=st.permutations([0, 1, 2]),
    kind=st.sampled_from(["numpy", "float64", "torch", "xarray", "fortran", "members"]),
)
def test_arrays_are_known_again(seed, axes, kind):
    members, _, _ = case(seed)
    members[0, 0, 0] = 0.0
    turned = members.transpose(axes)
    made = {
        "numpy": lambda: turned,
        "float64": lambda: np.where(turned == 0, -0.0, turned.astype(float)),
        "torch": lambda: torch.tensor(turned.copy()),
        "xarray": lambda: xr.DataArray(turned, dims=list("abc")),
        "fortran": lambda: np.asfortranarray(turned),
        "members": lambda: np.random.default_rng(seed).permutation(members),
    }[kind]()
    assert origin("a", members).same_as(origin("b", made))
    changed = members.copy()
    changed[1, 1, 1] = np.nextafter(changed[1, 1, 1], np.float32(9))
    assert not origin("a", members).same_as(origin("b", changed))
    assert not origin("a", members).same_as(origin("b", members[:, :2]))


def test_marks_of_large_arrays_and_of_gaps():
    many = np.arange(100_000, dtype=np.float32)
    swapped = many.copy()
    swapped[[0, 99_999]] = swapped[[99_999, 0]]
    assert origin("a", many).same_as(origin("b", swapped))
    swapped[0] = -1
    assert not origin("a", many).same_as(origin("b", swapped))
    gaps = np.array([np.nan, 1], np.float32)
    assert origin("a", gaps).same_as(origin("b", gaps.astype(float)))


def test_dates_are_known_again():
    members, climate, scores = case(1)
    dims = ("number", "time", "latitude")
    x = xr.DataArray(members, dims=dims, coords={"time": np.arange(3)})
    made = frozen_efi(members, climate, source="raw", **AXES).map(lambda e: e[1:])
    block = FrozenEFI(made.values, origin("raw", x), "exact")
    assert len(set(block.origin.marks)) == 3
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps(scores[1:], block, forecast=origin("emos", x.isel(time=slice(1, None))))
    eecrps(scores[1:], block, forecast=origin("emos", x.isel(time=slice(1, None)) + 1))


def test_lazy_arrays_are_known_by_their_graph():
    members, climate, scores = case()
    lazy = da.from_array(members, chunks=-1)

    def not_to_be_read(block):
        raise AssertionError

    unread = lazy.map_blocks(not_to_be_read, meta=np.empty((0, 0, 0), np.float32))
    assert origin("a", unread).same_as(origin("b", xr.DataArray(unread)))
    made = frozen_efi(lazy, da.asarray(climate), source="raw", **AXES)
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps(da.asarray(scores), made, forecast=origin("emos", lazy))
    # what one side has in memory is known by its name only
    eecrps(da.asarray(scores), made, forecast=origin("emos", members))
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps(da.asarray(scores), made, forecast=origin("raw", members))


def test_the_raw_ensemble_itself():
    members, climate, scores = case()
    made = frozen_efi(members, climate, source="raw", **AXES)
    wanted = np.abs(made.values) * scores
    for forecast in (origin("raw"), origin(" raw "), origin("unprocessed", members)):
        with pytest.raises(ArgumentError, match=r"made from 'raw', .* write scores_raw=True"):
            eecrps(scores, made, forecast=forecast)
        got = eecrps(scores, made, forecast=forecast, scores_raw=True)
        np.testing.assert_allclose(got, wanted)
    with pytest.raises(ArgumentError, match=r"scores_raw: the EFI is of 'raw', .* is 'emos'"):
        eecrps(scores, made, forecast=EMOS, scores_raw=True)
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps_state(scores, made, forecast=origin("raw"))
    # a forecast of which one parameter is an array of members
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps(scores, made, forecast=origin("emos", scores, members))


def test_what_is_refused():
    members, climate, scores = case()
    made = frozen_efi(members, climate, source="raw", **AXES)
    with pytest.raises(ArgumentError, match="raw_efi: ndarray is not a FrozenEFI"):
        eecrps(scores, made.values, forecast=EMOS)
    with pytest.raises(ArgumentError, match="forecast: 'emos' is not an origin"):
        eecrps(scores, made, forecast="emos")
    for name in ("", "  ", None, 3):
        with pytest.raises(ArgumentError, match=r"source: .* is not a name"):
            origin(name)
    with pytest.raises(UnknownNameError, match="normalisation: 'means' is not known; did you mean"):
        eecrps(scores, made, forecast=EMOS, normalisation="means")
    with pytest.raises(ArgumentError, match='dim: "weighted" is a ratio of sums'):
        eecrps(scores, made, forecast=EMOS, normalisation="weighted")
    with pytest.raises(UnknownNameError, match="nan: 'skip' is not known"):
        eecrps(scores, made, forecast=EMOS, nan="skip", dim="all")
    for other in (scores[:1], scores[0], scores[None]):
        with pytest.raises(ArgumentError, match=r"raw_efi: shape \(3, 4\) for scores of shape"):
            eecrps(other, made, forecast=EMOS)
    with pytest.raises(ArgumentError, match="several libraries"):
        eecrps(torch.tensor(scores), made, forecast=EMOS)
    with pytest.raises(UnknownNameError, match="method: 'exakt'"):
        frozen_efi(members, climate, source="raw", method="exakt", **AXES)


def test_labels_that_differ():
    scores = case()[2]
    coords = {"time": np.arange(3), "latitude": np.arange(4.0)}
    made = FrozenEFI(
        xr.DataArray(scores - 1, dims=("time", "latitude"), coords=coords), origin("raw"), "exact"
    )
    one = xr.DataArray(scores, dims=("time", "latitude"), coords=coords, attrs={"units": "K"})
    with pytest.raises(ArgumentError, match="raw_efi: its time differs from that of crps"):
        eecrps(one.assign_coords(time=[1, 2, 3]), made, forecast=EMOS)
    with pytest.raises(ArgumentError, match=r"raw_efi: dimensions .* for scores over"):
        eecrps(one.isel(time=0), made, forecast=EMOS)
    turned = eecrps(one.transpose(), made, forecast=EMOS)
    np.testing.assert_allclose(turned.transpose("time", "latitude"), abs(made.values) * one)
    assert turned.attrs == {
        "long_name": "extreme event weighted CRPS",
        "efi_source": "raw",
        "efi_method": "exact",
        "units": "K",
    }
    assert turned.name == "eecrps"
