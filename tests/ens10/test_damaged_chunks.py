"""Damaged chunks or metadata of Zarr sources: one error with array, chunk and date."""

import json
import os

import numpy as np
import pytest
import xarray as xr
import zarr

import ens10
from ens10.errors import FileError
from ens10.inspection import inspect_path
from ens10.source import open_source
from ens10.source.zarr_chunks import open_zarr

TIMES = np.array(["2001-01-01", "2001-05-02", "2001-08-31"], "M8[ns]")
DIMS = ("time", "step", "number", "latitude", "longitude")
VALUES = (7 + np.random.default_rng(0).normal(size=(3, 1, 3, 4, 6))).astype("f4")


def write(path, zarr_format=3, dims=DIMS, values=VALUES, times=TIMES, **options):
    coordinates = {
        "time": times, "step": ("step", [24.0], {"units": "hours"}), "number": [0, 1, 2],
        "latitude": [60.0, 50, 40, 30], "longitude": np.arange(0, 60, 10.0),
    }  # fmt: skip
    coordinates = {k: v for k, v in coordinates.items() if k in dims}
    xr.Dataset(coords=coordinates).to_zarr(path, consolidated=False, zarr_format=zarr_format)
    root = zarr.open_group(path, mode="r+")
    attributes = {"units": "m s-1"}
    if zarr_format == 3:
        options["dimension_names"] = dims
    else:
        attributes["_ARRAY_DIMENSIONS"] = list(dims)
    options = {"chunks": (1, *values.shape[1:]), "fill_value": np.nan, **options}
    array = root.create_array(
        "u10", shape=values.shape, dtype="f4", attributes=attributes, **options
    )
    array[:] = values
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(np.random.default_rng(1).bytes(path.stat().st_size))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def circular_link(path):
    path.unlink()
    path.symlink_to(path.name)


LAYOUTS = {
    "v3": ({}, "u10/c/1/0/0/0/0"),
    "v2": ({"zarr_format": 2}, "u10/1.0.0.0.0"),
    "shards": ({"shards": (1, 1, 3, 4, 6), "chunks": (1, 1, 1, 4, 6)}, "u10/c/1/0/0/0/0"),
}


@pytest.mark.parametrize("damage", [cut, empty, garbage, pipe, circular_link])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_chunk_is_named_with_its_array_and_date(tmp_path, layout, damage):
    options, key = LAYOUTS[layout]
    path = write(tmp_path / "f.zarr", **options)
    damage(path / key)
    words = rf"f\.zarr/{key}: damaged chunk of u10, time 2001-05-02T00 \("
    dataset = open_source(path)
    with pytest.raises(FileError, match=words):
        dataset["u10"].compute(scheduler="synchronous")
    np.testing.assert_array_equal(dataset["u10"][[0, 2]], VALUES[[0, 2]])


def test_more_damaged_chunks_than_threads_that_decode(tmp_path):
    """The dates are compressed, too, and decoded by the threads that decode chunks."""
    path = write(tmp_path / "f.zarr", chunks=(1, 1, 1, 1, 1))
    chunks = [chunk for chunk in (path / "u10/c").rglob("*") if chunk.is_file()]
    assert len(chunks) == VALUES.size > 64
    for chunk in chunks:
        cut(chunk)
    field = open_zarr(path, "", chunks=None)["u10"]
    with pytest.raises(FileError, match="damaged chunk of u10, time 2001-"):
        field.to_numpy()


def test_commands_refuse_a_damaged_chunk(tmp_path):
    path = write(tmp_path / "f.zarr", chunks=(2, 1, 3, 4, 6))
    cut(path / "u10/c/0/0/0/0/0")
    words = "u10/c/0/0/0/0/0: damaged chunk of u10, time 2001-01-01T00 to 2001-05-02T00"
    with pytest.raises(FileError, match=words):
        ens10.prepare(path, tmp_path / "s.zarr", missing="nan", workers=2)
    assert not (tmp_path / "s.zarr").exists()
    assert words in inspect_path(path)[0].status


