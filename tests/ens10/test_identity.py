"""GRIB fields are read for what they are: kind, unit as stated, window, level, exact lead time."""

import datetime as dt
import hashlib
from dataclasses import replace

import eccodes
import numpy as np
import pytest
from packedmessages import SHAPE, message

import ens10
from ens10.cli import main
from ens10.errors import (
    DamagedFileError,
    DataNote,
    FileError,
    MissingDataError,
    UnknownNameError,
)
from ens10.grib import header, isolated, scan
from ens10.identity import FieldKind, Method, Window
from ens10.inspection import inspect_path
from ens10.selection import Selection
from ens10.source import open_source
from ens10.source.gribs import GribFields, axes_of
from ens10.synthetic.coded import write_coded

FIELD = np.arange(40.0).reshape(SHAPE) / 16
LOCAL = {"setLocalDefinition": 1, "localDefinitionNumber": 1, "stream": "enfo"}
EDITION_1 = {**LOCAL, "numberOfForecastsInEnsemble": 3}


def member(number, edition=2, value=280.0, **keys):
    kind = {"productDefinitionTemplateNumber": 1} if edition == 2 else {**EDITION_1, "type": "pf"}
    return message(FIELD + value + number, edition, {**kind, "perturbationNumber": number, **keys})


@pytest.fixture
def write(tmp_path):
    def written(*raws, name="a.grib"):
        path = tmp_path / name
        path.write_bytes(b"".join(raws))
        return path

    return written


def template(number, **keys):
    return message(FIELD, 2, {"productDefinitionTemplateNumber": number, **keys})


def process(code, template_number=1):
    return template(template_number, typeOfGeneratingProcess=code)


RAIN = {"paramId": 228228}
PRODUCTS = {
    "mean (em)": (lambda: message(FIELD, 1, {**EDITION_1, "type": "em"}), FieldKind.MEAN),
    "spread (es)": (lambda: message(FIELD, 1, {**EDITION_1, "type": "es"}), FieldKind.SPREAD),
    "quantile (pb)": (lambda: message(FIELD, 1, {**EDITION_1, "type": "pb"}), FieldKind.QUANTILE),
    "cluster mean (cm)": (lambda: message(FIELD, 1, {**EDITION_1, "type": "cm"}), FieldKind.MEAN),
    "efi": (lambda: message(FIELD, 1, {**EDITION_1, "type": "efi"}), FieldKind.OTHER),
    "difference": (
        lambda: message(FIELD, 1, {"stepType": "diff", "stepRange": "0-24"}),
        FieldKind.DIFFERENCE,
    ),
    "4.2 mean": (lambda: template(2, derivedForecast=0), FieldKind.MEAN),
    "4.2 spread": (lambda: template(2, derivedForecast=4), FieldKind.SPREAD),
    "4.2 maximum of the members": (lambda: template(2, derivedForecast=9), FieldKind.OTHER),
    "4.3 mean of a cluster": (lambda: template(3, derivedForecast=6), FieldKind.MEAN),
    "4.5 probability": (lambda: template(5, probabilityType=3), FieldKind.PROBABILITY),
    "4.6 percentile": (lambda: template(6, percentileValue=90), FieldKind.QUANTILE),
    "4.7 error": (lambda: template(7), FieldKind.SPREAD),
    "4.9 probability of a sum": (lambda: template(9, **RAIN), FieldKind.PROBABILITY),
    "4.10 percentile of a sum": (lambda: template(10, **RAIN), FieldKind.QUANTILE),
    "4.12 mean of a sum": (lambda: template(12, **RAIN), FieldKind.MEAN),
    "4.86 quantile": (lambda: template(86, totalNumberOfQuantiles=10), FieldKind.QUANTILE),
    "4.15 statistics over an area": (lambda: template(15), FieldKind.OTHER),
    "4.55 tile": (lambda: template(55), FieldKind.OTHER),
    "4.59 tile of a member": (lambda: template(59), FieldKind.OTHER),
    "4.62 sum of a tile": (lambda: template(62, **RAIN), FieldKind.OTHER),
    "4.63 sum of a tile of a member": (lambda: template(63, **RAIN), FieldKind.OTHER),
    "process: error of an analysis": (lambda: process(7), FieldKind.SPREAD),
    "process: observation": (lambda: process(8), FieldKind.OBSERVATION),
    "process: climate": (lambda: process(9), FieldKind.OTHER),
    "process: increment": (lambda: process(20), FieldKind.DIFFERENCE),
    "4.199 mean, post-processed": (lambda: template(199, derivedForecast=0), FieldKind.MEAN),
}


