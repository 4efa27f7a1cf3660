"""Values of netCDF files that cannot be read are one error with file, variable and date."""

import re

import netCDF4
import numpy as np
import pytest
import xarray as xr

from ens10 import prepare
from ens10.cli import main
from ens10.errors import FileError
from ens10.loader.dataset_samples import DatasetSamples
from ens10.loader.samples import Where
from ens10.source import open_source

DATES = np.array(["2001-05-01", "2001-05-02"], "M8[ns]")
PLACES = {"latitude": [50.0, 49.0], "longitude": [1.0, 2.0, 3.0]}
REASON = r"the values cannot be read \(.*NetCDF: HDF error.*\)"


def fields(name, offset, dims, **coordinates):
    coords = {**coordinates, **PLACES}
    shape = [len(coords[dim]) for dim in dims]
    values = offset + np.arange(np.prod(shape), dtype="f4").reshape(shape)
    return xr.Dataset({name: (dims, values, {"units": "K" if name == "t2m" else "m s-1"})}, coords)


def written(path, dataset):
    """The dataset with a chunk for each date, and a checksum of each chunk."""
    encoding = {
        n: {"fletcher32": True, "chunksizes": (1, *f.shape[1:])} for n, f in dataset.items()
    }
    dataset.to_netcdf(path, encoding=encoding)
    return path


def damage(path, values):
    """Change one bit of some stored values."""
    content, pattern = path.read_bytes(), np.ascontiguousarray(values, "f4").tobytes()
    assert content.count(pattern) == 1
    place = content.index(pattern) + 5
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with netCDF4.Dataset(path) as file, pytest.raises(RuntimeError):
        [file[name][:] for name in file.variables]


@pytest.fixture
def whole(tmp_path):
    """Forecasts and truth."""
    dims = ("time", "step", "number", "latitude", "longitude")
    step = xr.Variable("step", [48.0], {"units": "h"})
    axes = {"time": DATES, "step": step, "number": [1, 2, 3]}
    forecast = xr.merge([fields("t2m", 280, dims, **axes), fields("u10", 1, dims, **axes)])
    times = DATES + np.timedelta64(48, "h")
    truth = fields("t2m", 270, ("time", "latitude", "longitude"), time=times)
    return written(tmp_path / "f.nc", forecast), written(tmp_path / "truth.nc", truth)


@pytest.fixture
def damaged(whole):
    """The forecasts with a damaged chunk of the wind of the second date, and the truth."""
    forecast, truth = whole
    with xr.open_dataset(forecast) as dataset:
        values = dataset["u10"][1].to_numpy()
    damage(forecast, values)
    return forecast, truth


@pytest.mark.parametrize("missing", ["error", "skip"])
def test_prepare(damaged, tmp_path, missing):
    forecast, truth = damaged
    place = f"f.nc: 2001-05-02T00,? step 48(.0)?, u10: {REASON}"
    with pytest.raises(FileError, match=place):
        prepare(forecast, tmp_path / "s.zarr", truth=truth, missing=missing, workers=1)


@pytest.mark.parametrize("missing", ["error", "skip"])
def test_prepare_names_the_date_of_damaged_truth(whole, tmp_path, missing):
    forecast, truth = whole
    with xr.open_dataset(truth) as dataset:
        values = dataset["t2m"][1].to_numpy()
    damage(truth, values)
    with pytest.raises(FileError, match=f"truth.nc: 2001-05-02T00.*, t2m: {REASON}"):
        prepare(forecast, tmp_path / "s.zarr", truth=truth, missing=missing, workers=1)


def test_samples_of_a_dataset(damaged):
    forecast, truth = damaged
    samples = DatasetSamples(open_source(forecast), xr.open_dataset(truth), "t2m")
    mean, std = samples.moments(0, 48, ["t2m", "u10"])
    values = np.arange(18, dtype="f8").reshape(3, 2, 3)
    np.testing.assert_allclose(mean[0], 280 + values.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(std[1], values.std(axis=0, ddof=1), rtol=1e-6)
    place = f"f.nc: 2001-05-02T00, step 48, u10: {REASON}"
    with pytest.raises(FileError, match=place):
        samples.moments(1, 48, ["t2m", "u10"])
    with pytest.raises(FileError, match=place):
        samples.read_members(Where(1, 48), "u10", np.empty((3, 2, 3), "f4"))
    np.testing.assert_array_equal(samples.ensemble(1)[0, 0], [298, 299, 300])


def test_scores_of_a_damaged_file(tmp_path, capsys):
    parts = [fields(n, k, ("time", "latitude", "longitude"), time=DATES)
             for k, n in enumerate(("mu", "sigma", "truth"), 1)]  # fmt: skip
    forecast = xr.merge(parts).assign_coords(valid_time=("time", DATES))
    path = written(tmp_path / "p.nc", forecast.assign_attrs(forecast_kind="normal"))
    assert main(["score", str(path)]) == 0
    damage(path, forecast["sigma"][1].to_numpy())
    capsys.readouterr()
    assert main(["score", str(path)]) == 1
    assert re.search(f"^ens10: .*p.nc: {REASON}", capsys.readouterr().err, re.MULTILINE)


def test_truth_of_samples(whole):
    forecast, truth = whole
    with xr.open_dataset(truth) as dataset:
        values = dataset["t2m"][1].to_numpy()
    damage(truth, values)
    samples = DatasetSamples(open_source(forecast), xr.open_dataset(truth), "t2m")
    np.testing.assert_array_equal(samples.truth(0)[0], [270, 271, 272])
    with pytest.raises(FileError, match=f"truth.nc: 2001-05-02T00, t2m: {REASON}"):
        samples.truth(1)


def test_a_scale_that_is_a_text(whole):
    with netCDF4.Dataset(whole[0], "a") as file:
        file["u10"].scale_factor = "x"
    with pytest.raises(FileError, match=r"f\.nc: no netCDF file .* scale_factor .* of u10"):
        open_source(whole[0])
