"""Arrays whose level, method, window or start is not that of their name alone."""

import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.source.layout import tidy
from ens10.source.names import Names
from ens10.source.pairing import pair_truth

LAT, LON = np.array([60.0, 50.0, 40.0]), np.arange(0, 360, 90.0)
START = np.datetime64("2001-01-01", "ns")
GRID = {"latitude": LAT, "longitude": LON}


def tidied(dataset, names=None, **options):
    return tidy(dataset, names or Names(), "f", **options)


def over(times, values, units, name="t2m", dim="time", coordinates=None, **attributes):
    """A variable over times and the grid, from a value for each time."""
    values = np.broadcast_to(np.asarray(values, "f8")[:, None, None], (len(values), 3, 4))
    data = {name: ((dim, "latitude", "longitude"), values, {"units": units, **attributes})}
    return xr.Dataset(data, {dim: (dim, times), **GRID, **(coordinates or {})})


def point(field):
    return field.isel(latitude=0, longitude=0).values.ravel().tolist()


# -- levels


@pytest.mark.parametrize(
    ("name", "attributes", "coordinates", "want"),
    [
        ("u", {}, {"heightAboveGround": 80.0}, "u_80m"),
        ("u", {"GRIB_typeOfLevel": "heightAboveGround"}, {"heightAboveGround": 80.0}, "u_80m"),
        ("t", {"GRIB_typeOfLevel": "hybrid"}, {"hybrid": 137.0}, "t_hybrid137"),
        ("z", {"GRIB_typeOfLevel": "surface"}, {"surface": 0.0}, "z_surface"),
        ("t2m", {"GRIB_typeOfLevel": "heightAboveGround"}, {"heightAboveGround": 2.0}, "t2m"),
        ("d2m", {"GRIB_typeOfLevel": "heightAboveGround"}, {"heightAboveGround": 2.0}, "d2m"),
        ("u", {}, {"isobaricInhPa": 500.0}, "u"),
    ],
)
def test_upper_air_off_pressure_levels_has_its_level_in_the_name(
    name, attributes, coordinates, want
):
    got = tidied(over([START], [7.0], "", name, coordinates=coordinates, **attributes))
    assert list(got.data_vars) == [want]
    assert point(got[want]) == [7.0]
    assert ("level" in got.coords) == ("isobaricInhPa" in coordinates)
    assert list(tidied(over([START], [7.0], "", name, coordinates=coordinates, **attributes),
                       Names({name: name})).data_vars) == [name]  # fmt: skip


# -- methods over time


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({"cell_methods": "time: maximum"}, "t2m_maximum"),
        ({"cell_methods": "area: mean time: mean (interval: 1 h)"}, "t2m_mean"),
        ({"GRIB_stepType": "min"}, "t2m_minimum"),
        ({"cell_methods": "time: point"}, "t2m"),
        ({"GRIB_stepType": "instant"}, "t2m"),
        ({"cell_methods": "area: mean"}, "t2m"),
    ],
)
def test_a_method_over_time_is_in_the_name_as_in_grib(attributes, want):
    for name in ("t2m", "2m_temperature"):
        got = tidied(over([START], [281.0], "K", name, **attributes))
        assert list(got.data_vars) == [want]
        assert point(got[want]) == [281.0]
    mapped = tidied(over([START], [281.0], "K", "x", **attributes), Names({"x": "t2m"}))
    assert list(mapped.data_vars) == ["t2m"]


def test_daily_means_are_no_truth_of_one_time():
    forecasts = tidied(over([START], [281.0], "K", coordinates={"step": 24}))
    daily = over([START + np.timedelta64(1, "D")], [281.0], "K", cell_methods="time: mean")
    with pytest.raises(MissingDataError, match=r"truth of any of t2m.*It holds t2m_mean"):
        pair_truth(forecasts, tidied(daily, optional_dimensions=True))


def test_precipitation_keeps_its_name():
    amount = over([START], [0.001], "m", "tp", coordinates={"step": 6})
    for method in ("accum", "avg"):
        amount["tp"].attrs["GRIB_stepType"] = method
        got = list(tidied(amount).data_vars)
        assert got == ["tp" if method == "accum" else "tp_mean"]


