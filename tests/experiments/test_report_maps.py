"""Maps and diagrams of a report against the predictions that they are made of."""

import io
import itertools
import re
from base64 import b64decode
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from fakereports import write_target
from PIL import Image

from ens10.errors import FileError
from ens10.experiments.reporting.charts import (
    Dot,
    Scale,
    curves,
    histogram,
    interval_chart,
    loss_limits,
    map_picture,
    nice_ticks,
    scale_of,
)
from ens10.experiments.reporting.diagnostics import QUANTILE, diagnose
from ens10.experiments.scoring.run_results import Epoch, read_run
from ens10.metrics import Interval, reliability_diagram


def field(values, latitude, longitude):
    coords = {"latitude": latitude, "longitude": longitude}
    return xr.DataArray(np.asarray(values, float), coords, ("latitude", "longitude"))


def image_of(svg):
    (data,) = re.findall(r'href="data:image/png;base64,([^"]*)"', svg)
    return np.asarray(Image.open(io.BytesIO(b64decode(data))).convert("RGB"))


def colour(name, share):
    return np.round(255 * np.array(mpl.colormaps[name](share)[:3]))


def test_north_is_up_west_is_left_and_gaps_are_grey():
    values = [[0, 1, 2, 3], [-3, -2, -1, np.nan]]
    south_first = field(values, [-45.0, 45.0], [0.0, 90.0, 180.0, 270.0])
    image = image_of(map_picture(south_first, Scale("deviation", 3.0), "x"))
    assert image.shape == (2, 4, 3)
    expected = [[-1, np.nan, -3, -2], [2, 3, 0, 1]]  # from 180 W eastward
    for i, j in np.ndindex(2, 4):
        value = expected[i][j]
        wanted = [150] * 3 if np.isnan(value) else colour("RdBu_r", (value / 3 + 1) / 2)
        np.testing.assert_allclose(image[i, j], wanted, atol=5)


def test_rows_of_uneven_width_are_shown_as_wide_as_they_are():
    poles = field([[0.0] * 2, [1.0] * 2, [2.0] * 2], [90.0, 0.0, -90.0], [0.0, 180.0])
    image = image_of(map_picture(poles, Scale("no", 2.0), "x"))
    red = image[:, 0].astype(int)
    assert len(red) == 4  # rows at the poles are half as high
    assert [tuple(row) for row in red[1:3]] == [tuple(red[1])] * 2
    np.testing.assert_allclose(red[0], colour("viridis", 0.0), atol=5)
    np.testing.assert_allclose(red[3], colour("viridis", 1.0), atol=5)


def test_fine_grids_are_averaged():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(361, 720))
    svg = map_picture(
        field(values, np.linspace(90, -90, 361), np.arange(0, 360, 0.5)), Scale("deviation", 4), "x"
    )
    assert image_of(svg).shape[1] == 360
    assert len(svg) < 120_000


def test_ratios_are_shown_on_both_sides_alike():
    scale = scale_of([field([[0.5, 1.0, 2.0]], [0.0], [0.0, 1.0, 2.0])], "ratio")
    assert scale.limit == 2.0
    np.testing.assert_allclose(scale.norm([0.5, 1.0, 2.0]), [0.0, 0.5, 1.0])
    assert scale.ticks == [0.5, 1.0, 2.0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("runs"), dates=30, grid=(4, 8))


def diagnosed(folder):
    return diagnose(folder, read_run(folder).states["time"].to_numpy())


@pytest.mark.parametrize("name", ["raw", "unet"])
def test_maps_of_bias_and_spread_are_of_the_predictions(folders, name, monkeypatch):
    monkeypatch.setattr("ens10.experiments.reporting.diagnostics._BLOCK", 700)  # a few dates
    held = xr.open_zarr(folders[name] / "predictions.zarr", consolidated=False).load()
    found = diagnosed(folders[name])
    if name == "raw":
        mean, variance = held["members"].mean("number"), held["members"].var("number", ddof=1)
        inflation = 6 / 5
    else:
        mean, variance, inflation = held["mu"], held["sigma"] ** 2, 1.0
    error = mean - held["truth"]
    np.testing.assert_allclose(found.bias, error.mean("time"), rtol=1e-6)
    np.testing.assert_allclose(found.spread, np.sqrt(variance.mean("time")), rtol=1e-6)
    ratio = np.sqrt(inflation * variance.mean("time") / (error**2).mean("time"))
    np.testing.assert_allclose(found.ratio, ratio, rtol=1e-6)


def test_reliability_is_of_truth_above_its_quantile(folders):
    held = xr.open_zarr(folders["raw"] / "predictions.zarr", consolidated=False).load()
    threshold = held["truth"].quantile(QUANTILE, "time")
    happened = (held["truth"] > threshold).to_numpy().ravel()
    given = (held["members"] > threshold).mean("number")
    weights = np.broadcast_to(
        np.cos(np.deg2rad(held["latitude"])).to_numpy()[:, None], held["truth"].shape[1:]
    )
    weights = np.broadcast_to(weights, held["truth"].shape).ravel()
    inside = np.isclose(given.transpose("time", "latitude", "longitude"), 0.2).ravel()
    diagram = reliability_diagram(diagnosed(folders["raw"]).events)
    seen = float(diagram["observed_frequency"].sel(bin=0.2, method="nearest"))
    assert seen == pytest.approx(np.average(happened[inside], weights=weights[inside]), rel=1e-6)
    assert int(diagram["count"].sum()) == happened.size


