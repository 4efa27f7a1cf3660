"""Indices of extremes relative to the model climate (EFI, SOT, CPF), and the EFI-weighted CRPS."""

from ens10.metrics.extremes.efi_weighted_crps import (
    EECRPSNormalisation,
    FrozenEFI,
    Origin,
    eecrps,
    eecrps_state,
    finish_eecrps,
    frozen_efi,
    origin,
)
from ens10.metrics.extremes.indices import EFIMethod, cpf, efi, sot

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
