"""A run of families and of quantiles, from the command line to a number.

Normals and ensembles are in test_predictions.py.
"""

import csv

import numpy as np
import pytest
import realruns
import xarray as xr
import yaml

from ens10.experiments.run import run_stage

HEADS = {
    "student_t": ("FamilyHead", {"family": "student_t"}, {"mu", "sigma", "df"}),
    "censored_normal": (
        "FamilyHead",
        {"family": "censored_normal", "lower": 200.0},
        {"mu", "sigma", "lower", "upper"},
    ),
    "quantiles": ("BernsteinHead", {"degree": 6}, {"values"}),
}
CHANNELS = {"quantiles": 8}


def config_of(kind, path):
    name, options, _ = HEADS[kind]
    network = {"in_channels": 26, "hidden": 16, "out_channels": CHANNELS.get(kind, 2)}
    model = {
        "class_path": "ens10.models.PostProcessor",
        "init_args": {
            "network": {"class_path": "ens10.models.networks.MLP", "init_args": network},
            "head": {"class_path": f"ens10.models.{name}", "init_args": options},
        },
    }
    data = {"target": "t2m", "extras": ["location"], "batch_size": 4}
    path.write_text(yaml.safe_dump({"model": model, "data": data, "trainer": {"max_epochs": 1}}))
    return path


@pytest.fixture(scope="module", params=HEADS)
def made(request, store, tmp_path_factory):
    kind, folder = request.param, tmp_path_factory.mktemp("kinds")
    config = config_of(kind, folder / "config.yaml")
    options = ("--config", config, "--data.store", store, "--run", folder / "run", "--quiet")
    realruns.command("fit", *options)
    realruns.finish(folder / "run")
    return kind, folder / "run"


def scores(run):
    with (run / "scores.csv").open() as file:
        return {row["score"]: float(row["value"]) for row in csv.DictReader(file)}


def test_it_is_written_as_its_kind_and_scored(made):
    kind, run = made
    dataset = xr.open_zarr(run / "predictions.zarr", consolidated=False)
    assert dataset.attrs["forecast_kind"] == kind
    assert set(dataset.data_vars) == {*HEADS[kind][2], "truth"}
    assert dataset["truth"].attrs["units"] == "K"
    for name in HEADS[kind][2]:
        assert dataset[name].attrs["units"] == ("1" if name == "df" else "K")
        assert dataset[name].attrs["long_name"] != name
    trained = run_stage("test", ["--run", str(run), "--quiet"]).trainer.callback_metrics
    # the CRPS of 99 quantiles is that of the distribution to a per mille
    rel = 2e-3 if kind == "quantiles" else 1e-5
    assert scores(run)["crps"] == pytest.approx(float(trained["test_crps"]), rel=rel)

    if kind == "quantiles":
        values = dataset["values"]
        assert values.dims == ("time", "quantile", "latitude", "longitude")
        np.testing.assert_allclose(dataset["quantile"], np.arange(1, 100) / 100)
        assert (np.diff(values.to_numpy(), axis=1) >= 0).all()
