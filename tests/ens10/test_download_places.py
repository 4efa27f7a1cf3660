"""Which dates, from where, into which folder, and what is there already."""

import hashlib
import json
import os
from datetime import date, datetime
from pathlib import Path

import fsspec
import pytest
from flakyserver import serve
from gribfiles import cube
from hypothesis import given
from hypothesis import strategies as st

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.download import download, locate
from ens10.download.dates import start_days, valid_hours
from ens10.download.folder import inside, size_text
from ens10.download.remote import RefusedError, public
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError

NAME = "output.sfc.20180104"


@pytest.fixture
def grib(write):
    return write(cube(members=1), "source.grib").read_bytes()


@pytest.fixture
def site(grib):
    with serve(files={NAME: grib}) as running:
        yield running


def get(folder, base, dates="0104", **options):
    return download(folder, "sfc", dates, base=base, sleep=lambda _: None, **options)


def test_dates_as_they_are_asked_for():
    assert start_days("all") == start_days(["0101-1231"]) == month_days()
    assert start_days("0104,0101") == start_days(["0104", " 0101 ", "0101"]) == ("0101", "0104")
    assert start_days(["0601-0610", "0702"]) == ("0604", "0607", "0702")
    assert valid_hours(["1231"], [2017], [48]) == (datetime(2018, 1, 2),)
    assert len(valid_hours(month_days(), HINDCAST_YEARS, [48])) == 2100


@given(
    st.dates(date(2018, 1, 1), date(2018, 12, 31)), st.dates(date(2018, 1, 1), date(2018, 12, 31))
)
def test_a_range_holds_the_mondays_and_thursdays_between(first, last):
    text = f"{first:%m%d}-{last:%m%d}"
    days = [d for d in month_days() if f"{first:%m%d}" <= d <= f"{last:%m%d}"]
    if days:
        assert start_days(text) == tuple(days)
    else:
        with pytest.raises(ArgumentError):
            start_days(text)


@pytest.mark.parametrize(
    ("dates", "says"),
    [
        ("0105", "did you mean 0104 or 0108"),
        ("0102-0103", "holds no start date"),
        ("0301-0201", "ends before it begins"),
        ("0229", "'0229' is no date of 2018"),
        ("1301", "no date of 2018"),
        ("20180104", "no date"),
        ("0104-", "no date"),
        ("al", "no date"),
        ("../0", "no date"),
        ([], "none given"),
    ],
)
def test_dates_that_make_no_sense(dates, says):
    with pytest.raises(ArgumentError, match=f"^dates: .*{says}"):
        start_days(dates)


