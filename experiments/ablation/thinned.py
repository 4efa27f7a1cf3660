"""Prepared data of fewer grid points: each n-th row and column of a store."""

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.experiments import provenance
from ens10.experiments.matrix.claims import BEAT, claim
from ens10.store import open_store, store_kinds

_WHOLE = 360.0


def thinned_store(store: Path, thin: int, folder: Path) -> Path:
    """A store of each `thin`-th row and column, with the truth there; made if it is not there.

    Where another process is making it, this one waits.

    Points are taken as they are, not averaged, so that the truth of both stores is the same.

    Args:
        store: prepared data.
        thin: 1 gives the store itself.
        folder: to make it in; its name tells the data that it is of.

    Raises:
        ArgumentError: a grid that does not divide: the last row, or the points around the globe,
            would be as far from their neighbours as no others are.
    """
    if thin == 1:
        return store
    made = folder / f"thin{thin}-{provenance.checksum(store)}.zarr"
    if made.exists():
        return made
    while not made.exists():
        with claim(made.with_suffix(".claim")) as ours:
            if ours and not made.exists():
                _make(store, thin, made)
        if not made.exists():
            time.sleep(BEAT)
    return made


def _make(store: Path, thin: int, made: Path) -> None:
    kinds = [kind for kind in ("sfc", "pl") if kind in store_kinds(store)]
    parts = [open_store(store, kind) for kind in kinds]
    _check(parts[0], thin, store)
    points = {"latitude": slice(None, None, thin), "longitude": slice(None, None, thin)}
    few = xr.merge([part.isel(points) for part in parts], compat="no_conflicts", join="exact")
    prepare(few, made, truth=open_store(store, "truth").isel(points))


def _check(part: xr.Dataset, thin: int, store: Path) -> None:
    rows, columns = part.sizes["latitude"], part.sizes["longitude"]
    remedy = f"Give data of 1 + {thin} n rows and {thin} n columns, as 91x192 for 2"
    if (rows - 1) % thin:
        raise ArgumentError("thin", f"{thin} does not divide the {rows} rows of {store}", remedy)
    if columns % thin and _goes_round(part["longitude"].to_numpy()):
        told = f"{thin} does not divide the {columns} columns of {store}"
        raise ArgumentError("thin", told, remedy)


def _goes_round(longitude: npt.NDArray[np.float64]) -> bool:
    """Whether the last column is a neighbour of the first."""
    step = longitude[1] - longitude[0]
    return bool(np.isclose(longitude[-1] + step - longitude[0], _WHOLE))
