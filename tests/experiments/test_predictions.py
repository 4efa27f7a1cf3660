"""Predictions as a CF store, and what is refused."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import realruns
import xarray as xr
import zarr

from ens10.errors import FileError
from ens10.experiments.runs.reading import open_predictions


@pytest.mark.parametrize(
    ("name", "kind", "variables"),
    [("raw", "ensemble", {"members"}), ("mlp", "normal", {"mu", "sigma"})],
)
def test_plain_xarray_opens_predictions_without_a_warning(runs, name, kind, variables):
    dataset = xr.open_zarr(runs[name] / "predictions.zarr", consolidated=False)
    assert dataset.attrs["forecast_kind"] == kind
    assert set(dataset.data_vars) == {*variables, "truth"}
    for variable in dataset.data_vars.values():
        assert variable.attrs["units"] == "K"
        assert variable.dtype == np.float32
        assert variable.dims[0] == "time"
        assert variable.dims[-2:] == ("latitude", "longitude")
        assert np.isfinite(variable).all()
    names = {k: v.attrs.get("standard_name") for k, v in dataset.data_vars.items()}
    of_target = {"members", "mu", "truth"} & names.keys()
    assert names == dict.fromkeys(of_target, "air_temperature") | dict.fromkeys(
        {"sigma"} & names.keys()
    )
    assert dataset["valid_time"].dims == ("time",)
    lead = dataset["valid_time"] - dataset["time"]
    assert (lead == np.timedelta64(48, "h")).all()
    assert dataset["latitude"].attrs["units"] == "degrees_north"
    assert dataset["longitude"].attrs["units"] == "degrees_east"
    assert (np.diff(dataset["time"]) > np.timedelta64(0)).all()
    if name == "raw":
        assert dataset["members"].dims[1] == "number"
        assert dataset["number"].to_numpy().tolist() == list(range(1, 11))
    else:
        assert (dataset["sigma"] > 0).all()


def test_a_fresh_python_opens_them_without_a_warning(runs):
    code = (
        "import sys, xarray as xr; d = xr.open_zarr(sys.argv[1]).load(); "
        "print(int(d['step'].astype('int64')), d['step'].dtype, d['step'].attrs.get('units'))"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(runs["mlp"] / "predictions.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stderr) == (0, "")
    assert "48" in done.stdout or "172800" in done.stdout


def test_predicting_again_replaces_and_other_splits_can_be_asked_for(runs, tmp_path):
    run = tmp_path / "mlp"
    shutil.copytree(runs["mlp"], run)
    options = ["--run", run, "--quiet", "--data.predict_split"]
    realruns.command("predict", *options, "val")
    _forecast, truth = open_predictions(run)
    assert set(truth["valid_time"].dt.year.to_numpy()) == {2003}
    assert not (run / "predictions.zarr.partial").exists()
    realruns.command("predict", *options, "test")
    again, _ = open_predictions(run)
    assert again.identical(open_predictions(runs["mlp"])[0])


def test_predictions_of_the_shuffled_split_are_in_the_order_of_time(runs, tmp_path):
    run = tmp_path / "raw"
    shutil.copytree(runs["raw"], run)
    arguments = ["--run", run, "--quiet", "--data.predict_split", "train"]
    realruns.command("predict", *arguments, "--data.batch_size", 5)
    _forecast, truth = open_predictions(run)
    assert truth.sizes["time"] == 12
    assert (np.diff(truth["time"]) > np.timedelta64(0)).all()


def test_what_holds_no_predictions_is_told(tmp_path, store):
    with pytest.raises(FileError, match="ens10 predict"):
        open_predictions(tmp_path)
    with pytest.raises(FileError, match="ens10 predict"):
        open_predictions(tmp_path / "gone")
    with pytest.raises(FileError, match="not predictions"):
        open_predictions(store)


@pytest.fixture(scope="module")
def gaps(store, tmp_path_factory):
    """The store with sst as its truth, where land is a gap, and a further gap in one date."""
    path = tmp_path_factory.mktemp("gaps") / "store.zarr"
    shutil.copytree(store, path, ignore=shutil.ignore_patterns("manifest"))  # it changes below
    root = zarr.open_group(str(path), mode="r+", use_consolidated=False)
    mean = xr.open_zarr(store, group="sfc", consolidated=False)["sst"].mean("number", skipna=False)
    held = np.asarray(root["truth/t2m"])
    assert mean.shape == held.shape
    noise = np.random.default_rng(0).normal(size=held.shape)
    (path / "truth" / "t2m").rename(path / "truth" / "sst")
    values = (mean.to_numpy() + 0.3 * noise).astype("f4")
    sea = np.argwhere(np.isfinite(values[-1, 0]))[0]
    values[-1, 0, sea[0], sea[1]] = np.nan
    metadata = json.loads((path / "truth" / "sst" / "zarr.json").read_text())
    metadata["attributes"] |= {"long_name": "sst"}
    (path / "truth" / "sst" / "zarr.json").write_text(json.dumps(metadata))
    zarr.open_group(str(path), mode="r+", use_consolidated=False)["truth/sst"][:] = values
    return path, values


@pytest.mark.parametrize("name", ["raw", "emos_global", "emos_local", "mlp", "unet"])
def test_a_target_with_gaps_is_fitted_predicted_and_scored(gaps, tmp_path, name):
    path, values = gaps
    inputs = [] if name in ("mlp", "unet") else ["--data.inputs", "[sst]"]
    run = realruns.fit(name, path, tmp_path / name, "--data.target", "sst", *inputs)
    realruns.finish(run)
    forecast, truth = open_predictions(run)
    np.testing.assert_array_equal(truth, values[-8:, 0])
    land = np.isnan(values[0, 0])
    centre = forecast["members"].mean("number", skipna=False) if name == "raw" else forecast["mu"]
    assert np.isnan(centre.to_numpy()[:, land]).all()
    assert np.isfinite(centre.to_numpy()[:, ~land]).all()
    table = (run / "scores.csv").read_text().splitlines()
    assert table[-1].startswith(f"count,{np.isfinite(values[-8:]).sum()},")
    assert 0.02 < float(table[1].split(",")[1]) < 5
