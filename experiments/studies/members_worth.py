"""How many raw members a post-processed forecast is worth (Groenquist's question).

    python -m ens10.experiments.studies.members_worth runs/raw runs/unet runs/poet --out worth

The mean CRPS of M members that are exchangeable is CRPS_inf + c / M, exactly: with A the mean
absolute error of a member and D the mean absolute difference of two, it is A - (1 - 1/M) D / 2
(Ferro et al. 2008, doi:10.1002/met.45; Ferro 2014, doi:10.1002/qj.2270). CRPS_inf = A - D / 2 is
the fair CRPS and c = D / 2. Both follow from the available members, so that the raw CRPS of any
number of members is known, if further members have the same distribution. A forecast of CRPS C is
worth

    M = c / (C - CRPS_inf)

members, and more than any number where C is not above CRPS_inf: no number of members removes the
ensemble's bias or corrects its spread. `RUN/sizes.csv` adds
(`python -m ens10.experiments.runner.sizes`) the scores of a model with fewer input members.
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
from ens10.experiments.reporting.report import png
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.reading import open_predictions, reading
from ens10.experiments.scoring.members import expected_crps
from ens10.experiments.scoring.run_results import FinishedRun, read_runs
from ens10.experiments.scoring.tables import FEW_DATES
from ens10.experiments.scoring.writers import ABSENT, columns_of, csv_of, markdown_of
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
_UNLIMITED = "more than any number"
_ROW_HEIGHT, _CURVE_HEIGHT = 0.24, 2.3  # inches: a run, the panel of the curve
_MAX_MEMBERS = 200  # members that the curve is drawn to
_RIGHT = ("axes fraction", "data")
_MIN_DISTANCE = 0.045  # of the width: numbers of members nearer than that are not both named


@dataclass(frozen=True)
class RawCurve:
    """The mean CRPS of the raw ensemble by its number of members.

    Attributes:
        name: of the run.
        units: of the CRPS.
        ensemble_size: number of members that were scored.
        plain: their plain CRPS.
        fair: their fair CRPS, the limit of infinitely many members.
        measured_crps: CRPS of the first members alone, by their number, where it was measured.
    """

    name: str
    units: str
    ensemble_size: int
    plain: float
    fair: float
    measured_crps: dict[int, float]

    def crps(self, members: float) -> float:
        """Return the expected CRPS of a number of members, which may be infinite."""
        return expected_crps(self.plain, self.fair, self.ensemble_size, members)

    def members(self, crps: float) -> float:
        """Return the number of members with a CRPS; infinity if no number has it."""
        return equal_members(crps, self.plain, self.fair, self.ensemble_size)


@dataclass(frozen=True)
class Worth:
    """The number of raw members that one forecast is worth.

    Attributes:
        name: of the run.
        input_members: number of raw members that it uses; None for all.
        crps: its mean CRPS.
        members: number of raw members with the same CRPS; infinite if no number has it. The bounds
            are over dates, NaN where the CRPS of each date is not known.
    """

    name: str
    input_members: int | None
    crps: float
    members: Interval


def equal_members(crps: float, plain: float, fair: float, ensemble_size: int) -> float:
    """Return the number of members whose expected CRPS is `crps`.

    Args:
        crps: of the other forecast.
        plain: plain CRPS of the ensemble.
        fair: fair CRPS of the ensemble.
        ensemble_size: number of members of the ensemble.

    Returns:
        ensemble_size (plain - fair) / (crps - fair); infinity where `crps` is not above `fair`.

    Raises:
        ArgumentError: `plain` is not above `fair`, as for identical members.
    """
    if not plain > fair:
        raise ArgumentError("raw", "its plain CRPS is not above its fair one", "Score it anew")
    return ensemble_size * (plain - fair) / (crps - fair) if crps > fair else float("inf")


def raw_curve(raw: FinishedRun) -> RawCurve:
    """Return the CRPS of a scored ensemble as a function of its number of members.

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
    """Return the number of raw members with the CRPS of a run, with bounds over dates.

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
    members = raw_curve(raw).ensemble_size
    sums = paired_sums(run.states, raw.states, "crps")
    fair = mean_sums(raw.states.sel(time=run.states["time"]), "crps_fair")
    sums |= {f"fair_{part}": values for part, values in fair.items()}
    order = np.argsort(run.states["time"].to_numpy(), kind="stable")
    date_indices = order[sums["weight"][order] != 0]
    method: Method = "student" if date_indices.size < FEW_DATES else "bootstrap"

    def inverse(s: Sums) -> Floats:
        crps, plain, limit = (
            mean_of({"sum": s[f"{prefix}sum"], "weight": s[f"{prefix}weight"]})
            for prefix in ("", "reference_", "fair_")
        )
        return mean_of({"sum": crps - limit, "weight": members * (plain - limit)})

    parts = {name: values[date_indices] for name, values in sums.items()}
    result = interval(parts, inverse, method=method, confidence=confidence, seed=seed)
    inverses = (result.value, result.upper, result.lower)
    value, lower, upper = map(_members_from_inverse, inverses)
    bounds = Interval(value, lower, upper, result.block_length)
    return Worth(run.name, None, _mean(run, "crps"), bounds)


def _members_from_inverse(inverse: float) -> float:
    if np.isnan(inverse):
        return float("nan")
    return 1.0 / inverse if inverse > 0 else float("inf")


def worths_by_size(run: FinishedRun, curve: RawCurve) -> list[Worth]:
    """Return the worth of a model with fewer input members, from the scores of `sizes.csv`."""
    nan = float("nan")
    return [
        Worth(run.name, size, crps, Interval(curve.members(crps), nan, nan))
        for size, crps in sorted(run.sizes.items())
        if size < curve.ensemble_size
    ]


def all_worths(
    runs: Sequence[Path | str],
    raw: Path | str | None = None,
    *,
    measure: Sequence[int] = (),
) -> tuple[RawCurve, list[Worth]]:
    """Return the raw curve, and the worth of each run in raw members, the worst CRPS first.

    Args:
        runs: folders of scored runs of the same dates and points.
        raw: folder of the ensemble whose members are counted; None for the run called "raw". With a
            corrected ensemble (`member_by_member`), the worth of raw is the number of corrected
            members that equal it; its members are assumed to be exchangeable.
        measure: numbers of members whose CRPS is measured as well, from the first members of the
            predictions of `raw`.

    Raises:
        UnknownNameError: none is called "raw".
        ArgumentError: runs that cannot be compared; no ensemble; no run beside it; a number in
            `measure` below 2 or above the size of the ensemble.
        FileError, MissingDataError: as `read_runs`.
    """
    folders = [Path(run) for run in runs]
    if raw is not None:
        others = [folder for folder in folders if folder.resolve() != Path(raw).resolve()]
        folders = [Path(raw), *others]
    finished = read_runs(folders)
    names = [run.name for run in finished]
    if raw is None and RAW not in names:
        raise UnknownNameError("raw", RAW, names)
    place = 0 if raw is not None else names.index(RAW)
    raw_run = finished.pop(place)
    if not finished:
        raise ArgumentError("runs", "there is none beside the raw ensemble", "Give one or more")
    curve = raw_curve(raw_run)
    for size in sorted(set(measure)):
        curve.measured_crps[size] = _measure(folders[place], raw_run, size, curve.ensemble_size)
    worths = [
        worth for run in finished for worth in (worth_of(run, raw_run), *worths_by_size(run, curve))
    ]
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
    texts = {TABLE: markdown(curve, worths), PLAIN: to_csv(worths)}
    write_files(Path(out), {**texts, FIGURE: png(worth_figure(curve, worths))})


def worth_in_words(worth: Worth) -> str:
    """Return a number of members with its bounds as text."""
    number = worth.members
    if np.isinf(number.value):
        least = f" (at least {members_in_words(number.lower)})" if np.isfinite(number.lower) else ""
        return f"{_UNLIMITED}{least}"
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
    """Return two tables as Markdown: raw CRPS by number of members, and worth of each forecast."""
    units = in_units(curve.units)
    sizes = sorted({*SIZES, curve.ensemble_size, *curve.measured_crps, float("inf")})
    scored: dict[float, float] = dict(curve.measured_crps)  # type: ignore[arg-type]
    scored[curve.ensemble_size] = curve.plain
    raw_rows = []
    for size in sizes:
        text = f"{scored[size]:.4f}" if size in scored else ABSENT
        raw_rows.append([_size_in_words(size), f"{curve.crps(size):.4f}", text])
    heads = [f"Members of {curve.name}", f"Expected CRPS{units}", "Measured, first members"]
    raw_table = markdown_of(columns_of(heads, raw_rows, text=()), escape=False)
    rows = [
        [w.name, str(w.input_members or "all"), f"{w.crps:.4f}", worth_in_words(w)] for w in worths
    ]
    heads = ["Forecast", "Given members", f"CRPS{units}", f"Worth in members of {curve.name}"]
    worth_table = markdown_of(columns_of(heads, rows, text=(0, 3)), escape=False)
    return "\n".join([raw_table, worth_table, *_notes(curve, worths)]) + "\n"


def _size_in_words(size: float) -> str:
    return "∞" if np.isinf(size) else f"{size:.0f}"


def _notes(curve: RawCurve, worths: Sequence[Worth]) -> list[str]:
    notes = [
        f"Expected: fair CRPS + (CRPS - fair CRPS) {curve.ensemble_size} / M, exact for "
        "exchangeable members (Ferro et al. 2008, Ferro 2014). In brackets: 95 % interval over "
        f"dates, paired ({blocks_in_words(worth.members for worth in worths)}).",
        f'"{_UNLIMITED}": the CRPS is below the limit of ever more members.',
    ]
    fewest: dict[str, int] = {}
    for w in worths:
        if w.input_members is not None and w.crps <= curve.plain:
            fewest[w.name] = min(w.input_members, fewest.get(w.name, w.input_members))
    for name, least in fewest.items():
        notes.append(
            f"{name} given {least} members is no worse than the raw {curve.ensemble_size} "
            "(the fewest that were measured to be)."
        )
    return notes


def to_csv(worths: Sequence[Worth]) -> str:
    """Return the worths as CSV with nine digits, `inf` where no number of members is enough."""
    heads = ["run", "given", "crps", "members", "members_lower", "members_upper"]
    rows = [
        [w.name, w.input_members, w.crps, w.members.value, w.members.lower, w.members.upper]
        for w in worths
    ]
    return csv_of(heads, rows, ".9g")


def worth_figure(curve: RawCurve, worths: Sequence[Worth]) -> Figure:
    """Draw raw CRPS by number of members and, below it, each forecast on the same CRPS axis.

    Reading up from a forecast's dot to the curve gives its worth; those in the shaded part are
    worth more than any number of raw members. Lines are the bounds of the worth over dates.
    """
    least = min([curve.fair, *(worth.crps for worth in worths)])
    # a run worse than one member (a climatology) would take the room from all others
    most = max(curve.crps(2), *(w.crps for w in worths if w.crps < curve.crps(1)), curve.plain)
    pad = 0.06 * (most - least)
    low, high = least - pad, most + pad
    with mpl.rc_context(STYLE):
        height = 0.6 + _ROW_HEIGHT * (len(worths) + 1)
        figure = new_figure(_CURVE_HEIGHT + height)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[_CURVE_HEIGHT, height])
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
    members = np.geomspace(1, _MAX_MEMBERS, 200)
    axes.plot([curve.crps(m) for m in members], members, color=ORANGE)
    dots = {**curve.measured_crps, curve.ensemble_size: curve.plain}
    axes.plot(
        list(dots.values()), list(dots), "o", color=ORANGE, markeredgecolor="white", label="scored"
    )
    axes.set_yscale("log")
    axes.set_ylim(1, _MAX_MEMBERS)
    ticks = [size for size in (*SIZES, _MAX_MEMBERS) if size <= _MAX_MEMBERS]
    axes.set_yticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_ylabel("members")
    top_axis = axes.secondary_xaxis("top")
    sizes = _select_sizes(curve, low, high)
    top_axis.set_xticks([curve.crps(size) for size in sizes], list(map(_size_in_words, sizes)))
    top_axis.set_xlabel(f"so many members of {curve.name}; shaded: {_UNLIMITED}")
    axes.tick_params(axis="x", length=0)


def _select_sizes(curve: RawCurve, low: float, high: float) -> list[float]:
    """Return the numbers of members that have room for a label, infinity and all members first."""
    sizes: list[float] = []
    for size in (float("inf"), curve.ensemble_size, 5, 2, 20, 1, 3, 50, 100):
        crps = curve.crps(size)
        distances = [abs(crps - curve.crps(other)) for other in sizes]
        if low <= crps <= high and min(distances, default=high) > _MIN_DISTANCE * (high - low):
            sizes.append(size)
    return sizes


def _runs(axes: Axes, curve: RawCurve, worths: Sequence[Worth], high: float) -> None:
    axes.plot(curve.plain, 0, "o", color=ORANGE, markeredgecolor="white")
    names = [f"{curve.name}, {curve.ensemble_size} members"]
    for place, worth in enumerate(worths, 1):
        has_all = worth.input_members is None
        colour = BLUE if has_all else GREY
        names.append(worth.name if has_all else f"{worth.name}, given {worth.input_members}")
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
    """Run the command; exit status 1 with one line on bad input."""
    text = (__doc__ or "").partition("\n")[0]
    parser = command_parser("python -m ens10.experiments.studies.members_worth", text)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="scored run folders")
    parser.add_argument("--raw", type=Path, metavar="RUN", help='default: the run called "raw"')
    text = "score the first M raw members too, to check the curve"
    parser.add_argument("--measure", type=int, nargs="+", default=[], metavar="M", help=text)
    text = "for table.md, table.csv, worth.png"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    options = parser.parse_args(arguments)
    curve, worths = all_worths(options.runs, options.raw, measure=options.measure)
    if options.out:
        write_worths(curve, worths, options.out)
    print(markdown(curve, worths), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
