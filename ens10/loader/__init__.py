"""Batches from a store or any lazy dataset. `Batches` does not need torch.

Examples:
    >>> from ens10.loader import Batches
    >>> batches = Batches("store.zarr", "t2m", inputs=["t2m", "u10"], batch_size=4)
    >>> batches.channels
    ('t2m:mean', 'u10:mean', 't2m:std', 'u10:std')
    >>> [batch["features"].shape for batch in batches]  # nine training dates of 8 x 16 points
    [(4, 4, 8, 16), (4, 4, 8, 16), (1, 4, 8, 16)]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ens10.extras import telling_extras
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Fields, Kind, Patches, Points, Slabs, Views
from ens10.loader.batches import Batches

if TYPE_CHECKING:
    from ens10.loader.datamodule import EnsembleDataModule
    from ens10.loader.tensors import SampleDataset, as_tensors

RESULT_VERSION = 1  # raise it when results change
__all__ = [
    "Batch", "Batches", "EnsembleDataModule", "Fields", "Kind", "Patches", "Points",
    "SampleDataset", "Slabs", "Views", "as_tensors",
]  # fmt: skip
_WITH_TORCH = {
    "EnsembleDataModule": "datamodule", "SampleDataset": "tensors", "as_tensors": "tensors"
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'ens10.loader' has no attribute {name!r}")
    with telling_extras(f"ens10.loader.{name}"):
        return getattr(import_module(f"ens10.loader.{_WITH_TORCH[name]}"), name)
