"""The CRPS weighted by the EFI of the raw ensemble (EECRPS), and the constant index for it.

A CRPS weighted by an index of the forecast that is scored is improper: forecasting the climate
lowers the weight. The index must be that of the raw ensemble, the same for all forecasts that are
compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import backend_of, fill_masked, on_host
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics._sums import ratio
from ens10.metrics._tables import as_labelled
from ens10.metrics.extremes.indices import efi
from ens10.metrics.states import NanPolicy, finish_mean, mean_state

__all__ = [
    "EECRPSNormalisation",
    "FrozenEFI",
    "Origin",
    "eecrps",
    "eecrps_state",
    "finish_eecrps",
    "frozen_efi",
    "origin",
]

_ATTRIBUTES = ("source", "method", "origin")
_PIECE = 1 << 15  # values that are hashed at a time, in the cache
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SCRAMBLE = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True)
class Origin:
    """Identity of a forecast, by name and by fingerprints of its arrays.

    Attributes:
        source: a name, such as "raw" or "emos".
        marks: fingerprints of the arrays; see `origin`.
    """

    source: str
    marks: tuple[str, ...] = ()

    def same_as(self, other: "Origin") -> bool:
        """Return True if the names agree, or if the arrays share a fingerprint."""
        return self.source == other.source or bool(set(self.marks) & set(other.marks))


def origin(source: str, *arrays: Any) -> Origin:
    """Return the identity of a forecast.

    Args:
        source: its name; forecasts of the same name count as the same forecast.
        *arrays: its members or parameters (optional). Every value of arrays in memory is read for
            a fingerprint that does not depend on the name, library, order of axes or members, or
            precision; DataArrays with a dimension `time` have one for each date. Lazy arrays are
            not read; their fingerprint is that of the dask graph.

    Raises:
        ArgumentError: an empty name.
    """
    if not isinstance(source, str) or not source.strip():
        raise ArgumentError("source", f"{source!r} is not a name", 'Pass one, such as "raw"')
    return Origin(source.strip(), tuple(mark for array in arrays for mark in _marks(array)))


def _marks(array: Any) -> list[str]:
    array = fill_masked(array)
    kind = backend_of({"array": array})
    lazy = array.chunks is not None if kind == "xarray" else kind == "dask"
    if lazy:
        data = array.data if kind == "xarray" else array
        return ["graph:" + "_".join(str(data.name).split())]
    values = on_host(array) if kind == "torch" else np.asarray(array)
    if kind == "xarray" and "time" in array.dims:  # dates that were cut out are known again
        return [_fingerprint(date) for date in np.moveaxis(values, array.get_axis_num("time"), 0)]
    return [_fingerprint(values)]


def _fingerprint(values: npt.NDArray[Any]) -> str:
    """Return a hash of the values in float32 that does not depend on their order.

    It is the sum of the scrambled bits of the values.

    The scrambling is the finaliser of splitmix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
    """
    flat, total = values.reshape(-1), np.uint64(values.size)
    with np.errstate(over="ignore"):  # sums and products are modulo 2**64
        for first in range(0, flat.size, _PIECE):
            piece = flat[first : first + _PIECE].astype(np.float32) + np.float32(0)  # no -0
            piece[np.isnan(piece)] = np.nan
            bits = (piece.view(np.uint32).astype(np.uint64) + _STEP) * _STEP
            for shift, factor in _SCRAMBLE:
                bits = (bits ^ (bits >> shift)) * factor
            total += (bits ^ (bits >> np.uint64(31))).sum(dtype=np.uint64)
    return f"{int(total):016x}"


@dataclass(frozen=True)
class FrozenEFI:
    """The EFI of a raw ensemble, as a constant weight; from `frozen_efi` or `from_dataarray`.

    Attributes:
        values: the index, without gradient.
        origin: identity of the ensemble.
        method: method of `efi`.
    """

    values: Any
    origin: Origin
    method: str

    def __post_init__(self) -> None:
        detach = getattr(self.values, "detach", None)  # tensors
        object.__setattr__(self, "values", detach() if detach else self.values)

    def map(self, function: Callable[[Any], Any]) -> "FrozenEFI":
        """Apply a selection or conversion to the index, and keep its origin.

        Args:
            function: from array to array, such as a selection; it must not change values.
        """
        return FrozenEFI(function(self.values), self.origin, self.method)

    def to_dataarray(self) -> xr.DataArray:
        """Return the index as a DataArray `efi` with the attributes `source`, `method`, `origin`.

        Raises:
            ArgumentError: the index is not a DataArray.
        """
        if not isinstance(self.values, xr.DataArray):
            raise ArgumentError("raw_efi", "it has no labels", "Make it from DataArrays")
        values = (self.origin.source, self.method, " ".join(self.origin.marks))
        attrs = dict(zip(_ATTRIBUTES, values, strict=True))
        return self.values.assign_attrs(attrs).rename("efi")

    @staticmethod
    def from_dataarray(array: xr.DataArray) -> "FrozenEFI":
        """Restore an index from the result of `to_dataarray`, for example read from a file.

        Raises:
            ArgumentError: the attributes that `to_dataarray` writes are missing.
        """
        missing = [name for name in _ATTRIBUTES if name not in getattr(array, "attrs", {})]
        if missing:
            raise ArgumentError(
                "raw_efi", f"no attribute {', '.join(missing)}", "Make it with frozen_efi"
            )
        source, method, marks = (str(array.attrs[name]) for name in _ATTRIBUTES)
        return FrozenEFI(array, Origin(source, tuple(marks.split())), method)


def frozen_efi(
    raw_members: Any,
    climate: Any,
    *,
    source: str,
    method: str = "exact",
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    nan: str = "propagate",
) -> FrozenEFI:
    """Return the EFI of the raw ensemble, as a constant weight for scores of other forecasts.

    Args:
        raw_members: the ensemble before any post-processing.
        climate: quantiles of its model climate.
        source: the ensemble's name, such as "raw".
        method: "exact", "ecmwf" or "ens10-paper", see `efi`.
        member_dim: the member axis.
        quantile_dim: the quantile axis of the climate.
        levels: levels of the quantiles; None for their coordinate.
        epsilon: for "ecmwf": intervals of the climate up to this value are left out.
        nan: "propagate" or "skip-members".

    Returns:
        The index as a constant: without gradient, lazy if the members are. It keeps the name and
        a fingerprint of the members (see `origin`).

    Raises:
        ArgumentError, UnknownNameError: errors of `efi`; an empty name.
    """
    if hasattr(raw_members, "detach"):
        raw_members = raw_members.detach()
    ensemble_origin = origin(source, raw_members)
    index = efi(
        raw_members,
        climate,
        method=method,
        member_dim=member_dim,
        quantile_dim=quantile_dim,
        levels=levels,
        epsilon=epsilon,
        nan=nan,
    )
    return FrozenEFI(index, ensemble_origin, method)


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
    """Return the CRPS weighted by |EFI|, the extreme forecast index of the raw ensemble.

    - "mean": sum(w |EFI| CRPS) / sum(w), of Ashkboos et al. (2022, arXiv:2206.14786).
    - "weighted": sum(w |EFI| CRPS) / sum(w |EFI|), a mean CRPS in which extreme cases count more;
      comparable between variables and regions.

    With a fixed EFI both are proper. With the EFI of the scored forecast they are not: the best
    score is then obtained by forecasting the climate. So the EFI must be a `FrozenEFI`, and one
    computed from `forecast` is refused. This is detected by the name and by the fingerprints of
    the arrays passed to `origin`. It is not detected under another name if no arrays were passed,
    if they were lazy on one side only, for a part of the area, or for members drawn from a
    post-processed forecast. Therefore use one name for each forecast, and pass only raw members
    to `frozen_efi`.

    Args:
        crps: the scores of points; tensors keep their gradients.
        raw_efi: result of `frozen_efi`, with the shape (dimensions and coordinates) of the scores.
        forecast: identity of the scored forecast, from `origin`.
        scores_raw: True if the scores are those of the raw ensemble itself, as the reference of a
            table. Then `forecast` must be the ensemble of the EFI.
        normalisation: "mean" or "weighted".
        dim: dimensions of the mean; None for |EFI| CRPS of the points ("mean" only).
        weights: weights of the mean, such as area weights.
        nan: "propagate" or "omit", where score or index is missing.

    Returns:
        The score, in the unit of `crps`, as an array of the input's type; "weighted" is NaN
        where all indices are 0.

    Raises:
        ArgumentError: the EFI is no `FrozenEFI` or was made from the forecast; shapes or
            coordinates that differ; "weighted" without `dim`.
        UnknownNameError: an unknown normalisation or policy.
    """
    if normalisation not in get_args(EECRPSNormalisation):
        raise UnknownNameError("normalisation", normalisation, get_args(EECRPSNormalisation))
    if normalisation == "weighted" and dim is None:
        raise ArgumentError("dim", '"weighted" is a ratio of sums', 'Pass dim, such as dim="all"')
    index = checked_efi(crps, raw_efi, forecast, scores_raw)
    score = _product(crps, index, raw_efi)
    mean = mean_over(score, dim, weights, nan)
    if normalisation == "mean":
        return mean
    below = mean_over(_index_where(crps, index), dim, weights, nan)
    weighted = ratio(mean, below)
    named = isinstance(mean, xr.DataArray)
    return weighted.assign_attrs(mean.attrs).rename(mean.name) if named else weighted


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
    """Return the additive state of an EECRPS; blocks of dates merge with `merge_states`.

    Args:
        crps: the scores of points.
        raw_efi: result of `frozen_efi`, with the shape of the scores.
        forecast: identity of the scored forecast, from `origin`.
        scores_raw: True if the scores are those of the raw ensemble itself.
        keep: dimensions that are not summed over.
        weights: weights over some of the dimensions of the scores.
        nan: "omit" or "propagate".

    Returns:
        `eecrps_sum` (w |EFI| CRPS), `eecrps_weight` (w) and `eecrps_count`; `abs_efi_sum`
        (w |EFI|), `abs_efi_weight`, `abs_efi_count` of the same points. Attributes identify the
        EFI, so that states of different ensembles do not merge.

    Raises:
        ArgumentError: an EFI that is not a `FrozenEFI`, was computed from the forecast, or has
            another shape or coordinates.
    """
    index = checked_efi(crps, raw_efi, forecast, scores_raw)
    labelled = as_labelled({"crps": crps, "raw_efi": index}, unlike=["raw_efi"])
    product = _product(labelled["crps"], labelled["raw_efi"], raw_efi)
    weight = _index_where(labelled["crps"], labelled["raw_efi"])
    parts = [
        mean_state(name, field.reset_coords(drop=True), keep=keep, weights=weights, nan=nan)
        for name, field in (("eecrps", product), ("abs_efi", weight))
    ]
    attrs = {"efi_source": raw_efi.origin.source, "efi_method": raw_efi.method}
    return xr.merge(parts, join="exact", compat="no_conflicts").assign_attrs(attrs)


def finish_eecrps(state: xr.Dataset, normalisation: str = "mean") -> xr.DataArray:
    """Return the EECRPS of a state over its dimensions; NaN where the weights sum to 0.

    Raises:
        UnknownNameError: an unknown normalisation.
    """
    if normalisation not in get_args(EECRPSNormalisation):
        raise UnknownNameError("normalisation", normalisation, get_args(EECRPSNormalisation))
    mean = finish_mean(state, "eecrps")
    if normalisation == "mean":
        return mean
    below = finish_mean(state, "abs_efi")
    return ratio(mean, below).assign_attrs(mean.attrs).rename("eecrps")


def checked_efi(crps: Any, raw_efi: FrozenEFI, forecast: Origin, scores_raw: bool) -> Any:
    """Check that an EFI may weight these scores, and return its values.

    Raises:
        ArgumentError: it may not, for the reasons that `eecrps` lists.
    """
    if not isinstance(raw_efi, FrozenEFI):
        raise ArgumentError(
            "raw_efi",
            f"{type(raw_efi).__name__} is not a FrozenEFI",
            "Make it from the raw members with frozen_efi",
        )
    if not isinstance(forecast, Origin):
        raise ArgumentError(
            "forecast", f"{forecast!r} is not an origin", 'Write origin("emos", ...)'
        )
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
    """Refuse an index whose shape or dimensions differ from those of the scores."""
    if isinstance(crps, xr.DataArray) and isinstance(index, xr.DataArray):
        if set(crps.dims) != set(index.dims):
            raise ArgumentError("raw_efi", f"dimensions {index.dims} for scores over {crps.dims}")
        return
    shapes = [tuple(np.shape(a)) for a in (index, crps)]
    if shapes[0] != shapes[1]:
        raise ArgumentError("raw_efi", f"shape {shapes[0]} for scores of shape {shapes[1]}")


def _weight_crps(crps: Any, index: Any) -> Any:
    return abs(index) * crps


def _weight_where_scored(crps: Any, index: Any) -> Any:
    """Return |EFI|, NaN where the score is NaN, so that both means are over the same points."""
    return abs(index) + 0 * crps


def _product(crps: Any, index: Any, raw_efi: FrozenEFI) -> Any:
    return apply(
        Score("eecrps", "extreme event weighted CRPS", _weight_crps, _weight_crps),
        {"crps": crps, "raw_efi": index},
        attrs={"efi_source": raw_efi.origin.source, "efi_method": raw_efi.method},
        unlike=["raw_efi"],
    )


def _index_where(crps: Any, index: Any) -> Any:
    constant = crps.detach() if hasattr(crps, "detach") else crps
    return apply(
        Score(
            "abs_efi", "weight of extremes", _weight_where_scored, _weight_where_scored, units=False
        ),
        {"crps": constant, "raw_efi": index},
    )
