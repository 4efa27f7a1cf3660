"""Attainable skill in the displaced world, and the knowledge that it requires.

    python -m ens10.experiments.studies.displaced_world WORK --out FOLDER --figure FILE

WORK keeps the world, which is written if it does not exist. The table has, for each target, the
CRPS of the raw ensemble and of the optimum on the last two years, the share of the attainable skill
that the optimum's formula loses without one kind of knowledge, and the share that a regression at
each point on all channels attains: fitted to the years before and, as an upper bound, to all dates,
the test dates included. A second table has regressions with neighbours, flow and place, and without
one of them.
"""

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr

from ens10.channels import field_of
from ens10.errors import ArgumentError
from ens10.experiments.runner.pointwise import annual_columns, normal_of_points
from ens10.experiments.runner.tables import write_files
from ens10.experiments.scoring.writers import columns_of, markdown_of
from ens10.experiments.studies.study import image_of
from ens10.grib import LatLonGrid
from ens10.grid import area_weights
from ens10.metrics import crps_ensemble, crps_normal
from ens10.metrics.distributions import Distribution
from ens10.metrics.figures.style import COLOURS, INK, STYLE, line_style, new_figure
from ens10.models.statistical.advection import Advection
from ens10.progress import track
from ens10.source import open_source
from ens10.synthetic import World
from ens10.synthetic.atmosphere import Atmosphere, Channel
from ens10.synthetic.displaced import Knowledge
from ens10.synthetic.weather import Weather
from ens10.synthetic.world import ForecastFiles
from ens10.usage import command_parser, count, reports_errors

Floats = npt.NDArray[np.float64]
Dates = npt.NDArray[np.datetime64]
_Values = dict[str, list[Any]]
VARIABLES = ("t2m", "u10", "v10", "tp", "si10", "z", "t", "u", "v")
KNOWLEDGE: tuple[str, ...] = get_args(Knowledge)
TEST_YEARS = 2
STEP = 48
# tp is not near a normal distribution: a regression of its error is no fair forecast
REGRESSED = ("t2m", "z_500", "t_850", "si10")
_NEW, _SAME, _ALL = "new dates", "same dates", "all three"
_UNITS = {"tp": (1000.0, "mm"), "z_500": (1.0, "m2 s-2"), "si10": (1.0, "m s-1")}


@dataclass(frozen=True)
class Worth:
    """Attainable skill of one target, and the skill of regressions.

    Attributes:
        target: name of the channel.
        raw: CRPS of the raw ensemble by test date, its units.
        optimum: CRPS of the optimum by test date.
        spread: root mean square of the ensemble deviation over that of the mean's error.
        crps_without: CRPS by test date of the optimum's formula without one kind of knowledge.
        channel_skill: attained skill in percent of a regression on all channels, out of sample and
            in sample; empty for tp.
        predictor_skill: attained skill in percent, out of sample, of a regression with the gradient
            of the forecast and its products with the wind ("all three"), and without one kind of
            knowledge, by its name (see `_designs`); empty for tp.
    """

    target: str
    raw: Floats
    optimum: Floats
    spread: float
    crps_without: Mapping[str, Floats]
    channel_skill: tuple[float, float] | tuple[()]
    predictor_skill: Mapping[str, float]

    @property
    def optimum_skill(self) -> float:
        """Return the share of the raw CRPS that the optimum removes, in percent."""
        return float(100 * (1 - self.optimum.mean() / self.raw.mean()))

    def skill_loss(self, knowledge: str) -> tuple[float, float]:
        """Return the share of attainable skill lost without one input (%), and its 95 % margin.

        The margin is 1.96 standard errors over the dates.
        """
        loss, gain = self.crps_without[knowledge] - self.optimum, (self.raw - self.optimum).mean()
        error = loss.std(ddof=1) / np.sqrt(len(loss))
        return float(100 * loss.mean() / gain), float(196 * error / gain)


def world_of(folder: Path, grid: str, years: Sequence[int], dates: int, seed: int) -> World:
    """Return the world of a folder; write it if it does not exist."""
    world = World(grid, years, dates, VARIABLES, seed, steps=(STEP,), kind="displaced")
    return world.write_once(folder, progress=True)


