"""Open the parts of a store, or predictions, as lazy xarray datasets."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
import zarr

from ens10.channels import channel_names, field_of
from ens10.errors import FileError, MissingDataError, UnknownNameError
from ens10.places import for_xarray, for_zarr, is_url
from ens10.stations import as_stations
from ens10.store.checked import STRICT_SINCE, StrictStore, open_checked
from ens10.store.chunks import MEND
from ens10.store.manifest import NAME, open_record, read_plan
from ens10.untrusted import check_regular, parse_json, readable

FORMAT_VERSION = 2
_OLDEST = 1  # that is still read
# attribute of predictions that have a manifest: their format
FORMAT_ATTRIBUTE = "ens10_predictions"
PREDICTIONS_FORMAT = 1
PREDICTIONS_PLAN: dict[str, Any] = {
    "source": None, "truth": None, "options": {}, "kind": "predictions"
}  # fmt: skip
_REMEDY = "Predict again with `ens10 predict --run RUN`"
_LONGEST_AXIS = 1 << 24  # values of a coordinate, all of which are read
StoreKind = Literal["sfc", "pl", "truth", "statistics", "climate"]


def open_store(path: Path | str, kind: StoreKind, *, dask: bool = True) -> xr.Dataset:
    """Open one part of a store as a lazy dataset.

    Args:
        path: a folder that `ens10 prepare` wrote, or a URL of one.
        kind: "sfc", "pl", "truth", "statistics" or "climate".
        dask: as dask arrays; False for xarray's own lazy ones, whose parts are read at once,
            however many chunks an array has.

    Returns:
        The dataset; of stations over the dimension `station`, see `ens10.stations`.

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
    kinds = store_kinds(path)
    if kind == "statistics" and kind not in kinds and kinds:
        return _statistics_of(forecasts(path, dask=dask))
    if kind not in kinds:
        way = "again with --truth" if kind == "truth" else "from such files"
        raise MissingDataError(
            path, [f"{kind} (the store holds {', '.join(kinds)})"], f"Prepare it {way}"
        )
    strict = is_strict(path)
    record = open_record(path) if "statistics" not in kinds else None  # small: found at once
    source: Any = StrictStore(_root(path).store, str(path), record) if strict else for_xarray(path)
    chunks: dict[str, int] | None = {} if dask else None
    part = xr.open_zarr(source, group=kind, consolidated=False, chunks=chunks)
    if "time" not in part.variables:
        group = "pl" if "pl" in kinds else "sfc"
        part = share_coordinates(part, xr.open_zarr(source, group=group, consolidated=False))
    return as_stations(in_order(part))


def share_coordinates(truth: xr.Dataset, forecasts: xr.Dataset) -> xr.Dataset:
    """Return truth with the coordinates that a small store holds once, beside the forecasts."""
    dims = set(truth.dims)
    shared = {k: c for k, c in forecasts.coords.items() if k not in truth and {*c.dims} <= dims}
    return truth.assign_coords(shared)


def _statistics_of(dataset: xr.Dataset) -> xr.Dataset:
    """Return ensemble mean and deviation of forecasts, which small stores do not hold."""
    channels = xr.Variable("channel", np.array(channel_names(dataset), np.dtypes.StringDType()))
    fields = [field_of(dataset, str(name)) for name in channels.to_numpy()]
    wide = xr.concat(fields, channels, combine_attrs="drop").astype(np.float64)
    mean = wide.mean("number", skipna=False)
    std = wide.std("number", ddof=min(1, dataset.sizes["number"] - 1), skipna=False)
    moments = {"ensemble_mean": mean, "ensemble_std": std}
    return xr.Dataset(moments).astype(np.float32).transpose("time", "step", "channel", ...)


