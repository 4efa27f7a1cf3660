"""Cells of tables that cannot be read are refused by row and column; no row writes into another."""

import gzip
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ens10
from ens10.errors import FileError
from ens10.source import open_source
from ens10.source.names import Names

TIMES = pd.date_range("2001-01-01", periods=3, freq="120D")
COLUMNS = ["station", "time", "step", "number", "u10", "lat", "lon"]


@pytest.fixture
def frame():
    """u10 is 100 * date + 10 * station + member, so that each cell has its own value."""
    rows = [
        (station, str(time.date()), 24, member, 10.0 * s + member + 0.5 * t, 50 + s, 4 + s)
        for t, time in enumerate(TIMES)
        for s, station in enumerate("ab")
        for member in (1, 2)
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"station": object})


def write(frame, path):
    frame.to_csv(path, index=False)
    return path


CELLS = {
    "no time": ("time", 3, None, "row 4, column time: it is empty"),
    "no member": ("number", 5, None, "row 6, column number: it is empty"),
    "no station": ("station", 0, None, "row 1, column station: it is empty"),
    "no step": ("step", 11, None, "row 12, column step: it is empty"),
    "a text": ("u10", 3, "n.v.", "row 4, column u10: 'n.v.' is no number"),
    "a decimal comma": ("u10", 1, "2,5", "row 2, column u10: '2,5' has a decimal comma"),
    "a unit": ("step", 2, "24h", "row 3, column step: '24h' is no number"),
    "a latitude": ("lat", 4, 999, "row 5, column lat: '999' is no place on Earth"),
    "a longitude": ("lon", 4, -400, "row 5, column lon: '-400' is no place on Earth"),
    "an infinite step": ("step", 4, "inf", "row 5, column step: 'inf' is no number"),
    "a date beyond nanoseconds": ("time", 1, "2262-05-01", "row 2, column time: '2262-05-01' "),
    "no date": ("time", 6, "soon", "row 7, column time: 'soon' is no date"),
    "a date of the clock": ("time", 6, "now", "row 7, column time: 'now' is no date"),
}


@pytest.mark.parametrize("which", CELLS)
def test_a_cell_that_cannot_be_read(frame, tmp_path, which):
    column, row, cell, words = CELLS[which]
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = cell
    with pytest.raises(FileError, match=rf"f\.csv: {words}"):
        open_source(write(frame, tmp_path / "f.csv"))


