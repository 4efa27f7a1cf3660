"""A store as xarray: forecasts, truth and statistics in one Zarr hierarchy (format 3).

    STORE/sfc         variables over (time, step, number, latitude, longitude)
    STORE/pl          variables over (time, step, level, number, latitude, longitude)
    STORE/truth       variables over (time, step[, level], latitude, longitude), on the valid date
    STORE/statistics  ensemble mean and deviation over (time, step, channel, latitude, longitude),
                      and their sums over dates

A chunk of a forecast is one date, step and level, all members, the full grid; a chunk of the
ensemble mean is one date and step, all channels. Any reader of Zarr opens the groups.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr
from zarr.codecs import BloscCodec

from ens10.chunks import MEND
from ens10.errors import FileError, MissingDataError, UnknownNameError
from ens10.packed16.codec import Packed16
from ens10.strict import StrictStore

FORMAT_VERSION = 2
_STRICT_SINCE = 2  # before, chunks without any value were left out
StoreKind = Literal["sfc", "pl", "truth", "statistics", "climate"]
Codec = Literal["none", "lz4"]
_TIME_ATTRIBUTES = {"units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"}


def open_store(path: Path | str, kind: StoreKind, *, dask: bool = True) -> xr.Dataset:
    """One part of a store, lazily.

    Args:
        path: a folder that `ens10 prepare` wrote, or a URL of one.
        kind: "sfc", "pl", "truth", "statistics" or "climate".
        dask: as dask arrays; False for xarray's own lazy ones, whose parts are read at once,
            however many chunks an array has.

    Raises:
        UnknownNameError: another kind.
        FileError: no store there, or one of a newer version. When values are read: a chunk is
            missing.
        DamagedFileError: when values are read: a chunk is damaged.
        MissingDataError: the store has no such part.
    """
    if kind not in get_args(StoreKind):
        raise UnknownNameError("kind", kind, get_args(StoreKind))
    held = store_kinds(path)
    if kind not in held:
        remedy = (
            "Prepare it again with --truth" if kind == "truth" else "Prepare it from such files"
        )
        raise MissingDataError(path, [f"{kind} (the store holds {', '.join(held)})"], remedy)
    strict = is_strict(path)
    source: Any = StrictStore(_root(path).store, str(path)) if strict else str(path)
    chunks: dict[str, int] | None = {} if dask else None
    part: xr.Dataset = xr.open_zarr(source, group=kind, consolidated=False, chunks=chunks)
    return part


def store_kinds(path: Path | str) -> list[str]:
    """The parts that a store holds.

    Raises:
        FileError: no store there, or one of a newer version.
    """
    root = _root(path)
    try:
        return sorted(kind for kind in get_args(StoreKind) if kind in root)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(path, f"its metadata cannot be read ({error})", MEND) from error


def is_strict(path: Path | str) -> bool:
    """Whether every chunk of a store was written, so that one that lacks is damage."""
    return int(str(_root(path).attrs["ens10_format"])) >= _STRICT_SINCE


def _root(path: Path | str) -> zarr.Group:
    """The hierarchy of a store, whose version is known to be one that this package reads."""
    remedy = "Make a store with `ens10 prepare`"
    if "://" not in str(path) and not Path(path).exists():
        partial = Path(path).with_name(Path(path).name + ".partial")
        if partial.exists():
            raise FileError(
                path,
                f"it is not complete: {partial} is being written or was left",
                "Run `ens10 prepare` again",
            )
        raise FileError(path, "no such store", remedy)
    try:
        root = zarr.open_group(str(path), mode="r", use_consolidated=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(path, "not a store of ens10 (no Zarr hierarchy there)", remedy) from error
    version = root.attrs.get("ens10_format")
    if not isinstance(version, int):
        raise FileError(path, "a Zarr hierarchy, but not a store of ens10", remedy)
    if version > FORMAT_VERSION:
        reason = f"a store of format {version}, newer than {FORMAT_VERSION}"
        raise FileError(path, reason, "Update ens10 to read it")
    return root


def forecasts(path: Path | str, *, dask: bool = True) -> xr.Dataset:
    """All forecast variables of a store in one lazy dataset, surface and pressure levels."""
    held = [kind for kind in ("sfc", "pl") if kind in store_kinds(path)]
    parts = [open_store(path, kind, dask=dask) for kind in held]
    return xr.merge(parts, join="exact", combine_attrs="override", compat="equals")


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
    """An empty array of a store, filled with NaN (or 0 for integers) until it is written.

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
    lz4 = BloscCodec(typesize=2, cname="lz4", clevel=1, shuffle="shuffle")
    return group.create_array(
        name,
        shape=tuple(shape),
        chunks=tuple(chunks or shape),
        dtype=np.dtype(dtype),
        fill_value=np.nan if floating else 0,
        dimension_names=list(dims),
        attributes={str(k): _plain(v) for k, v in (attributes or {}).items()},
        serializer=Packed16() if codec else "auto",
        compressors=[lz4] if codec == "lz4" else None,
        # A chunk that is not there is damage, so those full of gaps are written too.
        config={"write_empty_chunks": True},
    )


def _plain(value: Any) -> Any:
    """An attribute as JSON can hold it: netCDF files keep numbers as numpy ones."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def consolidate(path: Path) -> None:
    """Copies the metadata of all groups and arrays to the top, where xarray looks first."""
    with warnings.catch_warnings():
        # It is no part of the format's specification yet, but without it xarray warns.
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        warnings.filterwarnings("ignore", "Object at .* is not recognized")  # the manifest
        zarr.consolidate_metadata(str(path))


def write_coordinates(group: zarr.Group, dataset: xr.Dataset, names: Sequence[str]) -> None:
    """Writes coordinates so that xarray finds them, times as seconds since 1970 (CF)."""
    for name in names:
        coordinate = dataset[name]
        values, attributes = coordinate.to_numpy(), dict(coordinate.attrs)
        if np.issubdtype(values.dtype, np.datetime64):
            values = values.astype("datetime64[s]").astype(np.int64)
            attributes.update(_TIME_ATTRIBUTES)
        array = create_array(
            group,
            name,
            values.shape,
            [str(d) for d in coordinate.dims],
            dtype=values.dtype,
            attributes=attributes,
        )
        array[...] = values
    auxiliary = [name for name in names if name not in dataset.dims]
    if auxiliary:
        group.attrs["coordinates"] = " ".join(auxiliary)
