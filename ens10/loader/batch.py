"""What a batch is: the one contract between the data and the models."""

from typing import Any, Required, TypedDict


class Batch(TypedDict, total=False):
    """Fields of N dates; numpy arrays from `Batches`, torch tensors from the data module.

    All arrays are float32 but `dates`. Physical units are those of the target variable.

    Keys:
        features: (N, C, H, W) normalised inputs, gaps filled with 0; see `Batches.channels`.
        raw_mean: (N, H, W) mean of the raw ensemble of the target at the target's step, NaN where
            it has none.
        raw_std: (N, H, W) its standard deviation (n - 1, or n under the paper's protocol).
        target: (N, H, W) truth at the valid date; 0 where `weights` is 0.
        weights: (N, H, W) area weight, 0 where target or raw ensemble is missing.
        dates: (N,) int64 valid date in seconds since 1970-01-01 00 UTC.
        members: (N, M, H, W) the raw ensemble itself; only if asked for.
    """

    features: Required[Any]
    raw_mean: Required[Any]
    raw_std: Required[Any]
    target: Required[Any]
    weights: Required[Any]
    dates: Required[Any]
    members: Any
