"""Chunks that a Zarr store lacks, as an incomplete copy does: readers take the fill for data.

An absent chunk is missing. If the fill value is NaN or declared as missing, xarray reads it as NaN.
With another fill value it is ambiguous, because zarr-python does not write chunks that are equal to
it, such as a dry field of precipitation: reading such a chunk is an error under `missing="error"`,
and its values are NaN otherwise, unless the mapping states `absent_chunks: fill`.

A coordinate cannot be NaN, so that its absent chunks are an error. Three are taken as they are,
with a note, because xarray leaves out zeros of these often: a date after 2000 (xarray counts from
the first date of an axis, other origins are older), member 0, and lead time 0 beside valid times,
which are compared with it later.
"""

import warnings
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import DataNote, FileError, MissingDataError
from ens10.source.gribs import Missing
from ens10.source.kinds import MEMBER_DIMS
from ens10.source.names import recognise_dimensions

_LATEST_ORIGIN = np.datetime64("2000-01-01")  # of times that do not count from their first date
_ABSENT = 2**64 - 1  # offset of an absent inner chunk in the index of a shard
_CRC_BYTES = 4
_MOST_CHUNKS = 10**8  # of an array
Present = npt.NDArray[np.bool_]


def without_absent_chunks(
    dataset: xr.Dataset, path: Path, group: Any, missing: Missing
) -> xr.Dataset:
    """Mask the values of absent chunks, or refuse them when they are read.

    Args:
        dataset: of the store, as xarray opened it.
        path: of the store, a local folder.
        group: the same store opened by zarr.
        missing: "error" to raise an error where an absent chunk is read, otherwise NaN.

    Raises:
        MissingDataError: a chunk of a coordinate is absent.
    """
    fields: dict[Any, xr.DataArray] = {}
    zeros: list[str] = []
    for name, variable in dataset.variables.items():
        array = group[name]
        if _is_missing(array.fill_value, variable):
            continue
        present = _present_chunks(path / array.path, array)
        if present.all():
            continue
        field = dataset[name]
        if name in dataset.coords or field.dtype.kind in "mM":
            error = _error(array, field, present, path, is_coordinate=True)
            zeros += _zero_of_coordinate(field, dataset, error)
            continue
        if field.ndim == 0:  # such as the attributes of a projection
            continue
        chunked = field if field.chunks is not None else field.chunk()
        mask = _mask(present, array.chunks, chunked)
        if missing == "error":
            error = _error(array, field, present, path)
            checked = xr.apply_ufunc(
                _refuse, chunked, mask, dask="parallelized", output_dtypes=[field.dtype],
                kwargs={"error": error}, keep_attrs=True,
            )  # fmt: skip
            fields[name] = checked.transpose(*field.dims)
        else:
            fields[name] = chunked.where(mask)
    if zeros:
        told = ", ".join(sorted(zeros))
        note = f"{path}: absent chunks of coordinates are taken as zeros: {told}"
        warnings.warn(note, DataNote, stacklevel=5)
    return dataset.assign(fields)


def _zero_of_coordinate(
    field: xr.DataArray, dataset: xr.Dataset, error: MissingDataError
) -> list[str]:
    """Return a coordinate without its chunk in words; an empty list if no field depends on it.

    Raises:
        MissingDataError: it may have had another value than the fill value.
    """
    name, is_date = str(field.name), field.dtype.kind == "M"
    is_lead = name == "step" or field.dtype.kind == "m"
    is_axis = name in {*dataset.dims, "level", *recognise_dimensions(dataset)}
    if field.size > 1:
        raise error
    value = field.to_numpy().ravel()[0]
    if is_date and value > _LATEST_ORIGIN:
        return [f"{name} {str(value)[:13]}"]
    if name in MEMBER_DIMS or (is_lead and "valid_time" in dataset.variables):
        return [f"{name} 0"]
    if is_date or is_lead or is_axis:
        raise error
    return []


def _is_missing(fill: Any, variable: xr.Variable) -> bool:
    """Return True if xarray reads the fill value of an array as NaN; zarr reads None as 0."""
    declared: list[Any] = [variable.encoding.get(key) for key in ("_FillValue", "missing_value")]
    if fill is None:
        return False
    return fill != fill or any(fill in np.ravel(value).tolist() for value in declared)


