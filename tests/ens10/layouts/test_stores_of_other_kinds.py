"""Groups, trees of datasets, icechunk repositories and kerchunk references."""

import json
from base64 import b64decode, b64encode
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from layouttools import FROM_GREENWICH, NORTH_TO_SOUTH, STARTS, values

import ens10
from ens10.cli import main
from ens10.convert import verify
from ens10.errors import ArgumentError, FileError
from ens10.extras import MissingExtraError
from ens10.inspection import inspect_path
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.source import open_source, stores
from ens10.source.names import Names, read_names
from ens10.source.stores import dataset_of, is_icechunk, is_reference

DIMS = ("time", "step", "number", "latitude", "longitude")
COORDS = {"time": STARTS, "step": ("step", [24, 48], {"units": "h"}), "number": [1, 2, 3],
          "latitude": NORTH_TO_SOUTH, "longitude": FROM_GREENWICH}  # fmt: skip


def forecast(name="t2m", seed=0):
    field = (DIMS, values(name, (2, 2, 3, 6, 8), seed), {"units": "K"})
    return xr.Dataset({name: field}, COORDS)


def truth_of(dataset):
    """Truth at all valid times: the first member of the forecast that is valid then."""
    first = dataset["t2m"].isel(number=0, drop=True).stack(valid=("time", "step"))
    leads = first["step"].to_numpy().astype("timedelta64[h]")
    times = first["time"].to_numpy() + leads
    _, places = np.unique(times, return_index=True)
    bare = first.drop_vars(["valid", "time", "step"]).isel(valid=places)
    return bare.rename(valid="time").assign_coords(time=times[places]).to_dataset()


SURFACE, UPPER = forecast(), forecast("t").expand_dims(level=[850])


def write_zarr(path):
    SURFACE.to_zarr(path, group="surface", consolidated=False)
    UPPER.to_zarr(path, group="pressure_level", mode="a", consolidated=False)


def write_netcdf(path):
    SURFACE.to_netcdf(path, group="surface")
    UPPER.to_netcdf(path, group="pressure_level", mode="a")


WRITERS = {"a.zarr": write_zarr, "a.nc": write_netcdf}


@pytest.fixture(params=WRITERS)
def grouped(request, tmp_path):
    WRITERS[request.param](tmp_path / request.param)
    return tmp_path / request.param


