"""From a store, or any lazy dataset, to batches. `Batches` needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ens10.loader.batch import Batch
from ens10.loader.batches import Batches

if TYPE_CHECKING:
    from ens10.loader.datamodule import EnsembleDataModule

__all__ = ["Batch", "Batches", "EnsembleDataModule"]


def __getattr__(name: str) -> Any:
    if name != "EnsembleDataModule":
        raise AttributeError(f"module 'ens10.loader' has no attribute {name!r}")
    return import_module("ens10.loader.datamodule").EnsembleDataModule
