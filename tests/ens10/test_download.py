"""Files fetched from servers that drop connections, lie, change their minds and lack files."""

import hashlib
import json

import pytest
from flakyserver import serve
from gribfiles import cube
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ens10.catalog import month_days
from ens10.download import download
from ens10.errors import FileError, MissingDataError

NAME = "output.sfc.20180104"


@pytest.fixture
def grib(write):
    """A small GRIB file's bytes."""
    return write(cube(members=2), "source.grib").read_bytes()


@pytest.fixture
def site(grib):
    with serve(files={NAME: grib}) as running:
        yield running


@pytest.fixture
def get(site, tmp_path):
    """Downloads 0104; waits are noted in `get.waits` instead of waited."""

    def got(dates="0104", **options):
        options = {"base": site.url, "sleep": got.waits.append, **options}
        return download(tmp_path / "d", "sfc", dates, **options)

    got.waits, got.folder, got.file = [], tmp_path / "d", tmp_path / "d" / NAME
    return got


def test_a_file_comes_whole_with_its_checksum_and_only_once(site, get, grib):
    report = get()
    assert (report.new_files, report.existing_files) == ((NAME,), ())
    assert report.size == report.remaining_size == len(grib)
    assert get.file.read_bytes() == grib
    assert sorted(p.name for p in get.folder.iterdir()) == ["checksums.json", NAME]
    entry = {"sha256": hashlib.sha256(grib).hexdigest(), "size": len(grib)}
    entry["url"] = f"{site.url}/{NAME}"
    assert json.loads((get.folder / "checksums.json").read_text()) == {NAME: entry}
    site.requests.clear()
    again = get()
    assert (again.new_files, again.existing_files, again.remaining_size) == ((), (NAME,), 0)
    assert site.requests == []
    assert get.waits == []


def test_a_dropped_connection_is_taken_up_where_it_ended(site, get, grib):
    site.faults[NAME] = [("drop", 700), ("drop", 1), ("none",)]
    get()
    assert site.gets(NAME) == [None, "bytes=700-", "bytes=701-"]
    assert site.sent[NAME] == len(grib)
    assert get.file.read_bytes() == grib
    assert get.waits == [1.0, 1.0]  # each attempt brought something: the pauses do not grow


@pytest.mark.parametrize("etags", [True, False])
def test_a_short_body_and_a_lying_range_do_no_harm(site, get, grib, etags):
    site.etags = etags
    site.faults[NAME] = [("short", 500), ("drop", 400), ("lie", 100), ("short", 3), ("none",)]
    get()
    assert get.file.read_bytes() == grib


def test_a_server_without_ranges_sends_all_again(site, get, grib):
    site.ranges = False
    site.faults[NAME] = [("drop", 700), ("drop", 300), ("none",)]
    get()
    assert site.gets(NAME) == [None, "bytes=700-", "bytes=300-"]
    assert get.file.read_bytes() == grib
    assert get.waits == [1.0, 2.0]  # the second attempt came less far than the first


def test_a_server_that_never_comes_further_is_given_up(site, get):
    site.ranges = False
    site.faults[NAME] = [("drop", 700), ("drop", 300)] * 10
    with pytest.raises(MissingDataError, match="given up after 8 attempts"):
        get()
    assert len(site.gets(NAME)) == 8


def test_busy_servers_are_asked_again_ever_more_slowly(site, get, grib):
    busy = ("status", 503, {})
    site.head_faults[NAME] = [busy]
    site.faults[NAME] = [busy, busy, busy, ("status", 429, {"Retry-After": "7"}), ("none",)]
    get()
    assert get.file.read_bytes() == grib
    assert get.waits == [1.0, 1.0, 2.0, 4.0, 7.0]


def test_a_server_that_stays_busy_is_given_up(site, get, grib):
    site.faults[NAME] = [("drop", 900), *[("status", 500, {})] * 20]
    with pytest.raises(MissingDataError, match=r"HTTP 500 .*given up after 8 attempts"):
        get()
    assert get.waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    site.faults.clear()
    site.requests.clear()
    report = get()
    assert site.gets(NAME) == ["bytes=900-"]
    assert report.remaining_size == len(grib) - 900
    assert get.file.read_bytes() == grib
    get(check=True)  # the checksum is of the whole file, not of what came last


def test_more_bytes_than_announced_are_not_taken(site, get, grib):
    site.faults[NAME] = [("long", grib[:188]), ("none",)]  # which would be sound GRIB
    get()
    assert get.file.read_bytes() == grib
    assert len(get.waits) == 1


