"""Elementwise functions by one name for numpy arrays and torch tensors.

A score is written once as a function of (ops, *arrays), where `ops` is `NUMPY` or
`_ops_torch.TORCH`; what is missing in one of them is added to both.
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy import special


class _NumpyOps:
    """Elementwise functions by the names of numpy, which preserve the dtype.

    `any_true(condition)` is True if the condition holds anywhere (and always on a GPU, where the
    test would synchronise), `erfcx` is exp(x^2) erfc(x), `expit` the logistic function,
    `softplus` is log(1 + exp(x)) without overflow, `gammainc` P(a, x), `stdtrit` the quantile of
    Student's t, and `clipped_ratio(x, scale, most)` x / |scale| between -most and most, 0 for NaN.
    """

    exp, expm1, log, log1p, sqrt = np.exp, np.expm1, np.log, np.log1p, np.sqrt
    abs, sign, maximum, minimum, where = np.abs, np.sign, np.maximum, np.minimum, np.where
    full_like, isfinite, isnan, tanh = np.full_like, np.isfinite, np.isnan, np.tanh
    ndtr, log_ndtr, erf, expit = special.ndtr, special.log_ndtr, special.erf, special.expit
    erfcx, ndtri, logit, stdtrit = special.erfcx, special.ndtri, special.logit, special.stdtrit
    gammaln, digamma, gammainc = special.gammaln, special.psi, special.gammainc
    sort, argsort, amax, take_along = np.sort, np.argsort, np.amax, np.take_along_axis
    stack, concat, clip, ones_like = np.stack, np.concatenate, np.clip, np.ones_like
    einsum, moveaxis, searchsorted = np.einsum, np.moveaxis, np.searchsorted
    ceil, cumsum, broadcast_to = np.ceil, np.cumsum, np.broadcast_to

    @staticmethod
    def any_true(condition: Any) -> bool:
        return bool(np.any(condition))

    @staticmethod
    def clipped_ratio(x: Any, scale: Any, most: float) -> Any:
        ratio = np.nan_to_num(x / np.abs(scale), nan=0.0, posinf=most, neginf=-most)
        return np.clip(ratio, -most, most)

    @staticmethod
    def addcmul(x: Any, y: Any, z: Any) -> Any:
        """Return x + y z."""
        return x + y * z

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


def are_tensors(arrays: Iterable[Any]) -> bool:
    """Return True if all are torch tensors of one dtype."""
    torch = sys.modules.get("torch")
    dtypes: set[Any] = set()
    for array in arrays:
        if torch is None or not isinstance(array, torch.Tensor):
            return False
        dtypes.add(array.dtype)
    return len(dtypes) == 1


def ops_of(*arrays: Any) -> Any:
    """Return the functions for the library of some arrays: torch if one of them is a tensor."""
    if any(is_tensor(array) for array in arrays):
        from ens10.metrics._ops_torch import TORCH

        return TORCH
    return NUMPY


def for_any_library(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of arrays of either library that calls a function of (ops, *arrays)."""
    return partial(_with_ops, function)


def _with_ops(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    return function(ops_of(*arrays), *arrays, **options)


def standardise(ops: Any, mu: Any, sigma: Any, y: Any) -> Any:
    """Return (y - mu) / sigma; where sigma is 0, its limit, or 0 if the distance is 0 too."""
    far = 1e3 * ops.sign(y - mu)
    divisor = ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)
    return ops.where(sigma == 0, far, (y - mu) / divisor)
