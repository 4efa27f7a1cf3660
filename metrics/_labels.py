"""What DataArrays say of themselves: dimensions, coordinates and units that must agree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray as xr

from ens10.errors import ArgumentError


def checked_core(
    arrays: Mapping[str, Any], core: Mapping[str, Sequence[int | str]]
) -> dict[str, list[str]]:
    """The core dimensions of each array that has some.

    Raises:
        ArgumentError: an array lacks its core dimension, or one without core dimensions has it.
    """
    found: dict[str, list[str]] = {}
    for name, dims in core.items():
        had = getattr(arrays[name], "dims", ())
        for dim in dims:
            if dim not in had:
                raise ArgumentError(
                    f"{name}'s dimension", f"{name} has no dimension {dim!r}, only {tuple(had)}"
                )
        found[name] = [str(dim) for dim in dims]
        check_some(name, tuple(arrays[name].sizes[dim] for dim in dims))
    consumed = {dim for dims in found.values() for dim in dims}
    for name, array in arrays.items():
        own = sorted(consumed & set(getattr(array, "dims", ())) - set(found.get(name, ())))
        if own:
            raise ArgumentError(
                name, f"has the dimension {own[0]!r} of the forecast", "Give one for each forecast"
            )
    return found


def check_some(name: str, sizes: tuple[int, ...]) -> None:
    """Refuse core axes of length 0, such as an ensemble without members.

    Raises:
        ArgumentError: there is one.
    """
    if 0 in sizes:
        raise ArgumentError(name, "there are none along an axis that is summed", "Give some values")


def check_alike(arrays: Mapping[str, Any], united: Iterable[str]) -> str | None:
    """The unit that some arrays share, after all were found to lie on the same coordinates.

    Args:
        arrays: by name; only DataArrays are looked at.
        united: those whose units must agree.

    Raises:
        ArgumentError: lengths, coordinates or units that differ.
    """
    labelled = {k: v for k, v in arrays.items() if isinstance(v, xr.DataArray)}
    known: dict[str, tuple[str, Any]] = {}
    sizes: dict[str, tuple[str, int]] = {}
    for name, array in labelled.items():
        for dim, size in array.sizes.items():  # all there is to see without coordinates
            first, length = sizes.setdefault(str(dim), (name, size))
            if size != length and not (dim in array.indexes and str(dim) in known):
                raise ArgumentError(name, f"{dim} is {size} long, and {length} in {first}")
        for dim, index in array.indexes.items():
            first, other = known.setdefault(str(dim), (name, index))
            if not index.equals(other):
                only = index.symmetric_difference(other)
                named = ", ".join(str(v) for v in only[:3]) + (", ..." if len(only) > 3 else "")
                reason = f"({named} is in one only)" if len(only) else "(in another order)"
                raise ArgumentError(
                    name, f"other {dim} than {first} {reason}", "Align or select both alike first"
                )
    units = {k: labelled[k].attrs["units"] for k in united if "units" in _attrs(labelled.get(k))}
    if len(set(units.values())) > 1:
        told = ", ".join(f"{name} in {unit}" for name, unit in units.items())
        raise ArgumentError(next(iter(units)), f"units differ: {told}", "Bring all to one unit")
    return next(iter(units.values()), None)


def rechunked(array: xr.DataArray, chunks: Mapping[Any, Any]) -> xr.DataArray:
    """A lazy array with other chunks along some dimensions; its coordinates stay as they are.

    `DataArray.chunk` makes the other coordinates lazy, in chunks that need not fit those of scores.
    """
    sizes = {array.get_axis_num(dim): size for dim, size in chunks.items()}
    return array.copy(data=array.data.rechunk(sizes))


def fitted_coords(array: xr.DataArray) -> xr.DataArray:
    """The array with its lazy coordinates in the chunks that it has itself."""
    if array.chunks is None:
        return array
    lazy = {name: c for name, c in array.coords.items() if c.chunks is not None}
    own = dict(zip(array.dims, array.chunks, strict=True))
    fitted = {
        name: c.variable.copy(data=c.data.rechunk(tuple(own[d] for d in c.dims)))
        for name, c in lazy.items()
    }
    return array.assign_coords(fitted) if fitted else array


def _attrs(array: Any) -> dict[str, Any]:
    return getattr(array, "attrs", {})


def labelled(
    result: xr.DataArray, name: str, long_name: str, units: str | None, attrs: dict[str, Any]
) -> xr.DataArray:
    """The result with its name, what it is, and its unit if that is known."""
    result.attrs = {"long_name": long_name, **attrs}
    if units is not None:
        result.attrs["units"] = units
    return result.rename(name)


def joined_message(score: str, name: str, blocks: Sequence[int]) -> str:
    """What is said when chunks along core axes are joined."""
    n = max(blocks)
    return f"{score} needs all of an axis of {name} at once: its {n} chunks are joined, lazily"
