"""Statistics: points to sums that add; metrics: pure functions of sums.

A `Statistic` turns arrays of any library into the variables of a state; lazy arrays are summed
block by block. A `PointStatistic` is a quantity at points of a forecast whose weighted mean is
kept as sums, and a `Metric` a function of such means.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, RechunkWarning, checked_axes
from ens10.metrics._dispatch import dask_array
from ens10.metrics._labels import rechunk_message
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of

__all__ = ["Metric", "Part", "PointStatistic", "StateVariable", "Statistic"]
Floats = npt.NDArray[np.float64]
SumKernel = Callable[..., Floats]
Units = Literal["truth", "truth2", "1"]
MEMBER = "__core__"  # the dimension of members in arrays that are passed to `block_sums`
SUM = "__sum__"  # the dimension of sums in its result
_BLOCK_VALUES = 2**19  # values of the largest array in a block: 2 MiB in float32


@dataclass(frozen=True)
class StateVariable:
    """A variable of a state: consecutive values of the result of a statistic's kernel.

    Attributes:
        name: name of the variable.
        axes: coordinates of its values by dimension; empty for a single value.
        attrs: attributes of the variable, such as its units.
    """

    name: str
    axes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the lengths of the axes."""
        return tuple(len(labels) for labels in self.axes.values())


Part = StateVariable  # the older public name; it stays until version 1.0


@dataclass(frozen=True)
class Statistic:
    """Sums over points, which add over disjoint sets of points.

    Attributes:
        name: public function that returns the sums; used in warnings.
        kernel: function from arrays of shape ([members,] kept, points), followed by their weights,
            to sums of shape (kept, values of all parts + 2) in float64. The last two are the
            numbers of points with and without a value.
        parts: the variables of the state, in the order of the other sums.
    """

    name: str
    kernel: SumKernel
    parts: tuple[StateVariable, ...]

    def sums(
        self,
        arrays: Mapping[str, Any],
        core: Mapping[str, Mapping[str, Dim]] | None = None,
        *,
        dim: Over,
        weights: Any = None,
        nan: str = "propagate",
        unlike: Sequence[str] = (),
        constants: Sequence[xr.DataArray] = (),
    ) -> xr.Dataset:
        """Return the state of a set of points.

        Args:
            arrays: arrays of any library, by argument name; all dimensions of the first one except
                its core dimensions belong to points.
            core: core dimensions of arrays; one that is not `MEMBER` is kept.
            dim: dimensions that are summed over; the others are kept.
            weights: weights of the points, at least 0; 1 if None.
            nan: "propagate" returns NaN sums if a point has no value; "omit" leaves it out.
            unlike: arrays whose units may differ from those of the others.
            constants: further arrays for the kernel after the weights, such as levels, aligned by
                dimension names.

        Returns:
            The parts, `count` (points with a value) and `missing` (points without), over the
            kept dimensions and their own; lazy if an array is.

        Raises:
            ArgumentError: arrays that do not match, an unknown dimension, or negative weights.
            UnknownNameError: an unknown policy.
        """
        if nan not in get_args(Nan):
            raise UnknownNameError("nan", nan, get_args(Nan))
        core = dict(core or {})
        weighted = dict(arrays) | ({} if weights is None else {"weights": weights})
        labelled = as_labelled(weighted, core, unlike=[*unlike, "weights"])
        core_names = {name for dims in core.values() for name in dims}
        points = {
            key: array.isel({d: 0 for d in core_names if d in array.dims}, drop=True)
            for key, array in labelled.items()
        }
        check_sizes(points)
        if weights is not None:
            _check_point_weights(labelled, as_labelled(arrays, core, unlike=unlike))
        first = next((a for a in arrays.values() if not np.isscalar(a)), None)
        names = names_of(points, dim, first)
        w = labelled.pop("weights", xr.DataArray(1.0))
        ready = [*labelled.values(), w, *constants]
        size = sum(prod(part.shape) for part in self.parts)
        total = block_sums(self.name, self.kernel, ready, names, size + 2)
        count, missing = (total.isel({SUM: place}).astype(np.int64) for place in (-2, -1))
        if nan == "propagate":
            total = total.where(missing == 0)
        result: dict[str, xr.DataArray] = {}
        start = 0
        for part in self.parts:
            stop = start + prod(part.shape)
            result[part.name] = _unfold(total.isel({SUM: slice(start, stop)}), part)
            start = stop
        result["count"] = count.assign_attrs(long_name="number of points", units="1")
        result["missing"] = missing.assign_attrs(long_name="points left out", units="1")
        return xr.Dataset(result)


