"""Dates that stay in memory after their first reading: on the GPU, in pinned memory, or on the CPU.

Later epochs put their batches together from what is kept, where the model is: nothing is read,
decoded or sent, or (from pinned memory) sent alone. Numbers are those that were read, in float32,
so that a training gives the same results wherever its data lie. Features that are kept in bfloat16
take half the memory, and are rounded to 8 bits.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch

from ens10.errors import ArgumentError, ResourceError
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Fields, Job
from ens10.loader.batches import Batches
from ens10.loader.buffers import BufferLayout
from ens10.loader.content import EXTRA_NAMES, STATIC, Arrays
from ens10.loader.tensors import TorchBatches, as_tensors

if TYPE_CHECKING:
    import pytorch_lightning as pl

Resident = Literal["auto", "bfloat16"] | bool
_SHARE_OF_GPU = 0.5  # the rest is for the model and its activations
_SHARE_OF_HOST = 0.25
_GROUP = Path("/sys/fs/cgroup")  # limits of a container or of a job


def resident_batches(
    batches: Batches, trainer: "pl.Trainer | None", device: torch.device, resident: Resident,
    processes: int = 1,
) -> TorchBatches | None:  # fmt: skip
    """Return batches whose dates stay in memory, or None where they are to be read each time.

    Args:
        batches: numpy batches.
        trainer: its `current_epoch` sets the order; None for the epoch of `batches`.
        device: where the model is.
        resident: False to read each time. "auto" keeps dates on a GPU if they take at most half of
            its free memory, else (and without a GPU) in the memory of this machine if they take at
            most a quarter of what is free. True asks for it, and "bfloat16" for features that are
            kept in this precision.
        processes: of this training on this machine, which share its memory.

    Raises:
        ArgumentError: asked for with batches of patches, points or views, which differ in each
            epoch.
        ResourceError: asked for, and the dates fit nowhere.
    """
    if resident is False:
        return None
    is_required, half = resident != "auto", resident == "bfloat16"
    if not isinstance(batches.kind, Fields):
        if is_required:
            reason = "patches, points and views are made anew in each epoch, and cannot be kept"
            raise ArgumentError("resident", reason, "Leave it out, or train on fields")
        return None
    size = resident_size(batches, half)
    on_gpu = device.type == "cuda"
    if on_gpu and size <= _SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]:
        return ResidentBatches(batches, trainer, device, device, half)
    if size <= _SHARE_OF_HOST * free_memory() / processes:
        return ResidentBatches(batches, trainer, torch.device("cpu"), device, half)
    if is_required:
        words = (
            f"the dates of a split take {size / 1e9:.1f} GB in each of {processes} processes, "
            "together more than a quarter of what is free"
        )
        less = "auto or false" if half else "auto, false or bfloat16"
        remedy = f"Set data.resident to {less}, choose fewer inputs, or split the samples"
        raise ResourceError(words, remedy)
    return None


def resident_size(batches: Batches, half: bool = False) -> int:
    """Return the bytes that the dates of a split take; fields that are constant count once.

    Args:
        batches: numpy batches.
        half: whether features are kept in two bytes.
    """
    return BufferLayout(_kept_arrays(batches, half)).size


def _kept_arrays(batches: Batches, half: bool) -> dict[str, Any]:
    """Return shapes and dtypes of what is kept; float16 stands for bfloat16."""
    head = len(batches.channels) - len(_extra_names(batches))
    arrays = batches.kind.arrays(batches.content, len(batches.index))
    shape, dtype = arrays["features"]
    kept = (*shape[:-3], head, *shape[-2:]), np.float16 if half else dtype
    return arrays | {"features": kept}


def free_memory() -> int:
    """Return the bytes of this machine, and of the group of this process, that are free."""
    pages = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
    free = pages * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = ((_GROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):  # no group, or "max"
        return int(free)


class ResidentBatches(TorchBatches):
    """`TorchBatches` whose dates are read once, each when it is first needed.

    Args:
        batches: numpy batches of fields.
        trainer: its `current_epoch` sets the order; None for the epoch of `batches`.
        place: where the dates stay: a GPU, or the CPU, in pinned memory if the model is on a GPU.
        device: where the model is, and the batches are made.
        half: whether features are kept in bfloat16.
    """

    def __init__(
        self, batches: Batches, trainer: "pl.Trainer | None", place: torch.device,
        device: torch.device, half: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(batches, trainer, pinned=device.type == "cuda")
        self.place, self.device, self.half = place, device, half
        self._dates: _Dates | None = None

    def __iter__(self) -> Iterator[Batch]:
        self._set_epoch()
        if self._dates is None:
            self._dates = _Dates(self.batches, self.place, self.device, self.half)
        dates = self._dates
        progress, jobs, _ = self.batches.begin()
        unread = [job for job in jobs if not dates.hold(job)]
        with closing(self.batches.read(unread)) as buffers:
            numbers = {job.number for job in unread}
            for job in jobs:
                is_read = job.number in numbers
                batch = self._read(job, buffers, dates) if is_read else dates.batch(job)
                progress.batches += 1
                yield batch
        if not unread:
            self.batches.free()

    def _read(self, job: Job, buffers: Iterator[tuple[Job, Arrays]], dates: "_Dates") -> Batch:
        _, arrays = next(buffers)
        views = {key: values[: len(job.dates)] for key, values in arrays.items()}
        batch = as_tensors(cast("Batch", views))
        dates.keep(job, batch)
        # a repeated date has no weights, so that it is not kept
        return dates.batch(job) if dates.hold(job) else _on(batch, self.device)


def _on(batch: Batch, device: torch.device) -> Batch:
    """Return a copy of a batch on a device, complete before its memory is filled again."""
    tensors = cast("dict[str, torch.Tensor]", batch)
    return cast("Batch", {key: values.to(device, copy=True) for key, values in tensors.items()})


class _Dates:
    """The arrays of all dates of a split, as far as they have been read."""

    def __init__(
        self, batches: Batches, place: torch.device, device: torch.device, half: bool
    ) -> None:
        self._device = device
        self._rows = {date: row for row, date in enumerate(batches.index.tolist())}
        self._held = np.zeros(len(self._rows), np.bool_)
        self._extras = _extra_names(batches)
        self._head = len(batches.channels) - len(self._extras)
        static = {name for extra in STATIC for name in EXTRA_NAMES[extra]}
        self._static: dict[int, torch.Tensor | None] = {
            self._head + n: None for n, name in enumerate(self._extras) if name in static
        }
        self._numbers = np.empty((len(self._rows), len(batches.channels)), np.float32)
        arrays = _kept_arrays(batches, half)
        shape, _ = arrays["features"]
        self._shape = (*shape[1:-3], len(batches.channels), *shape[-2:])
        pinned = device.type == "cuda" and place.type == "cpu"
        self._kept = {
            key: torch.empty(shape, dtype=_DTYPES[np.dtype(dtype)], device=place, pin_memory=pinned)
            for key, (shape, dtype) in arrays.items()
        }
        self._stream: Any = None
        if place.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        if self._stream is not None:  # what the memory was used for before must have ended
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def hold(self, job: Job) -> bool:
        """Return True if all dates of a job are here."""
        return bool(self._held[self._places(job)].all())

    def _places(self, job: Job) -> list[int]:
        return [self._rows[date] for date in job.dates.tolist()]

    def keep(self, job: Job, batch: Batch) -> None:
        """Copy the dates of a batch, which may be overwritten afterwards."""
        tensors = cast("dict[str, torch.Tensor]", batch)
        features = tensors["features"]
        for channel, values in self._static.items():
            if values is None:
                first = features[(0,) * (features.ndim - 3)][channel]
                self._static[channel] = first.to(self._device, copy=True)
        with torch.cuda.stream(self._stream):  # beside the computation; None: does nothing
            for n, row in enumerate(self._places(job)):
                if job.is_repeat[n]:
                    continue  # without its weights
                corner = features[n][..., 0, 0].reshape(-1, features.shape[-3])
                self._numbers[row] = corner[0].numpy()
                for key, kept in self._kept.items():
                    values = tensors[key][n]
                    values = values[..., : self._head, :, :] if key == "features" else values
                    kept[row].copy_(values, non_blocking=True)
                self._held[row] = True
        if self._stream is not None:
            self._stream.synchronize()  # the buffer is filled again

    def batch(self, job: Job) -> Batch:
        """Return the batch of a job, in memory of its own."""
        rows = self._places(job)
        batch = {key: self._together(kept, rows) for key, kept in self._kept.items()}
        batch["features"] = batch["features"].float()
        if self._extras:
            batch["features"] = self._with_extras(batch["features"], rows)
        for n in np.flatnonzero(job.is_repeat).tolist():
            batch["weights"][n] = 0
        return cast("Batch", batch)

    def _together(self, kept: torch.Tensor, rows: list[int]) -> torch.Tensor:
        if kept.device == self._device:
            return torch.stack([kept[row] for row in rows])
        out = kept.new_empty((len(rows), *kept.shape[1:]), device=self._device, pin_memory=False)
        for n, row in enumerate(rows):
            out[n].copy_(kept[row], non_blocking=True)
        return out

    def _with_extras(self, head: torch.Tensor, rows: list[int]) -> torch.Tensor:
        out = head.new_empty((len(rows), *self._shape))
        out[..., : self._head, :, :] = head
        for channel in range(self._head, self._shape[-3]):
            static = self._static.get(channel)
            if static is not None:
                out[..., channel, :, :] = static
                continue
            for n, row in enumerate(rows):  # one number on the whole grid
                out[n, ..., channel, :, :].fill_(float(self._numbers[row, channel]))
        return out


_DTYPES = {
    np.dtype(np.float16): torch.bfloat16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.int64): torch.int64,
}


def _extra_names(batches: Batches) -> list[str]:
    return [name for extra in batches.extras for name in EXTRA_NAMES[extra]]
