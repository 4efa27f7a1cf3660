"""The script that requests ERA5 from the Copernicus Climate Data Store."""

import ast
import json
import sys

import pytest

from ens10.download import download
from ens10.errors import FileError


def test_the_request_to_the_data_store_asks_for_the_days_needed(tmp_path, capsys, monkeypatch):
    script = tmp_path / "get.py"
    years = [1998, 2017]
    options = {"cds": script, "years": years, "progress": True}
    report = download(tmp_path / "t", "truth", "all", **options)
    assert not (tmp_path / "t").exists()
    assert "pip install cdsapi" in capsys.readouterr().out
    done = []

    class Client:
        def retrieve(self, dataset, request, target):
            done.append((dataset, request))
            open(target, "w").close()  # noqa: PTH123

    names = {"__name__": "get"}
    exec(compile(ast.parse(script.read_text()), "get.py", "exec"), names)
    monkeypatch.setitem(sys.modules, "cdsapi", type("cdsapi", (), {"Client": Client}))
    names["main"]()
    names["main"]()  # what is there is not asked for again
    assert len(done) == len(report.new_files) == 2 * (12 + 12 + 1 + 1)
    assert {p.name for p in (tmp_path / "t").iterdir()} == set(report.new_files)
    days = set()
    for dataset, request in done:
        assert json.loads(json.dumps(request)) == request
        assert request["time"] == ["00:00"]
        assert request["grid"] == "0.5/0.5"
        assert request["data_format"] == "grib"
        if dataset == "reanalysis-era5-pressure-levels":
            assert request["variable"] == ["geopotential", "temperature"]
            assert request["pressure_level"] == ["500", "850"]
            days |= {(*request["year"], *request["month"], day) for day in request["day"]}
        else:
            assert request["variable"] == ["2m_temperature"]
    assert len(days) == sum(len(request["day"]) for _, request in done) / 2 == 210
    assert ("2018", "01", "02") in days  # 31 December + 48 h
    assert ("1998", "01", "01") not in days


def test_hours_that_differ_from_day_to_day_are_asked_for_apart(tmp_path):
    script = tmp_path / "get.py"
    options = {"cds": script, "years": [2001], "steps": [0, 66], "fields": ["z500"]}
    report = download(tmp_path / "t", "truth", ["0101", "0104"], **options, spacing=0.25)
    assert report.new_files == ("era5.pl.2001-01.00.grib", "era5.pl.2001-01.18.grib")
    text = script.read_text()
    assert '"day": ["01", "04"], "time": ["00:00"]' in text  # the starts
    assert '"day": ["03", "06"], "time": ["18:00"]' in text  # 66 h later
    assert '"grid": "0.25/0.25"' in text


def test_a_script_needs_a_folder_and_a_dry_run_writes_none(tmp_path):
    with pytest.raises(FileError, match="no file can be written there"):
        download(tmp_path, "truth", "0101", cds=tmp_path / "no" / "get.py")
    report = download(tmp_path, "truth", "0101", cds=tmp_path / "get.py", dry_run=True)
    assert len(report.new_files) == 2 * 20
    assert list(tmp_path.iterdir()) == []
