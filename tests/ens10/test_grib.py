import eccodes
import numpy as np
import pytest
from gribfiles import GRID, REAL, cube
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.catalog import VARIABLES
from ens10.errors import DamagedFileError, Ens10Error, FileError
from ens10.grib import Encoder, LatLonGrid, decode, scan
from ens10.grib.grid import from_header


def decoded(path):
    with path.open("rb") as file:
        return [decode(message, file) for message in scan(path)]


@settings(max_examples=15, deadline=None)
@given(
    shape=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    scale=st.floats(1e-6, 1e5),
    gaps=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    constant=st.booleans(),
)
def test_round_trip(tmp_path_factory, shape, scale, gaps, seed, constant):
    rng = np.random.default_rng(seed)
    grid = LatLonGrid(*shape, 60.0, 20.0, 10.0, 2.0)
    field = rng.normal(size=shape) * scale * (not constant)
    first = np.full(shape, 1.0)  # a constant one before must not change the packing
    holed = np.where(rng.random(shape) < gaps, np.nan, field)
    path = tmp_path_factory.mktemp("trip") / "a.grib"
    encoder = Encoder(grid)
    sst = VARIABLES["sst"]
    path.write_bytes(
        b"".join(encoder.message(v, sst, date=20000229, step=48, number=7) for v in (first, holed))
    )
    messages, fields = scan(path), decoded(path)
    m = messages[1]
    assert (m.meaning.name, m.number, m.meaning.step, str(m.time), m.meaning.grid) == (
        "sst",
        7,
        48,
        "2000-02-29T00:00:00",
        grid,
    )
    np.testing.assert_array_equal(np.isnan(fields[1]), np.isnan(holed))
    known = holed[~np.isnan(holed)]
    if known.size:
        tolerance = np.ptp(known) / 2**15 + 1e-6 * np.abs(known).max()
        np.testing.assert_allclose(fields[1], holed, rtol=0, atol=tolerance)
    assert m.meaning.bits in (0, 16)


def test_the_value_of_the_missing_mark_survives_beside_gaps(tmp_path):
    field = np.full((GRID.rows, GRID.columns), 9999.0)
    field[0] = np.nan
    path = tmp_path / "a.grib"
    path.write_bytes(Encoder(GRID).message(field, VARIABLES["z"], date=20000101, level=500))
    np.testing.assert_array_equal(decoded(path)[0], field.astype("f4"))


def test_index_reads_what_eccodes_reads(write):
    path = write(cube(dates=(19991231, 20000101), steps=(0, 48, 360)))
    with path.open("rb") as file:
        for m in scan(path):
            handle = eccodes.codes_grib_new_from_file(file)
            read = {
                key: eccodes.codes_get(handle, key)
                for key in ("dataDate", "number", "step", "paramId", "level", "totalLength")
            }
            assert int(str(m.time)[:10].replace("-", "")) == read["dataDate"]
            assert (m.number, m.meaning.step, m.meaning.param_id) == (
                read["number"],
                read["step"],
                read["paramId"],
            )
            assert (m.meaning.level, m.length) == (read["level"], read["totalLength"])
            values = eccodes.codes_get_values(handle).reshape(GRID.rows, GRID.columns)
            with path.open("rb") as again:
                np.testing.assert_array_equal(decode(m, again), values.astype("f4"))
            eccodes.codes_release(handle)


def message_of(field, lat, lon, edition, south=False, west=False, by_column=False):
    """A message with its values in the order of the scan flags."""
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{edition}")
    lat, lon = (lat[::-1] if south else lat), (lon[::-1] if west else lon)
    keys = {
        "Ni": lon.size,
        "Nj": lat.size,
        "latitudeOfFirstGridPointInDegrees": lat[0],
        "latitudeOfLastGridPointInDegrees": lat[-1],
        "longitudeOfFirstGridPointInDegrees": lon[0],
        "longitudeOfLastGridPointInDegrees": lon[-1],
        "iDirectionIncrementInDegrees": abs(lon[1] - lon[0]),
        "jDirectionIncrementInDegrees": abs(lat[1] - lat[0]),
        "iScansNegatively": int(west),
        "jScansPositively": int(south),
        "jPointsAreConsecutive": int(by_column),
        "bitsPerValue": 16,
        "centre": "ecmf",
        "paramId": 167,
        "dataDate": 20170101,
    }
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value if isinstance(value, str | int) else float(value))
    field = field[:: -1 if south else 1, :: -1 if west else 1]
    eccodes.codes_set_values(handle, (field.T if by_column else field).astype(float).ravel())
    message = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return message


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"south": True},
        {"west": True},
        {"by_column": True},
        {"south": True, "west": True, "by_column": True},
    ],
)
@pytest.mark.parametrize("origin", [0, 180, -180, -90])
def test_scan_orders_and_origins_come_out_the_same(tmp_path, edition, flags, origin):
    lat, lon = np.linspace(90, -90, 7), np.arange(0, 360, 30.0)
    field = np.arange(84.0).reshape(7, 12)
    columns = ((lon + origin) % 360 / 30).astype(int)
    lons = lon + origin if edition == 1 else (lon + origin) % 360
    path = tmp_path / "a.grib"
    path.write_bytes(message_of(field[:, columns], lat, lons, edition, **flags))
    (message,) = scan(path)
    np.testing.assert_array_equal(message.meaning.grid.latitude(), lat)
    np.testing.assert_array_equal(message.meaning.grid.longitude(), lon)
    np.testing.assert_allclose(decoded(path)[0], field, atol=84 / 2**15)


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("west", [False, True])
def test_region_across_greenwich(tmp_path, edition, west):
    lat, lon = np.linspace(60, 40, 5), np.array([-10.0, -5, 0, 5])
    field = np.arange(20.0).reshape(5, 4)
    path = tmp_path / "a.grib"
    path.write_bytes(message_of(field, lat, lon if edition == 1 else lon % 360, edition, west=west))
    np.testing.assert_array_equal(scan(path)[0].meaning.grid.longitude(), lon)
    np.testing.assert_allclose(decoded(path)[0], field, atol=1e-3)


