"""The shift of tails of corrected forecasts, against quantiles of normals and of the truth."""

import json

import numpy as np
import pytest
import realruns
import xarray as xr
from scipy.special import ndtri

from ens10.errors import ArgumentError
from ens10.source import open_source
from ens10.store import open_store


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return realruns.fit("emos_local", store, tmp_path_factory.mktemp("runs") / "emos_local")


def by_hand(written, store, run):
    """(Qf90 - Qc99) / (Qc99 - Qc90) and its lower counterpart, cut at -10 and 10, by date."""
    years = json.loads((run / "provenance.json").read_text())["years"]["train"]
    truth = open_store(store, "truth")["t2m"].isel(step=0).load()
    valid = truth["valid_time"].to_numpy()
    shifts = []
    for n, date in enumerate(written["valid_time"].to_numpy()):
        turns = (valid - date) / np.timedelta64(1, "s") / (365.2425 * 86400)
        days = np.abs(turns - np.round(turns)) * 365.2425
        trained = np.isin(valid.astype("datetime64[Y]").astype(int) + 1970, years)
        past = truth[trained & (days <= 30) & (valid != date)]
        assert past.sizes["time"] >= 2
        mu, sigma = (written[name][n].to_numpy().astype("f8") for name in ("mu", "sigma"))
        for level, far in ((10, 1), (90, 99)):
            inner, tail = np.percentile(past, [level, far], axis=0)
            shifts.append((mu + ndtri(level / 100) * sigma - tail) / (tail - inner))
    shape = (written.sizes["time"], 2, *written["mu"].shape[1:])
    return np.clip(np.reshape(shifts, shape), -10, 10)


def test_it_is_that_of_the_forecast_against_the_climate_of_the_truth(run, store, world, tmp_path):
    today = tmp_path / "today.nc"
    open_source(world.folder).isel(time=slice(0, 3)).load().to_netcdf(today)
    realruns.command("apply", run, today, "--out", tmp_path / "out.nc", "--shift-of-tails")
    with xr.open_dataset(tmp_path / "out.nc") as written:
        assert written["t2m_sot"].dims == ("time", "sot_level", "latitude", "longitude")
        assert written["sot_level"].to_numpy().tolist() == [10, 90]
        expected = by_hand(written, store, run)
        assert np.ptp(expected) > 1
        # quantiles in float32 (3e-5 K) are divided by widths of some 0.1 K
        np.testing.assert_allclose(written["t2m_sot"], expected, rtol=1e-3, atol=1e-3)


def test_without_past_truth_it_is_refused(run, world, tmp_path):
    import ens10

    model = ens10.load_model(run)
    model.history = ""
    with pytest.raises(ArgumentError, match=r"comes without past truth.*--history"):
        model(open_source(world.folder).isel(time=[0]).load(), shift_of_tails=True)
