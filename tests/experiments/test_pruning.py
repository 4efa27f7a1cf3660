"""The study of pruning: its masks, the table's arithmetic, and its command on a smaller world."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

from ens10.experiments.runner.results import Results
from ens10.experiments.studies import pruning, small_unet
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.models.networks import UNet

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "pruning"


def network(variant):
    torch.manual_seed(0)
    made = UNet(6)
    before = [module.weight.detach().clone() for module, _ in pruning.prunable(made)]
    pruning.prune_network(made, variant)
    return before, [module.weight.detach() for module, _ in pruning.prunable(made)]


def test_two_of_each_four_input_channels_are_kept_and_these_are_the_largest():
    before, after = network(pruning.PATTERN)
    for whole, masked in zip(before, after, strict=True):
        groups = whole.movedim(1, -1).reshape(-1, 4)
        kept = masked.movedim(1, -1).reshape(-1, 4)
        assert ((kept != 0).sum(1) == 2).all()
        assert (kept.abs().sum(1) == groups.abs().sort(1).values[:, 2:].sum(1)).all()


@pytest.mark.parametrize("variant", [v for v in pruning.KEPT if v != pruning.PATTERN])
def test_the_largest_weights_of_all_layers_are_kept(variant):
    before, after = (torch.cat([w.flatten() for w in one]) for one in network(variant))
    kept = after != 0
    assert kept.sum() == round(pruning.KEPT[variant] * len(kept))
    assert (after[kept] == before[kept]).all()
    if not kept.all():
        assert before[kept].abs().min() >= before[~kept].abs().max()


def test_masked_weights_stay_zero_in_training():
    torch.manual_seed(0)
    made = UNet(6)
    pruning.prune_network(made, "10")
    masks = [module.weight_mask.clone() for module, _ in pruning.prunable(made)]
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.1)
    made(torch.randn(2, 6, 8, 16)).square().sum().backward()
    optimizer.step()
    made(torch.randn(2, 6, 8, 16))  # the weight is computed before each call
    for (module, name), mask in zip(pruning.prunable(made), masks, strict=True):
        prune.remove(module, name)
        assert ((module.weight != 0) == (mask == 1)).all()


def test_changes_are_those_of_each_seed():
    results = [
        {"variant": v, "seed": n, "crps": c, "cost": 2.0}
        for v, n, c in (("b", 1, 2.1), ("a", 1, 2.0), ("a", 0, 1.0), ("b", 0, 0.9))
    ]
    files = small_unet.tables_of(results, {"a": "A", "b": "B"}, {"cost": "price"})
    assert "| B | 1.5 | -2.50 (-10.00 to +5.00) | 2 |" in " ".join(files["table.md"].split())
    rows = list(csv.DictReader(files["table.csv"].splitlines()))
    assert [(r["variant"], r["seed"]) for r in rows] == [
        ("b", "1"),
        ("a", "1"),
        ("a", "0"),
        ("b", "0"),
    ]


def test_the_kept_tables_are_those_of_the_cells():
    with Results(RESULTS).temporary_folder() as folder:
        results = read_json_cells(folder)
    files = small_unet.tables_of(results.values(), pruning.LABELS, pruning.COLUMNS)
    assert {name: (RESULTS / name).read_text() for name in files} == files


@pytest.mark.slow
def test_the_command_on_a_smaller_world(tmp_path, monkeypatch):
    for name, value in {"grid": "8x16", "years": range(2000, 2006), "dates": 4}.items():
        monkeypatch.setitem(small_unet.WORLD, name, value)
    for name in ("EPOCHS", "FINE_EPOCHS"):
        monkeypatch.setattr(pruning, name, 1)
    out = tmp_path / "out"
    command = [str(tmp_path / "work"), "--out", str(out), "--seeds", "1", "--variants"]
    assert pruning.main([*command, "all", "10"]) == 0
    rows = {r["variant"]: r for r in csv.DictReader((out / "table.csv").read_text().splitlines())}
    assert rows["all"]["kept"] == "1"
    np.testing.assert_allclose(float(rows["10"]["kept"]), 0.1, atol=1e-3)
    monkeypatch.delattr(pruning, "train_briefly")  # complete: nothing is trained again
    assert pruning.main([*command, "all", "10"]) == 0
