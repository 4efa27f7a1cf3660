"""Closed-form scores as functions of arrays of any library.

A closed form is written once, as functions of (ops, *parameters, y), where `ops` is `NUMPY` or
`TORCH`: the score, and its derivatives, together a `Kernel`. `Formula` turns it into a public
function. From the call to the numbers, for the CRPS of normals:

    crps_normal -> Formula.__call__ -> apply(Score, ...) -> _on_numpy or on_tensors -> Kernel.value

and backward from `on_tensors` to `Kernel.partials`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import common_dtype, uses_loops
from ens10.metrics._labels import check_alike
from ens10.metrics._ops import NUMPY
from ens10.metrics._reduce import Over, mean_over

Domain = Literal["real", "nonnegative", "positive"]
Function = Callable[..., Any]


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


# name and long name of each result, and how it differs from a score in the unit of y
_RESULTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
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

    They take arrays of one shape and dtype, and propagate NaN.

    Args:
        value: function that returns the result; moments have no y.
        partials: function that returns the derivatives by each parameter and by y, in that order;
            finite at every valid parameter, including scale 0. None for autograd through `value`;
            with `on_host` there is then no gradient.
        double: True to compute in float64 and return the arrays' dtype, for formulas that cancel.
        on_host: True if torch lacks a function, so that tensors are computed by scipy on the host.
        takes_tensors: with `on_host`, True if the functions take `TORCH` as well, with larger
            errors: tensors of a device then stay there.
        positive: names of scales that must not be 0.
        loop: module with the functions `scores` and `gradients`, compiled loops over many numbers
            in the host's memory; "" for none. It is imported when it is used.
        traceable: True if autograd through `value` is right everywhere, as `torch.compile` needs.
        estimator: attribute of that name of DataArrays; "" for none.

    Attributes:
        key: position in `KERNELS`.
    """

    value: Function
    partials: Function | None = None
    double: bool = False
    on_host: bool = False
    takes_tensors: bool = False
    positive: tuple[str, ...] = ()
    loop: str = ""
    traceable: bool = False
    estimator: str = ""
    key: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", len(KERNELS))
        KERNELS.append(self)

    @property
    def loops(self) -> Any:
        """Return the module with compiled loops."""
        return import_module(self.loop)

    def apply_to_numpy(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """Apply `value` or `partials` to numpy arrays of one shape."""
        if self.double or arrays[0].dtype == np.float16:
            wide = np.float64 if self.double else np.float32
            arrays = tuple(a.astype(wide) for a in arrays)
        with np.errstate(all="ignore"):  # limits are taken with `where`; NaN says what is undefined
            return function(NUMPY, *arrays)

    def formula(self, result: str, parameters: Mapping[str, Parameter], family: str) -> "Formula":
        """Return the `Formula` of "crps", "log_score", "cdf", "cdf_below", "mean", "variance"."""
        name, long_name, options = _RESULTS[result]
        domains: dict[str, Domain] = {
            k: "positive" if k in self.positive else p.domain for k, p in parameters.items()
        }
        return Formula(
            name,
            long_name,
            domains,
            self,
            **options,
            ascending=tuple(k for k in ("lower", "upper") if k in parameters),
            unitless=tuple(k for k, p in parameters.items() if p.unit == "1"),
            family=family,
        )


KERNELS: list[Kernel] = []


@dataclass(frozen=True)
class Formula:
    """One closed form of one family, as a function of arrays of any library.

    Args:
        name: name of the result, such as "crps".
        long_name: its name in words.
        domains: domain of each parameter by name, in order.
        kernel: its functions; `domains` takes the place of `Kernel.positive`.
        ascending: parameters of which each must be less than the next, such as bounds.
        units: True if the score has the unit of y.
        unitless: parameters that have no unit (shapes).
        has_observation: True if there is an observation; False for moments.
        squared_unit: True if the result has the square of the unit instead.
        family: the attribute `family` of the result, for DataArrays; "" for none.

    Attributes:
        has_gradient: True if results for tensors have a gradient.
    """

    name: str
    long_name: str
    domains: Mapping[str, Domain]
    kernel: Kernel
    ascending: tuple[str, ...] = ()
    units: bool = True
    unitless: tuple[str, ...] = ()
    has_observation: bool = True
    squared_unit: bool = False
    family: str = ""
    has_gradient: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note whether there is a gradient: training asks at every step."""
        kernel = self.kernel
        object.__setattr__(self, "has_gradient", kernel.partials is not None or not kernel.on_host)

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
        attrs = {"estimator": self.kernel.estimator, "family": self.family}
        attrs = {k: v for k, v in attrs.items() if v}
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
        differentiable = on_torch if self.has_gradient else None
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


def _on_numpy(formula: Formula, *arguments: Any, check: bool) -> Any:
    dtype = common_dtype(*arguments)  # plain numbers come beside DataArrays
    arrays = [np.asarray(a, dtype=dtype) for a in arguments]
    if check:
        formula.check(*arrays)
    shared = np.broadcast_arrays(*arrays)
    kernel = formula.kernel
    if kernel.loop and uses_loops(shared[0]):
        return kernel.loops.scores(*shared)
    score = kernel.apply_to_numpy(kernel.value, *shared)
    with np.errstate(over="ignore"):  # a score beyond the range of float32 is inf
        return score.astype(dtype, copy=False)


def on_tensors(formula: Formula, *tensors: Any, check: bool) -> Any:
    """Evaluate a formula on tensors of one dtype, with gradients."""
    from ens10.metrics.distributions._torch import evaluate

    if check:
        formula.check(*(t.detach() for t in tensors))
    return evaluate(formula.kernel, *tensors)


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
