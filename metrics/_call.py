"""Call a score on numpy, torch, xarray or dask arrays; the result has the input's type.

A score is written once, as a kernel on numpy arrays whose core axes (members, quantiles, ...)
come first; a second kernel on tensors has the gradients. `apply` detects the library of the
arrays, moves their core axes first, checks that shapes, coordinates and units agree, and labels
the result.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import (
    backend_of,
    common_dtype,
    dask_array,
    fill_masked,
    on_host,
    refuse_datasets,
)
from ens10.metrics._labels import (
    check_alike,
    check_not_empty,
    checked_core,
    rechunk,
    rechunk_coords,
    rechunk_message,
    set_labels,
)

Dim = int | str
Core = Mapping[str, Sequence[Dim]]


class RechunkWarning(UserWarning):
    """Chunks of a lazy array were joined for a score, which needs more memory."""


@dataclass(frozen=True)
class Score:
    """Name and kernels of a score.

    Args:
        name: short name of the result, such as "crps".
        long_name: its name in words.
        numpy: function from arrays of one floating dtype, core axes first, to the scores (loop
            shape).
        torch: the same on tensors, with gradients (it imports torch when called); None to compute
            tensors by the numpy kernel on the host, without gradient.
        units: True if the score has the unit of its arrays, which then must agree; False for "1".
    """

    name: str
    long_name: str
    numpy: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    units: bool = True


def import_later(module: str, name: str, **options: Any) -> Callable[..., Any]:
    """Return a function that imports `module` (and with it torch) only when it is called."""
    return partial(_call_in, module, name, **options)


def _call_in(module: str, name: str, *arrays: Any, **options: Any) -> Any:
    return getattr(import_module(module), name)(*arrays, **options)


def apply(
    score: Score,
    arrays: Mapping[str, Any],
    core: Core | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    unlike: Sequence[str] = (),
) -> Any:
    """Compute a score of arrays of any library, elementwise in all axes that are not core axes.

    Args:
        score: name and kernels.
        arrays: arrays or plain numbers by argument name, in the kernel's order.
        core: for some arrays, the axes (numbers, or names for DataArrays) that the kernel gets
            first and consumes. All other arrays must broadcast to the remaining axes.
        options: keyword arguments of the kernels.
        attrs: attributes of the result, for DataArrays.
        unlike: arrays that need not have the units of the others (weights, probabilities).

    Returns:
        The scores, as an array of the input's type.

    Raises:
        ArgumentError: arrays of several libraries, shapes or coordinates that do not match, an axis
            that does not exist, units that differ.
    """
    core = {name: tuple(dims) for name, dims in (core or {}).items()}
    arrays = {name: fill_masked(array) for name, array in arrays.items()}
    kind = backend_of(arrays)
    if kind == "xarray":
        return _on_xarray(score, arrays, core, dict(options or {}), dict(attrs or {}), unlike)
    if kind == "torch":
        return _on_torch(score, arrays, core, dict(options or {}))
    as_arrays = {k: v if hasattr(v, "ndim") else np.asarray(v) for k, v in arrays.items()}
    kernel = partial(score.numpy, **dict(options or {}))
    dtype = common_dtype(*arrays.values())
    if kind == "dask":
        return _on_dask(score, kernel, as_arrays, core, dtype)
    first = core_first({k: np.asarray(v, dtype=dtype) for k, v in as_arrays.items()}, core)
    return kernel(*first.values())


def core_first(arrays: Mapping[str, Any], core: Core) -> dict[str, Any]:
    """Move core axes first and expand the loop axes so that arrays broadcast by position.

    Raises:
        ArgumentError: an axis that does not exist, or shapes that do not match.
    """
    transposed, loop_shapes = {}, {}
    for name, array in arrays.items():
        axes = checked_axes(name, array, core.get(name, ()))
        places = tuple(range(len(axes)))
        if axes and hasattr(array, "movedim"):  # tensors
            array = array.movedim(axes, places)
        elif axes:
            array = np.moveaxis(array, axes, places)
        check_not_empty(name, tuple(array.shape[: len(axes)]))
        transposed[name], loop_shapes[name] = array, tuple(array.shape[len(axes) :])
    n = len(loop_shape(loop_shapes, core))
    for name, array in transposed.items():
        core_ndim = len(core.get(name, ()))
        missing = n - (array.ndim - core_ndim)
        if core_ndim and missing:
            shape = (*array.shape[:core_ndim], *(1,) * missing, *array.shape[core_ndim:])
            transposed[name] = array.reshape(shape)
    return transposed


def loop_shape(loops: Mapping[str, tuple[int, ...]], core: Core) -> tuple[int, ...]:
    """Return the shape of the scores.

    Where there are core axes, the arrays that have none must fit into the loop axes of those
    that have: observations with a member axis of their own would broadcast to something else.
    """
    outer = {name: shape for name, shape in loops.items() if core.get(name)} or loops
    shape: tuple[int, ...] = ()
    for name in [*outer, *(n for n in loops if n not in outer)]:
        joint = _joint_shape(shape, loops[name])
        if joint is None or (name not in outer and joint != shape):
            shapes = ", ".join(f"{n} {s}" for n, s in loops.items())
            but = (
                f" (without the axes of {', '.join(sorted(core))} that are summed)" if core else ""
            )
            raise ArgumentError(
                name,
                f"shapes that do not fit each other: {shapes}{but}",
                "Pass one value for each forecast",
            )
        shape = joint
    return shape


def _joint_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


def checked_axes(name: str, array: Any, dims: Sequence[Dim]) -> tuple[int, ...]:
    """Return the numbers of some axes of an array, counted from 0.

    Raises:
        ArgumentError: the array has no such axis, or is a Dataset.
    """
    refuse_datasets({name: array})
    ndim = array.ndim
    for dim in dims:
        if (
            not isinstance(dim, int | np.integer)
            or isinstance(dim, bool)
            or not -ndim <= dim < ndim
        ):
            raise ArgumentError(
                f"{name}'s axis",
                f"expected the number of one of the {ndim} axes of {name}, got {dim!r}",
            )
    axes = tuple(int(dim) % ndim for dim in dims)
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"{name}'s axis", f"one axis is named twice: {tuple(dims)}")
    return axes


def _on_dask(
    score: Score, kernel: Callable[..., Any], arrays: Mapping[str, Any], core: Core, dtype: Any
) -> Any:
    da = dask_array()
    if not core:
        core_first(arrays, core)  # do they fit
        cast = [da.asarray(a).astype(dtype) for a in arrays.values()]
        return da.core.elemwise(kernel, *cast, dtype=dtype)
    loops, last = {}, {}
    for name, array in arrays.items():
        axes = checked_axes(name, array, core.get(name, ()))
        places = tuple(range(-len(axes), 0))
        last[name] = da.moveaxis(da.asarray(array), axes, places).astype(dtype)
        check_not_empty(name, last[name].shape[array.ndim - len(axes) :])
        loops[name] = last[name].shape[: array.ndim - len(axes)]
    loop_shape(loops, core)
    ready = []
    for name, array in last.items():
        core_ndim = len(core.get(name, ()))
        _warn_if_rechunked(score, name, array.numblocks[array.ndim - core_ndim :])
        ready.append(array.rechunk({-1 - i: -1 for i in range(core_ndim)}))
    chunks = ready[0].chunks[: len(loops[next(iter(loops))])]
    inputs = [
        _rechunk_like(a, chunks, len(core.get(n, ()))) for n, a in zip(last, ready, strict=True)
    ]
    marks = ",".join(f"({','.join(f'{n}{i}' for i in range(len(core.get(n, ()))))})" for n in last)
    return da.apply_gufunc(
        partial(_core_last, kernel, [len(core.get(name, ())) for name in last]),
        f"{marks}->()",
        *inputs,
        output_dtypes=[dtype],
    )


def _rechunk_like(array: Any, chunks: tuple[tuple[int, ...], ...], core_ndim: int) -> Any:
    """Rechunk the loop axes like those of the first array, where their lengths are equal."""
    sizes, loops = {}, array.ndim - core_ndim
    for back in range(1, min(loops, len(chunks)) + 1):
        axis = loops - back
        if array.shape[axis] == sum(chunks[-back]):
            sizes[axis] = chunks[-back]
    return array.rechunk(sizes)


def _core_last(kernel: Callable[..., Any], core_ndims: Sequence[int], *arrays: Any) -> Any:
    """Call a kernel on arrays whose core axes come last, as dask and xarray pass them."""
    first = [
        np.moveaxis(a, tuple(range(-n, 0)), tuple(range(n))) if n else a
        for a, n in zip(arrays, core_ndims, strict=True)
    ]
    loops = max((a.ndim - n for a, n in zip(first, core_ndims, strict=True) if n), default=0)
    for i, (array, n) in enumerate(zip(first, core_ndims, strict=True)):
        if n and array.ndim - n < loops:
            ones = (1,) * (loops - array.ndim + n)
            first[i] = array.reshape(*array.shape[:n], *ones, *array.shape[n:])
    return kernel(*first)


def _on_xarray(
    score: Score,
    arrays: Mapping[str, Any],
    core: Core,
    options: dict[str, Any],
    attrs: dict[str, Any],
    unlike: Sequence[str],
) -> xr.DataArray:
    ready = dict(arrays)
    for name, dims in checked_core(arrays, core).items():
        array = ready[name]
        if array.chunks is not None:
            _warn_if_rechunked(score, name, [len(array.variable.chunksizes[d]) for d in dims])
            ready[name] = rechunk(array, dict.fromkeys(dims, -1))
    units = check_alike(
        ready, [name for name in ready if name not in unlike] if score.units else ()
    )
    dtype = common_dtype(*ready.values())
    ready = {  # kernels get arrays, and a plain number widens none
        k: np.asarray(v, dtype) if np.isscalar(v) else v.astype(dtype, copy=False)
        for k, v in ready.items()
    }
    core_ndims = [len(core.get(name, ())) for name in ready]
    result = xr.apply_ufunc(
        partial(_core_last, partial(score.numpy, **options), core_ndims),
        *ready.values(),
        input_core_dims=[list(core.get(name, ())) for name in ready],
        join="exact",
        dask="parallelized",
        output_dtypes=[dtype],
    )
    labelled_result = rechunk_coords(result)
    return set_labels(
        labelled_result, score.name, score.long_name, units if score.units else "1", attrs
    )


def _warn_if_rechunked(score: Score, name: str, blocks: Sequence[int]) -> None:
    if any(n > 1 for n in blocks):
        warnings.warn(rechunk_message(score.name, name, blocks), RechunkWarning, stacklevel=5)


def _on_torch(score: Score, arrays: Mapping[str, Any], core: Core, options: dict[str, Any]) -> Any:
    ready = core_first(_tensors_of(arrays), core)
    if score.torch is not None:
        return score.torch(*ready.values(), **options)
    for name, tensor in ready.items():
        if tensor.requires_grad:
            raise ArgumentError(name, f"{score.name} has no gradient", "Pass .detach()")
    like = next(iter(ready.values()))
    result = score.numpy(*(on_host(t) for t in ready.values()), **options)
    return like.new_tensor(np.asarray(result))


def _tensors_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Convert arrays to tensors of one floating dtype and device; at least one is a tensor.

    Plain numbers take the dtype of the tensors; integer tensors become floating.
    """
    import torch

    tensors = {k: v for k, v in arrays.items() if isinstance(v, torch.Tensor)}
    dtype = None
    for tensor in tensors.values():
        if tensor.dtype.is_floating_point:
            dtype = tensor.dtype if dtype is None else torch.promote_types(dtype, tensor.dtype)
    device = next(iter(tensors.values())).device
    dtype = dtype or torch.get_default_dtype()
    return {k: torch.as_tensor(v, dtype=dtype, device=device) for k, v in arrays.items()}
