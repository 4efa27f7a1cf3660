"""Seasonal forecasts in the layout of the IRI data library: months as times and as lead times."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

from ens10 import open_store
from ens10.cli import main
from ens10.errors import ArgumentError, FileError
from ens10.export import export
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.source import open_source
from ens10.source.names import Names, read_names
from ens10.source.times import after_months
from ens10.store import forecasts

MAPPING = "dimensions: {S: time, L: step, M: number, X: longitude, Y: latitude}\n"
AXES = {"S": "time", "L": "step", "M": "number", "X": "longitude", "Y": "latitude"}
NAMES = Names({"tref": "t2m"}, {}, AXES)
TRUTH_NAMES = Names({"obs": "t2m"}, {}, {"T": "time", "X": "longitude", "Y": "latitude"})
RULES = Protocol(test=[2004], val=[2003], weighting="none")
LEADS = (0.5, 1.5, 2.5)
STARTS = [480 + 12 * year + month for year in range(6) for month in (1, 10)]  # 1 Feb., 1 Nov.
SINCE = "months since 1960-01-01"


def axis(file, name, values, **attributes):
    file.createDimension(name, len(values))
    held = file.createVariable(name, "f4", (name,))
    held.setncatts(attributes)
    held[:] = values


def write_iri(path, *, calendar="360", units=SINCE, leads=LEADS, lead_units="months"):
    """Forecasts over S, L, M and truth over T, whose values are their months since 1960."""
    rng = np.random.default_rng(0)
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        axis(file, "Y", [0.0, 10.0], units="degree_north")
        axis(file, "X", [0.0, 10.0, 20.0], units="degree_east")
        axis(file, "L", leads, units=lead_units, standard_name="forecast_period")
        axis(file, "S", STARTS, units=units, calendar=calendar)
        axis(file, "M", [1.0, 2.0, 3.0, 4.0], units="unitless")
        axis(file, "T", np.arange(480, 560) + 0.5, units=units, calendar=calendar)
        members = file.createVariable("tref", "f4", ("S", "L", "M", "Y", "X"))
        centre = np.add.outer(STARTS, leads)[..., None, None, None]
        members[:] = centre / 2 + rng.normal(size=(len(STARTS), len(leads), 4, 2, 3))
        truth = file.createVariable("obs", "f4", ("T", "Y", "X"))
        truth[:] = (np.arange(480, 560) + 0.5)[:, None, None] / 2 + np.arange(6).reshape(2, 3)
        members.units = truth.units = "K"
    return path


def test_months_of_the_calendar():
    def after(start, months):
        return str(after_months(np.array(start, "datetime64[s]"), months))

    assert after("2001-01-31T06", 1) == "2001-02-28T06:00:00"
    assert after("2000-11-01", 0.5) == "2000-11-16T00:00:00"
    assert after("2000-11-01", 2.5) == "2001-01-16T12:00:00"  # the middle of 31 days
    assert after("2001-01-01", 1.5) == "2001-02-15T00:00:00"  # of 28 days
    assert after("2000-11-16", 0.5) == "2000-12-01T00:00:00"
    assert after("2000-03-01", -0.5) == "2000-02-15T12:00:00"  # of 29 days
    assert after("2000-01-31", 0.25) == "2000-02-07T06:00:00"  # a quarter of 29 days


@pytest.mark.parametrize("calendar", ["360", "360_day", "standard"])
def test_times_in_months_are_of_the_calendar(tmp_path, calendar):
    got = open_source(write_iri(tmp_path / "a.nc", calendar=calendar), NAMES)
    assert got.time.to_numpy()[:2].astype("M8[D]").astype(str).tolist() == [
        "2000-02-01",
        "2000-11-01",
    ]
    assert got.valid_time.to_numpy()[:2].astype("M8[h]").astype(str).tolist() == [
        ["2000-02-15T12", "2000-03-16T12", "2000-04-16T00"],
        ["2000-11-16T00", "2000-12-16T12", "2001-01-16T12"],
    ]
    assert (got.step.units, got.step.to_numpy().tolist()) == ("months", list(LEADS))
    truth = open_source(tmp_path / "a.nc", TRUTH_NAMES, optional_dimensions=True)
    assert str(truth.time.to_numpy()[0])[:13] == "2000-01-16T12"


def test_times_in_months_of_a_zarr_store(tmp_path):
    raw = xr.open_dataset(write_iri(tmp_path / "a.nc"), decode_times=False).load()
    raw.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=True)
    want = open_source(tmp_path / "a.nc", NAMES).compute()
    xr.testing.assert_equal(open_source(tmp_path / "a.zarr", NAMES).compute(), want)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"units": "fortnights since 1960-01-01"}, "S in 'fortnights since .*'360'.*Write them in"),
        ({"units": "days since 1960-01-01", "calendar": "360"}, "S in 'days since .*'360'"),
        ({"units": "days since 1960-01-01", "calendar": "360_day"}, "360_day.*Write them in"),
    ],
)
def test_other_times_are_refused_with_a_remedy_that_exists(tmp_path, options, reason):
    with pytest.raises((FileError, ArgumentError), match=reason) as caught:
        open_source(write_iri(tmp_path / "a.nc", **options), NAMES)
    assert "decode_times" not in str(caught.value)


def test_lead_times_in_other_units(tmp_path):
    got = open_source(write_iri(tmp_path / "a.nc", leads=(10, 20), lead_units="days"), NAMES)
    assert (got.step.units, got.step.to_numpy().tolist()) == ("h", [240, 480])
    with pytest.raises(ArgumentError, match=r"a\.nc are in 'seasons'.* hours, days or months"):
        open_source(write_iri(tmp_path / "a.nc", lead_units="seasons"), NAMES)


def test_the_first_step_may_be_half_a_month(tmp_path):
    text = f"{MAPPING}variables: {{tref: t2m}}\nstep: {{first: 0.5}}\n"
    (tmp_path / "n.yaml").write_text(text)
    got = open_source(write_iri(tmp_path / "a.nc"), read_names(tmp_path / "n.yaml"))
    starts = got.valid_time.to_numpy()[0].astype("M8[D]").astype(str).tolist()
    assert starts == ["2000-02-01", "2000-03-01", "2000-04-01"]


@pytest.fixture(scope="module")
def seasonal(tmp_path_factory):
    """The file, and its store: forecasts and truth in one file, the truth without leads."""
    folder = tmp_path_factory.mktemp("seasonal")
    write_iri(folder / "a.nc")
    (folder / "n.yaml").write_text(f"{MAPPING}variables: {{tref: t2m}}\n")
    (folder / "t.yaml").write_text("variables: {obs: t2m}\ndimensions: {T: time, X: longitude, "
                                   "Y: latitude}\n")  # fmt: skip
    options = ["--names", folder / "n.yaml", "--truth-names", folder / "t.yaml"]
    assert main([str(a) for a in ("prepare", folder / "a.nc", folder / "s.zarr", *options)]) == 0
    return folder


def numbers(folder):
    """Members (start, lead, member, row, column) and truth (start, lead, row, column)."""
    raw = xr.open_dataset(folder / "a.nc", decode_times=False)
    places = np.add.outer(STARTS, LEADS) - 480.5
    return raw.tref.to_numpy()[..., ::-1, :], raw.obs.to_numpy()[places.astype(int)][..., ::-1, :]


def test_half_months_from_file_to_store(seasonal):
    members, truth = numbers(seasonal)
    np.testing.assert_array_equal(forecasts(seasonal / "s.zarr").t2m, members)
    held = open_store(seasonal / "s.zarr", "truth")
    np.testing.assert_array_equal(held.t2m, truth)
    assert (held.step.to_numpy().tolist(), held.step.units) == (list(LEADS), "months")
    np.testing.assert_array_equal(truth[:, 2, 0, 0] * 2, np.array(STARTS) + 2.5 + 2 * 3)


def test_half_months_from_store_to_batches(seasonal):
    members, truth = numbers(seasonal)
    batches = Batches(seasonal / "s.zarr", "t2m@2.5", ["t2m", "t2m@0.5"], "test", members=True,
                      protocol=RULES, normalise=False)  # fmt: skip
    assert batches.channels == ("t2m:mean", "t2m@0.5:mean", "t2m:std", "t2m@0.5:std")
    (first, *_) = list(batches)
    valid = open_store(seasonal / "s.zarr", "truth").valid_time.sel(step=2.5).to_numpy()
    n = valid.astype("M8[s]").astype(int).tolist().index(first["dates"][0])
    np.testing.assert_array_equal(first["members"][0], members[n, 2])
    np.testing.assert_array_equal(first["target"][0], truth[n, 2])
    np.testing.assert_allclose(first["features"][0, 1], members[n, 0].mean(axis=0), rtol=1e-6)
    with pytest.raises(ArgumentError, match=r"steps \[0.5, 1.5, 2.5\], not at 2"):
        Batches(seasonal / "s.zarr", "t2m@2", protocol=RULES)


def test_half_months_are_exported_and_chosen(seasonal, tmp_path):
    members, _ = numbers(seasonal)
    path = export(seasonal / "s.zarr", tmp_path / "a.nc", steps=[2.5])
    got = open_source(path)
    assert (got.step.to_numpy().tolist(), got.step.units) == ([2.5], "months")
    np.testing.assert_array_equal(got.t2m[:, 0], members[:, 2])
    np.testing.assert_array_equal(got.valid_time, forecasts(seasonal / "s.zarr").valid_time[:, 2:])
    with pytest.raises(ArgumentError, match="GRIB needs whole hours, not months"):
        export(seasonal / "s.zarr", tmp_path / "a.grib")
    options = ["--names", seasonal / "n.yaml", "--steps", "0.5", "2.5"]
    assert main([str(a) for a in ("prepare", seasonal / "a.nc", tmp_path / "s", *options)]) == 0
    np.testing.assert_array_equal(forecasts(tmp_path / "s").step, [0.5, 2.5])
