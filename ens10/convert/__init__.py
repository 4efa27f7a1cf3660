"""Files to a store, whatever happens on the way: `prepare`, and `verify` to make sure."""

from ens10.convert.moments import ensemble_moments
from ens10.convert.preparing import prepare
from ens10.convert.sources import Missing
from ens10.convert.verifying import Verification, verify

__all__ = ["Missing", "Verification", "ensemble_moments", "prepare", "verify"]