def test_predictions_of_other_dates_are_none_of_the_scores(folders, tmp_path):
    assert diagnosed(folders["optimum"]) is None  # it has none
    later = read_run(folders["unet"]).states["time"].to_numpy() + np.timedelta64(1, "D")
    assert diagnose(folders["unet"], later) is None
    (tmp_path / "predictions.zarr").mkdir()
    with pytest.raises(FileError, match="holds no predictions"):
        diagnose(tmp_path, later)


def points(path):
    """The corners of a path of an SVG."""
    return np.array([float(v) for v in re.findall(r"-?[\d.]+", path)]).reshape(-1, 2)


def lines_of(svg, colour):
    """The lines of a colour of the page, by their points."""
    return [
        points(re.search(r'd="([^"]*)"', element)[1])
        for element in re.findall(rf"<path[^>]*stroke: var\(--{colour}\)[^>]*>", svg)
        if "fill: none" in element
    ]


def test_bars_are_as_high_as_their_frequencies():
    counts = xr.DataArray([30, 10, 10, 10], dims="pit_bin")
    svg = histogram(counts, "x", 1.5, reference=False)  # the first bar is cut off
    (bars,) = re.findall(r'<path d="([^"]*)" style="fill: var\(--mark\)', svg)
    corners = points(bars.replace("z", ""))
    (calibrated,) = lines_of(svg, "ink")
    base, one = corners[:, 1].max(), calibrated[0, 1]
    middles = corners[:, 0].min() + np.ptp(corners[:, 0]) * (np.arange(4) + 0.5) / 4
    tops = [
        next(a[1] for a, b in itertools.pairwise(corners) if a[1] == b[1] and a[0] < x < b[0])
        for x in middles
    ]
    np.testing.assert_allclose((base - np.array(tops)) / (base - one), [1.5, 2 / 3, 2 / 3, 2 / 3])
    assert "first bin 2.00" in svg
    assert "var(--other)" in histogram(counts, "x", 2.0, reference=True)


def test_pictures_are_parts_of_a_page(folders):
    svg = curves(read_run(folders["unet"]), (0.5, 0.8))
    drawn = map_picture(field([[0.0, 1.0]], [0.0], [0.0, 1.0]), Scale("no", 1.0), "x")
    assert "<image" in drawn
    assert " id=" not in svg + drawn
    assert not re.findall("font|#[0-9a-f]{6}|<g|<defs|<metadata|clip", svg)
    assert '<text style="text-anchor: end"' in svg
    assert svg == curves(read_run(folders["unet"]), (0.5, 0.8))


def test_dots_and_spans_lie_where_their_values_are():
    dots = [
        Dot("a", Interval(1.0, 0.9, 1.1), "1"),
        Dot("b", Interval(2.0, 1.8, 2.2), "2", reference=True),
        Dot("c", Interval(9.0, 8.0, 10.0), "9"),
        Dot("d", Interval(1.5, np.nan, np.nan), "1.5"),
    ]
    chart = interval_chart(dots, "CRPS (K)", rule=0.9, rule_label="best")
    first, second, beyond, bare = chart["rows"]
    at = [float(row["place"]) for row in (first, second, bare)]
    assert at[2] - at[0] == pytest.approx((at[1] - at[0]) / 2, abs=0.02)  # 1.5 between 1 and 2
    low, high = float(first["low"]), 100 - float(first["high"])
    assert (low + high) / 2 == pytest.approx(at[0], abs=0.02)
    assert low == pytest.approx(float(chart["rule"]))
    assert [row["beyond"] for row in chart["rows"]] == [False, False, True, False]
    assert bare["low"] is bare["high"] is None
    assert beyond["place"] == "100.00"


def test_curves_mark_the_best_epoch(folders):
    svg = curves(read_run(folders["unet"]), (0.5, 0.8))
    (training,), (validation,) = (lines_of(svg, colour) for colour in ("other", "mark"))
    assert len(training) == len(validation) == 6
    dot = re.search(r"translate\(([\d.]+) ([\d.]+)\)", svg).groups()
    assert [float(v) for v in dot] == validation[4].tolist()
    cut = curves(read_run(folders["unet"]), (0.62, 0.65))
    (line,) = lines_of(cut, "mark")
    assert line[:, 1].max() == line[4, 1] < 131  # the end of the axis, above its labels


def test_a_steep_beginning_is_cut_off_and_nothing_else(folders):
    run = read_run(folders["unet"])
    low, high = loss_limits(run)
    values = [v for e in run.log for v in (e.train_loss, e.val_loss)]
    assert low < min(values) < max(values) < high
    steep = replace(run, log=(Epoch(-1, 50.0, 40.0, 40.0), *run.log))
    assert high <= loss_limits(steep)[1] < 2.0


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.757, 1.1), (-3e-4, 5e-4), (12, 1.2e5), (2, 2)]
)
def test_ticks_are_round_and_inside(low, high):
    ticks = nice_ticks(low, high)
    assert 1 <= len(ticks) <= 7
    assert all(low <= tick <= high or tick == pytest.approx(low) for tick in ticks)
    assert all(len(f"{tick:.6g}") <= 7 for tick in ticks)
