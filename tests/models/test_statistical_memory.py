"""Fits in blocks of the grid on dask, in memory that does not grow with the number of dates."""

import gc
import threading
import tracemalloc

import dask
import numpy as np
import pytest
import torch

from ens10.models.statistical import (
    EMOS,
    BoostedEMOS,
    IsotonicRegression,
    MemberByMember,
    RidgeEMOS,
    SeasonalEMOS,
)
from ens10.models.statistical.spool import map_blocks

GRID = (20, 40)
MAKERS = {
    "emos_global": EMOS,
    "emos_local": lambda: EMOS(local=True),
    "emos_seasonal": lambda: SeasonalEMOS(0, strength=30),
    "emos_boosting": lambda: BoostedEMOS(harmonics=0, steps=5, stop="none"),
    "emos_ridge": lambda: RidgeEMOS(harmonics=0, strength=30),
    "member_by_member": MemberByMember,
    "isotonic": lambda: IsotonicRegression(4, 4),
}


def fitted(method, dates):
    """The method, solved on batches of ten dates."""
    g = torch.Generator().manual_seed(0)
    for first in range(0, dates, 10):
        x = 280 + torch.randn(10, 3, *GRID, generator=g)
        method.collect(
            {
                "features": x[:, :2] - 280,
                "raw_mean": x.mean(1),
                "raw_std": x.std(1),
                "members": x,
                "target": 281 + torch.randn(10, *GRID, generator=g),
                "weights": torch.ones(10, *GRID),
                "dates": 9 * 86400 * (first + torch.arange(10)),
            }
        )
    method.solve()
    return method


def peak_of(method, dates):
    """Most memory (bytes) of Python and numpy in collecting and solving."""
    tracemalloc.start()
    fitted(method, dates)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "emos_local" else pytest.mark.slow) for name in MAKERS],
)
def test_four_times_the_dates_take_no_more_memory(name, monkeypatch):
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 8000)
    for choice in ("_COMMON_SAMPLES", "_CHOICE_SAMPLES"):
        for module in ("seasonal_emos", "predictor_emos"):
            monkeypatch.setattr(f"ens10.models.statistical.{module}.{choice}", 1)

    def compute(*jobs, _compute=dask.base.compute, **options):
        found = _compute(*jobs, **options)
        gc.collect()  # finished tasks, which are in circles: here, and not whenever it is time
        return found

    monkeypatch.setattr("dask.base.compute", compute)
    gc.freeze()  # what is there before is not walked each time
    with dask.config.set(scheduler="synchronous"):
        fitted(MAKERS[name](), 20)  # what is loaded and compiled once; slow where it is traced
        few, many = (peak_of(MAKERS[name](), dates) for dates in (100, 400))
    # the data alone would be 300 dates of 800 points and at least three float32 fields: 2.9 MB
    assert many < few + 600_000


@pytest.mark.slow
def test_isotonic_quantiles_are_made_where_they_stay(monkeypatch):
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 1000)
    with dask.config.set(scheduler="synchronous"):
        fitted(IsotonicRegression(4, 4), 20)
        method = IsotonicRegression()
        peak = peak_of(method, 20)
    assert peak < method.quantiles.nbytes / 2  # of torch nothing is traced


def test_blocks_are_dask_tasks_in_threads_or_as_configured():
    started = threading.Barrier(2, timeout=60)

    def name(number):
        started.wait()  # both at once, or an error
        return np.array([number, threading.get_ident()])

    with dask.config.set(num_workers=2):
        found = np.array(map_blocks(name, [0, 1]))
    assert found[:, 0].tolist() == [0, 1]
    assert len(set(found[:, 1])) == 2
    for scheduler, here in (("synchronous", True), ("processes", False)):
        with dask.config.set(scheduler=scheduler):
            threads = map_blocks(lambda _: threading.get_ident(), [0, 1])
        assert (threads == [threading.get_ident()] * 2) == here
