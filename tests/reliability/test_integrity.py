"""Whatever happens to the files of predictions and scores, no score changes in silence."""

import json
import os
import shutil
import signal
import subprocess
import sys
from random import Random

import mutations
import numpy as np
import pytest
import xarray as xr
from fakeruns import provenance_of
from mutations import Copies
from realruns import command, without_manifest
from test_predictions_in_parts import members, normal, written

from ens10.convert import verify
from ens10.durable import clear_leftovers, replace_folder
from ens10.errors import DamagedFileError, Ens10Error, FileError, MissingDataError
from ens10.experiments.reporting.diagnostics import diagnose
from ens10.experiments.reporting.groups import read_groups
from ens10.experiments.runs.reading import open_forecast
from ens10.experiments.scoring.run_results import save_states
from ens10.experiments.scoring.score import read_states, score_run
from ens10.machine_errors import writing_netcdf
from ens10.untrusted import read_mapping

COUNT = int(os.environ.get("ENS10_MUTATIONS", "0"))  # of the slow tests; see docs/reliability.md
STORE = "predictions.zarr"


def counts(few, many, share=1):
    """Numbers of damaged copies: few in make test-all, many in test-variations, or as asked for."""
    if COUNT:
        return [pytest.param(COUNT // share, marks=pytest.mark.slow)]
    return [pytest.param(few, marks=pytest.mark.slow), pytest.param(many, marks=pytest.mark.long)]


def make_run(folder, store, forecast_of=normal):
    """A run folder with predictions of four dates, as `ens10 predict` writes them."""
    folder.mkdir()
    (folder / "provenance.json").write_text(json.dumps(provenance_of(folder.name)))
    written(folder / STORE, store, forecast_of, [None])
    return folder


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    made = make_run(tmp_path_factory.mktemp("integrity") / "unet", store)
    score_run(made)
    return made


@pytest.fixture(scope="module")
def older(run, tmp_path_factory):
    """The run as an earlier version wrote it, without a manifest."""
    return without_manifest(shutil.copytree(run, tmp_path_factory.mktemp("older") / "unet"))


def content_of(folder):
    """Forecast and truth, read whole."""
    forecast, truth = open_forecast(folder)
    return forecast.assign(truth=truth).load()


def looked(look, *given):
    """What comes of it; None if it is refused in one line. Any other error ends the test."""
    try:
        return look(*given)
    except Ens10Error as error:
        lines = str(error).splitlines()
    assert len(lines) == 1
    return None


def outcomes(look, folder, place, count, changes=mutations.ALL, inner=STORE):
    """How many of so many damaged copies are refused, and how many are read as they were."""
    wanted, copies = look(folder), Copies(folder, place)
    found = {"refused": 0, "same": 0}
    for n in range(count):
        random, change = Random(n), changes[n % len(changes)]
        got = looked(look, copies.damaged(change, random, inner))
        found["refused" if got is None else "same"] += 1
        assert got is None or got.identical(wanted), (change.__name__, n)
    return found


@pytest.mark.parametrize("count", [48, pytest.param(136, marks=pytest.mark.slow)])
def test_no_damage_to_predictions_changes_them_in_silence(run, tmp_path, count):
    found = outcomes(content_of, run, tmp_path / "unet", count)
    assert found["refused"] > 0.7 * count  # the rest is in the manifest, of which there are two
    assert found["same"] > 0


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", counts(60, 200))
def test_no_damage_to_predictions_changes_a_score_in_silence(run, tmp_path, count):
    print(outcomes(score_run, run, tmp_path / "unet", count))


def test_no_damage_to_scores_changes_them_in_silence(run, tmp_path):
    scores = tmp_path / "scores" / "run"
    scores.mkdir(parents=True)
    shutil.copyfile(run / "scores.nc", scores / "scores.nc")
    changes = (mutations.flip, mutations.cut, mutations.grow)
    found = outcomes(read_states, scores, tmp_path / "copy", COUNT or 45, changes, "")
    print(found)
    assert found["refused"] > found["same"]


@pytest.mark.parametrize("count", [24, *counts(90, 300)])
def test_metadata_without_a_manifest_are_read_or_refused_in_one_line(older, tmp_path, capfd, count):
    copies, refused = Copies(older, tmp_path / "unet"), 0
    for n in range(count):
        refused += looked(score_run, copies.damaged(mutations.edit, Random(n), STORE)) is None
    print(f"{refused} of {count} refused")
    assert "not checked" in capfd.readouterr().err


@pytest.mark.parametrize("count", [7, *counts(50, 200, share=4)])
def test_provenance_is_read_or_refused_in_one_line(run, tmp_path, count):
    copies, refused = Copies(run, tmp_path / "unet"), 0
    for n in range(count):
        changed = copies.damaged(lambda f, r: mutations.edit(f, r, "*.json"), Random(n))
        scored, grouped = looked(score_run, changed), looked(read_groups, [changed], "raw")
        refused += scored is None or grouped is None
    print(f"{refused} of {count} refused")


def test_what_is_lost_is_said(run, tmp_path):
    copies = Copies(run, tmp_path / "unet")
    for change, error, words in (
        (lambda s: shutil.rmtree(s / "latitude"), FileError, "2 of its .* are missing: latitude/c"),
        (lambda s: (s / "mu" / "c" / "1" / "0" / "0").unlink(), FileError, "1 of its .* missing"),
        (lambda s: (s / "mu" / "c" / "9").write_text(""), FileError, "does not name: mu/c/9"),
        (lambda s: shutil.rmtree(s / "manifest"), FileError, "has no manifest"),
        (lambda s: (s / "zarr.json").unlink(), FileError, "holds no predictions"),
        (lambda s: _turn(s / "time" / "c" / "0"), DamagedFileError, "time/c/0: .* its checksum"),
    ):
        folder = copies.damaged(lambda store, _, change=change: change(store), None, STORE)
        with pytest.raises(error, match=words):
            open_forecast(folder)
        with pytest.raises(error, match=words):  # a report would do without its maps
            diagnose(folder, np.array([], "datetime64[ns]"))


def _turn(path):
    path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))