# -- rates


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("avg_tprate", {}), ("mtpr", {}), ("rain", {"GRIB_shortName": "avg_tprate"})],
)
def test_rates_of_precipitation_are_recognised(name, attributes):
    """1 mm an hour, the mean of the hour before each time, as in ERA5."""
    hours = START + np.arange(25) * np.timedelta64(1, "h")
    rate = over(hours, [1 / 3600] * 25, "kg m**-2 s**-1", name, **attributes)
    truth = tidied(rate, optional_dimensions=True)
    forecasts = tidied(over([START], [0.001], "m", "tp", coordinates={"step": 24}))
    got = pair_truth(forecasts, truth)["tp"]
    np.testing.assert_allclose(point(got), [0.024], rtol=1e-6)
    assert got.attrs["units"] == "m"
    beside = rate.assign(total_precipitation=rate[name].assign_attrs(units="m"))
    assert set(tidied(beside, optional_dimensions=True).data_vars) == {name, "tp"}


# -- bounds without a method


@pytest.mark.parametrize("name", ["tp", "total_precipitation"])
def test_bounds_of_precipitation_without_a_method(name):
    ends = START + np.array([6, 12], "m8[h]")
    data = over(ends, [0.001, 0.002], "m", name, coordinates={"forecast_reference_time": START})
    data["t2m"] = data[name].assign_attrs(units="K") * 0 + 280
    data["t2m"].attrs["units"] = "K"
    data["time"].attrs["bounds"] = "b"
    data["b"] = (("time", "n"), np.stack([ends - np.timedelta64(6, "h"), ends], 1))
    got = tidied(data)
    np.testing.assert_allclose(point(got["tp"]), [0.001, 0.003], rtol=1e-6)
    assert "window" not in got["t2m"].attrs
    data["b"] = data["b"] - np.timedelta64(6, "h")
    with pytest.raises(FileError, match="the values of time are not the ends of their bounds"):
        tidied(data)


# -- starts and lead times

HOURS = START + np.array([24, 48], "m8[h]")


@pytest.mark.parametrize("name", ["init_time", "reftime", "initial_time"])
def test_a_start_without_a_standard_name(name):
    run = over(HOURS, [280.0, 281.0], "K", coordinates={name: START})
    got = tidied(run)
    assert got["time"].values.tolist() == [START.astype(int)]
    assert got["step"].values.tolist() == [24, 48]
    assert point(got["t2m"]) == [280, 281]
    xr.testing.assert_identical(tidied(run.rename(time="valid_time")), got)
    along = tidied(run.assign_coords({name: ("time", HOURS - np.array([0, 24], "m8[h]"))}))
    assert along["time"].values.tolist() == [HOURS[0].astype(int)]
    assert along["step"].values.tolist() == [0, 24]
    numbers = tidied(run.assign_coords({name: 3}))  # no date
    assert numbers["time"].values.tolist() == HOURS.astype(int).tolist()


def test_one_lead_time_of_several_starts():
    starts = START + np.array([2, 0, 1], "m8[D]")
    data = over(starts + np.timedelta64(1, "D"), [3.0, 1.0, 2.0], "K",
                coordinates={"init_time": ("time", starts)})  # fmt: skip
    got = tidied(data)
    assert got["time"].values.tolist() == np.sort(starts).astype(int).tolist()
    assert (got["step"].values.tolist(), point(got["t2m"])) == ([24], [1, 2, 3])


def test_times_that_contradict_each_other():
    period = {"standard_name": "forecast_period", "units": "hours"}
    parts = {"forecast_reference_time": START, "fp": ("time", [24, 48], period)}
    run = over(HOURS, [280.0, 281.0], "K", coordinates=parts)
    assert tidied(run)["step"].values.tolist() == [24, 48]
    run["fp"] = ("time", [24, 42], period)
    words = r"the lead times \(fp\) are not the valid times \(time\) less the starts"
    with pytest.raises(FileError, match=words):
        tidied(run)
    with pytest.raises(FileError, match="are before the start"):
        tidied(run.drop_vars("fp").assign_coords(forecast_reference_time=HOURS[1]))
    grid = run.drop_vars(["fp", "forecast_reference_time"]).rename(time="step")
    grid = grid.assign_coords(step=("step", [24, 48], {"units": "h"}), time=START)
    given = grid.assign_coords(valid_time=("step", HOURS))
    assert tidied(given)["valid_time"].values.ravel().tolist() == HOURS.astype(int).tolist()
    with pytest.raises(FileError, match=r"the lead times \(step\) are not the valid times"):
        tidied(given.assign_coords(valid_time=("step", HOURS + np.timedelta64(6, "h"))))


