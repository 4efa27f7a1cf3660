"""The CRPS on torch tensors, with gradients written out instead of traced.

Autograd through the closed forms gives NaN at sigma = 0 and keeps tens of intermediates. There are
three ways: compiled loops for tensors on the CPU that are not small, torch's own operations
elsewhere, and plain formulas that a compiler can trace inside `torch.compile`.

The first two are autograd functions: differentiable once, and refused by the transforms of
`torch.func` (vmap, jvp, ...) with an error.

Backward passes go over the members once more instead of keeping a gradient from the forward pass:
large tensors cost more to allocate than the loops take. Ensembles with weights or missing members
are traced by autograd.
"""

from itertools import combinations
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError
from ens10.metrics._ensemble_loops import exchanges
from ens10.metrics._kernels_numpy import (
    FAR,
    INV_SQRT_PI,
    SMALL,
    SQRT_HALF,
    check_weights,
    fair_share,
)

Tensor = torch.Tensor
_PART = 2**15  # numbers
_HALF = (torch.float16, torch.bfloat16)


class EagerNormal(torch.autograd.Function):
    """CRPS of a normal whose mu, sigma and y have one shape and dtype."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, s: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(mu, s, y)
        if mu.numel() <= _PART or mu.device.type != "cpu":
            d = y - mu
            by_d, by_s = _partials(d, s)
            return torch.addcmul(d.mul_(by_d), s, by_s)  # homogeneous of degree 1
        score = torch.empty_like(mu, memory_format=torch.contiguous_format)
        for mu_, s_, y_, out in _pieces(mu, s, y, score):
            d = y_ - mu_
            by_d, by_s = _partials(d, s_)
            torch.addcmul(d.mul_(by_d), s_, by_s, out=out)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        mu, s, y = ctx.saved_tensors
        by_y, by_sigma = (
            torch.empty_like(grad, memory_format=torch.contiguous_format) for _ in "ys"
        )
        for mu_, s_, y_, grad_, out_y, out_s in _pieces(mu, s, y, grad, by_y, by_sigma):
            by_d, by_s = _partials(y_ - mu_, s_)
            torch.mul(grad_, by_d, out=out_y)
            torch.mul(grad_, by_s, out=out_s)
        by_mu = -by_y if ctx.needs_input_grad[2] else by_y.neg_()
        return by_mu, by_sigma, by_y if ctx.needs_input_grad[2] else None


def _pieces(*tensors: Tensor) -> Any:
    """Flatten tensors and cut them into pieces that fit the cache of a CPU; not on a GPU."""
    flat = [t.reshape(-1) for t in tensors]
    size = _PART if tensors[0].device.type == "cpu" else max(flat[0].numel(), 1)
    return zip(*(torch.split(t, size) for t in flat), strict=True)


def _partials(d: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives by y - mu and by sigma; finite, also where an input is NaN."""
    z = (d / s.abs()).nan_to_num_(0.0, FAR, -FAR).clamp_(-FAR, FAR)
    by_s = (z * z).mul_(-0.5).exp_().mul_(2 * INV_SQRT_PI * SQRT_HALF).sub_(INV_SQRT_PI)
    return z.mul_(SQRT_HALF).erf_(), by_s


def crps_normal(mu: Tensor, sigma: Tensor, y: Tensor, *, check: bool) -> Tensor:
    """Return the CRPS of normal distributions; the arrays have one dtype and broadcast."""
    if check:
        _check_sigma(sigma)
    tensors = (mu, sigma, y)
    if not mu.shape == sigma.shape == y.shape:
        tensors = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    if mu.dtype in _HALF:
        return crps_normal(*(t.float() for t in tensors), check=False).to(mu.dtype)
    if torch.compiler.is_compiling():
        d = tensors[2] - tensors[0]
        with torch.no_grad():
            by_d, by_s = _partials(d, tensors[1])
        crps: Tensor = d * by_d + tensors[1] * by_s  # with the derivatives by_d, by_s (Euler)
        return crps
    function: Any = EagerNormal
    if tensors[0].numel() >= SMALL and _use_compiled(tensors[0]):
        function = CompiledNormal
    score: Tensor = function.apply(*tensors)
    return score


def crps_ensemble(
    members: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    *,
    factor: float,
    estimator: str = "plain",
    alpha: float = 0.95,
    skip: bool = False,
) -> Tensor:
    """Return the CRPS of ensembles, with the member axis first.

    `factor` is the a of the spread term in `ens10.metrics.crps_ensemble`.
    """
    dtype = members.dtype
    if dtype in _HALF:
        members, y = members.float(), y.float()
        weights = None if weights is None else weights.float()
    if weights is not None:
        check_weights(weights.detach())
    if weights is not None or skip:
        score = crps_weighted(members, y, weights, estimator=estimator, alpha=alpha, skip=skip)
        return score.to(dtype)
    y = y.expand(members.shape[1:])
    if torch.compiler.is_compiling():
        return _traceable_score(members - y, factor).to(dtype)
    function: Any = EagerEnsemble
    if _use_compiled(members):
        function = CompiledEnsemble
    crps: Tensor = function.apply(members, y, factor)
    return crps.to(dtype)


