"""A store, or a part of it, as one netCDF or GRIB file: `export`."""

import sys
from types import ModuleType

from ens10.export.api import export

__all__ = ["export"]


class _CallableModule(ModuleType):
    """A callable module: importing it replaces the function `ens10.export` by the module."""

    __call__ = staticmethod(export)


sys.modules[__name__].__class__ = _CallableModule
