"""A formula of parameters and an observation, as a function of arrays of any library."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import common_dtype
from ens10.metrics._labels import check_alike
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.families._ops import NUMPY

Domain = Literal["real", "nonnegative", "positive"]


@dataclass(frozen=True)
class Formula:
    """One score of one family.

    Both functions take (ops, *parameters, y), arrays of one shape and dtype; NaN propagates.

    Args:
        name: of the result, such as "crps".
        long_name: in words.
        domains: each parameter's, by its name and in order.
        value: the score.
        partials: its derivatives by each parameter and by y, in that order; finite at every
            valid parameter, at scale 0 included. None for what has no gradient: tensors are then
            computed on the host.
        on_host: whether torch lacks a function, so that tensors are computed by scipy on the host.
        double: whether both functions are computed in float64 whatever the arrays' dtype, which
            the result has: for formulas that cancel.
        ascending: parameters of which each must lie below the next, such as bounds.
        units: whether the score has the unit of y.
        unitless: parameters that have no unit (shapes).
        of_y: whether there is an observation; not for moments.
        squared: whether the result has the square of the unit instead.
    """

    name: str
    long_name: str
    domains: Mapping[str, Domain]
    value: Callable[..., Any]
    partials: Callable[..., tuple[Any, ...]] | None = None
    on_host: bool = False
    double: bool = False
    ascending: tuple[str, ...] = ()
    units: bool = True
    unitless: tuple[str, ...] = ()
    of_y: bool = True
    squared: bool = False

    def __call__(
        self,
        *arguments: Any,
        check: bool = True,
        dim: Over = None,
        weights: Any = None,
        nan: str = "propagate",
        attrs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The score.

        Args:
            *arguments: the parameters in the order of `domains`, then y; any shapes that
                broadcast (DataArrays by name).
            check: whether parameters outside their domain are looked for. A training loss whose
                head guarantees the domain passes False: looking waits for the device.
            dim: dimensions of a weighted mean; None for the scores of the points.
            weights: of the mean.
            nan: "propagate" or "omit", in the mean.
            attrs: of the result, for DataArrays.

        Returns:
            Scores, as the kind of array that was given.

        Raises:
            ArgumentError: a parameter outside its domain (on lazy arrays when computed), shapes,
                coordinates or units that do not fit.
        """
        named = dict(zip((*self.domains, *(["y"] if self.of_y else [])), arguments, strict=True))
        unit = None
        if not self.units:  # which `apply` then does not compare
            unit = check_alike(named, [name for name in named if name not in self.unitless])
        score = apply(
            self.score, named, options={"check": check}, attrs=attrs, unlike=self.unitless
        )
        if self.squared and hasattr(score, "attrs"):
            del score.attrs["units"]
            score.attrs |= {"units": f"({unit})2"} if unit else {}
        return mean_over(score, dim, weights, nan)

    @property
    def score(self) -> Score:
        """What `apply` is given."""
        on_numpy, on_torch = partial(_on_numpy, self), partial(_on_tensors, self)
        differentiable = on_torch if self.partials is not None else None
        return Score(self.name, self.long_name, on_numpy, differentiable, self.units)

    def check(self, *arrays: Any) -> None:
        """Refuse parameters that define no distribution.

        Args:
            *arrays: the parameters in order, of numpy or tensors without gradient; what follows
                is not looked at.

        Raises:
            ArgumentError: a parameter outside its domain, or bounds that are not in order.
        """
        named = dict(zip(self.domains, arrays, strict=False))
        for name, domain in self.domains.items():
            check_domain(name, domain, named[name])
        for lower, upper in pairwise(self.ascending):
            wrong = named[lower] >= named[upper]
            if bool(wrong.any()):
                raise ArgumentError(
                    lower,
                    f"{int(wrong.sum())} of {math.prod(wrong.shape)} values are not below {upper}",
                    f"Give {lower} < {upper}",
                )

    def on_arrays(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """The value or the partials of numpy arrays of one shape."""
        if self.double:
            arrays = tuple(a.astype(np.float64) for a in arrays)
        with np.errstate(all="ignore"):  # limits are taken with `where`; NaN says what is undefined
            return function(NUMPY, *arrays)


def _on_numpy(formula: Formula, *given: Any, check: bool) -> Any:
    dtype = common_dtype(*given)  # plain numbers come beside DataArrays
    arrays = [np.asarray(a, dtype=dtype) for a in given]
    if check:
        formula.check(*arrays)
    made = formula.on_arrays(formula.value, *np.broadcast_arrays(*arrays))
    with np.errstate(over="ignore"):  # a score beyond the range of float32 is inf
        return made.astype(dtype, copy=False)


def _on_tensors(formula: Formula, *tensors: Any, check: bool) -> Any:
    from ens10.metrics.families._torch import evaluate

    if check:
        formula.check(*(t.detach() for t in tensors))
    return evaluate(formula, *tensors)


def check_domain(name: str, domain: Domain, values: Any) -> None:
    """Refuse parameters that define no distribution.

    Args:
        name: of the parameter.
        domain: "real", "nonnegative" or "positive".
        values: a numpy array or a tensor; NaN is let through.

    Raises:
        ArgumentError: some values lie outside.
    """
    if domain == "real":
        return
    outside = values < 0 if domain == "nonnegative" else values <= 0
    if bool(outside.any()):
        wanted = "0 or more" if domain == "nonnegative" else "above 0"
        raise ArgumentError(
            name,
            f"{int(outside.sum())} of {math.prod(values.shape)} values are not {wanted}, "
            f"the lowest is {float(values[outside].min()):.6g}",
            f"Give a {name} of {wanted}",
        )