def test_a_group_on_the_command_line(grouped, tmp_path, capsys):
    truth_of(SURFACE).to_netcdf(tmp_path / "truth.nc")
    words = ["prepare", grouped, tmp_path / "s.zarr", "--group", "surface", "--truth",
             tmp_path / "truth.nc"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    got = ens10.open_store(tmp_path / "s.zarr", "sfc")
    np.testing.assert_array_equal(got["t2m"], SURFACE["t2m"])
    assert main(["inspect", str(grouped), "--group", "pressure_level"]) == 0
    assert "850 hPa" in capsys.readouterr().out
    assert verify(tmp_path / "s.zarr", source=grouped, truth=tmp_path / "truth.nc").ok


def test_a_group_in_python(grouped, tmp_path):
    store = ens10.prepare(grouped, tmp_path / "s.zarr", group="pressure_level")
    want = UPPER["t"].transpose("time", "step", "level", ...)
    np.testing.assert_array_equal(ens10.open_store(store, "pl")["t"], want)
    (row,) = inspect_path(grouped, group="surface")
    assert (row.name, row.status) == ("t2m", "ok")
    names = tmp_path / "names.yaml"
    names.write_text("group: surface\n")
    opened = open_source(grouped, read_names(names))
    np.testing.assert_array_equal(opened["t2m"], SURFACE["t2m"])


@pytest.mark.parametrize(
    ("names", "words"),
    [(None, "root holds no fields"), (Names(group="upper"), "no group 'upper'")],
    ids=["no group", "another group"],
)
def test_which_groups_there_are(grouped, names, words):
    with pytest.raises(FileError, match=f"{words}.*--group: pressure_level, surface"):
        open_source(grouped, names)


def test_trees_in_python(tmp_path):
    years = np.array(["2025-01-01", "2026-01-03"], "datetime64[ns]")
    fields = SURFACE.assign_coords(time=years)
    one = xr.DataTree.from_dict({"/surface": fields})
    both = xr.DataTree.from_dict({"/surface": fields, "/pressure_level": UPPER})
    truth = truth_of(fields)
    rules = Protocol(test=[2026], val=[], weighting="none")
    for data, options in ((one, {}), (both, {"group": "surface"})):
        path = tmp_path / f"{len(options)}.zarr"
        observed = xr.DataTree.from_dict({"/era5": truth})
        store = ens10.prepare(data, path, truth=observed, **options)
        np.testing.assert_array_equal(ens10.open_store(store, "sfc")["t2m"], fields["t2m"])
        options |= {"protocol": rules, "truth": truth, "members": True, "normalise": False}
        (batch,) = Batches(data, "t2m@24", ["t2m"], "test", **options)
        np.testing.assert_array_equal(batch["members"][0], fields["t2m"][1, 0])
        np.testing.assert_array_equal(batch["target"][0], fields["t2m"][1, 0, 0])
    with pytest.raises(ArgumentError, match=r"several groups.*one of: pressure_level, surface"):
        ens10.prepare(both, tmp_path / "no.zarr")
    with pytest.raises(ArgumentError, match="no group 'upper'"):
        dataset_of(both, "upper")


def write_icechunk(path):
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    SURFACE.to_zarr(session.store, consolidated=False)
    UPPER.to_zarr(session.store, group="pressure_level", mode="a", consolidated=False)
    session.commit("forecasts")


def test_an_icechunk_repository(tmp_path):
    write_icechunk(tmp_path / "repo")
    store = ens10.prepare(tmp_path / "repo", tmp_path / "s.zarr")
    np.testing.assert_array_equal(ens10.open_store(store, "sfc")["t2m"], SURFACE["t2m"])
    (row,) = inspect_path(tmp_path / "repo", group="pressure_level")
    assert (row.name, row.level, row.status) == ("t", "850 hPa", "ok")
    assert verify(store, source=tmp_path / "repo").ok


def references(folder):
    """References of version 1 to the chunks of a Zarr store of format 2, coordinates inside."""
    SURFACE.chunk(time=1).to_zarr(folder / "raw.zarr", zarr_format=2, consolidated=False)
    refs = {}
    for file in sorted((folder / "raw.zarr").rglob("*")):
        key = str(file.relative_to(folder / "raw.zarr"))
        if file.name.startswith(".z"):
            refs[key] = file.read_text()
        elif file.is_file() and key.startswith("t2m"):
            refs[key] = [str(file), 0, file.stat().st_size]
        elif file.is_file():
            refs[key] = "base64:" + b64encode(file.read_bytes()).decode()
    return {"version": 1, "refs": refs}


def test_kerchunk_references_in_json(tmp_path):
    path = tmp_path / "references.json"
    path.write_text(json.dumps(references(tmp_path)))
    assert is_reference(path)
    store = ens10.prepare(path, tmp_path / "s.zarr")
    np.testing.assert_array_equal(ens10.open_store(store, "sfc")["t2m"], SURFACE["t2m"])
    (row,) = inspect_path(path)
    assert (row.name, row.status, row.members) == ("t2m", "ok", 3)


def write_parquet(path, refs):
    """References as kerchunk stores them: a table for each array, a row for each chunk."""
    path.mkdir()
    metadata = {key: json.loads(text) for key, text in refs.items() if ".z" in key}
    contents = json.dumps({"metadata": metadata, "record_size": 10})
    (path / ".zmetadata").write_text(contents)
    chunks = {key: target for key, target in sorted(refs.items()) if ".z" not in key}
    for name in {key.partition("/")[0] for key in chunks}:
        targets = [target for key, target in chunks.items() if key.startswith(f"{name}/")]
        rows = [
            (None, 0, 0, b64decode(t[len("base64:") :])) if isinstance(t, str) else (*t, None)
            for t in targets
        ]
        (path / name).mkdir()
        table = pd.DataFrame(rows, columns=["path", "offset", "size", "raw"])
        table.to_parquet(path / name / "refs.0.parq", engine="pyarrow")


def test_kerchunk_references_in_parquet(tmp_path):
    path = tmp_path / "references.parq"
    write_parquet(path, references(tmp_path)["refs"])
    assert is_reference(path)
    store = ens10.prepare(path, tmp_path / "s.zarr")
    np.testing.assert_array_equal(ens10.open_store(store, "sfc")["t2m"], SURFACE["t2m"])
    (row,) = inspect_path(path)
    assert (row.name, row.status) == ("t2m", "ok")


def _missing(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without_icechunk(folder, monkeypatch):
    for name in ("refs", "snapshots"):
        (folder / "repo" / name).mkdir(parents=True)
    assert is_icechunk(folder / "repo")
    monkeypatch.setattr(stores, "import_module", _missing)
    return folder / "repo"


def without_pyarrow(folder, monkeypatch):
    (folder / "a.parq").mkdir()
    metadata = {"metadata": {".zgroup": {"zarr_format": 2}}, "record_size": 10}
    (folder / "a.parq" / ".zmetadata").write_text(json.dumps(metadata))
    monkeypatch.setattr(stores, "import_module", _missing)
    return folder / "a.parq"


def without_the_codec_of_references(folder, monkeypatch):
    refs = references(folder)
    array = json.loads(refs["refs"]["t2m/.zarray"])
    array["filters"] = [{"id": "grib", "var": "t2m"}]
    refs["refs"]["t2m/.zarray"] = json.dumps(array)
    (folder / "a.json").write_text(json.dumps(refs))
    if find_spec("kerchunk") is not None:
        pytest.skip("kerchunk is installed")
    return folder / "a.json"


NOT_INSTALLED = {
    without_icechunk: r"needs icechunk\..* pip install icechunk$",
    without_pyarrow: r"Parquet needs pyarrow.*pip install .pyarrow",
    without_the_codec_of_references: r"needs kerchunk\. .*pip install kerchunk$",
}


@pytest.mark.parametrize("make", NOT_INSTALLED)
def test_what_is_not_installed_is_told(tmp_path, monkeypatch, make):
    path = make(tmp_path, monkeypatch)
    with pytest.raises(MissingExtraError, match=NOT_INSTALLED[make]):
        open_source(path)


def test_references_of_the_library(tmp_path):
    """References that kerchunk makes of a netCDF file."""
    hdf = pytest.importorskip("kerchunk.hdf")
    chunks = {"t2m": {"chunksizes": (1, 2, 3, 6, 8)}}
    SURFACE.to_netcdf(tmp_path / "a.nc", encoding=chunks)
    refs = hdf.SingleHdf5ToZarr(str(tmp_path / "a.nc")).translate()
    (tmp_path / "a.json").write_text(json.dumps(refs))
    got = open_source(tmp_path / "a.json")
    np.testing.assert_array_equal(got["t2m"], SURFACE["t2m"])


def test_a_json_file_beside_the_data_is_ignored(tmp_path):
    SURFACE.to_netcdf(tmp_path / "a.nc")
    (tmp_path / "readme.json").write_text('{"title": "forecasts"}')
    (tmp_path / "a.index").write_text("{}")
    assert not is_reference(tmp_path / "readme.json")
    np.testing.assert_array_equal(open_source(tmp_path)["t2m"], SURFACE["t2m"])
