"""The functions of `gamma_functions` for tensors on any device, by the same names.

For shapes from 10^-4 to 10^4 their errors are below 1e-8; scipy's and ours there are smaller, but
take branches, for which the host would wait.
"""

import torch

Tensor = torch.Tensor
# of the shape, in units of the smaller of it and its root, in which P has slopes of order 1: the
# differences are off by the fourth power of the step over 30
_STEP = 0.002


def lower(a: Tensor, x: Tensor) -> Tensor:
    """Return P(a, x), the regularised lower incomplete gamma function."""
    below: Tensor = torch.special.gammainc(a, x)
    return below


def upper(a: Tensor, x: Tensor) -> Tensor:
    """Return Q(a, x) = 1 - P(a, x)."""
    above: Tensor = torch.special.gammaincc(a, x)
    return above


def step(a: Tensor, x: Tensor) -> Tensor:
    """Return P(a, x) - P(a + 1, x) = x^a e^-x / Gamma(a + 1)."""
    exponent: Tensor = torch.special.xlogy(a, x) - x - torch.lgamma(a + 1)
    return exponent.exp()


def log_less_digamma(a: Tensor, x: Tensor) -> Tensor:
    """Return log x - digamma(a + 1); x above 0."""
    return x.log() - torch.digamma(a + 1)


def gammainc_by_shape(a: Tensor, x: Tensor) -> Tensor:
    """Return dP(a, x)/da, from finite differences of four values."""
    change = _STEP * torch.minimum(a, a.sqrt())
    near = lower(a + change, x) - lower(a - change, x)
    far = lower(a + 2 * change, x) - lower(a - 2 * change, x)
    return (8 * near - far) / (12 * change)
