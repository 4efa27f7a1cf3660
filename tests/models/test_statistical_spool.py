import tracemalloc

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError
from ens10.metrics.distributions import location_scale
from ens10.models.statistical.spool import Spool


def filled(dates=30, grid=(4, 5), members=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    truth = torch.randn(dates, *grid, generator=g)
    x = torch.randn(dates, members, *grid, generator=g)
    weights = torch.rand(dates, *grid, generator=g)
    weights[weights < 0.2] = 0
    when = torch.randperm(dates, generator=g) * 86400
    spool = Spool()
    for i in range(0, dates, 7):
        cut = slice(i, i + 7)
        spool.append([truth[cut], x[cut]], weights[cut], when[cut])
    return spool, truth, x, weights, when


def test_blocks_are_what_was_written_in_the_order_of_time():
    spool, truth, x, weights, when = filled()
    order = when.argsort()
    everything = torch.cat([truth[:, None], x], 1).where(weights[:, None] > 0, torch.nan)[order]
    expected = everything.flatten(2).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(spool.read(slice(3, 9)), expected[:, 3:9])
    some = spool.some_points(6)
    np.testing.assert_array_equal(spool.read(some), expected[:, some])
    np.testing.assert_array_equal(spool.dates, when[order].numpy())
    np.testing.assert_allclose(spool.area, weights.amax(0).numpy())
    assert spool.fields == 4


def test_blocks_cover_all_points_and_results_keep_their_order(monkeypatch):
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 30 * 3)
    spool, *_ = filled()
    blocks = spool.blocks()
    assert [(b.start, b.stop) for b in blocks[:2]] == [(0, 3), (3, 6)]
    assert len(spool.blocks(per_date=3)) == 20
    maps = spool.maps(lambda points: np.nanmean(spool.read(points)[:2], 2).T)
    np.testing.assert_allclose(
        maps.reshape(2, -1), np.nanmean(spool.read(slice(None))[:2], 2), rtol=1e-12
    )
    assert maps.shape == (2, *spool.area.shape)
    assert maps.flags.c_contiguous


def test_memory_does_not_grow_with_the_dates():
    peaks = []
    for dates in (20, 200):  # 200 dates of three fields: 24 MB
        spool, weights = Spool(), torch.ones(1, 100, 100)
        field = torch.zeros(1, 100, 100)
        tracemalloc.start()
        for day in range(dates):
            spool.append([field, field, field], weights, torch.tensor([day]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        assert spool.read(slice(0, 10)).shape == (3, 10, dates)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000  # bytes: a day of fields is 120,000


def test_a_file_that_lost_data_is_no_field_of_the_date_before():
    spool = filled()[0]
    spool.read(slice(3, 9))
    spool._file.truncate(400)
    with pytest.raises(OSError, match="has lost data"):
        spool.read(slice(3, 9))


def test_nothing_taken_in_and_other_grids():
    with pytest.raises(ArgumentError, match="no batch was added"):
        _ = Spool().area
    spool, *_ = filled()
    field = torch.zeros(2, 4, 5)
    with pytest.raises(ArgumentError, match=r"shape \(2, 4, 5\), those before \(4, 4, 5\)"):
        spool.append([field, field], field, torch.arange(2))


def test_a_family_forecast_as_a_dataset_says_which():
    field = torch.ones(1, 2, 2)
    coords = {"time": [0], "latitude": [1, 0], "longitude": [0, 1], "step": 48}
    coords["valid_time"] = ("time", [0])
    made = location_scale("censored_normal", field, field, 0.0).to_dataset(coords, "m")
    assert made.attrs == {"forecast_kind": "censored_normal"}
    assert set(made) == {"mu", "sigma", "lower", "upper"}
    with pytest.raises(ArgumentError, match="sigma: has shape"):
        location_scale("logistic", field, field[0])
