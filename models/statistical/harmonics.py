"""The annual cycle as harmonics, and regressions on it from sums of fixed size.

With e_k = exp(i k omega t), a real cycle of H harmonics is sum of c_k e_k over -H <= k <= H. The
least-squares fit of y needs only the sums of e_n and of y e_n, and that of the squared residual
those of y^2 e_n too, since products of harmonics are harmonics:

    sum r^2 e_-n = S2(-n) - 2 sum_k c_k S1(k - n) + sum_jk c_j c_k S0(j + k - n)
"""

import math

import torch
from torch import Tensor

from ens10.errors import ArgumentError

_YEAR = 365.2425 * 86400  # seconds in a mean calendar year: no jump in leap years
_DATES_PER_COEFFICIENT = 3  # with fewer a cycle cannot be distinguished from noise


def check_harmonics(harmonics: int) -> None:
    """Refuse a negative number of harmonics.

    Raises:
        ArgumentError: a negative number.
    """
    if harmonics < 0:
        raise ArgumentError("harmonics", f"{harmonics} is negative", "Choose 0 for no annual cycle")


def annual_cycle(dates: Tensor, harmonics: int) -> Tensor:
    """Return the functions 1, cos, sin, cos 2, sin 2, ... of the time of year.

    Args:
        dates: (N,) seconds since 1970-01-01 00 UTC.
        harmonics: number H of harmonics, 0 for the constant alone.

    Returns:
        (N, 1 + 2 H) float64, on the device of the dates.
    """
    place = "cpu" if dates.device.type == "mps" else dates.device  # which has no float64
    angle = dates.to(place, torch.float64) * (2 * math.pi / _YEAR)
    columns = [torch.ones_like(angle)]
    for k in range(1, harmonics + 1):
        columns += [torch.cos(k * angle), torch.sin(k * angle)]
    return torch.stack(columns, 1)


class CycleSums:
    """Sums over dates that determine annual cycles of mean and variance at each grid point.

    They take 16 (6 H + 3) bytes for each point, for any number of dates.

    Args:
        harmonics: H.
    """

    def __init__(self, harmonics: int) -> None:
        check_harmonics(harmonics)
        self.harmonics = harmonics
        self._reference: Tensor | None = None
        self._sums: list[Tensor] = []

    def add(self, values: Tensor, valid: Tensor, dates: Tensor) -> None:
        """Add values (N, H, W) where `valid`, at `dates` (N,)."""
        valid = valid.cpu()
        y = torch.where(valid, values.detach().to("cpu", torch.float64), 0)
        if self._reference is None:
            # sums of deviations from any value near the mean: Z500 squared would lose digits
            count = valid.sum(0).clamp(min=1)
            self._reference = y.sum(0) / count
        y = torch.where(valid, y - self._reference, 0)
        orders = [3 * self.harmonics, 2 * self.harmonics, self.harmonics]
        waves = _waves(dates, orders[0])
        parts = [
            torch.einsum("nk,nhw->khw", waves[:, : order + 1], power.to(waves.dtype))
            for order, power in zip(orders, (valid.double(), y, y * y), strict=True)
        ]
        old = self._sums or [torch.zeros_like(part) for part in parts]
        self._sums = [a + b for a, b in zip(old, parts, strict=True)]

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for the least-squares cycles of mean and variance.

        Returns:
            Coefficients of the mean and of the variance about it (n minus their number),
            (1 + 2 H, H, W) in the order of `annual_cycle`, and the number of dates (H, W).
            A point with fewer than three dates per coefficient has a constant mean and
            variance; one without any has a mean of NaN.
        """
        if self._reference is None:
            raise ArgumentError("cycle", "no date was added")
        count = self._sums[0][0].real
        mean, variance = self._fit(self.harmonics)
        if self.harmonics:
            few = count < _DATES_PER_COEFFICIENT * (1 + 2 * self.harmonics)
            flat_mean, flat_variance = self._fit(0)
            mean[:, few], variance[:, few] = 0, 0
            mean[0, few], variance[0, few] = flat_mean[0, few], flat_variance[0, few]
        mean[0] += self._reference
        mean[:, count == 0] = torch.nan
        return mean, variance, count

    def _fit(self, h: int) -> tuple[Tensor, Tensor]:
        gram = torch.stack(
            [torch.stack([self._sum(0, k - j) for k in _orders(h)], -1) for j in _orders(h)], -2
        )
        # pseudo-inverse: dates of one season do not determine all harmonics
        inverse = torch.linalg.pinv(gram, hermitian=True, rtol=1e-9)
        right = torch.stack([self._sum(1, -n) for n in _orders(h)], -1)
        c = (inverse @ right.unsqueeze(-1)).squeeze(-1)
        squares = torch.stack([self._squared_residual(c, n, h) for n in _orders(h)], -1)
        variance = (inverse @ squares.unsqueeze(-1)).squeeze(-1)
        count = self._sums[0][0].real
        degrees_of_freedom = (count - (2 * h + 1)).clamp(min=1)
        variance = variance * (count / degrees_of_freedom).unsqueeze(-1)
        return self._real(c, h), self._real(variance, h)

    def _squared_residual(self, c: Tensor, n: int, h: int) -> Tensor:
        total = self._sum(2, -n)
        for j in _orders(h):
            total = total - 2 * c[..., j + h] * self._sum(1, j - n)
            for k in _orders(h):
                total = total + c[..., j + h] * c[..., k + h] * self._sum(0, j + k - n)
        return total

    def _sum(self, power: int, n: int) -> Tensor:
        """Return sum of y^power e_n, (H, W); e_-n is the conjugate of e_n."""
        total = self._sums[power][abs(n)]
        return total if n >= 0 else total.conj()

    def _real(self, c: Tensor, h: int) -> Tensor:
        """Convert complex c_-h .. c_h to constant, cosines and sines, padded with zeros."""
        real = torch.zeros(1 + 2 * self.harmonics, *c.shape[:-1], dtype=torch.float64)
        real[0] = c[..., h].real
        for k in range(1, h + 1):
            real[2 * k - 1] = 2 * c[..., h + k].real
            real[2 * k] = -2 * c[..., h + k].imag
        return real


def _orders(h: int) -> range:
    return range(-h, h + 1)


def _waves(dates: Tensor, order: int) -> Tensor:
    """Return exp(i k omega t) for k from 0 to `order`, (N, order + 1)."""
    angle = dates.to("cpu", torch.float64) * (2 * math.pi / _YEAR)
    turns = angle[:, None] * torch.arange(order + 1, dtype=torch.float64)
    return torch.polar(torch.ones_like(turns), turns)
