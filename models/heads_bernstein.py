"""A head of quantile functions in Bernstein polynomials."""

from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions.bernstein import Bernstein
from ens10.models.heads import Head, RawEnsemble, checked_floor

_binomials: Any = special.comb  # which has no type hints


class BernsteinHead(Head):
    """A Bernstein quantile function as a residual on the raw ensemble (Bremnes 2020).

    doi:10.1175/MWR-D-19-0227.1. The coefficients are a_k = m + s (o_0 + b_k), where m is the mean
    and s the standard deviation of the raw ensemble, and the b_k have mean 0 and increments c_k
    exp(o_1 + o_k+1), k = 1 to d, so that they increase. o_0 shifts the forecast's mean, o_1 scales
    its spread, the others change its shape. The c_k approximate a standard normal: an output of 0
    is the normal distribution of the raw ensemble, to 0.08 s in its quantiles (root mean square, at
    degree 12) and with 99 % of its variance.

    s is at least `floor`, in units of the target, and o_1 + o_k+1 is clamped to [-7, 7]; both as in
    `ResidualNormalHead`. A store of predictions holds the quantiles at 1 % to 99 %; see
    `Bernstein`.

    Args:
        degree: degree d of the polynomials; `out_channels` is d + 2.
        floor: smallest s, e.g. 0.001 K.

    Raises:
        ArgumentError: a degree below 1, or a floor that is not positive.
    """

    max_log_rise = 7.0

    def __init__(self, degree: int = 12, floor: float = 1e-3) -> None:
        super().__init__()
        if degree < 1:
            raise ArgumentError("degree", f"{degree} is less than 1")
        self.degree, self.floor = degree, checked_floor(floor)
        self.out_channels = degree + 2
        self.rises: Tensor
        rises = torch.from_numpy(np.diff(normal_coefficients(degree))).float()
        self.register_buffer("rises", rises, persistent=False)

    def forward(self, outputs: Tensor, batch: Batch) -> Bernstein:
        """Return the forecast from outputs (N, d + 2, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        outputs = outputs.to(raw.mean.dtype)
        shift, log_rise = outputs[:, :1], outputs[:, 1:2] + outputs[:, 2:]
        log_rise = log_rise.clamp(-self.max_log_rise, self.max_log_rise)
        rises = self.rises.to(log_rise)[:, None, None] * log_rise.exp()
        risen = torch.cat([torch.zeros_like(shift), rises.cumsum(1)], dim=1)
        centred = risen - risen.mean(1, keepdim=True)
        coefficients = raw.mean.unsqueeze(1) + raw.spread.unsqueeze(1) * (shift + centred)
        return Bernstein(raw.masked(coefficients))


def normal_coefficients(degree: int) -> np.ndarray:
    """Return increasing coefficients, (d + 1,), that approximate the quantile function of N(0, 1).

    They are c Phi^-1((k + e) / (d + 2 e)), with c and e fitted by least squares over probability;
    unconstrained least squares would not increase.
    """
    z = np.linspace(-9.0, 9.0, 2001)
    u = special.ndtr(z)
    weights = np.exp(-0.5 * z * z)
    k = np.arange(degree + 1)
    basis = _binomials(degree, k)[:, None] * u ** k[:, None] * (1 - u) ** (degree - k)[:, None]
    best = (np.inf, np.zeros(degree + 1))
    for e in np.geomspace(0.005, 0.5, 60):
        b = special.ndtri((k + e) / (degree + 2 * e))
        q = b @ basis
        c = (weights * q * z).sum() / (weights * q * q).sum()
        best = min(best, ((weights * (c * q - z) ** 2).sum(), c * b), key=lambda pair: pair[0])
    return best[1]
