"""A run of families and of quantiles, from the command line to a number.

Normals and ensembles are in test_predictions.py.
"""

import csv

import numpy as np
import pytest
import realruns
import xarray as xr
import yaml

from ens10.experiments.demo import config_path
from ens10.experiments.training.run import run_stage

HEADS = {
    "student_t": ({"family": "student_t"}, {"mu", "sigma", "df"}),
    "censored_normal": (
        {"family": "censored_normal", "lower": 200.0},
        {"mu", "sigma", "lower", "upper"},
    ),
}
LOSSES = [
    "ens10.models.LogScoreLoss",
    {"class_path": "ens10.models.ThresholdCRPSLoss", "init_args": {"lower": 280.0}},
]
QUANTILES = ("bernstein", "spline")  # the shipped configurations


def config_of(name, path):
    if name in QUANTILES:
        return config_path(name)
    head = {"class_path": "ens10.models.FamilyHead", "init_args": HEADS[name][0]}
    network = {"in_channels": 26, "hidden": 16}
    network = {"class_path": "ens10.models.networks.MLP", "init_args": network}
    loss = {"class_path": "ens10.models.SumLoss", "init_args": {"losses": LOSSES}}
    parts = {"network": network, "head": head, "loss": loss}
    model = {"class_path": "ens10.models.PostProcessor", "init_args": parts}
    data = {"target": "t2m", "extras": ["location"], "batch_size": 4}
    path.write_text(yaml.safe_dump({"model": model, "data": data}))
    return path


@pytest.fixture(
    scope="module",
    params=[*HEADS, "bernstein", pytest.param("spline", marks=pytest.mark.slow)],
)
def made(request, store, tmp_path_factory):
    name, folder = request.param, tmp_path_factory.mktemp("kinds")
    config = config_of(name, folder / "config.yaml")
    options = ("--data.store", store, "--run", folder / "run", "--quiet")
    realruns.command("fit", "--config", config, *options, "--trainer.max_epochs", 1)
    realruns.finish(folder / "run")
    return name, folder / "run"


def scores(run):
    with (run / "scores.csv").open() as file:
        return {row["score"]: float(row["value"]) for row in csv.DictReader(file)}


def test_it_is_written_as_its_kind_and_scored(made):
    name, run = made
    kind = "quantiles" if name in QUANTILES else name
    variables = {"values"} if name in QUANTILES else HEADS[name][1]
    dataset = xr.open_zarr(run / "predictions.zarr", consolidated=False)
    assert dataset.attrs["forecast_kind"] == kind
    assert set(dataset.data_vars) == {*variables, "truth"}
    assert dataset["truth"].attrs["units"] == "K"
    for name in variables:
        assert dataset[name].attrs["units"] == ("1" if name == "df" else "K")
        assert dataset[name].attrs["long_name"] != name
        is_quantity = name == "values"  # the location of a bounded family is not its mean
        assert ("standard_name" in dataset[name].attrs) == is_quantity
    assert dataset["truth"].attrs["standard_name"] == "air_temperature"
    trained = run_stage("test", ["--run", str(run), "--quiet"]).trainer.callback_metrics
    # the CRPS of 99 quantiles is less than a per mille above that of the distribution
    rel = 1.5e-3 if kind == "quantiles" else 1e-5
    assert scores(run)["crps"] == pytest.approx(float(trained["test_crps"]), rel=rel)

    if kind == "quantiles":
        values = dataset["values"]
        assert values.dims == ("time", "quantile", "latitude", "longitude")
        np.testing.assert_allclose(dataset["quantile"], np.arange(1, 100) / 100)
        assert (np.diff(values.to_numpy(), axis=1) >= 0).all()
