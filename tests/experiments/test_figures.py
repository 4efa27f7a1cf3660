import io
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from fakeruns import training_log, write_run, write_world
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import UnknownNameError
from ens10.experiments.reporting.figures import (
    calibration,
    crps_by_latitude,
    crps_chart,
    learning_curves,
    skill_card,
    skill_map,
    skill_maps,
)
from ens10.experiments.reporting.report import png
from ens10.experiments.scoring.run_results import read_run, read_runs
from ens10.experiments.scoring.tables import score_table
from ens10.metrics import summarise
from ens10.metrics.figures.maps import cell_edges, degrees, unwrap_columns


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return read_runs(list(write_world(tmp_path_factory.mktemp("runs")).values()))


def panels(figure):
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_title(loc="left")]


def test_maps_show_the_skill_of_summarise(runs):
    figure = skill_maps(runs)
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["emos", "unet", "optimum"]
    states = {run.name: run.states for run in runs}
    for axes in panels(figure):
        own = summarise(states[axes.get_title(loc="left")], states["raw"])["crpss_map"]
        mesh = axes.collections[0]
        order = np.argsort((own["longitude"].to_numpy() + 180) % 360)
        drawn = np.asarray(mesh.get_array()).reshape(own.shape)
        np.testing.assert_allclose(drawn, 100 * own.to_numpy()[:, order], rtol=1e-6)
        assert mesh.norm.vmin == -mesh.norm.vmax


def test_maps_share_their_colours_and_edges(runs):
    first, *others = (axes.collections[0] for axes in panels(skill_maps(runs)))
    corners = first.get_coordinates()
    assert (corners[0, 0, 0], corners[0, -1, 0]) == (-195.0, 165.0)  # cells of 30 degrees
    assert (corners[0, 0, 1], corners[-1, 0, 1]) == (90.0, -90.0)
    for mesh in others:
        assert mesh.norm.vmax == first.norm.vmax
        np.testing.assert_array_equal(mesh.get_coordinates(), corners)


def test_the_card_has_the_skill_of_each_season(runs):
    states = {run.name: run.states for run in runs}
    texts = [text.get_text() for text in skill_card(runs).axes[0].texts]
    own = [summarise(states[n], states["raw"], by=["season"]) for n in ("emos", "unet", "optimum")]
    skills = [100 * value for one in own for value in one["crpss"].to_numpy().tolist()]
    assert [float(text.split()[0].replace("−", "-")) for text in texts] == pytest.approx(
        skills, abs=0.05
    )
    assert skill_card([runs[1]]) is None


def test_the_curve_of_a_run_is_its_mean_crps_by_latitude(runs):
    curves = {line.get_label(): line for line in crps_by_latitude(runs).axes[0].lines}
    states = runs[1].states
    rows = states["crps_map_sum"].sum("longitude") / states["crps_map_weight"].sum("longitude")
    np.testing.assert_allclose(curves[runs[1].name].get_xdata(), rows, rtol=1e-12)
    north = np.sin(np.deg2rad(rows["latitude"]))
    np.testing.assert_allclose(curves[runs[1].name].get_ydata(), north, rtol=1e-12)


def test_points_without_truth_are_grey(runs):
    raw, emos = runs[0], runs[1]
    states = emos.states.copy(deep=True)
    states["crps_map_weight"][2, 3] = 0
    skill = skill_map(states, raw.states)
    assert np.isnan(skill[2, 3])
    assert int(skill.isnull().sum()) == 1


def test_maps_of_a_region_across_greenwich(tmp_path):
    region = np.arange(60, 40, -5.0), np.r_[350.0, 355.0, 0.0, 5.0]
    runs = read_runs(list(write_world(tmp_path, ("raw", "emos"), region=region).values()))
    (axes,) = panels(skill_maps(runs))
    assert axes.get_xlim() == (-12.5, 7.5)
    assert axes.get_ylim() == (42.5, 62.5)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert {"10°W", "0°", "5°E"} <= set(labels)
    assert "50°N" in [label.get_text() for label in axes.get_yticklabels()]


def test_maps_need_the_reference_and_another(runs):
    with pytest.raises(UnknownNameError, match="reference"):
        skill_maps(runs[1:])
    assert skill_maps(runs[:1]) is None


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(-80, 80), min_size=1, max_size=9, unique_by=lambda x: round(x, 2)),
    st.booleans(),
)
def test_edges_lie_half_way_between_centres(centres, falling):
    c = np.sort(np.round(centres, 2))[:: -1 if falling else 1]
    edges = cell_edges(c, 90.0)
    np.testing.assert_allclose(edges[1:-1], (c[1:] + c[:-1]) / 2)
    between = np.sort(np.stack([edges[:-1], edges[1:]]), axis=0)
    assert np.all((between[0] <= c) & (c <= between[1]))
    assert np.abs(edges).max() <= 90.0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 359), st.integers(2, 40), st.sampled_from([1.0, 2.5, 5.0]), st.randoms())
