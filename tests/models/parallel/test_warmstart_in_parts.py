"""A statistical method within a model is solved on whole fields, whatever part a process reads."""

from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import xarray as xr
from ranks import shard

from ens10.errors import ArgumentError
from ens10.loader import EnsembleDataModule
from ens10.loader.order import Share
from ens10.models.domain import current, use
from ens10.models.statistical import EMOS
from ens10.models.warmstart import solve_methods

GRID = (9, 12)
UNITS = {"units": "K"}


def lazy():
    """Forecasts and truth of 12 dates over 6 years, made in memory."""
    rng = np.random.default_rng(0)
    times = np.array([f"{year}-{month}-01" for year in range(2000, 2006) for month in ("01", "07")],
                     "datetime64[ns]")  # fmt: skip
    coords = {
        "time": times,
        "latitude": np.linspace(80, -80, GRID[0]),
        "longitude": np.arange(GRID[1]) * 30.0,
    }
    truth = 280 + 5 * rng.standard_normal((len(times), *GRID))
    error = 1 + rng.standard_normal((len(times), 5, *GRID))
    fields = truth[:, None] + error
    valid = ("time", times + np.timedelta64(48, "h"))
    forecasts = xr.Dataset(
        {"t2m": (("time", "step", "number", "latitude", "longitude"), fields[:, None], UNITS)},
        coords | {"step": [48], "number": np.arange(5)},
    ).assign_coords(valid_time=(("time", "step"), valid[1][:, None]))
    observed = xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), truth, UNITS)}, coords | {"time": valid[1]}
    )
    return forecasts, observed


class Method(EMOS):
    """A method that takes in whole fields alone."""

    def collect(self, batch):
        if current().is_split or batch["target"].shape[1:] != GRID:
            raise ArgumentError("batch", "a part of the grid")
        super().collect(batch)


class Model(pl.LightningModule):
    """A model with a method in it."""

    def __init__(self):
        super().__init__()
        self.method = Method(local=True)


class Strategy:
    """What a strategy does for the data and the warm start, over the group of the test."""

    root_device = torch.device("cpu")

    def __init__(self, lat, lon):
        self.domain = shard(GRID, lat, lon)

    def share(self, grid):
        rows, columns = self.domain.rows, self.domain.columns
        return Share(
            0, 1, rows.local_slice, columns.local_slice, (tuple(rows.bounds), tuple(columns.bounds))
        )

    def broadcast(self, held, src=0):
        box = [held]
        dist.broadcast_object_list(box, src)
        return box[0]


def solved(lat, lon, dates=None):
    """One rank's coefficients, the bytes read for its batches, and whether its domain is as before.

    Or what it raised.
    """
    forecasts, truth = lazy()
    data = EnsembleDataModule(forecasts, "t2m", truth=truth, threads=0)
    strategy, rank = Strategy(lat, lon), dist.get_rank()
    data.trainer = SimpleNamespace(
        strategy=strategy, global_rank=rank, world_size=lat * lon, is_global_zero=rank == 0,
        num_devices=lat * lon, current_epoch=0,
    )  # fmt: skip
    loader = data.train_dataloader()
    if dates is not None:
        loader.batches.index = loader.batches.index[:dates]
    data.trainer.train_dataloader = loader
    model = Model()
    model._trainer = data.trainer
    with use(strategy.domain):
        try:
            solve_methods(model)
        except ArgumentError as error:
            return str(error)
        same = current() is strategy.domain
    return {k: v.clone() for k, v in model.state_dict().items()}, data.bytes_read, same


@pytest.mark.parametrize(("lat", "lon"), [(2, 1), (2, 2)])
def test_coefficients_are_those_of_whole_fields(ranks, lat, lon):
    (expected, _, _), *_ = ranks(1, solved, 1, 1)
    assert expected["method.bias"].shape == GRID
    assert expected["method.bias"].abs().min() > 0
    for found, read, same in ranks(lat * lon, solved, lat, lon):
        assert same
        assert read == 0
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert torch.equal(found[name], value), name


def test_an_error_of_the_first_process_is_that_of_all(ranks):
    told = ranks(2, solved, 2, 1, 0)
    assert [text.split(".")[0] for text in told] == ["method: Method saw no training batch"] * 2
