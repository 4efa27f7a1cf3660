"""The outcome-weighted CRPS of tensors."""

from typing import Any

import torch

Tensor = torch.Tensor


def between(
    members: Tensor, y: Tensor, lower: Tensor, upper: Tensor, *, share: float, skip: bool
) -> Tensor:
    """Return the outcome-weighted CRPS for outcomes between thresholds."""
    inside = ((members >= lower) & (members <= upper)).to(members.dtype)
    mark = ((y >= lower) & (y <= upper)).to(members.dtype)
    unknown = lower.isnan() | upper.isnan()
    return _score(members - y, inside, mark, share, skip).masked_fill(unknown, torch.nan)


def weighted(
    members: Tensor, y: Tensor, w: Tensor, mark: Tensor, *, check: bool, skip: bool
) -> Tensor:
    """Return the outcome-weighted CRPS for weights of members and of observations."""
    if check:
        from ens10.metrics.weighted.outcome import refuse_negative

        refuse_negative(w.detach(), mark.detach())
    return _score(members - y, w, mark, 0.0, skip)


def _score(x: Tensor, w: Tensor, mark: Tensor, share: float, skip: bool) -> Tensor:
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
    return (mark * (distance - factor * spread)).masked_fill(undefined, torch.nan)
