"""The table of an ablation: paired differences over dates and seeds, on runs of known scores."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from fakeruns import write_world

from ens10.errors import MissingDataError
from ens10.experiments.studies.ablation.spec import Ablation, Variant
from ens10.experiments.studies.ablation.tables import (
    Difference,
    Line,
    _notes,
    add_trainings,
    difference,
    difference_figure,
    read_lines,
    table,
    write_pages,
)
from ens10.metrics import Interval

NAMES = ("raw", "emos", "unet")
ABLATION = Ablation(
    "own", "own", "Which is best?",
    (
        Variant("raw", Path("raw.yaml")),
        Variant("emos", Path("emos.yaml"), reference="raw"),
        Variant("unet", Path("unet.yaml"), reference="emos"),
        Variant("gone", Path("unet.yaml"), reference="raw"),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Kept cells of two seeds, each a world of its own."""
    folder = tmp_path_factory.mktemp("ablation")
    for seed in (0, 1):
        write_world(folder / "own" / f"seed{seed}", NAMES, seed=seed)
    return folder


def lines_of(out, seeds=(0, 1), *, same_data=False, **rest):
    return {
        line.name: line for line in read_lines(ABLATION, out, seeds, same_data=same_data, **rest)
    }


def daily(line, seed):
    states = line.runs[seed].states
    return (states["crps_sum"] / states["crps_weight"]).to_numpy()


def test_differences_are_paired_over_the_dates_of_all_seeds(out):
    lines = lines_of(out)
    assert list(lines) == [*NAMES]
    assert lines["raw"].differences == {}
    made = lines["unet"].differences["crps"]
    by_date = {s: daily(lines["unet"], s) - daily(lines["emos"], s) for s in (0, 1)}
    both = np.concatenate(list(by_date.values()))
    assert made.bounds.value == pytest.approx(both.mean(), rel=1e-6)
    assert made.by_seed == pytest.approx({s: d.mean() for s, d in by_date.items()}, rel=1e-6)
    half = 1.96 * both.std(ddof=1) / np.sqrt(both.size)  # dates are independent in these worlds
    bounds = (made.bounds.upper - made.bounds.lower) / 2
    assert bounds == pytest.approx(half, rel=0.35)
    assert made.is_clear
    assert made.other == pytest.approx(lines["emos"].crps, rel=1e-6)


def test_variants_of_fewer_seeds_are_named(out):
    shown = {f"own/seed{seed}/{name}" for seed in (0, 1) for name in NAMES}
    few = lines_of(out, places=shown - {"own/seed1/unet"})
    assert "Of fewer seeds: unet (1 of 2)." in " ".join(_notes(list(few.values())))
    assert "Of fewer seeds" not in " ".join(_notes(list(lines_of(out).values())))


def test_trainings_on_the_same_data_are_no_more_dates(out):
    one = lines_of(out, [0])["unet"]
    other = lines_of(out, [0])["emos"]
    twice = {0: one.runs[0], 1: one.runs[0]}, {0: other.runs[0], 1: other.runs[0]}
    alone = difference(one.runs, other.runs, "crps", same_data=True).bounds
    same = difference(*twice, "crps", same_data=True).bounds
    assert (same.value, same.lower, same.upper) == pytest.approx(
        (alone.value, alone.lower, alone.upper)
    )
    worlds = difference(*twice, "crps", same_data=False).bounds
    ratio = (worlds.upper - worlds.lower) / (alone.upper - alone.lower)
    assert ratio == pytest.approx(1 / np.sqrt(2), rel=0.2)


def test_bounds_of_trainings_on_the_same_data_add_the_variance_over_trainings(out, tmp_path):
    """half^2 = half over dates^2 + 1.96^2 (s_A^2 / 2 + s_B^2 / 2), s pooled within a family."""
    shutil.copytree(out / "own", tmp_path / "own")
    network = {"model": {"init_args": {"network": {"class_path": "ens10.models.UNet"}}}}
    for seed in (0, 1):  # `raw` has no network, and no variance
        for name in ("emos", "unet"):
            config = tmp_path / "own" / f"seed{seed}" / name / "config.yaml"
            config.write_text(yaml.safe_dump(network))
    lines = lines_of(tmp_path, same_data=True)
    scores = {name: [daily(lines[name], seed).mean() for seed in (0, 1)] for name in NAMES}
    pooled = (np.var(scores["emos"], ddof=1) + np.var(scores["unet"], ddof=1)) / 2
    for name, variance in (("unet", 2 * pooled / 2), ("emos", pooled / 2)):
        made = lines[name].differences["crps"]
        pair = lines[name].runs, lines[lines[name].reference].runs
        dates = difference(*pair, "crps", same_data=True)
        half = np.sqrt(
            ((dates.bounds.upper - dates.bounds.lower) / 2) ** 2 + 1.959964**2 * variance
        )
        assert made.bounds.value == dates.bounds.value
        bounds = made.bounds.value + np.array([-half, half])
        assert (made.bounds.lower, made.bounds.upper) == pytest.approx(bounds, rel=1e-5)
        expected = {True: "loses", False: "not distinguished"}[made.bounds.lower > 0]
        assert made.verdict == ("gains" if made.bounds.upper < 0 else expected)
    alone = lines_of(tmp_path, [0], same_data=True)["unet"].differences["crps"]
    assert alone.verdict == ""  # the variation between trainings is not known
    heads = [column.heading for column in table(list(lines.values()))]
    assert "Verdict" in heads
    assert "plus that over trainings" in " ".join(_notes(list(lines.values())))
    assert "plus that over trainings" not in " ".join(_notes(list(lines_of(out).values())))


