"""Merge states of different dates, steps, levels, processes and files by addition."""

from collections.abc import Iterable, Sequence
from functools import reduce
from importlib import import_module
from itertools import islice
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import dask_array

_MAX_STATES = 256  # states held while more are read
_DATES = ("time", "valid_time")
Axis = Any  # the (pandas) index of a dimension, or its size where it has no coordinate


def merge_states(states: Iterable[xr.Dataset]) -> xr.Dataset:
    """Add states into the state of all their points.

    Coordinates are joined (dates, steps, levels, groups that only one state has are kept), and
    sums at the same coordinates are added. Joined numbers and dates are sorted, in descending
    order if they descend in every state; joined names keep their order. Each state is read once,
    so that a generator can open one file at a time.

    Args:
        states: states of the same scores, over disjoint sets of points: a duplicate date counts
            twice. A scalar coordinate, such as a step, must be the same in all; make it a
            dimension (`state.expand_dims("step")`) to keep steps separate.

    Returns:
        A Dataset like each of them; lazy where they are.

    Raises:
        ArgumentError: no states, or states of different scores, units, settings, steps or shapes.
    """
    remaining = iter(states)
    merged = list(islice(remaining, _MAX_STATES))
    if not merged:
        raise ArgumentError("states", "there are none to merge")
    while block := list(islice(remaining, _MAX_STATES)):
        merged = [_merge(merged), *block]
    return _merge(merged)


