"""A store, or a part of it, as one netCDF or GRIB file: `export`."""

import sys
from types import ModuleType

from ens10.export.api import export

__all__ = ["export"]


class _CallableModule(ModuleType):
    """Python puts this module in the place of the function `ens10.export` when it is imported."""

    __call__ = staticmethod(export)


sys.modules[__name__].__class__ = _CallableModule
