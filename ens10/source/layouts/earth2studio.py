"""Output of Earth2Studio (ZarrBackend, NetCDF4Backend): `ensemble`, `lead_time`, no attributes.

Source: https://github.com/NVIDIA/earth2studio, run.py (dimensions and their order), io/zarr.py,
io/netcdf4.py, lexicon/base.py (E2STUDIO_VOCAB: names and units). In this vocabulary a number behind
a name is hPa (`u100`), heights end with m (`u100m`), and `z` is the geopotential at the surface.
"""

import xarray as xr

from ens10.catalog import names_of_kind
from ens10.source.layouts.registry import Layout, register

_HPA = (50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000)
_NAMES = {
    "ensemble": "number", "lead_time": "step", "u10m": "u10", "v10m": "v10", "ws10m": "si10",
    "z": "surface_geopotential", "tp06": "tp",
    **{f"{name}{hpa}": f"{name}_{hpa}" for name in names_of_kind("pl") for hpa in _HPA},
}  # fmt: skip


def _matches(dataset: xr.Dataset) -> bool:
    dims = set(dataset.dims)
    return {"time", "lead_time", "lat", "lon"} <= dims and "ensemble_member" not in dims


register(
    Layout(
        name="Earth2Studio", source="https://github.com/NVIDIA/earth2studio (io, lexicon)",
        special="ensemble, lead_time; levels in names (z500); no units",
        matches=_matches, names=_NAMES, accumulation={"tp06": "6 h"},
    )
)  # fmt: skip
