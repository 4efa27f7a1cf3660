"""Arrays, coordinates and metadata of a store, written so that any reader of Zarr finds them."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr
from zarr.codecs import BloscCodec

from ens10.packed16.codec import Packed16

Codec = Literal["none", "lz4"]
_TIME_ATTRIBUTES = {"units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"}


def create_array(
    group: zarr.Group,
    name: str,
    shape: Sequence[int],
    dims: Sequence[str],
    *,
    chunks: Sequence[int] | None = None,
    dtype: npt.DTypeLike = np.float32,
    attributes: Mapping[str, Any] | None = None,
    codec: Codec | None = None,
) -> zarr.Array[Any]:
    """Create an array of a store, NaN (0 for integers) until it is written.

    Args:
        group: where.
        name: variable name.
        shape: sizes of the dimensions.
        dims: names of the dimensions.
        chunks: sizes of a chunk; the whole array if None.
        dtype: type of the values.
        attributes: CF attributes.
        codec: None for plain numbers; "none" for fields in packed16, "lz4" to compress these too.
    """
    floating = np.issubdtype(np.dtype(dtype), np.floating)
    lz4 = BloscCodec(typesize=2, cname="lz4", clevel=5, shuffle="shuffle")
    # A chunk that is not there is damage, so those full of gaps are written too.
    return group.create_array(
        name, shape=tuple(shape), chunks=tuple(chunks or shape), dtype=np.dtype(dtype),
        fill_value=np.nan if floating else 0, dimension_names=list(dims),
        attributes={str(k): _plain(v) for k, v in (attributes or {}).items()},
        serializer=Packed16() if codec else "auto", config={"write_empty_chunks": True},
        compressors=[lz4] if codec == "lz4" else None,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """Convert an attribute for JSON: netCDF files hold numpy numbers."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def consolidate(path: Path) -> None:
    """Consolidate the metadata of all groups and arrays, where xarray looks first."""
    with warnings.catch_warnings():
        # It is no part of the format's specification yet, but without it xarray warns.
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path)


def write_coordinates(group: zarr.Group, dataset: xr.Dataset, names: Sequence[str]) -> None:
    """Write coordinates in the form that xarray reads, times as seconds since 1970 (CF)."""
    for name in names:
        coordinate = dataset[name]
        values, attributes = coordinate.to_numpy(), dict(coordinate.attrs)
        if np.issubdtype(values.dtype, np.datetime64):
            values = values.astype("datetime64[s]").astype(np.int64)
            attributes.update(_TIME_ATTRIBUTES)
        dims, dtype = [str(d) for d in coordinate.dims], values.dtype
        array = create_array(group, name, values.shape, dims, dtype=dtype, attributes=attributes)
        array[...] = values
    auxiliary = [name for name in names if name not in dataset.dims]
    if auxiliary:
        group.attrs["coordinates"] = " ".join(auxiliary)
