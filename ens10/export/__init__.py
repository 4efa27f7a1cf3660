"""A store, or a part of it, as one netCDF or GRIB file: `export`."""

from ens10.export.api import export

__all__ = ["export"]