@pytest.mark.parametrize("which", PRODUCTS)
def test_products_of_an_ensemble_are_no_members(write, which):
    make, kind = PRODUCTS[which]
    try:
        raw = make()
    except eccodes.CodesInternalError:
        pytest.skip("this ecCodes lacks the template")
    path = write(*(member(n) for n in (1, 2, 3)), raw)
    assert [m.meaning.kind for m in scan(path)] == [FieldKind.MEMBER] * 3 + [kind]
    with pytest.warns(DataNote, match=rf"no members are left out: 1 x {kind} of"):
        fields = GribFields([path])
    assert fields.numbers == [1, 2, 3]
    np.testing.assert_array_equal(fields.dataset()["t2m"].sel(number=2).squeeze(), FIELD + 282)
    alone = write(raw, name="alone.grib")
    if kind == FieldKind.OBSERVATION:  # they may be truth
        assert GribFields([alone]).variables == ["t2m"]
        return
    with pytest.raises(FileError, match=f"no members and no deterministic fields, only 1 x {kind}"):
        GribFields([alone])
    rows = inspect_path(path)
    assert all(row.status == "ok" for row in rows)
    assert sorted(row.name for row in rows)[0] == "t2m"
    assert any(kind in row.name for row in rows)


def test_control_and_perturbed_are_members(write):
    kinds = [
        (message(FIELD, 1, {**EDITION_1, "type": "cf"}), FieldKind.MEMBER),
        (message(FIELD, 1, {**EDITION_1, "type": "fc"}), FieldKind.MEMBER),  # seasonal forecasts
        (message(FIELD, 1, {**EDITION_1, "type": "fc", "numberOfForecastsInEnsemble": 0}),
         FieldKind.DETERMINISTIC),
        (message(FIELD, 1, {}), FieldKind.DETERMINISTIC),
        (template(60), FieldKind.MEMBER),
        (template(11), FieldKind.MEMBER),
        (template(0), FieldKind.DETERMINISTIC),
        (template(8), FieldKind.DETERMINISTIC),
    ]  # fmt: skip
    for raw, kind in kinds:
        assert scan(write(raw))[0].meaning.kind == kind


def test_a_deterministic_field_counts_where_there_are_no_members(write):
    high = template(0, paramId=167)
    with pytest.warns(DataNote, match="1 x deterministic field of t2m"):
        both = GribFields([write(member(1), member(2), high)])
    assert both.numbers == [1, 2]
    assert GribFields([write(high)]).numbers == [0]


def test_observations_count_where_there_is_no_forecast(write):
    forecast = template(0, typeOfGeneratingProcess=2)
    with pytest.warns(DataNote, match="left out: 1 x observation of t2m"):
        fields = GribFields([write(forecast, process(8, 0))])
    assert fields.dataset()["t2m"].dtype == np.float32


TIMES = {
    "the time it is valid": (
        {"significanceOfReferenceTime": 2},
        "the time of the message at byte 0 is the verifying time of.*no start",
    ),
    "a local time": (
        {"significanceOfReferenceTime": 4},
        "the time of the message at byte 0 is a local time.*no start",
    ),
    "a lead time in months": (
        {"indicatorOfUnitOfTimeRange": 3, "forecastTime": 2},
        r"gives its lead time in months\. Write it in hours",
    ),
}


@pytest.mark.parametrize("which", TIMES)
def test_times_that_are_refused(write, which):
    keys, words = TIMES[which]
    path = write(member(1, **keys))
    with pytest.raises(FileError, match=words):
        GribFields([path])


def test_a_time_that_is_the_start(write):
    assert GribFields([write(member(1, significanceOfReferenceTime=0))]).steps == [0]


