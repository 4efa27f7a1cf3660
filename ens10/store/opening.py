"""The parts of a store, lazily."""

from pathlib import Path
from typing import Any, Literal, get_args

import xarray as xr
import zarr

from ens10.errors import FileError, MissingDataError, UnknownNameError
from ens10.places import for_xarray, for_zarr, is_url
from ens10.store.chunks import MEND
from ens10.store.strict import STRICT_SINCE, StrictStore

FORMAT_VERSION = 2
_OLDEST = 1  # that is still read
StoreKind = Literal["sfc", "pl", "truth", "statistics", "climate"]
Codec = Literal["none", "lz4"]


def open_store(path: Path | str, kind: StoreKind, *, dask: bool = True) -> xr.Dataset:
    """One part of a store, lazily.

    Args:
        path: a folder that `ens10 prepare` wrote, or a URL of one.
        kind: "sfc", "pl", "truth", "statistics" or "climate".
        dask: as dask arrays; False for xarray's own lazy ones, whose parts are read at once,
            however many chunks an array has.

    Examples:
        >>> import ens10
        >>> ens10.open_store("store.zarr", "sfc")["t2m"].dims
        ('time', 'step', 'number', 'latitude', 'longitude')

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
    source: Any = StrictStore(_root(path).store, str(path)) if strict else for_xarray(path)
    chunks: dict[str, int] | None = {} if dask else None
    return in_order(xr.open_zarr(source, group=kind, consolidated=False, chunks=chunks))


def in_order(dataset: xr.Dataset) -> xr.Dataset:
    """The same dataset, its variables and its coordinates each in the order of their names.

    Zarr lists the arrays of a group as the file system lists its folders, which differs between
    copies of one store.
    """
    variables, coordinates = (
        {name: dataset.variables[name] for name in sorted(names, key=str)}
        for names in (dataset.data_vars, dataset.coords)
    )
    ordered = xr.Dataset(variables, coordinates, dataset.attrs)
    ordered.encoding = dataset.encoding
    return ordered


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
    return int(str(_root(path).attrs["ens10_format"])) >= STRICT_SINCE


def _root(path: Path | str) -> zarr.Group:
    """The hierarchy of a store, whose version is known to be one that this package reads."""
    remedy = "Make a store with `ens10 prepare`"
    if not is_url(path) and not Path(path).exists():
        partial = Path(path).with_name(Path(path).name + ".partial")
        if partial.exists():
            raise FileError(
                path,
                f"it is not complete: {partial} is being written or was left",
                "Run `ens10 prepare` again",
            )
        raise FileError(path, "no such store", remedy)
    try:
        root = zarr.open_group(for_zarr(path), mode="r", use_consolidated=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(path, "not a store of ens10 (no Zarr hierarchy there)", remedy) from error
    version = root.attrs.get("ens10_format")
    if not isinstance(version, int):
        raise FileError(path, "a Zarr hierarchy, but not a store of ens10", remedy)
    if version > FORMAT_VERSION:
        reason = f"a store of format {version}, newer than {FORMAT_VERSION}"
        raise FileError(path, reason, "Update ens10 to read it")
    if version < _OLDEST:
        reason = f"a store of format {version}, older than {_OLDEST}, is not read any more"
        raise FileError(path, reason, "Make it anew from its source with `ens10 prepare`")
    return root


def forecasts(path: Path | str, *, dask: bool = True) -> xr.Dataset:
    """All forecast variables of a store in one lazy dataset, surface and pressure levels."""
    held = [kind for kind in ("sfc", "pl") if kind in store_kinds(path)]
    parts = [open_store(path, kind, dask=dask) for kind in held]
    return xr.merge(parts, join="exact", combine_attrs="override", compat="equals")
