"""`inspect_path`: contents and damage of a GRIB file, netCDF file, folder or store."""

from ens10.inspection.paths import inspect_path
from ens10.inspection.rows import Row

__all__ = ["Row", "inspect_path"]
