"""The heat experiment: scores by hand, layers that solve it, the real command line."""

import itertools
import json

import numpy as np
import pytest
import torch
import yaml
from realruns import compute_here

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.demo import config_path
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.studies.heat import HeatData, TrueMapGate
from ens10.experiments.studies.heat.__main__ import main
from ens10.experiments.studies.heat.module import HeatSums, close, match_regions
from ens10.experiments.studies.heat.tables import CONFIGS, map_figure, markdown, read_results

GRID = "[8,8]"
SMALL = ["--data.grid", GRID, "--data.runs", "6", "--data.held_out", "2", "--data.steps", "20"]
SMALL += ["--data.batch_size", "16"]
NETWORK = "--model.init_args.network.init_args"


def options(config, steps):
    """A small grid for a layer that is bound to one."""
    given = yaml.safe_load(config_path(config).read_text())["model"]["init_args"]["network"]
    found = [*SMALL, "--trainer.max_steps", str(steps)]
    if "gate" in given["init_args"]:
        found += [f"{NETWORK}.gate.init_args.grid", GRID]
    elif "grid" in given["init_args"]:
        found += [f"{NETWORK}.grid", GRID]
    return found


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setattr(running, "start_cell", compute_here)


def run(config, out, steps=2, seed=0, status=0):
    command = ["--config", config, "--seed", str(seed), "--out", str(out)]
    assert main([*command, *options(config, steps)]) == status
    return json.loads(Results(out).files(f"seed{seed}/{config}")["result.json"])


def test_the_shipped_configurations_are_those_of_the_table():
    shipped = {path.stem for path in config_path("raw").parent.glob("heat_*.yaml")}
    assert shipped == set(CONFIGS)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_runs(config, tmp_path):
    found = run(config, tmp_path)
    assert found["steps"] == 2
    assert 0 <= found["within"] < 0.9
    assert 1e-6 < found["mse"] < 0.1
    assert (found["agreement"] is not None) == config.startswith("heat_smoe")


def test_with_the_true_map_it_is_solved(tmp_path):
    found = run("heat_smoe_true_map", tmp_path, 350)
    assert found["within"] >= 0.99
    assert found["agreement"] == 1
    assert found["parameters"] == 27


def test_the_map_is_found(tmp_path):
    found = run("heat_smoe", tmp_path, 200, seed=1)
    assert found["agreement"] >= 0.95
    assert found["within"] > 0.9
    assert found["parameters"] == 27 + 3 * 64


def test_the_table_runs_what_is_missing(tmp_path, capsys):
    configs = ["--configs", "heat_conv", "heat_coordconv"]
    arguments = ["table", "--out", str(tmp_path), "--seeds", "0", "1", *configs, *SMALL]
    arguments += ["--trainer.max_steps", "2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count(": done in ") == 4
    results, place = Results(tmp_path), "seed1/heat_conv"
    changed = {**json.loads(results.files(place)["result.json"]), "within": 0.5}
    results.add(place, {"result.json": json.dumps(changed).encode()}, results.key(place))
    assert main(arguments) == 0
    assert capsys.readouterr().out.count(": complete (") == 4
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [config, str(seed)] for config in configs[1:] for seed in (0, 1)
    ]
    assert float(lines[2].split(",")[2]) == 0.5
    assert "/ 50.00 |" in (tmp_path / "table.md").read_text()


def test_the_same_seed_gives_the_same_scores(tmp_path):
    first, second = (run("heat_smoe_one_rival", tmp_path / name, 5) for name in "ab")
    assert {**first, "cpu_seconds": 0} == {**second, "cpu_seconds": 0}
    assert run("heat_smoe_one_rival", tmp_path / "a", 5, seed=1)["mse"] != first["mse"]


def test_shares_and_errors_by_hand():
    truth = torch.tensor([1.0, 1.0, 2.0, 0.0]).view(1, 1, 2, 2)
    forecast = torch.tensor([1.0099, 0.98, 2.019, 1e-9]).view(1, 1, 2, 2)
    assert close(forecast, truth).flatten().tolist() == [True, False, True, True]
    sums = HeatSums()
    sums.add(forecast, truth)
    sums.add(truth, truth)
    scores = sums.finish(np.array([[0, 0], [1, 1]]))
    assert scores["within"] == 7 / 8
    assert scores["within_by_region"] == [3 / 4, 1]
    assert scores["mse"] == pytest.approx((0.0099**2 + 0.02**2 + 0.019**2) / 8, rel=1e-3)