def _unfold(sums: xr.DataArray, part: StateVariable) -> xr.DataArray:
    kept_dims = [d for d in sums.dims if d != SUM]
    shape = (*(sums.sizes[d] for d in kept_dims), *part.shape)
    values = sums.data.reshape(shape)
    coords = {d: sums.indexes[d] for d in sums.indexes if d in kept_dims}
    return xr.DataArray(
        values,
        dims=[*kept_dims, *part.axes],
        coords=coords | dict(part.axes),
        attrs=dict(part.attrs),
    )


@dataclass(frozen=True)
class PointStatistic:
    """A quantity at each point of a forecast, whose weighted mean is kept as sums.

    Attributes:
        name: name of the mean.
        values: function from a `Pair` (a forecast and the truth of one date) and, if the score has
            one, its number (a threshold, a level) to the values of the points, NaN where missing.
        units: units of the values: those of the truth, their square, or none.
        on_map: True to keep sums over dates at every grid point as well.
        requires: fields that the forecast's kind must offer; None for the one of this name.
        needs_also: "efi", "climatology" (the mean state) or "thresholds" (its quantiles at the
            level in the name) if that is needed besides forecast and truth.
    """

    name: str
    values: Callable[..., npt.NDArray[Any]]
    units: Units = "truth"
    on_map: bool = False
    requires: tuple[str, ...] | None = None
    needs_also: Literal["", "efi", "climatology", "thresholds"] = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the fields that the forecast's kind must offer."""
        return (self.name,) if self.requires is None else self.requires


@dataclass(frozen=True)
class Metric:
    """A score: a pure function of weighted means.

    Attributes:
        name: name of the score.
        long_name: its name in words; {} stands for the number in the name.
        means: names of the means that it is a function of.
        units: units of the score: those of the truth, their square, or none.
        finish: function from the means, in that order, and the number of members (None for a
            distribution) to the score.
        skill: name of the skill score against a reference, from the first mean; "" for none.
        number: meaning of the number in the name, such as "threshold"; "" for none.
        least_members: smallest ensemble size for which the score is defined.
        usual: True for scores that are computed by default.
    """

    name: str
    long_name: str
    means: tuple[str, ...]
    units: Units = "truth"
    finish: Callable[[Sequence[Floats], int | None], Floats] = lambda means, _: means[0]
    skill: str = ""
    number: str = ""
    least_members: int = 1
    usual: bool = False


def block_sums(
    name: str, kernel: SumKernel, arrays: Sequence[xr.DataArray], dims: Sequence[str], size: int
) -> xr.DataArray:
    """Sum a kernel over points block by block; lazy arrays stay lazy.

    Args:
        name: name of the caller, for the warning that chunks of members are joined.
        kernel: takes the arrays with shape (kept, reduced), those with the dimension `MEMBER` with
            that first, and returns float64 (kept, size): sums over the reduced points.
        arrays: DataArrays that fit by dimension names; any of them may be lazy.
        dims: dimensions that are summed over.
        size: number of sums.

    Returns:
        float64 over the other dimensions and `SUM`; lazy if an array is.
    """
    every = dict.fromkeys(d for a in arrays for d in a.dims if d != MEMBER)
    kept_dims, reduced_dims = [d for d in every if d not in dims], [d for d in every if d in dims]
    points = [*kept_dims, *reduced_dims]
    labels = [[d for d in (MEMBER, *kept_dims, *reduced_dims) if d in a.dims] for a in arrays]
    transposed = [a.transpose(*order) for a, order in zip(arrays, labels, strict=True)]
    block = partial(_block, kernel, labels, kept_dims, reduced_dims, size)
    chunks = [len(a.variable.chunksizes[MEMBER]) for a in arrays if a.chunks and MEMBER in a.dims]
    if max(chunks, default=1) > 1:
        text = rechunk_message(name, "members", chunks)
        warnings.warn(text, RechunkWarning, stacklevel=5)
    axes = tuple(range(len(kept_dims), len(points)))
    if any(a.chunks is not None for a in arrays):
        total = _blocks_on_dask(block, transposed, labels, points, axes, size)
    else:
        total = block(*(a.to_numpy() for a in transposed)).sum(axis=axes)
    coords = {d: a.indexes[d] for a in arrays for d in a.indexes if d in kept_dims}
    return xr.DataArray(total, dims=[*kept_dims, SUM], coords=coords)


