"""Forecasts by members: scores at several sizes, expected and measured."""

import csv
from itertools import combinations

import numpy as np
import pytest
from fakeruns import write_world

from ens10.cli import main
from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.reporting.report import write_report
from ens10.experiments.runner import sizes
from ens10.experiments.runner.sizes import score_sizes
from ens10.experiments.scoring.members import columns_of_members, expected_crps, in_words
from ens10.experiments.scoring.run_results import read_run, read_runs
from ens10.experiments.scoring.tables import score_table
from ens10.metrics import crps_ensemble


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_expected_crps_is_the_mean_over_all_choices(size):
    rng = np.random.default_rng(size)
    members, y = rng.gamma(2.0, size=(5, 7)), rng.gamma(2.0, size=7)

    def crps(x, estimator):
        return crps_ensemble(x, y, estimator=estimator, member_dim=0)

    plain, fair = crps(members, "plain"), crps(members, "fair")
    chosen = [crps(members[list(c)], "plain") for c in combinations(range(5), size)]
    np.testing.assert_allclose(expected_crps(plain, fair, 5, size), np.mean(chosen, 0), rtol=1e-12)
    np.testing.assert_allclose(expected_crps(plain, fair, 5, np.inf), fair)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("runs"))


def test_the_table_is_of_forecasts_by_members_alone(folders):
    runs = read_runs(list(folders.values()))
    rows = score_table(runs)
    by_name = {run.name: run for run in runs}
    made = {c.heading: c.cells for c in columns_of_members([by_name[r.model] for r in rows], rows)}
    assert made["Model"] == ("raw",)
    raw = next(row for row in rows if row.model == "raw")
    assert made["5 of its members (K)"] == (f"{raw.crps.value:.4f}",)  # it has 5
    assert made["10 of its members (K)"] == ("–",)
    assert float(made["2 of its members (K)"][0]) > raw.crps.value > float(made["Fair (K)"][0])
    assert "Given 5 members (K)" not in made
    assert "was not measured" in in_words(runs)[1]


def test_the_page_shows_it(folders, tmp_path):
    (folders["raw"] / "sizes.csv").write_text("members,crps,crps_fair\n5,0.4321,0.4\n")
    try:
        text = write_report(list(folders.values()), tmp_path / "b").read_text()
    finally:
        (folders["raw"] / "sizes.csv").unlink()
    assert "Ensembles</h2>" in text
    assert "5 of its members" in text
    assert "Given 5 members" in text
    assert "0.4321" in text
    only = write_report([folders["emos"], folders["unet"]], tmp_path / "c").read_text()
    assert "Ensembles</h2>" not in only


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    """A transformer over members and a network of fields, both trained a little."""
    folder = tmp_path_factory.mktemp("sizes")
    for name in ("transformer", "mlp"):
        options = ["--config", config_path(name), "--data.store", store]
        options += ["--trainer.max_epochs", 1, "--run", folder / name, "--quiet"]
        assert main(["fit", *(str(option) for option in options)]) == 0
    return folder


def test_a_model_is_given_fewer_members(trained):
    path = score_sizes(trained / "transformer", (3, 10))
    with path.open() as file:
        crps = {int(line["members"]): float(line["crps"]) for line in csv.DictReader(file)}
    for command in ("predict", "score"):
        options = [] if command == "score" else ["--run"]
        assert main([command, *options, str(trained / "transformer")]) == 0
    states = read_run(trained / "transformer").states
    whole = float(states["crps_sum"].sum() / states["crps_weight"].sum())
    assert crps[10] == pytest.approx(whole, rel=1e-6)
    assert crps[3] > crps[10]
    assert not (trained / "transformer" / "sizes").exists()
    assert read_run(trained / "transformer").sizes == crps


def test_a_network_of_fields_is_refused(trained):
    with pytest.raises(ArgumentError, match="mlp does not take members"):
        score_sizes(trained / "mlp")


def test_the_command_takes_the_usual_sizes_that_the_data_have(trained, monkeypatch):
    monkeypatch.setattr(sizes, "members_of", lambda *_: 5)
    run = trained / "transformer"
    assert sizes.main([str(run)]) == 0
    with (run / "sizes.csv").open() as file:
        assert [line["members"] for line in csv.DictReader(file)] == ["2", "5"]
