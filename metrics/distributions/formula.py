"""Closed-form scores as functions of arrays of any library.

A closed form is written once, as functions of (ops, *parameters, y), where `ops` is `NUMPY` or
`_torch.TORCH`: the score, and its derivatives. `Formula` turns it into a public function.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import special

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import common_dtype
from ens10.metrics._labels import check_alike
from ens10.metrics._reduce import Over, mean_over

Domain = Literal["real", "nonnegative", "positive"]
Function = Callable[..., Any]


class _NumpyOps:
    """Elementwise functions by the names of numpy, which preserve the dtype.

    `any_true(condition)` is True if the condition holds anywhere (and always on a GPU, where the
    test would synchronise), `erfcx` is exp(x^2) erfc(x), `expit` the logistic function,
    `softplus` is log(1 + exp(x)) without overflow, `gammainc` P(a, x), `stdtrit` the quantile of
    Student's t.
    """

    exp, expm1, log, log1p, sqrt = np.exp, np.expm1, np.log, np.log1p, np.sqrt
    abs, sign, maximum, minimum, where = np.abs, np.sign, np.maximum, np.minimum, np.where
    full_like, isfinite, isnan, tanh = np.full_like, np.isfinite, np.isnan, np.tanh
    ndtr, log_ndtr, erf, expit = special.ndtr, special.log_ndtr, special.erf, special.expit
    erfcx, ndtri, logit, stdtrit = special.erfcx, special.ndtri, special.logit, special.stdtrit
    gammaln, digamma, gammainc = special.gammaln, special.psi, special.gammainc
    sort, stack, concat, take_along = np.sort, np.stack, np.concatenate, np.take_along_axis
    einsum, moveaxis, searchsorted = np.einsum, np.moveaxis, np.searchsorted
    ceil, cumsum, broadcast_to = np.ceil, np.cumsum, np.broadcast_to

    @staticmethod
    def any_true(condition: Any) -> bool:
        return bool(np.any(condition))

    @staticmethod
    def softplus(x: Any) -> Any:
        return np.logaddexp(np.zeros((), dtype=x.dtype), x)

    @staticmethod
    def cast(values: Any, like: Any) -> Any:
        """Return numbers in the dtype and on the device of an array."""
        return np.asarray(values, like.dtype)

    @staticmethod
    def double_like(values: Any, like: Any) -> Any:  # noqa: ARG004
        """Return numbers in float64 on the device of an array."""
        return np.asarray(values, np.float64)

    @staticmethod
    def detach(x: Any) -> Any:
        """Return an array without gradient."""
        return x

    @staticmethod
    def to_integers(x: Any) -> Any:
        return x.astype(np.int64)

    @staticmethod
    def random(shape: Any, like: Any, generator: Any, least: float) -> Any:  # noqa: ARG004
        """Return uniform random numbers from `least` to 1, float64."""
        uniform = np.random.default_rng(generator).random(shape)
        return np.maximum(uniform, least)


# The class itself: an instance would bind those of its functions that are written in Python.
NUMPY: Any = _NumpyOps


def is_tensor(value: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def ops_of(*arrays: Any) -> Any:
    """Return the functions for the library of some arrays: torch if one of them is a tensor."""
    if any(is_tensor(array) for array in arrays):
        from ens10.metrics.distributions._torch import TORCH

        return TORCH
    return NUMPY


@dataclass(frozen=True)
class Parameter:
    """A parameter of a distribution.

    Args:
        domain: set of valid values.
        unit: "target" if it has the unit of the target, "1" if it has none.
        default: value if it is omitted; None if it is required.
        long_name: its name in words.
        core_dim: name of its dimension in addition to those of the field; "" for none.
        is_quantity: True if its values are values of the target, as members, quantiles and the
            mean are; only these keep the target's `standard_name` in a Dataset.
    """

    domain: Domain = "real"
    unit: Literal["target", "1"] = "target"
    default: float | None = None
    long_name: str = ""
    core_dim: str = ""
    is_quantity: bool = False


@dataclass(frozen=True)
class Formula:
    """One score of one family.

    Both functions take (ops, *parameters, y), arrays of one shape and dtype; NaN propagates.

    Args:
        name: name of the result, such as "crps".
        long_name: its name in words.
        domains: domain of each parameter by name, in order.
        value: function that returns the score.
        partials: function that returns the derivatives by each parameter and by y, in that order;
            finite at every valid parameter, including scale 0. None for results without gradient:
            tensors are then computed on the host.
        on_host: True if torch lacks a function, so that tensors are computed by scipy on the host.
        double: True to compute in float64 and return the arrays' dtype, for formulas that cancel.
        ascending: parameters of which each must be less than the next, such as bounds.
        units: True if the score has the unit of y.
        unitless: parameters that have no unit (shapes).
        has_observation: True if there is an observation; False for moments.
        squared_unit: True if the result has the square of the unit instead.
        family: the attribute `family` of the result, for DataArrays; "" for none.
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
    has_observation: bool = True
    squared_unit: bool = False
    family: str = ""

    def __call__(
        self,
        *arguments: Any,
        check: bool = True,
        dim: Over = None,
        weights: Any = None,
        nan: str = "propagate",
    ) -> Any:
        """Return the score.

        Args:
            *arguments: the parameters in the order of `domains`, then y; any shapes that
                broadcast (DataArrays by name).
            check: True to refuse parameters outside their domain. A training loss whose head
                guarantees the domain passes False: the check synchronises with the GPU.
            dim: dimensions of a weighted mean; None for the scores of the points.
            weights: weights of the mean.
            nan: "propagate" or "omit", in the mean.

        Returns:
            Scores, as an array of the input's type.

        Raises:
            ArgumentError: a parameter outside its domain (on lazy arrays when computed), shapes,
                coordinates or units that do not match.
        """
        inputs = dict(
            zip((*self.domains, *(["y"] if self.has_observation else [])), arguments, strict=True)
        )
        unit = None
        if not self.units:  # which `apply` then does not compare
            unit = check_alike(inputs, [name for name in inputs if name not in self.unitless])
        attrs = {"family": self.family} if self.family else None
        score = apply(
            self.score, inputs, options={"check": check}, attrs=attrs, unlike=self.unitless
        )
        if self.squared_unit and hasattr(score, "attrs"):
            del score.attrs["units"]
            score.attrs |= {"units": f"({unit})2"} if unit else {}
        return mean_over(score, dim, weights, nan)

    @property
    def score(self) -> Score:
        """Return the `Score` that `apply` needs."""
        on_numpy, on_torch = partial(_on_numpy, self), partial(on_tensors, self)
        differentiable = on_torch if self.partials is not None else None
        return Score(self.name, self.long_name, on_numpy, differentiable, self.units)

    def check(self, *arrays: Any) -> None:
        """Refuse invalid parameters.

        Args:
            *arrays: the parameters in order, numpy arrays or tensors without gradient; further
                arrays are ignored.

        Raises:
            ArgumentError: a parameter outside its domain, or bounds that are not in order.
        """
        parameters = dict(zip(self.domains, arrays, strict=False))
        for name, domain in self.domains.items():
            check_domain(name, domain, parameters[name])
        for lower, upper in pairwise(self.ascending):
            wrong = parameters[lower] >= parameters[upper]
            if bool(wrong.any()):
                raise ArgumentError(
                    lower,
                    f"{int(wrong.sum())} of {math.prod(wrong.shape)} values are not below {upper}",
                    f"Pass {lower} < {upper}",
                )

    def apply_to_numpy(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """Apply `value` or `partials` to numpy arrays of one shape."""
        if self.double:
            arrays = tuple(a.astype(np.float64) for a in arrays)
        with np.errstate(all="ignore"):  # limits are taken with `where`; NaN says what is undefined
            return function(NUMPY, *arrays)


def _on_numpy(formula: Formula, *arguments: Any, check: bool) -> Any:
    dtype = common_dtype(*arguments)  # plain numbers come beside DataArrays
    arrays = [np.asarray(a, dtype=dtype) for a in arguments]
    if check:
        formula.check(*arrays)
    score = formula.apply_to_numpy(formula.value, *np.broadcast_arrays(*arrays))
    with np.errstate(over="ignore"):  # a score beyond the range of float32 is inf
        return score.astype(dtype, copy=False)


def on_tensors(formula: Formula, *tensors: Any, check: bool) -> Any:
    """Evaluate a formula on tensors of one dtype, with gradients."""
    from ens10.metrics.distributions._torch import evaluate

    if check:
        formula.check(*(t.detach() for t in tensors))
    return evaluate(formula, *tensors)


def check_domain(name: str, domain: Domain, values: Any) -> None:
    """Refuse parameters outside their domain.

    Args:
        name: name of the parameter.
        domain: "real", "nonnegative" or "positive".
        values: a numpy array or a tensor; NaN is accepted.

    Raises:
        ArgumentError: some values lie outside.
    """
    if domain == "real":
        return
    outside = values < 0 if domain == "nonnegative" else values <= 0
    if bool(outside.any()):
        required = "0 or more" if domain == "nonnegative" else "above 0"
        raise ArgumentError(
            name,
            f"{int(outside.sum())} of {math.prod(values.shape)} values are not {required}, "
            f"the lowest is {float(values[outside].min()):.6g}",
            f"Pass a {name} of {required}",
        )


# name and long name of each result, and how it differs from a score in the unit of y
_RESULTS: Mapping[str, tuple[str, str, dict[str, bool]]] = {
    "crps": ("crps", "continuous ranked probability score", {}),
    "log_score": ("log_score", "logarithmic score", {"units": False}),
    "cdf": ("pit", "probability integral transform", {"units": False}),
    "cdf_below": ("pit", "probability integral transform", {"units": False}),
    "mean": ("mean", "mean", {"has_observation": False}),
    "variance": (
        "variance",
        "variance",
        {"has_observation": False, "units": False, "squared_unit": True},
    ),
}


@dataclass(frozen=True)
class Kernel:
    """A closed form of a family of distributions: functions of (ops, *parameters, y).

    Args:
        value: function that returns the result; moments have no y.
        partials: function that returns the derivatives, as in `Formula`.
        double: True to compute in float64.
        on_host: True if torch lacks one of its functions.
        positive: names of scales that must not be 0.
    """

    value: Function
    partials: Function | None = None
    double: bool = False
    on_host: bool = False
    positive: tuple[str, ...] = ()

    def formula(self, result: str, parameters: Mapping[str, Parameter], family: str) -> Formula:
        """Return the `Formula` of "crps", "log_score", "cdf", "cdf_below", "mean", "variance"."""
        name, long_name, options = _RESULTS[result]
        domains: dict[str, Domain] = {
            k: "positive" if k in self.positive else p.domain for k, p in parameters.items()
        }
        return Formula(
            name,
            long_name,
            domains,
            self.value,
            self.partials,
            on_host=self.on_host,
            double=self.double,
            ascending=tuple(k for k in ("lower", "upper") if k in parameters),
            unitless=tuple(k for k, p in parameters.items() if p.unit == "1"),
            family=family,
            **options,
        )
