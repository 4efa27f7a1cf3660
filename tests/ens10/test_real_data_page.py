"""The commands of docs/real_data.md run on imitations of the archives, at the published paths."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from docblocks import commands, python

import ens10
from ens10.catalog import month_days
from ens10.cli import main
from ens10.loader import Batches
from ens10.protocol import protocol_of
from ens10.synthetic import World

PAGE = "docs/real_data.md"
GOOGLE = "gs://weatherbench2/datasets/"
EUMETNET = (
    "https://object-store.os-api.cci1.ecmwf.int/"
    "eumetnet-postprocessing-benchmark-1st-phase-training-dataset/"
)
LAT, LON = np.arange(-78.75, 80.0, 22.5), np.arange(0.0, 360.0, 45.0)
LEADS = pd.to_timedelta([24, 48], "h")


def places(text, folder):
    """A command's words with the addresses of local imitations instead of the archives'."""
    for base in (GOOGLE, EUMETNET):
        text = text.replace(base, f"{folder}/")
    return text


def field(sizes, *, mean, seed):
    values = np.random.default_rng(seed).normal(mean, 0.01 * mean, list(sizes.values()))
    return xr.DataArray(values.astype("f4"), dims=list(sizes))


def write(dataset, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.chunk(dict.fromkeys(dataset.dims, -1) | {"time": 1}).to_zarr(
        path, zarr_format=2, consolidated=True
    )


def weatherbench(folder):
    """IFS ENS and ERA5: long names, no units; ERA5 has more levels and runs from north to south."""
    starts = pd.date_range("2018-01-01", "2022-12-31", freq="146D")
    axes = {"time": starts, "number": np.arange(1, 5, dtype="i4"), "prediction_timedelta": LEADS,
            "level": np.array([500, 700, 850], "i4"), "longitude": LON,
            "latitude": LAT}  # fmt: skip
    valid = np.unique(np.add.outer(starts.to_numpy(), LEADS.to_numpy()))
    era5 = {"time": valid, "level": np.array([300, 500, 700, 850]), "latitude": LAT[::-1],
            "longitude": LON}  # fmt: skip
    names = {"2m_temperature": 280, "10m_u_component_of_wind": 5, "10m_v_component_of_wind": 5,
             "10m_wind_speed": 8, "total_precipitation_6hr": 0.001, "geopotential": 5e4,
             "temperature": 255, "wind_speed": 20}  # fmt: skip
    upper = ("geopotential", "temperature", "wind_speed")
    for coords, path in (
        (axes, "ifs_ens/2018-2022-64x32_equiangular_conservative.zarr"),
        (era5, "era5/1959-2023_01_10-6h-64x32_equiangular_conservative.zarr"),
    ):
        fields = {}
        for seed, (name, mean) in enumerate(names.items()):
            dims = {k: len(v) for k, v in coords.items() if name in upper or k != "level"}
            fields[name] = field(dims, mean=mean, seed=seed)
        write(xr.Dataset(fields, coords), folder / path)


def euppbench(folder):
    """Reforecasts and what was observed, on the grid and at stations; truth has a member too."""
    runs = pd.DatetimeIndex(["2017-03-02"])
    years = np.arange(1, 21)
    steps = pd.to_timedelta([0, 24, 48], "h")
    starts = np.array([[run.replace(year=1996 + y) for y in years] for run in runs], "M8[ns]")
    valid = xr.DataArray(starts[:, :, None] + steps.to_numpy(), dims=("time", "year", "step"))
    grid = {"latitude": np.arange(53.5, 52.5, -0.25), "longitude": np.arange(2.5, 3.3, 0.25)}
    along = {"time": runs, "year": years, "step": steps, "valid_time": valid}

    def grids(kind, names, level):
        ahead = "gridded_data/gridded_ensemble_reforecasts_" + kind
        observed = "gridded_data/gridded_reforecasts_observations_" + kind
        for n, path in ((3, ahead), (1, observed)):
            sizes = {"time": 1, "number": n, "year": 20, "step": 3, level[0]: 1, **{
                k: len(v) for k, v in grid.items()}}  # fmt: skip
            fields = {}
            for seed, (name, (mean, unit)) in enumerate(names.items()):
                fields[name] = field(sizes, mean=mean, seed=seed).assign_attrs(units=unit)
            extra = {"number": np.arange(n), level[0]: [level[1]]}
            write(xr.Dataset(fields, along | grid | extra), folder / "data" / f"{path}.zarr")

    wind = (5.0, "m s**-1")
    grids("surface", {"t2m": (280.0, "K"), "u10": wind, "v10": wind}, ("surface", 0.0))
    grids("pressure_500", {"z": (5.5e4, "m**2 s**-2")}, ("isobaricInhPa", 500.0))
    stations = {"station_id": [81, 105, 164], "station_name": ("station_id", ["a", "b", "c"])}
    where = {"latitude": [50.8, 47.2, 49.0], "longitude": [4.4, 9.3, 8.0],
             "altitude": [100.0, 2502.0, 30.0]}  # fmt: skip
    sizes = {"station_id": 3, "time": 1, "number": 3, "year": 20, "step": 3, "surface": 1}
    t2m = field(sizes, mean=280.0, seed=9).assign_attrs(units="K")
    of_file = {f"station_{k}": ("station_id", v) for k, v in where.items()}
    common = stations | {k: along[k] for k in ("time", "year", "step")}
    ahead = t2m.assign_coords(common | of_file | {"number": [0, 1, 2], "valid_time": valid})
    truth = t2m.isel(number=0, surface=0).transpose("time", "year", "step", "station_id")
    truth = truth.assign_coords(common | {k: ("station_id", v) for k, v in where.items()})
    truth[0, 0, 0, 0] = np.nan
    place = folder / "data" / "stations_data"
    write(
        ahead.to_dataset(name="t2m"), place / "stations_ensemble_reforecasts_surface_germany.zarr"
    )
    observed = place / "stations_reforecasts_observations_surface_germany.zarr"
    write(truth.to_dataset(name="t2m"), observed)


def run(command, archives):
    assert main([places(word, archives) for word in command]) == 0, command


OF_ENS10 = [words for words in commands(PAGE) if words[1] in ("raw", "era5")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the commands on Zarr stores and the Python of the page were run."""
    path = tmp_path_factory.mktemp("real")
    archives = path / "archives"
    weatherbench(archives)
    euppbench(archives)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for command in commands(PAGE):
            if command not in OF_ENS10:
                run(command, archives)
        (text,) = python(PAGE)
        host, bucket = EUMETNET[: EUMETNET.index("eumetnet")], EUMETNET.split("/")[-2] + "/"
        assert host in text
        assert bucket in text
        exec(text.replace(host, f"{archives}/").replace(bucket, ""), {})
    return path


