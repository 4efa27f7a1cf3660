"""anemoi: the netCDF and Zarr output of anemoi-inference, and the Zarr of anemoi-datasets."""

from datetime import UTC, datetime

import numpy as np
import pytest
import xarray as xr
import zarr
from layouttools import FROM_GREENWICH, NORTH_TO_SOUTH, STARTS, assert_read, layouts_of, values
from netCDF4 import Dataset

import ens10
from ens10.errors import ArgumentError
from ens10.source import open_source
from ens10.source.layouts import layout_of

LEADS = np.array([6, 12, 18])
SHAPE = (6, 8)
LAT, LON = (axis.ravel() for axis in np.meshgrid(NORTH_TO_SOUTH, FROM_GREENWICH, indexing="ij"))
NAMES = {"2t": "t2m", "10u": "u10", "msl": "msl", "z_500": "z", "t_850": "t"}
EPOCH = np.datetime64("1970-01-01", "s")


def octahedral(half):
    """Latitudes and longitudes of the octahedral reduced Gaussian grid with rows of 20, 24, ..."""
    counts = [20 + 4 * n for n in range(half)]
    rows = np.linspace(85, -85, 2 * half)
    points = [np.arange(n) * 360 / n for n in counts + counts[::-1]]
    return np.repeat(rows, counts + counts[::-1]), np.concatenate(points)


def write_netcdf(path, fields, lat=LAT, lon=LON):
    """Dimensions, coordinates, types and chunks of its output from version 0.12 on."""
    start = int((STARTS[0] - EPOCH) / np.timedelta64(1, "s"))
    units = f"seconds since {datetime(1970, 1, 1, tzinfo=UTC)}"
    with Dataset(path, "w", format="NETCDF4") as file:
        file.createDimension("time", None)
        file.createDimension("values", lat.size)
        reference = file.createVariable("forecast_reference_time", "i8")
        reference.standard_name, reference.units = "forecast_reference_time", units
        reference.calendar, reference[:] = "standard", start
        time = file.createVariable("time", "i8", ("time",))
        time.standard_name, time.units, time.calendar, time.axis = "time", units, "standard", "T"
        period = file.createVariable("forecast_period", "i8", ("time",))
        period.standard_name, period.units = "forecast_period", "seconds"
        for name, degrees, unit in (("latitude", lat, "north"), ("longitude", lon, "east")):
            variable = file.createVariable(name, "f4", ("values",))
            variable.standard_name, variable.units = name, f"degrees_{unit}"
            variable[:] = degrees
        for n, lead in enumerate(LEADS):
            period[n], time[n] = 3600 * lead, start + 3600 * lead
        for name, field in fields.items():
            variable = file.createVariable(
                name, "f4", ("time", "values"), chunksizes=(1, lat.size), fill_value=np.nan
            )
            variable.missing_value = np.float32(np.nan)
            variable.coordinates = "forecast_reference_time forecast_period latitude longitude"
            variable[:] = field


def write_zarr(path, fields):
    """Its Zarr output: the start is the reference date of the times; no standard names."""
    root = zarr.open_group(path, mode="w", zarr_format=3)

    def put(name, array, dims, **attributes):
        stored = root.create_array(name, shape=array.shape, chunks=array.shape, dtype=array.dtype,
                                   dimension_names=dims, fill_value=0)  # fmt: skip
        stored[...] = array
        stored.attrs.update(attributes | {"_ARRAY_DIMENSIONS": list(dims)})

    reference = STARTS[0].astype("datetime64[s]").item()
    units = {"units": f"seconds since {reference}", "calendar": "gregorian"}
    put("time", (3600 * LEADS).astype("i4"), ("time",), **units)
    put("latitude", LAT.astype("f4"), ("values",), units="degrees_north", long_name="latitude")
    put("longitude", LON.astype("f4"), ("values",))
    for name, field in fields.items():
        put(name, field, ("time", "values"), param=name)
    zarr.consolidate_metadata(path)