def test_a_damaged_chunk_is_told_by_all_who_read_it(run, tmp_path, capfd):
    folder = Copies(run, tmp_path / "unet").damaged(
        lambda store, _: _turn(store / "sigma" / "c" / "2" / "0" / "0"), None, STORE
    )
    other = shutil.copytree(run, tmp_path / "raw")
    for arguments in (
        ("score", folder),
        ("report", folder, "--out", tmp_path / "report"),
        ("export", folder / STORE, "--to", tmp_path / "a.nc"),
        ("score", other, "--reference", folder),
    ):
        command(*arguments, status=1)
        *_, last = capfd.readouterr().err.splitlines()  # others are of progress
        assert last.startswith("ens10: ")
        assert "sigma/c/2/0/0" in last
    assert not verify(folder / STORE).ok
    assert verify(run / STORE).ok


@pytest.mark.parametrize("name", ["latitude", "longitude", "time", "valid_time"])
def test_a_coordinate_that_is_missing_without_a_manifest(older, tmp_path, name, capfd):
    folder = Copies(older, tmp_path / "unet").damaged(
        lambda store, _: shutil.rmtree(store / name), None, STORE
    )
    command("score", folder, status=1)
    said = capfd.readouterr().err.splitlines()
    assert f"coordinate {name}" in said[-1]


def test_one_coordinate_of_a_store_of_others(run, tmp_path):
    """xarray's own stores name the coordinates of each variable."""
    content_of(run).drop_encoding().to_zarr(tmp_path / "a.zarr", consolidated=False)
    assert content_of(tmp_path / "a.zarr").equals(content_of(run))
    shutil.rmtree(tmp_path / "a.zarr" / "valid_time")
    with pytest.raises(MissingDataError, match="coordinate valid_time"):
        open_forecast(tmp_path / "a.zarr")