def damaged_truth(folder):
    forecasts = write(folder / "f.zarr")
    dims, valid = ("time", "latitude", "longitude"), TIMES + np.timedelta64(24, "h")
    truth = write(folder / "o.zarr", dims=dims, values=VALUES[:, 0, 0], times=valid)
    cut(truth / "u10/c/2/0/0")
    return lambda: ens10.prepare(forecasts, folder / "s.zarr", truth=truth)


def damaged_dates(folder):
    path = write(folder / "f.zarr")
    cut(path / "time/c/0")
    return lambda: open_source(path)


def too_many_chunks(folder):
    path = write(folder / "f.zarr", fill_value=0)
    file = path / "u10" / "zarr.json"
    metadata = json.loads(file.read_text()) | {"dimension_names": ["a", *DIMS[1:]]}
    metadata["shape"][0] = 10**12
    file.write_text(json.dumps(metadata))
    return lambda: open_source(path, optional_dimensions=True)


REFUSED = {
    damaged_truth: r"o\.zarr/u10/c/2/0/0: damaged chunk of u10, time 2001-09-01T00",
    damaged_dates: r"f\.zarr/time/c/0: damaged chunk of time \(",
    too_many_chunks: r"u10: shape .* make 1000000000000 chunks, more than",
}


@pytest.mark.parametrize("make", REFUSED)
def test_what_is_refused(tmp_path, make):
    use = make(tmp_path)
    with pytest.raises(FileError, match=REFUSED[make]):
        use()


METADATA = {
    "deep": "[" * 100_000,
    "no JSON": "u10",
    "a number": "3",
    "a shape that is none": {"shape": ["3", 1, 3, 4, 6]},
    "another shape": {"shape": [4, 1, 3, 4, 6]},
    "a fill value that is none": {"fill_value": "bad"},
    "_FillValue that is none": {"attributes": {"_FillValue": "bad"}},
    "a scale that is none": {"attributes": {"scale_factor": {}}},
    "a format of the future": {"zarr_format": 9},
    "a pipe": None,
}


@pytest.mark.parametrize("what", METADATA)
def test_metadata_that_cannot_be_read(tmp_path, what):
    path, change = write(tmp_path / "f.zarr"), METADATA[what]
    file = path / "u10" / "zarr.json"
    if change is None:
        pipe(file)
    elif isinstance(change, str):
        file.write_text(change)
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(FileError) as caught:
        open_source(path)["u10"].compute()
    message = str(caught.value)
    assert message.startswith(str(path))
    if "attributes" not in (change or ()):  # xarray does not say which variable it decodes
        assert "u10" in message
    assert "\n" not in message


@pytest.mark.parametrize("key", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("value", [["x"], [0.5, 2.0], "x", True])
def test_a_scale_that_is_no_number(tmp_path, key, value):
    """numpy repeats a text as often as a whole number says: 713 times ["x"] is a text."""
    path = write(tmp_path / "f.zarr")
    packed = xr.Dataset({"u10": (DIMS, (100 * VALUES).astype("i2"), {"units": "m s-1"})})
    packed.to_zarr(path, mode="a", consolidated=False)
    file = path / "u10" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["attributes"][key] = value
    file.write_text(json.dumps(metadata))
    with pytest.raises(FileError, match=r"f\.zarr: no Zarr store that can be read"):
        open_source(path)


@pytest.mark.filterwarnings("ignore:variable 'u10' has multiple fill values")
def test_a_list_of_missing_values(tmp_path):
    path = write(tmp_path / "f.zarr", fill_value=0)
    file = path / "u10" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["attributes"]["missing_value"] = [0.0, -999.0]
    file.write_text(json.dumps(metadata))
    (path / "u10/c/1/0/0/0/0").unlink()
    got = open_source(path)["u10"]
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(got[[0, 2]], VALUES[[0, 2]])
