"""What other people name or write cannot lead out of a folder, or cost more than it holds."""

import json
import os
import shutil

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.cli import main
from ens10.convert import prepare, verify
from ens10.errors import FileError
from ens10.inspection import inspect_path
from ens10.store.manifest import COPY, NAME, read_manifest
from ens10.untrusted import check_regular, files_below, inside, is_inner, parse_json, parse_yaml

PARTS = st.sampled_from(
    ["..", ".", "", "a", "..a", "b.c", "~", "C:", "\\", "/", "\0", "a\\..\\b", "…", "%2e%2e", " "]
)
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@settings(deadline=None)
@given(st.lists(PARTS, max_size=6), st.sampled_from(["/", "\\", "//"]))
def test_what_is_accepted_stays_inside(parts, separator):
    name = separator.join(parts)
    if is_inner(name):
        path = os.path.normpath(os.path.join("/some/folder", name))  # noqa: PTH118
        assert path.startswith("/some/folder/")
        assert ".." not in name.split("/")
        assert "\\" not in name


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "", ".", "a//b", "a/", 3, None, "a\0"])
def test_what_is_refused(tmp_path, name):
    with pytest.raises(FileError, match=r"list\.json: names .* not a path inside"):
        inside(tmp_path, name, "list.json")


def test_links(tmp_path):
    """A link out of the folder is refused; the folder itself may be reached through one."""
    outside = tmp_path / "outside"
    folder = tmp_path / "folder"
    folder.mkdir()
    outside.mkdir()
    (folder / "within").symlink_to(folder)
    (folder / "away").symlink_to(outside)
    (tmp_path / "link").symlink_to(folder)
    assert inside(tmp_path / "link", "within/a", "x") == tmp_path / "link" / "within/a"
    with pytest.raises(FileError, match="leads out of the folder"):
        inside(folder, "away/a", "x")


def test_pipes_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="neither a regular file nor a folder"):
        check_regular(tmp_path / "pipe")
    check_regular(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 60 + "]" * 60, None),
        ("[" * 200 + "]" * 200, "levels deep"),
        ("[" * 100_000, "nested too deeply"),
        ("&a [*a]", "contains itself"),
        (LAUGHS, "more than 1000000 values"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("{: [", "parsing"),
        (b"\xff\xfe\x00", "data"),
    ],
)
def test_yaml(text, message):
    if message is None:
        assert parse_yaml(text)
        return
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["[" * 100_000, b"\xff", "1" * 5000, "{", ""])
def test_json_that_is_none_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.fixture
def copied(small, tmp_path):
    shutil.copytree(small / "s.zarr", tmp_path / "in" / "s.zarr")
    (tmp_path / "in" / "w").symlink_to(small / "w")
    return tmp_path / "in" / "s.zarr"


def rewrite(store, change):
    """Changes a manifest and its copy, with a checksum that is right."""
    for name in (NAME, COPY):
        path = store / name
        content = path.read_bytes()
        body = change(content.rpartition(b'},"crc32c":')[0])
        text = body + b'},"crc32c":%d}' % crc32c.crc32c(body)
        path.write_bytes(text.ljust(len(content) - 1) + b"\n")


@pytest.mark.parametrize("target", ["../victim", "climate/../../victim", "/etc/hostname"])
def test_a_manifest_that_names_files_outside_its_store(copied, target):
    victim = copied.parent / "victim"
    victim.write_text("precious")
    old = b'"sfc/t2m/c/0/0/0/0/0"'
    rewrite(copied, lambda body: body.replace(old, json.dumps(target).encode(), 1))
    for call in (verify, lambda store: verify(store, repair=True), read_manifest):
        with pytest.raises(FileError, match="not a path inside the store"):
            call(copied)
    told = "\n".join(row.status for row in inspect_path(copied))
    assert "not a path inside the store" in told
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"name":"w"', b'"name":"../w"', 1),
        lambda body: body.replace(b'"files":[["', b'"files":[["../', 1),
        lambda body: body.replace(b'"plan":{', b'"plan":{"x":' + b"[" * 10_000, 1),
        lambda body: body.replace(b'"source":{', b'"sauce":{', 1),
        lambda body: body.replace(b'"sfc/t2m/c/0/0/0/0/0",', b'"sfc/t2m/c/0/0/0/0/0",-', 1),
    ],
)
def test_a_plan_or_row_that_makes_no_sense(copied, change):
    """One error that names the manifest, from every reader; never a traceback of another kind."""
    rewrite(copied, change)
    with pytest.raises(FileError, match="manifest/json/c/0: damaged"):
        verify(copied, repair=True)


def test_a_link_in_a_store_is_not_written_through(copied):
    outside = copied.parent / "outside"
    shutil.move(copied / "sfc" / "t2m", outside)
    (copied / "sfc" / "t2m").symlink_to(outside)
    chunk = outside / "c/0/0/0/0/0"
    chunk.write_bytes(b"x")
    with pytest.raises(FileError, match="leads out of the folder"):
        verify(copied, repair=True)
    assert chunk.read_bytes() == b"x"


def test_a_chunk_that_never_ends(copied):
    chunk = copied / "sfc/t2m/c/0/0/0/0/0"
    chunk.unlink()
    os.mkfifo(chunk)
    assert verify(copied, sample=0).damaged == [("sfc/t2m/c/0/0/0/0/0", "it is not a regular file")]


def run_on(path, tmp_path, capsys):
    """What each command says of a path that holds nothing to read: one line, exit status 1."""
    told = []
    for command in (["inspect"], ["prepare", "-"], ["verify"]):
        arguments = [str(tmp_path / "out.zarr") if part == "-" else part for part in command[1:]]
        assert main([command[0], str(path), *arguments]) == 1
        printed = capsys.readouterr()
        told.append(printed.err if printed.err else printed.out.splitlines()[-1])
    return told


def test_loops_of_links(tmp_path, capsys):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "self").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.grib")
    for path in (tmp_path / "a", tmp_path / "a" / "inside", folder, folder / "pipe.grib"):
        for line in run_on(path, tmp_path, capsys):
            assert str(path) in line
            assert line.count("\n") <= 1


def deep(folder, levels=150):
    """Folders in folders; with ten times as many, walking through them is a RecursionError."""
    folder.mkdir()
    (folder / "zarr.json").write_text('{"zarr_format":3,"node_type":"group","attributes":{}}')
    begun = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    for _ in range(levels):
        os.mkdir("deeper")  # noqa: PTH102
        os.chdir("deeper")
    os.chdir(begun)
    return folder


def test_folders_too_deep(tmp_path, copied):
    with pytest.raises(FileError, match=r"z\.zarr: holds folders more than 100 levels deep"):
        prepare(deep(tmp_path / "z.zarr"), tmp_path / "out.zarr")
    deep(copied / "sfc" / "more")
    with pytest.raises(FileError, match="folders more than 100 levels deep"):
        verify(copied, repair=True)


def test_files_below(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("z", "b/y", "b/c/x"):
        (tmp_path / name).write_text(name)
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "a").symlink_to(tmp_path / "z")
    assert files_below(tmp_path) == [tmp_path / n for n in ("a", "b/c/x", "b/y", "z")]
