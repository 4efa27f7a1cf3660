"""`prepare` builds a store from files; `verify` compares a store with its checksums and files."""

from ens10.convert.moments import ensemble_moments
from ens10.convert.preparation import prepare
from ens10.convert.verification import Verification, verify
from ens10.source.gribs import Missing

__all__ = ["Missing", "Verification", "ensemble_moments", "prepare", "verify"]
