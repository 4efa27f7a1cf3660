"""Thresholds of weighted scores: the lower one lies at or below the upper one."""

from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._ops import for_any_library


def checked_thresholds(lower: Any, upper: Any, check: bool = True) -> Any:
    """Check that lower thresholds are not above the upper ones, and return the upper ones.

    Args:
        lower: lower thresholds, a number or an array; where NaN, the score is NaN.
        upper: upper thresholds, likewise.
        check: True to check, which synchronises with the GPU for tensors.

    Raises:
        ArgumentError: some lower threshold lies above the upper one (on lazy arrays when
            computed), or thresholds that do not fit each other.
    """
    if not check:
        return upper
    if np.isscalar(lower) and np.isscalar(upper):
        _refuse_if(np.asarray(lower) > np.asarray(upper))
        return upper
    return apply(_UPPER, {"lower": lower, "upper": upper})


def _checked(ops: Any, lower: Any, upper: Any) -> Any:
    wrong = ops.detach(lower > upper)
    _refuse_if(wrong)
    return ops.broadcast_to(upper, wrong.shape)


def _refuse_if(wrong: Any) -> None:
    if bool(wrong.any()):
        raise ArgumentError(
            "lower",
            f"{int(wrong.sum())} thresholds are above `upper`",
            "Pass lower <= upper",
        )


_KERNEL = for_any_library(_checked)
_UPPER = Score("upper", "upper threshold", _KERNEL, _KERNEL)
