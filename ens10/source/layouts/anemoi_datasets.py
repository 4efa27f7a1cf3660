"""Datasets of anemoi-datasets: `data` over (time, variable, ensemble, [step,] cell) in Zarr.

Source: https://github.com/ecmwf/anemoi-datasets, create/gridded (`variables_metadata`: units,
process, period), docs/layouts/trajectories.rst (`step`). Dates are valid times, or starts of steps.
"""

import re
from typing import Any

import xarray as xr

from ens10.source.layouts.cells import with_rows_and_columns
from ens10.source.layouts.registry import Layout, register


def _attributes(metadata: dict[str, Any]) -> dict[str, str]:
    attributes = {"units": metadata["units"]} if metadata.get("units") else {}
    if metadata.get("process") == "accumulation":
        first, last = (float(re.sub("[^0-9.]", "", str(end))) for end in metadata["period"])
        attributes["accumulation"] = f"{last - first:g} h"
    return attributes


def _by_name(dataset: xr.Dataset) -> xr.Dataset:
    coords = {"time": dataset["base_dates" if "base_dates" in dataset else "dates"].to_numpy()}
    coords |= {"step": dataset["steps"].to_numpy()} if "steps" in dataset else {}
    cells = dataset[["data", "latitudes", "longitudes"]].chunk(time=1).assign_coords(coords)
    data = with_rows_and_columns(cells, "cell", "latitudes", "longitudes")["data"]
    known, names = dataset.attrs.get("variables_metadata", {}), dataset.attrs["variables"]
    attributes = [_attributes(known.get(name, {})) for name in names]
    fields = [data.isel(variable=n).assign_attrs(a) for n, a in enumerate(attributes)]
    return xr.Dataset(dict(zip(names, fields, strict=True)))


register(Layout(
    name="anemoi-datasets", source="https://anemoi.readthedocs.io/projects/datasets",
    special="one array of all variables and cells of a regular grid; other grids are refused",
    matches=lambda d: "data" in d and {"time", "variable", "ensemble", "cell"} <= {*d["data"].dims},
    names={"ensemble": "number"}, reshape=_by_name,
))  # fmt: skip