@pytest.mark.parametrize(
    ("unit", "seconds"), [(0, 60), (13, 1), (10, 10800), (1, 3600), (2, 86400)]
)
def test_lead_times_are_exact_to_the_second(write, unit, seconds):
    keys = {"indicatorOfUnitOfTimeRange": unit}
    path = write(*(member(1, **keys, forecastTime=n) for n in (30, 90, 150)))
    assert [m.meaning.window.end for m in scan(path)] == [n * seconds for n in (30, 90, 150)]
    assert open_source(path)["step"].values.tolist() == [n * seconds / 3600 for n in (30, 90, 150)]


def test_minutes_of_edition_1(write):
    path = write(*(member(1, 1, unitOfTimeRange=0, P1=n) for n in (15, 30)))
    assert open_source(path)["step"].values.tolist() == [0.25, 0.5]


def rain(number, step_range, value, edition=2, **keys):
    kind = {"productDefinitionTemplateNumber": 11}
    if edition == 1:
        kind = {**EDITION_1, "type": "pf", "stepType": "accum"}
    keys = {**kind, "perturbationNumber": number, "paramId": 228, **keys}
    return message(FIELD * 0 + value, edition, {**keys, "stepRange": step_range})


@pytest.mark.parametrize("last", [0xFFFFFFFE, 0xFFFFFFFF])
def test_a_range_of_all_ones_is_damage(write, last):
    raw = bytearray(rain(1, "0-24", 0.001))
    handle = eccodes.codes_new_from_message(bytes(raw))
    begin = eccodes.codes_get_long(handle, "offsetSection4")
    octets = slice(begin + 52, begin + 56)
    assert raw[octets] == (24).to_bytes(4, "big")
    raw[octets] = last.to_bytes(4, "big")
    path = write(bytes(raw))
    with pytest.raises(DamagedFileError, match=r"its time range from 0 to .* is impossible"):
        GribFields([path])
    assert "impossible" in inspect_path(path)[0].status


def values(dataset, name="tp"):
    return dataset[name].isel(time=0, number=0, latitude=0, longitude=0).values.tolist()


def test_units_are_those_of_the_file(write):
    path = write(rain(1, "0-24", 2.0, paramId=228228), rain(2, "0-24", 20.0, paramId=228228))
    tp = open_source(path)["tp"]
    handle = eccodes.codes_new_from_message(path.read_bytes())
    assert eccodes.codes_get(handle, "units") == "kg m**-2"
    assert (tp.attrs["units"], tp.attrs["converted_from"]) == ("m", "kg m**-2")
    np.testing.assert_array_equal(tp[0, 0, :, 0, 0], np.float32([0.002, 0.02]))
    store = ens10.prepare(path, path.parent / "s.zarr")
    stored = ens10.open_store(store, "sfc")["tp"]
    np.testing.assert_array_equal(stored, tp)
    assert (stored.attrs["units"], stored.attrs["converted_from"]) == ("m", "kg m**-2")
    (row,) = inspect_path(path)
    assert (row.units, row.status) == ("m", "ok")
    assert "converted from kg m**-2" in row.note
    np.testing.assert_allclose([row.minimum, row.maximum], [0.002, 0.02], rtol=1e-6)


def test_units_may_differ_between_dates(write):
    path = write(
        rain(1, "0-24", 2.0, paramId=228228), rain(1, "0-24", 0.003, dataDate=20170102, paramId=228)
    )
    np.testing.assert_allclose(open_source(path)["tp"][:, 0, 0, 0, 0], [0.002, 0.003], rtol=1e-4)


def test_per_cent_becomes_a_share(write):
    path = write(*(member(n, value=50.0, paramId=228164) for n in (1, 2)))
    cover = open_source(path)["tcc"]
    np.testing.assert_allclose(cover[0, 0, 0], (FIELD + 51) / 100, rtol=1e-6)
    assert cover.attrs["units"] == "1"


def test_any_values_changes_no_unit(write, tmp_path):
    path = write(rain(1, "0-24", 2e4, paramId=228228))
    assert main(["prepare", str(path), str(tmp_path / "s.zarr"), "--any-values"]) == 0
    stored = ens10.open_store(tmp_path / "s.zarr", "sfc")["tp"]
    np.testing.assert_array_equal(stored, np.full(stored.shape, 20.0, "f4"))


