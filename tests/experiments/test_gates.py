"""The study of gates: its command end to end, the table's arithmetic, and what is committed."""

from pathlib import Path

import numpy as np
import pytest
from realruns import compute_here

from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.studies.gates import __main__ as gates
from ens10.experiments.studies.gates import cells
from ens10.experiments.studies.gates.tables import crps_gain, read_results, table

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "gates"


def result(variant, crps, **others):
    usual = {"kind": "w", "seed": 0, "map": None, "agreement": None, "epoch": 2, "epochs": 3}
    return {**usual, "variant": variant, "crps": crps, **others}


def test_gains_are_paired_and_shares_are_of_the_oracles():
    rng = np.random.default_rng(0)
    base = 1 + 0.3 * rng.random(80)
    own = [
        result("unet", base.tolist(), epoch=3),
        result("oracle", (base - 0.2).tolist(), agreement=1.0),
        result("regions", (base - 0.15).tolist(), agreement=0.9),
        result("wrong", (base + 0.05).tolist(), agreement=0.3),
    ]
    rows = {row[2]: row[3:] for row in table(own)}
    assert rows["regions found in the training data"][1:] == [
        *("+0.1500", "+0.1500 to +0.1500", "75 %", "90 %", "2")
    ]
    assert rows["wrong map"][1:4] == ["-0.0500", "-0.0500 to -0.0500", "-25 %"]
    assert rows["U-Net, no experts"] == [f"{base.mean():.4f}", "–", "–", "–", "–", "3*"]
    noisy = result("regions", (base - 0.01 + 0.2 * rng.standard_normal(80)).tolist())
    gain = crps_gain(noisy, own[0])
    assert gain.lower < gain.value < gain.upper


@pytest.mark.slow
def test_the_command_trains_and_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "start_cell", compute_here)
    monkeypatch.setattr(cells, "EPOCHS", 1)
    out = tmp_path / "out"
    options = ["--grid", "9x16", "--years", "8", "--dates", "4", "--seeds", "1", "--variants"]
    assert gates.main([str(tmp_path / "work"), "--out", str(out), *options, "unet", "regions"]) == 0
    text = (out / "table.md").read_text()
    assert "U-Net, no experts" in text
    assert "regions found in the training data" in text
    assert (out / "maps.png").stat().st_size > 1000


@pytest.mark.parametrize("name", cells.VARIANTS)
def test_variants_are_built(name):
    region = np.zeros((8, 16), int)
    region[2:5, 3:9] = 3
    model = cells._model(name, 4, region, 0)
    if name == "oracle":
        assert cells._map_and_agreement(model, region)[1] == 1
    elif name == "unet":
        assert cells._map_and_agreement(model, region) == (None, None)


def test_a_cells_place_and_key_name_its_world():
    size = WorldSize("9x16", (2000,), 4, steps=(48,), kinds=("sfc",))
    cell = cells.GateCell("unet", 1, Path("w"), Path("o"), size)
    other = cells.GateCell("unet", 1, Path("w"), Path("o"), WorldSize("9x16", (2001,), 4))
    assert cell.place == "pointwise-9x16/seed1/unet"
    assert cell.current_key() != other.current_key()


def test_the_committed_table_is_that_of_the_results():
    with Results(RESULTS).temporary_folder() as kept:
        found = read_results(kept)
    lines = (RESULTS / "table.csv").read_text().splitlines()
    assert len(lines) == 1 + len(found) > 20
    for line, row in zip(lines[1:], table(found), strict=True):
        assert line.split(",")[:2] == row[:2]
        assert row[3] in line


@pytest.mark.parametrize(("folder", "width"), [("", 16), ("46x96", 32), ("displaced-46x96", 32)])
def test_kept_cells_have_the_configuration_of_todays_variants(folder, width):
    kept = Results(RESULTS / folder)
    for place in kept.places():
        world, seed, variant = place.split("/")
        kind, grid = world.split("-")
        about = {"grid": grid, "years": 10, "dates": 40, "world": kind}
        size = WorldSize.from_options(**about, steps=(48,), kinds=("sfc",))
        number = int(seed.removeprefix("seed"))
        cell = cells.GateCell(variant, number, Path("w"), Path("o"), size, width)
        assert cell.place == place
        assert kept.key(place)["config"] == cell.current_key()["config"], place
