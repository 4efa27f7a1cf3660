import shutil

import eccodes
import numpy as np
import pytest
import xarray as xr
import zarr
from eccodesreader import messages
from gribfiles import GRID, REAL, cube
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10 import open_store, prepare
from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError, DamagedFileError, FileError
from ens10.export import export
from ens10.export.message import Label, Messages, ibm_below, to_ibm
from ens10.grib.packing import ibm_float, power, same_bits, to_float32
from ens10.packed16.layout import Packed
from ens10.source import open_source

LABEL = Label(VARIABLES["t"], 850, np.datetime64("2016-02-29T18:00"), 30, 7)
MAKER = Messages(GRID, 10)


def raw_messages(*paths):
    for path in paths:
        with path.open("rb") as file:
            while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                yield bytes(eccodes.codes_get_message(handle))
                eccodes.codes_release(handle)


def decoded(message, *keys):
    """Values as ecCodes gives them in double precision, and some keys."""
    handle = eccodes.codes_new_from_message(message)
    eccodes.codes_set(handle, "missingValue", 1e300)
    values = eccodes.codes_get_values(handle)
    values[values == 1e300] = np.nan
    found = [eccodes.codes_get(handle, key) for key in keys]
    eccodes.codes_release(handle)
    return values.reshape(GRID.rows, GRID.columns), *found


def test_members_come_back_as_the_very_same_messages(tiny, store, tmp_path):
    path = export(store, tmp_path / "a.grib")
    sources = list((tiny / "w").glob("output.*"))
    assert set(raw_messages(path)) == set(raw_messages(*sources))
    assert path.stat().st_size == sum(p.stat().st_size for p in sources)


def test_real_members_keep_their_packing(tmp_path):
    prepare(REAL, tmp_path / "s", codec="lz4")
    path = export(tmp_path / "s", tmp_path / "a.grb")
    theirs, ours = (dict(packed(p)) for p in (REAL, path))
    assert len(ours) == 160
    assert theirs == ours


def packed(path):
    """Which field each message holds, how it is packed, and its values."""
    keys = ("shortName", "dataDate", "dataTime", "number", "level")
    packing = ("referenceValue", "binaryScaleFactor", "decimalScaleFactor", "bitsPerValue")
    for message in raw_messages(path):
        handle = eccodes.codes_new_from_message(message)
        key = tuple(eccodes.codes_get(handle, name) for name in keys)
        how = tuple(eccodes.codes_get(handle, name) for name in packing)
        values = eccodes.codes_get_values(handle).tobytes()
        eccodes.codes_release(handle)
        yield key, (how, values)


def test_cfgrib_reads_what_the_store_holds(store, tmp_path):
    path = export(store, tmp_path / "a.grib", kind="sfc", variables=["2t"], steps=[24, 48])
    with xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}) as theirs:
        want = open_store(store, "sfc").t2m.sel(step=[24, 48])
        got = theirs.t2m.transpose("time", "step", "number", ...)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(theirs.time, want.time)
        assert theirs.valid_time.dims


def test_a_part_of_a_store(store, tmp_path):
    options = {"variables": ["t2m", "z"], "levels": [850], "members": [2, 3], "dates": ["2003"]}
    path = export(store, tmp_path / "a.grib", steps=[48], **options)
    found = {
        (k["shortName"], k["level"], k["number"], k["step"], k["dataDate"] // 10000)
        for k, _ in messages(path)
    }
    assert found == {(n, v, m, 48, 2003) for n, v in (("2t", 0), ("z", 850)) for m in (2, 3)}
    assert sum(1 for _ in messages(path)) == 3 * 2 * 2


def test_what_a_message_says():
    field = np.full((GRID.rows, GRID.columns), 3.0, np.float32)
    keys = ("dataDate", "dataTime", "step", "number", "level", "paramId", "typeOfLevel",
            "dataType", "edition", "centre")  # fmt: skip
    _, *found = decoded(MAKER.message(field, LABEL), *keys)
    assert found == [20160229, 1800, 30, 7, 850, 130, "isobaricInhPa", "pf", 1, "ecmf"]
    old = Label(LABEL.variable, 850, np.datetime64("2000-12-31T00:00"), 300, 0)
    _, *found = decoded(MAKER.message(field, old), *keys)
    assert found == [20001231, 0, 300, 0, 850, 130, "isobaricInhPa", "cf", 1, "ecmf"]


@settings(deadline=None)
@given(
    st.integers(1, 16), st.integers(-40, 40), st.integers(-6, 6), st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0]),
)  # fmt: skip
def test_any_packing_of_edition_1_is_kept(bits, binary, decimal, seed, gaps):
    random = np.random.default_rng(seed)
    codes = random.integers(0, 1 << bits, (GRID.rows, GRID.columns))
    reference = ibm_float(int(random.integers(0x3B100000, 0x46FFFFFF)) | int(seed % 2) << 31)
    gap = int(codes[0, 0]) if gaps else None
    if gaps:
        codes[random.random(codes.shape) < gaps] = gap
    field = Packed(
        codes.astype(np.uint16), reference, power(2, binary), power(10, -decimal), gap, bits
    )
    message = MAKER.message(field, LABEL)
    keys = ("referenceValue", "binaryScaleFactor", "decimalScaleFactor", "bitsPerValue")
    got, *found = decoded(message, *keys)
    assert same_bits(got.astype(np.float32), to_float32(field))
    assert found == pytest.approx([reference, binary, decimal, bits], rel=1e-15)