def _blocks_on_dask(
    block: Callable[..., Floats],
    arrays: Sequence[xr.DataArray],
    labels: Sequence[Sequence[Any]],
    points: Sequence[Any],
    axes: tuple[int, ...],
    size: int,
) -> Any:
    da = dask_array()
    pairs: list[Any] = []
    for array, dims in zip(arrays, labels, strict=True):
        lazy = da.asarray(array.data)
        pairs += [lazy.rechunk({dims.index(MEMBER): -1}) if MEMBER in dims else lazy, tuple(dims)]
    parts = da.blockwise(
        block,
        (*points, SUM),
        *pairs,
        new_axes={SUM: size},
        adjust_chunks={points[axis]: 1 for axis in axes},
        concatenate=True,
        dtype=np.float64,
        meta=np.empty((0,) * (len(points) + 1)),
    )
    return parts.sum(axis=axes)


def _block(
    kernel: SumKernel,
    labels: Sequence[Sequence[Any]],
    kept_dims: Sequence[Any],
    reduced_dims: Sequence[Any],
    size: int,
    *blocks: npt.NDArray[Any],
) -> Floats:
    """Return the sums of one block, with axes of length 1 where it was summed."""
    sizes: dict[Any, int] = {}
    for dims, block in zip(labels, blocks, strict=True):
        sizes |= dict(zip(dims, block.shape, strict=True))
    points = [*kept_dims, *reduced_dims]
    out = np.zeros([*(sizes[d] for d in kept_dims), *(1 for _ in reduced_dims), size])
    core = sizes.get(MEMBER, 1)
    for box in _boxes([sizes[d] for d in points], max(1, _BLOCK_VALUES // core)):
        slices = dict(zip(points, box, strict=True))
        ready = [
            _flat(
                b[tuple(slices.get(d, slice(None)) for d in dims)],
                dims,
                kept_dims,
                reduced_dims,
                slices,
            )
            for dims, b in zip(labels, blocks, strict=True)
        ]
        place = (*box[: len(kept_dims)], *(slice(None) for _ in reduced_dims))
        out[place] += kernel(*ready).reshape(out[place].shape)
    return out


def _boxes(sizes: Sequence[int], most: int) -> list[tuple[slice, ...]]:
    """Return boxes of up to `most` points, as long as possible along the last dimensions."""
    lengths, remaining = [], most
    for n in reversed(sizes):
        lengths.append(max(1, min(n, remaining)))
        remaining = max(1, remaining // max(1, n))
    steps = list(reversed(lengths))
    if 0 in sizes:
        return []
    starts = np.ndindex(*(-(-n // step) for n, step in zip(sizes, steps, strict=True)))
    return [
        tuple(slice(i * s, min((i + 1) * s, n)) for i, s, n in zip(at, steps, sizes, strict=True))
        for at in starts
    ]


def _flat(
    array: npt.NDArray[Any],
    dims: Sequence[Any],
    kept_dims: Sequence[Any],
    reduced_dims: Sequence[Any],
    slices: dict[Any, slice],
) -> npt.NDArray[Any]:
    """Reshape a part with the axes `dims` to ([members,] kept, reduced)."""
    front = [array.shape[0]] if MEMBER in dims else []
    lengths = {d: s.stop - s.start for d, s in slices.items()}
    sizes = [
        array.shape[list(dims).index(d)] if d in dims else 1 for d in (*kept_dims, *reduced_dims)
    ]
    full = [*front, *(lengths[d] for d in (*kept_dims, *reduced_dims))]
    flat = (*front, prod(full[len(front) : len(front) + len(kept_dims)]), -1)
    if not reduced_dims:
        flat = (*flat[:-1], 1)
    return np.broadcast_to(np.reshape(array, (*front, *sizes)), full).reshape(flat)


def sums_by_bin(index: npt.NDArray[np.int64], bins: int, *values: npt.NDArray[Any]) -> Floats:
    """Return the sums of values in each bin.

    Args:
        index: bins of points, (rows, points).
        bins: number of bins.
        *values: (rows, points), 0 where a point does not count.

    Returns:
        Float64, (rows, number of values * bins), the bins of the first values first.
    """
    rows = index.shape[0]
    flat = (index + np.arange(rows)[:, None] * bins).ravel()
    sums = [np.bincount(flat, v.ravel(), minlength=rows * bins).reshape(rows, bins) for v in values]
    return np.concatenate(sums, axis=1, dtype=np.float64)  # bincount of no points has integers


def present_and_missing(valid: npt.NDArray[np.bool_]) -> Floats:
    """Return the numbers of points with and without a value, (rows, 2), from (rows, points)."""
    present = valid.sum(axis=1)
    return np.stack([present, valid.shape[1] - present], axis=1).astype(np.float64)


def check_sizes(arrays: Mapping[str, xr.DataArray]) -> None:
    """Refuse a dimension with different lengths, which xarray does not detect without coordinates.

    Raises:
        ArgumentError: there is one.
    """
    sizes_seen: dict[str, tuple[str, int]] = {}
    for name, array in arrays.items():
        for dim, size in array.sizes.items():
            first, other = sizes_seen.setdefault(str(dim), (name, size))
            if size != other:
                reason = f"{str(dim).lstrip('_')} is {size} long, and {other} in {first}"
                raise ArgumentError(name, reason)


def _check_point_weights(
    labelled: Mapping[str, xr.DataArray], points: Mapping[str, xr.DataArray]
) -> None:
    """Refuse weights below 0, or with dimensions or lengths that the points lack.

    Raises:
        ArgumentError: such weights.
    """
    w = labelled["weights"]
    if any(labelled[name].sizes != array.sizes for name, array in points.items()):
        raise ArgumentError("weights", "a shape that does not broadcast to the points")
    unknown = sorted({str(d) for d in w.dims} - {str(d) for a in points.values() for d in a.dims})
    if unknown:
        raise ArgumentError("weights", f"dimensions {unknown} that the points lack")
    if w.chunks is None and bool((w < 0).any()):
        raise ArgumentError("weights", "some are negative")


def core_size(name: str, array: Any, dim: Dim) -> int:
    """Return the length of a core dimension; 1 if a DataArray lacks it (refused later).

    Raises:
        ArgumentError: an array has no such axis, or a Dataset in its place.
    """
    if isinstance(array, xr.DataArray):
        return int(array.sizes.get(dim, 1))
    axis = checked_axes(name, array, [dim])[0]
    return int(array.shape[axis])


def checked_edges(
    edges: Sequence[float] | npt.NDArray[Any], least: int = 1, name: str = "edges"
) -> Floats:
    """Check edges of bins (or other ascending numbers) and return them as float64.

    Raises:
        ArgumentError: fewer than `least`, not finite, or not rising.
    """
    checked = np.asarray(edges, dtype=np.float64)
    if checked.ndim != 1 or checked.size < least:
        raise ArgumentError(name, f"expected {least} or more, got shape {checked.shape}")
    if not np.isfinite(checked).all() or (np.diff(checked) <= 0).any():
        raise ArgumentError(name, "they are not finite, or do not rise")
    return checked


def edges_to_text(edges: Floats) -> str:
    """Convert edges to a text attribute, which compares, merges and is stored exactly."""
    return " ".join(repr(float(e)) for e in edges)


def edges_of(sums: xr.Dataset, name: str = "edges") -> Floats:
    """Return the edges in the attributes of a state; the inverse of `edges_to_text`."""
    return np.array([float(e) for e in str(sums.attrs[name]).split()])


def checked_sums(sums: Any, names: Sequence[str], function: str) -> xr.Dataset:
    """Check that sums are a Dataset with these variables, and return it.

    Raises:
        ArgumentError: not a Dataset, or a variable is missing.
    """
    missing = [n for n in names if n not in getattr(sums, "data_vars", ())]
    if not isinstance(sums, xr.Dataset) or missing:
        raise ArgumentError(
            "sums", f"variables missing: {', '.join(missing)}", f"Pass the result of {function}"
        )
    return sums
