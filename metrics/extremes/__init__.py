"""How extreme a forecast is for its place and season, and scores that look there."""

from ens10.metrics.extremes.cpf import cpf
from ens10.metrics.extremes.eecrps import (
    EECRPSNormalisation,
    eecrps,
    eecrps_state,
    finish_eecrps,
)
from ens10.metrics.extremes.efi import EFIMethod, efi
from ens10.metrics.extremes.frozen import FrozenEFI, Origin, frozen_efi, origin
from ens10.metrics.extremes.sot import sot

__all__ = [
    "EECRPSNormalisation",
    "EFIMethod",
    "FrozenEFI",
    "Origin",
    "cpf",
    "eecrps",
    "eecrps_state",
    "efi",
    "finish_eecrps",
    "frozen_efi",
    "origin",
    "sot",
]