@pytest.mark.parametrize(("scale", "packing"), [(2.0**-8, "grid_ieee"), (2.0**-30, "grid_simple")])
def test_a_packing_of_edition_2_is_written_as_values(scale, packing):
    codes = np.random.default_rng(0).integers(0, 65536, (GRID.rows, GRID.columns))
    field = Packed(codes.astype(np.uint16), float(np.float32(-0.1)), scale)
    got, found = decoded(MAKER.message(field, LABEL), "packingType")
    assert same_bits(got.astype(np.float32), to_float32(field))
    assert found == packing


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(range(9)), st.sampled_from([0.0, 0.2, 1.0]))
def test_any_float32_field_is_written_exactly(seed, sort, gaps):
    random = np.random.default_rng(seed)
    shape = (GRID.rows, GRID.columns)
    values = [
        random.normal(280, 20, shape),
        random.normal(0, 1, shape) * 10.0 ** random.integers(-30, 30),
        random.integers(-1000, 1000, shape) * 2.0 ** random.integers(-60, 60),
        np.full(shape, random.normal(0, 1e3)),
        np.zeros(shape),
        np.where(random.random(shape) < 0.5, -0.0, 0.0),
        random.gamma(0.1, 1e-3, shape) * (random.random(shape) < 0.5),
        random.normal(0, 1e-41, shape),
        random.uniform(-3.4e38, 3.4e38, shape),
    ][sort].astype(np.float32)
    values[random.random(shape) < gaps] = np.nan
    got, *found = decoded(MAKER.message(values, LABEL), "packingType", "bitsPerValue")
    assert same_bits(got.astype(np.float32), values)
    if sort in (0, 4) and not np.isnan(values).all():
        assert found[0] == "grid_simple"
        assert found[1] <= 24


@settings(deadline=None)
@given(st.floats(-1e30, 1e30, allow_subnormal=False))
def test_the_reference_is_the_nearest_ibm_number_below(value):
    below = ibm_below(value)
    if abs(value) > 1e-70:
        assert ibm_float(to_ibm(below)) == below <= value
        assert value - below < abs(value) * 2.0**-20
        assert to_ibm(value) is None or below == value


def test_values_that_were_never_packed(tmp_path):
    random = np.random.default_rng(0)
    dims = ("time", "step", "level", "number", "latitude", "longitude")
    field = random.normal(0, 1e-4, (2, 1, 2, 2, 3, 4)).astype("f4")
    field[0, 0, 0, 0, 1] = np.nan
    field[0, 0, 1, 1] = np.nan
    coordinates = {
        "time": np.array(["2016-01-01T12", "2016-01-02T06:30"], "M8[ns]"),
        "step": [24],
        "level": [500, 850],
        "number": [0, 1],
        "latitude": [2.0, 1.0, 0.0],
        "longitude": [0.0, 30.0, 60.0, 90.0],
    }
    attributes = {"units": "s-1", "paramId": 138}
    dataset = xr.Dataset({"vo": (dims, field, attributes), "t": (dims, field + 280)}, coordinates)
    prepare(dataset, tmp_path / "s", missing="nan")
    path = export(tmp_path / "s", tmp_path / "a.grib")
    assert {k["packingType"] for k, _ in messages(path)} == {"grid_ieee", "grid_simple"}
    assert {k["dataType"] for k, _ in messages(path)} == {"cf", "pf"}
    prepare(path, tmp_path / "again")
    one, other = (open_store(tmp_path / s, "pl") for s in ("s", "again"))
    np.testing.assert_array_equal(one.vo, other.vo)
    np.testing.assert_array_equal(one.t, other.t)
    np.testing.assert_array_equal(one.time, other.time)
    np.testing.assert_array_equal(one.latitude, other.latitude)


def test_truth_becomes_analyses(store, tmp_path):
    path = export(store, tmp_path / "t.grib", kind="truth")
    assert {(k["dataType"], k["step"]) for k, _ in messages(path)} == {("an", 0)}
    want, got = open_store(store, "truth"), open_source(path)
    for name in want.data_vars:
        field = got[name].isel(step=0, number=0).sel(time=want.valid_time[:, 0].to_numpy())
        np.testing.assert_array_equal(field, want[name][:, 0])


