"""ERA5 from small Zarr stores of the public one's layout, local and behind a web server."""

import shutil
from datetime import datetime

import numpy as np
import pytest
import xarray as xr
import zarr
from era5zarr import LAT, values, write_era5
from flakyserver import serve

from ens10.download import download
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.source import open_source
from ens10.source.pairing import pair_truth
from ens10.synthetic import World


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return write_era5(tmp_path_factory.mktemp("era5") / "two.zarr", 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return write_era5(tmp_path_factory.mktemp("era5") / "three.zarr", 3)


def get(folder, base, dates="0101-0104", **options):
    options = {"years": [2001], "spacing": 45, "sleep": lambda _: None, **options}
    return download(folder, "truth", dates, base=str(base), **options)


def check(dataset, spacing=2):
    assert dataset.sizes["latitude"] == len(LAT[::spacing])
    for i, time in enumerate(dataset.time.to_numpy().astype("datetime64[s]").tolist()):
        want = values("2m_temperature", time)[::spacing, ::spacing]
        np.testing.assert_array_equal(dataset.t2m[i], want)
        for name, theirs in (("z", "geopotential"), ("t", "temperature")):
            for level in dataset.level.to_numpy():
                want = values(theirs, time, int(level))[::spacing, ::spacing]
                np.testing.assert_array_equal(dataset[name].sel(level=level)[i], want)


@pytest.mark.parametrize("era5", ["two", "three"])
def test_the_hours_wanted_come_bit_for_bit(era5, tmp_path, request):
    report = get(tmp_path, request.getfixturevalue(era5))
    assert report.new_files == ("era5.2001.nc",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checksums.json", "era5.2001.nc"]
    with xr.open_dataset(tmp_path / "era5.2001.nc") as raw:
        assert raw.time.dt.strftime("%d%H").to_numpy().tolist() == ["0300", "0600"]
        assert raw.attrs["Conventions"] == "CF-1.8"
        assert raw.t2m.dtype == np.float32
        assert raw.z.attrs["units"] == "m2 s-2"
    check(open_source(tmp_path / "era5.2001.nc"))
    truth = open_source(tmp_path)  # the folder: the record is no data
    assert set(truth.data_vars) == {"t2m", "z", "t"}
    assert truth.level.to_numpy().tolist() == [500, 850]
    check(truth)


def test_every_point_and_other_steps_years_and_fields(two, tmp_path):
    other = write_era5(tmp_path / "e.zarr", 2, "2002-01-01", 2)
    options = {"fields": ["2t", "sst"], "steps": [0, 24], "spacing": 22.5}
    get(tmp_path / "d", two, "0101", **options)
    get(tmp_path / "d", other, "0101", **options, jobs=1, years=[2002])
    truth = open_source(tmp_path / "d")
    days = truth.time.dt.strftime("%Y%m%d").to_numpy().tolist()
    assert days == ["20010101", "20010102", "20020101", "20020102"]
    assert set(truth.data_vars) == {"t2m", "sst"}
    want = values("sea_surface_temperature", datetime(2002, 1, 2))
    np.testing.assert_array_equal(truth.sst[3], want)


def test_a_second_run_reads_nothing_and_more_dates_are_added(two, tmp_path):
    get(tmp_path, two, "0101")
    with xr.open_dataset(tmp_path / "era5.2001.nc") as first:
        first.load()
    before = (tmp_path / "checksums.json").read_bytes()
    report = get(tmp_path, two, "0101")
    assert (report.existing_files, report.new_files, report.remaining_size) == (
        ("era5.2001.nc",),
        (),
        0,
    )
    assert (tmp_path / "checksums.json").read_bytes() == before
    assert get(tmp_path, two, "0104").new_files == ("era5.2001.nc",)
    with xr.open_dataset(tmp_path / "era5.2001.nc") as both:  # the older one comes first
        assert both.indexes["time"].is_monotonic_increasing
    truth = open_source(tmp_path)
    assert truth.sizes["time"] == 2
    check(truth)
    with pytest.raises(FileError, match="holds other fields, or another grid"):
        get(tmp_path, two, "0101", fields=["t2m"])
    (tmp_path / "era5.2001.nc").write_bytes(b"CDF")
    with pytest.raises(FileError, match="not the file that was fetched"):
        get(tmp_path, two, "0101")


def test_failures_are_retried_and_what_came_is_kept(two, tmp_path, monkeypatch):
    from ens10.download.truth import Era5

    read, asked, waits = Era5.read, [], []

    def failing(self, name, hour):
        asked.append((name, hour.day))
        if (name, hour.day) == ("z", 6) and failing.on:
            raise RuntimeError("503, try later")
        return read(self, name, hour)

    monkeypatch.setattr(Era5, "read", failing)
    failing.on = True
    with pytest.raises(MissingDataError, match=r"2001-01-06T00 \(RuntimeError: 503, .* 8 attempts"):
        get(tmp_path, two, sleep=waits.append)
    assert sorted(asked) == [("t", 3), ("t2m", 3), ("t2m", 6), ("z", 3), *[("z", 6)] * 8]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    asked.clear()
    failing.on = False
    get(tmp_path, two)
    assert asked == [("t2m", 6), ("z", 6), ("t", 6)]
    check(open_source(tmp_path))


def test_killed_between_any_two_steps_it_goes_on(two, tmp_path, monkeypatch):
    from ens10.download import local_files, truth

    class KilledError(BaseException):
        pass

    def killed(*_):
        raise KilledError

    want = None
    for n, (home, name) in enumerate(
        [
            (truth, "merge"),
            (truth, "checksum"),
            (local_files.Record, "add"),
            (truth.shutil, "rmtree"),
        ]
    ):
        folder = tmp_path / str(n)
        get(folder, two, "0101")
        with monkeypatch.context() as patch:
            patch.setattr(home, name, killed)
            with pytest.raises(KilledError):
                get(folder, two)
        get(folder, two)
        assert sorted(p.name for p in folder.iterdir()) == ["checksums.json", "era5.2001.nc"]
        get(folder, two, check=True)
        got = open_source(folder).load()
        check(got)
        want = got if want is None else want
        xr.testing.assert_identical(got, want)


def test_a_missing_chunk_is_not_taken_for_data(two, tmp_path):
    path = shutil.copytree(two, tmp_path / "e.zarr")
    (path / "geopotential" / "48.0.0.0").unlink()
    with pytest.raises(MissingDataError, match=r"1 part is missing: 2001-01-03T00 .*geopotential"):
        get(tmp_path / "d", path)


def test_what_the_store_lacks_is_listed(two, tmp_path):
    with pytest.raises(MissingDataError, match="2 parts are missing: 2001-01-13T00; 2001-01-17T00"):
        get(tmp_path, two, "0101,0111,0115")
    with pytest.raises(MissingDataError, match="10m_u_component_of_wind; v_component_of_wind"):
        get(tmp_path, two, fields=["u10", "v500"])
    with pytest.raises(MissingDataError, match="level 1000 hPa"):
        get(tmp_path, two, fields=["z1000"])
    with pytest.raises(ArgumentError, match=r"0.5 degrees is no multiple of the 22.5"):
        get(tmp_path, two, spacing=0.5)
    with pytest.raises(ArgumentError, match="0 degrees make no grid"):
        get(tmp_path, two, spacing=0)
    with pytest.raises(ArgumentError, match="fields: there are none"):
        get(tmp_path, two, fields=[])
    with pytest.raises(ArgumentError, match="tp of ERA5 is the sum of one hour"):
        get(tmp_path, two, fields=["tp"])
    with pytest.raises(UnknownNameError, match="did you mean 'z_50'"):
        get(tmp_path, two, fields=["z_501"])
    with pytest.raises(FileError, match="no such folder"):
        get(tmp_path, tmp_path / "nothing")
    with pytest.raises(FileError, match="no Zarr store"):
        get(tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_units_and_impossible_values_are_refused(three, tmp_path):
    path = shutil.copytree(three, tmp_path / "e.zarr")
    zarr.open_group(path)["temperature"].attrs["units"] = "degC"
    with pytest.raises(FileError, match="temperature is in degC, not in K"):
        get(tmp_path / "d", path)
    zarr.open_group(path)["2m_temperature"][48] = 9999.0
    with pytest.raises(MissingDataError, match="9999 looks like a missing value"):
        get(tmp_path / "d", path, "0101", fields=["t2m"])


def test_sizes_first(two, tmp_path, capsys, monkeypatch):
    report = get(tmp_path / "d", two, dry_run=True, progress=True)
    assert not (tmp_path / "d").exists()
    assert report.remaining_size == 2 * 5 * 5 * 8 * 4  # hours, fields, rows, columns, bytes
    said = capsys.readouterr().out
    names = {"2m_temperature": ".0.0", "geopotential": ".0.0.0", "temperature": ".0.0.0"}
    chunks = [two / name / f"{n}{rest}" for n in (48, 120) for name, rest in names.items()]
    assert "--cds FILE" in said
    assert f"about {sum(c.stat().st_size for c in chunks) / 1e3:.1f} kB to read" in said
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("U", (), {"free": 1000}))
    with pytest.raises(FileError, match=r"1\.6 kB are to be written and 1\.0 kB are free"):
        get(tmp_path / "d", two)


def test_truth_pairs_with_forecasts(two, tmp_path, monkeypatch):
    monkeypatch.setenv("ENS10_ERA5_URL", str(two))
    world = World("5x8", [2001], ["0101", "0104"], ["t2m", "z"], steps=(24, 48), members=2)
    forecasts = open_source(world.write(tmp_path / "w"))
    download(tmp_path / "t", "truth", ["0101", "0104"], years=[2001], spacing=45)
    paired = pair_truth(forecasts, open_source(tmp_path / "t"))
    assert paired.step.to_numpy().tolist() == [48]
    want = values("2m_temperature", datetime(2001, 1, 6))[::2, ::2]
    np.testing.assert_array_equal(paired.t2m.sel(time="2001-01-04")[0], want)


def test_over_http(two, tmp_path):
    pytest.importorskip("aiohttp")
    with serve() as site:
        for file in two.rglob("*"):
            if file.is_file():
                site.files[f"e/{file.relative_to(two)}"] = file.read_bytes()
        chunk = "e/temperature/48.0.0.0"
        site.faults[chunk] = [("status", 503, {}), ("drop", 50), ("none",)]
        get(tmp_path, f"{site.url}/e")
        read = {path for method, path, _ in site.requests if method == "GET"}
        assert {p for p in read if "/48." in p or "/120." in p} == {
            f"/e/{name}" for n in (48, 120)
            for name in (f"2m_temperature/{n}.0.0", f"temperature/{n}.0.0.0",
                         f"geopotential/{n}.0.0.0")
        }  # fmt: skip
        assert not [p for p in read if p.startswith("/e/sea")]  # only what is needed
    check(open_source(tmp_path))