TABLES = {
    "a header alone": (lambda f: f[:0], "the table has no rows"),
    **{
        f"a number that is no date: {number}": (
            lambda f, number=number: f.assign(time=number),
            f"row 1, column time: '{number}' is no date",
        )
        for number in (978307200, 20011301, 36892, 1)
    },
    "a day and month in either order": (
        lambda f: f.assign(time="01/02/2020"),
        "'01/02/2020' is a date whose day and month are ambiguous",
    ),
    "a fraction of a day": (
        lambda f: f.assign(time=20010101.5), "row 1, column time: '20010101.5' is no date such as",
    ),
    "no column of numbers": (
        lambda f: f.assign(u10="n.v."), "no column but time, step, number, station.* has numbers",
    ),
    "a column of decimal commas, which is not left out": (
        lambda f: f.assign(t2m="280,5"),
        r"t2m: '280,5' has a decimal comma \(12 cells.*decimal=','",
    ),
    "a station without a place": (
        lambda f: f.assign(lat=f["lat"].where(f["station"] != "b")), "station b has no lat",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", TABLES)
def test_a_table_that_cannot_be_read(frame, tmp_path, which):
    change, words = TABLES[which]
    with pytest.raises(FileError, match=words):
        open_source(write(change(frame), tmp_path / "f.csv"))


def test_an_observation_without_its_date_does_not_replace_another(frame, tmp_path):
    """A row whose date is empty was written in the place of the last date."""
    observed = frame[["station", "time", "u10"]].drop_duplicates(["station", "time"])
    observed["time"] = [str((pd.Timestamp(t) + pd.Timedelta("24h")).date()) for t in observed.time]
    observed["u10"] += 20
    forecasts, truth = write(frame, tmp_path / "f.csv"), tmp_path / "o.csv"
    ens10.prepare(forecasts, tmp_path / "s.zarr", truth=write(observed, truth))
    stored = ens10.open_store(tmp_path / "s.zarr", "truth")["u10"].squeeze()
    want = observed["u10"].to_numpy().reshape(3, 2)
    np.testing.assert_array_equal(stored, want)
    bad = observed.iloc[[1]].assign(time="", u10=-33.0)
    write(pd.concat([observed.drop(index=observed.index[1]), bad]), truth)
    with pytest.raises(FileError, match="row 6, column time: it is empty"):
        ens10.prepare(forecasts, tmp_path / "t.zarr", truth=truth)
    assert not (tmp_path / "t.zarr").exists()


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H"])
def test_dates_as_whole_numbers(frame, tmp_path, form):
    numbers = [int(pd.Timestamp(time).strftime(form)) for time in frame["time"]]
    got = open_source(write(frame.assign(time=numbers), tmp_path / "f.csv"))
    np.testing.assert_array_equal(got["time"], TIMES.to_numpy())
    want = open_source(write(frame, tmp_path / "g.csv"))
    np.testing.assert_array_equal(got["u10"], want["u10"])


def test_a_column_of_texts_is_no_variable(frame, tmp_path):
    named = frame.assign(name=frame["station"].map({"a": "Abo", "b": "Bergen"}))
    assert list(open_source(write(named, tmp_path / "f.csv")).data_vars) == ["u10"]


def test_members_with_names_and_dates_of_two_forms(frame, tmp_path):
    named = frame.assign(number=frame["number"].map({1: "m01", 2: "m02"}))
    named["time"] = [t if n % 2 else f"{t}T00:00" for n, t in enumerate(named["time"])]
    got, want = (open_source(write(f, tmp_path / "f.csv")) for f in (named, frame))
    np.testing.assert_array_equal(got["u10"], want["u10"])
    assert got["number"].attrs["labels"] == ["m01", "m02"]


def test_observations_are_at_their_valid_time_also_beside_a_start(frame, tmp_path):
    """A start without a step would move all observations; with a step both are read."""
    start = pd.to_datetime(frame["time"])
    observed = frame.assign(valid_time=start + pd.Timedelta("24h")).drop(columns=["number"])
    observed = observed.drop_duplicates(["station", "time"])
    found = open_source(
        write(observed.drop(columns="step"), tmp_path / "o.csv"), optional_dimensions=True
    )
    np.testing.assert_array_equal(found["time"], np.unique(start) + np.timedelta64(24, "h"))
    both = open_source(write(observed, tmp_path / "b.csv"), optional_dimensions=True)
    np.testing.assert_array_equal(both["time"], np.unique(start))


def test_valid_times_are_the_start_and_the_step(frame, tmp_path):
    valid = [str(pd.Timestamp(time) + pd.Timedelta("24h")) for time in frame["time"]]
    without = frame.drop(columns="step").assign(valid_time=valid)
    assert open_source(write(without, tmp_path / "f.csv"))["step"].values.tolist() == [24]
    valid[3] = valid[2].replace("01-02", "01-03")
    with pytest.raises(FileError, match=r"row 4, column valid_time: .* is not the time and the st"):
        open_source(write(frame.assign(valid_time=valid), tmp_path / "f.csv"))


@pytest.mark.parametrize("stem", ["m", "", "t2m_"])
def test_a_column_for_each_member_is_reshaped_as_the_error_says(frame, tmp_path, stem):
    keys = ["station", "time", "step", "lat", "lon"]
    rows = pd.concat([frame, frame[frame["number"] == 2].assign(number=3, u10=99.0)])
    expected = open_source(write(rows.rename(columns={"u10": "t2m"}), tmp_path / "rows.csv"))["t2m"]
    wide = rows.pivot(index=keys, columns="number", values="u10").add_prefix(stem).reset_index()
    path = write(wide, tmp_path / "wide.csv")
    words = f"columns {stem}1, {stem}2, {stem}3 look like members, and members are rows"
    with pytest.raises(FileError, match=words) as raised:
        open_source(path)
    line = re.search(r"pandas\.(read_csv.*'\));", str(raised.value))[1]
    long = eval(line, {"read_csv": pd.read_csv, "FILE": path})
    found = open_source(write(long, tmp_path / "long.csv"))["t2m"]
    np.testing.assert_array_equal(found, expected)
    names = Names(variables={f"{stem}{n}": f"soil{n}" for n in (1, 2, 3)})
    assert set(open_source(path, names)) == {"soil1", "soil2", "soil3"}


def test_numbers_in_names_are_no_members(frame, tmp_path):
    """Levels of soil beside a known variable, levels of pressure, and two columns alone."""
    bare = frame[frame["number"] == 1].drop(columns="number")
    soil = bare.assign(swvl1=0.1, swvl2=0.2, swvl3=0.3)
    assert {"u10", "swvl1", "swvl3"} <= set(open_source(write(soil, tmp_path / "soil.csv")))
    levels = bare.drop(columns="u10").assign(x500=1.0, x700=1.0, x850=1.0)
    assert {"x500", "x850"} <= set(open_source(write(levels, tmp_path / "levels.csv")))


def two_columns_u10(frame, folder):
    """Pandas would read u10 and u10.1."""
    path = write(frame.assign(v10=0.0), folder / "f.csv")
    path.write_text(path.read_text().replace("v10", "u10", 1))
    return path


def two_columns_time(frame, folder):
    return write(frame.assign(date=frame["time"]), folder / "f.csv")


def rows_longer_than_the_header(frame, folder):
    """Pandas would take the first column as an index, and shift the names of all others."""
    path = write(frame, folder / "f.csv")
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f"{row},9" for row in rows)]))
    return path


