"""The CRPS weighted by the EFI of the raw ensemble (EECRPS), and the constant index for it.

A CRPS weighted by an index of the forecast that is scored is improper: who forecasts the climate
lowers the weight. The index must be that of the raw ensemble, the same for all that are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import backend_of, on_host
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics._tables import as_labelled
from ens10.metrics.extremes.indices import efi
from ens10.metrics.states import NanPolicy, finish_mean, mean_state

_ATTRIBUTES = ("source", "method", "origin")
_PIECE = 1 << 15  # values that are hashed at a time, in the cache
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SCRAMBLE = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True)
class Origin:
    """What a forecast or an index was made of.

    Attributes:
        source: a name, such as "raw" or "emos".
        marks: of the arrays, by which they are known again; see `origin`.
    """

    source: str
    marks: tuple[str, ...] = ()

    def same_as(self, other: "Origin") -> bool:
        """Whether the names agree, or one array made both."""
        return self.source == other.source or bool(set(self.marks) & set(other.marks))


def origin(source: str, *arrays: Any) -> Origin:
    """The origin of a forecast.

    Args:
        source: its name; what has the same name is the same forecast.
        *arrays: its members or parameters, if there is time to look at them: every value of
            arrays in memory is read. They are then known again under another name, in another
            library, order of axes or members, or precision; DataArrays with a dimension `time` by
            each of their dates. Lazy arrays are not read but known by how dask would compute them.

    Raises:
        ArgumentError: an empty name.
    """
    if not isinstance(source, str) or not source.strip():
        raise ArgumentError("source", f"{source!r} is no name", 'Give one, such as "raw"')
    return Origin(source.strip(), tuple(mark for array in arrays for mark in _marks(array)))


def _marks(array: Any) -> list[str]:
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
    """A hash of the values in float32, in whatever order they are: a sum of scrambled bits.

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
    """The EFI of a raw ensemble, as a constant. Made by `frozen_efi` or `from_dataarray`.

    Attributes:
        values: the index, without gradient.
        origin: of the ensemble.
        method: of `efi`.
    """

    values: Any
    origin: Origin
    method: str

    def __post_init__(self) -> None:
        detach = getattr(self.values, "detach", None)  # tensors
        object.__setattr__(self, "values", detach() if detach else self.values)

    def map(self, function: Callable[[Any], Any]) -> "FrozenEFI":
        """The same index elsewhere: part of it, or as another kind of array.

        Args:
            function: from array to array, such as a selection; it must not change values.
        """
        return FrozenEFI(function(self.values), self.origin, self.method)

    def to_dataarray(self) -> xr.DataArray:
        """For a file: the index as `efi`, with the attributes `source`, `method` and `origin`.

        Raises:
            ArgumentError: the index is no DataArray.
        """
        if not isinstance(self.values, xr.DataArray):
            raise ArgumentError("raw_efi", "it has no labels", "Make it from DataArrays")
        said = (self.origin.source, self.method, " ".join(self.origin.marks))
        told = dict(zip(_ATTRIBUTES, said, strict=True))
        return self.values.assign_attrs(told).rename("efi")

    @staticmethod
    def from_dataarray(array: xr.DataArray) -> "FrozenEFI":
        """What `to_dataarray` gave, perhaps read from a file.

        Raises:
            ArgumentError: the array does not say what it was made of.
        """
        lacking = [name for name in _ATTRIBUTES if name not in getattr(array, "attrs", {})]
        if lacking:
            raise ArgumentError(
                "raw_efi", f"no attribute {', '.join(lacking)}", "Make it with frozen_efi"
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
    """The EFI of the raw ensemble, to weight the scores of other forecasts with.

    Args:
        raw_members: the ensemble before any post-processing.
        climate: quantiles of its model climate.
        source: the ensemble's name, such as "raw".
        method: as of `efi`, like what follows.
        member_dim: the member axis.
        quantile_dim: the quantile axis of the climate.
        levels: of the quantiles.
        epsilon: for "ecmwf".
        nan: "propagate" or "skip-members".

    Returns:
        The index as a constant: without gradient, lazy if the members are. It keeps the name and
        a mark of the members (see `origin`).

    Raises:
        ArgumentError, UnknownNameError: as `efi`; no name.
    """
    if hasattr(raw_members, "detach"):
        raw_members = raw_members.detach()
    made = origin(source, raw_members)
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
    return FrozenEFI(index, made, method)


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
