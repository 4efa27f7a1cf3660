"""Into which folder files go, and what is there already."""

import errno
import hashlib
import json
from pathlib import Path

import pytest
from flakyserver import serve
from gribfiles import cube

from ens10 import file_locks
from ens10.download import download
from ens10.download.local_files import Entry, Record, path_in, size_text
from ens10.download.remote import redact
from ens10.errors import ArgumentError, FileError, MissingDataError

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


def test_sizes_first(site, grib, tmp_path, capsys, monkeypatch):
    report = get(tmp_path / "d", site.url, dry_run=True, progress=True)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{site.url}/{NAME}  {size_text(len(grib))}"
    assert said[1].startswith(f"1 files to fetch and 0 here, {size_text(len(grib))} in all")
    assert (report.remaining_size, report.new_files) == (len(grib), (NAME,))
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
    assert get(tmp_path, site.url).existing_files == (NAME,)  # not recorded: by size and framing
    assert site.gets(NAME) == []
    record = json.loads((tmp_path / "checksums.json").read_text())
    assert record[NAME]["sha256"] == hashlib.sha256(grib).hexdigest()
    flipped = grib[:100] + bytes([grib[100] ^ 1]) + grib[101:]
    (tmp_path / NAME).write_bytes(flipped)
    assert get(tmp_path, site.url).existing_files == (NAME,)
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
        path_in(tmp_path, name)


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


def test_a_file_system_without_locks_is_not_taken_for_another_process(site, tmp_path, monkeypatch):
    def refuses(file, kind):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(file_locks.fcntl, "flock", refuses)
    assert get(tmp_path, site.url).new_files == (NAME,)


def test_passwords_are_not_written_down(site, grib, tmp_path):
    assert redact("https://me:secret@host:8/a/b?token=x#y") == "https://host:8/a/b"
    assert redact("memory://a/b") == "memory://a/b"


def test_an_interrupt_keeps_what_came(site, grib, tmp_path, monkeypatch):
    from ens10.download import local_files

    add = local_files.Partial.add

    def interrupted(self, block):
        add(self, block[:600])
        raise KeyboardInterrupt

    monkeypatch.setattr(local_files.Partial, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, site.url)
    assert (tmp_path / f"{NAME}.part").stat().st_size == 600
    monkeypatch.undo()
    site.requests.clear()
    get(tmp_path, site.url)
    assert site.gets(NAME) == ["bytes=600-"]
    assert (tmp_path / NAME).read_bytes() == grib


def test_two_processes_record_what_each_has_fetched(tmp_path):
    one, other = Record(tmp_path), Record(tmp_path)
    (tmp_path / ".checksums.json.0123abcd.tmp").write_text("of a process that was killed")
    one.add("first", Entry("a", 1, "https://host/first"))
    other.add("second", Entry("b", 2, "https://host/second"))
    one.remove("first")
    assert [*json.loads((tmp_path / "checksums.json").read_text())] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["checksums.json"]