WRITERS = {"a.nc": write_netcdf, "a.zarr": write_zarr}
CONSOLIDATED = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata:zarr.errors.ZarrUserWarning"
)


def cells(name, n=0):
    return values(name, (3, LAT.size), n)


def rows(field):
    """The cells of each step as rows and columns of one start, one member."""
    return field.reshape(1, 3, 1, *SHAPE)


@CONSOLIDATED
@pytest.mark.parametrize("name", WRITERS)
def test_output_of_inference(tmp_path, name):
    fields = {theirs: cells(our) for theirs, our in NAMES.items()}
    WRITERS[name](tmp_path / name, fields)
    got = open_source(tmp_path / name)
    np.testing.assert_array_equal(got["time"], STARTS[:1])
    np.testing.assert_array_equal(got["step"], LEADS)
    np.testing.assert_array_equal(got["latitude"], NORTH_TO_SOUTH)
    np.testing.assert_array_equal(got["longitude"], FROM_GREENWICH)
    store = ens10.prepare(tmp_path / name, tmp_path / "s.zarr", missing="nan")
    surface, upper = (ens10.open_store(store, kind) for kind in ("sfc", "pl"))
    for theirs in ("2t", "10u", "msl"):
        np.testing.assert_array_equal(surface[NAMES[theirs]], rows(fields[theirs]))
    for theirs, hpa in (("z_500", 500), ("t_850", 850)):
        field = upper[NAMES[theirs]].sel(level=hpa)
        np.testing.assert_array_equal(field, rows(fields[theirs]))


def test_precipitation_of_an_unknown_window(tmp_path):
    """The file does not say whether it is of a step or of the run: it is not taken for tp."""
    write_netcdf(tmp_path / "a.nc", {"2t": cells("t2m"), "tp": cells("tp")})
    assert set(open_source(tmp_path / "a.nc").data_vars) == {"t2m", "tp_of_unknown_window"}
    names = tmp_path / "names.yaml"
    names.write_text("variables: {tp: tp}\naccumulation: {tp: since start}\n")
    got = open_source(tmp_path / "a.nc", ens10.source.names.read_names(names))
    assert got["tp"].attrs["accumulation"] == "since start"


@pytest.mark.parametrize(
    ("lat", "lon", "grid"),
    [
        (*octahedral(8), "octahedral reduced Gaussian grid O8"),
        (*octahedral(96), "octahedral reduced Gaussian grid O96"),
        (np.repeat([60.0, 20, -20, -60], [18, 25, 25, 18]), np.arange(86.0), "Gaussian grid N2"),
        (np.array([50.0, 51.5, 47.25]), np.array([7.0, 8, 9]), "3 cells that are no rows"),
    ],
)
def test_other_grids_are_refused_by_name(tmp_path, lat, lon, grid):
    write_netcdf(tmp_path / "a.nc", {"2t": values("t2m", (3, lat.size))}, lat, lon)
    with pytest.raises(ArgumentError, match=grid):
        open_source(tmp_path / "a.nc")


VARIABLES = ["10u", "2t", "cos_latitude", "t_850", "tp", "z_500", "z_850"]
KINDS = {"10u": "u10", "2t": "t2m", "t_850": "t", "tp": "tp", "z_500": "z", "z_850": "z"}