def test_arguments_that_make_no_sense(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'sfc'"):
        download(tmp_path, "sfx", "all")
    with pytest.raises(ArgumentError, match="fields: only for kind truth"):
        download(tmp_path, "pl", "all", fields=["t2m"])
    with pytest.raises(ArgumentError, match="jobs: 0"):
        download(tmp_path, "pl", "all", jobs=0)
    with pytest.raises(ArgumentError, match="base: 'folder' is no URL"):
        get(tmp_path, "folder")
    with pytest.raises(ArgumentError, match="base: what:// is unknown"):
        get(tmp_path, "what://a/b")


def test_a_scheme_whose_package_is_not_installed(tmp_path, monkeypatch):
    def lacking(scheme):
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr("fsspec.get_filesystem_class", lacking)
    with pytest.raises(ArgumentError, match=r"gs:// needs .* pip install gcsfs"):
        get(tmp_path, "gs://bucket/x")
    with pytest.raises(ArgumentError, match="pip install aiohttp"):
        download(tmp_path, "truth", "0104")


def test_the_second_place_is_tried_if_none_was_chosen(site, grib, tmp_path, monkeypatch, capsys):
    with serve(files={"output.sfc.20180108": grib}) as older:
        monkeypatch.setattr(locate, "BASES", (site.url, older.url))
        download(tmp_path, "sfc", "0104-0108", progress=True, sleep=lambda _: None)
        assert f"1 of 2 files not found: trying {older.url}" in capsys.readouterr().out
        record = json.loads((tmp_path / "checksums.json").read_text())
        assert record["output.sfc.20180108"]["url"].startswith(older.url)
        with pytest.raises(MissingDataError) as caught:
            download(tmp_path, "sfc", "0111", sleep=lambda _: None)
        assert f"({site.url}: HTTP 404" in str(caught.value)
        assert f"; {older.url}: HTTP 404" in str(caught.value)
        older.requests.clear()
        with pytest.raises(MissingDataError):
            get(tmp_path / "a", site.url, "0108")
        monkeypatch.setenv("ENS10_BASE_URL", site.url)
        with pytest.raises(MissingDataError):
            download(tmp_path / "b", "sfc", "0108", sleep=lambda _: None)
        assert older.requests == []


def test_a_place_that_does_not_answer_is_asked_once(grib, tmp_path, monkeypatch):
    with serve() as gone:
        pass  # its port is free again
    with serve(files={f"output.sfc.2018{d}": grib for d in month_days()[:4]}) as site:
        monkeypatch.setattr(locate, "BASES", (gone.url, site.url))
        waits = []
        report = download(tmp_path, "sfc", "0101-0111", sleep=waits.append)
    assert len(report.fetched) == 4
    assert waits == [1.0, 2.0]  # of the first file alone


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_any_place_that_fsspec_reads(scheme, grib, tmp_path):
    source = "memory://ens10" if scheme == "memory" else f"file://{tmp_path}/source"
    with fsspec.open(f"{source}/{NAME}", "wb") as file:
        file.write(grib)
    folder = tmp_path / "d"
    get(folder, source)
    assert (folder / NAME).read_bytes() == grib
    with pytest.raises(MissingDataError, match="there is no such file"):
        get(folder, source, "0108")
    if scheme == "memory":
        fsspec.filesystem("memory").rm("/ens10", recursive=True)


def test_a_dropped_fsspec_file_is_taken_up_and_a_changed_one_is_not(
    grib, write, tmp_path, monkeypatch
):
    from ens10.download import remote

    source = tmp_path / "source"
    source.mkdir()
    (source / NAME).write_bytes(grib)
    blocks, starts = remote._blocks, []

    def failing(file, first):
        starts.append(first)
        yield next(blocks(file, first))[:500]
        if len(starts) == 3:
            (source / NAME).write_bytes(other)
        if len(starts) < 5:
            raise remote.TransientError("dropped")
        yield from blocks(file, first + 500)

    monkeypatch.setattr(remote, "_blocks", failing)
    other = write(cube(dates=(20170101, 20170102), members=2)).read_bytes()
    get(tmp_path / "d", f"file://{source}")
    assert starts == [0, 500, 1000, 0, 500]
    assert (tmp_path / "d" / NAME).read_bytes() == other


def test_whatever_the_back_end_raises_may_pass(grib, tmp_path, monkeypatch):
    from fsspec.implementations.local import LocalFileSystem

    (tmp_path / NAME).write_bytes(grib)
    opened, tries = LocalFileSystem.open, []

    def failing(self, *arguments, **options):
        tries.append(1)
        if len(tries) < 4:
            raise RuntimeError("ClientPayloadError")  # which is no OSError
        return opened(self, *arguments, **options)

    monkeypatch.setattr(LocalFileSystem, "open", failing)
    get(tmp_path / "d", f"file://{tmp_path}")
    assert len(tries) == 4
    monkeypatch.setattr(LocalFileSystem, "open", lambda *_, **__: 1 / 0)
    with pytest.raises(MissingDataError, match=r"ZeroDivisionError.*given up after 8"):
        get(tmp_path / "e", f"file://{tmp_path}")


def test_sizes_first(site, grib, tmp_path, capsys, monkeypatch):
    report = get(tmp_path / "d", site.url, dry_run=True, progress=True)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{site.url}/{NAME}  {size_text(len(grib))}"
    assert said[1].startswith(f"1 files to fetch and 0 here, {size_text(len(grib))} in all")
    assert (report.left, report.fetched) == (len(grib), (NAME,))
    assert {method for method, _, _ in site.requests} == {"HEAD"}
    assert not (tmp_path / "d").exists()
    free = len(grib) - 1
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("U", (), {"free": free}))
    with pytest.raises(FileError, match=r"are to be written and .* are free"):
        get(tmp_path / "d", site.url)
    assert not (tmp_path / "d").exists()


