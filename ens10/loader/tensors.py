"""`Batches` for torch: as tensors, in pinned memory, or as a dataset for torch's own loader."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Points
from ens10.loader.batches import Batches
from ens10.loader.buffers import Block

if TYPE_CHECKING:
    import pytorch_lightning as pl


class TorchBatches:
    """`Batches` as torch tensors, in the order of the trainer's epoch.

    Lightning saves its `state_dict` with every checkpoint, so that a run resumed in mid-epoch
    continues with the batch after the last one that it trained on.

    Args:
        batches: numpy batches.
        trainer: its `current_epoch` sets the order; None for the epoch of `batches`.
        pinned: True for batches in pinned memory, for asynchronous copies to a GPU.
        free_buffers: True to free the buffers after each iteration.
    """

    def __init__(
        self, batches: Batches, trainer: "pl.Trainer | None", pinned: bool = False,
        free_buffers: bool = False,
    ) -> None:  # fmt: skip
        self.batches, self.pinned = batches, pinned
        self._trainer, self._free_buffers = trainer, free_buffers
        if pinned:
            batches.allocate = pinned_memory

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self._set_epoch()
        tensors = (as_tensors(batch) for batch in self.batches)
        yield from _hold_until_copied(tensors) if self.pinned else tensors
        if self._free_buffers:
            self.batches.free()

    def _set_epoch(self) -> None:
        # the trainer sets its epoch only shortly before it requests the first batch
        if self._trainer:
            self.batches.set_epoch(self._trainer.current_epoch)

    def state_dict(self) -> dict[str, int]:
        """Return the position in the epoch, in batches yielded."""
        return self.batches.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Resume in mid-epoch at a saved position."""
        self.batches.load_state_dict(state_dict)


class SampleDataset(Dataset[Batch]):
    """The dates of `Batches` one by one, for `torch.utils.data.DataLoader`.

    Elements are in the order of time (`DataLoader` may shuffle them); the patches of a date are
    adjacent. `Batches` itself is faster: worker processes copy each sample twice.

    Args:
        batches: numpy batches of any kind but points.

    Raises:
        ArgumentError: batches of points, whose elements are no dates.
    """

    def __init__(self, batches: Batches) -> None:
        if isinstance(batches.kind, Points):
            reason = "points have no elements that can be read one by one"
            raise ArgumentError("kind", reason, "Iterate over Batches")
        self.batches = batches
        batches.content  # noqa: B018  # the statistics are read here, not in every worker

    def __len__(self) -> int:
        return len(self.batches.index) * self.batches.kind.per_date

    def __getitem__(self, n: int) -> Batch:
        if not 0 <= n < len(self):
            raise IndexError(n)
        date, place = divmod(n, self.batches.kind.per_date)
        batch = self.batches.batch(self.batches.index[date : date + 1])
        arrays = cast("dict[str, npt.NDArray[Any]]", batch)
        element = {key: torch.from_numpy(np.array(values[place])) for key, values in arrays.items()}
        return cast("Batch", element)


def as_tensors(batch: Batch) -> Batch:
    """Return the batch as torch tensors that share the memory of its arrays."""
    arrays = cast("dict[str, npt.NDArray[Any]]", batch)
    return cast("Batch", {key: torch.from_numpy(value) for key, value in arrays.items()})


def pinned_memory(size: int) -> Block:
    """Allocate page-locked memory, from which a GPU copies asynchronously."""
    block: Block = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
    return block


def _hold_until_copied(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, holding a reference to each until the GPU has copied it.

    A copy from pinned memory is asynchronous, and the caller may drop the batch at once. Its buffer
    must not be filled again before the CUDA stream has completed the copy.
    """
    previous: tuple[torch.cuda.Event, Batch] | None = None
    for batch in batches:
        yield batch
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        if previous is not None:
            previous[0].synchronize()
        previous = event, batch
    if previous is not None:
        previous[0].synchronize()