def test_which_commands_are_run():
    assert [command[:2] for command in OF_ENS10] == [
        ["download", "raw"], ["download", "era5"], ["prepare", "raw"],
    ]  # fmt: skip
    assert [command[0] for command in commands(PAGE)] == ["download"] * 2 + ["prepare"] * 4


@pytest.mark.slow
def test_ens10(tmp_path, monkeypatch):
    World("4x8", [2000], month_days(), ["t2m", "u10", "v10"], members=2, steps=(48,)).write(
        tmp_path / "server"
    )
    shutil.move(tmp_path / "server" / "truth", tmp_path / "era5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENS10_BASE_URL", (tmp_path / "server").as_uri())
    for command in OF_ENS10:
        run(command, tmp_path)
    assert (tmp_path / "request.py").is_file()
    assert len(list((tmp_path / "raw").iterdir())) == len(month_days()) + 1
    got = ens10.open_store(tmp_path / "ens10.zarr", "sfc")
    assert set(got.data_vars) == {"t2m", "u10", "v10"}
    assert dict(got.sizes) == {
        "time": len(month_days()), "step": 1, "number": 2, "latitude": 4, "longitude": 8,
    }  # fmt: skip


def test_weatherbench(folder):
    store = folder / "wb2.zarr"
    ahead = xr.open_zarr(next(folder.glob("archives/ifs_ens/*.zarr")), decode_timedelta=True)
    era5 = xr.open_zarr(next(folder.glob("archives/era5/*conservative.zarr")))
    surface, upper = (ens10.open_store(store, kind) for kind in ("sfc", "pl"))
    truth = ens10.open_store(store, "truth")
    assert (set(surface.data_vars), set(upper.data_vars)) == ({"t2m", "u10", "v10"}, {"z", "t"})
    np.testing.assert_array_equal(upper["level"], [500, 850])
    assert surface["step"].to_numpy().tolist() == [48]
    there = ahead["2m_temperature"].isel(prediction_timedelta=1, latitude=slice(None, None, -1))
    order = ("time", "number", "latitude", "longitude")
    np.testing.assert_array_equal(surface["t2m"].squeeze("step"), there.transpose(*order))
    at = ahead["time"].to_numpy() + LEADS[1].to_timedelta64()
    then = era5["geopotential"].sel(time=at, level=[500, 850])
    np.testing.assert_array_equal(truth["z"].squeeze("step"), then)
    dates = [
        len(Batches(store, "t2m", split=split, protocol=protocol_of("clean")).dates)
        for split in ("train", "val", "test")
    ]
    assert dates == [5, 3, 5]


