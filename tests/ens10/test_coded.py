"""Files that spell out their own coordinates."""

import datetime as dt

import numpy as np
import pytest

from ens10 import open_store, prepare
from ens10.errors import ArgumentError
from ens10.source import open_source
from ens10.synthetic import coded_value, write_coded

STARTS = [dt.date(2003, 1, 2), dt.date(2003, 12, 31), dt.date(2004, 6, 7)]
STEPS = (0, 24, 48, 72)


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    return write_coded(
        tmp_path_factory.mktemp("coded"), starts=STARTS, steps=STEPS, members=5,
        variables=("t2m", "z", "msl"), levels=(850, 500), shape=(7, 12),
    )  # fmt: skip


def test_every_coordinate_survives_the_way_into_the_store(coded, tmp_path):
    store = prepare(coded, tmp_path / "s", any_values=True)
    surface, upper = open_store(store, "sfc"), open_store(store, "pl")
    lazy = open_source(coded)
    channels = [
        ("t2m", None, 0), ("z", 850, 1), ("z", 500, 2), ("msl", None, 3),
    ]  # fmt: skip
    row, column = np.arange(7)[:, None], np.arange(12)
    for name, level, c in channels:
        held = surface[name] if level is None else upper[name].sel(level=level)
        source = lazy[name] if level is None else lazy[name].sel(level=level)
        for d, start in enumerate(STARTS):
            for s, step in enumerate(STEPS):
                for m in range(5):
                    place = {"time": np.datetime64(start), "step": step, "number": m + 1}
                    want = coded_value(d, s, m, c, row, column)
                    np.testing.assert_array_equal(held.sel(place), want)
                    np.testing.assert_array_equal(source.sel(place), want)
    np.testing.assert_array_equal(surface.latitude, np.linspace(90, -90, 7))
    np.testing.assert_array_equal(surface.longitude, np.arange(12) * 30.0)


def test_coded_values_are_readable():
    assert int(coded_value(2, 3, 1, 0, 4, 27)) == 2310427
    for name in ("date", "step", "member", "channel", "row"):
        digits = dict.fromkeys(("date", "step", "member", "channel", "row", "column"), 0)
        with pytest.raises(ArgumentError, match=f"{name}: only positions 0 to 9"):
            coded_value(**{**digits, name: 10})
    for column in (100, -1):
        with pytest.raises(ArgumentError, match="column"):
            coded_value(0, 0, 0, 0, 0, column)
