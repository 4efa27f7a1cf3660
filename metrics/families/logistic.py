"""The logistic distribution."""

from typing import Any

from ens10.metrics.families._formula import Formula


def _standardised(ops: Any, mu: Any, s: Any, y: Any) -> Any:
    """Distance in units of s; far outside where s is 0, and 0 where the distance is 0 too."""
    far = 1e3 * ops.sign(y - mu)
    return ops.where(s == 0, far, (y - mu) / ops.where(s == 0, ops.full_like(s, 1.0), s))


def _value(ops: Any, mu: Any, s: Any, y: Any) -> Any:
    z = ops.abs(_standardised(ops, mu, s, y))
    # z - 2 log F(z) - 1, with log F(z) = -log(1 + e^-z), is even in z
    return ops.abs(y - mu) + s * (2 * ops.softplus(-z) - 1)


def _partials(ops: Any, mu: Any, s: Any, y: Any) -> tuple[Any, ...]:
    z = _standardised(ops, mu, s, y)
    by_y = 2 * ops.expit(z) - 1
    size = ops.abs(z)
    by_s = 2 * ops.softplus(-size) - 1 + size * (1 - ops.abs(by_y))
    return -by_y, by_s, by_y


CRPS = Formula(
    "crps",
    "continuous ranked probability score",
    {"mu": "real", "sigma": "nonnegative"},
    _value,
    _partials,
)
