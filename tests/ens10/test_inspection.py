"""What files and stores hold."""

import errno
import shutil
import sys

import numpy as np
import pytest
from damagefiles import messages, with_keys
from gribfiles import REAL, cube, values_of

from ens10 import prepare
from ens10.cli import main
from ens10.errors import FileError, ResourceError
from ens10.inspection import inspect_path
from ens10.source import open_source


def by_name(path, **settings):
    return {row.name: row for row in inspect_path(path, **settings)}


def test_a_whole_file(write):
    fields = cube()
    rows = by_name(write(fields))
    assert set(rows) == {"t2m", "z"}
    row = rows["z"]
    assert (row.level, row.dates, row.steps, row.members) == ("500 hPa", 3, [24, 48], 3)
    assert (row.first_date, row.last_date) == ("2016-01-01T00", "2016-01-08T00")
    assert (row.missing, row.status) == (0, "ok")
    assert row.note == "3 perturbed members, no control"
    assert (row.units, row.grid) == ("m2 s-2", "5 x 8, 60 to 40 N, 0 to 315 E")
    held = np.array([values_of(f) for f in fields if f[0] == "z"])
    got = (row.minimum, row.mean, row.maximum)
    np.testing.assert_allclose(got, (held.min(), held.mean(), held.max()), atol=1e-3)
    headers = by_name(write(fields), values=False)["z"]
    assert np.isnan([headers.minimum, headers.mean, headers.maximum]).all()
    assert headers.status == "ok"


def test_the_real_file():
    rows = inspect_path(REAL)
    assert [(r.name, r.level) for r in rows] == [
        ("t", "500 hPa"), ("t", "850 hPa"), ("z", "500 hPa"), ("z", "850 hPa"),
    ]  # fmt: skip
    assert {(r.dates, r.members, r.missing, r.status) for r in rows} == {(4, 10, 0, "ok")}
    assert {r.grid for r in rows} == {"61 x 120, 90 to -90 N, 0 to 357 E"}


@pytest.mark.parametrize("values", [True, False])
def test_a_file_that_the_disk_does_not_give_has_a_row_of_its_own(write, monkeypatch, values):
    good, bad = write(cube(), "a.grib"), write(cube(), "b.grib")
    module, name = ("gribs", "unpack") if values else ("paths", "survey")
    read = getattr(sys.modules[f"ens10.inspection.{module}"], name)

    def fail(subject, *rest):
        if getattr(subject, "path", subject) == bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(subject, *rest)

    monkeypatch.setattr(f"ens10.inspection.{module}.{name}", fail)
    rows = inspect_path(good.parent, values=values)
    wrong = [row.status for row in rows if "Input/output error" in row.status]
    assert wrong
    assert all(f"{bad}: cannot be read (Input/output error)" in status for status in wrong)
    assert {"t2m", "z"} <= {row.name for row in rows}