def worth_of(world: World, folder: Path) -> list[Worth]:
    """Measure the attainable skill and the skill of regressions for each target of a world.

    Args:
        world: whose files have been written.
        folder: of these files.
    """
    weights = area_weights(world.grid.latitude()) / world.grid.rows
    last_year = max(world.years) - TEST_YEARS
    parts: dict[str, _Values] = {target: {} for target in world.targets}
    means: _Values = {}
    valid_times = []
    truths = open_source(folder / "truth")
    observed = {target: field_of(truths, target) for target in world.targets}
    for day in track(world.month_days, "measuring", len(world.month_days), True):
        files = ForecastFiles(folder, day)
        for name, members in files.members(files.channels, STEP).items():
            means.setdefault(name, []).append(members.mean("number").to_numpy())
        valid_times.append(members["valid_time"].to_numpy())
        for target, values in parts.items():
            law = world.law(target)
            decoded = files.members(law.channels, STEP)
            times = decoded[target]["valid_time"]
            y = observed[target].sel(time=times.to_numpy()).to_numpy().astype(np.float64)
            y = y.reshape(len(times), *y.shape[-2:])
            for name, value in _values_of(law, decoded, y, last_year, weights).items():
                values.setdefault(name, []).append(value)
    dates, joined_means = np.concatenate(valid_times), _join(means)
    return [
        _worth(target, _join(values), joined_means, dates, world.grid)
        for target, values in parts.items()
    ]


def _join(values: _Values) -> dict[str, Any]:
    return {name: np.concatenate(parts) for name, parts in values.items()}


def _values_of(
    law: Any, decoded: Mapping[str, xr.DataArray], y: Floats, last_year: int, weights: Floats
) -> dict[str, Any]:
    """Return fields of one target in one file, and scores of dates whose year is after `last_year`.

    Returns:
        `truth` and `deviation` (N, H, W), `is_test` (N,), and area means by test date: `raw`,
        `optimum`, `error`, `variance`, and the optimum without each of `KNOWLEDGE`.
    """
    members = decoded[law.channel]
    is_test = members["valid_time"].dt.year.to_numpy() > last_year
    fields = {name: values.isel(time=is_test) for name, values in decoded.items()}
    ensemble, truth = fields[law.channel].to_numpy(), y[is_test]
    scores = {
        "raw": crps_ensemble(ensemble, truth, estimator="plain", member_dim=1),
        "optimum": _crps(law.forecast(fields, STEP), truth),
        "error": (ensemble.mean(axis=1) - truth) ** 2,
        "variance": ensemble.var(axis=1, ddof=1),
    }
    for knowledge in KNOWLEDGE:
        scores[knowledge] = _crps(law.remove_knowledge([knowledge]).forecast(fields, STEP), truth)
    means = {name: _area_mean(np.asarray(values), weights) for name, values in scores.items()}
    deviation = members.std("number", ddof=1).to_numpy()
    return {"truth": y, "deviation": deviation, "is_test": is_test, **means}


def _worth(
    target: str, values: Mapping[str, Any], means: Mapping[str, Floats], valid: Dates,
    grid: LatLonGrid,
) -> Worth:  # fmt: skip
    raw, optimum = values["raw"], values["optimum"]
    attained: dict[str, float] = {}
    if target in REGRESSED:
        fields = (values[name] for name in ("deviation", "truth", "is_test"))
        dates = _TargetDates(valid, means[target], *fields)
        weights = area_weights(grid.latitude()) / grid.rows
        gain = (raw - optimum).mean()
        for name, crps in _regressions(dates, means, target, grid).items():
            attained[name] = float(100 * (raw - _area_mean(crps, weights)).mean() / gain)
    channel_skill = (attained.pop(_NEW), attained.pop(_SAME)) if attained else ()
    spread = float(np.sqrt(values["variance"].mean() / values["error"].mean()))
    crps_without = {name: values[name] for name in KNOWLEDGE}
    return Worth(target, raw, optimum, spread, crps_without, channel_skill, attained)


