"""The CRPS of zonal waves of tensors."""

from typing import Any

import torch

from ens10.metrics.multivariate._energy_torch import energy_of

Tensor = torch.Tensor


def spectral_crps(members: Tensor, y: Tensor, *, factor: float, waves: Any) -> Tensor:
    """Return the spectral CRPS of tensors, core axes first."""
    x = members - y
    waved = torch.fft.rfft(x, dim=1, norm="forward")
    M, n = waved.shape[:2]
    parts = torch.stack([waved.real, waved.imag], dim=1).reshape(M, 2, -1)
    score = energy_of(parts, factor).reshape(n, -1)
    weights = torch.as_tensor(waves).to(score)
    return (weights[:, None] * score).sum(dim=0).reshape(x.shape[2:])
