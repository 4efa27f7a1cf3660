"""Compiled loops: against plain forms, in every layout and library, with gradients."""

import subprocess
import sys

import dask.array as da
import numpy as np
import properscoring
import pytest
import torch
from scipy.stats import norm

from ens10.errors import ArgumentError
from ens10.metrics import _kernels_numpy as on_numpy
from ens10.metrics import crps_ensemble, crps_normal
from ens10.metrics._kernels_torch import EagerEnsemble
from ens10.metrics._ops_torch import TORCH
from ens10.metrics.distributions import Normal
from ens10.metrics.distributions._torch import _opaque_gradients, _opaque_value

FAIR = {"estimator": "fair"}
N = 70  # points along an axis: with 10 members, N * N are enough to be compiled


def ensembles(M=10, dtype="f4", n=N * N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(M, n)).astype(dtype)
    x[:, :5] = x[0, :5]  # members that are equal
    return x, rng.normal(size=n).astype(dtype)


def plainly(x, y, factor=1.0):
    distance, spread = on_numpy._plain_terms(x - y)
    with np.errstate(invalid="ignore"):
        return distance - x.dtype.type(factor) * spread


SLOW = [  # each is compiled
    pytest.param(M, dtype, marks=pytest.mark.slow)
    for M, dtype in [(1, "f4"), (2, "f4"), (13, "f4"), (16, "f4"), (23, "f8")]
]