def test_maps_agree_up_to_the_names_of_experts():
    rng = np.random.default_rng(0)
    for _ in range(5):
        found, regions = rng.integers(0, 3, (2, 6, 6))
        best = max(
            (np.array(names)[found] == regions).mean() for names in itertools.permutations(range(3))
        )
        renamed, agreement = match_regions(found, regions)
        assert agreement == pytest.approx(best)
        assert (renamed == regions).mean() == pytest.approx(best)
    assert match_regions((regions + 1) % 3, regions)[1] == 1
    assert (
        match_regions(np.zeros((6, 6), int), regions)[1] == np.bincount(regions.ravel()).max() / 36
    )


def test_pairs_are_successive_fields_and_all_come_once():
    data = HeatData((6, 7), runs=3, held_out=1, steps=5, batch_size=4, seed=2)
    runs = data.world.runs(3, 5)
    batches = list(data.pairs("train"))
    assert [len(x) for x, _ in batches] == [4, 4, 4, 3]
    place = {runs[r, s].tobytes(): (r, s) for r in range(3) for s in range(6)}
    seen = []
    for now, later in batches:
        for x, y in zip(now, later, strict=True):
            run_, step = place[x.numpy().tobytes()]
            assert place[y.numpy().tobytes()] == (run_, step + 1)
            seen.append((run_, step))
    assert sorted(seen) == [(r, s) for r in range(3) for s in range(5)]
    assert seen != sorted(seen)
    again = [x for x, _ in data.pairs("train")]
    assert torch.equal(again[0], batches[0][0])
    assert not any(torch.equal(now, batches[0][0][:1]) for now, _ in data.held_out())


def result(config, seed, routing):
    rows = ["".join(map(str, row)) for row in routing.tolist()]
    return {"config": config, "seed": seed, "within": 0.5, "routing": rows}


def test_the_figure_marks_points_of_another_expert():
    regions = HeatData((8, 8), seed=4).world.regions
    swapped = (regions + 1) % 3
    swapped[0, :2] = (swapped[0, :2] + 1) % 3
    figure = map_figure([result("heat_smoe", 4, swapped), result("heat_conv", 4, regions)], 4)
    hidden, found = (axes.images[0].get_array() for axes in figure.axes)
    np.testing.assert_array_equal(hidden, regions)
    assert (found == 3).sum() == 2
    assert (found[0, :2] == 3).all()
    assert "96.9 %" in figure.axes[1].get_title()
    with pytest.raises(MissingDataError, match="seed 1"):
        map_figure([result("heat_smoe", 4, regions)], 1)


def test_one_clear_error(tmp_path, capsys):
    with pytest.raises(MissingDataError, match="a result"):
        read_results(tmp_path)
    file = tmp_path / "seed0" / "heat_conv" / "result.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(FileError, match="no result"):
        read_results(tmp_path)
    with pytest.raises(ArgumentError, match="that of the data"):
        TrueMapGate(3, (8, 8)).set_map(np.zeros((8, 9), int))
    with pytest.raises(ArgumentError, match="none may be 0"):
        HeatData(runs=0)
    status = main(["--config", "heat_smoe", "--out", str(tmp_path / "a"), *SMALL])
    assert status == 1
    assert "Build the gate for the grid" in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(SystemExit):
        main(["--config", "heat_conv", "--out", str(tmp_path / "b"), "--data.run", "3"])
    assert "did you mean" in capsys.readouterr().err


def test_markdown_shows_each_seed_and_the_mean():
    cell = {"config": "heat_conv", "mse": 2e-5, "agreement": None, "steps": 1000}
    cells = [
        {**cell, "seed": n, "within": w, "parameters": 10, "cpu_seconds": 3.0}
        for n, w in enumerate((0.5, 0.75))
    ]
    row = markdown(cells).splitlines()[2]
    assert row == (
        "| `heat_conv` | convolution | 50.00 / 75.00 | 62.50 | 2.0e-05 | – | 1,000 | 10 | 3 |"
    )
