"""Windows, times, members and kinds of arrays (netCDF, Zarr, datasets), and truth over windows."""

import numpy as np
import pytest
import xarray as xr

import ens10
from ens10.cli import main
from ens10.errors import ArgumentError, DataNote, Ens10Error, FileError, MissingDataError
from ens10.identity import Method, Window, WindowIndex, format_windows, parse_windows
from ens10.source import open_source
from ens10.source.cf_times import _Run, _starts_and_leads
from ens10.source.layout import tidy
from ens10.source.names import Names
from ens10.source.pairing import pair_truth

LAT, LON = np.array([60.0, 50.0, 40.0]), np.arange(0, 360, 90.0)
H = 3600
DIMS = ("time", "step", "number", "latitude", "longitude")
STARTS = np.array(["2001-01-01", "2001-01-03"], "M8[ns]")


def forecasts(tp, steps, units="m", starts=STARTS, name="tp", **attributes):
    """Members over (time, step, number, ...) from values over the steps."""
    values = np.broadcast_to(
        np.asarray(tp, "f4")[None, :, None, None, None], (len(starts), len(steps), 2, 3, 4)
    )
    return xr.Dataset(
        {name: (DIMS, values.copy(), {"units": units, **attributes})},
        {"time": starts, "step": ("step", list(steps), {"units": "h"}), "number": [1, 2],
             "latitude": LAT, "longitude": LON},
    )  # fmt: skip


def tidied(dataset, **options):
    return tidy(dataset, Names(), "f", **options)


def point(field):
    return field.isel(time=0, number=0, latitude=0, longitude=0).values.tolist()


# -- windows in words


@pytest.mark.parametrize(
    ("text", "ends", "begins"),
    [
        ("since start", [0, 6, 12], [0, 0, 0]),
        ("previous step", [0, 3, 12], [0, 0, 3]),
        ("previous step", [6, 12], [0, 6]),
        ("6 h", [6, 24], [0, 18]),
        ("24 hours", [24, 48], [0, 24]),
        ("0.5 h", [0.5, 1], [0, 0.5]),
        ("6-12, 12-24 h", [12, 24], [6, 12]),
        ("6-12, 12-24 h", [24], [12]),
    ],
)
def test_texts_of_windows(text, ends, begins):
    windows = parse_windows(text, [round(end * H) for end in ends], Method.SUM)
    assert [w.begin / H for w in windows] == begins
    assert [w.end / H for w in windows] == ends


@pytest.mark.parametrize("text", ["daily", "6", "12-24 h", "-6 h", "1-11-11-1 h"])
def test_texts_that_are_no_windows(text):
    with pytest.raises(ArgumentError, match=r"window: .* Write 'since start'"):
        parse_windows(text, [6 * H], Method.SUM)


@pytest.mark.parametrize("text", ["since start", "6 h", "6-12, 12-24 h"])
def test_a_text_is_read_as_it_is_written(text):
    windows = parse_windows(text, [12 * H, 24 * H], Method.SUM)
    assert format_windows(windows) == text


def test_the_fewest_windows_cover_an_interval():
    spans = [(0, 3), (3, 6), (0, 6), (6, 9), (6, 12), (12, 15)]
    index = WindowIndex(Window(Method.SUM, a, b) for a, b in spans)
    assert index.cover(0, 12) == [2, 4]
    assert index.cover(0, 15) == [2, 4, 5]
    assert index.cover(3, 12) == [1, 4]
    assert index.cover(6, 6) == []
    assert index.cover(0, 14) is None
    assert index.reach(0, 14) == 12


# -- forecasts