def test_verdicts_are_corrected_for_the_number_of_differences(out):
    base = lines_of(out)["raw"]
    unclear = Difference(Interval(0.001, -0.01, 0.012), {0: 0.001, 1: 0.001}, 1.0)
    weak = Difference(Interval(-0.01, -0.0195, -0.0005), {0: -0.01, 1: -0.01}, 1.0)  # p 0.039
    tied = Difference(Interval(0.0, -0.002, 0.002), {0: 0.0, 1: 0.0}, 1.0)

    def verdicts(**deltas):
        lines = [Line(name, "raw", base.runs, {"crps": delta}) for name, delta in deltas.items()]
        made = add_trainings([base, *lines], {})
        return {line.name: line.differences["crps"].verdict for line in made[1:]}

    assert verdicts(a=weak) == {"a": "gains"}
    assert verdicts(a=weak, b=unclear, c=tied) == {
        "a": "not distinguished",
        "b": "not distinguished",
        "c": "tie",
    }
    assert not replace(weak, verdict="not distinguished").is_clear
    assert replace(weak, verdict="gains").is_clear


def test_seeds_that_disagree_make_no_clear_difference(out):
    lines = lines_of(out)
    unet, emos = lines["unet"].runs, lines["emos"].runs
    swapped = difference(
        {0: unet[0], 1: emos[1]}, {0: emos[0], 1: unet[1]}, "crps", same_data=False
    )
    assert {np.sign(value) for value in swapped.by_seed.values()} == {-1.0, 1.0}
    assert not swapped.is_clear
    bounds = Interval(-0.1, -0.15, -0.05)  # 0 is not within, which the first seed alone decides
    assert not Difference(bounds, {0: -0.3, 1: 0.1}, 1.0).is_clear
    assert Difference(bounds, {0: -0.1, 1: -0.1}, 1.0).is_clear
    assert difference(unet, {2: emos[0]}, "crps", same_data=False) is None
    assert difference(unet, emos, "eecrps", same_data=False) is None


def test_runs_of_other_dates_are_refused(out, tmp_path):
    runs = write_world(tmp_path / "own" / "seed0", ("raw",))
    write_world(tmp_path / "later" / "seed0", ("emos",), start="2010-01-01")
    (tmp_path / "later" / "seed0" / "emos").rename(runs["raw"].with_name("emos"))
    with pytest.raises(MissingDataError, match="paired dates"):
        lines_of(tmp_path, [0])


def test_the_pages(out, tmp_path):
    lines = list(lines_of(out).values())
    text = write_pages(ABLATION, lines, tmp_path / "new", ["Two seeds."], {"gone, seed 0": "broke"})
    assert text == (tmp_path / "new" / "table.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 3
    assert "Which is best?" in text
    assert "Missing: gone, seed 0: broke" in text
    made = lines[2].differences["crps"]
    assert f"−{-made.bounds.value:.4f}"[:7] in rows[4]
    with (tmp_path / "new" / "table.csv").open() as file:
        held = {(row["variant"], row["seed"]): row for row in csv.DictReader(file)}
    assert set(held) == {(name, seed) for name in NAMES for seed in ("0", "1", "")}
    row = held["unet", ""]
    assert float(row["difference"]) == pytest.approx(made.bounds.value)
    assert float(row["difference_upper"]) == pytest.approx(made.bounds.upper)
    assert float(held["unet", "1"]["difference"]) == pytest.approx(made.by_seed[1])
    assert float(held["unet", "1"]["crps"]) == pytest.approx(daily(lines[2], 1).mean(), rel=1e-6)
    assert (tmp_path / "new" / "differences.png").stat().st_size > 10_000


def test_what_a_table_has_nothing_of_is_no_column(out):
    lines = [line for line in lines_of(out, [0]).values() if line.name != "unet"]
    heads = [column.heading for column in table(lines)]
    assert heads[:3] == ["Variant", "CRPS (K)", "Δ CRPS (K)"]
    assert not {"Against", "By seed (K)", "Δ EECRPS (K)"} & set(heads)
    axes = difference_figure(lines).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["emos"]
    assert "less that of raw" in axes.get_xlabel()


def test_only_cells_that_count_are_shown(out):
    shown = {f"own/seed{seed}/{name}" for seed in (0, 1) for name in ("raw", "unet")}
    lines = lines_of(out, places=shown)
    assert list(lines) == ["raw", "unet"]
    assert lines["unet"].differences == {}  # emos does not count
