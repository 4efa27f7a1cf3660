"""`inspect_path`: what a GRIB file, netCDF file, folder or store holds, and whether it is whole."""

from ens10.inspection.paths import inspect_path
from ens10.inspection.rows import Row

__all__ = ["Row", "inspect_path"]
