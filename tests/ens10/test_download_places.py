"""Which dates, and from where."""

import json
from contextlib import contextmanager
from datetime import date, datetime

import fsspec
import pytest
from flakyserver import serve
from gribfiles import cube
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPResponse

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.download import download, files
from ens10.download import remote as web
from ens10.download.choice import start_days, valid_hours
from ens10.download.remote import (
    ByteRange,
    Info,
    RefusedError,
    RetryPolicy,
    SlowError,
    TransientError,
)
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError

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


@settings(deadline=None)
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


def test_a_date_written_out():
    assert start_days("2018-01-04, 0108") == ("0104", "0108")


def test_long_pauses_are_said():
    said, slept = [], []
    retries = RetryPolicy(tries=5, sleep=slept.append, notify=said.append)

    def never():
        raise TransientError("no answer")

    with pytest.raises(TransientError, match="no answer; given up after 5 attempts"):
        retries.call(never)
    assert slept == [1.0, 2.0, 4.0, 8.0]
    assert said == [
        "no answer: again in 4 s (3 of 5 tries)",
        "no answer: again in 8 s (4 of 5 tries)",
    ]


@pytest.mark.parametrize(
    ("dates", "says"),
    [
        ("0105", "did you mean 0104 or 0108"),
        ("0102-0103", "holds no start date"),
        ("0301-0201", "ends before it begins"),
        ("0229", "'0229' is no month and day of 2018"),
        ("1301", "no month and day of 2018"),
        ("20180104", "no month and day"),
        ("0104-", "no month and day"),
        ("al", "no month and day"),
        ("../0", "no month and day"),
        ("2018-01-05", "did you mean 0104 or 0108"),
        ([], "none given"),
    ],
)
def test_dates_that_make_no_sense(dates, says):
    with pytest.raises(ArgumentError, match=f"^dates: .*{says}"):
        start_days(dates)


@pytest.mark.parametrize(
    ("kind", "dates", "options", "error", "says"),
    [
        ("sfx", "all", {}, UnknownNameError, "did you mean 'sfc'"),
        ("pl", "all", {"fields": ["t2m"]}, ArgumentError, "fields: only for kind truth"),
        ("pl", "all", {"jobs": 0}, ArgumentError, "jobs: 0"),
        ("sfc", "0104", {"base": "folder"}, ArgumentError, "base: 'folder' is no URL"),
        ("sfc", "0104", {"base": "what://a/b"}, ArgumentError, "base: what:// is unknown"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path, kind, dates, options, error, says):
    with pytest.raises(error, match=says):
        download(tmp_path, kind, dates, **options)


def test_a_scheme_whose_package_is_not_installed(tmp_path, monkeypatch):
    def lacking(scheme):
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr("fsspec.get_filesystem_class", lacking)
    with pytest.raises(ArgumentError, match=r"gs:// needs .* pip install 'aiohttp>=.*' 'gcsfs>="):
        get(tmp_path, "gs://bucket/x")
    with pytest.raises(ArgumentError, match=r"pip install 'aiohttp>=.*' 'gcsfs>="):
        download(tmp_path, "truth", "0104")


def test_a_dry_run_without_a_network_is_one_short_line(tmp_path, monkeypatch):
    """Each of the two places is asked twice, and not eight times in two minutes."""
    monkeypatch.setattr(files, "BASES", ("http://127.0.0.1:9", "http://127.0.0.1:11"))
    waits: list[float] = []
    with pytest.raises(MissingDataError, match=r"all 105 files .*no server answers") as caught:
        download(tmp_path, "sfc", "all", dry_run=True, sleep=waits.append)
    assert waits == [1.0, 1.0]
    assert "output.sfc" not in str(caught.value)
    waits.clear()
    with pytest.raises(MissingDataError, match=r"output.sfc.20180104 \(.*no server answers"):
        download(tmp_path, "sfc", "0104", sleep=waits.append)
    assert waits == [1.0, 2.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]


def test_the_second_place_is_tried_if_none_was_chosen(site, grib, tmp_path, monkeypatch, capsys):
    with serve(files={"output.sfc.20180108": grib}) as older:
        monkeypatch.setattr(files, "BASES", (site.url, older.url))
        download(tmp_path, "sfc", "0104-0108", progress=True, sleep=lambda _: None)
        assert f"1 of 2 files not had from there: trying {older.url}" in capsys.readouterr().out
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
        monkeypatch.setattr(files, "BASES", (gone.url, site.url))
        waits = []
        report = download(tmp_path, "sfc", "0101-0111", sleep=waits.append)
    assert len(report.new_files) == 4
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


def test_redirects_are_followed_to_files_and_refused_to_other_schemes(site, grib, tmp_path):
    def moved(to):
        return ("status", 302, {"Location": to})

    there = f"{site.url}/elsewhere"
    site.files["elsewhere"] = grib
    site.head_faults[NAME] = [moved(there)]
    site.faults["elsewhere"] = [("drop", 500), ("none",)]
    site.faults[NAME] = [moved(there), moved(there)]
    get(tmp_path / "d", site.url)
    assert site.gets("elsewhere") == [None, "bytes=500-"]
    assert (tmp_path / "d" / NAME).read_bytes() == grib
    (tmp_path / "secret").write_bytes(grib)
    for to, says in (
        (f"file://{tmp_path}/secret", r"not an address of http\(s\)"),
        ("ftp://127.0.0.1/secret", r"not an address of http\(s\) \(.*ftp"),
        (f"{site.url}/{NAME}", "too many redirects"),
    ):
        site.requests.clear()
        site.head_faults[NAME] = [moved(to)] * 11
        with pytest.raises(MissingDataError, match=says):
            get(tmp_path / "e", site.url)
        assert len(site.requests) == (11 if "many" in says else 1)
        assert not (tmp_path / "e").exists()


def test_the_proxy_of_the_environment_is_used(site, grib, tmp_path, monkeypatch):
    site.files["ttp://elsewhere.invalid/" + NAME] = grib  # a proxy is asked for the whole URL
    monkeypatch.setenv("http_proxy", site.url)
    monkeypatch.setenv("no_proxy", "")
    get(tmp_path / "d", "http://elsewhere.invalid")
    assert (tmp_path / "d" / NAME).read_bytes() == grib
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    get(tmp_path / "e", site.url)
    assert site.gets(NAME) == [None]


def test_a_superscript_is_a_digit_to_python_and_not_a_number(site, grib, tmp_path):
    site.head_faults[NAME] = [("status", 503, {"Retry-After": "\xb2"})]
    get(tmp_path / "d", site.url)
    assert (tmp_path / "d" / NAME).read_bytes() == grib
    answer = HTTPResponse(headers={"Content-Length": "\xb2"}, preload_content=False)
    assert web._position_and_info(answer) == (0, Info(None, ""))


@pytest.mark.parametrize(
    ("span", "size"), [("bytes 5-9/10", 10), ("bytes 5-9/*", 10), (" bytes 5-9/12", 12)]
)
def test_the_size_of_a_file_whose_part_comes(span, size):
    """RFC 9110, 14.4: the size may be unknown, and is then that of what precedes and follows."""
    headers = {"Content-Range": span, "Content-Length": "5", "ETag": '"v"'}
    answer = HTTPResponse(headers=headers, status=206, preload_content=False)
    assert web._position_and_info(answer) == (5, Info(size, '"v"'))


@pytest.mark.parametrize("span", ["", "items 5-9/10", "bytes */10", "bytes \xb2-9/10"])
def test_a_part_of_unknown_place_is_not_used(span):
    answer = HTTPResponse(headers={"Content-Range": span}, status=206, preload_content=False)
    with pytest.raises(TransientError, match="without saying which"):
        web._position_and_info(answer)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "9" * 5000},
        {"Content-Length": "5", "Content-Range": f"bytes 5-9/{'9' * 5000}"},
        {"Content-Length": "5", "Content-Range": f"bytes {'9' * 5000}-9/10"},
    ],
)
def test_a_size_of_5000_digits(headers):
    status = 206 if "Content-Range" in headers else 200
    answer = HTTPResponse(headers=headers, status=status, preload_content=False)
    with pytest.raises(RefusedError, match="announces an impossible size, of 5000 digits"):
        web._position_and_info(answer)


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({"ETag": '"v"', "Last-Modified": "Thu"}, '"v"'),
        ({"ETag": 'W/"v"', "Last-Modified": "Thu"}, "Thu"),
        ({"ETag": 'W/"v"'}, ""),
    ],
)
def test_a_weak_tag_is_no_version(headers, version):
    """RFC 9110, 8.8.1: files with one weak ETag may differ in their bytes."""
    answer = HTTPResponse(headers=headers, preload_content=False)
    assert web._position_and_info(answer)[1].version == version