@dataclass(frozen=True)
class _TargetDates:
    """All dates of one target.

    Attributes:
        valid: (N,) valid dates.
        mean: (N, H, W) ensemble means.
        deviation: (N, H, W) of the ensembles.
        truth: (N, H, W).
        test: (N,) True for the dates that are scored.
    """

    valid: Dates
    mean: Floats
    deviation: Floats
    truth: Floats
    test: npt.NDArray[np.bool_]

    def crps(self, design: Floats, *, in_sample: bool = False, pool_points: bool = False) -> Floats:
        """Return the CRPS (M, H, W) on the test dates of a regression of the mean's error.

        The deviation is regressed on that of the ensemble.

        Args:
            design: (N, H, W, K) predictors.
            in_sample: fit to all dates, the test dates included.
            pool_points: fit one set of coefficients for all points.

        Raises:
            ArgumentError: too few dates for the coefficients at each point.
        """
        train = np.ones_like(self.test) if in_sample else ~self.test
        if train.sum() <= design.shape[-1] + 1:
            message = f"{train.sum()} dates to fit {design.shape[-1]} coefficients to at each point"
            raise ArgumentError("dates", message, "Pass more dates or years")
        fields = {"raw_mean": self.mean, "raw_std": self.deviation, "target": self.truth}
        sets = [
            {name: field[mask] for name, field in fields.items()} for mask in (train, self.test)
        ]
        designs, shape = [design[train], design[self.test]], sets[1]["target"].shape
        if pool_points:  # all points are dates of one point
            sets = [{name: field.reshape(-1, 1, 1) for name, field in one.items()} for one in sets]
            designs = [one.reshape(-1, 1, 1, one.shape[-1]) for one in designs]
        mu, sigma = normal_of_points(designs[0], sets[0], designs[1], sets[1], ridge=1e-6)
        crps: Floats = np.asarray(crps_normal(mu, sigma, sets[1]["target"]))
        return crps.reshape(shape)


def _regressions(
    dates: _TargetDates, means: Mapping[str, Floats], target: str, grid: LatLonGrid
) -> dict[str, Floats]:
    """Return the CRPS on the test dates of the regressions of both tables, by name."""
    full_design = _columns(dates, *(_standardise(field) for field in means.values()))
    crps = {_NEW: dates.crps(full_design), _SAME: dates.crps(full_design, in_sample=True)}
    for name, design in _designs(dates, means, target, grid).items():
        crps[name] = dates.crps(design, pool_points=name == "place")
    return crps


def _designs(
    dates: _TargetDates, means: Mapping[str, Floats], target: str, grid: LatLonGrid
) -> dict[str, Floats]:
    """Return predictors (N, H, W, K) of regressions that lack one kind of knowledge.

    The full predictors correct a displacement by the wind to first order: they are the gradient of
    the ensemble mean and its products with the wind at the level of the target. Only the gradient
    remains without the flow, and only the value at the point without the neighbours. Without the
    place the predictors are the full ones, with one set of coefficients for all points.
    """
    advection = Advection()
    points = (grid.latitude().tolist(), grid.longitude().tolist())
    advection.place([f"{name}:mean" for name in means], target, *points)
    winds = [list(means)[place] for place in advection.winds]
    gradient = advection.gradient(torch.from_numpy(dates.mean.astype(np.float32))).double().numpy()
    gradient -= gradient.mean(axis=0)  # what belongs to the place does not move
    slopes = [field / gradient.std() for field in gradient.swapaxes(0, 1)]
    flow = [slope * _standardise(means[wind]) for slope in slopes for wind in winds]
    standard_mean = _standardise(dates.mean)
    full_design = _columns(dates, standard_mean, *slopes, *flow)
    return {
        _ALL: full_design,
        "neighbours": _columns(dates, standard_mean),
        "flow": _columns(dates, standard_mean, *slopes),
        "place": full_design,
    }


def _columns(dates: _TargetDates, *fields: Floats) -> Floats:
    """Return the columns of a regression (N, H, W, K): 1, annual cycle, year, then the fields."""
    years = (dates.valid.astype("datetime64[Y]").astype(float) + 1970 - 2008) / 10
    columns = [*annual_columns(dates.valid), years[:, None, None], *fields]
    return np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.float64)


