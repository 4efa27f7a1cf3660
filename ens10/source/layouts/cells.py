"""Fields over one dimension of cells, as fields over rows and columns, if the cells are a grid."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError


def with_rows_and_columns(
    dataset: xr.Dataset, cell: str, latitude: str, longitude: str
) -> xr.Dataset:
    """Return a dataset over `latitude` and `longitude` in place of its dimension of cells, lazily.

    Args:
        dataset: fields and the coordinates of the cells over `cell`.
        cell: the dimension.
        latitude: variable with the latitude of each cell, degrees.
        longitude: likewise.

    Raises:
        ArgumentError: the cells are not the points of rows and columns; the message names the grid.
    """
    lat, lon = (dataset[name].to_numpy().ravel() for name in (latitude, longitude))
    columns = int(np.argmax(lat != lat[0])) or lat.size  # cells of the first row
    rows = lat.size // columns
    is_grid = lat.size == rows * columns and (
        np.array_equal(lat, np.repeat(lat[::columns], columns))
        and np.array_equal(lon, np.tile(lon[:columns], rows))
    )
    if not is_grid:
        remedy = "Interpolate them to the rows and columns of a latitude-longitude grid"
        raise ArgumentError("grid", f"the fields lie on {_grid_name(lat)}", remedy)
    sizes = {"latitude": rows, "longitude": columns}
    fields = dataset.drop_vars([latitude, longitude])
    variables = {
        name: field.unstack({cell: sizes}) if cell in field.dims else field
        for name, field in fields.variables.items()
    }
    coords = {"latitude": lat[::columns], "longitude": lon[:columns]}
    return xr.Dataset(variables, coords, dataset.attrs)


def _grid_name(lat: npt.NDArray[np.floating]) -> str:
    """Return the name of a grid that has no columns, by the number of cells in each row."""
    rows = np.unique(lat, return_counts=True)[1]
    half = rows.size // 2
    if rows.size % 2 or not np.array_equal(rows, rows[::-1]) or half < 2:
        return f"{lat.size} cells that are no rows and columns"
    if np.array_equal(rows[:half], 20 + 4 * np.arange(half)):
        return f"the octahedral reduced Gaussian grid O{half}"
    return f"the reduced Gaussian grid N{half}"
