"""The study of experts: its command end to end, permuted gates, and the arithmetic of contrasts."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from realruns import compute_here

from ens10.errors import UnknownNameError
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.studies.experts import __main__ as experts
from ens10.experiments.studies.experts import cells, tables
from ens10.experiments.studies.experts.forms import Form, form_of, walk
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.models.layers import ExpertConvolution
from ens10.models.layers.expert_layers import Experts

KEPT = Path(__file__).parents[2] / "experiments" / "results" / "experts" / "displaced"


def test_arms_are_those_of_the_design():
    assert [len(cells.arms_of(target)) for target in ("t2m", "t850", "tp")] == [16, 8, 4]
    known = {*cells.arms_of("t2m")}
    assert all(set(pair) <= known for pair in cells.CONTENT["contrasts"].values())
    options = cells.options_of("permuted-bare-raw")
    assert options["frozen"]
    assert (options["embedding"], options["emos"]) == (0, False)
    assert options["experts"] == cells.options_of("experts-bare-raw")["experts"]


def scores_of(raws, first, second):
    """Results of two arms, without variance over dates; `raws` by seed."""
    found = {("raw", n): {"crps": [raw] * 40} for n, raw in enumerate(raws)}
    found |= {("a", n): {"crps": [value] * 40} for n, value in enumerate(first)}
    return found | {("b", n): {"crps": [value] * 40} for n, value in enumerate(second)}


def test_on_worlds_the_interval_is_the_paired_one():
    scores = scores_of([1.0, 2.0, 4.0], [0.89, 1.74, 3.52], [0.90, 1.80, 3.60])
    found = tables.contrast(scores, "a", "b", [0, 1, 2])
    half = 4.302653 * 1.0 / np.sqrt(3)  # Student's t of two degrees, deviation 1 %
    assert found.by_seed == pytest.approx([1.0, 3.0, 2.0])
    assert (found.value, found.lower, found.upper) == pytest.approx(
        (2.0, 2 - half, 2 + half), rel=1e-6
    )


def test_on_trainings_their_variance_is_added_to_that_of_dates():
    scores = scores_of([1.0], [0.89, 0.90, 0.91], [0.91, 0.92, 0.93])
    scores = {key: result for key, result in scores.items() if key not in (("raw", 1), ("raw", 2))}
    found = tables.contrast(scores, "a", "b", [0, 1, 2])
    half = 1.96 * 100 * np.sqrt(2 * 0.01**2 / 3)
    assert found.value == pytest.approx(2.0)
    assert (found.upper - found.lower) / 2 == pytest.approx(half, rel=1e-3)


def test_the_factor_of_the_smallest_validation_loss_is_chosen():
    tries = [
        {"variant": arm, "seed": 0, "target": "t2m", "factor": factor, "val": val}
        for arm, vals in (("plain-embedded-emos", (3, 1, 2)), ("experts-embedded-emos", (2, 2, 1)))
        for factor, val in zip((0.3, 1.0, 3.0), vals, strict=True)
    ]
    other = {**tries[0], "variant": "plain-bare-raw", "val": 0}
    assert tables.chosen_factors([*tries, other]) == {"plain": 1.0, "experts": 3.0}


def test_permuted_gates_are_frozen_and_keep_the_experts_of_a_point_together():
    options = Experts(filters=2, weighted=True, routing_loss=False)
    layer = ExpertConvolution(2, 4, (3, 4), options)
    trained = [one.gate.weight.detach().numpy().copy() for one in cells.gates_of(layer)]
    cells.set_permuted_gates(layer, trained, 0)
    for before, one in zip(trained, cells.gates_of(layer), strict=True):
        assert not one.gate.weight.requires_grad
        points = [x.reshape(len(x), -1).T.tolist() for x in (before, one.gate.weight.numpy())]
        assert points[0] != points[1]
        assert sorted(points[0]) == sorted(points[1])


def test_a_form_sets_levels_filters_and_experts(tmp_path):
    data = SimpleNamespace(channels=["a", "b"], grid=(8, 16))
    arm = tables.arm_of(Form((1,), 4.0, 16), "t2m")
    cell = cells.ExpertCell(arm, 0, tmp_path, tmp_path, "t2m", WorldSize())
    layers = cells.gates_of(cell.model(data))
    # level 1 has 32 channels: two experts of 16 filters at a point, eight in all; once each way
    assert [one.gate.weight.shape for one in layers] == [(8, 4, 8)] * 2
    every = tables.arm_of(Form((0, 1, 2), 2.0, 8), "t2m")
    ours, arms = (
        replace(cell, variant=name).model(data).network.state_dict()
        for name in (every, "experts-embedded-emos")
    )
    assert all(torch.equal(ours[name], arms[name]) for name in arms)
    assert len(ours) == len(arms)


def test_a_form_is_read_from_its_name():
    form = Form((0, 2), 1.0, 4)
    assert form_of(form.name) == form
    assert form_of("experts") is None
    with pytest.raises(UnknownNameError, match=r"form\.0"):
        form_of("form.0")


def test_the_search_varies_one_part_at_a_time_from_the_best():
    start, parts = Form((0,), 2.0, 8), {"levels": [[0], [1]], "filters": [4, 8]}
    steps, best = walk(start, parts, {})
    assert (steps, best) == ([[start, Form((1,), 2.0, 8)]], None)
    losses = {start: 2.0, Form((1,), 2.0, 8): 1.0, Form((0,), 2.0, 4): 0.1}
    steps, best = walk(start, parts, losses)
    assert (steps[1], best) == ([Form((1,), 2.0, 4), Form((1,), 2.0, 8)], None)
    steps, best = walk(start, parts, losses | {Form((1,), 2.0, 4): 1.5})
    assert best == Form((1,), 2.0, 8)


def test_a_search_ends_where_another_process_computes(tmp_path, monkeypatch):
    calls = []

    def compute(cells, _):
        calls.append([cell.name for cell in cells])
        assert len(calls) < 3  # it would go on for ever
        return running.Outcome(missing={calls[-1][0]: "another process computes it"})

    def cells_of(arms, seeds):
        return [SimpleNamespace(name=f"{arm} {seed}") for arm in arms for seed in seeds]

    monkeypatch.setattr(experts, "compute", compute)
    monkeypatch.setattr(experts, "_read", lambda *_: ({}, []))
    outcome = experts._search(SimpleNamespace(out=tmp_path, seeds=1), "t2m", cells_of)
    assert (len(calls), outcome.failed) == (1, False)


@pytest.mark.parametrize("target", ["t850", "tp"])
def test_network_and_head_of_each_arm_match(target, tmp_path):
    data = SimpleNamespace(channels=["a", "b"], grid=(8, 16))
    for arm in cells.arms_of(target):
        cell = cells.ExpertCell(arm, 0, tmp_path, tmp_path, target, WorldSize())
        assert cell.model(data).network.out_channels == (3 if target == "tp" else 2)


def test_kept_results_have_the_keys_of_these_arms(tmp_path):
    size = WorldSize(world="displaced", steps=(48,))
    results = Results(KEPT)
    kept = 0
    for seed, arm in product(range(3), [cells.RAW, cells.OPTIMUM, *cells.arms_of("t2m")]):
        factors = (1.0,) if arm in (cells.RAW, cells.OPTIMUM) else (0.3, 1.0, 3.0)
        for factor in factors:
            cell = cells.ExpertCell(arm, seed, tmp_path, KEPT, "t2m", size, factor=factor)
            if results.key(cell.place) is not None:
                kept += 1
                assert cell.changes() == []
    assert kept == 46 + 4 + 6  # arms, tries that were not chosen, raw ensembles and optima


def test_the_store_is_part_of_the_key(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "checksum", lambda path: path.name)
    options = {"work": tmp_path, "out": tmp_path, "target": "t2m", "size": WorldSize()}
    keys = [
        cells.ExpertCell("plain-bare-raw", 0, **options, store=store and tmp_path / store).key
        for store in ("a", "b", None)
    ]
    assert [key["data"] for key in keys] == ["a", "b", repr(WorldSize())]


@pytest.mark.slow
def test_the_command_trains_scores_and_compares(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "start_cell", compute_here)
    out = tmp_path / "out"
    options = ["--grid", "9x16", "--years", "8", "--dates", "4", "--epochs", "1", "--seeds", "2"]
    arms = ["--targets", "t850", "--arms", "embedded-emos", "--tries", "1", "3"]
    command = [str(tmp_path / "work"), "--out", str(out), *options, *arms]
    assert experts.main(command) == 0
    text = (out / "contrasts-t850.md").read_text()
    assert "experts beside an embedding" in text
    with Results(out).temporary_folder(None) as folder:
        results = read_json_cells(folder)
    trained = [r for r in results.values() if "device" in r]
    assert {r["device"] for r in trained} == {"CPU"}
    assert len([r for r in trained if r["variant"] == "permuted-embedded-emos"]) == 2
    assert all(len(r["crps"]) == 8 for r in results.values())
    raw, optimum = (np.mean(results[f"t850/seed0/{name}"]["crps"]) for name in ("raw", "optimum"))
    assert optimum < raw
    assert not (out / "search-t850.md").exists()
    monkeypatch.setitem(
        cells.CONTENT["search"], "parts", {"levels": [[0], [2]], "filters": [8, 16]}
    )
    assert experts.main([*command, "--search"]) == 0
    assert (out / "search-t850.md").read_text().count("yes") == 2
    assert "against no experts" in (out / "best-t850.md").read_text()
    (out / "contrasts-t850.md").unlink()
    assert experts.main([*command, "--tables"]) == 0
    assert (out / "contrasts-t850.md").read_text() == text
