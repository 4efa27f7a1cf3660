"""Files of stations: which are recognised, how they are paired, and what is refused."""

import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ens10
from ens10.convert import prepare
from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError
from ens10.extras import MissingExtraError
from ens10.inspection import inspect_path
from ens10.loader import Batches, Patches, Points
from ens10.source import open_source
from ens10.source.names import Names
from ens10.stations import as_row, as_stations, recognise_stations

STARTS = pd.date_range("2015-01-01T12", periods=3, freq="365D")
NAMES = ["a", "b", "c"]
PLACES = {"lat": [10.0, 20.0, 30.0], "lon": [7.0, -5.0, 6.0], "altitude": [100.0, 0.0, 2000.0]}


def forecasts():
    """Values that encode their coordinates: 280 + day / 10 + member / 100 + station / 1000."""
    day, member, station = np.ix_(range(3), range(2), range(3))
    values = (280 + day / 10 + member / 100 + station / 1000).astype(np.float32)
    places = {name: ("station", values) for name, values in PLACES.items()}
    held = xr.Dataset({"t2m": (("time", "number", "station"), values, {"units": "K"})})
    return held.assign_coords(time=STARTS, step=24, station=NAMES, **places)


def observations():
    truth = forecasts().isel(number=0, drop=True).drop_vars(["step", "lat", "lon", "altitude"])
    return truth.assign_coords(time=STARTS + pd.Timedelta("24h"))


@pytest.mark.parametrize(("unit", "metres"), [("km", 1000.0), ("feet", 0.3048), ("fathom", 1.0)])
def test_altitudes_are_converted_to_metres(unit, metres):
    """Unknown units stay, for what reads altitudes to refuse them."""
    data = forecasts()
    data["altitude"].attrs["units"] = unit
    row = recognise_stations(data, "file", require_location=True)
    np.testing.assert_allclose(row["altitude"], metres * np.array(PLACES["altitude"]))
    assert row["altitude"].attrs["units"] == ("fathom" if unit == "fathom" else "m")


CF = {"y": "latitude", "x": "longitude", "z": "altitude"}
RENAMED = {
    "names of EUPPBench": {
        "station": "station_id", "lat": "station_latitude", "lon": "station_longitude",
        "altitude": "station_altitude",
    },
    "another dimension": {"station": "place", "lat": "latitude", "lon": "longitude"},
    "roles of CF": {"lat": "y", "lon": "x", "altitude": "z"},
}  # fmt: skip


@pytest.mark.parametrize("kind", RENAMED)
def test_names_of_stations(tmp_path, kind):
    held = forecasts().rename(RENAMED[kind])
    for name in set(CF) & set(held.coords):
        held[name].attrs["standard_name"] = CF[name]
    held.to_netcdf(tmp_path / "a.nc")
    found = as_stations(open_source(tmp_path / "a.nc"))
    assert found["t2m"].dims == ("time", "step", "number", "station")
    for name, values in PLACES.items():
        assert found[name].to_numpy().tolist() == values
    if kind != "another dimension":
        assert found["station"].to_numpy().tolist() == NAMES
    (row,) = inspect_path(tmp_path / "a.nc")
    assert (row.grid, row.status) == ("3 stations", "ok")


def test_names_by_a_mapping(tmp_path):
    table = {"station": "s", "lat": "breite", "lon": "laenge", "altitude": "hoehe"}
    forecasts().rename(table).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(MissingDataError, match=r"station|latitude"):
        open_source(tmp_path / "a.nc")
    names = Names(dimensions={theirs: ours for ours, theirs in table.items()})
    assert (
        as_stations(open_source(tmp_path / "a.nc", names))["lon"].to_numpy().tolist()
        == PLACES["lon"]
    )


