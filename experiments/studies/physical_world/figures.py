"""A figure of the world: maps of the bias, spread over error, and rank histograms."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ens10.experiments.studies.physical_world.evaluation import (
    TARGETS,
    Case,
    predict_bias,
    rank_excess,
)
from ens10.experiments.studies.physical_world.fields import GRID
from ens10.metrics.figures.style import GREY, STYLE, in_units, line_style, new_figure

_MAPS = ("t2m", "z500", "t850", "si10")
_STEP = 48


def world_figure(cases: Mapping[tuple[str, int], Case], frame: pd.DataFrame) -> Figure:
    """Draw four maps of the bias at 48 h, spread over error, and the ranks of the truth."""
    with mpl.rc_context(STYLE):
        figure = new_figure(8.0)
        axes = figure.subplots(3, 2)
        for axis, name in zip(axes.flat, _MAPS, strict=False):
            _map(figure, axis, name, cases[name, _STEP])
        _ratios(axes[2, 0], frame)
        _ranks(axes[2, 1], cases)
    return figure


def _map(figure: Figure, axis: Any, name: str, case: Case) -> None:
    bias = predict_bias(case.error, case.starts, case.starts).mean(0)
    largest = float(np.quantile(np.abs(bias), 0.995)) or 1.0
    image = axis.pcolormesh(
        GRID.longitude(), GRID.latitude(), bias, cmap="RdBu_r", vmin=-largest, vmax=largest
    )
    figure.colorbar(image, ax=axis)
    units = in_units(TARGETS[name][1])
    axis.set(title=f"mean error of {name} at {_STEP} h{units}", xlabel="°E", ylabel="°N")
    axis.set(xticks=range(0, 360, 90), yticks=range(-60, 61, 30))


def _ratios(axis: Any, frame: pd.DataFrame) -> None:
    for n, (name, rows) in enumerate(frame.groupby("target", sort=False)):
        color = line_style(n)["color"]
        axis.plot(rows["step"], rows["spread_error"], "o-", color=color, label=str(name))
        axis.plot(rows["step"], rows["perfect_spread_error"], "o--", color=color, mfc="white")
    axis.axhline(1.0, color=GREY, lw=0.8)
    axis.set(title="spread / error: raw (solid), perfect model (dashed)", xlabel="lead time (h)")
    axis.set(xticks=sorted(set(frame["step"])), ylim=(0.0, None))
    axis.legend(fontsize="small", ncols=3, loc="lower center")


def _ranks(axis: Any, cases: Mapping[tuple[str, int], Case]) -> None:
    for n, name in enumerate(("t2m", "z500")):
        case = cases[name, _STEP]
        truth, color = case.truth[case.score_mask], line_style(n)["color"]
        runs = [("raw", "-", case.forecast[case.score_mask])]
        if case.perfect is not None:
            runs.append(("perfect model", "--", case.perfect))
        for label, style, members in runs:
            even = 100 / (members.shape[1] + 1)
            share = 100 * rank_excess(members, truth) + even
            axis.plot(share, f"o{style}", color=color, ms=3, label=f"{name} {label}")
            axis.axhline(even, color=GREY, lw=0.8)
    axis.set(title=f"rank of the truth at {_STEP} h", xlabel="rank", ylabel="frequency (%)")
    axis.set(xticks=range(0, members.shape[1] + 1, 2), ylim=(0.0, None))
    axis.legend(fontsize="small", loc="upper right")