def _present_chunks(folder: Path, array: Any) -> Present:
    """Return which chunks of an array exist, in the shape of its grid of chunks."""
    shape = tuple(ceil(n / size) for n, size in zip(array.shape, array.chunks, strict=True))
    if prod(shape) > _MOST_CHUNKS:
        reason = f"shape {array.shape} and chunks {array.chunks} make {prod(shape)} chunks"
        raise FileError(folder, f"{reason}, more than {_MOST_CHUNKS}", "Correct its metadata")
    shards = array.shards or array.chunks
    per_shard = [big // small for big, small in zip(shards, array.chunks, strict=True)]
    present = np.zeros(shape, dtype=bool)
    grid = [ceil(n / size) for n, size in zip(array.shape, shards, strict=True)]
    for place in product(*map(range, grid)):
        file = folder / array.metadata.encode_chunk_key(place)
        if file.is_file():
            inner: Any = True if array.shards is None else _inner_chunks(file, array, per_shard)
            spans = [slice(n * k, (n + 1) * k) for n, k in zip(place, per_shard, strict=True)]
            where: Any = (*spans, ...)
            part = present[where]
            part[...] = inner if inner is True else inner[tuple(map(slice, part.shape))]
    return present


def _inner_chunks(file: Path, array: Any, per_shard: list[int]) -> Any:
    """Return which inner chunks a shard has; True if its index is of another form.

    Only the index is read, which has offset and length of each inner chunk.
    """
    (codec,) = array.metadata.codecs
    settings = codec.to_dict()["configuration"]
    kinds = [one["name"] for one in settings["index_codecs"]]
    if kinds != ["bytes", "crc32c"]:
        return True
    size = 16 * int(np.prod(per_shard))
    is_last = settings["index_location"] == "end"
    with file.open("rb") as stream:
        stream.seek(max(file.stat().st_size - size - _CRC_BYTES, 0) if is_last else 0)
        index = stream.read(size)
    if len(index) != size:
        return True  # damaged, as zarr says when it reads the shard
    return np.frombuffer(index, "<u8").reshape(*per_shard, 2)[..., 0] != _ABSENT


def _mask(present: Present, chunks: tuple[int, ...], field: xr.DataArray) -> xr.DataArray:
    """Return a mask over the dimensions along which chunks are absent."""
    axes = [
        axis
        for axis in range(present.ndim)
        if not (present == present.take([0], axis)).all()  # else all chunks along it are alike
    ]
    mask = present[tuple(slice(None) if axis in axes else 0 for axis in range(present.ndim))]
    for place, axis in enumerate(axes):
        mask = mask.repeat(chunks[axis], place).take(range(field.shape[axis]), place)
    dims = [field.dims[axis] for axis in axes]
    return xr.DataArray(mask, dims=dims).chunk({dim: field.chunksizes[dim] for dim in dims})


def _error(
    array: Any, field: xr.DataArray, present: Present, path: Path, *, is_coordinate: bool = False
) -> MissingDataError:
    absent, fill, chunks = np.argwhere(~present), array.fill_value, array.chunks
    axes = [
        (axis, dim)
        for axis, dim in enumerate(field.dims)
        if field[dim].dtype.kind == "M" and not is_coordinate
    ]
    lines = [f"{len(absent)} of {present.size} chunks of {field.name}"]
    for axis, dim in axes:
        dates = field[dim].to_numpy()
        lines += [
            f"{dim} {str(dates[place * chunks[axis]])[:13]}" for place in np.unique(absent[:, axis])
        ]
    gaps = "" if is_coordinate else "or accept the gaps with --missing nan or skip; "
    return MissingDataError(
        path,
        lines,
        f"Copy the store again; {gaps}or, if its writer leaves out chunks that equal the fill "
        f"value ({0 if fill is None else fill}), state `absent_chunks: fill` in --names FILE",
    )


def _refuse(values: Any, is_present: Any, error: MissingDataError) -> Any:
    if not np.all(is_present):
        raise error
    return values