def test_a_forecast_period_beside_a_start_called_time():
    """As cfgrib writes it, with another name of the lead time."""
    lead = {"standard_name": "forecast_period", "units": "hours"}
    data = over([24, 48], [280.0, 281.0], "K", dim="lead")
    data["lead"].attrs.update(lead)
    start = xr.DataArray(START, attrs={"standard_name": "forecast_reference_time"})
    got = tidied(data.assign_coords(time=start))
    assert got["step"].values.tolist() == [24, 48]
    assert got["time"].values.tolist() == [START.astype(int)]
    assert point(got["t2m"]) == [280, 281]


# -- sums of a day so far


def test_precipitation_of_era5_land():
    """1 mm an hour: the value of 00 UTC is the sum of the day before."""
    hours = START + np.arange(1, 49) * np.timedelta64(1, "h")
    sums = (np.arange(48) % 24 + 1) / 1000
    land = over(hours, sums, "m", "tp")
    land.attrs["title"] = "ERA5-Land hourly data"
    truth = tidied(land, optional_dimensions=True)
    forecasts = tidied(over([START], [0.01], "m", "tp", coordinates={"step": 48}))
    np.testing.assert_allclose(point(pair_truth(forecasts, truth)["tp"]), [0.048], rtol=1e-6)
    six = tidied(over([START], [0.01], "m", "tp", coordinates={"step": 36}, window="12 h"))
    np.testing.assert_allclose(point(pair_truth(six, truth)["tp"]), [0.012], rtol=1e-6)
    part = tidied(over([START], [0.01], "m", "tp", coordinates={"step": 36}, window="6 h"))
    with pytest.raises(MissingDataError, match="no tp after 2001-01-02T06:00"):
        pair_truth(part, truth)
    land.attrs = {}
    mapping = Names(accumulation={"tp": "since 00 UTC"})
    told = tidied(land, mapping, optional_dimensions=True)
    np.testing.assert_allclose(point(pair_truth(forecasts, told)["tp"]), [0.048], rtol=1e-6)
    with pytest.raises(ArgumentError, match="'since 00 utc' is no window"):
        tidied(over([START], [0.01], "m", "tp", coordinates={"step": 36}), mapping)


@pytest.mark.parametrize("lazy", [False, True])
def test_sums_since_00_utc_that_no_attribute_names(lazy):
    """New files of the CDS do not name ERA5-Land: two days of 48 mm were read as 600 mm."""
    hours = START + np.arange(1, 74) * np.timedelta64(1, "h")
    sums = (np.arange(73) % 24 + 1) / 1000
    forecasts = tidied(over([START], [0.01], "m", "tp", coordinates={"step": 48}))

    def sum_of(values, mapping=None):
        data = over(hours, values, "m", "tp")
        truth = tidied(data.chunk(time=1) if lazy else data, mapping, optional_dimensions=True)
        return point(pair_truth(forecasts, truth)["tp"])

    words = r"never decreases before 00 UTC.*State `accumulation: \{tp: since 00 UTC\}`"
    with pytest.raises(ArgumentError, match=words):
        sum_of(sums)
    stated = {
        text: sum_of(sums, Names(accumulation={"tp": text})) for text in ("1 h", "since 00 UTC")
    }
    np.testing.assert_allclose(stated["1 h"], [0.6], rtol=1e-6)
    np.testing.assert_allclose(stated["since 00 UTC"], [0.048], rtol=1e-6)
    shower = np.where(np.arange(73) % 24 < 20, sums, 0)  # it ends before midnight
    np.testing.assert_allclose(sum_of(shower), [0.42], rtol=1e-6)
    for plain in (np.full(73, 0.001), np.arange(73) / 1000):  # neither decreases after 00 UTC
        np.testing.assert_allclose(sum_of(plain), [plain[:48].sum()], rtol=1e-6)