def rows_too_sparse(frame, folder):
    n = 200
    rows = {
        "station": [f"s{k}" for k in range(n)], "time": pd.date_range("2001-01-01", periods=n),
        "step": range(n), "number": range(n), "u10": 1.0, "lat": 50.0, "lon": 4.0,
    }  # fmt: skip
    return write(pd.DataFrame(rows), folder / "f.csv")


def damaged_archive(frame, folder):
    path = folder / "f.csv.gz"
    frame.to_csv(path, index=False)
    path.write_bytes(path.read_bytes()[:-20])
    return path


FILES = {
    two_columns_u10: ({}, "several columns u10"),
    two_columns_time: ({"names": Names(dimensions={"date": "time"})}, "several columns time"),
    rows_longer_than_the_header: ({}, "its rows have more cells than its header"),
    rows_too_sparse: ({"missing": "nan"}, "200 rows for 1600000000 combinations"),
    damaged_archive: ({}, r"f\.csv\.gz: no table that can be read \(EOFError"),
}


@pytest.mark.parametrize("make", FILES)
def test_a_file_that_cannot_be_read(frame, tmp_path, make):
    options, words = FILES[make]
    with pytest.raises(FileError, match=words):
        open_source(make(frame, tmp_path), **options)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_a_row_that_ends_early(frame, tmp_path, suffix):
    """As the last row of an incomplete file, whose value is cut, too."""
    order = ["station", "time", "step", "number", "lat", "lon", "u10", "altitude"]
    path = tmp_path / f"f.{suffix}"
    frame.assign(altitude=12)[order].to_csv(path, index=False)
    opened = gzip.open if suffix.endswith("gz") else open
    with opened(path, "rt") as file:
        text = file.read()
    cut = text.rstrip().removesuffix("0,12")
    with opened(path, "wt") as file:
        file.write(cut)
    with pytest.raises(FileError, match="row 12 has 7 cells, and the header 8"):
        open_source(path)


