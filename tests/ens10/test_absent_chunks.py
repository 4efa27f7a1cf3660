"""An incomplete copy of a Zarr store: absent chunks are missing, not the fill value."""

import numpy as np
import pytest
import xarray as xr
import zarr

import ens10
from ens10.errors import DataNote, MissingDataError
from ens10.inspection import inspect_path
from ens10.source import open_source
from ens10.source.names import Names

TIMES = np.array(["2001-01-01", "2001-05-02", "2001-08-31"], "M8[ns]")
DIMS = ("time", "step", "number", "latitude", "longitude")
SHAPE = (3, 1, 3, 4, 6)
VALUES = (7 + np.random.default_rng(0).normal(size=SHAPE)).astype("f4")


def write(path, values=VALUES, fill=0, dims=DIMS, times=TIMES, **options):
    """A store as zarr-python writes it, with another fill value than xarray's NaN."""
    coordinates = {
        "time": times, "step": ("step", [24.0], {"units": "hours"}), "number": [0, 1, 2],
        "latitude": [60.0, 50, 40, 30], "longitude": np.arange(0, 60, 10.0),
    }  # fmt: skip
    coordinates = {k: v for k, v in coordinates.items() if k in dims}
    xr.Dataset(coords=coordinates).to_zarr(path, consolidated=False)
    root = zarr.open_group(path, mode="r+")
    options = {"chunks": (1, *values.shape[1:]), "dimension_names": dims, **options}
    array = root.create_array("u10", shape=values.shape, dtype="f4", fill_value=fill, **options)
    array[:] = values
    array.attrs["units"] = "m s-1"
    return path


@pytest.fixture
def incomplete(tmp_path):
    path = write(tmp_path / "f.zarr")
    (path / "u10/c/1/0/0/0/0").unlink()
    return path


def test_an_absent_chunk_is_refused_with_array_date_and_count(incomplete, tmp_path):
    with pytest.raises(MissingDataError) as caught:
        ens10.prepare(incomplete, tmp_path / "s.zarr")
    assert caught.value.missing == ["1 of 3 chunks of u10", "time 2001-05-02T00"]
    assert "fill value (0.0), state `absent_chunks: fill`" in str(caught.value)
    assert not (tmp_path / "s.zarr").exists()
    assert "1 of 3 chunks of u10" in inspect_path(incomplete)[0].status


def test_an_absent_chunk_is_missing(incomplete, tmp_path):
    """The means by date were 7, 0 and 7."""
    ens10.prepare(incomplete, tmp_path / "s.zarr", missing="nan")
    stored = ens10.open_store(tmp_path / "s.zarr", "sfc")["u10"].values
    want = VALUES.copy()
    want[1] = np.nan
    np.testing.assert_array_equal(stored, want)
    ens10.prepare(incomplete, tmp_path / "t.zarr", missing="skip")
    np.testing.assert_array_equal(
        ens10.open_store(tmp_path / "t.zarr", "sfc")["u10"], VALUES[[0, 2]]
    )


def test_absent_chunks_of_other_dates_are_no_error(incomplete, tmp_path):
    ens10.prepare(incomplete, tmp_path / "s.zarr", dates=["2001-01-01", "2001-08-31"])
    np.testing.assert_array_equal(
        ens10.open_store(tmp_path / "s.zarr", "sfc")["u10"], VALUES[[0, 2]]
    )


def test_absent_truth(tmp_path):
    forecasts = write(tmp_path / "f.zarr")
    observed = VALUES[:, 0, 0]
    truth = write(
        tmp_path / "o.zarr", observed, 0, ("time", "latitude", "longitude"),
        TIMES + np.timedelta64(24, "h"),
    )  # fmt: skip
    ens10.prepare(forecasts, tmp_path / "s.zarr", truth=truth)
    stored = ens10.open_store(tmp_path / "s.zarr", "truth")["u10"]
    np.testing.assert_array_equal(stored[:, 0], observed)
    (truth / "u10/c/2/0/0").unlink()
    with pytest.raises(MissingDataError, match="1 of 3 chunks of u10; time 2001-09-01T00"):
        ens10.prepare(forecasts, tmp_path / "t.zarr", truth=truth)
    ens10.prepare(forecasts, tmp_path / "n.zarr", truth=truth, missing="nan")
    stored = ens10.open_store(tmp_path / "n.zarr", "truth")["u10"].values
    assert np.isnan(stored[2]).all()
    np.testing.assert_array_equal(stored[:2, 0], observed[:2])


def test_a_dry_field_as_zarr_writes_it(tmp_path):
    """zarr-python does not write a chunk that equals the fill value."""
    values = VALUES.copy()
    values[1] = 0
    path = write(tmp_path / "f.zarr", values)
    assert not (path / "u10/c/1/0/0/0/0").exists()
    with pytest.raises(MissingDataError, match="1 of 3 chunks of u10"):
        open_source(path)["u10"].compute()
    got = open_source(path, Names(absent_chunks="fill"))["u10"]
    np.testing.assert_array_equal(got, values)