_UNDER_WAY = 1 << 25  # bytes that may be in the buffers of sockets when a reader closes its end


def test_a_file_without_end_is_left_at_its_announced_size(site, get, grib):
    site.faults[NAME] = [("endless",), ("none",)]
    get()
    assert get.file.read_bytes() == grib
    assert len(get.waits) == 1
    assert site.sent[NAME] < len(grib) + _UNDER_WAY


def test_a_file_without_end_and_without_size_is_left_at_a_limit(site, get, monkeypatch):
    """At once: another attempt would bring as much."""
    limit = 3_000_000
    monkeypatch.setattr("ens10.download.local_files.MOST_UNANNOUNCED", limit)
    site.lengths, site.faults[NAME] = False, [("endless",)]
    with pytest.raises(
        MissingDataError, match=r"more than 3000000 bytes and has announced no size"
    ):
        get()
    assert (get.waits, len(site.gets(NAME))) == ([], 1)
    assert site.sent[NAME] < limit + _UNDER_WAY
    assert [p.name for p in get.folder.iterdir() if ".part" in p.name] == []


def test_fewer_bytes_than_announced_are_not_the_file(site, get, grib):
    site.faults[NAME] = [("drop", len(grib) - 1)] * 20
    site.ranges = False
    with pytest.raises(MissingDataError, match=rf"{len(grib) - 1} of {len(grib)}|dropped"):
        get()
    assert not get.file.exists()


def test_a_pause_of_hours_is_not_waited_for(site, get):
    site.faults[NAME] = [("status", 503, {"Retry-After": "86400"})]
    with pytest.raises(MissingDataError, match="come back in 86400 s"):
        get()
    assert get.waits == []


def test_a_file_that_changes_is_started_anew(site, get, write, grib):
    other = write(cube(members=1), "other.grib").read_bytes()
    site.faults[NAME] = [("drop", 700), ("change", other)]
    get()
    assert get.file.read_bytes() == other
    assert site.gets(NAME) == [None, "bytes=700-"]


def test_a_part_of_another_version_is_not_used(site, get, write, grib):
    site.faults[NAME] = [("drop", 700), *[("status", 500, {})] * 8]
    with pytest.raises(MissingDataError):
        get()
    site.files[NAME] = write(cube(dates=(20170101, 20170102, 20170103), members=2)).read_bytes()
    site.faults.clear()
    site.requests.clear()
    get()
    assert site.gets(NAME) == [None]
    assert get.file.read_bytes() == site.files[NAME] != grib


@pytest.fixture
def newer(write, grib):
    """Another file of the same size."""
    dates = (20170101, 20170102, 20170103)
    content = write(cube(dates=dates, members=2), "newer.grib").read_bytes()
    assert (len(content), content == grib) == (len(grib), False)
    return content


def test_without_a_version_a_part_is_not_completed_from_another_file(site, get, newer):
    """The mixture of both was complete, and its checksum was recorded."""
    site.etags = False
    site.faults[NAME] = [("drop", 700), *[("status", 500, {})] * 8]
    with pytest.raises(MissingDataError):
        get()
    site.files[NAME] = newer
    assert get().remaining_size == len(newer)
    assert get.file.read_bytes() == newer
    assert set(site.gets(NAME)) == {None}


def test_a_file_without_a_version_that_changes_is_started_anew(site, get, newer):
    site.etags = False
    site.faults[NAME] = [("drop", 700), ("change", newer)]
    get()
    assert get.file.read_bytes() == newer
    assert site.gets(NAME) == [None, None]


def test_a_part_whose_version_is_not_sent_is_not_used(site, get, newer):
    site.etags, site.modified = False, "Thu, 26 Nov 2026 10:00:00 GMT"
    site.faults[NAME] = [("drop", 700), ("change", newer)]
    get()
    assert get.file.read_bytes() == newer
    assert site.gets(NAME) == [None, "bytes=700-", None]


def test_missing_files_are_listed_after_the_others_came(site, get, grib):
    last = "output.sfc.20180115"
    site.files[last] = grib
    with pytest.raises(MissingDataError) as caught:
        get("0101-0115")
    assert [text.split(" (")[0] for text in caught.value.missing] == [
        "output.sfc.20180101", "output.sfc.20180108", "output.sfc.20180111",
    ]  # fmt: skip
    assert "HTTP 404" in caught.value.missing[0]
    assert get.waits == []
    assert get.file.read_bytes() == (get.folder / last).read_bytes() == grib


