"""Truth whose names are others than the forecasts', in a file of its own or in theirs."""

import numpy as np
import pytest
import xarray as xr

from ens10 import open_store, prepare, verify
from ens10.cli import main
from ens10.errors import ArgumentError, MissingDataError
from ens10.inspection import inspect_path
from ens10.source.names import Names
from ens10.store import forecasts

STARTS = np.array(["2016-01-01", "2016-01-11", "2016-01-21"], "datetime64[ns]")
LEADS = [24, 48]
NAMES = Names(dimensions={"init": "time", "lead": "step", "member": "number"})
TRUTH_NAMES = Names({"analysis": "t2m"}, {}, {"day": "time", "row": "latitude", "col": "longitude"})
YAML = "dimensions: {init: time, lead: step, member: number}\n"
TRUTH_YAML = "variables: {analysis: t2m}\ndimensions: {day: time, row: latitude, col: longitude}\n"


def ahead():
    members = 280 + np.random.default_rng(0).normal(size=(3, 2, 4, 2, 3))
    return xr.Dataset(
        {"t2m": (("init", "lead", "member", "lat", "lon"), members.astype("f4"))},
        {"init": STARTS, "lead": LEADS, "member": [1, 2, 3, 4], "lat": [10.0, 0.0],
         "lon": [0.0, 10.0, 20.0]},
    )  # fmt: skip


def analyses(day="day", row="row", col="col"):
    """Every day of January and February 2016: 260 K and the day's number."""
    days = np.arange("2016-01-01", "2016-03-01", dtype="datetime64[D]").astype("datetime64[ns]")
    field = 260 + np.arange(60)[:, None, None] + np.zeros((1, 2, 3))
    places = {row: [10.0, 0.0], col: [0.0, 10.0, 20.0]}
    return xr.Dataset({"analysis": ((day, row, col), field.astype("f4"))}, {day: days} | places)


def check(store):
    days = np.add.outer([0, 10, 20], [1, 2])
    truth = open_store(store, "truth").t2m
    want = np.broadcast_to((260 + days)[..., None, None], truth.shape)
    np.testing.assert_array_equal(truth, want)
    np.testing.assert_array_equal(
        forecasts(store).t2m, ahead().t2m.transpose("init", "lead", "member", "lat", "lon")
    )


@pytest.fixture
def files(tmp_path):
    ahead().to_netcdf(tmp_path / "f.nc")
    analyses().to_netcdf(tmp_path / "t.nc")
    (tmp_path / "n.yaml").write_text(YAML)
    (tmp_path / "tn.yaml").write_text(TRUTH_YAML)
    return tmp_path


def run(folder, *words):
    return main([str(word) for word in ("prepare", folder / "f.nc", folder / "s.zarr", *words)])


def test_each_file_has_a_mapping_of_its_own(files):
    truth = ("--truth", files / "t.nc", "--truth-names", files / "tn.yaml")
    assert run(files, "--names", files / "n.yaml", *truth) == 0
    check(files / "s.zarr")
    damaged = files / "s.zarr" / "truth" / "t2m" / "c" / "0" / "0" / "0" / "0"
    want = damaged.read_bytes()
    damaged.write_bytes(want[:-4] + b"rot!")
    found = verify(files / "s.zarr", source=files / "f.nc", truth=files / "t.nc", repair=True)
    assert found.repaired
    assert damaged.read_bytes() == want


def test_the_hint_names_the_option_of_the_file_that_it_is_about(files, capsys):
    assert run(files) == 1
    said = capsys.readouterr().err
    assert f"{files / 'f.nc'} has dimensions that mean nothing here" in said
    assert "with --names FILE" in said
    own = files / "own.yaml"
    own.write_text("variables: {analysis: t2m}\n")
    truth = ("--truth", files / "t.nc", "--truth-names", own)
    assert run(files, "--names", files / "n.yaml", *truth) == 1
    said = capsys.readouterr().err
    assert f"{files / 't.nc'}: 2 parts are missing: latitude; longitude" in said
    assert "with --truth-names FILE" in said
    own.write_text("dimensions: {row: latitude, col: longitude}\n")
    assert run(files, "--names", files / "n.yaml", *truth) == 1
    said = capsys.readouterr().err
    assert f"{files / 't.nc'} has dimensions that mean nothing here: day" in said
    assert "with --truth-names FILE" in said
    own.write_text("dimensions: {row: latitude, col: longitude, day: time}\n")
    assert run(files, "--names", files / "n.yaml", *truth) == 1
    assert "It holds analysis; map their names with --truth-names FILE" in capsys.readouterr().err


def test_a_mapping_of_the_truth_alone_is_no_mapping_of_the_forecasts(tmp_path):
    tidy = ahead().rename(init="time", lead="step", member="number")
    prepare(tidy, tmp_path / "s.zarr", truth=analyses(), truth_names=TRUTH_NAMES)
    check(tmp_path / "s.zarr")


@pytest.mark.parametrize("day", ["day", "time", "valid_time"])
def test_truth_by_valid_date_in_the_file_of_the_forecasts(tmp_path, day):
    """By the shared mapping, whatever its time is called, and by one of its own."""
    both = xr.merge([ahead(), analyses(day, "lat", "lon")])
    both.to_netcdf(tmp_path / "f.nc")
    axis = {"day": "time"} if day == "day" else {}
    shared = Names({}, {"analysis": "t2m"}, NAMES.dimensions | axis)
    prepare(tmp_path / "f.nc", tmp_path / "a.zarr", names=shared)
    check(tmp_path / "a.zarr")
    own = Names({"analysis": "t2m"}, {}, axis)
    prepare(tmp_path / "f.nc", tmp_path / "b.zarr", names=NAMES, truth_names=own)
    check(tmp_path / "b.zarr")


def test_truth_on_the_start_dates_is_told_that_it_is_none_of_the_valid_dates(tmp_path):
    both = ahead()
    both["analysis"] = both.t2m.isel(lead=0, member=0, drop=True)
    names = Names({}, {"analysis": "t2m"}, NAMES.dimensions)
    with pytest.raises(MissingDataError, match="6 parts are missing") as caught:
        prepare(both, tmp_path / "s.zarr", names=names)
    said = str(caught.value)
    assert "The truth's own dates, 2016-01-01T00 to 2016-01-21T00, are none of them" in said
    assert said.endswith("a time dimension of valid dates, or the forecasts' start and lead "
                         "dimensions both.")  # fmt: skip


REFUSED = {
    "a mapping of the truth and no truth": (
        ahead(), {"names": NAMES, "truth_names": NAMES}, "truth_names: no truth is given",
    ),
    "two names of one dimension": (
        ahead().assign(lag=(("day", "lat", "lon"), np.zeros((2, 2, 3))), day=STARTS[:2]),
        {"names": Names(dimensions={**NAMES.dimensions, "day": "time"})},
        "day and init of the dataset would both be time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_mappings_that_are_refused(tmp_path, which):
    source, names, words = REFUSED[which]
    with pytest.raises(ArgumentError, match=words):
        prepare(source, tmp_path / "s.zarr", **names)


def test_a_grid_of_two_dimensions_is_told_to_be_interpolated(tmp_path):
    places = {name: (("y", "x"), np.zeros((2, 3))) for name in ("lat", "lon")}
    held = xr.Dataset({"t2m": (("time", "y", "x"), np.full((3, 2, 3), 280.0))}, {"time": STARTS})
    held.assign_coords(places).to_netcdf(tmp_path / "a.nc")
    (row,) = inspect_path(tmp_path / "a.nc")
    assert "interpolate it to rows and columns" in row.note
