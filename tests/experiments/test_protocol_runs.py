"""A protocol of one's own wherever the name of one does: runs, cells, tables."""

import json

import numpy as np
import pytest
import xarray as xr
import yaml
from realruns import command, finish, fit

from ens10.errors import UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.reproduce.command import MODELS, Request
from ens10.experiments.runner import trainings
from ens10.experiments.runner.key import differences
from ens10.experiments.runner.tasks import Task
from ens10.experiments.runner.trainings import find_cells, score_extremes
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.score import _reports_fair_crps
from ens10.protocol import Protocol, content_of, protocol_of
from ens10.splits import split_dates
from ens10.store import open_store

MINE = "test: [2005]\nval: [2004]\nweighting: cos\nfair_crps: false\nefi: {levels: 11, window: 3}\n"


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp("protocols") / "mine.yaml"
    path.write_text(MINE)
    return path


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    """A run whose protocol's file has changed since."""
    folder = tmp_path_factory.mktemp("own")
    path = folder / "mine.yaml"
    path.write_text(MINE)
    made = fit("raw", store, folder / "raw", "--data.protocol", path)
    path.write_text("test: 1\n")
    return finish(made)


def test_a_run_keeps_the_content_of_its_protocol(run, mine):
    rules = protocol_of(mine)
    config = yaml.safe_load((run / "config.yaml").read_text())
    known = provenance.read_provenance(run)
    assert protocol_of(config["data"]["protocol"]) == rules
    assert provenance.rules_of(known) == rules
    assert (known["protocol"], known["weights"], known["years"]["test"]) == ("mine", "cos", [2005])


def test_prediction_and_scores_go_by_it(run):
    states = xr.load_dataset(run / "scores.nc", engine="netcdf4")
    assert states.attrs["weights"] == "cos"
    assert "crps_sum" in states
    assert "crps_fair_sum" not in states
    assert set(states["valid_time"].dt.year.to_numpy().tolist()) == {2005}


def test_shares_of_the_dates_on_the_command_line(store, tmp_path, capsys):
    shares = ["--data.protocol.test", "0.3", "--data.protocol.val", "0.2"]
    run = finish(fit("raw", store, tmp_path / "raw", *shares))
    known = provenance.read_provenance(run)
    rules = provenance.rules_of(known)
    assert (rules.test, rules.val, rules.train) == (0.3, 0.2, None)
    truth = open_store(store, "truth")
    splits = split_dates(rules, truth["time"].to_numpy(), truth["valid_time"].to_numpy()[:, 0])
    assert known["dates"] == {name: len(index) for name, index in splits.index.items()}
    assert known["dates_in_gap"] == len(splits.gap)
    scored = xr.load_dataset(run / "scores.nc", engine="netcdf4")["time"].to_numpy()
    np.testing.assert_array_equal(scored, truth["time"].to_numpy()[splits.index["test"]])
    config = ["--config", config_path("raw"), "--data.store", store, "--run", tmp_path / "other"]
    command("fit", *config, "--quiet", *shares[:2], status=1)
    assert "test is given in shares (0.3), val is given in years (1)" in capsys.readouterr().err


def test_no_path_is_kept_even_of_a_file_that_says_nothing(store, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("# as clean\n")
    run = fit("raw", store, tmp_path / "raw", "--data.protocol", path)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["protocol"] == content_of(Protocol("own"))


def test_the_name_alone_is_kept_of_those_of_the_package(runs):
    config = yaml.safe_load((runs["raw"] / "config.yaml").read_text())
    assert config["data"]["protocol"] == "clean"
    known = provenance.read_provenance(runs["raw"])
    assert known["rules"] == content_of(protocol_of("clean"))
    assert "crps_fair" in (runs["raw"] / "scores.csv").read_text()


def test_the_protocol_of_older_runs_is_known_by_its_name():
    assert provenance.rules_of({"protocol": "paper"}) == protocol_of("paper")
    assert provenance.rules_of({}) == protocol_of("clean")
    kept = json.loads(json.dumps(content_of(Protocol("mine", masks=False))))
    assert provenance.rules_of({"protocol": "mine", "rules": kept}) == Protocol("mine", masks=False)
    with pytest.raises(UnknownNameError):
        provenance.rules_of({"protocol": "mine"})
    assert _reports_fair_crps({"protocol": "mine"})  # such a run can still be scored
    assert not _reports_fair_crps({"protocol": "paper"})


def test_a_cell_is_of_the_content_of_its_protocol(store, mine, tmp_path):
    configs, path = config_path("raw").parent, tmp_path / "mine.yaml"

    def cell():
        task = Task(str(path), "t2m", 10)
        return find_cells(["raw"], [0], tmp_path, tmp_path, configs, task=task, data=store)[0]

    path.write_text(mine.read_text())
    first = cell()
    assert first.place == "mine-t2m-10/seed0/raw"
    assert first.name == "raw, seed 0 (mine, t2m, 10 members)"
    assert f"--data.protocol={path}" in first.overrides
    path.write_text(mine.read_text() + "# a comment\n")
    assert differences(first.key, cell().key) == []
    moved = tmp_path / "elsewhere" / "mine.yaml"
    moved.parent.mkdir()
    path = path.rename(moved)
    assert differences(first.key, cell().key) == []
    path.write_text(mine.read_text() + "unbiased: false\n")
    assert differences(first.key, cell().key) == ["config"]


def test_the_index_of_extremes_is_that_of_the_protocol(store, run, monkeypatch):
    asked = {}

    def scored(forecast, truth, scores, **given):
        asked.update(given)
        return xr.Dataset()

    class Cell:
        model = "raw"

    Cell.run, Cell.store = run, store
    monkeypatch.setattr(trainings, "score_states", scored)
    score_extremes(Cell)
    assert asked["climate"].sizes["quantile"] == 11
    assert asked["climate"].attrs["window"] == 3
    assert (asked["efi_method"], asked["weights"]) == ("exact", "cos")


def test_tables_of_a_protocol_of_ones_own(mine, tmp_path):
    mine = mine.rename(mine.with_name("other.yaml"))
    mine.write_text("members: [4]\n")
    request = Request(tmp_path, tmp_path, protocol=str(mine), members=())
    assert request.rows == MODELS["clean"]
    assert request.tasks == [Task(str(mine), "t2m", 4)]
    assert request.rules.name == "other"


def test_a_wrong_file_is_told_in_one_line(store, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("tset: 2\n")
    config = ["--config", config_path("raw"), "--data.store", store, "--run", tmp_path / "run"]
    command("fit", *config, "--quiet", "--data.protocol", path, status=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert "mine.yaml: 'tset' is not known; did you mean 'test'?" in line
    assert not (tmp_path / "run").exists()
    command("reproduce", "--out", tmp_path / "o", "--protocol", path, status=1)
    assert "did you mean 'test'?" in capsys.readouterr().err