def _use_compiled(tensor: Tensor) -> bool:
    """Return True if compiled numpy loops are used: for large tensors on the CPU."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    wide = tensor.dtype in (torch.float32, torch.float64)
    return plain and wide and tensor.device.type == "cpu" and tensor.numel() >= SMALL


def _traceable_score(x: Tensor, factor: float) -> Tensor:
    """Return the score in operations that `torch.compile` can trace and differentiate."""
    M = x.shape[0]
    if M > UNROLLED:
        ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
        sorted_x = torch.sort(x, dim=0).values
        spread = (sorted_x * ranks.view(-1, *[1] * (x.ndim - 1))).sum(dim=0)
    else:
        spread = torch.zeros_like(x[0])
        for i, j in combinations(range(M), 2):
            spread = spread + (x[i] - x[j]).abs()
    return x.abs().mean(dim=0) - spread * (factor / M**2)


def _check_sigma(sigma: Tensor) -> None:
    if bool((sigma < 0).any()):
        raise ArgumentError(
            "sigma",
            f"{int((sigma < 0).sum())} of {sigma.numel()} standard deviations are negative, "
            f"the lowest is {float(sigma.detach().min()):.6g}",
            "A standard deviation is 0 or more",
        )


UNROLLED = 16  # most members that are sorted and compared pair by pair


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().resolve_neg().numpy()


class CompiledEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
        """Return scores (...), from members (M, ...) and y (...)."""
        ctx.save_for_backward(members, y)
        ctx.factor = factor
        from ens10.metrics import _ensemble_loops as loops  # numba is imported where it is used

        return torch.from_numpy(loops.crps(_numpy(members), _numpy(y), factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients for members, y and factor."""
        members, y = ctx.saved_tensors
        from ens10.metrics import _ensemble_loops as loops

        gradients = loops.gradients(_numpy(members), _numpy(y), _numpy(grad), ctx.factor)
        by_members, by_y = (torch.from_numpy(a) for a in gradients)
        return by_members, by_y, None


