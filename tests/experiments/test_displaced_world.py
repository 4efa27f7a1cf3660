"""What there is to learn in the displaced world: measured, drawn, and out of a point's reach."""

import re

import pytest

from ens10.experiments.studies import displaced_world
from ens10.synthetic import World

TARGETS = ["t2m", "z_500", "t_850", "tp", "si10"]
REGRESSED = ["t2m", "z_500", "t_850", "si10"]


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


@pytest.mark.slow
def test_no_regression_at_each_point_attains_four_fifths(tmp_path):
    """Fitted on the dates that it is judged on too, it is an upper bound; all is needed."""
    folder = tmp_path / "world"
    world = displaced_world.world_of(folder, "24x48", range(1998, 2018), 30, seed=1)
    assert isinstance(world, World)
    found = {one.target: one for one in displaced_world.worth_of(world, folder)}
    for target in REGRESSED:
        new, same = found[target].regression
        assert new < 80, target
        assert same < 80 or target == "z_500", target
    for target in ("t2m", "t_850", "z_500", "tp", "si10"):
        for knowledge in ("neighbours", "flow", "place", "members"):
            lost, margin = found[target].lost(knowledge)
            assert lost > margin, (target, knowledge)
    for target in REGRESSED:
        fitted = found[target].fitted
        for knowledge in ("neighbours", "flow", "place"):
            if (target, knowledge) != ("z_500", "flow"):  # the wind blows along its contours
                assert fitted[knowledge] < fitted[""] - 5, (target, knowledge)
    for target, low, high in (("t2m", 10, 30), ("t_850", 10, 25), ("z_500", 5, 20)):
        assert low < found[target].removable < high, target
