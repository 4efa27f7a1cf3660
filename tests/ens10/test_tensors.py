"""Batches for torch: tensors that share memory, and torch's own loader over the same dates."""

import gc
import pickle

import numpy as np
import pytest
import torch
from batchtools import copied, lazy, readers, whole
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.loader import Batches, Patches, Points, SampleDataset
from ens10.loader.tensors import TorchBatches, as_tensors

INPUTS = ["t2m", "sst", "u10@24"]


def numpy_of(tensors):
    return {key: value.numpy().tobytes() for key, value in tensors.items()}


@pytest.mark.parametrize(
    ("workers", "start"),
    [(0, None), (2, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator:UserWarning")
def test_torchs_loader_gives_the_same_batches(store, workers, start):
    settings = {"members": True, "extras": ["location"], "shuffle": False, "batch_size": 3}
    batches = Batches(store, "t2m", INPUTS, "train", **settings)
    want = copied(batches)
    loader = DataLoader(SampleDataset(batches), batch_size=3, num_workers=workers,
                        multiprocessing_context=start)  # fmt: skip
    assert [numpy_of(tensors) for tensors in loader] == want


def test_torchs_loader_over_patches(store):
    batches = Batches(store, "t2m", INPUTS, kind=Patches((3, 4), 2), shuffle=False)
    want = copied(batches)
    loader = DataLoader(SampleDataset(batches), batch_size=2)
    assert [numpy_of(tensors) for tensors in loader] == want
    dataset = SampleDataset(batches)
    assert len(dataset) == 2 * len(batches.index)
    for n in (-1, len(dataset)):
        with pytest.raises(IndexError):
            dataset[n]
    with pytest.raises(ArgumentError, match="Iterate over Batches"):
        SampleDataset(Batches(store, "t2m", INPUTS, kind="points"))


@pytest.mark.parametrize("cache", [None, 0.5])
def test_batches_can_be_pickled(store, tiny, cache):
    data, truth = lazy(tiny)
    for source in ({"data": store}, {"data": data.load(), "truth": truth.load()}):
        settings = {"inputs": INPUTS, "target": "t2m", "kind": Points(size=90), "cache": cache}
        batches = Batches(**source, **settings)
        want = copied(batches)
        again = pickle.loads(pickle.dumps(batches))
        assert again.normaliser.channels == batches.normaliser.channels
        again.set_epoch(0)
        assert copied(again) == want


def test_a_tensor_keeps_its_buffer(store):
    want = whole(Batches(store, "t2m", INPUTS))["features"]
    kept = [b["features"][0, 1] for b in TorchBatches(Batches(store, "t2m", INPUTS, ring=1), None)]
    gc.collect()
    for got, field in zip(kept, want, strict=True):
        np.testing.assert_array_equal(got.numpy(), field[1])
    assert not readers()


def test_buffers_are_let_go_of_after_an_evaluation(store):
    made = []

    def allocate(size):
        made.append(size)
        return np.empty(size, np.uint8)

    batches = Batches(store, "t2m", INPUTS, "test", allocate=allocate, ring=2)
    for loader, total in (
        (TorchBatches(batches, None), 2),
        (TorchBatches(batches, None, free_buffers=True), 2),
        (TorchBatches(batches, None), 4),
    ):
        for batch in loader:
            del batch
        assert len(made) == total


def test_pinned_memory_is_asked_for_where_a_gpu_is_used(store, monkeypatch):
    """Without a GPU: the order of copies and waits, with events that count."""
    log = []

    class Event:
        def record(self):
            log.append(("record", self))

        def synchronize(self):
            log.append(("wait", self))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr("ens10.loader.tensors.pinned_memory", lambda size: np.empty(size, np.uint8))
    batches = Batches(store, "t2m", INPUTS, "test", ring=2)
    want = copied(batches)
    got = []
    for tensors in TorchBatches(batches, None, pinned=True):
        got.append(numpy_of(tensors))
    assert got == want
    recorded = [event for what, event in log if what == "record"]
    waited = [event for what, event in log if what == "wait"]
    assert recorded == waited
    assert len(recorded) == len(want)
    assert [what for what, _ in log[:3]] == ["record", "record", "wait"]  # one copy in flight


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_copies_to_a_gpu_have_the_values(store):
    settings = {"ring": 2, "threads": 2, "batch_size": 2}
    want = whole(Batches(store, "t2m", INPUTS, **settings))["features"]
    for _ in range(5):
        loader = TorchBatches(Batches(store, "t2m", INPUTS, **settings), None, pinned=True)
        got = [b["features"].to("cuda", non_blocking=True) for b in loader]
        np.testing.assert_array_equal(torch.cat(got).cpu().numpy(), want)
        assert as_tensors(next(iter(loader.batches)))["features"].is_pinned()