@pytest.mark.parametrize("attribute", ["window", "accumulation"])
@pytest.mark.parametrize(
    ("text", "given", "steps", "want", "kept"),
    [
        ("since start", [1, 3], [6, 12], [1, 3], "since start"),
        ("previous step", [1, 2, 4], [6, 12, 24], [1, 3, 7], "since start"),
        ("6 h", [1, 2, 4], [6, 12, 18], [1, 3, 7], "since start"),
        ("6 h", [1, 4], [6, 24], [1, 4], "6 h"),  # 6 to 18 h is not there
        ("6-12, 12-24 h", [1, 4], [12, 24], [1, 4], "6-12, 12-24 h"),
    ],
)
def test_sums_of_arrays(attribute, text, given, steps, want, kept):
    lazy = forecasts(np.array(given) / 1000, steps, **{attribute: text}).chunk(time=1)
    tp = tidied(lazy)["tp"]
    assert tp.chunks is not None
    np.testing.assert_allclose(point(tp), np.array(want) / 1000, rtol=1e-6)
    assert tp.attrs.get("window", tp.attrs.get("accumulation")) == kept


@pytest.mark.parametrize(
    ("units", "of_1_mm_an_hour"),
    [("kg m-2 s-1", 1 / 3600), ("kg m**-2 s**-1", 1 / 3600), ("mm/h", 1.0), ("m s-1", 1e-3 / 3600)],
)
def test_rates_over_unequal_steps_with_a_missing_start(units, of_1_mm_an_hour):
    """The rate is the mean since the step before; nothing is stated at the start (NaN)."""
    rate = np.array([np.nan, 1, 2, 1]) * of_1_mm_an_hour
    tp = tidied(forecasts(rate, [0, 3, 6, 12], units))["tp"]
    np.testing.assert_allclose(point(tp), [0, 0.003, 0.009, 0.015], rtol=1e-6)
    assert (tp.attrs["units"], tp.attrs["window"]) == ("m", "since start")


