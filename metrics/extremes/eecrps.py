"""The extreme event weighted CRPS (EECRPS): a CRPS that looks where the raw ensemble warned."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import backend_of
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics._tables import as_labelled
from ens10.metrics.extremes.frozen import FrozenEFI, Origin
from ens10.metrics.states import NanPolicy, finish_mean, mean_state

EECRPSNormalisation = Literal["mean", "weighted"]


def eecrps(
    crps: Any,
    raw_efi: FrozenEFI,
    *,
    forecast: Origin,
    scores_raw: bool = False,
    normalisation: str = "mean",
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """CRPS weighted by |EFI|, the extreme forecast index of the raw ensemble.

    - "mean": sum(w |EFI| CRPS) / sum(w), of Ashkboos et al. (2022, arXiv:2206.14786).
    - "weighted": sum(w |EFI| CRPS) / sum(w |EFI|), a mean CRPS in which extreme cases count more;
      comparable between variables and regions.

    With a fixed EFI both are proper. With that of the scored forecast they are not: the optimum
    moves to the climate. So the EFI must be a `FrozenEFI`, and one that was made from `forecast`
    is refused. That is seen by the name, and of the arrays that `origin` was given: by the values
    of those in memory (in any order, library or precision; by dates if they have some) and by the
    graph of lazy ones. It is not seen under another name if no arrays were given, if one side had
    them lazily, for a part of the area, or for members drawn or computed anew from a
    post-processed forecast. So give every forecast one name, and `frozen_efi` raw members only.

    Args:
        crps: the scores of points, of any kind; tensors keep their gradients.
        raw_efi: made by `frozen_efi`, of the same shape (dimensions and coordinates) as the scores.
        forecast: what the scores are of; see `origin`.
        scores_raw: the scores are those of the raw ensemble itself, the reference of a table.
            Then `forecast` must be what the EFI was made of.
        normalisation: see above.
        dim: dimensions of the mean; None gives |EFI| CRPS of the points ("mean" only).
        weights: of the mean, such as area weights.
        nan: "propagate" or "omit", where score or index is missing.

    Returns:
        The score, in the unit of `crps`, as the kind of array that was given; "weighted" is NaN
        where all indices are 0.

    Raises:
        ArgumentError: the EFI is no `FrozenEFI` or was made from the forecast; shapes or
            coordinates that differ; "weighted" without `dim`.
        UnknownNameError: another normalisation or policy.
    """
    if normalisation not in get_args(EECRPSNormalisation):
        raise UnknownNameError("normalisation", normalisation, get_args(EECRPSNormalisation))
    if normalisation == "weighted" and dim is None:
        raise ArgumentError("dim", '"weighted" is a ratio of sums', 'Give dim, such as dim="all"')
    index = checked_efi(crps, raw_efi, forecast, scores_raw)
    score = _product(crps, index, raw_efi)
    mean = mean_over(score, dim, weights, nan)
    if normalisation == "mean":
        return mean
    below = mean_over(_index_where(crps, index), dim, weights, nan)
    return _ratio(mean, below)


def eecrps_state(
    crps: Any,
    raw_efi: FrozenEFI,
    *,
    forecast: Origin,
    scores_raw: bool = False,
    keep: Sequence[str] = (),
    weights: xr.DataArray | None = None,
    nan: NanPolicy = "omit",
) -> xr.Dataset:
    """The additive state of an EECRPS: blocks of dates merge with `merge_states`.

    Args:
        crps: as of `eecrps`.
        raw_efi: as of `eecrps`.
        forecast: as of `eecrps`.
        scores_raw: as of `eecrps`.
        keep: dimensions that stay.
        weights: over some of the dimensions of the scores.
        nan: "omit" or "propagate".

    Returns:
        `eecrps_sum` (w |EFI| CRPS), `eecrps_weight` (w) and `eecrps_count`; `abs_efi_sum`
        (w |EFI|), `abs_efi_weight`, `abs_efi_count` of the same points. Its attributes say what
        the EFI was made of, so that states of different ones do not merge.

    Raises:
        ArgumentError: as `eecrps`.
    """
    index = checked_efi(crps, raw_efi, forecast, scores_raw)
    held = as_labelled({"crps": crps, "raw_efi": index}, unlike=["raw_efi"])
    product = _product(held["crps"], held["raw_efi"], raw_efi)
    weight = _index_where(held["crps"], held["raw_efi"])
    parts = [
        mean_state(name, field.reset_coords(drop=True), keep=keep, weights=weights, nan=nan)
        for name, field in (("eecrps", product), ("abs_efi", weight))
    ]
    made = {"efi_source": raw_efi.origin.source, "efi_method": raw_efi.method}
    return xr.merge(parts, join="exact", compat="no_conflicts").assign_attrs(made)


def finish_eecrps(state: xr.Dataset, normalisation: str = "mean") -> xr.DataArray:
    """The EECRPS of a state, over the dimensions that it kept; NaN where no weight is.

    Raises:
        UnknownNameError: another normalisation.
    """
    if normalisation not in get_args(EECRPSNormalisation):
        raise UnknownNameError("normalisation", normalisation, get_args(EECRPSNormalisation))
    mean = finish_mean(state, "eecrps")
    if normalisation == "mean":
        return mean
    below = finish_mean(state, "abs_efi")
    return (mean / below.where(below > 0)).assign_attrs(mean.attrs).rename("eecrps")


def checked_efi(crps: Any, raw_efi: FrozenEFI, forecast: Origin, scores_raw: bool) -> Any:
    """The values of an EFI that may weight these scores.

    Raises:
        ArgumentError: it may not; see `eecrps`.
    """
    if not isinstance(raw_efi, FrozenEFI):
        raise ArgumentError(
            "raw_efi",
            f"{type(raw_efi).__name__} does not say what it was made of",
            "Make it from the raw members with frozen_efi",
        )
    if not isinstance(forecast, Origin):
        raise ArgumentError("forecast", f"{forecast!r} is no origin", 'Write origin("emos", ...)')
    same = raw_efi.origin.same_as(forecast)
    if same and not scores_raw:
        raise ArgumentError(
            "raw_efi",
            f"it was made from {raw_efi.origin.source!r}, the forecast that is scored "
            f"({forecast.source!r}), which is improper",
            "Take that of the raw ensemble; for the score of that itself, write scores_raw=True",
        )
    if scores_raw and not same:
        raise ArgumentError(
            "scores_raw",
            f"the EFI is of {raw_efi.origin.source!r}, the forecast is {forecast.source!r}",
            "Leave scores_raw out",
        )
    _check_alike(crps, raw_efi.values)
    return raw_efi.values


def _check_alike(crps: Any, index: Any) -> None:
    """By position, an index of another shape would broadcast to something else."""
    if isinstance(crps, xr.DataArray) and isinstance(index, xr.DataArray):
        if set(crps.dims) != set(index.dims):
            raise ArgumentError("raw_efi", f"dimensions {index.dims} for scores over {crps.dims}")
        return
    shapes = [tuple(np.shape(a)) for a in (index, crps)]
    if shapes[0] != shapes[1]:
        raise ArgumentError("raw_efi", f"shape {shapes[0]} for scores of shape {shapes[1]}")


def _times(crps: Any, index: Any) -> Any:
    return abs(index) * crps


def _present(crps: Any, index: Any) -> Any:
    """|EFI|, NaN where the score is: the means of both are over the same points."""
    return abs(index) + 0 * crps


def _product(crps: Any, index: Any, raw_efi: FrozenEFI) -> Any:
    return apply(
        Score("eecrps", "extreme event weighted CRPS", _times, _times),
        {"crps": crps, "raw_efi": index},
        attrs={"efi_source": raw_efi.origin.source, "efi_method": raw_efi.method},
        unlike=["raw_efi"],
    )


def _index_where(crps: Any, index: Any) -> Any:
    constant = crps.detach() if hasattr(crps, "detach") else crps
    return apply(
        Score("abs_efi", "weight of extremes", _present, _present, units=False),
        {"crps": constant, "raw_efi": index},
    )


def _ratio(mean: Any, below: Any) -> Any:
    kind = backend_of({"mean": mean})
    if kind == "xarray":
        return (mean / below.where(below > 0)).assign_attrs(mean.attrs).rename(mean.name)
    if kind == "torch":
        return mean / below.masked_fill(below == 0, float("nan"))
    if kind == "dask":
        from ens10.metrics._dispatch import dask_array

        return mean / dask_array().where(below > 0, below, np.nan)
    return mean / np.where(below > 0, below, np.nan)