def test_scores_of_earlier_versions_have_no_checksum_and_are_read(run, tmp_path):
    states = read_states(run)
    states.to_netcdf(tmp_path / "scores.nc", engine="netcdf4")
    assert read_states(tmp_path).identical(states)
    with xr.open_dataset(run / "scores.nc", decode_timedelta=False) as plain:  # any reader's file
        assert plain.load().identical(states)


def test_run_names_and_targets_do_not_lead_out_of_a_report(run, tmp_path):
    runs = []
    for n, (name, target) in enumerate([("../../a", "../../t2m"), ("/etc/x", "/tmp/z500")]):
        runs.append(shutil.copytree(run, tmp_path / "in" / str(n)))
        known = read_mapping(run / "provenance.json") | {"name": name, "target": target}
        (runs[-1] / "provenance.json").write_text(json.dumps(known))
    command("report", *runs, "--out", tmp_path / "out" / "report")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report"]
    assert {p.name for p in (tmp_path / "out" / "report").iterdir()} == {
        "index.html", "t2m-48-h", "tmp-z500-48-h",
    }  # fmt: skip


_REPLACE = """
import os, signal, sys
from pathlib import Path
from ens10.durable import replace_folder
left = int(sys.argv[1])
def note(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(note)
replace_folder(Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.parametrize(
    "steps", [(1, 2, 3, 4, 9, 20), pytest.param(range(1, 200), marks=pytest.mark.slow)]
)
def test_a_kill_leaves_the_old_predictions_the_new_ones_or_none(run, store, tmp_path, steps):
    """The first renames and removals of a second prediction, and some of the others, or all."""
    new = make_run(tmp_path / "new", store, members) / STORE
    old, seen = content_of(run), []
    for step in steps:
        folder = shutil.copytree(run, tmp_path / str(step))
        partial = shutil.copytree(new, folder / f"{STORE}.partial")
        words = [sys.executable, "-c", _REPLACE, str(step), str(partial), str(folder / STORE)]
        status = subprocess.run(words, check=False).returncode
        if status != -signal.SIGKILL:
            break
        there = (folder / STORE).exists()
        kind = content_of(folder).identical(old) if there else None
        seen.append({True: "old", False: "new", None: "none"}[kind])
    print({kind: seen.count(kind) for kind in seen})
    assert seen[:3] == ["old", "none", "new"]
    assert set(seen[3:]) == {"new"}
    assert status == -signal.SIGKILL or len(seen) > 40  # of so many files


def test_predicting_removes_what_a_killed_prediction_left_and_nothing_else(tmp_path):
    for name in (STORE, "scores.nc", "config.yaml"):
        (tmp_path / f".{name}.0011aabb.tmp").mkdir()
        (tmp_path / f".{name}.0011aabb.tmp" / "file").write_text("half")
    clear_leftovers(tmp_path, STORE)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".scores.nc.0011aabb.tmp", ".config.yaml.0011aabb.tmp"}


def test_predictions_that_are_replaced_while_they_are_read_are_told(run, store, tmp_path):
    folder = shutil.copytree(run, tmp_path / "unet")
    forecast, _ = open_forecast(folder)
    new = make_run(tmp_path / "new", store, members) / STORE
    replace_folder(new, folder / STORE)
    with pytest.raises(FileError, match="was replaced while it was read"):
        forecast.load()


def test_attributes_that_netcdf_cannot_hold_are_one_error(run, tmp_path):
    states = read_states(run)
    states["crps_sum"].attrs = {0: 0}  # as a list in the place of a mapping becomes
    path, aside = tmp_path / "scores.nc", tmp_path / ".scores.nc.0011aabb.tmp"
    wanted = pytest.raises(FileError, match=r"scores\.nc: .* cannot hold its attributes")
    with wanted as told, writing_netcdf(path):
        save_states(states, aside)
    assert aside.name not in str(told.value)
