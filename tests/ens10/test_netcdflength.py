"""The end of netCDF files, against the files that the netCDF library writes."""

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ens10.errors import DamagedFileError
from ens10.source import open_source
from ens10.source.netcdf_length import check_length

CLASSIC = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
TYPES = ("i1", "i2", "i4", "f4", "f8", "S1")
VARIABLES = st.lists(
    st.tuples(st.sampled_from(TYPES), st.booleans(), st.lists(st.integers(0, 2), max_size=2)),
    min_size=1,
    max_size=4,
)


def write(path, fmt, variables, records):
    """A file of variables (type, over records, other dimensions), filled with ones."""
    with netCDF4.Dataset(path, "w", format=fmt) as file:
        file.title = "odd"
        file.createDimension("record", None)
        for n, size in enumerate((3, 5, 1)):
            file.createDimension(f"d{n}", size)
        for n, (kind, by_record, others) in enumerate(variables):
            dims = ("record",) * by_record + tuple(f"d{m}" for m in others)
            variable = file.createVariable(f"variable{n}", kind, dims)
            variable.units = "x" * n
            shape = [records if d == "record" else len(file.dimensions[d]) for d in dims]
            variable[...] = np.ones(shape, np.int8).astype(kind)


@given(VARIABLES, st.integers(1, 4), st.sampled_from(CLASSIC))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_classic_files(tmp_path, variables, records, fmt):
    """A whole file passes; without its last four bytes (one of data at least) it does not."""
    path = tmp_path / "a.nc"
    write(path, fmt, variables, records)
    check_length(path)
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 4)
    with pytest.raises(DamagedFileError, match="damaged at byte"):
        check_length(path)


@pytest.mark.parametrize("fmt", [*CLASSIC, "NETCDF4"])
def test_every_length(tmp_path, fmt):
    path = tmp_path / "a.nc"
    write(path, fmt, [("i2", True, [0])], 3)
    raw = path.read_bytes()
    needed = len(raw) - (len(raw) % 4 if fmt in CLASSIC else 0)
    for size in {*range(12, len(raw), 1 if fmt in CLASSIC else 37)}:
        path.write_bytes(raw[:size])
        if size < needed - 3:
            with pytest.raises(DamagedFileError) as caught:
                check_length(path)
            assert f"{path}: damaged at byte" in str(caught.value)
            assert caught.value.offset <= size


def test_other_files_pass(tmp_path):
    for content in (b"", b"GRIB", b"hello world, this is no netCDF", bytes(100)):
        (tmp_path / "a").write_bytes(content)
        check_length(tmp_path / "a")


def test_sources_are_not_read_as_zeros(tmp_path):
    """The library reads zeros where the end of a classic file lacks."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        for name, size in {"time": 2, "latitude": 3, "longitude": 4}.items():
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        file["time"].units = "days since 2000-01-01"
        file.createVariable("t2m", "f4", ("time", "latitude", "longitude"))[:] = 280.0
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 8)
    with netCDF4.Dataset(path) as file:
        assert (np.asarray(file["t2m"][1, 2, 2:]) == 0).all()
    with pytest.raises(DamagedFileError, match="lacks 8 bytes"):
        open_source(path)