def test_two_forecasts_of_one_time_share_its_truth(write, tmp_path):
    source = write(cube([("t2m", 0)], (20160101, 20160102), (24, 48), members=1))
    days = (20160102, 20160103, 20160104)
    truth = write([("t2m", 0, d, 0, 0) for d in days], "t.grib", data_type="an", members=0)
    prepare(source, tmp_path / "s", truth=truth)
    path = export(tmp_path / "s", tmp_path / "out.grib", kind="truth")
    assert [k["dataDate"] for k, _ in messages(path)] == list(days)
    part = export(tmp_path / "s", tmp_path / "part.grib", kind="truth", steps=[24])
    assert [k["dataDate"] for k, _ in messages(part)] == list(days[:2])
    array = zarr.open_group(str(tmp_path / "s"), use_consolidated=False)["truth/t2m"]
    array[1, 0] = array[1, 0] + 1  # valid on the third, as the second step of the first is
    with pytest.raises(ArgumentError, match=r"2016-01-03T00 differs.*2016-01-01T00.*2016-01-02T00"):
        export(tmp_path / "s", tmp_path / "b.grib", kind="truth")


def test_levels_in_pascal_and_fields_of_no_ensemble(tmp_path):
    dims = ("time", "step", "level", "number", "latitude", "longitude")
    field = np.random.default_rng(0).normal(8000, 10, (1, 2, 3, 1, 3, 4)).astype("f4")
    coordinates = {
        "time": np.array(["2016-01-01"], "M8[ns]"), "step": [0, 24], "level": [0.5, 0.7, 10.0],
        "number": [0], "latitude": [2.0, 1.0, 0.0], "longitude": [0.0, 30.0, 60.0, 90.0],
    }  # fmt: skip
    prepare(xr.Dataset({"z": (dims, field)}, coordinates), tmp_path / "s")
    path = export(tmp_path / "s", tmp_path / "a.grib")
    found = [(k["dataType"], k["typeOfLevel"], k["level"]) for k, _ in messages(path)]
    levels = [("isobaricInPa", 50), ("isobaricInPa", 70), ("isobaricInhPa", 10)]
    assert found == [(kind, *level) for kind in ("an", "fc") for level in levels]
    prepare(path, tmp_path / "again")
    got = open_store(tmp_path / "again", "pl")
    np.testing.assert_array_equal(got.z, field)
    assert got.level.to_numpy().tolist() == [0.5, 0.7, 10.0]


def test_what_edition_1_cannot_hold(tmp_path, store):
    def stored(name="t2m", **changes):
        coordinates = {
            "time": np.array(["2016-01-01"], "M8[ns]"), "step": [24], "number": [1, 2],
            "latitude": [2.0, 1.0, 0.0], "longitude": [0.0, 30.0, 60.0, 90.0],
        } | changes  # fmt: skip
        shape = tuple(len(v) for v in coordinates.values())
        field = (tuple(coordinates), np.full(shape, 280.0))
        dims = ("time", "step", "level", "number", "latitude", "longitude")
        dataset = xr.Dataset({name: field}, coordinates).transpose(*dims, missing_dims="ignore")
        return prepare(dataset, tmp_path / "s", force=True)

    out = tmp_path / "a.grib"
    for change, reason in (
        ({"name": "nonsense"}, "nonsense has no GRIB parameter number"),
        ({"number": [1, 300]}, "no member 300"),
        ({"name": "z", "level": [0.125, 1.0]}, "whole hPa or Pa"),
        ({"longitude": [0.0, 90.0, 180.0, 270.0]}, "cannot tell the grid"),
        ({"latitude": [2.0, 1.5, 0.0]}, "not regular"),
        ({"latitude": [2.00005, 1.00005, 0.00005]}, "not regular"),
        ({"step": [1.5]}, "whole hours"),
        ({"time": np.array(["2016-01-01T00:00:30"], "M8[ns]")}, "seconds"),
    ):
        place = stored(**change)
        with pytest.raises(ArgumentError, match=f"{reason}.*netCDF"):
            export(place, out)
    with pytest.raises(ArgumentError, match="no statistics"):
        export(store, out, kind="statistics")
    assert not list(tmp_path.glob("a.grib*"))


def test_damage_is_found_and_leaves_no_file(store, tmp_path):
    copy = shutil.copytree(store, tmp_path / "s")
    chunk = copy / "sfc/t2m/c/3/1/0/0/0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    with pytest.raises(DamagedFileError, match=r"c/3/1/0/0/0.*checksum"):
        export(copy, tmp_path / "a.grib")
    chunk.unlink()
    with pytest.raises(FileError, match="missing"):
        export(copy, tmp_path / "a.grib")
    assert not list(tmp_path.glob("a.grib*"))
