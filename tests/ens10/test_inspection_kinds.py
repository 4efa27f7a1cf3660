"""The table tells what kind of data a file holds, as real files of other ensembles have it."""

import damagefiles as made
import eccodes
import netCDF4
import numpy as np
import pytest

from ens10 import prepare
from ens10.cli import main
from ens10.errors import FileError
from ens10.inspection import inspect_path
from ens10.inspection.gribs import is_lagged

CONTROL = {"type": "cf", "number": 0}
HINDCAST = {
    "localDefinitionNumber": 26, "type": "pf", "stream": "enfh", "number": 2,
    "numberOfForecastsInEnsemble": 11,
}  # fmt: skip


def row_of(path, **settings):
    (row,) = inspect_path(path, **settings)
    return row


def test_control_and_perturbed(tmp_path):
    parts = [made.message(("z", 850, 20131025, 78, n)) for n in range(1, 51)]
    parts.append(made.with_keys(parts[0], CONTROL))
    made.write(tmp_path / "a.grib", parts)
    row = row_of(tmp_path / "a.grib")
    assert (row.members, row.missing, row.status) == (51, 0, "ok")
    assert row.note == "control and 50 perturbed"
    made.write(tmp_path / "b.grib", parts[-1:])
    assert row_of(tmp_path / "b.grib").note == "control only"


def test_control_and_member_in_one_place(tmp_path):
    """A control that is numbered as a member is told, whatever its values."""
    part = made.message(("z", 850, 20131025, 78, 1))
    control = made.with_keys(part, {"type": "cf"})
    begins = made.write(tmp_path / "a.grib", [part, control])
    status = row_of(tmp_path / "a.grib").status
    assert "1 field duplicated with the same values, dataType pf and cf" in status
    assert f"byte {begins[1]}" in status


@pytest.mark.parametrize("dates", [[20210615], [20200615, 20210615]])
def test_hindcasts(tmp_path, dates):
    """Local definition 26: the date of the model beside the date of the hindcast."""
    parts = []
    for date in dates:
        part = made.message(("t2m", 0, date, 6, 2))
        parts.append(made.with_keys(part, {**HINDCAST, "referenceDate": 20230615}))
    made.write(tmp_path / "a.grib", parts)
    row = row_of(tmp_path / "a.grib")
    assert row.status == "ok"
    assert row.first_date[:10] == f"{dates[0] // 10000}-06-15"
    of = "hindcast of 2021-06-15" if len(dates) == 1 else "hindcasts of 2020-06-15 to 2021-06-15"
    assert row.note == f"perturbed member 2 only; {of} by the model of 2023-06-15"


def test_levels_in_pascal(tmp_path):
    keys = {"edition": 2, "typeOfLevel": "isobaricInPa"}
    field = ("t", 10, 20160101, 24, 1)
    parts = [made.message(field), made.with_keys(made.message(field), {**keys, "level": 10})]
    made.write(tmp_path / "a.grib", parts)
    pascal, hectopascal = inspect_path(tmp_path / "a.grib")
    assert (pascal.level, hectopascal.level) == ("10 Pa", "10 hPa")  # from the top down
    assert "level in Pa (0.1 hPa)" in pascal.note
    assert "Pa" not in hectopascal.note
    assert (pascal.status, hectopascal.status) == ("ok", "ok")


def test_a_field_without_any_value(tmp_path):
    field = ("sst", 0, 20160101, 24, 1)
    gaps = np.full((5, 8), np.nan)
    begins = made.write(
        tmp_path / "a.grib",
        [made.message((*field[:4], 2)), made.message(field, values=gaps)],
    )
    row = row_of(tmp_path / "a.grib")
    path = tmp_path / "a.grib"
    assert row.status == f"1 field without any value: {path} at byte {begins[1]}."
    assert row.minimum > 200


def lagged(starts, each, steps=3):
    """As the UKMO's and NCEP's seasonal forecasts: every start has members of its own."""
    return [
        ("t2m", 0, date, 24 * (last - n), number)
        for n, date in enumerate(starts)
        for number in range(n * each, (n + 1) * each)
        for last in range(10, 10 + steps)
    ]


