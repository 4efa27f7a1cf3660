"""An extreme forecast index that is fixed, and knows what it was made of.

A CRPS weighted by an index of the forecast that is scored is improper: who forecasts the climate
lowers the weight. The index must be that of the raw ensemble, the same for all that are compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim
from ens10.metrics._dispatch import backend_of, on_host
from ens10.metrics.extremes.efi import efi

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
