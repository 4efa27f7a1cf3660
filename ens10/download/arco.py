"""ERA5 as Zarr: the layout of ARCO-ERA5, read hour by hour.

The public store has variables over (time, latitude, longitude) and (time, level, latitude,
longitude), hourly, 0.25 degree, and one chunk for each hour with all 37 levels in it: a level
costs as much to read as all of them. It is Zarr format 2 in spite of its name, which ends in -v3;
any Zarr store, local or remote, with these names and dimensions will do. See
https://github.com/google-research/arco-era5.
"""

import math
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES
from ens10.download.choice import ERA5_NAMES, Choice
from ens10.download.remote import check_scheme, public
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.places import for_xarray, for_zarr, is_url
from ens10.source.ranges import check_range

URL = (
    "https://storage.googleapis.com/gcp-public-data-arco-era5/ar/full_37-1h-0p25deg-chunk-1.zarr-v3"
)
URL_VARIABLE = "ENS10_ERA5_URL"
_DIMS = ("time", "level", "latitude", "longitude")
_ANON = {"anon": True}
_GOOGLE = {"token": "anon"}
_ANONYMOUS: dict[str, dict[str, Any]] = {"gs": _GOOGLE, "gcs": _GOOGLE, "s3": _ANON}
_TOLERANCE_DEGREES = 1e-3
_MOST_ASKED = 3  # chunks whose size is asked for, of each variable


