"""The keys, shapes and types of a batch: the contract between the data and the models."""

from typing import Any, Required, TypedDict


class Batch(TypedDict, total=False):
    """Fields of N dates; numpy arrays from `Batches`, torch tensors from the data module.

    All arrays are float32 but `dates`, `rows` and `columns`. Physical units are those of the target
    variable. A batch keeps its values as long as any of its arrays is referenced.

    Keys:
        features: (N, C, H, W) normalised inputs, gaps filled with 0; see `Batches.channels`.
        raw_mean: (N, H, W) mean of the raw ensemble of the target at the target's step, NaN where
            it has none.
        raw_std: (N, H, W) its standard deviation (n - 1, or n under the paper's protocol).
        target: (N, H, W) truth at the valid date; 0 where `weights` is 0.
        weights: (N, H, W) area weight, 0 where target or raw ensemble is missing.
        dates: (N,) int64 valid date in seconds since 1970-01-01 00 UTC.
        steps: (N,) float32 lead time; only if there are several.
        members: (N, M, H, W) the raw ensemble itself; only if asked for.
        rows: (N,) int64 first row of each patch, or row of each point; only of these.
        columns: (N,) int64 its first column, or its column.
        latitude: (P,) degrees north; only of points.
        longitude: (P,) degrees east.

    Kinds with `features="members"` have features (N, M, C, H, W): the inputs of each member.
    Slabs have the rows of the slab for H, and where a sample is split between processes, each has
    its own rows and columns for H and W; patches have their own size for H and W, and N counts
    patches, or views of a date. Points have P in place of N, H and W: features are (P, C) or
    (P, M, C), the other fields (P,) or (P, M), dates (P,).

    Of T targets, raw_mean, raw_std, target and weights are (N, T, H, W), and members
    (N, T, M, H, W); points (P, T) and (P, T, M). Of several lead times each element has the
    features, raw ensemble and truth of its own.
    """

    features: Required[Any]
    raw_mean: Required[Any]
    raw_std: Required[Any]
    target: Required[Any]
    weights: Required[Any]
    dates: Required[Any]
    steps: Any
    members: Any
    rows: Any
    columns: Any
    latitude: Any
    longitude: Any