def write_dataset(path, data, steps=None, lat=LAT, lon=LON):
    """Zarr 2 of anemoi-datasets, with its arrays of statistics and its attributes."""
    root = zarr.open_group(path, mode="w", zarr_format=2)

    def put(name, array, dims, chunks=None):
        stored = root.create_array(name, shape=array.shape, dtype=array.dtype, fill_value=None,
                                   chunks=chunks or array.shape)  # fmt: skip
        stored[...] = array
        stored.attrs["_ARRAY_DIMENSIONS"] = list(dims)

    dims = ("time", "variable", "ensemble", *(["step"] if steps is not None else []), "cell")
    put("data", data, dims, (1, *data.shape[1:]))
    put("dates" if steps is None else "base_dates", STARTS.astype("datetime64[s]"), ("time",))
    if steps is not None:
        put("steps", steps, ("step",))
    put("latitudes", lat, ("cell",))
    put("longitudes", lon, ("cell",))
    for statistic in ("mean", "stdev", "minimum", "maximum"):
        put(statistic, np.ones(len(VARIABLES)), ("variable",))
    units = {"10u": "m s**-1", "2t": "K", "t_850": "K", "tp": "m", "z_500": "m**2 s**-2",
             "z_850": "m**2 s**-2"}  # fmt: skip
    metadata = {name: {"mars": {"param": name}, "units": unit} for name, unit in units.items()}
    metadata["tp"] |= {"process": "accumulation", "period": ["0h", "6h"]}
    root.attrs.update(variables=VARIABLES, variables_metadata=metadata, field_shape=list(SHAPE),
                      frequency="6h", missing_dates=[], ensemble_dimension=3)  # fmt: skip


def dataset_values(steps, size=LAT.size):
    """Values of (time, variable, ensemble, [step,] cell)."""
    inner = (2, 3, *steps, size)
    fields = [values(KINDS.get(name, "u"), inner, n) for n, name in enumerate(VARIABLES)]
    return np.stack(fields, axis=1)


NATIVE_DATES = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


@NATIVE_DATES
def test_dataset_of_trajectories(tmp_path):
    data = dataset_values((3,))
    write_dataset(tmp_path / "a.zarr", data, LEADS)
    raw = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    assert layouts_of(raw) == ["anemoi-datasets"]
    assert layout_of(raw).convert(raw)["tp"].attrs == {"units": "m", "accumulation": "6 h"}
    # (time, variable, ensemble, step, cell) to (time, step, number, latitude, longitude)
    field = {n: data[:, i].swapaxes(1, 2).reshape(2, 3, 3, *SHAPE) for i, n in enumerate(VARIABLES)}
    gap = np.full(field["t_850"].shape, np.nan, "f4")
    want = {
        "t2m": field["2t"], "u10": field["10u"],
        "z": np.stack([field["z_500"], field["z_850"]], axis=2),
        "t": np.stack([gap, field["t_850"]], axis=2),
    }  # fmt: skip
    got = assert_read(tmp_path / "a.zarr", want, tmp_path, missing="nan")
    np.testing.assert_array_equal(got["step"], LEADS)
    np.testing.assert_array_equal(got["time"], STARTS)


@NATIVE_DATES
def test_dataset_of_analyses_is_truth(tmp_path):
    data = dataset_values(())
    write_dataset(tmp_path / "era5.zarr", data[:, :, :1])
    grid = {"latitude": NORTH_TO_SOUTH, "longitude": FROM_GREENWICH}
    sizes = {"time": 2, "step": 1, "number": 3}
    ahead = xr.Dataset(
        {"t2m": ((*sizes, *grid), values("t2m", (2, 1, 3, *SHAPE)))},
        grid | {"time": STARTS - np.timedelta64(6, "h"), "step": [6], "number": [1, 2, 3]},
    )
    store = ens10.prepare(ahead, tmp_path / "s.zarr", truth=tmp_path / "era5.zarr")
    want = data[:, VARIABLES.index("2t"), 0].reshape(2, 1, *SHAPE)
    np.testing.assert_array_equal(ens10.open_store(store, "truth")["t2m"], want)


@NATIVE_DATES
def test_dataset_on_another_grid(tmp_path):
    lat, lon = octahedral(8)
    write_dataset(tmp_path / "o8.zarr", dataset_values((3,), lat.size), LEADS, lat, lon)
    with pytest.raises(ArgumentError, match="octahedral reduced Gaussian grid O8"):
        open_source(tmp_path / "o8.zarr")