class SlowFile:
    """A remote file that sends 100 bytes, a block every `seconds`."""

    def __init__(self, content, seconds):
        self.content, self.seconds, self.now, self.starts = content, seconds, 0.0, []
        self.info = Info(len(content), '"v"')

    @contextmanager
    def read_from(self, url, start, expected):
        self.starts.append(start)
        yield ByteRange(start, self.info, self.blocks(start))

    def blocks(self, start):
        for at in range(start, len(self.content), 100):
            self.now += self.seconds
            yield self.content[at : at + 100]

    def fetch(self, target):
        retries = RetryPolicy(
            tries=3, minimum_rate=10, rate_seconds=60, sleep=lambda _: None, clock=lambda: self.now
        )
        return files.Transfer(self, retries).fetch("http://there/x", target, self.info)


def test_a_server_that_is_too_slow_is_given_up(grib, tmp_path):
    """100 bytes in 25 s are 4 a second: 300 bytes in 75 s."""
    slow = SlowFile(grib, 25.0)
    with pytest.raises(
        TransientError,
        match="too slow: 300 bytes in 75 s, and the minimum is 10 bytes a second; given up after 3",
    ):
        slow.fetch(tmp_path / "x")
    assert slow.starts == [0, 200, 400]  # what came before is kept
    assert slow.now == 9 * 25


def test_a_server_at_the_minimum_rate_is_read(grib, tmp_path):
    slow = SlowFile(grib, 10.0)
    slow.fetch(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == grib
    assert slow.starts == [0]


def test_the_rate_is_that_of_the_last_minute():
    """A fast beginning does not excuse a server that is slow later."""
    now = iter([0.0, 30.0, 60.0, 60.0, 90.0, 121.0])
    policy = RetryPolicy(minimum_rate=10, clock=lambda: next(now))
    blocks = policy.check_rate(iter([bytes(10**6), b"b", b"c", b"d"]))
    assert [len(next(blocks)) for _ in range(3)] == [10**6, 1, 1]
    with pytest.raises(SlowError, match="2 bytes in 61 s"):
        next(blocks)
