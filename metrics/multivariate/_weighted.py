"""Multivariate scores that emphasise some outcomes: by a chaining function or by weights.

Allen, Ginsbourger and Ziegel 2023, doi:10.1137/22M1532184.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply, checked_axes
from ens10.metrics._dispatch import backend_of, fill_masked
from ens10.metrics._reduce import refuse_negative
from ens10.metrics.multivariate._variables import Axes


def chained(chaining: Callable[[Any], Any] | None, members: Any, y: Any) -> tuple[Any, Any]:
    """Return members and observations, or the chaining function of both.

    Raises:
        ArgumentError: the function changes a shape.
    """
    arrays = [fill_masked(array) for array in (members, y)]
    if chaining is None:
        return arrays[0], arrays[1]
    results = [chaining(array) for array in arrays]
    for before, after in zip(arrays, results, strict=True):
        if np.shape(before) != np.shape(after):
            reason = f"changes the shape {tuple(np.shape(before))} to {tuple(np.shape(after))}"
            raise ArgumentError("chaining", reason, "Return an array of the same axes")
    return results[0], results[1]


def apply_outcome_weighted(
    score: Score,
    weight: Callable[[Any], Any],
    arrays: Mapping[str, Any],
    core: Axes,
    options: dict[str, Any],
    attrs: Mapping[str, Any],
) -> Any:
    """Return the outcome-weighted version of a score.

    Args:
        score: its kernel takes members, observations and shares of the members of sum 1, core
            axes first.
        weight: function from members or observations to weights, without the variable axes.
        arrays: `members` and `y`.
        core: their core axes, the member axis first.
        options: keyword arguments of the kernel.
        attrs: attributes of the result.

    Raises:
        ArgumentError: another estimator than "plain"; negative weights (on lazy arrays when
            computed), or weights of other shapes.
    """
    if attrs["estimator"] != "plain":
        reason = f"{attrs['estimator']!r} is not known for a weight function"
        raise ArgumentError("estimator", reason, "Take 'plain'")
    members, y = arrays["members"], arrays["y"]
    weighted = dict(arrays) | {"weight of members": weight(members), "weight of y": weight(y)}
    member_dim, *variables = core["members"]
    if backend_of(dict(arrays)) != "xarray":  # the member axis, without the variables before it
        axes = checked_axes("members", members, (member_dim, *variables))
        member_dim = axes[0] - sum(axis < axes[0] for axis in axes[1:])
    for name, array in (("weight of members", members), ("weight of y", y)):
        expected = len(np.shape(array)) - len(
            core[name.removeprefix("weight of ")][-len(variables) :]
        )
        if len(np.shape(weighted[name])) != expected:
            reason = f"returns {len(np.shape(weighted[name]))} axes for {name[10:]}, not {expected}"
            raise ArgumentError("weight", reason, "Sum or compare over the variable axes")
    return apply(
        replace(score, numpy=partial(_with_shares, score.numpy)),
        weighted,
        dict(core) | {"weight of members": (member_dim,)},
        options=options,
        attrs=attrs,
        unlike=["weight of members", "weight of y"],
    )


def _with_shares(
    kernel: Callable[..., Any], members: Any, y: Any, w: Any, y_weight: Any, **options: Any
) -> Any:
    refuse_negative(w, y_weight)
    total = w.sum(axis=0, dtype=np.float64)
    shares = w / np.where(total > 0, total, np.nan)
    score = y_weight * kernel(members, y, shares, **options)
    return score.astype(members.dtype, copy=False)