def prepare_wb2(folder, store, *options):
    """Run the page's command with another store and more options."""
    words = next(command for command in commands(PAGE) if "wb2.zarr" in command)
    words = [str(store) if word == "wb2.zarr" else word for word in words]
    run([*words, *options], folder / "archives")
    return ens10.open_store(store, "sfc")


def test_a_month_and_some_members_of_weatherbench(folder, tmp_path):
    some = prepare_wb2(folder, tmp_path / "some.zarr", "--dates", "2018-01", "--members", "2")
    whole = ens10.open_store(folder / "wb2.zarr", "sfc")
    assert (some.sizes["time"], some.sizes["number"]) == (1, 2)
    xr.testing.assert_equal(some["t2m"], whole["t2m"].isel(time=[0], number=[0, 1]))


@pytest.mark.slow
def test_train_and_score(folder, monkeypatch):
    """The last commands of the page, on the imitation of WeatherBench 2."""
    lines = (Path(__file__).parents[2] / PAGE).read_text().splitlines()
    words = [line.split()[1:] for line in lines if line.startswith("    ens10 ")]
    last = [command for command in words if command[0] in ("fit", "predict", "score")]
    assert [command[0] for command in last] == ["fit", "predict", "score"]
    (folder / "experiments").symlink_to(Path(__file__).parents[2] / "experiments")
    monkeypatch.chdir(folder)
    for command in last:
        assert main(command) == 0, command
    assert (folder / "runs" / "wb2_emos" / "scores.nc").exists()


def test_operational_forecasts_of_euppbench_have_no_year(folder, tmp_path):
    """The archive's stores of 2017 and 2018 have the name without "re" and no such dimension."""
    place = folder / "archives" / "data" / "gridded_data"
    kept = {}
    for kind in ("ensemble_{}forecasts", "{}forecasts_observations"):
        name = f"gridded_{kind}_surface.zarr"
        whole = xr.open_zarr(place / name.format("re"), decode_timedelta=True)
        kept[name] = whole.isel(year=-1).drop_vars("year")
        start = kept[name]["valid_time"].isel(step=0).to_numpy()
        write(kept[name].assign_coords(time=start).drop_encoding(), tmp_path / name.format(""))
    ahead, observed = (str(tmp_path / name.format("")) for name in kept)
    words = next(command for command in commands(PAGE) if "eupp.zarr" in command)
    chosen = words[words.index("--variables") :]
    assert main(["prepare", ahead, str(tmp_path / "new.zarr"), "--truth", observed, *chosen]) == 0
    new = ens10.open_store(tmp_path / "new.zarr", "sfc")
    before = ens10.open_store(folder / "eupp.zarr", "sfc")
    xr.testing.assert_equal(new["t2m"], before["t2m"].isel(time=[-1]))


def test_euppbench_grid(folder):
    place = folder / "archives" / "data" / "gridded_data"
    observed = place / "gridded_reforecasts_observations_surface.zarr"
    for store in (folder / "eupp.zarr", folder / "eupp_z500.zarr"):
        got, truth = ens10.open_store(store, "sfc"), ens10.open_store(store, "truth")
        assert dict(got.sizes) == {
            "time": 20, "step": 2, "number": 3, "latitude": 4, "longitude": 4,
        }  # fmt: skip
        assert str(got["time"].to_numpy()[0])[:10] == "1997-03-02"
        there = xr.open_zarr(observed, decode_timedelta=True)["t2m"]
        last = there.isel(time=0, year=19, number=0, surface=0, step=2)
        np.testing.assert_array_equal(truth["t2m"].isel(time=-1, step=1), last)
    upper = ens10.open_store(folder / "eupp_z500.zarr", "pl")
    assert upper["z"].attrs["units"] == "m2 s-2"
    np.testing.assert_array_equal(upper["level"], [500])


def test_euppbench_stations(folder):
    got = ens10.open_store(folder / "germany.zarr", "sfc")
    truth = ens10.open_store(folder / "germany.zarr", "truth")
    assert got["t2m"].dims == ("time", "step", "number", "station")
    np.testing.assert_array_equal(truth["t2m"], got["t2m"].isel(number=0))