class Era5:
    """A store in the layout of ARCO-ERA5, and what is wanted of it.

    Args:
        url: of the store, or its path on this machine.
        choice: what is wanted.

    Raises:
        ArgumentError: a URL that needs another package, or a grid that has not the points wanted.
        FileError: no Zarr store, or variables in other units.
        MissingDataError: variables, levels or hours are missing.
    """

    def __init__(self, url: str, choice: Choice) -> None:
        if is_url(url):
            check_scheme(url)
        self.source, self._url, self._choice = public(url), url, choice
        self._options = _ANONYMOUS.get(url.partition("://")[0])
        whole = _opened(url, self._options)
        theirs = {ERA5_NAMES[name]: name for name in choice.variables}
        _check_holds(whole, theirs, choice, self.source)
        fields = whole[list(theirs)].rename(theirs)
        fields = fields.drop_vars([c for c in fields.coords if c not in _DIMS])
        for name in choice.variables:
            _check_units(name, fields[name], self.source)
        if choice.upper:
            fields = fields.sel(level=list(choice.levels))
        self._fields = fields.isel(_every(fields, choice.spacing))

    @property
    def grid(self) -> dict[str, npt.NDArray[Any]]:
        """Latitudes and longitudes that are kept."""
        return {d: self._fields[d].to_numpy() for d in ("latitude", "longitude")}

    def size(self, hours: Sequence[datetime]) -> int:
        """Bytes to be read for some hours, about: the size of a few chunks times their number."""
        index = self._fields.indexes["time"].get_indexer(np.array(hours, "datetime64[ns]"))
        total = 0.0
        for name in self._choice.variables:
            count, size = self._chunks(ERA5_NAMES[name], np.asarray(index))
            total += count * size
        return round(total)

    def read(self, name: str, hour: datetime) -> xr.DataArray:
        """One variable at one hour, over (time, [level,] latitude, longitude), float32.

        Raises:
            MissingDataError: the store has no values there, which Zarr gives as missing.
            FileError: values that the variable cannot have.
        """
        at = self._fields[name].sel(time=[np.datetime64(hour, "ns")])
        field = at.load().transpose(*_DIMS, missing_dims="ignore").astype(np.float32)
        missing = field.isnull()
        gone = missing.all(("latitude", "longitude")) if name == "sst" else missing
        if bool(gone.any()):
            raise MissingDataError(self.source, [f"values of {ERA5_NAMES[name]}"])
        check_range(name, float(field.min()), float(field.max()), ERA5_NAMES[name])
        return field

    def _chunks(self, name: str, index: npt.NDArray[np.int64]) -> tuple[int, float]:
        """How many chunks of a variable are read, and their size in bytes."""
        import fsspec
        import zarr

        group = zarr.open_group(for_zarr(self._url), mode="r", storage_options=self._options)
        array = group[name]
        if not isinstance(array, zarr.Array):
            raise FileError(self.source, f"{name} is no array", "Give another store")
        shape = array.shards or array.chunks
        along = np.unique(index // shape[0])
        others = math.prod(-(-n // c) for n, c in zip(array.shape[1:], shape[1:], strict=True))
        files, path = fsspec.filesystem("file"), self._url
        if is_url(self._url):
            files, path = fsspec.core.url_to_fs(self._url, **(self._options or {}))
        sizes = []
        for n in along[:: max(1, along.size // _MOST_ASKED)][:_MOST_ASKED]:
            key = array.metadata.encode_chunk_key((int(n), *[0] * (len(shape) - 1)))
            try:
                size = files.size(f"{path}/{name}/{key}")
            except FileNotFoundError:
                continue  # a chunk of nothing but missing values; reading it will tell
            sizes.append(math.prod(shape) * array.dtype.itemsize if size is None else size)
        return along.size * others, float(np.mean(sizes)) if sizes else 0.0


def _opened(url: str, options: dict[str, Any] | None) -> xr.Dataset:
    if not is_url(url) and not Path(url).exists():
        raise FileError(url, "no such folder", "Give the URL or path of a Zarr store")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            store: xr.Dataset = xr.open_zarr(for_xarray(url), chunks=None, storage_options=options)
    except Exception as error:  # the back ends of fsspec have no error in common
        raise FileError(
            public(url),
            f"no Zarr store that can be read ({type(error).__name__}: {error})",
            "Check the URL and the connection",
        ) from error
    return store


def _check_holds(store: xr.Dataset, theirs: dict[str, str], choice: Choice, source: str) -> None:
    lacking = [name for name in theirs if name not in store.data_vars]
    lacking += [f"the coordinate {d}" for d in _DIMS if d not in store.coords and (
        d != "level" or choice.upper)]  # fmt: skip
    if not lacking and choice.upper:
        held = store["level"].to_numpy()
        lacking += [f"level {level} hPa" for level in choice.levels if level not in held]
    if not lacking:
        known = store.indexes["time"]
        hours = np.array(choice.hours, "datetime64[ns]")
        there = known.get_indexer(hours) >= 0
        asked = zip(choice.hours, there, strict=True)
        lacking += [f"{hour:%Y-%m-%dT%H}" for hour, is_there in asked if not is_there]
    if lacking:
        raise MissingDataError(source, lacking, "Choose other dates or fields, or another store")


def _check_units(name: str, field: xr.DataArray, source: str) -> None:
    """Refuses other units; `m**2 s**-2` and `m2 s-2` are the same."""
    wanted = VARIABLES[name].units
    units = str(field.attrs.get("units", wanted)).replace("**", "").replace("^", "")
    if units not in (wanted, "(0 - 1)" if wanted == "1" else wanted):
        raise FileError(
            source, f"{ERA5_NAMES[name]} is in {units}, not in {wanted}", "Give another store"
        )


def _every(fields: xr.Dataset, spacing: float) -> dict[str, slice]:
    """Which rows and columns have the wanted spacing, from the first of each."""
    picks = {}
    for dim in ("latitude", "longitude"):
        points = fields[dim].to_numpy().astype(np.float64)
        held = float(np.abs(np.diff(points)).min()) if points.size > 1 else spacing
        step = round(spacing / held)
        if step < 1 or abs(step * held - spacing) > _TOLERANCE_DEGREES:
            raise ArgumentError(
                "spacing",
                f"{spacing:g} degrees is no multiple of the {held:g} between the {dim}s of ERA5",
                f"Give a multiple of {held:g}",
            )
        picks[dim] = slice(None, None, step)
    return picks