def _merge(states: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join the axes of states that are held, then add variables and join coordinates on them."""
    first = states[0]
    for other in states[1:]:
        _check_alike(first, other)
    if len(states) == 1:
        return first
    axes = {str(dim): _join_axis(str(dim), states) for dim in first.dims}
    positions = [_Positions(state, axes) for state in states]
    variables = {str(n): _sum_variable(str(n), states, positions, axes) for n in first.data_vars}
    indexes = {d: (d, i, first[d].attrs) for d, i in axes.items() if not isinstance(i, int)}
    coordinates = {}
    for name in map(str, first.coords):
        if name not in first.indexes and all(name in state.coords for state in states):
            coordinates[name] = _join_coordinate(name, states, positions, axes)
    kept = {name: joined for name, joined in coordinates.items() if joined is not None}
    return xr.Dataset(variables, coords=indexes | kept, attrs=first.attrs)


def _check_alike(first: xr.Dataset, second: xr.Dataset) -> None:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("variables", sorted(map(str, first)), sorted(map(str, second))),
        ("settings", _settings(first), _settings(second)),
        ("units", _units(first), _units(second)),
        ("dimensions", _dims(first), _dims(second)),
        ("steps or levels", _scalars(first), _scalars(second)),
    )
    for aspect, a, b in pairs:
        if a != b:
            raise ArgumentError("states", f"different {aspect}: {a} and {b}")


def _settings(state: xr.Dataset) -> dict[str, object]:
    """Return attributes as plain values, because files return lists as arrays."""
    return {str(k): np.asarray(v).tolist() for k, v in state.attrs.items()}


def _units(state: xr.Dataset) -> dict[str, tuple[object, object]]:
    variables = {str(k): state.variables[k] for k in state.data_vars}
    return {k: (v.attrs.get("units"), v.attrs.get("estimator")) for k, v in variables.items()}


def _dims(state: xr.Dataset) -> dict[str, list[str]]:
    return {str(k): sorted(map(str, state.variables[k].dims)) for k in state.data_vars}


def _scalars(state: xr.Dataset) -> dict[str, object]:
    variables = {str(k): state.variables[k] for k in state.coords if k not in _DATES}
    return {k: str(v.values) for k, v in sorted(variables.items()) if not v.dims}


def _join_axis(dim: str, states: Sequence[xr.Dataset]) -> Axis:
    """Return the merged axis of a dimension: all coordinates; numbers and dates sorted."""
    indexes = [state.indexes.get(dim) for state in states]
    present = [i for i in indexes if i is not None]
    if not present:
        sizes = {state.sizes[dim] for state in states}
        if len(sizes) > 1:
            raise ArgumentError("states", f"different sizes of {dim}, without coordinate: {sizes}")
        return sizes.pop()
    if len(present) < len(indexes):
        raise ArgumentError("states", f"different coordinates: some have none along {dim}")
    for index in present:
        if not index.is_unique:
            raise ArgumentError("states", f"one holds a {dim} twice")
    if all(index.equals(present[0]) for index in present[1:]):
        return present[0]
    union = present[0].append(present[1:]).unique()
    if union.dtype.kind not in "iufmM":
        return union
    falling = all(i.is_monotonic_decreasing for i in present) and any(i.size > 1 for i in present)
    return union.sort_values(ascending=not falling)


class _Positions:
    """The positions of one state's values along each dimension of the merged state.

    Attributes:
        by_dim: positions by dimension; None where the index equals the merged one, or where the
            dimension has no coordinate.
    """

    def __init__(self, state: xr.Dataset, axes: dict[str, Axis]) -> None:
        self.by_dim: dict[str, npt.NDArray[np.intp] | None] = {}
        for dim, index in axes.items():
            state_index = state.indexes.get(dim)
            same_index = state_index is None or state_index.equals(index)
            self.by_dim[dim] = None if same_index else index.get_indexer(state_index)

    def index_of(self, variable: xr.Variable) -> Any:
        """Return the index of a variable in an array of the merged shape."""
        positions = [self.by_dim.get(str(dim)) for dim in variable.dims]
        if all(p is None for p in positions):
            return ...
        if sum(p is not None for p in positions) == 1:
            return tuple(slice(None) if p is None else p for p in positions)
        every = zip(positions, variable.shape, strict=True)
        return np.ix_(*(np.arange(size) if p is None else p for p, size in every))


def _shape(variable: xr.Variable, axes: dict[str, Axis]) -> tuple[int, ...]:
    sizes = [axes[str(d)] for d in variable.dims]
    return tuple(s if isinstance(s, int) else s.size for s in sizes)


def _sum_variable(
    name: str, states: Sequence[xr.Dataset], positions: list[_Positions], axes: dict[str, Axis]
) -> xr.Variable:
    """Return the sum of one variable over the states.

    Values are added at their positions: the work grows with the number of values, not with the
    number of states times the size of the result.
    """
    first = states[0].variables[name]
    parts = [state.variables[name].transpose(*first.dims) for state in states]
    shape = _shape(first, axes)
    if any(part.chunks is not None for part in parts):
        return _add_lazily(parts, positions, shape)
    arrays = [part.values for part in parts]
    total = _sum_at(
        [p.index_of(part) for p, part in zip(positions, parts, strict=True)], shape, arrays
    )
    return xr.Variable(first.dims, total.astype(first.dtype, copy=False), first.attrs)


def _sum_at(
    indices: Sequence[Any], shape: tuple[int, ...], arrays: Sequence[npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    total = np.zeros(shape, dtype=np.result_type(*(array.dtype for array in arrays)))
    for index, array in zip(indices, arrays, strict=True):
        total[index] += array
    return total


def _add_lazily(
    parts: Sequence[xr.Variable], positions: Sequence[_Positions], shape: tuple[int, ...]
) -> xr.Variable:
    """Concatenate lazy parts if the states are disjoint along one dimension; else add them."""
    first = parts[0]
    partial_dims = {d for p in positions for d in first.dims if p.by_dim[str(d)] is not None}
    if not partial_dims:
        return xr.Variable(first.dims, reduce(add, [part.data for part in parts]), first.attrs)
    if len(partial_dims) == 1:
        dim = str(partial_dims.pop())
        state_indices = [
            _positions_along(state_positions, dim, part)
            for state_positions, part in zip(positions, parts, strict=True)
        ]
        order = np.concatenate(state_indices)
        if np.unique(order).size == order.size == shape[first.dims.index(dim)]:
            variable = _concat(parts, dim)
            back = np.argsort(order)
            in_order = bool((back == np.arange(back.size)).all())
            return variable if in_order else variable.isel({dim: back})
    # states are small: one task adds all parts, into one chunk
    indices = [
        state_positions.index_of(part)
        for state_positions, part in zip(positions, parts, strict=True)
    ]
    dask: Any = import_module("dask")
    total = dask.delayed(_sum_at, pure=True)(indices, shape, [part.data for part in parts])
    array = dask_array().from_delayed(total, shape, dtype=first.dtype)
    return xr.Variable(first.dims, array, first.attrs)


def _concat(parts: Sequence[xr.Variable], dim: str) -> xr.Variable:
    arrays = [xr.DataArray(part) for part in parts]
    variable: xr.Variable = xr.concat(arrays, dim, coords="minimal", compat="override").variable
    return variable.transpose(*parts[0].dims)


def _positions_along(positions: _Positions, dim: str, part: xr.Variable) -> npt.NDArray[np.intp]:
    state_indices = positions.by_dim[dim]
    return np.arange(part.sizes[dim]) if state_indices is None else state_indices


def _join_coordinate(
    name: str, states: Sequence[xr.Dataset], positions: Sequence[_Positions], axes: dict[str, Axis]
) -> xr.Variable | None:
    """Join a non-index coordinate, such as valid_time, from the states that have it.

    Where several states have a value, the first is used. Return None for a scalar date that
    differs between the states.
    """
    parts = [state.variables[name] for state in states]
    first = parts[0]
    if not first.dims:
        same = all(part.dims == () and str(part.values) == str(first.values) for part in parts[1:])
        return first if same else None
    if any(part.dims != first.dims for part in parts):
        raise ArgumentError("states", f"different dimensions of the coordinate {name}")
    shape = _shape(first, axes)
    total = np.zeros(shape, dtype=np.result_type(*(part.dtype for part in parts)))
    filled = np.zeros(shape, dtype=bool)
    for part, state_positions in zip(parts, positions, strict=True):
        index, values = state_positions.index_of(part), part.values
        new = ~filled[index] & xr.DataArray(values).notnull().values
        total[index] = np.where(new, values, total[index])
        filled[index] |= new
    return xr.Variable(first.dims, _with_gaps(total, filled), first.attrs)


def _with_gaps(values: npt.NDArray[Any], filled: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if filled.all():
        return values
    kind = values.dtype.kind
    if kind in "mM":
        return np.where(filled, values, np.array("NaT", dtype=values.dtype))
    if kind in "iuf":
        return np.where(filled, values, np.nan)
    boxed = values.astype(object)
    boxed[~filled] = None
    return boxed
