"""The CRPS of ensembles on torch tensors, with gradients written out instead of traced.

Autograd through the formula keeps tens of intermediates. There are three ways: compiled loops for
tensors on the CPU that are not small, torch's own operations elsewhere, and plain formulas that a
compiler can trace inside `torch.compile`.

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

from ens10.metrics._dispatch import uses_loops
from ens10.metrics._kernels_numpy import check_weights, crps_weighted
from ens10.metrics._ops_torch import TORCH
from ens10.metrics._sorting_networks import exchanges

Tensor = torch.Tensor
_HALF = (torch.float16, torch.bfloat16)


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
        options: Any = {"estimator": estimator, "alpha": alpha, "skip": skip}
        weighted: Tensor = crps_weighted(TORCH, members, y, weights, **options)
        return weighted.to(dtype)
    y = y.expand(members.shape[1:])
    if torch.compiler.is_compiling():
        return _traceable_score(members - y, factor).to(dtype)
    function: Any = EagerEnsemble
    if uses_loops(members):
        function = CompiledEnsemble
    crps: Tensor = function.apply(members, y, factor)
    return crps.to(dtype)


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
