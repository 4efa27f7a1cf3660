"""Two processes that train and predict together, started by Lightning itself."""

import numpy as np
import pytest
from realruns import config_path, subprocess_of

from ens10.experiments.runs.reading import open_predictions

TOGETHER = ["--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy", "ddp"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_processes_share_the_dates(store, tmp_path):
    run = tmp_path / "mlp"
    options = ["--data.store", store, "--run", run, "--quiet", "--trainer.max_epochs", 2]
    fitted = subprocess_of("fit", "--config", config_path("mlp"), *options, *TOGETHER)
    assert fitted.returncode == 0, fitted.stderr
    assert "MEMBER: 2/2" in fitted.stderr
    predicted = []
    for devices in (2, 1):  # an odd number of dates for two is made even, and counted once
        done = subprocess_of("predict", "--run", run, "--quiet", "--trainer.devices", devices)
        assert done.returncode == 0, done.stderr
        forecast, truth = open_predictions(run)
        predicted.append((forecast.load(), truth.load()))
    (both, truth), (alone, same) = predicted
    np.testing.assert_array_equal(truth, same)
    assert not both.mu.isnull().any()
    np.testing.assert_allclose(both.mu, alone.mu, rtol=1e-5)
    np.testing.assert_allclose(both.sigma, alone.sigma, rtol=1e-5)