def _standardise(field: Floats) -> Floats:
    scale = field.std(axis=0)
    return np.asarray((field - field.mean(axis=0)) / np.where(scale > 0, scale, 1.0))


def _crps(best: xr.Dataset, y: Floats) -> Floats:
    return np.asarray(Distribution.from_dataset(best).crps(y), np.float64)


def _area_mean(values: Floats, weights: Floats) -> Floats:
    return np.asarray((values.mean(axis=-1) * weights).sum(axis=-1))


def table_of(worths: Sequence[Worth]) -> str:
    """Return the table of all targets as Markdown."""
    heads = ["target", "raw CRPS", "optimum", "removable (%)", "spread/error"]
    heads += [f"without {name}" for name in KNOWLEDGE]
    heads += ["regression: new dates", "same dates"]
    rows = []
    for worth in worths:
        factor, units = _UNITS.get(worth.target, (1.0, "K"))
        row = [f"{worth.target} ({units})"]
        row += [f"{factor * crps.mean():.3g}" for crps in (worth.raw, worth.optimum)]
        row += [f"{worth.optimum_skill:.1f}", f"{worth.spread:.2f}"]
        row += ["{:.1f} ± {:.1f}".format(*worth.skill_loss(name)) for name in KNOWLEDGE]
        row += [f"{value:.0f}" for value in worth.channel_skill] or ["–", "–"]
        rows.append(row)
    return markdown_of(columns_of(heads, rows))


def predictor_table_of(worths: Sequence[Worth]) -> str:
    """Return the skill of regressions with and without predictors as Markdown."""
    kinds = ("neighbours", "flow", "place")
    heads = ["target", _ALL, *(f"without {name}" for name in kinds)]
    worths = [w for w in worths if w.predictor_skill]
    rows = [
        [w.target, *(f"{w.predictor_skill[name]:.0f}" for name in (_ALL, *kinds))] for w in worths
    ]
    return markdown_of(columns_of(heads, rows))


