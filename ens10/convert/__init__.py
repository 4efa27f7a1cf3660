"""Files to a store, whatever happens on the way: `prepare`, and `verify` to make sure."""

from ens10.convert.moments import ensemble_moments
from ens10.convert.preparing import prepare
from ens10.convert.sources import Missing

__all__ = ["Missing", "ensemble_moments", "prepare"]