@pytest.mark.parametrize(
    ("M", "dtype"),
    [(3, "f4"), (10, "f4"), (10, "f8"), (12, "f4"), (23, "f4"), *SLOW],
)
def test_compiled_and_plain_ensembles_have_the_same_bits(M, dtype):
    x, y = ensembles(M, dtype, n=40_000 // M)
    y[7], x[0, 9], x[-1, 11] = np.nan, np.nan, np.inf
    got = crps_ensemble(x, y, estimator="plain", member_dim=0)
    np.testing.assert_array_equal(got, plainly(x, y))
    assert np.flatnonzero(np.isnan(got)).tolist() == (
        [7, 9] if M == 1 else [7, 9, 11][: 2 + (M > 1)]
    )


def layouts(x):
    """The same ensemble (10, N, N) in other memory, with the number of its member axis."""
    yield x, 0
    yield np.asfortranarray(x), 0
    yield np.moveaxis(x, 0, 1).copy(), 1
    yield np.moveaxis(x, 0, -1).copy(), -1
    yield np.repeat(x, 2, axis=2)[:, :, ::2], 0
    yield x[:, ::-1, ::-1].copy()[:, ::-1, ::-1], 0
    yield x.astype(x.dtype.newbyteorder(">")), 0
    read_only = x.copy()
    read_only.flags.writeable = False
    yield read_only, 0


def test_layouts_and_chunks_do_not_matter():
    x, y = (a.reshape(*a.shape[:-1], N, N) for a in ensembles())
    wanted = plainly(x, y, 10 / 9)
    for members, axis in layouts(x):
        for observed in (y, np.asfortranarray(y), y[:, ::-1].copy()[:, ::-1]):
            got = crps_ensemble(members, observed, member_dim=axis, **FAIR)
            np.testing.assert_array_equal(got, wanted)
    for chunk in (7, 64):
        lazy = da.from_array(x, chunks=(-1, chunk, -1)), da.from_array(y, chunks=chunk)
        np.testing.assert_array_equal(crps_ensemble(*lazy, member_dim=0, **FAIR), wanted)
    whole = crps_ensemble(x, y[0], member_dim=0, **FAIR)
    np.testing.assert_array_equal(whole, plainly(x, y[0], 10 / 9))


def test_an_axis_of_no_points_has_no_scores():
    for shape in ((10, 0), (10, 3, 0, 2)):
        assert crps_ensemble(np.zeros(shape), 0.0, member_dim=0, **FAIR).shape == shape[1:]


def normals(n=40_000, dtype="f8", seed=1):
    rng = np.random.default_rng(seed)
    mu, z = 5 * rng.normal(size=n), rng.normal(size=n) * rng.choice([0.1, 1, 3, 9, 50], n)
    sigma = 2 ** rng.uniform(-6, 4, n)
    return tuple(a.astype(dtype) for a in (mu, sigma, mu + sigma * z))


@pytest.mark.parametrize(("dtype", "bound"), [("f4", 2e-6), ("f8", 1e-14)])
def test_compiled_normals_equal_properscoring(dtype, bound):
    arrays = normals(dtype=dtype)
    mu, sigma, y = (a.astype("f8") for a in arrays)
    wanted = properscoring.crps_gaussian(y, mu, sigma)
    got = crps_normal(*arrays)
    assert got.dtype == dtype
    assert (np.abs(got - wanted) / (wanted + wanted.mean())).max() < bound
    few = np.concatenate(
        [crps_normal(*(a[i : i + 4000] for a in arrays)) for i in range(0, 40_000, 4000)]
    )
    assert (np.abs(got - few) / (wanted + wanted.mean())).max() < bound


def test_compiled_normals_at_their_limits():
    mu, sigma, y = np.ones(40_000), np.ones(40_000), np.ones(40_000)
    sigma[:4], y[:4] = (0.0, -0.0, 0.0, -0.0), (3.0, -1.0, 1.0, 1.0)
    mu[4], sigma[5], y[6] = np.nan, np.nan, np.nan
    sigma[7], y[8] = 1e-300, 1e300
    got = crps_normal(mu, sigma, y)
    np.testing.assert_array_equal(got[:4], [2.0, 2.0, 0.0, 0.0])
    assert np.flatnonzero(np.isnan(got)).tolist() == [4, 5, 6]
    assert got[7] == pytest.approx(0, abs=1e-299)
    assert got[8] == 1e300
    sigma[-1] = -0.5
    with pytest.raises(ArgumentError, match=r"sigma: 1 of 40000 .* the lowest is -0\.5"):
        crps_normal(mu, sigma, y)


def test_compiled_normals_broadcast():
    mu, _, y = normals()
    mu, y = mu.reshape(200, 200), y[:200].copy()
    wanted = properscoring.crps_gaussian(np.broadcast_to(y, mu.shape), mu, np.full(mu.shape, 2.0))
    np.testing.assert_allclose(crps_normal(mu, 2.0, y), wanted, rtol=1e-12)
    np.testing.assert_array_equal(crps_normal(mu.T.copy().T, 2.0, y), crps_normal(mu, 2.0, y))
    lazy = crps_normal(da.from_array(mu, chunks=(190, 200)), 2.0, y)
    np.testing.assert_array_equal(lazy[:190], crps_normal(mu[:190], 2.0, y))


def gradients(score, *arrays):
    given = [a.detach().clone().requires_grad_() for a in arrays]
    made = score(*given)
    weights = torch.linspace(-1, 1, made.numel(), dtype=made.dtype).reshape(made.shape)
    return made.detach(), torch.autograd.grad((made * weights).sum(), given)


@pytest.mark.parametrize(("M", "axis"), [(10, 0), (10, 1), (23, 2)])
def test_compiled_gradients_of_ensembles_equal_eager_ones(M, axis):
    x, y = ensembles(M, "f8", 60 * 70)
    x = np.moveaxis(x[:, ::-1].reshape(M, 60, 70), 0, axis).copy()
    x[0, 0, 0], y[100] = np.nan, np.nan
    tensors = torch.tensor(x), torch.tensor(y.reshape(60, 70))
    got, by = gradients(lambda a, b: crps_ensemble(a, b, member_dim=axis, **FAIR), *tensors)
    factor = M / (M - 1)
    wanted, by_eager = gradients(
        lambda a, b: EagerEnsemble.apply(a.movedim(axis, 0), b, factor), *tensors
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)
    assert all(torch.isfinite(g).all() for g in by)
    some = ~np.isnan(got.numpy())
    if M > 16:  # sorted: which of the equal members comes first is open
        some.ravel()[-5:] = False
    moved = [torch.movedim(b[0], axis, 0)[:, some] for b in (by, by_eager)]
    np.testing.assert_allclose(*moved, atol=1e-13)
    np.testing.assert_allclose(by[1][some], by_eager[1][some], atol=1e-13)


def test_compiled_gradients_of_normals():
    mu, sigma, y = (torch.tensor(a) for a in normals())
    sigma[:3], y[0], y[1], y[2] = 0.0, mu[0], mu[1] + 1, torch.nan
    _, by = gradients(crps_normal, mu, sigma, y)
    plain = Normal.kernels["crps"].partials(TORCH, mu, sigma, y)
    by_eager = [torch.linspace(-1, 1, len(mu), dtype=mu.dtype) * p for p in plain]
    for ours, eager in zip(by, by_eager, strict=True):
        assert torch.isfinite(ours).all()
        np.testing.assert_allclose(ours, eager, atol=1e-14)
    z = ((y - mu) / sigma).numpy()[3:]
    weight = np.linspace(-1, 1, 40_000)[3:]
    np.testing.assert_allclose(by[0][3:], weight * (1 - 2 * norm.cdf(z)), atol=1e-13)
    np.testing.assert_allclose(by[1][3:], weight * (2 * norm.pdf(z) - np.pi**-0.5), atol=1e-13)
    part = mu[:3].clone().requires_grad_()
    wide = crps_normal(part[:, None], 1.0, torch.zeros(3, 40_000, dtype=mu.dtype))
    wide.sum().backward()
    np.testing.assert_allclose(part.grad, 40_000 * (2 * norm.cdf(mu[:3].numpy()) - 1), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [50, 5000])
def test_half_precision_is_computed_in_single(dtype, n):
    x, y = (torch.tensor(a).to(dtype).requires_grad_() for a in ensembles(n=n))
    score = crps_ensemble(x, y, member_dim=0, **FAIR)
    wide = crps_ensemble(x.detach().float(), y.detach().float(), member_dim=0, **FAIR)
    assert score.dtype == dtype
    np.testing.assert_array_equal(score.detach().float(), wide.to(dtype).float())
    score.sum().backward()
    assert x.grad.dtype == dtype
    normal = crps_normal(x.detach(), x.detach().abs(), y.detach())
    assert normal.dtype == dtype


def test_gradients_are_of_first_order_and_memory_is_watched():
    x, y = (torch.tensor(a, requires_grad=True) for a in ensembles())
    (by,) = torch.autograd.grad(
        crps_ensemble(x, y, member_dim=0, **FAIR).sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="does not require grad"):
        by.sum().backward()
    members = x.detach().clone().requires_grad_() * 1
    score = crps_ensemble(members, y.detach(), member_dim=0, **FAIR)
    members.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        score.sum().backward()


def test_functional_transforms_are_refused():
    x, y = (torch.tensor(a) for a in ensembles())
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda a: crps_ensemble(a, y, member_dim=0, **FAIR).sum())(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_torch_compile_follows_a_loss():
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # torch raises a class of its own without a compiler
        pytest.skip(f"no C++ compiler: {error}")
    x, y = (torch.tensor(a) for a in ensembles(4))

    def loss(a, b):
        spread = a.std(dim=0)
        members = crps_ensemble(a, b, member_dim=0, **FAIR).mean()
        return members + crps_normal(a.mean(dim=0), spread, b, check=False).mean()

    wanted, by = gradients(loss, x, y)
    got, by_compiled = gradients(torch.compile(loss), x, y)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.testing.assert_allclose(by_compiled[0], by[0], atol=1e-7)


def test_operators_return_the_layout_that_graphs_expect():
    mu, sigma, y, grad = (1 + torch.rand(6, 5).t() for _ in range(4))
    key = Normal.kernels["crps"].key
    for operator, arguments in [
        (_opaque_value, ([mu, sigma, y], key)),
        (_opaque_gradients, (grad, [mu, sigma, y], [True, False, True], key)),
    ]:
        torch.library.opcheck(operator, arguments, test_utils="test_faketensor")


def test_importing_the_metrics_compiles_nothing():
    code = (
        "import sys, numpy as np\n"
        "from ens10.metrics import crps_ensemble\n"
        "crps_ensemble(np.zeros((10, 99)), np.zeros(99), estimator='fair', member_dim=0)\n"
        "sys.exit('ens10.metrics._ensemble_loops' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
