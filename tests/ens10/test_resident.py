"""Dates that stay in memory: the batches are those that are read, and nothing is read twice."""

import pytest
import pytorch_lightning as pl
import torch

from ens10.errors import ArgumentError, ResourceError
from ens10.loader import Batches, EnsembleDataModule, resident
from ens10.loader.content import EXTRA_NAMES
from ens10.loader.resident import ResidentBatches, resident_batches, resident_size
from ens10.loader.tensors import TorchBatches
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP

CPU = torch.device("cpu")
INPUTS = ["t2m", "sst", "u10@24"]
EXTRAS = ["day_of_year", "location"]
SETTINGS = {
    "moments": {"inputs": INPUTS, "batch_size": 2},
    "extras": {"inputs": INPUTS, "extras": EXTRAS, "batch_size": 4},
    "members": {"inputs": INPUTS, "kind": "members", "extras": ["location"], "members": True},
    "targets": {"target": ["t2m", "z500"], "inputs": ["t2m", "u10"], "extras": EXTRAS},
    "ranks": {"inputs": INPUTS, "rank": 1, "world": 2, "even": "pad", "batch_size": 3},
    "rows": {"inputs": INPUTS, "kind": "slabs", "extras": EXTRAS, "threads": 2},
}


def batches_of(store, split="train", **settings):
    return Batches(store, settings.pop("target", "t2m"), split=split, **settings)


def epoch(loader, number):
    loader.batches.set_epoch(number)
    return [{key: values.cpu().numpy().tobytes() for key, values in b.items()} for b in loader]