def test_units_that_cannot_be_converted_are_an_error(write):
    raw = bytearray(member(1, paramId=167))
    path = write(bytes(raw))
    fields = GribFields([path])
    assert fields.attributes("t2m")["units"] == "K"
    messages = scan(path)
    messages.meanings[0] = replace(messages.meanings[0], units="m s**-1")
    with pytest.raises(FileError, match=r"a\.grib at byte 0: t2m has the units 'm s\*\*-1'"):
        axes_of(messages, [0])


WINDOWS = {
    "since the start": (["0-6", "0-12", "0-18"], [6, 12, 18]),
    "of intervals": (["0-6", "6-12", "12-18"], [6, 12, 18]),
    "of three and six hours": (["0-3", "0-6", "6-9", "6-12", "12-15", "12-18"], range(3, 19, 3)),
    "of unequal steps": (["0-1", "1-6", "6-18"], [1, 6, 18]),
}


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("which", WINDOWS)
def test_sums_since_the_start_from_any_windows(write, which, edition):
    """1 mm falls in each hour."""
    ranges, steps = WINDOWS[which]
    hours = [int(r.split("-")[1]) - int(r.split("-")[0]) for r in ranges]
    path = write(
        *(rain(n, r, h / 1000, edition) for n in (1, 2) for r, h in zip(ranges, hours, strict=True))
    )
    dataset = open_source(path)
    assert dataset["step"].values.tolist() == list(steps)
    np.testing.assert_allclose(values(dataset), np.array(steps) / 1000, rtol=1e-4)
    assert dataset["tp"].attrs["window"] == "since start"
    last = open_source(path, variables=["tp"])  # steps are selected after the sums
    store = ens10.prepare(path, path.parent / "s.zarr", steps=[steps[-1]])
    np.testing.assert_array_equal(ens10.open_store(store, "sfc")["tp"], last["tp"].isel(step=[-1]))


def test_mean_rates_become_sums(write):
    """A rate of 1 mm an hour over unequal steps, and the first step missing."""
    rate = {"paramId": 235055}
    path = write(
        *(rain(1, r, 1 / 3600, **rate) for r in ("0-3", "3-6", "6-12")),
        *(member(1, forecastTime=n) for n in (0, 3, 6, 12)),
    )
    dataset = open_source(path)
    assert dataset["step"].values.tolist() == [0, 3, 6, 12]
    np.testing.assert_allclose(values(dataset), [0, 0.003, 0.006, 0.012], rtol=1e-4)
    assert dataset["tp"].attrs["units"] == "m"


def test_a_rate_keeps_its_name_beside_the_amount(write):
    path = write(rain(1, "0-3", 0.003), rain(1, "0-3", 1 / 3600, paramId=235055))
    assert sorted(open_source(path).data_vars) == ["avg_tprate", "tp"]


def test_windows_that_leave_a_gap_are_kept(write):
    path = write(*(rain(1, r, h / 1000) for r, h in (("6-12", 6), ("12-24", 12))))
    dataset = open_source(path)
    np.testing.assert_allclose(values(dataset), [0.006, 0.012], rtol=1e-4)
    assert dataset["tp"].attrs["window"] == "6-12, 12-24 h"
    store = ens10.prepare(path, path.parent / "s.zarr")
    assert ens10.open_store(store, "sfc")["tp"].attrs["window"] == "6-12, 12-24 h"
    only = GribFields([path], selection=Selection.of(steps=[12])).dataset()
    assert only["tp"].attrs["window"] == "6 h"


def test_precipitation_without_a_first_step_beside_a_variable_that_has_it(write, capsys, tmp_path):
    path = write(
        *(member(n, forecastTime=s) for n in (1, 2) for s in (0, 24)),
        *(rain(n, "0-24", 0.002) for n in (1, 2)),
    )
    assert main(["prepare", str(path), str(tmp_path / "s.zarr")]) == 0
    stored = ens10.open_store(tmp_path / "s.zarr", "sfc")
    np.testing.assert_allclose(values(stored), [0, 0.002], rtol=1e-4)
    notes = {row.name: row.note for row in inspect_path(path)}
    assert "no step 0 h, which other variables have" not in notes["t2m"]