def test_truth_is_paired_by_the_names_of_the_stations(tmp_path):
    store = prepare(forecasts(), tmp_path / "s.zarr", truth=observations().isel(station=[2, 0, 1]))
    truth = ens10.open_store(store, "truth")
    np.testing.assert_array_equal(truth["t2m"].squeeze("step"), observations()["t2m"])
    assert truth["altitude"].to_numpy().tolist() == PLACES["altitude"]
    batches = Batches(store, "t2m", split="test", extras=["location", "altitude"], protocol=SPLIT)
    (batch,) = batches
    assert batch["weights"].tolist() == [[[1.0, 1.0, 1.0]]]
    phi, lam = np.deg2rad(PLACES["lat"]), np.deg2rad(PLACES["lon"])
    place = [np.sin(phi), np.cos(phi) * np.sin(lam), np.cos(phi) * np.cos(lam)]
    wanted = np.stack([*place, np.array(PLACES["altitude"]) / 1000])
    np.testing.assert_allclose(batch["features"][0, 2:, 0], wanted, atol=1e-7)
    (points,) = Batches(store, "t2m", split="test", kind=Points(shuffle=False), protocol=SPLIT)
    assert points["longitude"].tolist() == PLACES["lon"]


SPLIT = ens10.protocol.Protocol(train=[2015], val=[2016], test=[2017])


def on_a_grid():
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), np.full((3, 2, 3), 280.0))},
        {
            "time": STARTS + pd.Timedelta("24h"),
            "latitude": [20.0, 10.0],
            "longitude": PLACES["lon"],
        },
    )