@pytest.mark.parametrize("device", [CPU, pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize("name", SETTINGS)
def test_batches_are_those_that_are_read(store, name, place, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    device = torch.device(device, 0) if device == "cuda" else device
    kept = batches_of(store, **SETTINGS[name])
    loader = ResidentBatches(kept, None, device if place == "device" else CPU, device)
    read = TorchBatches(batches_of(store, **SETTINGS[name]), None)
    for number in range(3):
        assert epoch(loader, number) == epoch(read, number)
    counted = kept.bytes_read
    assert epoch(loader, 0) == epoch(read, 0)
    assert kept.bytes_read == counted > 0
    assert {str(b["features"].device) for b in loader} == {str(device)}


@pytest.mark.parametrize("name", ["extras", "members", "targets"])
def test_features_that_are_kept_in_bfloat16_are_rounded_and_nothing_else_is(store, name):
    kept = batches_of(store, **SETTINGS[name])
    loader = ResidentBatches(kept, None, CPU, CPU, half=True)
    read = TorchBatches(batches_of(store, **SETTINGS[name]), None)
    extras = sum(len(EXTRA_NAMES[extra]) for extra in kept.extras)
    for number in range(2):
        for one in (loader, read):
            one.batches.set_epoch(number)
        for ours, theirs in zip(loader, read, strict=True):
            channels = ours["features"].shape[-3] - extras
            wanted = theirs["features"].clone()
            head = wanted[..., :channels, :, :]
            head.copy_(head.bfloat16())
            assert torch.equal(ours["features"], wanted)
            assert ours["features"].dtype == torch.float32
            assert all(torch.equal(ours[key], theirs[key]) for key in theirs if key != "features")


def test_features_in_bfloat16_take_half(store):
    batches = batches_of(store, inputs=INPUTS, extras=EXTRAS)
    points = len(batches.samples.latitude) * len(batches.samples.longitude)
    saved = resident_size(batches) - resident_size(batches, half=True)
    # mean and deviation of three inputs, and the mask of sst, of each date
    assert saved == pytest.approx(len(batches.index) * 7 * 2 * points, rel=0.01)


def test_a_rank_without_dates_repeats_one_of_another(store):
    settings = {"inputs": INPUTS, "rank": 19, "world": 20, "even": "pad"}
    loader = ResidentBatches(batches_of(store, **settings), None, CPU, CPU)
    read = TorchBatches(batches_of(store, **settings), None)
    for number in range(2):
        batches = epoch(loader, number)
        assert batches == epoch(read, number)
        assert not any(batches[0]["weights"])  # bytes


def test_an_epoch_that_is_resumed_reads_what_is_left(store):
    first, second = (
        ResidentBatches(batches_of(store, inputs=INPUTS), None, CPU, CPU) for _ in range(2)
    )
    want = epoch(first, 2)
    second.load_state_dict({**first.state_dict(), "epoch": 2, "batches": 5})
    assert epoch(second, 2) == want[5:]
    assert epoch(second, 3) == epoch(first, 3)


def test_constant_fields_count_once(store):
    plain, with_extras = (
        batches_of(store, inputs=["t2m"], extras=extras) for extras in ([], EXTRAS)
    )
    assert resident_size(with_extras) == resident_size(plain)
    height, width = len(plain.samples.latitude), len(plain.samples.longitude)
    arrays = len(plain.index) * 4 * height * width * (2 + 4)
    assert arrays <= resident_size(plain) < 1.1 * arrays


def test_where_dates_stay(store, monkeypatch):
    batches = batches_of(store, inputs=INPUTS)
    size = resident_size(batches)
    free = {"host": 4 * size, "gpu": 2 * size}
    monkeypatch.setattr(resident, "free_memory", lambda: free["host"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free["gpu"], 0))
    gpu = torch.device("cuda", 0)

    def place(device, asked="auto", processes=1):
        found = resident_batches(batches, None, device, asked, processes)
        return found and found.place.type

    assert (place(gpu), place(CPU), place(gpu, False)) == ("cuda", "cpu", None)
    assert (place(CPU, processes=2), place(gpu, processes=2)) == (None, "cuda")
    free["gpu"] -= 1
    assert (place(gpu), place(gpu, True)) == ("cpu", "cpu")
    free["host"] -= 1
    assert (place(gpu), place(CPU)) == (None, None)
    with pytest.raises(ResourceError, match=r"more than a quarter of what is free.*data\.resident"):
        place(CPU, True)


def test_patches_are_not_kept(store):
    batches = batches_of(store, kind="points")
    assert resident_batches(batches, None, CPU, "auto") is None
    for asked in (True, "bfloat16"):
        with pytest.raises(ArgumentError, match="anew in each epoch"):
            resident_batches(batches, None, CPU, asked)


def test_free_memory_is_that_of_the_group(tmp_path, monkeypatch):
    monkeypatch.setattr(resident, "_GROUP", tmp_path)
    whole = resident.free_memory()
    assert whole > 0
    for limit, used, free in (("5000", "3000", 2000), ("max", "3000", None)):
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(used)
        assert (resident.free_memory() == free) == (free is not None)


def trained(store, tmp_path, **options):
    pl.seed_everything(1)
    data = EnsembleDataModule(store, "t2m", ["t2m", "u10"], batch_size=2, **options)
    network = MLP(len(data.channels), 8)
    model = PostProcessor(network, ResidualNormalHead())
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", default_root_dir=tmp_path, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, data)
    return data, {key: values.numpy().tobytes() for key, values in model.state_dict().items()}


def test_a_training_gives_the_same_weights(store, tmp_path):
    kept, weights = trained(store, tmp_path)
    read, wanted = trained(store, tmp_path, resident=False)
    assert weights == wanted
    splits = [kept.batches(split) for split in ("train", "val")]
    arrays = sum(len(batches.index) for batches in splits)
    assert 2 * kept.bytes_read < read.bytes_read
    assert arrays > 0
    with pytest.raises(ArgumentError, match="Give one of the two"):
        trained(store, tmp_path, resident=True, cache=0.5)
    rounded, other = trained(store, tmp_path, resident="bfloat16")
    assert rounded.bytes_read == kept.bytes_read
    assert other != weights