def test_a_step_that_a_variable_lacks_is_told_with_a_remedy(write):
    path = write(*(member(1, forecastTime=s) for s in (24, 48)), member(1, paramId=165, step=24))
    with pytest.raises(MissingDataError, match=r"--steps 24 alone; select these"):
        GribFields([path])
    steps = GribFields([path], selection=Selection.of(steps=[24])).steps
    assert steps == [24]


def test_methods_of_one_parameter_are_variables_of_their_own(write):
    maximum = {**EDITION_1, "type": "pf", "stepType": "max", "stepRange": "0-6"}
    path = write(
        member(1, forecastTime=6), message(FIELD + 290, 1, {**maximum, "perturbationNumber": 1})
    )
    assert Window(Method.MAXIMUM, 0, 21600) in {m.meaning.window for m in scan(path)}
    fields = GribFields([path], selection=Selection.of(["t2m"]))
    assert fields.variables == ["t2m"]
    np.testing.assert_array_equal(fields.dataset()["t2m"].squeeze(), FIELD + 281)
    other = GribFields([path], selection=Selection.of(["t2m_maximum"])).dataset()["t2m_maximum"]
    np.testing.assert_array_equal(other.squeeze(), FIELD + 290)
    assert other.attrs["window"] == "since start"


def at_level(level_type, place, number=1, **keys):
    """Temperature on a level of code table 4.5: 100 is in Pa, 103 in m above ground."""
    level = {"discipline": 0, "parameterCategory": 0, "parameterNumber": 0}
    at = {"typeOfFirstFixedSurface": level_type, "scaleFactorOfFirstFixedSurface": 0}
    return member(number, **level, **at, scaledValueOfFirstFixedSurface=place, **keys)


def test_the_air_off_pressure_levels_has_its_level_in_the_name(write):
    path = write(
        *(at_level(100, 50000, n) for n in (1, 2)),
        *(at_level(103, 80, n, value=290.0) for n in (1, 2)),
        *(at_level(105, 137, n, value=295.0) for n in (1, 2)),
    )
    handle = eccodes.codes_new_from_message(at_level(103, 80))
    assert eccodes.codes_get(handle, "typeOfLevel") == "heightAboveGround"
    assert eccodes.codes_get(handle, "shortName") == "t"
    fields = GribFields([path])
    assert fields.variables == ["t", "t_80m", "t_hybrid137"]
    assert fields.levels == {"t": [500], "t_80m": [], "t_hybrid137": []}
    dataset = fields.dataset()
    np.testing.assert_array_equal(dataset["t"][0, 0, 0, 1], FIELD + 282)
    np.testing.assert_array_equal(dataset["t_80m"][0, 0, 1], FIELD + 292)
    np.testing.assert_array_equal(dataset["t_hybrid137"][0, 0, 1], FIELD + 297)
    assert "paramId" not in dataset["t_80m"].attrs  # which is that of every level
    with pytest.raises(UnknownNameError, match="'t'"):
        GribFields([write(at_level(103, 80), name="b.grib")], selection=Selection.of(["t"]))
    assert sorted({row.name for row in inspect_path(path)}) == fields.variables


def test_a_window_of_one_date_alone(write):
    """It was told as missing, with a remedy that does not help."""
    later = {"dataDate": 20170103}
    path = write(
        *(rain(1, r, 0.006) for r in ("0-6", "6-12")),
        *(rain(1, r, 0.006, **later) for r in ("0-6", "0-12")),
    )
    words = (
        r"gives tp of 2017-01-01T12, step 12 h, number 1 as sum of 6-12 h, and at other dates or "
        r"of other members it is sum of 0-12 h\. Prepare fields of different windows"
    )
    with pytest.raises(FileError, match=words):
        GribFields([path])
    kept = GribFields([path], "nan").dataset()["tp"].isel(step=1, number=0, latitude=0, longitude=0)
    np.testing.assert_allclose(kept, [np.nan, 0.006], rtol=1e-4)