def test_sizes_in_words():
    assert [size_text(n) for n in (0, 999, 1000, 24_100_000_000, 3 * 10**12)] == [
        "0 bytes", "999 bytes", "1.0 kB", "24.1 GB", "3.0 TB",
    ]  # fmt: skip


def test_a_file_that_is_here_is_judged_and_never_overwritten(site, grib, tmp_path):
    (tmp_path / NAME).write_bytes(grib)
    assert get(tmp_path, site.url).kept == (NAME,)  # not recorded: by size and framing
    assert site.gets(NAME) == []
    record = json.loads((tmp_path / "checksums.json").read_text())
    assert record[NAME]["sha256"] == hashlib.sha256(grib).hexdigest()
    flipped = grib[:100] + bytes([grib[100] ^ 1]) + grib[101:]
    (tmp_path / NAME).write_bytes(flipped)
    assert get(tmp_path, site.url).kept == (NAME,)
    with pytest.raises(MissingDataError, match=r"its SHA-256 is not the one in checksums\.json"):
        get(tmp_path, site.url, check=True)
    (tmp_path / NAME).write_bytes(grib[:-1])
    with pytest.raises(MissingDataError, match=f"{len(grib) - 1} bytes, and {len(grib)} were"):
        get(tmp_path, site.url)
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(MissingDataError, match=f"{len(grib) - 1} bytes, and the server has"):
        get(tmp_path, site.url)
    (tmp_path / NAME).write_bytes(grib[:-1] + b"8")
    with pytest.raises(MissingDataError, match="does not end in 7777"):
        get(tmp_path, site.url)
    assert (tmp_path / NAME).read_bytes() == grib[:-1] + b"8"


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"size": 1}}', "\x00"])
def test_a_record_that_makes_no_sense(text, site, tmp_path):
    (tmp_path / "checksums.json").write_text(text)
    with pytest.raises(FileError, match=r"checksums\.json: no record of checksums"):
        get(tmp_path, site.url)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/etc/a", "a/b", "a\\b", "C:a", "a\0"])
def test_names_that_lead_out_of_the_folder(name, tmp_path):
    with pytest.raises(ArgumentError, match="no name of a file"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", [NAME, f"{NAME}.part", f"{NAME}.part.json", "checksums.json"])
def test_links_out_of_the_folder(name, site, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(ArgumentError, match="is a link out of the folder"):
        get(folder, site.url)
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "not there yet")
    with pytest.raises(ArgumentError, match="is a link out of the folder"):
        get(folder, site.url)
    assert victim.read_bytes() == b"mine"
    (tmp_path / "link").symlink_to(folder)
    (folder / name).unlink()
    get(tmp_path / "link", site.url)  # the folder itself may be reached by a link


def test_a_folder_that_is_none(site, tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(FileError, match="not a folder"):
        get(tmp_path / "f", site.url)
    with pytest.raises(FileError, match="not a folder"):
        get(tmp_path / "f" / "g", site.url)


def test_one_process_at_a_time(site, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with Path(tmp_path / f"{NAME}.part").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(MissingDataError, match="another process is fetching it"):
            get(tmp_path, site.url)
    get(tmp_path, site.url)


def test_passwords_are_not_written_down(site, grib, tmp_path):
    assert public("https://me:secret@host:8/a/b?token=x#y") == "https://host:8/a/b"
    assert public("memory://a/b") == "memory://a/b"


def test_an_interrupt_keeps_what_came(site, grib, tmp_path, monkeypatch):
    from ens10.download import partial

    add = partial.Partial.add

    def interrupted(self, block):
        add(self, block[:600])
        raise KeyboardInterrupt

    monkeypatch.setattr(partial.Partial, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, site.url)
    assert os.stat(tmp_path / f"{NAME}.part").st_size == 600  # noqa: PTH116
    monkeypatch.undo()
    site.requests.clear()
    get(tmp_path, site.url)
    assert site.gets(NAME) == ["bytes=600-"]
    assert (tmp_path / NAME).read_bytes() == grib
    assert RefusedError("x").absent is False