REFUSED = {
    "truth that lacks a station": (
        forecasts(), observations().isel(station=[0, 2]),
        MissingDataError, r"truth.*station b.*or drop .*drop_sel\(station=\[",
    ),
    "a station twice": (
        forecasts().assign_coords(station=["a", "b", "a"]), None, FileError, "more than once: a",
    ),
    "no places": (
        forecasts().drop_vars(["lat", "lon"]), None,
        MissingDataError, r"lat of the stations; lon of.*--names",
    ),
    "truth on a grid": (
        forecasts(), on_a_grid(),
        ArgumentError, "truth have a grid and the forecasts have stations",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_refused(tmp_path, which):
    source, truth, error, words = REFUSED[which]
    with pytest.raises(error, match=words):
        prepare(source, tmp_path / "s", truth=truth)


def test_stations_that_one_side_lacks(tmp_path):
    few = forecasts().drop_sel(station=["b"])
    store = prepare(few, tmp_path / "dropped", truth=observations().isel(station=[0, 2]))
    assert ens10.open_store(store, "sfc")["station"].to_numpy().tolist() == ["a", "c"]
    with pytest.warns(DataNote, match=r"^1 of 3 stations of the truth have no forecasts.*out: b$"):
        prepare(few, tmp_path / "few", truth=observations())


def test_patches_of_stations(tmp_path):
    store = prepare(forecasts(), tmp_path / "s", truth=observations())
    with pytest.raises(ArgumentError, match="no patches"):
        Batches(store, "t2m", kind=Patches((1, 2)), protocol=SPLIT)


def test_a_row_and_back_is_the_same():
    held = forecasts().assign(count=("time", [1, 2, 3]))
    xr.testing.assert_identical(as_stations(as_row(held)), held)
    assert as_row(held)["t2m"].dims == ("time", "number", "latitude", "longitude")
    assert as_row(held)["count"].dims == ("time",)


def euppbench(*, hindcasts):
    """Forecasts and observations in EUPPBench's layout; values encode run, year, step, member.

    The dimensions and coordinates are those of stations_ensemble_(re)forecasts_surface_*.zarr and
    stations_(re)forecasts_observations_surface_*.zarr.
    """
    runs = pd.DatetimeIndex(["2017-01-02", "2017-03-02"])
    steps = pd.to_timedelta([0, 6, 12], unit="h").to_numpy()
    years = np.arange(1, 4) if hindcasts else np.array([3])
    sizes = {"station_id": 2, "time": 2, "number": 3, "year": len(years), "step": 3, "surface": 1}
    parts = np.ix_(*map(np.arange, sizes.values()))
    weights = (0.001, 1.0, 0.01, 10.0, 0.1, 0.0)
    values = 250.0 + sum(w * p for w, p in zip(weights, parts, strict=True))
    t2m = xr.DataArray(values.astype(np.float32), dims=list(sizes), attrs={"units": "K"})
    first = 2013 if hindcasts else 2014
    starts = np.array([[run.replace(year=first + y) for y in years] for run in runs], "M8[ns]")
    valid = xr.DataArray(starts[:, :, None] + steps, dims=("time", "year", "step"))
    common = {
        "station_id": [81, 105], "time": runs, "step": steps, "year": years,
        "station_name": ("station_id", ["Uccle", "Säntis"]),
    }  # fmt: skip
    places = {
        "latitude": [50.8, 47.2], "longitude": [4.35, 9.34], "altitude": [100.0, 2502.0],
    }  # fmt: skip
    of_file = {f"station_{k}": ("station_id", v) for k, v in places.items()}
    of_model = {f"model_{k}": ("station_id", np.zeros(2)) for k in places}
    forecasts = t2m.assign_coords(
        number=[0, 1, 2], surface=[0.0], valid_time=valid, **common, **of_file, **of_model
    )
    truth = t2m.isel(number=1, surface=0).transpose("time", "year", "step", "station_id")
    truth = truth.assign_coords(**common, **{k: ("station_id", v) for k, v in places.items()})
    if not hindcasts:
        forecasts, truth = forecasts.isel(year=0, drop=True), truth.isel(year=0, drop=True)
    return forecasts.to_dataset(name="t2m"), truth.to_dataset(name="t2m")


@pytest.mark.parametrize("hindcasts", [True, False])
def test_the_layout_of_euppbench(tmp_path, hindcasts):
    held, truth = euppbench(hindcasts=hindcasts)
    held.chunk(station_id=1).to_zarr(tmp_path / "fc.zarr", zarr_format=2, consolidated=True)
    truth.to_zarr(tmp_path / "obs.zarr", zarr_format=2, consolidated=True)
    store = prepare(tmp_path / "fc.zarr", tmp_path / "s.zarr", truth=tmp_path / "obs.zarr")
    found, observed = ens10.open_store(store, "sfc"), ens10.open_store(store, "truth")
    years = ["2014", "2015", "2016"] if hindcasts else ["2017"]
    assert [str(t)[:10] for t in found["time"].to_numpy()] == [
        f"{year}-{day}" for year in years for day in ("01-02", "03-02")
    ]
    assert found["t2m"].dims == ("time", "step", "number", "station")
    assert found["station"].to_numpy().tolist() == [81, 105]
    assert found["altitude"].to_numpy().tolist() == [100.0, 2502.0]
    run, year, step, number, station = 1, len(years) - 1, 2, 1, 0
    one = found["t2m"].isel(time=-1, step=step, number=number, station=station)
    assert float(one) == pytest.approx(250 + run + 10 * year + 0.1 * step + 0.01, abs=1e-4)
    np.testing.assert_array_equal(observed["t2m"], found["t2m"].isel(number=1))


def tables(folder, *, suffix=".csv", names=None, **options):
    """The forecasts and observations as long tables."""
    for name, held in (("fc", forecasts()), ("obs", observations())):
        frame = held.to_dataframe().reset_index()
        frame["station"] = frame["station"].map({"a": "06447", "b": "06451", "c": "10384"})
        frame = frame.sample(frac=1.0, random_state=0).rename(columns=names or {})
        path = folder / f"{name}{suffix}"
        frame.to_csv(path, index=False, **options) if suffix == ".csv" else frame.to_parquet(path)
    return folder / f"fc{suffix}", folder / f"obs{suffix}"


def same_as_from_netcdf(store):
    found, truth = (ens10.open_store(store, kind).load() for kind in ("sfc", "truth"))
    assert found["station"].to_numpy().tolist() == ["06447", "06451", "10384"]
    np.testing.assert_array_equal(found["t2m"].squeeze("step"), forecasts()["t2m"])
    np.testing.assert_array_equal(truth["t2m"].squeeze("step"), observations()["t2m"])
    for name, values in PLACES.items():
        assert found[name].to_numpy().tolist() == values


def test_a_table_in_long_form(tmp_path):
    table, truth = tables(tmp_path)
    same_as_from_netcdf(prepare(table, tmp_path / "s.zarr", truth=truth))
    (row,) = inspect_path(table)
    assert (row.grid, row.status, row.members) == ("3 stations", "ok", 2)


def test_a_table_with_other_names(tmp_path):
    ours = {"station": "stn", "time": "init", "step": "lead", "number": "member", "lat": "y"}
    table, truth = tables(tmp_path, names={**ours, "t2m": "temp"}, sep=";")
    dimensions = {theirs: name for name, theirs in ours.items()}
    names = Names(variables={"temp": "t2m"}, dimensions=dimensions)
    same_as_from_netcdf(
        prepare(table, tmp_path / "s.zarr", truth=truth, names=names, truth_names=names)
    )
    with pytest.raises(MissingDataError, match=r"column station.*temp.*dimensions.*--names"):
        open_source(table)


def test_observations_beside_every_member(tmp_path):
    table, truth = tables(tmp_path)
    frame, observed = (pd.read_csv(path, dtype={"station": str}) for path in (table, truth))
    frame["valid_time"] = pd.to_datetime(frame["time"]) + pd.Timedelta("24h")
    observed["valid_time"] = pd.to_datetime(observed["time"])
    keys = ["station", "valid_time"]
    both = frame.merge(observed[[*keys, "t2m"]].rename(columns={"t2m": "obs"}), on=keys)
    both.to_csv(tmp_path / "both.csv", index=False)
    names = Names(variables={"t2m": "t2m"}, truth={"obs": "t2m"})
    same_as_from_netcdf(prepare(tmp_path / "both.csv", tmp_path / "s.zarr", names=names))
    both.drop(columns="obs").to_csv(tmp_path / "today.csv", index=False)
    opened = [open_source(tmp_path / f"{name}.csv", names) for name in ("both", "today")]
    xr.testing.assert_identical(*opened)
    with pytest.raises(MissingDataError, match="1 part is missing: obs"):
        prepare(tmp_path / "today.csv", tmp_path / "t.zarr", names=names)


def test_rows_that_are_missing(tmp_path):
    table, _ = tables(tmp_path)
    frame = pd.read_csv(table, dtype={"station": str})
    one = (frame["time"] == frame["time"].min()) & (frame["number"] == 1)
    frame[~(one & (frame["station"] == "06451"))].to_csv(table, index=False)
    held = as_stations(open_source(table))["t2m"].isel(time=0, step=0)
    assert np.isnan(held).to_numpy().tolist() == [[False] * 3, [False, True, False]]
    frame[~one].to_csv(table, index=False)
    with pytest.raises(MissingDataError, match=r"1 part is missing: time 2015-01-01T12.*number 1"):
        open_source(table)
    assert open_source(table, missing="skip").sizes["time"] == 2
    assert open_source(table, missing="nan").sizes["time"] == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: pd.concat([f, f[:1]]), r"several rows of time .*, station \d+"),
        (lambda f: f.assign(lat=np.arange(len(f))), "station 06447 has several values of lat"),
    ],
    ids=["a row twice", "several latitudes"],
)
def test_tables_that_contradict_themselves(tmp_path, change, words):
    table, _ = tables(tmp_path)
    change(pd.read_csv(table, dtype={"station": str})).to_csv(table, index=False)
    with pytest.raises(FileError, match=words):
        open_source(table)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"of the extra tables\. .*: pip install 'pyarrow>="
    ):
        open_source(tmp_path / "a.parquet")


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    table, truth = tables(tmp_path, suffix=".parquet")
    same_as_from_netcdf(prepare(table, tmp_path / "s.zarr", truth=truth))
