"""A `prepare` that is resumed after its source was issued again."""

import json
import os

import pytest
from gribfiles import cube
from storetools import assert_same, contents

from ens10 import prepare
from ens10.convert.work_units import ForecastUnit
from ens10.errors import FileError
from ens10.store.manifest import read_plan


@pytest.fixture
def interrupted(write, tmp_path):
    """A source, and the partial store of a call that ended after three units."""
    source, real = write(cube()), ForecastUnit.write

    def stops(unit, writer):
        real(unit, writer)
        if unit.name == "forecast-000001-001":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ens10.convert.workers.GROUP_BYTES", 0)
        patch.setattr(ForecastUnit, "write", stops)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, tmp_path / "s")
    assert (tmp_path / "s.partial/plan.json").is_file()
    return source


def issue_again(source):
    """Change one value of the last message; name, size and dates stay."""
    content = bytearray(source.read_bytes())
    content[-6] ^= 1
    source.write_bytes(content)


def test_another_source_of_the_same_size_is_refused(interrupted, tmp_path):
    issue_again(interrupted)
    with pytest.raises(FileError, match=r"source: its files have changed.*--force"):
        prepare(interrupted, tmp_path / "s")
    prepare(interrupted, tmp_path / "s", force=True)
    prepare(interrupted, tmp_path / "other")
    assert_same(tmp_path / "s", tmp_path / "other")


@pytest.mark.parametrize("change", ["time", "older plan"])
def test_a_copy_of_the_source_is_resumed(interrupted, tmp_path, change, capsys):
    plan = tmp_path / "s.partial/plan.json"
    if change == "time":
        os.utime(interrupted, ns=(0, 0))
    else:
        content = json.loads(plan.read_text())
        del content["inputs"]
        plan.write_text(json.dumps(content))
    prepare(interrupted, tmp_path / "s", progress=True)
    assert "resuming: 3 of 6 units are there" in capsys.readouterr().err
    prepare(interrupted, tmp_path / "other")
    assert_same(tmp_path / "s", tmp_path / "other")


def test_a_store_does_not_depend_on_the_times_of_its_source(write, tmp_path):
    source = write(cube())
    prepare(source, tmp_path / "s")
    before = contents(tmp_path / "s")
    assert "inputs" not in read_plan(tmp_path / "s")
    os.utime(source, ns=(0, 0))
    prepare(source, tmp_path / "again")
    assert contents(tmp_path / "again") == before


def test_notes_beside_the_units_are_kept(interrupted, tmp_path):
    notes = tmp_path / "s.partial/notes.txt"
    notes.write_text("precious")
    with pytest.raises(FileError, match=r"holds notes\.txt"):
        prepare(interrupted, tmp_path / "s", members=2, force=True)
    assert notes.read_text() == "precious"
