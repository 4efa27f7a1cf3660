"""Predictions that several processes write, each its own part of the grid, and what they read."""

import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr

from ens10.experiments.runs import provenance
from ens10.experiments.runs.bytesread import BytesRead
from ens10.experiments.runs.predictions import PredictionWriter
from ens10.loader import EnsembleDataModule
from ens10.loader.order import Share
from ens10.metrics.distributions import Ensemble, Normal
from ens10.models.postprocessor import Prediction

ROWS, COLUMNS = (0, 4, 6, 8), (0, 6, 16)


def data_of(store, share=None, first=True):
    """A data module in one process of a prediction, and its trainer."""
    settings = {"batch_size": 3, "threads": 0, "predict_split": "val"}
    data = EnsembleDataModule(str(store), "t2m", ["t2m"], **settings)
    strategy = SimpleNamespace(root_device=torch.device("cpu"), barrier=lambda _: None)
    if share is not None:
        strategy.share = lambda _: share
    data.trainer = SimpleNamespace(
        strategy=strategy, global_rank=0, world_size=1, num_devices=1, is_global_zero=first,
        current_epoch=0,
    )  # fmt: skip
    return data


def fields(seconds, seed, *inner):
    """(N, *inner, 8, 16), another field for each date."""
    one = [np.random.default_rng([seed, second]).random((*inner, 8, 16)) for second in seconds]
    return torch.tensor(np.array(one), dtype=torch.float32)


def normal(seconds, rows, columns):
    """A forecast of two fields."""
    return Normal(*(fields(seconds, seed)[..., rows, columns] for seed in (1, 2)))


def members(seconds, rows, columns):
    """A forecast of members."""
    return Ensemble(fields(seconds, 3, 4)[..., rows, columns])


class Weights:
    """A forecast without latitude and longitude."""

    dims = ("time", "number")

    def __init__(self, values):
        self._values = values

    def variables(self):
        return {"shape": self._values}

    def attributes(self):
        return {"forecast_kind": "weights"}

    def core_coordinates(self):
        return {"number": [1, 2, 3]}

    def variable_attributes(self, name, target):
        return {"units": "1", "long_name": name}


def weights(seconds, rows, columns):
    """A forecast of three numbers, which are wrong in all parts but the first."""
    wrong = 0.0 if (rows.start, columns.start) == (0, 0) else 9.0
    return Weights(fields(seconds, 4)[:, 0, :3] + wrong)


def written(path, store, forecast_of, shares):
    """A store that processes with these shares wrote, one after the other."""
    writers = []
    for n, share in enumerate(shares):
        data = data_of(store, share, n == 0)
        writer = PredictionWriter(path, data)
        for number, batch in enumerate(data.predict_dataloader()):
            forecast = forecast_of(batch["dates"].tolist(), data.share.rows, data.share.columns)
            prediction = Prediction(forecast, batch["dates"])
            writer.write_on_batch_end(data.trainer, None, prediction, None, batch, number, 0)
        writers.append((writer, data.trainer))
    for writer, trainer in reversed(writers):
        writer.on_predict_end(trainer, None)
    return path


def parts(ranks=1):
    """The shares of all processes, those of one sample together."""
    return [
        Share(rank, ranks, slice(*rows), slice(*columns), (ROWS, COLUMNS))
        for rank in range(ranks)
        for rows in pairwise(ROWS)
        for columns in pairwise(COLUMNS)
    ]


def metadata(path):
    """What the store says of its arrays and groups, but for their chunks and their manifest."""
    found = {}
    for file in sorted(path.rglob("zarr.json")):
        about = json.loads(file.read_text())
        about.pop("chunk_grid", None)
        about.pop("consolidated_metadata", None)
        if "manifest" not in file.parts:
            found[file.relative_to(path)] = about
    return found


@pytest.mark.parametrize(("forecast_of", "ranks"), [(normal, 1), (members, 2), (weights, 1)])
def test_a_store_written_in_parts_equals_one_written_whole(store, tmp_path, forecast_of, ranks):
    alone = written(tmp_path / "alone.zarr", store, forecast_of, [None])
    together = written(tmp_path / "together.zarr", store, forecast_of, parts(ranks))
    assert metadata(together) == metadata(alone)
    got, want = (xr.open_zarr(path).load() for path in (together, alone))
    assert got.identical(want)
    assert not any(bool(variable.isnull().any()) for variable in want.data_vars.values())
    with xr.open_zarr(together) as opened:
        assert opened["truth"].encoding["chunks"] == (1, 2, 6)
    with xr.open_zarr(alone) as opened:
        assert opened["truth"].encoding["chunks"] == (1, 8, 16)


def test_a_process_writes_its_own_part_and_nothing_else(store, tmp_path):
    shares = parts()
    full = xr.open_zarr(written(tmp_path / "alone.zarr", store, members, [None])).load()
    for others in (0, 3):
        # the first process makes the store; with it alone, all else stays empty
        mine = [shares[0]] if not others else [shares[0], shares[others]]
        got = xr.open_zarr(written(tmp_path / f"{others}.zarr", store, members, mine)).load()
        held = np.zeros((8, 16), bool)
        for share in mine:
            held[share.rows, share.columns] = True
        for name in ("members", "truth"):
            assert np.isnan(got[name].to_numpy()[..., ~held]).all()
            np.testing.assert_array_equal(
                got[name].to_numpy()[..., held], full[name].to_numpy()[..., held]
            )


def test_the_truth_is_read_for_its_own_rows(store, tmp_path, monkeypatch):
    data = data_of(store, parts()[2])
    samples, asked = data.batches("val").samples, set()
    read = samples.read_truth

    def noted(i, out, rows=slice(None)):
        asked.add((rows.start, rows.stop, out.shape))
        return read(i, out, rows)

    monkeypatch.setattr(samples, "read_truth", noted)
    batch = next(iter(data.predict_dataloader()))
    prediction = Prediction(normal(batch["dates"].tolist(), slice(4, 6), slice(0, 6)),
                            batch["dates"])  # fmt: skip
    writer = PredictionWriter(tmp_path / "p.zarr", data)
    writer.write_on_batch_end(data.trainer, None, prediction, None, batch, 0, 0)
    assert asked == {(4, 6, (2, 16))}


@pytest.mark.parametrize("first", [True, False])
def test_bytes_read_by_each_process_of_a_split_run(store, tmp_path, first):
    provenance.write(tmp_path, {"name": "run"})
    data = data_of(store, parts()[3], first)
    list(data.train_dataloader())
    own = data.bytes_read
    data.trainer.world_size, data.trainer.global_rank = 3, 1
    others = torch.tensor([5, 0, 7])
    data.trainer.strategy.reduce = lambda mine, reduce_op: {"sum": mine + others}[reduce_op]
    BytesRead(tmp_path, data).on_train_end(data.trainer, None)
    noted = {"bytes_read": [5, own, 7]} if first else {}
    assert provenance.read_provenance(tmp_path) == {"name": "run"} | noted
    assert own == 12 * 3 * 2 * 16 * 4  # dates; mean, deviation and truth; rows, columns, float32


def test_a_run_that_is_not_split_notes_no_bytes(store, tmp_path):
    data = data_of(store)
    BytesRead(tmp_path, data).on_train_end(data.trainer, None)
    assert not any(tmp_path.iterdir())
