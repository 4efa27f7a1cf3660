"""What the figures of scores show: the numbers that were given, where they belong."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from scipy.stats import binom

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.figures import (
    histogram_figure,
    latitude_figure,
    reliability_figure,
    roc_figure,
    score_card,
    score_maps,
    spread_error_figure,
)
from ens10.metrics.figures.maps import nice_limit

LATITUDE, LONGITUDE = np.linspace(90, -90, 5), np.arange(8) * 45.0


def field(seed=0):
    values = np.random.default_rng(seed).normal(size=(5, 8))
    return xr.DataArray(
        values, {"latitude": LATITUDE, "longitude": LONGITUDE}, ("latitude", "longitude")
    )


def mesh(axes):
    (found,) = (c for c in axes.collections if isinstance(c, QuadMesh))
    return np.asarray(found.get_array())


def test_maps_put_columns_from_west_to_east():
    skill = field()
    figure = score_maps(
        {"a": skill.transpose(), "b": 2 * skill}, "%", signed="better", coasts=False
    )
    first, second = figure.axes[:2]
    np.testing.assert_array_equal(mesh(first), np.roll(skill.to_numpy(), 4, axis=1))
    np.testing.assert_array_equal(mesh(second), 2 * mesh(first))
    assert [first.get_title(loc="left"), second.get_title(loc="left")] == ["a", "b"]
    assert figure.axes[-1].get_xlabel() == "%"


def test_maps_dot_what_is_not_significant():
    skill = field()
    sure = abs(skill) > 1
    figure = score_maps({"a": skill}, "", signed="better", significant={"a": sure}, coasts=False)
    (dots,) = figure.axes[0].lines
    assert len(dots.get_xdata()) == int((~sure).sum())
    for x, y in zip(dots.get_xdata(), dots.get_ydata(), strict=True):
        row = np.abs(LATITUDE - y).argmin()
        assert not sure[row].sel(longitude=x % 360)


def test_missing_points_are_not_drawn():
    bias = field()
    bias[1, 2] = np.nan
    figure = score_maps({"a": bias}, "K", signed="deviation", coasts=False)
    values = next(c for c in figure.axes[0].collections if isinstance(c, QuadMesh)).get_array()
    assert values.mask.sum() == 1


@pytest.mark.parametrize(("signed", "limits"), [("better", (-4, 4)), ("no", (0, 4))])
def test_colours_end_where_they_are_told(signed, limits):
    figure = score_maps({"a": field()}, "", signed=signed, limit=4, coasts=False)
    assert figure.axes[-1].get_xlim() == limits


def test_limits_are_round():
    assert nice_limit(np.linspace(0, 10, 101), True) == 10
    assert nice_limit(np.array([-1000.0, 0.1, 0.2]), True) == 0.2
    assert nice_limit(np.array([-0.021, 0.01]), False) == 0.03
    assert nice_limit(np.zeros(3), False) == 1
    assert nice_limit(np.array([]), False) == 1


def test_histograms_are_relative_to_a_flat_one():
    counts = xr.DataArray([30, 10, 20, 20], dims="rank")
    figure = histogram_figure({"raw": counts}, cases=50, confidence=0.9)
    (axes,) = figure.axes
    values, edges, _ = axes.patches[0].get_data()
    np.testing.assert_allclose(values, [1.5, 0.5, 1, 1])
    np.testing.assert_allclose(edges, [-0.5, 0.5, 1.5, 2.5, 3.5])
    box = axes.patches[1].get_extents().transformed(axes.transData.inverted())
    wanted = binom.ppf([0.05, 0.95], 50, 0.25) * 4 / 50
    np.testing.assert_allclose([box.y0, box.y1], wanted)


def test_rows_take_room_by_their_area():
    scores = xr.DataArray(np.arange(5.0), {"latitude": LATITUDE}, ("latitude",), "crps")
    figure = latitude_figure({"raw": scores.assign_attrs(units="K")})
    (line,) = figure.axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), np.sin(np.deg2rad(LATITUDE)))
    np.testing.assert_array_equal(line.get_xdata(), scores)
    assert figure.axes[0].get_xlabel() == "crps (K)"


def test_spread_is_the_ratio_times_the_error():
    steps = xr.DataArray([0, 24], dims="step", attrs={"units": "h"})
    scores = xr.Dataset(
        {"rmse": ("step", [1.0, 2.0], {"units": "K"}), "spread_error": ("step", [0.5, 0.75])},
        {"step": steps},
    )
    axes = spread_error_figure({"raw": scores}).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1, 2])
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [0.5, 1.5])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step (h)", "RMSE, spread (K)")
    with pytest.raises(MissingDataError, match="scores of raw: 1 part is missing: rmse"):
        spread_error_figure({"raw": scores.drop_vars("rmse")})


def test_score_cards_mark_what_is_significant():
    coords = {"variable": ["t2m", "z500"], "step": [24, 48]}
    skill = xr.DataArray([[10.0, -5.0], [1.0, np.nan]], coords, ("variable", "step"))
    axes = score_card(skill, skill - 2, skill + 2).axes[0]
    assert [t.get_text() for t in axes.texts] == ["+10.0 ▲", "−5.0 ▼", "+1.0"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["t2m", "z500"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["24", "48"]
    shown = next(c for c in axes.collections if isinstance(c, QuadMesh)).get_array()
    np.testing.assert_array_equal(np.ma.filled(shown, np.nan), skill)


def test_reliability_and_roc_draw_what_they_are_given():
    bins = np.array([0.0, 0.5, 1.0])
    diagram = xr.Dataset(
        {
            "forecast_mean": ("bin", bins),
            "observed_frequency": ("bin", [0.1, np.nan, 0.8]),
            "share": ("bin", [0.5, 0.0, 0.5]),
        }
    )
    axes = reliability_figure({"raw": diagram}).axes[0]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[0, 0.1], [1, 0.8]])
    curve = xr.Dataset(
        {
            "hit_rate": ("threshold", [1, 0.7, 0]),
            "false_alarm_rate": ("threshold", [1, 0.2, 0]),
            "area": 0.75,
        }
    )
    axes = roc_figure({"raw": curve}).axes[0]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[0, 0], [0.2, 0.7], [1, 1]])
    assert axes.get_legend().get_texts()[0].get_text() == "raw: 0.750"
    with pytest.raises(MissingDataError, match="diagram of raw: 1 part is missing: area"):
        roc_figure({"raw": curve.drop_vars("area")})


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: score_maps({}, "", signed="no"), "fields: there are none to draw"),
        (lambda: score_maps({"a": field()[0]}, "", signed="no"), "fields: a has the dimensions"),
        (lambda: histogram_figure({}), "counts: there are none to draw"),
        (lambda: histogram_figure({"a": field()}), "counts: a has the dimensions"),
        (lambda: latitude_figure({}), "scores: there are none to draw"),
        (lambda: latitude_figure({"a": field()}), "scores: a has the dimensions"),
        (lambda: spread_error_figure({}), "scores: there are none to draw"),
        (lambda: score_card(field()[0], field()[0], field()[0]), "skill: expected rows and col"),
        (lambda: score_card(field(), field()[:2], field()), "lower: has"),
        (lambda: roc_figure({}), "diagrams: there are none to draw"),
    ],
)
def test_what_cannot_be_drawn(draw, says):
    with pytest.raises(ArgumentError, match=says):
        draw()
