"""A whole ablation on a tiny world, a training used on other data, and data of fewer points."""

import shutil

import numpy as np
import pytest
import torch
import yaml
from realruns import compute_here, kept_run

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.experiments.runner import running
from ens10.experiments.runs import provenance
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.studies.ablation import __main__ as command
from ens10.experiments.studies.ablation.cells import (
    StudySettings,
    find_cell,
    point_parameters,
    thinned_store,
)
from ens10.experiments.studies.ablation.spec import load_ablation
from ens10.experiments.training.run import run_stage
from ens10.store import open_store
from ens10.synthetic import World

OWN = """
question: Does all of it work?
base: mlp
common: {trainer.max_epochs: 1, trainer.limit_train_batches: 3}
world: {grid: 9x16, years: 5, dates: 3, steps: [48], kinds: [sfc]}
variants:
  five: {data.ensemble: 5}
  five_used_with_all: {trained: five, data.ensemble: null}
  coarse: {thin: 2}
  local: {config: emos_local}
  local_coarse: {config: emos_local, thin: 2, against: local}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The arguments of a call, its ablation and the place of its cells; all is done but one."""
    top = tmp_path_factory.mktemp("ablation")
    source = top / "own.yaml"
    source.write_text(OWN)
    arguments = [str(source), str(top / "work"), "--out", str(top / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "start_cell", compute_here)
        assert command.main(arguments) == 1
    ablation = load_ablation(str(source))
    place = StudySettings(top / "work" / ablation.size().folder, top / "out")
    return arguments, ablation, place


def cell(done, name):
    return find_cell(done[1], name, 0, done[2])


@pytest.mark.slow
def test_the_table_tells_what_there_is_and_why_one_is_not(done):
    text = (done[2].out / "own" / "table.md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["mlp", "five", "five\\_used\\_with\\_all", "coarse", "local"]
    assert "9x16 points, dates: 6 train, 3 val, 6 test; 1 seed" in text
    (why,) = (line for line in text.splitlines() if "Missing" in line)
    assert "local_coarse, seed 0" in why
    assert (
        "method.bias and 4 others have a value for each of the 5 x 8 points of the training" in why
    )
    assert "9 x 16 points of the data" in why
    for name in ("five", "coarse"):
        made = cell(done, name)
        assert made.status() == "complete"
        known = kept_run(made).provenance
        assert (known["name"], known["dates"]["test"]) == (name, 6)


@pytest.mark.slow
def test_what_is_complete_is_not_done_again(done, monkeypatch, capsys):
    tried = []
    monkeypatch.setattr(running, "start_cell", lambda one, *_: tried.append(one.model))
    one, other = cell(done, "local"), cell(done, "local_coarse")
    archive = one.results.path.read_bytes()
    one.results.add(other.place, one.results.files(one.place), one.key)
    assert command.main(done[0]) == 0
    assert tried == ["local_coarse"]
    assert capsys.readouterr().out.count(": complete (") == 5
    one.results.path.write_bytes(archive)


@pytest.mark.slow
def test_the_same_training_is_used_with_all_members(done):
    five, used = cell(done, "five"), cell(done, "five_used_with_all")
    ours, theirs = ((c.run / "checkpoints" / "best.ckpt").read_bytes() for c in (five, used))
    assert ours == theirs
    config = yaml.safe_load((used.run / "config.yaml").read_text())
    assert config["data"]["ensemble"] is None
    # the same by hand
    run = used.run.with_name("by_hand")
    shutil.copytree(five.run, run, ignore=shutil.ignore_patterns("predictions.zarr"))
    run_stage("predict", ["--run", str(run), "--data.ensemble", "null", "--quiet"])
    mine, others, few = (open_predictions(r)[0]["mu"] for r in (run, used.run, five.run))
    np.testing.assert_array_equal(mine, others)
    assert float(abs(mine - few).max()) > 0.01


@pytest.mark.slow
def test_a_coarse_training_gives_the_same_where_the_points_are_the_same(done):
    """A network of single points sees no neighbours, so only the normalisation could differ."""
    used = cell(done, "coarse")
    training = used.training
    run_stage("predict", ["--run", str(training.run), "--quiet"])
    fine, coarse = (open_predictions(run)[0]["mu"] for run in (used.run, training.run))
    assert (fine.sizes["latitude"], coarse.sizes["latitude"]) == (9, 5)
    few = fine.sel(latitude=coarse["latitude"], longitude=coarse["longitude"])
    np.testing.assert_allclose(few, coarse, atol=0.05)
    assert float(abs(few - coarse.roll(longitude=1, roll_coords=False)).max()) > 1
    known = provenance.read_provenance(used.run)
    assert known["data"]["store"] == "store.zarr"
    assert known["trained_on"]["store"].startswith("thin2-")
    held = torch.load(used.run / "checkpoints" / "best.ckpt", weights_only=True)
    assert held["EnsembleDataModule"]["mean"].shape[1:] == (9, 16)


@pytest.fixture(scope="module")
def fine(tmp_path_factory):
    top = tmp_path_factory.mktemp("fine")
    world = World("7x16", range(2000, 2002), 2, seed=0, steps=(48,))
    world.write(top / "world")
    return prepare(top / "world", top / "store.zarr", truth=top / "world" / "truth")


def test_a_thinned_store_has_each_second_point_as_it_is(fine, tmp_path):
    made = thinned_store(fine, 2, tmp_path)
    few, whole = open_store(made, "sfc")["t2m"], open_store(fine, "sfc")["t2m"]
    assert few.shape[-2:] == (4, 8)
    np.testing.assert_array_equal(few, whole[..., ::2, ::2])
    truth = open_store(fine, "truth")["t2m"]
    np.testing.assert_array_equal(open_store(made, "truth")["t2m"], truth[..., ::2, ::2])
    written = (made / "zarr.json").stat().st_mtime_ns
    assert thinned_store(fine, 2, tmp_path) == made
    assert (made / "zarr.json").stat().st_mtime_ns == written
    assert thinned_store(fine, 1, tmp_path) == fine


def test_a_thinned_store_keeps_truth_of_precipitation(tmp_path):
    names = ["t2m", "u10", "v10", "tp"]
    world = World("9x16", range(2000, 2002), 2, names, kind="displaced", steps=(48,))
    world.write(tmp_path / "world")
    store = prepare(tmp_path / "world", tmp_path / "store.zarr", truth=tmp_path / "world" / "truth")
    truth = open_store(store, "truth")["tp"]
    made = open_store(thinned_store(store, 2, tmp_path), "truth")["tp"]
    np.testing.assert_array_equal(made, truth[..., ::2, ::2])


def test_a_grid_that_does_not_divide_is_refused(fine, tmp_path):
    with pytest.raises(ArgumentError, match="4 does not divide the 7 rows"):
        thinned_store(fine, 4, tmp_path)
    with pytest.raises(ArgumentError, match="3 does not divide the 16 columns"):
        thinned_store(fine, 3, tmp_path)
    assert not list(tmp_path.glob("*.zarr"))


def test_what_is_bound_to_a_grid():
    shapes = {"conv": (8, 4, 3, 3), "map": (2, 5, 8), "rows": (3, 5, 1), "columns": (1, 8)}
    shapes |= {"levels": (2, 3, 4), "one": (8,)}
    assert point_parameters((5, 8), shapes) == ["map", "rows", "columns"]