def test_a_lack_of_files_ends_an_inspection(write, monkeypatch):
    def fail(_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("ens10.inspection.paths.survey", fail)
    with pytest.raises(ResourceError, match="too many open files"):
        inspect_path(write(cube()))


def test_missing_and_doubled_fields(write):
    fields = cube()
    lost = [f for f in fields if f != ("z", 500, 20160105, 24, 2)]
    rows = by_name(write(lost))
    assert rows["z"].missing == 1
    assert "1 field missing in" in rows["z"].status
    assert "2016-01-05T00 step 24 h number 2;" in rows["z"].status
    assert rows["t2m"].status == "ok"
    rows = by_name(write([*lost, fields[0], fields[0]], "b.grib"))
    assert rows["t2m"].status.startswith("2 fields duplicated with the same values: ")
    assert main(["inspect", str(write(lost, "c.grib"))]) == 1


def test_most_of_a_file_lost_is_not_a_lagged_ensemble(write):
    whole = [f for f in cube(members=5) if f[2] == 20160101 or f[3:] == (24, 1)]
    row = by_name(write(whole))["t2m"]
    assert len(whole) == 2 * (10 + 2)
    assert row.missing == 30 - 12
    assert "lagged" not in row.note
    assert "2016-01-05T00 step 24 h number 2-5;" in row.status
    assert "2016-01-05T00 step 48 h all members;" in row.status


def test_a_lagged_ensemble(write):
    """Four starts a day apart, each with one member, all valid at the same time."""
    fields = [("t2m", 0, 20160101 + n, 96 - 24 * n, n + 1) for n in range(4)]
    row = by_name(write(fields))["t2m"]
    assert (row.missing, row.status) == (0, "ok")
    assert row.note.startswith("lagged")
    assert (row.dates, row.members, row.steps) == (4, 4, [24, 48, 72, 96])


def test_damage_is_a_row_and_does_not_stop_the_others(write, tmp_path, capsys):
    good = write(cube(dates=(20160101, 20160105, 20160108)), "d/a.grib")
    bad = write(cube(dates=(20170101, 20170105, 20170108)), "d/[b].grib")
    size = bad.stat().st_size
    cut = size - size // 36 - 10  # inside the last message but one
    with bad.open("rb+") as file:
        file.truncate(cut)
    rows = inspect_path(good.parent)
    fields = {row.name: row for row in rows if row.name in ("t2m", "z")}
    assert (fields["t2m"].missing, fields["z"].missing) == (1, 1)
    assert "2017-01-08T00 step 48 h number 3" in fields["z"].status
    wrong = [row for row in rows if row.name == "[b].grib"]
    start = size // 36 * 34
    assert f"{bad}: damaged at byte {start}" in wrong[0].status
    assert main(["inspect", str(good.parent)]) == 1
    out = capsys.readouterr().out
    assert f"{bad}: damaged at byte {start}: the message lacks" in out  # in one line, as it is
    assert main(["inspect", str(good)]) == 0


def test_values_that_do_not_unpack(tmp_path):
    path = tmp_path / "a.grib"
    parts = messages(cube(members=1))
    parts[-1] = with_keys(parts[-1], {"edition": 2, "packingType": "grid_ieee"})
    path.write_bytes(b"".join(parts))
    assert {row.status for row in by_name(path).values()} == {"ok"}
    parts[-1] = parts[-1][:-8] + b"\x7f\x80\0\0" + parts[-1][-4:]  # infinity
    path.write_bytes(b"".join(parts))
    rows = by_name(path)
    assert rows["t2m"].status == "ok"
    assert (
        f"damaged at byte {sum(map(len, parts[:-1]))}: values that no float32" in rows["z"].status
    )
    assert main(["inspect", str(path)]) == 1


def test_a_folder_with_several_kinds_of_file(write, tmp_path):
    write(cube(dates=(20160101,)), "d/a.grib")
    write(cube(dates=(20160105, 20160108)), "d/b.grib")
    (tmp_path / "d" / "notes.txt").write_text("hello")
    folder = tmp_path / "d"
    assert by_name(folder)["t2m"].dates == 3
    other = open_source(folder / "a.grib")[["t2m"]].rename(t2m="other")
    other["other"].attrs.clear()
    other.to_netcdf(folder / "c.nc")
    rows = by_name(folder)
    assert set(rows) == {"t2m", "z", "other"}
    assert rows["other"].dates == 1
    (folder / "d.nc").write_bytes(b"\x89HDF but not really")
    assert by_name(folder)["d.nc"].status.startswith(f"{folder / 'd.nc'}: no netCDF file")


def test_netcdf_and_store_say_the_same_as_grib(write, tmp_path):
    path = write(cube())
    open_source(path).to_netcdf(tmp_path / "a.nc")
    store = prepare(path, tmp_path / "s.zarr")
    want = by_name(path)
    for other in (tmp_path / "a.nc", store):
        for name, row in by_name(other).items():
            for field in (
                "level",
                "dates",
                "first_date",
                "last_date",
                "members",
                "grid",
                "units",
                "status",
            ):
                assert getattr(row, field) == getattr(want[name], field), (name, field)
            assert list(row.steps) == list(want[name].steps)
            np.testing.assert_allclose([row.minimum, row.mean, row.maximum], [
                want[name].minimum, want[name].mean, want[name].maximum], rtol=1e-6)  # fmt: skip


def test_gaps_of_a_store(write, tmp_path):
    lost = [f for f in cube() if f != ("t2m", 0, 20160105, 24, 2)]
    store = prepare(write(lost), tmp_path / "s.zarr", missing="nan")
    rows = by_name(store)
    assert rows["t2m"].missing == 1
    chunk = store / "sfc/t2m/c/1/0/0/0/0"
    assert rows["t2m"].status.startswith(f"1 field missing (without any value): {chunk} field 1")
    assert rows["z"].status == "ok"


def test_nothing_to_inspect(tmp_path):
    with pytest.raises(FileError, match="no such file or folder"):
        inspect_path(tmp_path / "none")
    with pytest.raises(FileError, match="holds no files"):
        inspect_path(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(FileError, match="holds no GRIB or netCDF files"):
        inspect_path(tmp_path)
    assert "neither a GRIB nor a netCDF" in inspect_path(tmp_path / "notes.txt")[0].status
    shutil.copy(REAL, tmp_path / "real")
    assert len(inspect_path(tmp_path)) == 4