def test_a_page_instead_of_a_file_is_shown_and_not_kept(site, get, grib):
    page = b"<html>\n<b>Please log in</b></html>"
    site.faults[NAME] = [("body", page)] * 8
    with pytest.raises(MissingDataError, match="sends another, which begins with '<html> <b>Plea"):
        get()
    site.faults[NAME] = [("body", page), ("none",)]
    get()
    assert get.file.read_bytes() == grib


def test_a_page_that_is_served_for_good_is_shown_and_not_kept(site, get):
    site.files[NAME] = b"<html>\n<b>Please log in</b></html>"
    with pytest.raises(MissingDataError, match=r"no GRIB file.*<html> <b>Please log in</b>"):
        get()
    assert len(site.gets(NAME)) == 1
    assert [p.name for p in get.folder.iterdir()] == []
    assert len(site.gets(NAME)) == 1


def test_a_page_is_known_however_small_the_pieces(site, get, monkeypatch):
    monkeypatch.setattr("ens10.download.remote.BLOCK", 1)
    site.files[NAME] = b"GRID: Please log in"
    with pytest.raises(MissingDataError, match=r"no GRIB file.*'GRID'"):
        get()


def test_a_damaged_file_is_set_aside_with_its_place(site, get, grib):
    site.files[NAME] = grib[:-1] + b"8"
    with pytest.raises(MissingDataError, match=r"damaged at byte \d+: .* does not end in 7777"):
        get()
    assert [p.name for p in get.folder.iterdir()] == [f"{NAME}.damaged"]


def test_servers_without_head_sizes_or_versions(site, get, grib):
    site.head = site.etags = site.lengths = False
    site.faults[NAME] = [("none",), ("none",)]
    report = get()
    assert report.size == 0
    assert get.file.read_bytes() == grib


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    faults=st.lists(
        st.tuples(st.sampled_from(["drop", "short", "lie"]), st.integers(0, 3000)), max_size=6
    ),
    ranges=st.booleans(),
    etags=st.booleans(),
    block=st.sampled_from([1, 7, 256, 1 << 20]),
)
@example(faults=[("drop", 1), ("drop", 3)], ranges=False, etags=False, block=1)
@example(faults=[("drop", 400), ("lie", 2000)], ranges=True, etags=True, block=256)
@example(faults=[("drop", 2), ("drop", 1)], ranges=True, etags=True, block=256)
def test_wherever_it_drops_the_file_is_the_same(
    site, grib, tmp_path_factory, monkeypatch, faults, ranges, etags, block
):
    monkeypatch.setattr("ens10.download.remote.BLOCK", block)
    site.ranges, site.etags = ranges, etags
    site.faults[NAME] = list(faults)
    folder = tmp_path_factory.mktemp("p")
    download(folder, "sfc", "0104", base=site.url, sleep=lambda _: None)
    assert (folder / NAME).read_bytes() == grib
    record = json.loads((folder / "checksums.json").read_text())[NAME]
    assert record["sha256"] == hashlib.sha256(grib).hexdigest()


def test_many_files_at_once_and_the_same_record_in_any_order(site, grib, tmp_path):
    days = month_days()[:12]
    site.files = {f"output.pl.2018{day}": grib for day in days}
    texts = set()
    for jobs in (1, 5):
        site.faults = {name: [("drop", 100)] for name in list(site.files)[::2]}
        folder = tmp_path / str(jobs)
        download(folder, "pl", days, base=site.url, jobs=jobs, sleep=lambda _: None)
        assert {p.name for p in folder.iterdir()} == {*site.files, "checksums.json"}
        texts.add((folder / "checksums.json").read_text())
    assert len(texts) == 1


def test_a_full_disk_ends_it_at_once(get, monkeypatch):
    from ens10.download import local_files

    class Full(local_files.Partial):
        def add(self, block):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("ens10.download.files.Partial", Full)
    with pytest.raises(FileError, match="no space is left on the disk"):
        get()
    assert get.waits == []


def test_the_bar_ends_at_what_came(site, get, grib, monkeypatch):
    from contextlib import contextmanager

    moves, totals = [], []

    @contextmanager
    def bar(_, total, visible, in_bytes):
        totals.append(total)
        yield moves.append

    monkeypatch.setattr("ens10.download.files.bar", bar)
    site.faults[NAME] = [("drop", 700), *[("status", 500, {})] * 8]
    with pytest.raises(MissingDataError):
        get()
    assert sum(moves) == 700
    moves.clear()
    site.ranges = False  # what was here is thrown away and comes again
    get()
    assert moves[0] == 700
    assert -700 in moves
    assert sum(moves) == totals[-1] == len(grib)


def test_the_bar_itself(site, get, capfd):
    get(progress=True)
    assert "download" in capfd.readouterr().err
