"""The figure of skill against processor time: what it reads, draws and refuses."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from ens10.experiments.skill_and_cost import Model, Table, main, read_table, skill_and_cost

HEAD = "model,seed,crps,attained,cpu_seconds,still_improving"
SHARED = [  # data of all seeds, without an optimum: raw and EMOS once
    "raw,0,2.0,,1,0",
    "worse,0,2.5,,1,0",
    "emos_local,0,1.5,,4,0",
    "unet,0,1.0,,100,0",
    "unet,1,1.2,,200,1",
]
WORLDS = [  # a world for each seed
    "raw,0,2.0,,1,0",
    "raw,1,4.0,,1,0",
    "mlp,0,1.5,0.5,10,0",
    "mlp,1,2.5,0.7,30,0",
    "optimum,0,1.0,,,0",
    "optimum,1,1.9,,,0",
]


def written(path, rows):
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def test_without_an_optimum_skill_is_the_share_of_the_raw_crps(tmp_path):
    table = read_table(written(tmp_path / "t.csv", SHARED))
    emos, unet = table.models  # what is worse than raw is left out
    assert not table.has_optimum
    assert (emos.name, emos.seconds, emos.skills) == ("emos_local", 4, (25.0,))
    assert unet.skills == pytest.approx((50.0, 40.0))
    assert (unet.skill, unet.seconds) == pytest.approx((45, 150))
    assert (emos.still_improving, unet.still_improving) == (False, True)


def test_with_an_optimum_it_is_the_attained_skill(tmp_path):
    table = read_table(written(tmp_path / "t.csv", WORLDS))
    assert table.has_optimum
    assert table.models == (Model("mlp", 20.0, (50.0, 70.0), still_improving=False),)


def test_dots_are_at_the_values_and_hollow_while_still_improving(tmp_path):
    table = read_table(written(tmp_path / "t.csv", SHARED))
    figure = skill_and_cost({"one": table, "two": table})
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    axes = figure.axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    drawn = [(*dot.get_xdata(), *dot.get_ydata()) for dot in dots]
    np.testing.assert_allclose(drawn, [(4.0, 25.0), (150.0, 45.0)])
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True]
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["statistical method", "network"]


def test_labels_of_crowded_models_do_not_overlap():
    rng = np.random.default_rng(0)
    models = tuple(
        Model(f"a_model_{n}", 90.0 + 5 * n + rng.uniform(0, 5), (30.0 + n,), still_improving=False)
        for n in range(12)
    )
    (axes,) = skill_and_cost({"crowded": Table(models, has_optimum=True)}).axes
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == len(models)
    assert all(Bbox.intersection(one, other) is None for one, other in combinations(boxes, 2))


def test_only_the_best_for_their_time_are_named():
    models = tuple(
        Model(name, seconds, (skill,), still_improving=False)
        for name, seconds, skill in [
            ("fast", 1.0, 10.0),
            ("slower_and_worse", 2.0, 5.0),
            ("better", 3.0, 20.0),
            ("hardly_better", 4.0, 20.5),
            ("unet", 5.0, 1.0),
            ("best", 6.0, 30.0),
        ]
    )
    (axes,) = skill_and_cost({"some": Table(models, has_optimum=True)}).axes
    named = {text.get_text() for text in axes.texts} - {""}
    assert named == {"fast", "better", "unet", "best"}


def test_the_command_writes_a_picture(tmp_path):
    path, out = written(tmp_path / "t.csv", SHARED), tmp_path / "f.png"
    assert main([f"a title={path}", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("table.csv", "has no title"),
        ("a=missing.csv", "missing.csv: no table of models"),
        ("a=other.csv", "other.csv: no table of models"),
        ("a=worse.csv", "worse.csv: holds no model with skill"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(tmp_path, monkeypatch, capsys, argument, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    written(tmp_path / "worse.csv", SHARED[:2])
    assert main([argument, "--out", "f.png"]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "f.png").exists()
