"""What the imitations of producers' files share: a small grid, values, and the comparison."""

from pathlib import Path

import numpy as np
import xarray as xr

import ens10
from ens10.source import open_source
from ens10.source.layouts import registered_layouts
from ens10.store import forecasts

STARTS = np.array(["2026-01-01T00", "2026-01-03T00"], "datetime64[ns]")
NORTH_TO_SOUTH = np.arange(75.0, -76.0, -30.0)
FROM_GREENWICH = np.arange(0.0, 360.0, 45.0)
RANGES = {"t2m": (230, 310), "u10": (-20, 20), "v10": (-20, 20), "msl": (97000, 104000),
          "z": (48000, 58000), "t": (230, 280), "u": (-30, 30), "tp": (0, 0.02)}  # fmt: skip
ORDER = ("time", "step", "level", "number", "latitude", "longitude")


def values(name, shape, seed=0):
    """Random numbers of the range of a variable, float32."""
    low, high = RANGES[name]
    return np.random.default_rng([seed, *map(ord, name)]).uniform(low, high, shape).astype("f4")


def oriented(array, dims, latitude, longitude):
    """An array in the order of this package, rows north to south, columns from Greenwich east."""
    names = [dim for dim in ORDER if dim in dims]
    array = np.asarray(array).transpose([dims.index(dim) for dim in names])
    return array[..., np.argsort(-latitude), :][..., np.argsort(longitude % 360)]


def assert_read(path: Path | str, want: dict[str, np.ndarray], folder: Path, **options):
    """Open a file and prepare it, and compare all variables with the expected arrays."""
    opened = open_source(path)
    assert set(want) <= set(opened.data_vars)
    for name, expected in want.items():
        np.testing.assert_array_equal(opened[name], expected, err_msg=name)
    chosen = {"variables": list(want), **options}
    store = forecasts(ens10.prepare(path, folder / "prepared.zarr", **chosen))
    for name, expected in want.items():
        np.testing.assert_array_equal(store[name], expected, err_msg=name)
    return opened


def layouts_of(dataset: xr.Dataset) -> list[str]:
    """The names of all layouts that match: exactly one has to."""
    return [layout.name for layout in registered_layouts() if layout.matches(dataset)]
