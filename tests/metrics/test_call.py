"""How every score is called: libraries, axes, coordinates, units, means; with one simple score."""

import inspect
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import ens10.metrics
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics._call import RechunkWarning, Score, apply
from ens10.metrics._reduce import mean_over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.uncertainty import default_block_length

DIMS = ("time", "number", "latitude")


def parameters(name):
    """The parameters of a public function, and whether each must be given; none of a class."""
    function = getattr(ens10.metrics, name)
    if not inspect.isfunction(function):
        return {}
    return {p.name: p.default is p.empty for p in inspect.signature(function).parameters.values()}


def mean_error(members, y, scale):
    return scale * (members - y).mean(axis=0)


def mean_error_of_tensors(members, y, scale):
    return scale * (members - y).mean(dim=0)


SCORE = Score("error", "mean error", mean_error, mean_error_of_tensors)
HOSTED = Score("error", "mean error", mean_error)


def call(members, y, member_dim, scale=2.0, score=SCORE):
    return apply(score, {"members": members, "y": y, "scale": scale}, {"members": [member_dim]})


def case(seed=0, shape=(4, 3, 5), axis=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.normal(size=shape[:axis] + shape[axis + 1 :])


def named(members, y, **attrs):
    coords = {"time": np.arange(4), "latitude": np.arange(5.0)}
    x = xr.DataArray(members, dims=DIMS, coords=coords, attrs=attrs)
    return x, xr.DataArray(y, dims=("time", "latitude"), coords=coords, attrs=attrs)


@settings(max_examples=30, deadline=None)
@given(axis=st.integers(-4, 3), seed=st.integers(0, 99), chunk=st.integers(1, 3))
def test_all_libraries_agree(axis, seed, chunk):
    shape = (3, 4, 2, 5)
    members, y = case(seed, shape, axis % 4)
    wanted = 2 * (members.mean(axis=axis) - y)
    np.testing.assert_allclose(call(members, y, axis), wanted, atol=1e-14)
    tensors = torch.tensor(members), torch.tensor(y)
    np.testing.assert_allclose(call(*tensors, axis), wanted, atol=1e-14)
    np.testing.assert_allclose(call(*tensors, axis, score=HOSTED), wanted, atol=1e-14)
    whole = {axis % 4: -1}
    lazy = da.from_array(members, chunks={i: whole.get(i, chunk) for i in range(4)})
    got = call(lazy, da.from_array(y, chunks=2), axis)
    assert isinstance(got, da.Array)
    np.testing.assert_allclose(got.compute(), wanted, atol=1e-14)
    labels = xr.DataArray(members, dims=list("abcd"))
    got = call(labels, xr.DataArray(y, dims=[d for d in "abcd" if d != "abcd"[axis]]), "abcd"[axis])
    np.testing.assert_allclose(got, wanted, atol=1e-14)


def test_what_is_given_comes_back():
    members, y = case()
    x, observed = named(members, y, units="K")
    got = call(x.chunk({"time": 2}), observed.chunk({"time": 1}), "number")
    assert dask.is_dask_collection(got)
    assert got.attrs == {"units": "K", "long_name": "mean error"}
    assert got.name == "error"
    assert call(members.astype(np.float32), y.astype(np.float32), 1).dtype == np.float32
    assert call(torch.tensor(members).float(), 0.0, 1).dtype == torch.float32
    assert call(torch.tensor(members), torch.tensor(y).float(), 1).dtype == torch.float64


def test_gradients_pass():
    members, y = (torch.tensor(a, requires_grad=True) for a in case())
    assert torch.autograd.gradcheck(lambda m, o: call(m, o, 1), (members, y))
    with pytest.raises(ArgumentError, match="members: error has no gradient"):
        call(members, y, 1, score=HOSTED)


def test_joining_chunks_is_said():
    members, y = case()
    x, observed = named(members, y)
    wanted = call(x, observed, "number")
    with pytest.warns(RechunkWarning, match="its 3 chunks are joined"):
        got = call(x.chunk({"number": 1}), observed, "number")
    np.testing.assert_array_equal(got, wanted)
    with pytest.warns(RechunkWarning, match="its 3 chunks are joined"):
        call(da.from_array(members, chunks=1), da.from_array(y, chunks=1), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x.chunk({"time": 1}), observed, "number")


@pytest.mark.parametrize("cut", [(4, 3, 5), (3, 5), (2, 5), (1, 4, 5)])
def test_observations_that_do_not_fit(cut):
    members, _ = case()
    y = np.zeros(cut)
    for kind in (np.asarray, torch.tensor, da.asarray):
        with pytest.raises(ArgumentError, match=r"y: shapes that do not fit each other"):
            call(kind(members), kind(y), 1)


def test_observations_that_broadcast():
    members, y = case()
    for part in (y[:1], y[0], y[:, :1], np.float64(0.5)):
        wanted = call(members, np.broadcast_to(part, y.shape), 1)
        np.testing.assert_array_equal(call(members, part, 1), wanted)
        lazy = call(da.from_array(members, chunks=(2, -1, 2)), part, 1)
        np.testing.assert_array_equal(lazy, wanted)


def test_a_dataset_is_no_array():
    members, y = case()
    x, observed = named(members, y)
    both = xr.Dataset({"t2m": x, "u10": x})
    wanted = r"expected a DataArray, not a Dataset \(its variables: 't2m', 'u10'\)\. Choose"
    for array in (observed, y, torch.tensor(y), observed.chunk()):
        with pytest.raises(ArgumentError, match=rf"^members: {wanted} .*ds\['t2m'\]\.$"):
            call(both, array, "number")
    with pytest.raises(ArgumentError, match=rf"^y: {wanted}"):
        call(x, both, "number")
    with pytest.raises(ArgumentError, match=r"^score: "):
        mean_over(both, "all")
    with pytest.raises(ArgumentError, match=r"\(its variables: none\)"):
        call(xr.Dataset(), y, "number")


OPTIONS = {
    "estimator": "plain", "member_dim": "number", "variable_dim": "latitude", "threshold": 280.0,
    "longitude_dim": "latitude", "latitude_dim": "time", "levels": [0.25, 0.5, 0.75], "level": 90,
    "quantile_dim": "number", "rule": "mean", "seed": 0, "edges": [0.0, 1.0], "window": 3,
    "component_dim": "number", "coefficient_dim": "number", "category_dim": "number",
    "thresholds": [280.0], "emphasis": "tails",
}  # fmt: skip
ARRAYS = {"members", "values", "mu", "forecast", "mean", "coefficients", "probabilities"}


@pytest.mark.parametrize(
    "name",
    [name for name in ens10.metrics.__all__
     if {"y", "climate", "category"} & {*parameters(name)} and ARRAYS & {*parameters(name)}
     and "truth" not in parameters(name)],
)  # fmt: skip
def test_no_score_takes_a_dataset(name):
    x, _ = named(*case())
    both = xr.Dataset({"t2m": x, "u10": x})
    wanted = {key: OPTIONS.get(key, both) for key, needed in parameters(name).items() if needed}
    with pytest.raises(ArgumentError, match=r"expected a DataArray, not a Dataset"):
        getattr(ens10.metrics, name)(**wanted)


@pytest.mark.parametrize(
    "call_of",
    [
        area_weights, default_block_length, ens10.metrics.latitude_bands,
        ens10.metrics.automatic_block_length, ens10.metrics.pit_counts,
        lambda both: ens10.metrics.region_boxes({"here": (0, 1, 0, 1)}, both, [0.0]),
        lambda both: ens10.metrics.diebold_mariano(both, time_dim="time"),
    ],
)  # fmt: skip
def test_nor_do_the_functions_of_one_array(call_of):
    x, _ = named(*case())
    with pytest.raises(ArgumentError, match=r"expected a DataArray, not a Dataset"):
        call_of(xr.Dataset({"t2m": x}))


def test_axes_that_are_not_there():
    members, y = case()
    for axis in (3, -4, "number", 1.0, True):
        with pytest.raises(ArgumentError, match="number of one of the 3 axes of members"):
            call(members, y, axis)
    with pytest.raises(ArgumentError, match="members has no dimension 'member', only"):
        call(*named(members, y), "member")
    x, _ = named(members, y)
    with pytest.raises(ArgumentError, match="y: has the dimension 'number' of the forecast"):
        call(x, x, "number")


def test_labels_that_differ():
    x, observed = named(*case(), units="K")
    with pytest.raises(ArgumentError, match=r"y: its time differs .* \(3, 4 is in one only"):
        call(x, observed.assign_coords(time=[0, 1, 2, 4]), "number")
    with pytest.raises(ArgumentError, match=r"y: its latitude differs .*\(in another order\)"):
        call(x, observed.isel(latitude=slice(None, None, -1)), "number")
    with pytest.raises(ArgumentError, match="units differ: members in K, y in degC"):
        call(x, observed.assign_attrs(units="degC"), "number")
    with pytest.raises(ArgumentError, match="several libraries"):
        call(x, observed.to_numpy(), "number")


def spread_of(kind, score, weights):
    if kind == "xarray":
        dims = ("time", "latitude")
        return xr.DataArray(score, dims=dims), xr.DataArray(weights, dims=dims[1:]), dims
    make = {"numpy": np.asarray, "torch": torch.tensor, "dask": da.asarray}[kind]
    return make(score), make(weights), (0, 1)


@pytest.mark.parametrize("kind", ["numpy", "torch", "dask", "xarray"])
def test_means(kind):
    rng = np.random.default_rng(1)
    values, w = rng.normal(size=(4, 5)), rng.random(5)
    score, weights, dims = spread_of(kind, values, w)
    assert mean_over(score, None) is score
    for over, axes in ((dims[0], 0), (dims[1], 1), (dims, (0, 1)), ("all", (0, 1))):
        np.testing.assert_allclose(mean_over(score, over), values.mean(axis=axes))
        got = mean_over(score, over, weights)
        wide = np.broadcast_to(w, values.shape)
        np.testing.assert_allclose(got, np.average(values, axis=axes, weights=wide))


@pytest.mark.parametrize("kind", ["numpy", "torch", "dask", "xarray"])
def test_missing_points(kind):
    values = np.array([[1.0, np.nan, 3.0], [np.nan] * 3])
    score, weights, dims = spread_of(kind, values, np.array([1.0, 5.0, 3.0]))
    assert np.isnan(np.asarray(mean_over(score, "all", weights)))
    got = np.asarray(mean_over(score, dims[1], weights, "omit"))
    np.testing.assert_allclose(got, [2.5, np.nan])  # (1 * 1 + 3 * 3) / 4


def test_a_missing_point_has_no_gradient():
    score = torch.tensor([1.0, torch.nan, 3.0], requires_grad=True)
    mean_over(score, "all", None, "omit").backward()
    np.testing.assert_array_equal(score.grad, [0.5, 0.0, 0.5])


def test_means_in_float32_are_not():
    many = np.full(2**24 + 2, 0.1, np.float32)
    assert mean_over(many, "all") == pytest.approx(float(np.float32(0.1)), rel=1e-12)


ONES = np.ones((4, 5))
LABELLED = xr.DataArray(ONES, dims=("a", "b"), coords={"b": np.arange(5)})
OF_C = xr.DataArray(np.ones(3), dims="c")
SHIFTED = xr.DataArray(np.ones(5), dims="b", coords={"b": np.arange(1, 6)})


@pytest.mark.parametrize(
    ("score", "dim", "weights", "words"),
    [
        (ONES, None, np.ones(5), "weights: it applies to a mean"),
        (ONES, 0, np.ones(4), r"weights: shape \(4,\) does not broadcast"),
        (ONES, 2, None, "one of the 2 axes of scores, got 2"),
        (LABELLED, "c", None, "dim: the scores have no dimension 'c'"),
        (LABELLED, "a", OF_C, r"dimensions \['c'\] that the scores lack"),
        (LABELLED, "b", SHIFTED, "weights: its coordinates differ"),
    ],
)
def test_what_a_mean_refuses(score, dim, weights, words):
    with pytest.raises(ArgumentError, match=words):
        mean_over(score, dim, weights)


@pytest.mark.parametrize(
    ("dim", "nan", "error", "words"),
    [
        ("all", "omitt", UnknownNameError, "nan: 'omitt' is not known; did you mean 'omit'"),
        (None, "omit", ArgumentError, "nan: it applies to a mean, and dim is None"),
    ],
)
def test_missing_values_of_a_mean(dim, nan, error, words):
    with pytest.raises(error, match=words):
        mean_over(ONES, dim, nan=nan)


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_other_coordinates_do_not_get_chunks_of_their_own(cut):
    members, y = case()
    x, observed = named(members, y)
    for lazy in (False, True):
        late = ("time", da.arange(4, chunks=4) if lazy else np.arange(4))
        a, b = x.chunk({"time": cut, "number": 1}), observed.chunk({"time": 2})
        with pytest.warns(RechunkWarning):
            got = call(a.assign_coords(valid_time=late), b.assign_coords(valid_time=late), "number")
        assert (got["valid_time"].chunks is not None) == lazy
        assert sum(got.chunksizes["time"]) == 4
        np.testing.assert_array_equal(got, call(x, observed, "number"))
        np.testing.assert_array_equal(got["valid_time"], np.arange(4))


def test_lengths_that_differ_without_coordinates():
    members, y = case()
    x = xr.DataArray(members, dims=DIMS)
    for short in (xr.DataArray(y[:, :4], dims=DIMS[::2]), xr.DataArray(y[:, :1], dims=DIMS[::2])):
        with pytest.raises(ArgumentError, match=r"y: latitude is \d long, and 5 in members"):
            call(x, short, "number")
        with pytest.raises(ArgumentError, match=r"y: latitude is \d long, and 5 in members"):
            as_labelled({"members": x, "y": short}, {"members": {"m": "number"}})


def test_whole_numbers_of_numpy_are_axes():
    members, y = case()
    np.testing.assert_array_equal(call(members, y, np.int64(1)), call(members, y, 1))
    np.testing.assert_array_equal(mean_over(y, np.int64(1)), mean_over(y, 1))


def test_dimensions_named_twice():
    values = xr.DataArray(np.ones((4, 5)), dims=("a", "b"))
    with pytest.raises(ArgumentError, match="dim: one dimension is named twice"):
        mean_over(values, ["a", "a"])
    with pytest.raises(ArgumentError, match="dim: one dimension is named twice"):
        names_of({"values": values}, ["a", "a"], values)


def test_no_members_and_bfloat16():
    for kind in (np.zeros, torch.zeros, da.zeros):
        with pytest.raises(ArgumentError, match="members: an axis that is summed"):
            call(kind((0, 5)), kind(5), 0)
    none = xr.DataArray(np.zeros((0, 5)), dims=("m", "x"))
    with pytest.raises(ArgumentError, match="members: an axis that is summed has"):
        call(none, xr.DataArray(np.zeros(5), dims="x"), "m")
    half = torch.ones(3, 4, dtype=torch.bfloat16)
    assert call(half, half[0] / 2, 0, score=HOSTED).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["numpy", "torch", "dask", "xarray"])
def test_points_without_a_weight(kind):
    score, weights, dims = spread_of(kind, np.array([[1.0, 2.0, 4.0]]), np.array([1.0, np.nan, 1]))
    assert float(np.asarray(mean_over(score, "all", weights, "omit"))) == 2.5
    assert np.isnan(np.asarray(mean_over(score, dims[1], weights))).all()