def test_a_deterministic_variable_beside_members(write):
    alone = template(0, paramId=165, typeOfGeneratingProcess=2)
    path = write(*(member(n) for n in (1, 2)), alone)
    words = "u10 has no member that other variables have: leave it out with --variables"
    with pytest.raises(MissingDataError, match=words):
        GribFields([path])
    assert GribFields([path], selection=Selection.of(["2t"])).numbers == [1, 2]


def test_a_short_name_is_that_of_the_plain_variable(write):
    maximum = {**EDITION_1, "type": "pf", "stepType": "max", "stepRange": "0-6"}
    extreme = message(FIELD + 290, 1, {**maximum, "perturbationNumber": 1})
    path = write(member(1, forecastTime=6), extreme)
    assert GribFields([path], selection=Selection.of(["2t"])).variables == ["t2m"]
    with pytest.raises(UnknownNameError, match="'2t'"):
        GribFields([write(extreme)], selection=Selection.of(["2t"]))


def test_a_message_that_does_not_say_what_it_holds(write, monkeypatch):
    keys = isolated.keys_of

    def without_param(path, raw):
        return {key: value for key, value in keys(path, raw).items() if key != "paramId"}

    monkeypatch.setattr(header, "keys_of", without_param)
    monkeypatch.setattr(header, "_headers", {})
    with pytest.raises(FileError, match="the message at byte 0 has no paramId, which says"):
        GribFields([write(member(1))])


def test_a_duplicate_names_the_attributes_that_differ(write):
    raws = [member(1, 1, expver=version) for version in ("0001", "0002")]
    path = write(*raws)
    words = "with the same values, expver 0001 and 0002. Remove one of the two"
    with pytest.raises(FileError, match=words):
        GribFields([path])
    assert "duplicated with the same values, expver 0001 and 0002" in inspect_path(path)[0].status


# Of the chunks that were made before fields had kinds and windows, and their attributes
CHUNKS = "5da4830865f2c787bcb9d5fea1ecd421c13badd38822c0538990190cc0dc107d"
TP = {
    "units": "m",
    "long_name": "total precipitation",
    "standard_name": "lwe_thickness_of_precipitation_amount",
}


def test_a_store_of_files_like_those_of_ens10_is_the_same_byte_for_byte(tmp_path):
    starts = [dt.date(2016, 1, 4), dt.date(2016, 1, 7)]
    variables = ("t2m", "tp", "tcc", "sst", "z", "q")
    write_coded(tmp_path / "w", starts=starts, variables=variables, levels=(500, 850))
    ens10.prepare(tmp_path / "w", tmp_path / "s.zarr", any_values=True)
    digest = hashlib.sha256()
    for file in sorted((tmp_path / "s.zarr").rglob("*")):
        if file.is_file() and "/c/" in str(file) and "manifest" not in str(file):
            digest.update(str(file.relative_to(tmp_path)).encode() + file.read_bytes())
    assert digest.hexdigest() == CHUNKS
    assert ens10.open_store(tmp_path / "s.zarr", "sfc")["tp"].attrs == TP


def test_truth_of_era5_in_grib(write, tmp_path):
    """Hourly sums from starts at 06 and 18 UTC, whose last steps were not fetched: 1 mm an hour."""
    hours = [(20161231, 1800), (20170101, 600), (20170101, 1800), (20170102, 600)]
    parts = [
        message(FIELD * 0 + 0.001, 2, {
            "productDefinitionTemplateNumber": 8, "dataDate": day, "dataTime": time, "paramId": 228,
            "stepRange": f"{hour}-{hour + 1}",
        })
        for day, time in hours for hour in range(12 if (day, time) != hours[-1] else 7)
    ]  # fmt: skip
    truth = write(*parts, name="truth.grib")
    forecast = write(*(rain(n, "0-24", 0.02, dataTime=1200) for n in (1, 2)))
    store = ens10.prepare(forecast, tmp_path / "s.zarr", truth=truth)
    stored = ens10.open_store(store, "truth")["tp"].squeeze()
    np.testing.assert_allclose(stored, np.full(SHAPE, 0.024), rtol=1e-4)
    short = write(*parts[:-2], name="short.grib")
    with pytest.raises(MissingDataError, match="tp of 2017-01-01T12 step 24"):
        ens10.prepare(forecast, tmp_path / "t.zarr", truth=short)