def test_a_byte_order_mark(frame, tmp_path):
    path = tmp_path / "f.csv"
    frame.to_csv(path, index=False, encoding="utf-8-sig", sep=";")
    got, want = open_source(path), open_source(write(frame, tmp_path / "g.csv"))
    np.testing.assert_array_equal(got["u10"], want["u10"])


def test_dates_of_mixed_time_zones(frame, tmp_path):
    zones = {
        "2001-01-01": "2001-01-01T02:00+02:00",
        "2001-05-01": "2001-04-30T19:00-05:00",
        "2001-08-29": "2001-08-29T00:00Z",
    }
    got = open_source(write(frame.assign(time=frame["time"].map(zones)), tmp_path / "f.csv"))
    np.testing.assert_array_equal(got["time"], TIMES.to_numpy())


TYPES = {
    "categories": {"station": "category", "time": "category"},
    "texts": {"step": str, "number": str, "lat": str},
    "pandas' whole numbers": {"step": "Int64", "number": "Int64", "u10": "Float64"},
    "small": {"step": "int8", "number": "uint8", "u10": "float32"},
}


@pytest.mark.parametrize("which", [*TYPES, "decimals", "durations", "dates", "index", "more"])
def test_types_of_parquet(frame, tmp_path, which):
    pytest.importorskip("pyarrow")
    want = open_source(write(frame, tmp_path / "f.csv"))
    if which in TYPES:
        frame = frame.astype(TYPES[which])
    elif which == "decimals":
        for name in ("step", "u10", "lat"):
            frame[name] = [Decimal(str(cell)) for cell in frame[name]]
    elif which == "durations":
        frame["step"] = pd.to_timedelta(frame["step"], unit="h")
    elif which == "dates":
        frame["time"] = pd.to_datetime(frame["time"]).dt.date
    elif which == "index":
        frame = frame.set_index(["station", "time"])
    else:
        frame["issued"], frame["age"] = pd.Timestamp("2020-01-01"), pd.Timedelta("1h")
    frame.to_parquet(tmp_path / "f.parquet")
    got = open_source(tmp_path / "f.parquet")
    xr.testing.assert_equal(got, want)


@pytest.mark.parametrize(
    ("column", "kind"),
    [("number", "datetime64[ms]"), ("step", "datetime64[s]"), ("lat", "timedelta64[s]"),
     ("lon", "bool")],
)  # fmt: skip
def test_dates_durations_and_truths_are_no_numbers(frame, tmp_path, column, kind):
    """They were read as numbers of the milliseconds or seconds since 1970."""
    pytest.importorskip("pyarrow")
    frame[column] = frame[column].astype(kind)
    frame.to_parquet(tmp_path / "f.parquet")
    with pytest.raises(FileError, match=rf"f\.parquet: row 1, column {column}: .* is no number"):
        open_source(tmp_path / "f.parquet")


@pytest.mark.parametrize("where", [-4, -6, 10])
def test_damaged_parquet(frame, tmp_path, where):
    pytest.importorskip("pyarrow")
    path = tmp_path / "f.parquet"
    frame.to_parquet(path)
    content = bytearray(path.read_bytes())
    content[where] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"f\.parquet: "):
        open_source(path)


def test_observations_that_are_repeated_for_each_member(frame, tmp_path):
    """With and without a mapping of names; they are those of one member."""
    observed = frame.drop(columns=["step", "lat", "lon"]).assign(u10=frame["u10"].round(-1))
    path = write(observed, tmp_path / "truth.csv")
    for names in (None, Names(variables={"u10": "u10"})):
        got = open_source(path, names, optional_dimensions=True)["u10"]
        assert "number" not in got.dims
        assert got.squeeze().to_numpy().tolist() == [[0.0, 10.0]] * 3
