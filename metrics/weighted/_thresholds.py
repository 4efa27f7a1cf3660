"""Thresholds between which outcomes count."""

from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply


def ordered(lower: Any, upper: Any, check: bool = True) -> Any:
    """The upper thresholds, after a look at whether they are not below the lower ones.

    Args:
        lower: a number or an array of any library; NaN where there is no threshold, and no score.
        upper: the same.
        check: whether to look, which waits for a tensor's device.

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


def _on_numpy(lower: Any, upper: Any) -> Any:
    lower, upper = np.broadcast_arrays(lower, upper)
    _refuse_if(lower > upper)
    return upper


def _on_tensors(lower: Any, upper: Any) -> Any:
    _refuse_if((lower > upper).detach())
    return upper


def _refuse_if(wrong: Any) -> None:
    if bool(wrong.any()):
        raise ArgumentError(
            "lower",
            f"{int(wrong.sum())} thresholds are above `upper`",
            "Pass lower <= upper",
        )


_UPPER = Score("upper", "upper threshold", _on_numpy, _on_tensors)
