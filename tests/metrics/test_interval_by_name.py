"""The interval score that `verify` computes by name, against scoringrules."""

import numpy as np
import pytest
import scoringrules
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError
from ens10.grid import area_weights
from ens10.metrics import verify


def mean_over_area(field, latitude):
    rows = np.broadcast_to(area_weights(latitude.to_numpy())[:, None], field.shape)
    there = ~np.isnan(field)
    return np.average(field[there], weights=rows[there])


def ends(kind, world, share):
    """The forecast, and the ends of its central interval by numpy and scipy."""
    ensemble, normal, _ = world
    levels = np.array([(1 - share) / 2, (1 + share) / 2])
    mu, sigma = (normal[name].to_numpy() for name in ("mu", "sigma"))
    if kind == "ensemble":
        return ensemble, np.quantile(ensemble["members"].to_numpy(), levels, axis=1)
    if kind == "normal":
        return normal, np.stack([stats.norm.ppf(level, mu, sigma) for level in levels])
    both = np.stack([stats.norm.ppf(level, mu, sigma) for level in levels])
    values = xr.DataArray(
        both, dims=("quantile", *normal["mu"].dims), coords={"quantile": levels},
        attrs={"units": "K"},
    ).assign_coords(normal.coords)  # fmt: skip
    return xr.Dataset({"values": values}, attrs={"forecast_kind": "quantiles"}), both


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["ensemble", "normal", "quantiles"])
def test_it_is_the_mean_of_the_librarys(kind, share, world):
    forecast, (low, high) = ends(kind, world, share)
    truth = world[2]
    scores = verify(forecast, truth, [f"interval_score_{share}", f"width_{share}"])
    field = scoringrules.interval_score(truth.to_numpy(), low, high, 1 - share)
    got = scores[f"interval_score_{share}"]
    assert float(got) == pytest.approx(mean_over_area(field, truth["latitude"]), rel=1e-9)
    assert got.attrs["units"] == "K"
    assert float(got) > float(scores[f"width_{share}"])


def test_it_has_a_skill_score_and_needs_a_probability(world):
    ensemble, normal, truth = world
    scores = verify(ensemble, truth, ["interval_score_0.8"], reference=normal)
    alone = verify(normal, truth, ["interval_score_0.8"])
    skill = 1 - float(scores["interval_score_0.8"]) / float(alone["interval_score_0.8"])
    assert float(scores["interval_skill_0.8"]) == pytest.approx(skill, rel=1e-10)
    with pytest.raises(ArgumentError, match="probability between 0 and 1"):
        verify(ensemble, truth, ["interval_score_80"])
