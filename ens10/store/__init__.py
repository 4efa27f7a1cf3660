"""A store as xarray: forecasts, truth and statistics in one Zarr hierarchy (format 3).

    STORE/sfc         variables over (time, step, number, latitude, longitude)
    STORE/pl          variables over (time, step, level, number, latitude, longitude)
    STORE/truth       variables over (time, step[, level], latitude, longitude), on the valid date
    STORE/statistics  ensemble mean and deviation over (time, step, channel, latitude, longitude),
                      and their sums over dates

A chunk of a forecast is one date, step and level, all members, the full grid; a chunk of the
ensemble mean is one date and step, all channels. Any reader of Zarr opens the groups.
"""

from ens10.store.opening import (
    FORMAT_VERSION,
    StoreKind,
    forecasts,
    is_strict,
    open_store,
    store_kinds,
)
from ens10.store.writing import Codec, consolidate, create_array, write_coordinates

__all__ = [
    "FORMAT_VERSION", "Codec", "StoreKind", "consolidate", "create_array", "forecasts", "is_strict",
    "open_store", "store_kinds", "write_coordinates",
]  # fmt: skip
