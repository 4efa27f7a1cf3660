"""How many raw members a post-processed forecast is worth (Groenquist's question).

    python -m ens10.experiments.studies.members_worth runs/raw runs/unet runs/poet --out worth

The mean CRPS of M members that are exchangeable is CRPS_inf + c / M, exactly: with A the mean
absolute error of a member and D the mean absolute difference of two, it is A - (1 - 1/M) D / 2
(Ferro et al. 2008, doi:10.1002/met.45; Ferro 2014, doi:10.1002/qj.2270). CRPS_inf = A - D / 2 is
the fair CRPS and c = D / 2. Both come from the members held, so that the raw CRPS of any number
of members is known, if more of them would be drawn like those. A forecast of CRPS C is worth

    M = c / (C - CRPS_inf)

members, and more than any number where C is not above CRPS_inf: what no number of members mends
is the ensemble's bias and its wrong spread. `RUN/sizes.csv` (`python -m ens10.experiments.sizes`)
adds what a model scores that is given fewer members.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.members import expected_crps
from ens10.experiments.reading import open_predictions, reading
from ens10.experiments.report import png
from ens10.experiments.run_results import FinishedRun, read_runs
from ens10.experiments.runner.tables import write_files
from ens10.experiments.tables import FEW_DATES
from ens10.experiments.writers import ABSENT, columns_of, csv_of, markdown_of
from ens10.metrics import Interval, interval, score_states
from ens10.metrics.figures.style import BLUE, GREY, INK, ORANGE, STYLE, in_units, new_figure
from ens10.metrics.uncertainty import (
    Floats,
    Method,
    Sums,
    blocks_in_words,
    mean_of,
    mean_sums,
    paired_sums,
)
from ens10.usage import command_parser, reports_errors

RAW = "raw"
SIZES = (1, 2, 5, 10, 20, 50, 100)
TABLE, PLAIN, FIGURE = "table.md", "table.csv", "worth.png"
_ANY = "more than any number"
_ROW, _ABOVE = 0.24, 2.3  # inches: a run, the panel of the curve
_MOST = 200  # members that the curve is drawn to
_RIGHT = ("axes fraction", "data")
_APART = 0.045  # of the width: numbers of members nearer than that are not both named


@dataclass(frozen=True)
class RawCurve:
    """The mean CRPS of the raw ensemble by its number of members.

    Attributes:
        name: of the run.
        units: of the CRPS.
        held: members that were scored.
        plain: their CRPS.
        fair: the limit of ever more members.
        measured: CRPS of the first members alone, by their number, where that was measured.
    """

    name: str
    units: str
    held: int
    plain: float
    fair: float
    measured: dict[int, float]

    def crps(self, members: float) -> float:
        """Expected CRPS of so many members; infinity gives the limit."""
        return expected_crps(self.plain, self.fair, self.held, members)

    def members(self, crps: float) -> float:
        """The number of members with that CRPS; infinity where no number has it."""
        return equal_members(crps, self.plain, self.fair, self.held)


@dataclass(frozen=True)
class Worth:
    """What one forecast is worth.

    Attributes:
        name: of the run.
        given: raw members that it was given; None for all that there are.
        crps: its mean CRPS.
        members: raw members with the same CRPS; infinite where no number has it. The bounds are
            over dates, NaN where the CRPS of each date is not known.
    """

    name: str
    given: int | None
    crps: float
    members: Interval


def equal_members(crps: float, plain: float, fair: float, held: int) -> float:
    """The number of members whose expected CRPS is `crps`.

    Args:
        crps: of the other forecast.
        plain: CRPS of the members held.
        fair: their fair CRPS.
        held: how many there are.

    Returns:
        held (plain - fair) / (crps - fair); infinity where `crps` is not above `fair`.

    Raises:
        ArgumentError: members that are all the same, whose CRPS depends on no number.
    """
    if not plain > fair:
        raise ArgumentError("raw", "its plain CRPS is not above its fair one", "Score it anew")
    return held * (plain - fair) / (crps - fair) if crps > fair else float("inf")


def raw_curve(raw: FinishedRun) -> RawCurve:
    """The curve of a scored ensemble.

    Raises:
        ArgumentError: no ensemble of two or more members.
    """
    members = int(raw.states.attrs.get("members") or 0)
    if members < 2 or "crps_fair_sum" not in raw.states:
        message = f"{raw.name} is not scored as an ensemble of two or more members"
        raise ArgumentError("raw", message, "Give the raw ensemble, with its fair CRPS")
    plain, fair = (_mean(raw, name) for name in ("crps", "crps_fair"))
    equal_members(plain, plain, fair, members)
    return RawCurve(raw.name, raw.units, members, plain, fair, {})


def worth_of(
    run: FinishedRun, raw: FinishedRun, *, confidence: float = 0.95, seed: int = 0
) -> Worth:
    """How many raw members a run's CRPS equals, with bounds over dates.

    Dates are resampled for both together, and the bounds are those of 1 / M, which passes through
    0 where M passes through infinity.

    Args:
        run: scored on the dates of `raw`.
        raw: scored ensemble.
        confidence: of the bounds.
        seed: of the bootstrap.

    Raises:
        ArgumentError: `raw` is no ensemble; runs scored on different points.
        MissingDataError: runs scored on different dates.
    """
    members = raw_curve(raw).held
    sums = paired_sums(run.states, raw.states, "crps")
    fair = mean_sums(raw.states.sel(time=run.states["time"]), "crps_fair")
    sums |= {f"fair_{part}": values for part, values in fair.items()}
    order = np.argsort(run.states["time"].to_numpy(), kind="stable")
    date_indices = order[sums["weight"][order] != 0]
    method: Method = "student" if date_indices.size < FEW_DATES else "bootstrap"

    def inverse(s: Sums) -> Floats:
        crps, plain, limit = (
            mean_of({"sum": s[f"{of}sum"], "weight": s[f"{of}weight"]})
            for of in ("", "reference_", "fair_")
        )
        return mean_of({"sum": crps - limit, "weight": members * (plain - limit)})

    parts = {name: values[date_indices] for name, values in sums.items()}
    result = interval(parts, inverse, method=method, confidence=confidence, seed=seed)
    bounds = Interval(
        _members(result.value), _members(result.upper), _members(result.lower), result.block_length
    )
    return Worth(run.name, None, _mean(run, "crps"), bounds)


def _members(inverse: float) -> float:
    if np.isnan(inverse):
        return float("nan")
    return 1.0 / inverse if inverse > 0 else float("inf")


def of_sizes(run: FinishedRun, curve: RawCurve) -> list[Worth]:
    """What a model is worth that was given fewer members, as `sizes.csv` has it."""
    nan = float("nan")
    return [
        Worth(run.name, size, crps, Interval(curve.members(crps), nan, nan))
        for size, crps in sorted(run.sizes.items())
        if size < curve.held
    ]


def all_worths(
    runs: Sequence[Path | str],
    raw: Path | str | None = None,
    *,
    measure: Sequence[int] = (),
) -> tuple[RawCurve, list[Worth]]:
    """The raw curve, and what each run is worth, the worst CRPS first.

    Args:
        runs: folders of scored runs of the same dates and points.
        raw: folder of the ensemble that is counted in; None for the run called "raw". A corrected
            ensemble may stand here too (`member_by_member`), which tells how many corrected members
            equal the raw ones; its members are taken for exchangeable then.
        measure: numbers of members whose CRPS is measured as well, from the first members of the
            predictions of `raw`.

    Raises:
        UnknownNameError: none is called "raw".
        ArgumentError: runs that cannot be compared; no ensemble; no run beside it; a number to
            measure that is not between 2 and the members held.
        FileError, MissingDataError: as `read_runs`.
    """
    raw_folders = [] if raw is None else [Path(raw)]
    model_folders = [
        Path(run)
        for run in runs
        if not raw_folders or Path(run).resolve() != raw_folders[0].resolve()
    ]
    folders = [*raw_folders, *model_folders]
    finished = read_runs(folders)
    names = [run.name for run in finished]
    if raw is None and RAW not in names:
        raise UnknownNameError("raw", RAW, names)
    place = 0 if raw is not None else names.index(RAW)
    raw_run, others = finished[place], [run for n, run in enumerate(finished) if n != place]
    if not others:
        raise ArgumentError("runs", "there is none beside the raw ensemble", "Give one or more")
    curve = raw_curve(raw_run)
    for size in sorted(set(measure)):
        curve.measured[size] = _measure(folders[place], raw_run, size, curve.held)
    worths = [worth for run in others for worth in (worth_of(run, raw_run), *of_sizes(run, curve))]
    return curve, sorted(worths, key=lambda worth: -worth.crps)


def _measure(folder: Path, raw: FinishedRun, size: int, members: int) -> float:
    if not 2 <= size <= members:
        raise ArgumentError("measure", f"{size} members of {members}", f"Give 2 to {members}")
    forecast, truth = open_predictions(folder)
    first_members = forecast.isel(number=slice(size)).assign_attrs(forecast.attrs)
    weights = raw.states.attrs.get("weights", "cell")
    with reading(folder):
        states = score_states(first_members, truth, ["crps"], weights=weights)
    return float(states["crps_sum"].sum() / states["crps_weight"].sum())


def _mean(run: FinishedRun, name: str) -> float:
    return float(mean_of({k: v.sum() for k, v in mean_sums(run.states, name).items()}))


def write_worths(curve: RawCurve, worths: Sequence[Worth], out: Path | str) -> None:
    """Write `table.md`, `table.csv` and `worth.png` into a folder, which is made if needed."""
    figure = png(worth_figure(curve, worths))
    files: dict[str, str | bytes] = {TABLE: markdown(curve, worths), PLAIN: to_csv(worths)}
    write_files(Path(out), {**files, FIGURE: figure})


def in_members(worth: Worth) -> str:
    """A number of members with its bounds in words."""
    number = worth.members
    if np.isinf(number.value):
        least = f" (at least {members_in_words(number.lower)})" if np.isfinite(number.lower) else ""
        return f"{_ANY}{least}"
    if np.isnan(number.lower):
        return members_in_words(number.value)
    value, lower, upper = map(members_in_words, (number.value, number.lower, number.upper))
    return f"{value} [{lower}, {upper}]"


def members_in_words(members: float) -> str:
    """Return a number of members as text, "∞" and "< 1" included."""
    if np.isinf(members):
        return "∞"
    if members < 1:
        return "< 1"
    return f"{members:.1f}" if members < 20 else f"{members:.0f}"


def markdown(curve: RawCurve, worths: Sequence[Worth]) -> str:
    """Two tables: the raw CRPS by number of members, and what each forecast is worth."""
    units = in_units(curve.units)
    sizes: list[float] = [*sorted({*SIZES, curve.held, *curve.measured}), float("inf")]
    raw_rows = []
    for size in sizes:
        crps = curve.plain if size == curve.held else curve.measured.get(int(min(size, 1e9)))
        text = ABSENT if crps is None else f"{crps:.4f}"
        name = "∞" if np.isinf(size) else f"{size:.0f}"
        raw_rows.append([name, f"{curve.crps(size):.4f}", text])
    heads = [f"Members of {curve.name}", f"Expected CRPS{units}", "Measured, first members"]
    raw_table = markdown_of(columns_of(heads, raw_rows, text=()), escape=False)
    rows = [
        [w.name, "all" if w.given is None else str(w.given), f"{w.crps:.4f}", in_members(w)]
        for w in worths
    ]
    heads = ["Forecast", "Given members", f"CRPS{units}", f"Worth in members of {curve.name}"]
    worth_table = markdown_of(columns_of(heads, rows, text=(0, 3)), escape=False)
    return "\n".join([raw_table, worth_table, *_notes(curve, worths)]) + "\n"


def _notes(curve: RawCurve, worths: Sequence[Worth]) -> list[str]:
    notes = [
        f"Expected: fair CRPS + (CRPS - fair CRPS) {curve.held} / M, exact for exchangeable "
        "members (Ferro et al. 2008, Ferro 2014). In brackets: 95 % interval over dates, paired "
        f"({blocks_in_words(worth.members for worth in worths)}).",
        f'"{_ANY}": the CRPS is below the limit of ever more members.',
    ]
    no_worse = [w for w in worths if w.given is not None and w.crps <= curve.plain]
    for name in dict.fromkeys(worth.name for worth in no_worse):
        least = min(w.given for w in no_worse if w.name == name and w.given is not None)
        notes.append(
            f"{name} given {least} members is no worse than the raw {curve.held} "
            "(the fewest that were measured to be)."
        )
    return notes


def to_csv(worths: Sequence[Worth]) -> str:
    """All numbers with nine digits: `inf` where no number of members is enough."""
    heads = ["run", "given", "crps", "members", "members_lower", "members_upper"]
    rows = [
        [w.name, w.given, w.crps, w.members.value, w.members.lower, w.members.upper] for w in worths
    ]
    return csv_of(heads, rows, ".9g")


def worth_figure(curve: RawCurve, worths: Sequence[Worth]) -> Figure:
    """Above: raw CRPS by number of members. Below: each forecast on the same axis of CRPS.

    Reading up from a forecast's dot to the curve gives its worth; those in the shaded part are
    worth more than any number of raw members. Lines are the bounds of the worth over dates.
    """
    least = min([curve.fair, *(worth.crps for worth in worths)])
    # a run worse than one member (a climatology) would take the room from all others
    most = max(curve.crps(2), *(w.crps for w in worths if w.crps < curve.crps(1)), curve.plain)
    pad = 0.06 * (most - least)
    low, high = least - pad, most + pad
    with mpl.rc_context(STYLE):
        height = 0.6 + _ROW * (len(worths) + 1)
        figure = new_figure(_ABOVE + height)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[_ABOVE, height])
        _curve(top, curve, low, high)
        _runs(bottom, curve, worths, high)
        for axes in (top, bottom):
            axes.axvspan(low, curve.fair, color="#EEF3F7", zorder=0, linewidth=0)
            axes.axvline(curve.fair, color=INK, linestyle="--", linewidth=1)
            for size in _select_sizes(curve, low, high):
                axes.axvline(curve.crps(size), color="#DDDDDD", linewidth=0.6, zorder=0)
        bottom.set_xlim(low, high)
        bottom.set_xlabel(f"CRPS{in_units(curve.units)}, lower is better")
    return figure


def _curve(axes: Axes, curve: RawCurve, low: float, high: float) -> None:
    members = np.geomspace(1, _MOST, 200)
    axes.plot([curve.crps(m) for m in members], members, color=ORANGE)
    dots = {**curve.measured, curve.held: curve.plain}
    axes.plot(
        list(dots.values()), list(dots), "o", color=ORANGE, markeredgecolor="white", label="scored"
    )
    axes.set_yscale("log")
    axes.set_ylim(1, _MOST)
    ticks = [size for size in (*SIZES, _MOST) if size <= _MOST]
    axes.set_yticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_ylabel("members")
    top_axis = axes.secondary_xaxis("top")
    sizes = _select_sizes(curve, low, high)
    top_axis.set_xticks(
        [curve.crps(size) for size in sizes],
        ["∞" if np.isinf(size) else f"{size:.0f}" for size in sizes],
    )
    top_axis.set_xlabel(f"so many members of {curve.name}; shaded: {_ANY}")
    axes.tick_params(axis="x", length=0)


def _select_sizes(curve: RawCurve, low: float, high: float) -> list[float]:
    """Numbers of members that there is room to name: those held and infinity before others."""
    sizes: list[float] = []
    for size in (float("inf"), curve.held, 5, 2, 20, 1, 3, 50, 100):
        crps = curve.crps(size)
        distances = [abs(crps - curve.crps(other)) for other in sizes]
        if low <= crps <= high and min(distances, default=high) > _APART * (high - low):
            sizes.append(size)
    return sizes


def _runs(axes: Axes, curve: RawCurve, worths: Sequence[Worth], high: float) -> None:
    axes.plot(curve.plain, 0, "o", color=ORANGE, markeredgecolor="white")
    names = [f"{curve.name}, {curve.held} members"]
    for place, worth in enumerate(worths, 1):
        has_all = worth.given is None
        colour = BLUE if has_all else GREY
        names.append(worth.name if has_all else f"{worth.name}, given {worth.given}")
        if worth.crps > high:
            text = f"{worth.crps:.3g}, less than one member →"
            axes.annotate(text, (1, place), xycoords=_RIGHT, va="center", ha="right", fontsize=8)
            continue
        bounds = [curve.crps(m) for m in (worth.members.upper, worth.members.lower)]
        if np.isfinite(worth.members.value) and np.isfinite(bounds).all():
            axes.plot(bounds, [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(worth.crps, place, "o" if has_all else "s", color=colour, markersize=5)
        if np.isfinite(worth.members.value):
            axes.annotate(
                members_in_words(worth.members.value),
                (np.nanmax([worth.crps, *bounds]), place), (6, 0),
                textcoords="offset points", va="center", fontsize=8, color=INK,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = command_parser(
        "python -m ens10.experiments.studies.members_worth",
        (__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="scored run folders")
    parser.add_argument("--raw", type=Path, metavar="RUN", help='default: the run called "raw"')
    parser.add_argument("--measure", type=int, nargs="+", default=[], metavar="M",
                        help="score the first M raw members too, to check the curve")  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for table.md, table.csv, worth.png"
    )
    options = parser.parse_args(arguments)
    curve, worths = all_worths(options.runs, options.raw, measure=options.measure)
    if options.out:
        write_worths(curve, worths, options.out)
    print(markdown(curve, worths), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