def draw(worths: Sequence[Worth], world: World, path: Path) -> None:
    """Draw fields of one date, spectra, and the skill lost without each kind of knowledge."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = new_figure(6.6)
        axes: Any = figure.subplot_mosaic(
            [["wind", "wind", "rain", "rain"], ["map", "map", "ground", "ground"],
             ["spectra", "spectra", "worth", "worth"]],
            height_ratios=[1, 1, 1.35],
        )  # fmt: skip
        _draw_fields(axes, world)
        _draw_spectra(axes["spectra"])
        _draw_worth(axes["worth"], worths)
        image = image_of(figure, 140, format=path.suffix[1:] or "png")
    write_files(path.parent, {path.name: image})


def _draw_fields(axes: Mapping[str, Any], world: World) -> None:
    generator: Any = world._atmosphere
    start = dt.date(world.years[0], 1, 1).replace(
        month=int(world.month_days[0][:2]), day=int(world.month_days[0][2:])
    )
    fields = {(c.name, c.level): m for s, c, m in generator.forecast(start) if s == STEP}
    ground, latitude = generator.ground, world.grid.latitude()
    longitude = world.grid.longitude()
    mean = {key: members.mean(axis=0) for key, members in fields.items()}
    law = world.law("t2m")
    east, north = law.displacement(mean["u10", None], mean["v10", None])  # type: ignore[union-attr]
    thin = (slice(2, None, 3), slice(None, None, 4))
    height, rain = fields["z", 500][0] / 98.0665, np.sqrt(1000 * fields["tp", None][0])
    panels = {
        "wind": (height, "viridis", "z500 of a member (dam), wind at 500 hPa"),
        "rain": (rain, "Blues", "√ of precipitation in 48 h (√mm)"),
        "map": (world.region, "Pastel1", "hidden map, displacement of t2m"),
        "ground": (fields["t2m", None][0], "RdYlBu_r", "t2m of a member (K), ground of 500 m"),
    }
    for name, (values, colours, title) in panels.items():
        ax = axes[name]
        mesh = ax.pcolormesh(longitude, latitude, values, cmap=colours, shading="nearest")
        if name != "map":
            ax.figure.colorbar(mesh, ax=ax, pad=0.01)
        ax.set(title=title, xticks=[0, 90, 180, 270], yticks=[-60, 0, 60])
    grid = longitude[thin[1]], latitude[thin[0]]
    axes["wind"].quiver(*grid, mean["u", 500][thin], mean["v", 500][thin], color=INK, width=0.003)
    axes["map"].quiver(*grid, east[thin], north[thin], color=INK, width=0.003)
    axes["ground"].contour(longitude, latitude, ground.orography, [500], colors=INK, linewidths=0.7)


def _draw_spectra(ax: Any) -> None:
    """Draw zonal spectra between 35 and 65 degrees of both kinds of world."""
    latitude, columns = np.linspace(90, -90, 121), 240
    channels = [Channel(name, 500) for name in ("z", "t", "u")]
    starts = [dt.date(2008, 1, 1) + dt.timedelta(days=20 * n) for n in range(8)]
    rows = (np.abs(latitude) > 35) & (np.abs(latitude) < 65)
    order = np.arange(2, 56)
    for kind, maker in (("displaced", Weather), ("pointwise", Atmosphere)):
        world = maker(latitude, columns, channels, (STEP,), 2, starts, 0)
        fields: dict[str, list[Any]] = {c.name: [] for c in channels}
        for start in starts:
            for _, channel, members in world.forecast(start):
                fields[channel.name].append(members[:, rows])
        for n, name in enumerate(("z", "t", "u") if kind == "displaced" else ("z",)):
            power = (np.abs(np.fft.rfft(fields[name], axis=-1)) ** 2).mean(axis=(0, 1, 2))
            label, style = f"{name} at 500 hPa", line_style(n)
            if kind != "displaced":
                label, style = "z, pointwise world", {"color": "#7F7F7F", "linestyle": "--"}
            ax.loglog(order, power[order] / power[2:6].mean(), label=label, **style)
    for slope, height in ((3.0, 3.0), (5 / 3, 6.0)):
        label = "-3" if slope == 3 else "-5/3"
        ax.loglog(order[8:], height * (order[8:] / 8.0) ** -slope, color=INK, linewidth=0.7)
        ax.text(50, 1.3 * height * (50 / 8.0) ** -slope, label, fontsize=8)
    ax.set_ylim(1e-6, 20)
    ax.set_xticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    ax.minorticks_off()
    ax.set(xlabel="zonal wavenumber, 35 to 65 degrees", title="power spectra, relative")
    ax.legend(fontsize=7, loc="lower left")


def _draw_worth(ax: Any, worths: Sequence[Worth]) -> None:
    """Draw the skill that the optimum's formula loses without each kind of knowledge."""
    width = 0.8 / len(KNOWLEDGE)
    for k, knowledge in enumerate(KNOWLEDGE):
        values = np.array([worth.skill_loss(knowledge) for worth in worths])
        ax.bar(
            np.arange(len(worths)) + (k - 2) * width, values[:, 0], width, yerr=values[:, 1],
            color=COLOURS[k], label=knowledge, error_kw={"linewidth": 0.7},
        )  # fmt: skip
    ax.set_xticks(range(len(worths)), [worth.target for worth in worths])
    ax.set(ylabel="attainable skill lost (%)", title="what knowledge is worth")
    ax.set_ylim(0, 1.45 * ax.get_ylim()[1])
    ax.legend(fontsize=7, ncols=2)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command_parser("python -m ens10.experiments.studies.displaced_world")
    parser.add_argument("work", type=Path, help="folder of the world")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of the table")
    parser.add_argument("--figure", type=Path, metavar="FILE")
    parser.add_argument("--grid", default="46x96", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", type=count, default=20, help="from 1998 (default: %(default)s)")
    parser.add_argument("--dates", type=count, default=36, help="a year (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    years = range(1998, 1998 + options.years)
    folder = options.work / f"{options.grid}-{options.years}x{options.dates}-seed{options.seed}"
    options.work.mkdir(parents=True, exist_ok=True)
    world = world_of(folder, options.grid, years, options.dates, options.seed)
    worths = worth_of(world, folder)
    table = f"{table_of(worths)}\n{predictor_table_of(worths)}"
    write_files(options.out, {"table.md": table})
    print(table)
    if options.figure is not None:
        draw(worths, world, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