def in_order(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with variables and coordinates sorted by name.

    Zarr lists the arrays of a group as the file system lists its folders, which differs between
    copies of one store.
    """
    variables, coordinates = (
        {name: dataset.variables[name] for name in sorted(names, key=str)}
        for names in (dataset.data_vars, dataset.coords)
    )
    sorted_dataset = xr.Dataset(variables, coordinates, dataset.attrs)
    sorted_dataset.encoding = dataset.encoding
    return sorted_dataset


def store_kinds(path: Path | str) -> list[str]:
    """Return the parts that a store holds.

    Raises:
        FileError: no store there, or one of a newer version.
    """
    root = _root(path)
    try:
        return sorted(kind for kind in get_args(StoreKind) if kind in root)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(path, f"its metadata cannot be read ({error})", MEND) from error


def is_strict(path: Path | str) -> bool:
    """Return True if every chunk of a store was written, so that a missing one is damage."""
    return int(str(_root(path).attrs["ens10_format"])) >= STRICT_SINCE


def _root(path: Path | str) -> zarr.Group:
    """Open the hierarchy of a store, after checking its version."""
    remedy = "Make a store with `ens10 prepare`"
    if not is_url(path) and not Path(path).exists():
        partial = Path(path).with_name(Path(path).name + ".partial")
        if partial.exists():
            reason = f"it is not complete: {partial} is being written or was left"
            raise FileError(path, reason, "Run `ens10 prepare` again")
        raise FileError(path, "no such store", remedy)
    try:
        root = zarr.open_group(for_zarr(path), mode="r", use_consolidated=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not is_url(path) and (Path(path) / "zarr.json").exists():
            raise FileError(path, f"its zarr.json cannot be read ({error})", MEND) from error
        raise FileError(path, "not a store of ens10 (no Zarr hierarchy there)", remedy) from error
    version = root.attrs.get("ens10_format")
    if not isinstance(version, int):
        raise FileError(path, "a Zarr hierarchy, but not a store of ens10", remedy)
    if version > FORMAT_VERSION:
        reason = f"a store of format {version}, newer than {FORMAT_VERSION}"
        raise FileError(path, reason, "Update ens10 to read it")
    if version < _OLDEST:
        reason = f"a store of format {version}, older than {_OLDEST}, is not read any more"
        raise FileError(path, reason, "Rebuild it from its source with `ens10 prepare`")
    return root


def forecasts(path: Path | str, *, dask: bool = True) -> xr.Dataset:
    """Open all forecasts of a store, surface and pressure levels, as one lazy dataset."""
    kinds = [kind for kind in ("sfc", "pl") if kind in store_kinds(path)]
    parts = [open_store(path, kind, dask=dask) for kind in kinds]
    return xr.merge(parts, join="exact", combine_attrs="override", compat="equals")


def root_attributes(root: Path) -> dict[str, Any]:
    """Return the attributes of a local Zarr hierarchy, before any check of checksums.

    Raises:
        FileError: they cannot be read.
    """
    with readable(root, "its metadata cannot be read", _REMEDY):
        attributes = parse_json((root / "zarr.json").read_bytes()).get("attributes", {})
        if not isinstance(attributes, dict):
            raise ValueError("its attributes are no object of names and values")
        return attributes


def is_predictions(path: Path, *, older: bool = False) -> bool:
    """Return True if ens10 wrote the predictions in a folder, by their metadata or manifest.

    Args:
        path: of the folder.
        older: accept predictions of earlier versions, too, which a user can have written.
    """
    with suppress(FileError):
        attributes = root_attributes(path)
        if FORMAT_ATTRIBUTE in attributes or (older and "forecast_kind" in attributes):
            return True
    with suppress(FileError):
        return bool(read_plan(path).get("kind") == PREDICTIONS_PLAN["kind"])
    return False


def has_manifest(root: Path) -> bool:
    """Return True if predictions have a manifest, or should have one."""
    return (root / NAME.partition("/")[0]).exists() or FORMAT_ATTRIBUTE in root_attributes(root)


def _check_arrays(root: Path) -> None:
    """Refuse invalid metadata, for which Zarr prints tracebacks, and huge coordinates.

    Raises:
        FileError: the metadata of an array are damaged, or an axis is longer than any forecast's.
    """
    for path in sorted(root.glob("*/zarr.json")):
        check_regular(path)
        with readable(path, "the metadata of an array cannot be read", _REMEDY):
            shape = parse_json(path.read_bytes()).get("shape", [])
            if len(shape) == 1 and shape[0] > _LONGEST_AXIS:
                raise ValueError(f"{shape[0]} values along one axis")


def open_predictions(root: Path, *, dask: bool = False, **options: Any) -> xr.Dataset:
    """Open forecasts and truth in a Zarr store of predictions, checked by its manifest if any.

    Args:
        root: the store.
        dask: as dask arrays; False for xarray's own lazy ones.
        options: of `xarray.open_zarr`.

    Raises:
        FileError: the metadata cannot be read, or are of a newer version; or, by the manifest, a
            file is missing, too much, or of another size. When values are read: a file is missing.
        DamagedFileError: a file does not match the manifest, at once or when values are read.
    """
    _check_arrays(root)
    manifest_exists = has_manifest(root)
    source: Any = open_checked(root, _REMEDY) if manifest_exists else for_xarray(root)
    chunks: dict[str, int] | None = {} if dask else None
    with readable(root, "its metadata cannot be read", _REMEDY):
        dataset = in_order(xr.open_zarr(source, consolidated=False, chunks=chunks, **options))
        dataset = dataset.assign_coords({name: dataset[name].load() for name in dataset.coords})
        version = dataset.attrs.pop(FORMAT_ATTRIBUTE, PREDICTIONS_FORMAT)
        if not manifest_exists:  # metadata that no value can be read with
            for variable in dataset.data_vars.values():
                variable[tuple(slice(1) for _ in variable.dims)].load()
    if isinstance(version, int) and version > PREDICTIONS_FORMAT:
        reason = f"predictions of format {version}, newer than {PREDICTIONS_FORMAT}"
        raise FileError(root, reason, "Update ens10 to read them")
    return dataset
