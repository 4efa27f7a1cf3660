"""Maps of the skill score, on plain axes of any latitude-longitude grid."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ens10.errors import UnknownNameError
from ens10.experiments.figures import STYLE, WIDTH, new_figure
from ens10.experiments.finished import FinishedRun
from ens10.grid import is_global
from ens10.metrics import finish_mean

Floats = npt.NDArray[np.float64]
_SPACINGS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90)
_MOST_TICKS = 7


def skill_maps(runs: Sequence[FinishedRun], reference: str = "raw") -> Figure | None:
    """CRPSS against the reference at each grid point, one panel a run, one colour bar.

    Blue is better than the reference and red worse; points without truth are grey.

    Args:
        runs: on one grid, the reference among them.
        reference: name of the run that skill is measured against.

    Returns:
        The figure, or None if there is no other run, or none kept its map.

    Raises:
        UnknownNameError: no run of that name.
    """
    against = next((run for run in runs if run.name == reference), None)
    if against is None:
        raise UnknownNameError("reference", reference, [run.name for run in runs])
    shown = [run for run in runs if run is not against and "crps_map_sum" in run.states]
    if not shown or "crps_map_sum" not in against.states:
        return None
    skills = {run.name: skill_map(run.states, against.states) for run in shown}
    with mpl.rc_context(STYLE):
        return _drawn(skills, f"CRPSS against {reference} (%)")


def skill_map(states: xr.Dataset, reference: xr.Dataset) -> xr.DataArray:
    """1 - CRPS / CRPS of the reference at each grid point; NaN where the latter is 0 or missing."""
    other = finish_mean(reference, "crps_map")
    own = finish_mean(states, "crps_map").assign_coords(other.coords)
    return 1.0 - own / other.where(other > 0)


def cell_edges(centres: npt.ArrayLike, limit: float = np.inf) -> Floats:
    """Edges of cells around their centres: half-way between them, cut at +-limit.

    Args:
        centres: shape (n,), rising or falling, not necessarily evenly.
        limit: 90 for latitudes.

    Returns:
        Shape (n + 1,).
    """
    c = np.asarray(centres, dtype=np.float64)
    half = np.diff(c) / 2 if c.size > 1 else np.array([0.5])
    edges = np.concatenate([c[:1] - half[0], c[:-1] + half[: c.size - 1], c[-1:] + half[-1]])
    cut: Floats = np.clip(edges, -limit, limit)
    return cut


def unwrapped(longitude: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], Floats]:
    """The order of the columns from west to east, and their longitudes in that order.

    A regional grid begins after the widest gap, wherever the meridians of 0 and 180 lie; a
    global one begins at 180 W.

    Args:
        longitude: shape (W,), degrees east, in [0, 360) or [-180, 180), in any order.

    Returns:
        Indices and rising longitudes, each of shape (W,).
    """
    east = np.mod(np.asarray(longitude, dtype=np.float64) + 180.0, 360.0) - 180.0
    order = np.argsort(east, kind="stable")
    east = east[order]
    if is_global(east):
        return order, east
    gaps = np.diff(east, append=east[0] + 360.0)
    first = (int(np.argmax(gaps)) + 1) % east.size
    east = np.concatenate([east[first:], east[:first] + 360.0])
    shift = 360.0 if east.mean() >= 180.0 else 0.0
    return np.roll(order, -first), east - shift


def degrees(value: float, names: str) -> str:
    """A coordinate as a label, such as 30°N.

    Args:
        value: degrees north or east.
        names: letters of the positive and negative side, "NS" or "EW".
    """
    angle = (value + 180.0) % 360.0 - 180.0 if names == "EW" else value
    if angle in (0.0, -180.0):
        return f"{abs(angle):g}°"
    return f"{abs(angle):g}°{names[int(angle < 0)]}"


def _drawn(skills: dict[str, xr.DataArray], label: str) -> Figure:
    first = next(iter(skills.values()))
    order, east = unwrapped(first["longitude"])
    x, y = cell_edges(east), cell_edges(first["latitude"], 90.0)
    # a degree of longitude is shorter away from the equator; a global map is left as it is
    stretch = 1.0 if np.ptp(x) > 180 else 1.0 / np.cos(np.deg2rad((y[0] + y[-1]) / 2))
    across = min(len(skills), 2 if len(skills) < 7 else 3)
    down = -(-len(skills) // across)
    shape = float(np.clip(stretch * np.ptp(y) / np.ptp(x), 0.3, 1.6))
    panel = (WIDTH - 0.6) / across * (0.62 if across == 1 else 1.0)
    figure = new_figure(0.95 + down * (0.35 + shape * (panel - 0.2)))
    grid = figure.subplots(down, across, squeeze=False).ravel()
    top = _limit(skills)
    colours = ScalarMappable(Normalize(-top, top), mpl.colormaps["RdBu"].with_extremes(bad="0.75"))
    extremes = [float(abs(skill).max()) for skill in skills.values()]
    for n, (axes, (name, skill)) in enumerate(zip(grid, skills.items(), strict=False)):
        values = 100 * skill.transpose("latitude", "longitude").to_numpy()[:, order]
        axes.pcolormesh(x, y, np.ma.masked_invalid(values), norm=colours.norm, cmap=colours.cmap)
        axes.set_aspect(stretch)
        axes.set_title(name, loc="left")
        _ticks(axes, x, y)
        axes.tick_params(labelleft=n % across == 0, labelbottom=n + across >= len(skills))
        axes.spines[["top", "right"]].set_visible(True)
    for axes in grid[len(skills) :]:
        axes.set_visible(False)
    extend = "both" if 100 * np.nanmax([0.0, *extremes]) > top else "neither"
    bar = figure.colorbar(
        colours, ax=grid[: len(skills)], location="bottom", shrink=0.6, aspect=40, extend=extend
    )
    bar.set_label(label)
    return figure


def _limit(skills: dict[str, xr.DataArray]) -> float:
    """A round number of percent, within which nearly all points of positive skill lie.

    Skill has no lower bound, so that a forecast much worse than the reference would otherwise
    take the colours from all others; half of all points are within it in any case.
    """
    values = np.concatenate([skill.to_numpy().ravel() for skill in skills.values()])
    values = 100 * values[np.isfinite(values)]
    better = values[values > 0]
    most = max(
        float(np.percentile(better, 98)) if better.size else 0.0,
        float(np.median(np.abs(values))) if values.size else 0.0,
    )
    return next((float(n) for n in (1, 2, 5, 10, 15, 20, 30, 40, 50, 75) if n >= most), 100.0)


def _ticks(axes: Axes, x: Floats, y: Floats) -> None:
    for axis, edges, names in ((axes.xaxis, x, "EW"), (axes.yaxis, y, "NS")):
        low, high = edges.min(), edges.max()
        spacing = next((s for s in _SPACINGS if (high - low) / s < _MOST_TICKS), 90)
        if names == "EW" and high - low > 180:
            spacing = 90  # room for labels in narrow panels
        ticks = spacing * np.arange(np.ceil(low / spacing), np.floor(high / spacing) + 1)
        axis.set_ticks(list(ticks), [degrees(round(t, 6), names) for t in ticks])
