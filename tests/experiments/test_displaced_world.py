"""What there is to learn in the displaced world: measured, drawn, and out of a point's reach."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from ens10.errors import FileError
from ens10.experiments.studies import displaced_world
from ens10.synthetic import World

TARGETS = ["t2m", "z_500", "t_850", "tp", "si10"]
REGRESSED = ["t2m", "z_500", "t_850", "si10"]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results" / "displaced"
# CRPS of the raw ensemble in ENS-10, with ten members (Ashkboos et al. 2022)
PUBLISHED = {"t2m": 0.733, "z500": 78.24, "t850": 0.719}
AT_ONE_POINT = (
    *("emos_global", "emos_local", "emos_seasonal", "emos_ridge", "emos_boosting"),
    *("emos_logistic", "emos_paper", "emos_truncated", "emos_censored", "emos_csg"),
    *("bias_map", "isotonic", "member_by_member", "ecc", "schaake", "mlp", "transformer_points"),
)


def kept(target):
    """Rows of the committed table of a target, by model and seed."""
    name = "table.csv" if target == "t2m" else f"table-{target}.csv"
    with (RESULTS / name).open() as file:
        return {(row["model"], int(row["seed"])): row for row in csv.DictReader(file)}


@pytest.mark.parametrize("target", PUBLISHED)
def test_raw_scores_have_the_size_of_those_of_ens10(target):
    scores = [float(row["crps"]) for (model, _), row in kept(target).items() if model == "raw"]
    assert len(scores) == 3
    assert np.mean(scores) == pytest.approx(PUBLISHED[target], rel=0.1)


@pytest.mark.parametrize("target", ["t2m", "z500", "t850", "tp", "si10"])
def test_no_kept_model_of_a_point_alone_attains_four_fifths(target):
    found: dict[str, float] = {}
    for (model, _), row in kept(target).items():
        if model not in ("raw", "optimum"):
            found[model] = max(float(row["attained"]), found.get(model, -np.inf))
    at_one_point = [found[model] for model in AT_ONE_POINT if model in found]
    assert len(at_one_point) >= 3
    assert max(at_one_point) < 0.8 < max(found.values())


def test_the_page_leads_to_the_kept_table():
    worth, fitted = (RESULTS / "knowledge" / "table.md").read_text().strip().split("\n\n")
    assert (len(worth.splitlines()), len(fitted.splitlines())) == (7, 6)
    link = "../experiments/results/displaced/knowledge/table.md"
    assert f"]({link})" in (ROOT / "docs" / "data.md").read_text()


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"grid": "6x8"}, "grid: 4x8, now 6x8"),
        ({"years": [2000, 2001]}, "years: 2000, now 2000"),
        ({"dates": 2}, "dates: 0101"),
        ({"seed": 1}, "seed: 0, now 1"),
    ],
)
def test_a_folder_is_not_taken_for_another_world(tmp_path, changed, difference):
    settings = {"grid": "4x8", "years": [2000], "dates": 1, "seed": 0}
    folder = tmp_path / "world"
    World("4x8", [2000], 1, ["t2m"], steps=(48,), kind="displaced").write(folder)
    with pytest.raises(FileError, match=r"holds a world of other settings \(variables"):
        displaced_world.world_of(folder, **settings)
    text = (folder / "world.json").read_text()
    names = json.dumps(list(displaced_world.VARIABLES))
    (folder / "world.json").write_text(
        re.sub(r'"variables": \[[^]]*\]', f'"variables": {names}', text)
    )
    assert displaced_world.world_of(folder, **settings).folder == folder
    with pytest.raises(FileError, match=rf"other settings \({difference}"):
        displaced_world.world_of(folder, **settings | changed)


@pytest.mark.slow
def test_the_study_measures_and_draws(tmp_path, capsys):
    out, figure = tmp_path / "out", tmp_path / "figure.png"
    options = ["--grid", "8x16", "--years", "8", "--dates", "5", "--out", str(out)]
    assert displaced_world.main([str(tmp_path / "work"), *options, "--figure", str(figure)]) == 0
    table = (out / "table.md").read_text()
    assert table in capsys.readouterr().out
    worth, fitted = (part.splitlines()[2:] for part in table.split("\n\n"))
    for rows, expected in ((worth, TARGETS), (fitted, REGRESSED)):
        assert [re.match(r"\| (\w+)", row.replace("\\", ""))[1] for row in rows] == expected
    assert figure.stat().st_size > 50_000
    few = ["--grid", "8x16", "--years", "4", "--dates", "3", "--out", str(out)]
    assert displaced_world.main([str(tmp_path / "work"), *few]) == 1
    assert "Pass more dates" in capsys.readouterr().err


@pytest.mark.long
def test_no_regression_at_each_point_attains_four_fifths(tmp_path):
    """Fitted on the dates that it is judged on too, it is an upper bound; all is needed."""
    folder = tmp_path / "world"
    world = displaced_world.world_of(folder, "24x48", range(1998, 2018), 30, seed=1)
    assert isinstance(world, World)
    found = {one.target: one for one in displaced_world.worth_of(world, folder)}
    for target in REGRESSED:
        new, same = found[target].channel_skill
        assert new < 80, target
        assert same < 80 or target == "z_500", target
    for target in ("t2m", "t_850", "z_500", "tp", "si10"):
        for knowledge in ("neighbours", "flow", "place", "members"):
            lost, margin = found[target].skill_loss(knowledge)
            assert lost > margin, (target, knowledge)
    for target in REGRESSED:
        fitted = found[target].predictor_skill
        for knowledge in ("neighbours", "flow", "place"):
            if (target, knowledge) != ("z_500", "flow"):  # the wind blows along its contours
                assert fitted[knowledge] < fitted["all three"] - 5, (target, knowledge)
    for target, low, high in (("t2m", 10, 30), ("t_850", 10, 25), ("z_500", 5, 20)):
        assert low < found[target].optimum_skill < high, target
