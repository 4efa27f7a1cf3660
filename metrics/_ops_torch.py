"""The functions of `_ops` for torch tensors; a module of its own, because it imports torch."""

from typing import Any

import torch
from scipy import special

from ens10.metrics._dispatch import on_host


class _TorchOps:
    exp, expm1, log, log1p, sqrt = torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt
    abs, sign, full_like, isfinite = torch.abs, torch.sign, torch.full_like, torch.isfinite
    isnan, ndtri, logit = torch.isnan, torch.special.ndtri, torch.special.logit
    einsum, moveaxis, searchsorted = torch.einsum, torch.movedim, torch.searchsorted
    ceil, cumsum, broadcast_to = torch.ceil, torch.cumsum, torch.broadcast_to
    ndtr, log_ndtr, erf = torch.special.ndtr, torch.special.log_ndtr, torch.erf
    tanh, erfcx, addcmul = torch.tanh, torch.special.erfcx, torch.addcmul
    expit = torch.sigmoid
    amax, ones_like = torch.amax, torch.ones_like
    gammaln, digamma, gammainc = torch.lgamma, torch.digamma, torch.special.gammainc

    @staticmethod
    def any_true(condition: Any) -> bool:
        return condition.device.type != "cpu" or bool(condition.any())

    @staticmethod
    def clipped_ratio(x: Any, scale: Any, most: float) -> Any:
        return (x / scale.abs()).nan_to_num_(0.0, most, -most).clamp_(-most, most)

    @staticmethod
    def softplus(x: Any) -> Any:
        # torch's own is x above 20, which is 2e-9 off
        return torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x)))

    @staticmethod
    def maximum(x: Any, y: Any) -> Any:
        return torch.clamp(x, min=y)

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        return torch.clamp(x, max=y)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        return torch.where(condition, x, y)

    @staticmethod
    def stdtrit(df: Any, p: Any) -> Any:
        """Return quantiles of Student's t distribution, by scipy on the host; no gradient."""
        quantile = special.stdtrit(on_host(torch.as_tensor(df)), on_host(p))
        return torch.as_tensor(quantile, dtype=p.dtype, device=p.device)

    @staticmethod
    def sort(x: Any, axis: int) -> Any:
        return torch.sort(x, dim=axis).values

    @staticmethod
    def argsort(x: Any, axis: int) -> Any:
        return torch.argsort(x, dim=axis)

    @staticmethod
    def clip(x: Any, lower: Any, upper: Any) -> Any:
        return x.clamp(min=lower, max=upper)

    @staticmethod
    def stack(arrays: Any, axis: int) -> Any:
        return torch.stack(arrays, dim=axis)

    @staticmethod
    def concat(arrays: Any, axis: int) -> Any:
        return torch.cat(arrays, dim=axis)

    @staticmethod
    def take_along(x: Any, index: Any, axis: int) -> Any:
        return torch.take_along_dim(x, index, dim=axis)

    @staticmethod
    def cast(values: Any, like: Any) -> Any:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)

    @staticmethod
    def double_like(values: Any, like: Any) -> Any:
        return torch.as_tensor(values, dtype=torch.float64, device=like.device)

    detach = staticmethod(torch.Tensor.detach)

    @staticmethod
    def to_integers(x: Any) -> Any:
        return x.long()

    @staticmethod
    def draw_members(members: Any, n: int, generator: Any) -> Any:
        """Draw whole members of each date with replacement."""
        size, device = members.shape[-3], members.device
        shape = (*members.shape[:-3], n)
        indices = torch.randint(size, shape, generator=generator, device=device)
        return torch.take_along_dim(members, indices[..., None, None], dim=-3)

    @staticmethod
    def normal(shape: Any, like: Any, generator: Any) -> Any:
        """Return standard normal numbers in the dtype and on the device of an array."""
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    @staticmethod
    def random(shape: Any, like: Any, generator: Any, least: float) -> Any:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=like.device)
        return uniform.clamp(min=least)


TORCH: Any = _TorchOps
