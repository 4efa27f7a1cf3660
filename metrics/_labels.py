"""Check that dimensions, coordinates and units of DataArrays agree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray as xr

from ens10.errors import ArgumentError


def checked_core(
    arrays: Mapping[str, Any], core: Mapping[str, Sequence[int | str]]
) -> dict[str, list[str]]:
    """Return the core dimensions of each array that has some.

    Raises:
        ArgumentError: an array lacks its core dimension, or one without core dimensions has it.
    """
    core_dims: dict[str, list[str]] = {}
    for name, dims in core.items():
        array_dims = getattr(arrays[name], "dims", ())
        for dim in dims:
            if dim not in array_dims:
                raise ArgumentError(
                    f"{name}'s dimension",
                    f"{name} has no dimension {dim!r}, only {tuple(array_dims)}",
                )
        core_dims[name] = [str(dim) for dim in dims]
        check_not_empty(name, tuple(arrays[name].sizes[dim] for dim in dims))
    consumed = {dim for dims in core_dims.values() for dim in dims}
    for name, array in arrays.items():
        extra = sorted(consumed & set(getattr(array, "dims", ())) - set(core_dims.get(name, ())))
        if extra:
            raise ArgumentError(
                name,
                f"has the dimension {extra[0]!r} of the forecast",
                "Pass one for each forecast",
            )
    return core_dims


def check_not_empty(name: str, sizes: tuple[int, ...]) -> None:
    """Refuse core axes of length 0, such as an ensemble without members.

    Raises:
        ArgumentError: there is one.
    """
    if 0 in sizes:
        raise ArgumentError(name, "an axis that is summed has length 0", "Pass one or more values")


def check_alike(arrays: Mapping[str, Any], same_units: Iterable[str]) -> str | None:
    """Check that arrays lie on the same coordinates, and return the unit that they share.

    Args:
        arrays: arrays by name; only DataArrays are checked.
        same_units: names of the arrays whose units must agree.

    Raises:
        ArgumentError: lengths, coordinates or units that differ.
    """
    labelled = {k: v for k, v in arrays.items() if isinstance(v, xr.DataArray)}
    first_indexes: dict[str, tuple[str, Any]] = {}
    first_sizes: dict[str, tuple[str, int]] = {}
    for name, array in labelled.items():
        for dim, size in array.sizes.items():  # all there is to see without coordinates
            first, length = first_sizes.setdefault(str(dim), (name, size))
            if size != length and not (dim in array.indexes and str(dim) in first_indexes):
                raise ArgumentError(name, f"{dim} is {size} long, and {length} in {first}")
        for dim, index in array.indexes.items():
            first, other = first_indexes.setdefault(str(dim), (name, index))
            if not index.equals(other):
                extra = index.symmetric_difference(other)
                names = ", ".join(str(v) for v in extra[:3]) + (", ..." if len(extra) > 3 else "")
                reason = f"({names} is in one only)" if len(extra) else "(in another order)"
                raise ArgumentError(
                    name, f"its {dim} differs from that of {first} {reason}", "Align both first"
                )
    units = {
        k: labelled[k].attrs["units"] for k in same_units if "units" in _attrs(labelled.get(k))
    }
    if len(set(units.values())) > 1:
        pairs = ", ".join(f"{name} in {unit}" for name, unit in units.items())
        raise ArgumentError(next(iter(units)), f"units differ: {pairs}", "Bring all to one unit")
    return next(iter(units.values()), None)


def rechunk(array: xr.DataArray, chunks: Mapping[Any, Any]) -> xr.DataArray:
    """Rechunk a lazy array along some dimensions, and leave its coordinates as they are.

    `DataArray.chunk` makes the other coordinates lazy, in chunks that need not fit those of scores.
    """
    sizes = {array.get_axis_num(dim): size for dim, size in chunks.items()}
    return array.copy(data=array.data.rechunk(sizes))


def rechunk_coords(array: xr.DataArray) -> xr.DataArray:
    """Rechunk the lazy coordinates of an array like the array itself."""
    if array.chunks is None:
        return array
    lazy = {name: c for name, c in array.coords.items() if c.chunks is not None}
    array_chunks = dict(zip(array.dims, array.chunks, strict=True))
    coords = {
        name: c.variable.copy(data=c.data.rechunk(tuple(array_chunks[d] for d in c.dims)))
        for name, c in lazy.items()
    }
    return array.assign_coords(coords) if coords else array


def _attrs(array: Any) -> dict[str, Any]:
    return getattr(array, "attrs", {})


def set_labels(
    result: xr.DataArray, name: str, long_name: str, units: str | None, attrs: dict[str, Any]
) -> xr.DataArray:
    """Set the name, long_name, attributes and (if known) unit of a result."""
    result.attrs = {"long_name": long_name, **attrs}
    if units is not None:
        result.attrs["units"] = units
    return result.rename(name)


def rechunk_message(score: str, name: str, blocks: Sequence[int]) -> str:
    """Return the warning for chunks along core axes that are joined."""
    n = max(blocks)
    return f"{score} needs all of an axis of {name} at once: its {n} chunks are joined, lazily"