REFUSED = {
    "a rate at one time": (
        forecasts([1, 2], [6, 12], "kg m-2 s-1", cell_methods="time: point"),
        "tp is a rate at one time, which gives no sum",
    ),
    "a rate of cfgrib": (
        forecasts([1, 2], [6, 12], "kg m-2 s-1", GRIB_stepType="instant"),
        "tp is a rate at one time",
    ),
    "a mean of cfgrib": (
        forecasts([280.0], [6], "K", name="t2m", GRIB_dataType="em"),
        r"only t2m \(ensemble mean\)",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_arrays_that_are_refused(which):
    data, words = REFUSED[which]
    with pytest.raises(FileError, match=words):
        tidied(data)


def test_precipitation_without_a_window_is_the_sum_since_the_start_as_before():
    plain = forecasts([np.nan, 0.001, 0.004], [0, 6, 12])
    tp = tidied(plain)["tp"]
    np.testing.assert_allclose(point(tp), [0, 0.001, 0.004])
    assert "window" not in tp.attrs


def test_a_variable_that_nobody_selected_stops_nothing(tmp_path):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    data["tp"] = forecasts([1, 2], [6, 12], "furlong")["tp"]
    data.to_netcdf(tmp_path / "f.nc")
    with pytest.raises(FileError, match="tp has the units 'furlong'"):
        open_source(tmp_path / "f.nc")
    ens10.prepare(tmp_path / "f.nc", tmp_path / "s.zarr", variables=["2t"])
    assert list(ens10.open_store(tmp_path / "s.zarr", "sfc").data_vars) == ["t2m"]


def test_units_that_are_not_stated_are_told(tmp_path, capsys):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    del data["t2m"].attrs["units"]
    with pytest.warns(DataNote, match=r"no units are stated; those of ENS-10 are assumed: t2m K"):
        tidied(data)
    data.to_netcdf(tmp_path / "f.nc")
    assert main(["prepare", str(tmp_path / "f.nc"), str(tmp_path / "s.zarr")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum("no units are stated" in line for line in lines) == 1


@pytest.mark.parametrize(("units", "method"), [("kg m-2", "sum"), ("kg m-2 s-1", "mean")])
def test_windows_of_cf_bounds(tmp_path, units, method):
    """A run over valid times, as IMPROVER writes it: amounts or rates between bounds."""
    ends = np.array(["2001-01-01T03", "2001-01-01T06", "2001-01-01T12"], "M8[ns]")
    bounds = np.stack([np.array([STARTS[0], *ends[:-1]]), ends], axis=1)
    amount = np.array([3.0, 3.0, 6.0])  # kg m-2: 1 mm an hour
    values = amount if method == "sum" else amount / (np.array([3, 3, 6]) * H)
    name = "precipitation_amount" if method == "sum" else "precipitation_flux"
    attributes = {"units": units, "standard_name": name, "cell_methods": f"time: {method}"}
    field = np.broadcast_to(values[:, None, None, None], (3, 2, 3, 4))
    data = xr.Dataset(
        {"rain": (("time", "realization", "latitude", "longitude"), field, attributes),
         "time_bnds": (("time", "bnds"), bounds)},
        {"time": ("time", ends, {"standard_name": "time", "bounds": "time_bnds"}),
         "forecast_reference_time": STARTS[0],
         "realization": ("realization", [0, 1], {"standard_name": "realization"}),
         "latitude": LAT, "longitude": LON},
    )  # fmt: skip
    hours = {"time": {"units": "hours since 2001-01-01"}}
    data.to_netcdf(tmp_path / "f.nc", encoding=hours)
    tp = open_source(tmp_path / "f.nc")["tp"]
    assert (tp["step"].values.tolist(), tp.attrs["units"]) == ([3, 6, 12], "m")
    np.testing.assert_allclose(point(tp), [0.003, 0.006, 0.012], rtol=1e-6)
    data["time_bnds"] = data["time_bnds"] - np.timedelta64(1, "h")
    if method == "sum":
        with pytest.raises(FileError, match="values of time are not the ends of their bounds"):
            tidied(data)


def test_steps_in_any_order():
    rate = np.array([2.0, 1.0, 5.0]) / 3600  # of 3 to 12 h, of 0 to 3 h, and at the start
    tp = tidied(forecasts(rate, [12, 3, 0], "kg m-2 s-1"))["tp"]
    assert tp["step"].values.tolist() == [0, 3, 12]
    np.testing.assert_allclose(point(tp), [0, 0.003, 0.021], rtol=1e-6)


@pytest.mark.parametrize(
    ("units", "texts", "given", "want"),
    [
        ("m", ["6 h", "6 h"], [0.001, 0.002], [0.001, 0.003]),
        ("m", ["previous step"] * 2, [0.001, 0.002], [0.001, 0.003]),
        ("m", ["since start", "6 h"], [0.001, 0.002], [0.001, 0.003]),
        ("kg m-2 s-1", [None, None], [1 / 3600, 2 / 3600], [0.006, 0.018]),
    ],
)
def test_windows_of_several_files(tmp_path, units, texts, given, want):
    """A file for each step: sums are taken over all of them."""
    for step, text, value in zip((6, 12), texts, given, strict=True):
        stated = {"window": text} if text else {}
        forecasts([value], [step], units, **stated).to_netcdf(tmp_path / f"{step}.nc")
    np.testing.assert_allclose(point(open_source(tmp_path)["tp"]), want, rtol=1e-6)


def test_members_of_different_windows_are_refused(tmp_path):
    for number, text in ((1, "6 h"), (2, "since start")):
        part = forecasts([0.001, 0.002], [12, 24], window=text).sel(number=[number])
        part.to_netcdf(tmp_path / f"{number}.nc")
    with pytest.raises(FileError, match="tp at step 12 h is of another window than in other files"):
        open_source(tmp_path)


# -- truth over exactly the window of the forecasts

HOURS = np.datetime64("2000-12-31", "h") + np.arange(24 * 7)


def rain_of_hours():
    return (np.arange(HOURS.size) % 17 + 1).astype("f8") / 1000  # exact sums in the tests below


def truth(length, unit="m", factor=1.0, **attributes):
    """Sums of `length` hours that end at their times."""
    sums = rain_of_hours().reshape(-1, length).sum(1) * factor
    times = HOURS[length - 1 :: length].astype("M8[ns]")
    values = np.broadcast_to(sums[:, None, None], (sums.size, 3, 4)).astype("f4")
    data = xr.Dataset(
        {"tp": (("time", "latitude", "longitude"), values, {"units": unit, **attributes})},
        {"time": times, "latitude": LAT, "longitude": LON},
    )
    return tidied(data, optional_dimensions=True)


def wanted(begin, end, start=STARTS[0]):
    start = start.astype("M8[h]")
    inside = (start + begin < HOURS) & (start + end >= HOURS)
    return rain_of_hours()[inside].sum()


@pytest.mark.parametrize("length", [1, 3, 6, 24])
@pytest.mark.parametrize("as_rate", [False, True])
def test_truth_since_the_start_from_any_length(length, as_rate):
    """The first hour of a day is 01: HOURS begin at 00, so shift the series by one hour."""
    kept = {"window": f"{length} h"} if length > 1 else {}
    factor = 1000 / (length * H) if as_rate else 1.0
    observed = truth(length, "kg m-2 s-1" if as_rate else "m", factor, **kept)
    observed = observed.assign_coords(time=observed.time + np.timedelta64(1, "h"))
    observed = observed.assign_coords(valid_time=observed.time)
    steps = [0, 24, 48]
    got = pair_truth(tidied(forecasts([0, 1, 2], steps)), observed)["tp"]
    assert got["step"].values.tolist() == steps
    shifted = [wanted(-1, step - 1) if step else 0 for step in steps]
    np.testing.assert_allclose(got[0, :, 0, 0], shifted, rtol=1e-5)


def test_truth_of_the_forecasts_own_window():
    """Sums from hour 6 to 30 of the forecast, as of Frankfurt's rain."""
    hourly = truth(1)
    data = tidied(forecasts([0.01], [30], window="6-30 h"))
    assert data["tp"].attrs["window"] == "24 h"
    got = pair_truth(data, hourly)["tp"]
    np.testing.assert_allclose(got[0, 0, 0, 0], wanted(6, 30), rtol=1e-5)


def with_a_gap():
    six_hours = truth(6, window="6 h")
    six_hours = six_hours.isel(time=six_hours.time != np.datetime64("2001-01-01T11"))
    shifted = six_hours.assign_coords(time=six_hours.time + np.timedelta64(1, "h"))
    return shifted.assign_coords(valid_time=shifted.time)


UNPAIRED = {
    "a part of a window is missing": (
        forecasts([1], [24]), with_a_gap,
        MissingDataError, "step 24 h: no tp after 2001-01-01T06:00",
    ),
    "sums of an unknown window": (
        forecasts([1], [24]), lambda: truth(6),
        ArgumentError, "tp is not known to be of the window of the forecasts",
    ),
    "a window for forecasts of instants": (
        forecasts([280.0], [24], "K", name="t2m"),
        lambda: truth(24, "K", window="24 h").rename(tp="t2m"),
        ArgumentError, "t2m is of the window 24 h, that of the forecasts is",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", UNPAIRED)
def test_truth_of_other_windows_is_refused(which):
    data, observed, error, words = UNPAIRED[which]
    with pytest.raises(error, match=words):
        pair_truth(tidied(data), observed())


def test_analyses_in_grib_are_of_the_forecasts_window():
    """Synthetic worlds have the sum since the start as an analysis, at step 0 of the valid date."""
    analyses = truth(6).expand_dims(step=[0]).assign_coords(step=("step", [0], {"units": "h"}))
    valid = analyses["tp"].sel(time="2001-01-02T23").isel(step=0, latitude=0, longitude=0)
    starts = STARTS[:1] - np.timedelta64(1, "h")
    got = pair_truth(
        tidied(forecasts([1], [24], starts=starts + np.timedelta64(24, "h"))), analyses
    )
    np.testing.assert_array_equal(got["tp"][0, 0, 0, 0], valid)


def test_means_over_the_forecasts_window():
    """Daily means of the forecasts, and of the truth in two halves of a day."""
    data = forecasts([280.0], [24], "K", name="avg_2t", window="24 h", cell_methods="time: mean")
    halves = truth(12, "K", 1.0, window="12 h").rename(tp="avg_2t")
    halves = halves.assign_coords(time=halves.time + np.timedelta64(1, "h"))
    halves = halves.assign_coords(valid_time=halves.time)
    got = pair_truth(tidied(data), halves)["avg_2t"]
    np.testing.assert_allclose(got[0, 0, 0, 0], wanted(-1, 23) / 2, rtol=1e-5)
    del halves["avg_2t"].attrs["window"]
    with pytest.raises(ArgumentError, match=r"avg_2t is not known .*\(24 h\)"):
        pair_truth(tidied(data), halves)


def test_a_table_of_observations_with_one_lead(tmp_path):
    times = ["2001-01-01", "2001-01-02"]
    rows = [f"a,{t},24,{m},0.00{m},50,8" for t in times for m in (1, 2)]
    (tmp_path / "f.csv").write_text("\n".join(["station,time,step,number,tp,lat,lon", *rows]))
    (tmp_path / "o.csv").write_text("station,time,tp\na,2001-01-02,0.003\na,2001-01-03,0.004\n")
    with pytest.warns(DataNote, match="tp of the table is taken to be of the window"):
        ens10.prepare(tmp_path / "f.csv", tmp_path / "s.zarr", truth=tmp_path / "o.csv")
    stored = ens10.open_store(tmp_path / "s.zarr", "truth")["tp"]
    np.testing.assert_allclose(stored.squeeze(), [0.003, 0.004])
    hourly = [f"a,2001-01-0{d}T{h:02}:00,0.001" for d in (1, 2, 3) for h in range(24)]
    (tmp_path / "h.csv").write_text("\n".join(["station,time,tp", *hourly]))
    ens10.prepare(tmp_path / "f.csv", tmp_path / "u.zarr", truth=tmp_path / "h.csv")
    stored = ens10.open_store(tmp_path / "u.zarr", "truth")["tp"]
    np.testing.assert_allclose(stored.squeeze(), [0.024, 0.024], rtol=1e-6)
    rows += [row.replace(",24,", ",48,") for row in rows]
    (tmp_path / "f.csv").write_text("\n".join(["station,time,step,number,tp,lat,lon", *rows]))
    with pytest.raises(ArgumentError, match="Add the column step, or prepare one lead time"):
        ens10.prepare(tmp_path / "f.csv", tmp_path / "t.zarr", truth=tmp_path / "o.csv")


# -- times by CF standard names


def run(valid, **coordinates):
    """One member and point over valid times."""
    values = np.arange(float(len(valid)))[:, None, None, None] + np.zeros((1, 2, 3, 4)) + 280
    return xr.Dataset(
        {"t2m": (("time", "realization", "latitude", "longitude"), values, {"units": "K"})},
        {"time": ("time", np.array(valid, "M8[ns]"), {"standard_name": "time"}),
         "realization": ("realization", [3, 5], {"standard_name": "realization"}),
         "latitude": LAT, "longitude": LON, **coordinates},
    )  # fmt: skip


REFERENCE = {"standard_name": "forecast_reference_time"}
PERIOD = {"standard_name": "forecast_period"}
VALID = ["2000-01-02", "2000-01-03T12"]


def days(*values, unit="h"):
    return np.array(values, f"m8[{unit}]").astype("m8[ns]")


RUNS = {
    "a scalar reference": {"frt": ((), np.datetime64("2000-01-01", "ns"), REFERENCE)},
    "a scalar reference and leads": {
        "frt": ((), np.datetime64("2000-01-01", "ns"), REFERENCE),
        "fp": ("time", days(24, 60), PERIOD),
    },
    "leads that vary along time": {"fp": ("time", days(24, 60), PERIOD)},
    "leads as numbers": {"fp": ("time", [24.0, 60.0], {**PERIOD, "units": "hours"})},
    "references along time": {"frt": ("time", np.array(["2000-01-01"] * 2, "M8[ns]"), REFERENCE)},
    "without attributes": {"forecast_reference_time": ((), np.datetime64("2000-01-01", "ns"))},
}


@pytest.mark.parametrize("which", RUNS)
def test_a_run_in_valid_times(which):
    got = tidied(run(VALID, **RUNS[which]))
    assert got["time"].values.tolist() == [np.datetime64("2000-01-01", "ns").astype(int)]
    assert got["step"].values.tolist() == [24, 60]
    assert got["number"].values.tolist() == [3, 5]
    assert got["valid_time"].values[0].astype("M8[h]").astype(str).tolist() == [
        "2000-01-02T00", "2000-01-03T12"
    ]  # fmt: skip
    np.testing.assert_array_equal(got["t2m"][0, :, 0, 0, 0], [280, 281])


@pytest.mark.parametrize("coordinates", [{}, {"fp": ((), days(24)[0], PERIOD)}])
def test_a_time_alone_is_the_start(coordinates):
    got = tidied(run(VALID, **coordinates))
    assert got["time"].values.astype("M8[h]").astype(str).tolist() == [
        "2000-01-02T00", "2000-01-03T12"
    ]  # fmt: skip
    assert got.get("step", xr.DataArray([24])).values.tolist() == [24]


def test_several_runs_in_valid_times():
    starts = np.array(["2000-01-02", "2000-01-01", "2000-01-02", "2000-01-01"], "M8[ns]")
    leads = days(24, 24, 48, 48)
    data = run(starts + leads, frt=("time", starts, REFERENCE))
    got = tidied(data)
    assert got["time"].values.astype("M8[D]").astype(str).tolist() == ["2000-01-01", "2000-01-02"]
    assert got["step"].values.tolist() == [24, 48]
    np.testing.assert_array_equal(got["t2m"][:, :, 0, 0, 0], [[281, 283], [280, 282]])
    with pytest.raises(FileError, match="its 3 valid times are not all 2 lead times of all 2"):
        tidied(data.isel(time=[0, 1, 2]))


def test_starts_and_leads_as_dimensions():
    values = np.arange(4.0).reshape(2, 2)[:, :, None, None] + np.zeros((1, 1, 3, 4)) + 280
    starts, leads = np.array(["2000-01-01", "2000-01-02"], "M8[ns]"), days(24, 48)
    data = xr.Dataset(
        {"t2m": (("frt", "fp", "lat", "lon"), values, {"units": "K"})},
        {"frt": ("frt", starts, REFERENCE), "fp": ("fp", leads, PERIOD), "lat": LAT, "lon": LON,
         "time": (("frt", "fp"), starts[:, None] + leads, {"standard_name": "time"})},
    )  # fmt: skip
    got = tidied(data)
    assert got["step"].values.tolist() == [24, 48]
    np.testing.assert_array_equal(got["t2m"][..., 0, 0], [[280, 281], [282, 283]])
    np.testing.assert_array_equal(got["valid_time"], starts[:, None] + leads)


# -- members, columns, kinds, missing fields


def test_members_with_names_are_numbered(tmp_path):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    data["t2m"] = data["t2m"] + data["number"]
    named = data.assign_coords(number=["m07", "m02"])
    named.to_netcdf(tmp_path / "f.nc")
    ens10.prepare(tmp_path / "f.nc", tmp_path / "s.zarr")
    stored = ens10.open_store(tmp_path / "s.zarr", "sfc")
    assert stored["number"].values.tolist() == [1, 2]
    assert list(stored["number"].attrs["labels"]) == ["m07", "m02"]
    np.testing.assert_array_equal(stored["t2m"], data["t2m"])
    (tmp_path / "two").mkdir()
    for n in (0, 1):
        named.isel(number=[n]).to_netcdf(tmp_path / f"two/{n}.nc")
    both = open_source(tmp_path / "two")
    assert both["number"].attrs["labels"] == ["m02", "m07"]
    np.testing.assert_array_equal(both["t2m"].sel(number=2), data["t2m"].sel(number=1))


@pytest.mark.parametrize("east", [np.arange(0, 361, 90.0), np.arange(-180, 181, 90.0)])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_column_twice_counts_once(east, lazy):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    data["t2m"] = data["t2m"] + data["longitude"] / 100
    round_earth = data.reindex(longitude=east % 360).assign_coords(longitude=east)
    got = tidied(round_earth.chunk(time=1) if lazy else round_earth)
    xr.testing.assert_allclose(got["t2m"], tidied(data)["t2m"])
    round_earth["t2m"][0, 0, 0, 0, -1] += 1
    with pytest.raises(FileError, match="are one place, and their values differ"):
        tidied(round_earth.chunk(time=1) if lazy else round_earth).compute()
    later = round_earth.copy(deep=True)
    later["t2m"][0, 0, 0, 0, -1] -= 1
    later["t2m"][1, 0, 0, 0, -1] += 1
    with pytest.raises(FileError, match="are one place, and their values differ"):
        tidied(later.chunk(time=1) if lazy else later).compute()


def test_products_in_arrays_are_no_members(tmp_path):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    mean = data["t2m"].mean("number", keep_attrs=True)
    data["t2m_mean"] = mean.assign_attrs(cell_methods="realization: mean")
    data["t2m_std"] = mean.assign_attrs(cell_methods="realization: standard_deviation")
    data["t2m_quantile"] = mean.expand_dims(quantile=[0.1, 0.9])
    words = r"t2m_mean \(ensemble mean\), t2m_std \(ensemble spread\), t2m_quantile \(quantile\)"
    with pytest.warns(DataNote, match=words):
        got = tidied(data)
    assert list(got.data_vars) == ["t2m"]
    assert "quantile" not in got.dims
    with pytest.raises(FileError, match=r"only t2m_mean .ensemble mean., t2m_std"):
        tidied(data[["t2m_mean", "t2m_std"]])
    kept = tidy(data, Names({"t2m_mean": "t2m"}), "f")
    assert "number" not in kept["t2m"].dims


def test_whole_missing_fields_of_arrays(tmp_path):
    data = forecasts([280, 281], [6, 12], "K", name="t2m")
    data["t2m"][0, 1, 1] = np.nan
    data.to_netcdf(tmp_path / "f.nc")
    observed = data["t2m"].isel(step=0, number=0, drop=True).to_dataset().copy(deep=True)
    observed = observed.assign_coords(time=STARTS + np.timedelta64(6, "h"))
    observed["t2m"][1] = np.nan
    observed.to_netcdf(tmp_path / "o.nc")
    source, out = tmp_path / "f.nc", tmp_path / "s.zarr"
    with pytest.raises(MissingDataError) as caught:
        ens10.prepare(source, out, truth=tmp_path / "o.nc")
    assert caught.value.missing == [
        "t2m of 2001-01-01T00 step 12 number 2",
        f"{tmp_path / 'o.nc'}: t2m of 2001-01-03T00 step 6",
    ]
    assert not out.exists()
    ens10.prepare(source, out, missing="skip", force=True)
    stored = ens10.open_store(out, "sfc")["t2m"]
    np.testing.assert_array_equal(stored, data["t2m"].isel(time=[1]))
    ens10.prepare(source, out, missing="nan", force=True)
    np.testing.assert_array_equal(ens10.open_store(out, "sfc")["t2m"], data["t2m"])
    with pytest.raises(MissingDataError, match="2 parts are missing"):
        ens10.prepare(source, out, truth=tmp_path / "o.nc", missing="skip", force=True)


@pytest.mark.parametrize(("start", "step"), [("2262-04-10", 48), ("2262-04-11", 24)])
def test_valid_dates_that_cannot_be_stored(start, step):
    data = forecasts([280.0], [step], "K", starts=np.array([start], "M8[ns]"), name="t2m")
    with pytest.raises(ArgumentError, match="valid_time: 2262-04-12T00 lies outside 1678"):
        tidied(data)
    assert tidied(data.assign_coords(step=("step", [0], {"units": "h"}))) is not None


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ("days since 2300-01-01", r"(since 2300-01-01'|2300-02-01).* 1678 to 2262-04-11"),
        ("months since 2300-01-01", "time: 2302-08-01T00 lies outside 1678 to 2262-04-11"),
    ],
)
def test_starts_that_cannot_be_stored(tmp_path, units, words):
    """Starts in months wrapped to the year 1718."""
    data = forecasts([280.0], [24], "K", starts=np.array(["2001-01-01"], "M8[ns]"), name="t2m")
    data = data.drop_vars("time").assign_coords(time=("time", [31], {"units": units}))
    data.to_netcdf(tmp_path / "f.nc")
    with pytest.raises(Ens10Error, match=words):
        open_source(tmp_path / "f.nc")


def test_a_lead_time_of_centuries():
    """Nanoseconds hold 292 years, and a start and a valid time may be further apart."""
    lead = xr.DataArray(np.array([3.2e6]), dims="t", attrs={"units": "hours"})  # 365 years
    start = xr.DataArray(np.array(["1800-01-01"], "M8[ns]"), dims="t")
    data = xr.Dataset({"start": start, "lead": lead})
    starts, leads = _starts_and_leads(data, _Run("start", "lead", None), Names(), "f.nc")
    assert starts[0] == np.datetime64("1800-01-01")
    assert leads[0] / np.timedelta64(1, "h") == 3.2e6


# -- further files that were misread


@pytest.mark.parametrize("change", ["units", "window"])
def test_files_of_truth_that_differ(tmp_path, change):
    hours = truth(1).drop_vars("valid_time")
    parts = [hours.isel(time=slice(0, 72)), hours.isel(time=slice(72, None)).copy(deep=True)]
    parts[1]["tp"].attrs[change] = {"units": "mm", "window": "1 h"}[change]
    for n, part in enumerate(parts):
        part.to_netcdf(tmp_path / f"{n}.nc")
    words = {"units": "tp has the units 'mm', in .* 'm'", "window": "tp is of the windows"}[change]
    with pytest.raises(FileError, match=words):
        open_source(tmp_path, optional_dimensions=True)


def test_lead_times_of_eight_bits():
    data = forecasts([280.0, 281], [5, 10], "K", name="t2m")
    step = ("step", np.array([5, 10], "i1"), {"units": "d"})
    assert tidied(data.assign_coords(step=step))["step"].values.tolist() == [120, 240]


def test_bounds_since_the_start_and_of_unequal_lengths():
    ends = np.array(["2001-01-01T12", "2001-01-02T12"], "M8[ns]")
    values = np.broadcast_to(np.array([3.0, 6.0])[:, None, None, None], (2, 2, 3, 4))
    attributes = {"units": "kg m-2", "cell_methods": "time: sum"}
    data = xr.Dataset(
        {"tp": (("time", "number", "latitude", "longitude"), values, attributes)},
        {"time": ("time", ends, {"bounds": "time_bnds"}), "number": [1, 2],
         "latitude": LAT, "longitude": LON},
    )  # fmt: skip

    def with_bounds(begins, **coordinates):
        bounds = np.stack([np.array(begins, "M8[ns]"), ends], axis=1)
        return data.assign(time_bnds=(("time", "bnds"), bounds)).assign_coords(coordinates)

    start = {"forecast_reference_time": STARTS[0]}
    since = tidied(with_bounds(["2001-01-01", "2001-01-01"], **start))["tp"]
    np.testing.assert_allclose(point(since), [0.003, 0.006])
    later = tidied(with_bounds(["2001-01-01T06", "2001-01-01T12"], **start))["tp"]
    np.testing.assert_allclose(point(later), [0.003, 0.006])
    assert later.attrs["window"] == "6-12, 12-36 h"
    with pytest.raises(FileError, match="different lengths, and no start is stated"):
        tidied(with_bounds(["2001-01-01T06", "2001-01-01T12"]))


def test_a_lead_along_valid_times_under_our_name():
    got = tidied(run(VALID, step=("time", days(24, 60))))
    assert got["step"].values.tolist() == [24, 60]
    scalar = forecasts([280.0], [6], "K", name="t2m").isel(time=[0])
    kept = tidied(scalar.assign_coords(forecast_reference_time=STARTS[0]))
    assert kept["step"].values.tolist() == [6]


def test_levels_that_are_no_pressures():
    data = forecasts([280.0], [6], "K", name="t").expand_dims(level=[50.0, 85.0], axis=2)

    def at(**attributes):
        return tidied(data.assign_coords(level=("level", [50.0, 85.0], attributes)))

    assert at(units="kPa")["level"].values.tolist() == [500, 850]
    assert at(units="hPa")["level"].values.tolist() == [50, 85]
    with pytest.raises(ArgumentError, match="level: its values are in 'm', not pressures"):
        at(units="m")
    hybrid = "atmosphere_hybrid_sigma_pressure_coordinate"
    with pytest.raises(ArgumentError, match=hybrid):
        at(units="1", standard_name=hybrid)
