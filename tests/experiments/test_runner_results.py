"""One file of all cells of a study: added whole or not at all, shared, refused when damaged."""

import json
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from ens10 import durable
from ens10.errors import FileError
from ens10.experiments.runner import results as module
from ens10.experiments.runner.results import Results, main, pack_folders

KEY = {"config": "0a", "data": "1b", "versions": {"ens10.models": 1}}


@pytest.fixture
def results(tmp_path):
    held = Results(tmp_path)
    held.add("seed0/raw", {"scores.nc": b"raw", "log/metrics.csv": b"epoch\n"}, KEY)
    return held


def test_a_cell_comes_back_as_it_was(results, tmp_path):
    assert results.places() == ["seed0/raw"]
    assert results.key("seed0/raw") == KEY
    files = results.files("seed0/raw")
    assert files.pop("cell.json")
    assert files == {"scores.nc": b"raw", "log/metrics.csv": b"epoch\n"}
    assert results.key("seed0/ra") is None
    assert results.files("seed0/unet") == {}
    results.unpack(tmp_path / "cells")
    assert (tmp_path / "cells" / "seed0" / "raw" / "log" / "metrics.csv").read_text() == "epoch\n"
    assert Results(tmp_path / "none").places() == []


def test_an_older_cell_is_replaced_with_all_its_files(results):
    results.add("seed0/raw_2", {"scores.nc": b"two"}, KEY)
    results.add("seed0/raw", {"scores.nc": b"new"}, {**KEY, "data": "2c"})
    assert set(results.files("seed0/raw")) == {"scores.nc", "cell.json"}
    assert results.key("seed0/raw")["data"] == "2c"
    assert results.files("seed0/raw_2")["scores.nc"] == b"two"
    with results.temporary_folder(["seed0/raw"]) as folder:
        assert [path.name for path in folder.glob("*/*")] == ["raw"]


def test_the_same_cells_make_the_same_bytes(results, tmp_path):
    other = Results(tmp_path / "other")
    other.add("seed1/raw", {"scores.nc": b"1"}, KEY)
    other.add("seed0/raw", {"log/metrics.csv": b"epoch\n", "scores.nc": b"raw"}, KEY)
    results.add("seed1/raw", {"scores.nc": b"1"}, KEY)
    assert results.path.read_bytes() == other.path.read_bytes()
    written = results.path.stat().st_mtime_ns
    results.add("seed1/raw", {"scores.nc": b"1"}, KEY)
    assert results.path.stat().st_mtime_ns == written


def test_a_cell_is_added_whole_or_not_at_all(results, monkeypatch):
    before = results.path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "_sync", full)
        with pytest.raises(OSError, match="No space left"):
            results.add("seed1/raw", {"scores.nc": b"1"}, KEY)
    assert results.path.read_bytes() == before
    left = results.folder / ".cells.zip.0a1b2c3d.tmp"  # of a process that was killed
    left.write_bytes(before[:100])
    results.add("seed1/raw", {"scores.nc": b"1"}, KEY)
    assert not left.exists()
    assert results.places() == ["seed0/raw", "seed1/raw"]


def test_none_is_lost_when_many_add_at_once(results):
    def add(seed):
        results.add(f"seed{seed}/unet", {"scores.nc": b"%d" % seed}, KEY)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(6)))
    assert len(results.places()) == 7
    assert all(results.files(f"seed{n}/unet")["scores.nc"] == b"%d" % n for n in range(6))
    assert not list(results.folder.glob("*.lock"))


def test_a_damaged_archive_is_one_error(results):
    whole = results.path.read_bytes()
    place = whole.index(b"raw/scores.nc") + 16
    flipped = whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
    for damaged in (b"", whole[:50], whole[: len(whole) // 2], flipped):
        results.path.write_bytes(damaged)
        with pytest.raises(FileError, match="damaged archive of cells"):
            results.files("seed0/raw")
        with pytest.raises(FileError, match="damaged archive of cells"):
            results.add("seed1/raw", {"scores.nc": b"1"}, KEY)
        assert results.path.read_bytes() == damaged  # nobody's results are overwritten


@pytest.mark.parametrize(
    "name", ["../seed0/cell.json", "/cell.json", "cell.json", "a\\b/cell.json"]
)
def test_names_that_lead_out_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "cells.zip", "w") as archive:
        archive.writestr(name, "{}")
    with pytest.raises(FileError, match="which is no cell"):
        Results(tmp_path).unpack(tmp_path / "cells")
    assert not (tmp_path / "cells").exists()


def test_too_much_is_refused_before_it_is_unpacked(results, monkeypatch):
    monkeypatch.setattr(module, "_MAX_BYTES", 10)
    with pytest.raises(FileError, match="unpacks to more than"):
        results.key("seed0/raw")


def test_folders_of_earlier_versions_are_packed_and_marked(tmp_path, capsys):
    for name, commit in (("raw", "0123456789ab"), ("unet", "0123456789ab+")):
        cell = tmp_path / "clean-t2m-5" / "seed0" / name
        (cell / "log").mkdir(parents=True)
        (cell / "log" / "metrics.csv").write_text("epoch\n")
        known = {"commit": commit, "versions": {"ens10": "0.1.0"}}
        (cell / "provenance.json").write_text(json.dumps(known))
        (cell / "cell.json").write_text('{"config": "0a", "data": "1b", "code": {"ens10.a": "2c"}}')
    (tmp_path / "seed0" / "optimum").mkdir(parents=True)
    (tmp_path / "seed0" / "optimum" / "scores.nc").write_bytes(b"best")
    (tmp_path / "seed0" / "mine.txt").write_text("a user's own")
    assert main([str(tmp_path), "--pack"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "clean-t2m-5/seed0/raw: before result versions: commit 0123456789ab"
    assert told[1].endswith("commit 0123456789ab, with uncommitted changes")
    assert told[2] == "seed0/optimum: before result versions: commit unknown"
    key = Results(tmp_path).key("clean-t2m-5/seed0/raw")
    assert (key["config"], key["data"], key["versions"]) == ("0a", "1b", {})
    assert [path.name for path in (tmp_path / "seed0").iterdir()] == ["mine.txt"]
    assert pack_folders(tmp_path) == []
    assert main([str(tmp_path / "none")]) == 1
    assert "cells.zip: no such archive" in capsys.readouterr().err