def test_regions_are_counted_alike_in_both_editions():
    negative, _ = from_header((3, 4), (10, 0), (-120.0, -90.0))
    positive, _ = from_header((3, 4), (10, 0), (240.0, 270.0))
    assert negative == positive
    closed, _ = from_header((3, 5), (10, 0), (0.0, 360.0))
    np.testing.assert_array_equal(closed.longitude(), [0, 90, 180, 270, 360])


@pytest.fixture
def three(write):
    path = write(cube(members=3, steps=(24,), dates=(20160101,), names=(("t2m", 0),)))
    return path, [m.offset for m in scan(path)]


ENDS = {  # where the last message begins: where the file ends
    "10 bytes lack": (lambda begin: -10, ".*10 bytes"),
    "2 bytes of the header": (lambda begin: begin + 2, ""),
    "9 bytes of the header": (lambda begin: begin + 9, ""),
}


@pytest.mark.parametrize("which", ENDS)
def test_a_file_that_ends_in_its_last_message(three, which):
    path, offsets = three
    end, words = ENDS[which]
    path.write_bytes(path.read_bytes()[: end(offsets[2])])
    with pytest.raises(DamagedFileError, match=f"a.grib: damaged at byte {offsets[2]}: {words}"):
        scan(path)


def test_bad_end_and_garbage_and_zero_length(three):
    path, offsets = three
    whole = path.read_bytes()
    path.write_bytes(whole[: offsets[1] - 1] + b"8" + whole[offsets[1] :])
    with pytest.raises(DamagedFileError, match=r"byte 0: .*7777"):
        scan(path)
    path.write_bytes(whole[: offsets[1]] + b"junk" + whole[offsets[1] :])
    with pytest.raises(DamagedFileError, match=f"byte {offsets[1]}: 4 bytes"):
        scan(path)
    path.write_bytes(whole[: offsets[1]] + b"\0\0" + whole[offsets[1] :] + b"\0\0\0")
    assert len(scan(path)) == 3
    zero = bytearray(whole)
    zero[offsets[1] + 4 : offsets[1] + 7] = b"\0\0\0"
    path.write_bytes(zero)
    with pytest.raises(DamagedFileError, match=f"byte {offsets[1]}.*length"):
        scan(path)


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (b"hello, world", "not a GRIB")])
def test_no_grib_at_all(tmp_path, content, reason):
    path = tmp_path / "a.grib"
    path.write_bytes(content)
    with pytest.raises(FileError, match=reason):
        scan(path)


def test_flipped_header_bytes_never_raise_anything_untyped(tmp_path, write):
    whole = write(cube(members=1, steps=(24,), dates=(20160101,), names=(("t2m", 0),))).read_bytes()
    path, refused = tmp_path / "b.grib", 0
    rng = np.random.default_rng(0)
    for place in range(4, 100):
        bad = bytearray(whole)
        bad[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bad)
        try:
            decoded(path)
        except Ens10Error as error:
            assert "b.grib" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 10


def test_real_members_equal_eccodes():
    with REAL.open("rb") as file, REAL.open("rb") as again:
        messages = scan(REAL)
        assert len(messages) == 160
        for m in messages:
            handle = eccodes.codes_grib_new_from_file(file)
            want = eccodes.codes_get_values(handle).reshape(61, 120).astype("f4")
            eccodes.codes_release(handle)
            np.testing.assert_array_equal(decode(m, again), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_field_with_gaps_after_one_without_keeps_its_gaps(tmp_path, dtype):
    encoder = Encoder(LatLonGrid(4, 8, 90.0, -90.0, 0.0, 45.0))
    whole, holed = np.full((4, 8), 280.0) + np.arange(8), np.full((4, 8), 290.0) + np.arange(8)
    holed[1:3, 2:5] = np.nan
    path = tmp_path / "mixed"
    order = [("t2m", whole), ("sst", holed), ("t2m", whole), ("sst", holed)]
    path.write_bytes(
        b"".join(
            encoder.message(field.astype(dtype), VARIABLES[name], date=20010101 + n)
            for n, (name, field) in enumerate(order)
        )
    )
    with path.open("rb") as file:
        for message, (_, field) in zip(scan(path), order, strict=True):
            np.testing.assert_allclose(decode(message, file), field, atol=1e-3)
