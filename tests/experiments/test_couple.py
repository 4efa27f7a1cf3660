"""`ens10 couple`: members of any run's distributions, scored like any forecast."""

import numpy as np
import pandas as pd
import pytest
import realruns
from properscoring import crps_ensemble
from scipy.stats import norm, rankdata

from ens10 import open_store
from ens10.experiments.forecasts.couple import couple_run
from ens10.experiments.runs.reading import open_predictions


@pytest.mark.parametrize("name", ["unet", "emos_local"])
@pytest.mark.parametrize("method", ["ecc", "schaake"])
def test_members_have_the_runs_quantiles_and_are_scored(runs, store, tmp_path, name, method):
    out = tmp_path / "coupled.zarr"
    realruns.command("couple", runs[name], "--method", method, "--out", out)
    coupled, truth = open_predictions(out)
    predicted, own_truth = open_predictions(runs[name])
    np.testing.assert_array_equal(truth, own_truth)
    np.testing.assert_array_equal(coupled["time"], predicted["time"])
    levels = ((np.arange(10) + 0.5) / 10)[None, :, None, None]
    mu, sigma = (predicted[v].to_numpy().astype(float)[:, None] for v in ("mu", "sigma"))
    found = coupled["members"].transpose("time", "number", ...).to_numpy()
    np.testing.assert_allclose(np.sort(found, axis=1), norm.ppf(levels, mu, sigma), rtol=1e-6)
    if method == "ecc":
        raw = open_store(store, "sfc")["t2m"].squeeze("step").sel(time=predicted["time"])
        np.testing.assert_array_equal(rankdata(found, axis=1), rankdata(raw, axis=1))
    realruns.command("score", out, "--weights", "none")
    scores = pd.read_csv(tmp_path / "scores.csv", index_col="score")
    expected = crps_ensemble(truth.to_numpy(), np.moveaxis(found, 1, -1)).mean()
    np.testing.assert_allclose(scores.loc["crps", "value"], expected, rtol=1e-5)


def test_what_exists_is_kept(runs, tmp_path):
    (tmp_path / "coupled.zarr").mkdir()
    realruns.command(
        "couple", runs["mlp"], "--method", "ecc", "--out", tmp_path / "coupled.zarr", status=1
    )
    with pytest.raises(ValueError, match="method"):
        couple_run(runs["mlp"], "copula")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coupled.zarr"]