class CompiledNormal(torch.autograd.Function):
    """CRPS of normals whose mu, sigma and y have one shape."""

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        """Scores, from mu, sigma and y of one shape."""
        ctx.save_for_backward(mu, sigma, y)
        from ens10.metrics import _normal_loops as normal_loops

        score, _ = normal_loops.scores(*(_numpy(t) for t in (mu, sigma, y)))
        return torch.from_numpy(score)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gradients for mu, sigma and y."""
        arrays = (_numpy(t) for t in (*ctx.saved_tensors, grad))
        from ens10.metrics import _normal_loops as normal_loops

        by_mu, by_sigma = (torch.from_numpy(a) for a in normal_loops.gradients(*arrays))
        return by_mu, by_sigma, -by_mu if ctx.needs_input_grad[2] else None


class EagerEnsemble(torch.autograd.Function):
    """CRPS of members first, and of observations of the shape of the scores."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, y: Tensor, factor: float) -> Tensor:
        """Return scores (...), from members (M, ...) and y (...)."""
        ctx.save_for_backward(members, y)
        ctx.factor = factor
        M = members.shape[0]
        x = members - y
        distance: Tensor
        if _takes_many_members(x):
            distance = torch.linalg.vector_norm(x, ord=1, dim=0)
        else:
            distance = x[0].abs()
            for member in x[1:]:
                distance += member.abs()
        return distance.div_(M).sub_(_pair_distances(x).div_(M**2).mul_(factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Gradients for members, y and factor."""
        members, y = ctx.saved_tensors
        M = members.shape[0]
        x = members - y
        by_x = _counts(x).mul_(-ctx.factor / M**2)
        parts = [(by_x, x)] if _takes_many_members(x) else zip(by_x, x, strict=True)
        for slope, member in parts:
            slope.add_(member.sign_(), alpha=1 / M).mul_(grad)
        return by_x, -by_x.sum(dim=0) if ctx.needs_input_grad[1] else None, None


def _pair_distances(x: Tensor) -> Tensor:
    """Return at each point the sum of |x_i - x_j| over all pairs of members.

    Args:
        x: members first; its members may be put in another order.
    """
    M = x.shape[0]
    spread = torch.zeros_like(x[0])
    if _takes_many_members(x):
        for i in range(M - 1):
            spread += torch.linalg.vector_norm(x[i + 1 :] - x[i], ord=1, dim=0)
        return spread
    sorted_x = _order_statistics(x)
    for k in range(M // 2):
        spread += (sorted_x[M - 1 - k] - sorted_x[k]).mul_(M - 1 - 2 * k)
    return spread


def _takes_many_members(x: Tensor) -> bool:
    """Return True if each operation is to work on many members at once, not on one or two.

    This is faster on a GPU, where to start an operation takes longer than most of its work. On a
    CPU memory takes longest, so few fields at a time are faster. Large ensembles are sorted.
    """
    return x.shape[0] <= UNROLLED and x.device.type != "cpu"


def _order_statistics(x: Tensor) -> Any:
    """Return order statistics; small ensembles are sorted in place with one spare field."""
    if x.shape[0] > UNROLLED:
        return torch.sort(x, dim=0).values
    rows, spare = list(x), torch.empty_like(x[0])
    for i, j in exchanges(x.shape[0]).tolist():
        torch.minimum(rows[i], rows[j], out=spare)
        torch.maximum(rows[i], rows[j], out=rows[j])
        rows[i], spare = spare, rows[i]
    return rows


def _counts(x: Tensor) -> Tensor:
    """Return for each member the number of members below it less that above; NaN is neither."""
    M = x.shape[0]
    if M > UNROLLED:
        ranks = torch.arange(1 - M, M, 2, dtype=x.dtype, device=x.device)
        weights = ranks.view(-1, *[1] * (x.ndim - 1)).expand_as(x)
        return torch.empty_like(x).scatter_(0, torch.argsort(x, dim=0), weights)
    counts = torch.zeros_like(x)
    if _takes_many_members(x):
        for i in range(M - 1):
            signs = (x[i] - x[i + 1 :]).sign_()
            counts[i] += signs.sum(dim=0)
            counts[i + 1 :] -= signs
        return counts
    gap = torch.empty_like(x[0])
    for i, j in combinations(range(M), 2):
        torch.sub(x[i], x[j], out=gap).sign_()
        counts[i] += gap
        counts[j] -= gap
    return counts


def crps_weighted(
    members: Tensor, y: Tensor, weights: Tensor | None, *, estimator: str, alpha: float, skip: bool
) -> Tensor:
    """CRPS of ensembles, members first, differentiable in members, observations and weights.

    The formula of `ens10.metrics._kernels_numpy.crps_weighted` in torch's operations.
    """
    w = torch.ones_like(members) if weights is None else weights.expand_as(members)
    missing = members.isnan() | w.isnan()
    undefined = y.isnan() if skip else y.isnan() | missing.any(dim=0)
    # zeros in place of every NaN: the gradient 0 of a point without a score times NaN is NaN
    invalid = missing | y.isnan()
    w, x = w.masked_fill(missing, 0.0), (members - y).masked_fill(invalid, 0.0)
    total = w.sum(dim=0)
    w = w / torch.where(total > 0, total, 1.0)
    distance = (w * x.abs()).sum(dim=0)
    sorted_x, order = torch.sort(x, dim=0)
    w = w.gather(0, order)
    below = w.cumsum(dim=0)[:-1]
    spread = (sorted_x.diff(dim=0) * below * (1 - below)).sum(dim=0)
    undefined = undefined | ~(total > 0)
    share = fair_share(estimator, alpha)
    if share:
        pairs = 2 * (w[1:] * below).sum(dim=0)  # 1 - sum w^2, without its cancellation
        undefined = undefined | ~(pairs > 0)
        spread = spread * (share / torch.where(pairs > 0, pairs, 1.0) + (1 - share))
    # filled in last, so that a point without a score has no gradient instead of a NaN
    return (distance - spread).masked_fill(undefined, torch.nan)


def owcrps_between(
    members: Tensor, y: Tensor, lower: Tensor, upper: Tensor, *, share: float, skip: bool
) -> Tensor:
    """Return the outcome-weighted CRPS for outcomes between thresholds."""
    inside = ((members >= lower) & (members <= upper)).to(members.dtype)
    y_weight = ((y >= lower) & (y <= upper)).to(members.dtype)
    unknown = lower.isnan() | upper.isnan()
    return _score(members - y, inside, y_weight, share, skip).masked_fill(unknown, torch.nan)


def owcrps_weighted(
    members: Tensor, y: Tensor, w: Tensor, y_weight: Tensor, *, check: bool, skip: bool
) -> Tensor:
    """Return the outcome-weighted CRPS for weights of members and of observations."""
    if check:
        from ens10.metrics._reduce import refuse_negative

        refuse_negative(w.detach(), y_weight.detach())
    return _score(members - y, w, y_weight, 0.0, skip)


def _score(x: Tensor, w: Tensor, y_weight: Tensor, share: float, skip: bool) -> Tensor:
    shared: Any = torch.broadcast_tensors(x, w)  # type: ignore[no-untyped-call]
    x, w = shared
    absent = x.isnan()
    if skip:
        x, w = x.masked_fill(absent | (w == 0), 0), w.masked_fill(absent, 0)
    else:
        x = x.masked_fill((w == 0) & ~absent, 0)
    undefined = w.sum(dim=0) <= (1 if share else 0)
    # No division by 0 on the way to what is masked: its gradient would be NaN
    w = (w / w.amax(dim=0).masked_fill(undefined, 1)).masked_fill(undefined, 1)
    x, order = x.sort(dim=0)
    w = w.gather(0, order)
    before = w.cumsum(dim=0)
    total = before[-1]
    distance = (w * x.abs()).sum(dim=0) / total
    spread = (w * x * (2 * before - w - total)).sum(dim=0) / total**2
    factor = share * total / (total - 1) + (1 - share) if share else 1.0
    return (y_weight * (distance - factor * spread)).masked_fill(undefined, torch.nan)