def test_an_absent_inner_chunk_of_a_shard(tmp_path):
    values = VALUES.copy()
    values[:, :, 1] = 0
    chunks = (1, 1, 1, 4, 6)
    path = write(tmp_path / "f.zarr", values, chunks=chunks, shards=(2, 1, 3, 4, 6))
    with pytest.raises(MissingDataError, match="3 of 9 chunks of u10; time 2001-01-01T00"):
        open_source(path)["u10"].compute()
    got = open_source(path, missing="nan")["u10"]
    assert np.isnan(got.sel(number=1)).all()
    np.testing.assert_array_equal(got.sel(number=[0, 2]), values[:, :, [0, 2]])


def test_a_part_of_a_field(tmp_path):
    path = write(tmp_path / "f.zarr", chunks=(1, 1, 3, 2, 3))
    (path / "u10/c/2/0/0/1/0").unlink()
    with pytest.raises(MissingDataError, match="1 of 12 chunks of u10; time 2001-08-31T00"):
        open_source(path)["u10"].compute()
    want = VALUES.copy()
    want[2, :, :, 2:, :3] = np.nan
    np.testing.assert_array_equal(open_source(path, missing="nan")["u10"], want)


def test_fill_values_that_are_missing_values(tmp_path):
    path = write(tmp_path / "f.zarr", fill=np.nan)
    (path / "u10/c/1/0/0/0/0").unlink()
    got = open_source(path)["u10"]
    assert np.isnan(got[1]).all()
    with pytest.raises(MissingDataError, match="u10 of 2001-05-02T00 step 24 number 0"):
        ens10.prepare(path, tmp_path / "s.zarr")


def one_of_each(path, zarr_format=3, **coordinates):
    """A store of one value along each axis, with coordinates as xarray writes them."""
    values = np.full((1, 1, 1, 2, 2), 280, "f4")
    given = {
        "time": np.array(["2024-03-01"], "M8[ns]"), "step": ("step", [24], {"units": "hours"}),
        "number": [7], "latitude": [1.0, 0.0], "longitude": [0.0, 1.0], **coordinates,
    }  # fmt: skip
    data = xr.Dataset({"t2m": (DIMS, values, {"units": "K"})}, given)
    data.to_zarr(path, zarr_format=zarr_format, consolidated=False)
    return path


def lose(path, name):
    for file in (path / name).glob("[0-9c]*"):
        (file / "0" if file.is_dir() else file).unlink()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["step", "level", "latitude"])
def test_a_coordinate_without_its_chunk_is_refused(tmp_path, name, zarr_format):
    """The step of 24 h became 0, and the forecasts were paired with truth of another day."""
    path = one_of_each(tmp_path / "f.zarr", zarr_format, level=500, latitude=[1, 0])
    assert open_source(path)["step"].values.tolist() == [24]
    lose(path, name)
    with pytest.raises(MissingDataError) as caught:
        open_source(path)
    assert caught.value.missing == [f"1 of 1 chunks of {name}"]
    assert "--missing nan" not in str(caught.value)
    with pytest.raises(MissingDataError):
        open_source(path, missing="nan")
    if name == "step":
        filled = open_source(path, Names(absent_chunks="fill"))
        assert filled["step"].values.tolist() == [0]


def test_zeros_that_xarray_leaves_out(tmp_path):
    """xarray counts from the first date, and writes no chunk of zeros."""
    valid = (("time", "step"), np.array([["2024-03-01"]], "M8[ns]"))
    path = one_of_each(tmp_path / "f.zarr", number=[0], step=("step", [0]), valid_time=valid)
    assert not any((path / name / "c").exists() for name in ("time", "number", "step"))
    with pytest.warns(DataNote, match=r"as zeros: number 0, step 0, time 2024-03-01T00"):
        got = open_source(path)
    assert got["time"].values.astype("M8[D]").astype(str).tolist() == ["2024-03-01"]
    assert (got["step"].item(), got["number"].item()) == (0, 0)


@pytest.mark.parametrize("origin", ["1970-01-01", "2000-01-01"])
def test_an_origin_of_times_is_no_date(tmp_path, origin):
    path = one_of_each(tmp_path / "f.zarr")
    root = zarr.open_group(path, mode="r+")
    root["time"].attrs["units"] = f"hours since {origin}"
    with pytest.raises(MissingDataError, match="1 of 1 chunks of time"):
        open_source(path)


def test_data_without_a_fill_value(tmp_path):
    """zarr reads 0 where neither a chunk nor a fill value exists."""
    path = tmp_path / "f.zarr"
    data = xr.Dataset(
        {"u10": (DIMS, VALUES, {"units": "m s-1"})},
        {"time": TIMES, "step": ("step", [24], {"units": "hours"}), "number": [0, 1, 2],
         "latitude": [60.0, 50, 40, 30], "longitude": np.arange(0, 60, 10.0)},
    )  # fmt: skip
    encoding = {"u10": {"_FillValue": None, "chunks": (1, *SHAPE[1:])}}
    data.to_zarr(path, zarr_format=2, encoding=encoding, consolidated=False)
    (path / "u10/1.0.0.0.0").unlink()
    with pytest.raises(MissingDataError, match="1 of 3 chunks of u10; time 2001-05-02T00"):
        open_source(path)["u10"].compute()
