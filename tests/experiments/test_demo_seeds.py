"""The summary over seeds says what the runs' own scores say."""

import fakeruns
import numpy as np
import pytest

from ens10.catalog import names_of_kind
from ens10.errors import MissingDataError
from ens10.experiments.demo import DATES, YEARS
from ens10.experiments.runner.tables import skill_in_words, skill_note
from ens10.experiments.scoring.run_results import mean_score, read_runs
from ens10.experiments.scoring.tables import score_table, to_csv
from ens10.experiments.studies import demo_seeds
from ens10.metrics import score_states
from ens10.synthetic import World


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two demonstrations with the forecasts raw, emos, unet and optimum."""
    monkeypatch.setattr(demo_seeds, "MODELS", ("raw", "emos", "unet"))
    monkeypatch.setattr(demo_seeds, "ORDER", (("raw", "emos"), ("emos", "unet")))
    made = {}
    for seed in (0, 1):
        truth, forecasts = fakeruns.world(seed=seed)
        for name, forecast in forecasts.items():
            kind = "optimum" if name == "optimum" else "model"
            facts = {"name": name, "kind": kind, "target": "t2m", "target_units": "K"}
            run = tmp_path / f"seed{seed}" / name
            fakeruns.write_run(run, score_states(forecast, truth), facts)
        made[seed] = tmp_path / f"seed{seed}"
    return made


def test_summary_holds_each_seed_and_pair(folders):
    text = demo_seeds.summary(folders)
    for seed, folder in folders.items():
        runs = read_runs([folder / n for n in ("raw", "emos", "unet", "optimum")])
        for row in score_table(runs):
            line = next(line for line in text.splitlines() if line.startswith(f"| {row.model} |"))
            assert f"{row.crps.value:.4f}" in line.split("|")[2 + seed]
            if row.attained is not None:
                assert f"/ {row.attained.value:.3f}" in line.split("|")[2 + seed]


def test_each_pair_has_the_paired_skill_of_each_seed(folders):
    """Also as `score_table` has it, with the worse one as the reference."""
    text = demo_seeds.summary(folders)
    found = {
        line.split("|")[1].strip(): line.split("|")[2:4] for line in text.splitlines()[:-1] if line
    }
    shown = []
    for worse, better in demo_seeds.ORDER:
        for seed, folder in folders.items():
            runs = read_runs([folder / worse, folder / better])
            skill = score_table(runs, reference=worse)[1].crpss
            assert found[f"{better} against {worse}"][seed].strip() == skill_in_words(skill)
            ratio = mean_score(runs[1].states, "crps") / mean_score(runs[0].states, "crps")
            np.testing.assert_allclose(skill.value, 1 - ratio, rtol=1e-12)
            assert 0 < skill.lower < skill.value < skill.upper
            shown.append(skill)
    assert text.splitlines()[-1] == skill_note(shown)


def test_the_tables_are_those_of_the_seeds(folders, tmp_path):
    out = tmp_path / "out"
    text = demo_seeds.write_tables(out, tmp_path, [0, 1])
    assert text == (out / "table.md").read_text() == demo_seeds.summary(folders)
    rows = score_table(read_runs([folders[1] / n for n in ("raw", "emos", "unet", "optimum")]))
    assert (out / "seed1" / "table.csv").read_text() == to_csv(rows)
    with pytest.raises(MissingDataError, match="seed2/raw"):
        demo_seeds.write_tables(out, tmp_path, [0, 2])


def test_the_worlds_are_those_of_the_demonstration():
    names = [n for kind in demo_seeds.SIZE.kinds for n in names_of_kind(kind)]
    size = demo_seeds.SIZE
    mine = World(size.grid, size.years, size.dates, names, 3, levels=size.levels, steps=size.steps)
    theirs = World("46x96", YEARS, DATES, seed=3, steps=(48,))
    assert mine._parameters == theirs._parameters