def test_any_order_of_columns_is_drawn_from_west_to_east(start, n, spacing, random):
    track = start + spacing * np.arange(n)
    mixed = list(range(n))
    random.shuffle(mixed)
    order, east = unwrap_columns(track[mixed] % 360)
    np.testing.assert_allclose(np.diff(east), spacing)
    np.testing.assert_allclose((track[mixed] % 360)[order] % 360, east % 360)
    assert -180 <= east.mean() <= 180


def test_a_global_grid_begins_in_the_west():
    _, east = unwrap_columns(np.arange(0, 360, 0.5))
    assert (east[0], east[-1]) == (-180.0, 179.5)


@pytest.mark.parametrize(
    ("value", "names", "label"),
    [
        *((30, "NS", "30°N"), (-7.5, "NS", "7.5°S"), (0, "NS", "0°"), (0, "EW", "0°")),
        *((-180, "EW", "180°"), (180, "EW", "180°"), (190, "EW", "170°W"), (90, "EW", "90°E")),
    ],
)
def test_labels_of_coordinates(value, names, label):
    assert degrees(value, names) == label


def test_histograms_before_and_after(runs):
    figure = calibration(runs)
    titles = [axes.get_title(loc="left") for axes in panels(figure)]
    assert titles == ["raw: rank", "raw: PIT", "emos: PIT", "unet: PIT", "optimum: PIT"]
    rank = panels(figure)[0].patches[0].get_data()
    counts = runs[0].states["rank_count"].to_numpy()
    np.testing.assert_allclose(rank.values, counts / counts.mean())
    np.testing.assert_array_equal(rank.edges, np.arange(7) - 0.5)
    for axes in panels(figure):
        assert [line.get_ydata() for line in axes.lines] == [[1.0, 1.0]]
        heights, edges, _ = axes.patches[0].get_data()
        assert np.sum(heights * np.diff(edges)) == pytest.approx(edges[-1] - edges[0])


def test_histograms_need_counts(runs):
    bare = [
        type(run)(
            run.name,
            run.kind,
            run.states.drop_vars(["pit_count", "rank_count"], errors="ignore"),
            {},
        )
        for run in runs
    ]
    assert calibration(bare) is None


def test_learning_curves_are_of_the_log(runs):
    axes = learning_curves(runs).axes[0]
    training, validation, best = axes.lines[:3]
    log = next(run for run in runs if run.name == "unet").log
    np.testing.assert_array_equal(training.get_ydata(), [e.train_loss for e in log])
    np.testing.assert_array_equal(validation.get_ydata(), [e.val_loss for e in log])
    assert list(best.get_xdata()) == [4]
    assert axes.get_ylabel() == "CRPS (K)"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["unet", "validation", "training"]


def test_curves_of_many_models_can_be_told_apart(runs, tmp_path):
    folder = write_run(tmp_path / "unet", runs[1].states, log=training_log())
    many = [replace(read_run(folder), name=f"model {n}") for n in range(16)]
    lines = [line for line in learning_curves(many).axes[0].lines if "model" in line.get_label()]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(many)


def test_one_epoch_is_no_curve(runs, tmp_path):
    states = runs[1].states
    once = read_run(write_run(tmp_path / "once", states, log=training_log(epochs=1)))
    assert learning_curves([once, runs[0]]) is None


def test_chart_shows_values_intervals_and_the_optimum(runs):
    rows = score_table(runs)
    axes = crps_chart(rows).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["raw", "emos", "unet"]
    bars, dots = axes.lines[0:6:2], axes.lines[1:6:2]
    for bar, dot, row in zip(bars, dots, rows, strict=False):
        np.testing.assert_array_equal(bar.get_xdata(), [row.crps.lower, row.crps.upper])
        assert list(dot.get_xdata()) == [row.crps.value]
    assert list(axes.lines[6].get_xdata()) == [rows[3].crps.value] * 2
    assert axes.yaxis_inverted()


def test_figures_are_bytes_for_bytes_the_same_and_leave_no_settings(runs):
    before = dict(mpl.rcParams)
    first = png(skill_maps(runs))
    assert first == png(skill_maps(runs))
    assert b"Software" not in first  # matplotlib's version would be there
    assert dict(mpl.rcParams) == before


def test_names_of_models_do_not_overlap(runs):
    figure = skill_maps(runs)
    figure.savefig(io.BytesIO())
    boxes = [axes.get_tightbbox() for axes in panels(figure)]
    for n, one in enumerate(boxes):
        for other in boxes[n + 1 :]:
            width = min(one.x1, other.x1) - max(one.x0, other.x0)
            height = min(one.y1, other.y1) - max(one.y0, other.y0)
            assert width <= 1 or height <= 1
