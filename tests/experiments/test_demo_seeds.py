"""The summary over seeds says what the runs' own scores say."""

import fakeruns
import numpy as np
import pytest

from ens10.catalog import names_of_kind
from ens10.errors import MissingDataError
from ens10.experiments.demo import DATES, YEARS
from ens10.experiments.finished import read_runs
from ens10.experiments.studies import demo_seeds
from ens10.experiments.tables import score_table
from ens10.experiments.writers import to_csv
from ens10.metrics import score_states
from ens10.metrics.uncertainty import blocks_in_words
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


def test_summary_tells_the_block_lengths(folders):
    shown = [
        row.crpss
        for folder in folders.values()
        for _, row in demo_seeds.paired_differences([folder / n for n in ("raw", "emos", "unet")])
    ]
    assert all(skill.block_length >= 1 for skill in shown)
    told = f"In brackets: 95 % interval, paired over the test dates ({blocks_in_words(shown)})."
    assert demo_seeds.summary(folders).splitlines()[-1] == told


def test_paired_skill_is_that_of_the_better_against_the_worse(folders):
    runs = [folders[0] / n for n in ("raw", "emos", "unet", "optimum")]
    found = {run.name: run.states for run in read_runs(runs)}

    def crps(name):
        return float(found[name]["crps_sum"].sum() / found[name]["crps_weight"].sum())

    pairs = dict(demo_seeds.paired_differences(runs))
    expected = {"emos against raw": ("emos", "raw"), "unet against emos": ("unet", "emos")}
    assert set(pairs) == set(expected)
    for label, (better, worse) in expected.items():
        skill = pairs[label].crpss
        np.testing.assert_allclose(skill.value, 1 - crps(better) / crps(worse), rtol=1e-12)
        assert 0 < skill.lower < skill.value < skill.upper


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