def test_lagged_ensembles(tmp_path):
    dates = (20160101, 20160102, 20160103, 20160104)
    fields = lagged(dates, 7)
    made.write(tmp_path / "a.grib", map(made.message, fields))
    row = row_of(tmp_path / "a.grib")
    assert (row.members, row.dates, row.missing, row.status) == (28, 4, 0, "ok")
    assert row.note.startswith("lagged: members of different start dates")
    lost = [f for f in fields if f != fields[4]]
    made.write(tmp_path / "b.grib", map(made.message, lost))
    row = row_of(tmp_path / "b.grib")
    assert row.missing == 1
    assert "2016-01-01T00 step 264 h number 1;" in row.status


def test_what_is_lagged():
    own = np.zeros((4, 3, 8), bool)
    for n in range(4):
        own[n, :, 2 * n : 2 * n + 2] = True
    assert is_lagged(own)
    two_months = np.concatenate([own, own])
    assert is_lagged(two_months)
    shared = own.copy()
    shared[0, :, 2] = True
    assert not is_lagged(shared)
    assert not is_lagged(own[:2, :, :4])  # half of the fields are there
    assert not is_lagged(np.ones((4, 3, 8), bool))
    half_lost = np.zeros((4, 3, 8), bool)
    half_lost[:, 0] = True
    assert not is_lagged(half_lost)


def test_other_kinds(tmp_path):
    field = ("t2m", 0, 20160101, 0, 0)
    kinds = {"an": "analysis", "fc": "single forecast", "em": "no member", "fcmean": "means"}
    for kind, words in kinds.items():
        part = made.with_keys(made.message(field), {"type": kind})
        made.write(tmp_path / kind, [part])
        assert words in row_of(tmp_path / kind).note
    assert row_of(tmp_path / "em").name == "t2m, ensemble mean"


def test_grids_that_are_not_supported_are_told(tmp_path):
    handle = eccodes.codes_grib_new_from_samples("reduced_gg_pl_32_grib2")
    gaussian = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    begins = made.write(tmp_path / "a.grib", [*made.messages()[:2], gaussian])
    rows = inspect_path(tmp_path / "a.grib")
    (wrong,) = [row for row in rows if row.status != "ok"]
    assert f"byte {begins[2]}" in wrong.status
    assert "Interpolate" in wrong.status
    assert {row.name for row in rows} == {"t2m", "z", "a.grib"}


def test_files_that_do_not_go_together(tmp_path):
    made.write(tmp_path / "d/a.grib", made.messages())
    other = [made.message(("t2m", 0, 20170101, 24, 1), grid=made.OTHER)]
    made.write(tmp_path / "d/b.grib", other)
    rows = inspect_path(tmp_path / "d")
    (wrong,) = [row for row in rows if row.status != "ok"]
    assert wrong.name == "d"
    assert f"{tmp_path / 'd/b.grib'}: the message at byte 0 lies on the grid" in wrong.status


def test_netcdf_with_names_of_its_own(tmp_path, capsys):
    path = tmp_path / "seasonal.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in {"ensemble": 3, "init": 2, "y": 4, "x": 5}.items():
            file.createDimension(name, size)
        file.createVariable("tas", "f4", ("ensemble", "init", "y", "x"))[:] = 280.0
        file.createVariable("area", "f4", ("x",))[:] = 1.0
    row = row_of(path)
    assert (row.name, row.status, row.minimum) == ("tas", "ok", 280.0)
    assert "dimensions ensemble 3, init 2, y 4, x 5" in row.note
    assert "--names FILE" in row.note
    assert main(["inspect", str(path)]) == 0
    assert "tas" in capsys.readouterr().out


def test_the_table_names_notes_once(tmp_path, capsys):
    made.write(tmp_path / "a.grib", made.messages())
    assert main(["inspect", str(tmp_path / "a.grib")]) == 0
    out = capsys.readouterr().out
    assert out.count("perturbed members") == 1
    assert "all 2 rows: 3 perturbed members, no control" in out


def test_a_download_that_is_not_complete(tmp_path):
    made.write(tmp_path / "a.grib", made.messages())
    (tmp_path / "b.part").write_bytes(b"GRIB")
    (tmp_path / "b.part.json").write_text("{}")
    rows = inspect_path(tmp_path)
    (wrong,) = [row for row in rows if row.status != "ok"]
    assert "b.part: a download that is not complete. Run the same" in wrong.status
    with pytest.raises(FileError, match=r"b\.part: a download that is not complete"):
        prepare(tmp_path, tmp_path / "s.zarr")
