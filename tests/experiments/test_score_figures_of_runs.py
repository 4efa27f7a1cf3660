"""All figures of scores of some runs, by one command."""

import pytest
import xarray as xr
from fakeruns import world
from matplotlib.image import imread

from ens10.errors import ArgumentError
from ens10.experiments import score_figures
from ens10.experiments.reading import open_predictions
from ens10.experiments.reporting.diagnostics import diagnose
from ens10.grid import area_weights

NAMES = ["bias", "card", "histograms", "latitude", "reliability", "roc", "skill"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    truth, forecasts = world(dates=12)
    for name in ("raw", "emos"):
        held = forecasts[name].assign(truth=truth)
        held.to_zarr(path / name / "predictions.zarr", consolidated=False)
    return path


def test_every_figure_is_drawn(runs, tmp_path, capsys):
    given = [str(runs / "raw"), str(runs / "emos"), "--out", str(tmp_path / "figures")]
    assert score_figures.main(given) == 0
    files = sorted((tmp_path / "figures").iterdir())
    assert [file.stem for file in files] == NAMES
    assert len(capsys.readouterr().out.split()) == len(NAMES)
    for file in files:
        pixels = imread(file)
        assert min(pixels.shape[:2]) > 150
        assert pixels[..., :3].std() > 0.02  # not empty


def test_sums_of_the_event_are_of_all_points(runs):
    _, truth = open_predictions(runs / "raw")
    sums = diagnose(runs / "raw", truth["time"], quantile=0.75, by_members=True).events
    assert float(sums["weight"].sum()) == pytest.approx(truth.size, rel=1e-6)
    assert sums.sizes["bin"] == 6  # of 5 members
    above = truth > truth.quantile(0.75, "time")
    area = xr.DataArray(area_weights(truth["latitude"].to_numpy()), dims="latitude")
    happened = float(sums["event"].sum() / sums["weight"].sum())
    assert happened == pytest.approx(float(above.weighted(area).mean()), rel=1e-6)


def test_a_reference_that_is_no_run(runs, tmp_path, capsys):
    with pytest.raises(ArgumentError, match="reference: 'raw' is not among"):
        score_figures.score_figures([runs / "emos"], tmp_path)
    assert score_figures.main([str(runs / "emos"), "--out", str(tmp_path)]) == 1
    assert "ens10: reference" in capsys.readouterr().err
