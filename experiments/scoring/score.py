"""Predictions to scores: a netCDF file of additive states and CSV files of final numbers."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.durable import clear_leftovers, whole_path
from ens10.errors import ArgumentError, DataNote, FileError, UnknownNameError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.raw_ensemble import open_climate, open_raw, with_name
from ens10.experiments.runs.reading import (
    DATES_OF_TRAINING,
    open_forecast,
    open_truth,
    reading,
    store_of,
)
from ens10.experiments.scoring.run_results import load_states, save_states
from ens10.experiments.scoring.writers import csv_of
from ens10.grid import Weighting
from ens10.machine_errors import writing_netcdf
from ens10.metrics import (
    Interval,
    ScoringOptions,
    monthly_climatology,
    monthly_quantiles,
    summarise,
)
from ens10.metrics.distributions import kind_of
from ens10.metrics.scores.registry import (
    METRICS,
    TABLES,
    convert_threshold,
    metric_of,
    required_inputs,
    why_undefined,
)
from ens10.metrics.uncertainty import blocks_in_words
from ens10.metrics.verification import available_scores, paired_states
from ens10.metrics.verification.alignment import Join, valid_times
from ens10.metrics.verification.crosscheck import CrossCheck, cross_check
from ens10.metrics.verification.truth_error import TRUTH_ERROR, with_truth_error

STATES, TABLE, GROUPS = "scores.nc", "scores.csv", "groups.csv"
LOCK = "score.lock"
MAIN_SCORES = ("crps", "crps_fair", "rmse", "spread_error", "eecrps", "eecrps_weighted")
SKILLS = ("crpss", "eecrpss")
EVENTS = ("brier_", "twcrps_")  # shown where they are computed
# Heavy precipitation in 24 h and strong wind: the units of the thresholds, and scores.
EVENTS_OF_TARGETS = {
    "tp": ("m", ("brier_0.001", "brier_0.01", "brier_0.025", "twcrps_0.01", "twcrps_0.025")),
    "si10": ("m s-1", ("brier_10", "brier_15", "twcrps_10", "twcrps_15")),
}
LOCAL_EVENTS = ("brier_local_0.95", "brier_local_0.99", "twcrps_local_0.95", "twcrps_local_0.99")
BOUNDS = ("", "_lower", "_upper")
HERSBACH_TERMS = ("hersbach_reliability", "hersbach_potential")  # of all dates, without bounds


@dataclass(frozen=True, repr=False)
class ScoringResult:
    """Result of scoring a forecast.

    Attributes:
        folder: that the files are in.
        states: as in `scores.nc`.
        reference: the states of the reference, or None.
        by: the groups in `groups.csv`.
        cross_check: result of the cross-check, or None.
        requested: names of the scores that were asked for; None for the usual ones.
    """

    folder: Path
    states: xr.Dataset
    reference: xr.Dataset | None
    by: tuple[str, ...]
    cross_check: CrossCheck | None
    requested: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Return what `ens10 score` prints, for a session of Python."""
        return f"{self.in_words()}; in {self.folder}"

    def in_words(self) -> str:
        """Return the scores with their confidence intervals in one line."""
        return in_words(self.states, self.reference, self.requested)

    def table(self) -> str:
        """Return the requested (or the main) scores of each group as lines of text."""
        scores = summarise(self.states, self.reference, by=self.by, maps=False)
        names = _requested_names(scores, self.requested) or _main_names(scores)
        rows = [[*self.by, *map(_label, names), "dates"]]
        for label, part in _groups(scores, self.by):
            values = [f"{float(part[name]):.4g}" for name in names]
            rows.append([*label, *values, str(int(part["dates"]))])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def score_run(
    path: Path | str, weights: Weighting | None = None, *, join: Join = "exact"
) -> xr.Dataset:
    """Score a run folder or a predictions store, and write the result beside it.

    Args:
        path: a run folder, or a predictions store (its folder then gets the files).
        weights: area weights; None for those of the run's protocol ("cell" without a run).
        join: "inner" leaves out dates that have no truth, or no value at all.

    Returns:
        The additive states, as written to `scores.nc`.

    Raises:
        FileError: no predictions there.
    """
    return score_forecast(path, weights=weights, join=join).states


def score_forecast(
    path: Path | str,
    *,
    truth: Path | str | None = None,
    variable: str | None = None,
    scores: Sequence[str] | None = None,
    reference: Path | str | None = None,
    out: Path | str | None = None,
    points: int | None = None,
    channel: str | None = None,
    options: ScoringOptions | None = None,
    **settings: Any,
) -> ScoringResult:
    """Score a forecast and write `scores.nc`, `scores.csv` and, with groups, `groups.csv`.

    The files are replaced when all of them are complete: a call that fails leaves the old ones.

    Args:
        path: a run folder, or a forecast store of any kind.
        truth: store or file of the truth; None for the one beside the forecast.
        variable: its name there; None for the run's target, or without a run for the only one, or
            the one called "truth".
        scores: as for `score_states`, thresholds also with a unit, as in "brier_5mm"; if None,
            the usual ones, without the fair CRPS where the run's protocol does without it, and for
            a run of precipitation or wind speed those at thresholds (`EVENTS_OF_TARGETS`), and with
            a climatology those of local extremes (`LOCAL_EVENTS`).
        reference: run folder or forecast store to compare with.
        out: folder to write into; that of the run, or of the store, if None.
        points: number of points to cross-check; none if None.
        channel: variable of the raw ensemble and the climate in prepared stores; None for the
            run's target, or the truth's name.
        options: settings of scoring; those of the run's protocol if None.
        **settings: single settings of `ScoringOptions`, which replace those of `options`; None
            leaves them. `land`, `climatology`, `raw` and `climate` may be paths: of a file with
            the share of land; of a climatology, or of a prepared store, whose truth in the years
            that are not scored is averaged by month; of the raw ensemble (a prepared store, or a
            run folder or forecast store of an ensemble); of a prepared store with a climate.

    Raises:
        FileError: no forecast, no truth, or no climate.
        Ens10Error: as `verify` and `cross_check`.
    """
    path = Path(path)
    old_stat = store_of(path).stat() if path.exists() else None
    forecast, stored_truth = open_forecast(path)
    folder = path if (path / provenance.FILE).exists() else path.parent
    facts = provenance.read_provenance(folder) if (folder / provenance.FILE).exists() else {}
    target = facts.get("target")
    observed = stored_truth if truth is None else open_truth(truth, variable or target)
    if observed is None:
        raise FileError(path, "holds no truth", "Give it with --truth STORE")
    if trained := forecast.attrs.get(DATES_OF_TRAINING):
        of_all = f"{trained} of its {forecast.sizes['time']} dates are those of the training"
        note = f"{path}: {of_all}, on which scores are better than on new dates"
        warnings.warn(note, DataNote, stacklevel=2)
    options = options or ScoringOptions(weights=facts.get("weights", "cell"))
    options = options.with_settings({k: v for k, v in settings.items() if v is not None})
    if options.truth_error and (Path(out or folder) / provenance.FILE).exists():
        reason = f"reports and comparisons read plain scores in {Path(out or folder)}"
        raise ArgumentError("truth_error", reason, "Write to a folder that is no run (--out)")
    forecast = with_truth_error(forecast, options.truth_error)
    requested = None
    if scores is None:
        names = usual_scores(forecast, observed, target)
        names += LOCAL_EVENTS if _has_thresholds(options, target) else ()
        scores = [name for name in names if name != "crps_fair" or _reports_fair_crps(facts)]
    else:
        scores = [convert_threshold(name, str(observed.attrs.get("units", ""))) for name in scores]
        requested = tuple(scores)
    with reading(path):
        check = (
            None if points is None else cross_check(forecast, observed, points, join=options.join)
        )
        states, other = paired_states(
            with_name(forecast, path),
            observed,
            scores,
            reference=open_forecast(reference)[0] if reference is not None else None,
            options=_open_paths(
                options,
                forecast,
                channel or target or variable or _truth_name(observed),
                target,
                scores,
            ),
        )
    _check_unchanged(path, old_stat)
    for dataset in (states, other):
        if dataset is not None and "efi_source" in dataset.attrs:  # no machine's paths in a result
            dataset.attrs["efi_source"] = Path(dataset.attrs["efi_source"]).name
    out_folder = folder if out is None else Path(out)
    states = write_states(states, out_folder, other, options.by)
    return ScoringResult(out_folder, states, other, tuple(options.by), check, requested)


def usual_scores(forecast: xr.Dataset, truth: xr.DataArray, target: str | None) -> list[str]:
    """Return the names of the default scores; for some targets those at thresholds, too.

    Args:
        forecast: as for `score_states`.
        truth: of the forecast, with units.
        target: its channel; None if unknown.
    """
    units, events = EVENTS_OF_TARGETS.get(target or "", ("", ()))
    kind = kind_of(forecast).kind, forecast.sizes.get("number")
    extras = [name for name in events if not why_undefined(metric_of(name).score.name, *kind)]
    return [*available_scores(forecast), *(extras if truth.attrs.get("units") == units else ())]


def _has_thresholds(options: ScoringOptions, target: str | None) -> bool:
    """Return True if the options have quantiles of the climate, or a store that they come from."""
    if options.thresholds is not None or not isinstance(options.climatology, Path | str):
        return options.thresholds is not None
    return not {"time", "quantile_level"}.isdisjoint(open_truth(options.climatology, target).dims)


def _open_paths(
    options: ScoringOptions, forecast: xr.Dataset, channel: str | None, target: str | None,
    scores: Sequence[str],
) -> ScoringOptions:  # fmt: skip
    """Open the files and stores that the options name by path."""
    land, climatology, efi = options.land, options.climatology, options.efi
    thresholds = options.thresholds
    if isinstance(land, Path | str):
        land = open_truth(land)
    if isinstance(climatology, Path | str):
        climatology = open_truth(climatology, target)
        if "time" in climatology.dims:
            years = np.unique(valid_times(forecast).astype("datetime64[Y]").astype(int) + 1970)
            truth, others = climatology, {"without_years": years.tolist()}
            needed = required_inputs(scores)
            if local := needed.get("thresholds"):
                levels = sorted({float(one.number or 0.0) for one in local})
                thresholds = monthly_quantiles(truth, levels, **others)
            climatology = monthly_climatology(truth, **others) if "climatology" in needed else None
        elif "quantile_level" in climatology.dims:
            thresholds, climatology = climatology, None
    if isinstance(efi.raw, Path | str):
        efi = replace(efi, raw=open_raw(efi.raw, channel, forecast))
    if isinstance(efi.climate, Path | str):
        efi = replace(efi, climate=open_climate(efi.climate, channel, forecast))
    return replace(options, land=land, climatology=climatology, thresholds=thresholds, efi=efi)


def _check_unchanged(path: Path, old_stat: os.stat_result | None) -> None:
    """Refuse a store that was replaced while it was read.

    Raises:
        FileError: the store was replaced.
    """
    # without a manifest, a Zarr store reads NaN where the chunks of an older one have gone
    if old_stat is not None and not os.path.samestat(old_stat, store_of(path).stat()):
        raise FileError(path, "predicted again while it was scored", "Score again")


def _reports_fair_crps(facts: Mapping[str, Any]) -> bool:
    """Return True if the fair CRPS is reported under the run's protocol, or if it is unknown."""
    try:
        return provenance.rules_of(facts).fair_crps
    except UnknownNameError:
        return True


def _truth_name(truth: xr.DataArray) -> str | None:
    return None if truth.name in (None, "truth") else str(truth.name)


def in_words(
    states: xr.Dataset,
    reference: xr.Dataset | None = None,
    requested: Sequence[str] | None = None,
) -> str:
    """Return scores with their confidence intervals in one line.

    Args:
        states: as in `scores.nc`.
        reference: the states of the reference, or None.
        requested: names of the scores; None for the main ones and those at thresholds.
    """
    scores = summarise(states, reference, maps=False)
    names = _requested_names(scores, requested)
    if requested is None and "dates" in scores:
        names = [n for n in (*MAIN_SCORES, *SKILLS) if n in scores]
        events = [n for n in _score_names(scores) if n.startswith(EVENTS)]
        names += [n for n in events if not n.endswith("_difference")]
        names = names or _score_names(scores)
    parts = [_value_in_words(scores, name) for name in names]
    parts += [_value_in_words(scores, name) for name in HERSBACH_TERMS if name in scores]
    if TRUTH_ERROR in states.attrs:
        parts.append(f"of the truth with an error of {states.attrs[TRUTH_ERROR]:g}")
    if "dates" not in scores:
        return "; ".join([*parts, f"histograms of {states.sizes['time']} dates"])
    intervals = [Interval(0.0, 0.0, 0.0, scores[n].attrs.get("block_length")) for n in names]
    return f"{'; '.join(parts)}; {int(scores['dates'])} dates; {blocks_in_words(intervals)}"


def _value_in_words(scores: xr.Dataset, name: str) -> str:
    """Return one score with its bounds (where it has them) and its unit."""
    units = str(scores[name].attrs.get("units", ""))
    units = "" if units == "1" else units
    value, *bounds = (f"{float(scores[name + b]):.4g}" for b in BOUNDS if name + b in scores)
    interval = f"[{', '.join(bounds)}]" if bounds else ""
    return " ".join(filter(None, [_label(name), value, interval, units]))


def _label(name: str) -> str:
    """Return the name of a score as people read it."""
    return name.replace("spread_error", "spread/error")


def _requested_names(scores: xr.Dataset, requested: Sequence[str] | None) -> list[str]:
    """Return the scores that were asked for, each followed by its skill score.

    The weighted mean of the EECRPS belongs to it.
    """
    named = [metric_of(name) for name in requested or () if name not in TABLES]
    names = dict.fromkeys(
        name for one in named for name in (one.name, f"{one.name}_weighted", one.skill)
    )
    return [name for name in names if name in scores]


def _main_names(scores: xr.Dataset) -> list[str]:
    """Return the main scores, or else the first four."""
    return [n for n in (*MAIN_SCORES, *SKILLS) if n in scores] or _score_names(scores)[:4]


def write_states(
    states: xr.Dataset,
    folder: Path,
    reference: xr.Dataset | None = None,
    by: Sequence[str] = (),
) -> xr.Dataset:
    """Write `scores.nc`, `scores.csv` and, with groups, `groups.csv`; all of them or none.

    Returns:
        The states as written: the sums have the block lengths of the intervals as attributes.
    """
    total = summarise(states, reference, maps=False)
    states = _with_block_lengths(states, total)
    tables = {TABLE: _total_table(total, states.attrs.get(TRUTH_ERROR))}
    if by:
        tables[GROUPS] = _group_table(summarise(states, reference, by=by, maps=False), by)
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK, "ens10 score", wait=True), ExitStack() as files:
        clear_leftovers(folder, STATES, TABLE, GROUPS)
        # all are written before the first gets its name
        paths = {n: files.enter_context(whole_path(folder / n)) for n in (STATES, *tables)}
        with writing_netcdf(folder / STATES):
            save_states(states, paths[STATES])
        for name, text in tables.items():
            paths[name].write_text(text, encoding="utf-8", newline="\n")
        if not by:
            (folder / GROUPS).unlink(missing_ok=True)  # of an earlier call
    return states


def _with_block_lengths(states: xr.Dataset, scores: xr.Dataset) -> xr.Dataset:
    """Return the states with the block length of each score's interval as attribute of its sum."""
    states = states.copy()
    for name in _score_names(scores):
        base = next(
            (b for b in (name.removesuffix("_difference"), name[:-1]) if b in METRICS), name
        )
        if base in METRICS and "block_length" in scores[name].attrs:
            sum_name = f"{METRICS[base].means[0]}_sum"
            if sum_name in states:
                length = scores[name].attrs["block_length"]
                states[sum_name].attrs = states[sum_name].attrs | {f"block_length_{name}": length}
    return states


def _block_length(score: xr.DataArray, group: int = 0) -> str:
    lengths = np.atleast_1d(score.attrs.get("block_length", np.nan))
    return "" if np.isnan(lengths[group]) else f"{lengths[group]:.4g}"


def _score_names(scores: xr.Dataset) -> list[str]:
    """Return the names of the scores that have bounds, in their order."""
    return [str(n) for n in scores.data_vars if f"{n}_lower" in scores]


def _total_table(scores: xr.Dataset, truth_error: float | None = None) -> str:
    rows: list[list[Any]] = []
    for name in _score_names(scores):
        row = [f"{float(scores[name + part]):.9g}" for part in BOUNDS]
        units = scores[name].attrs.get("units", "")
        rows.append([name, *row, units, _block_length(scores[name])])
    for name in ("dates", "count"):
        if name in scores:
            rows.append([name, int(scores[name]), "", "", "", ""])
    if truth_error is not None:
        rows.append([TRUTH_ERROR, f"{truth_error:.9g}", "", "", "", ""])
    return csv_of(["score", "value", "lower", "upper", "units", "block_length"], rows)


def _group_table(scores: xr.Dataset, by: Sequence[str]) -> str:
    rows = []
    for place, (label, part) in enumerate(_groups(scores, by)):
        for name in _score_names(scores):
            row = [f"{float(part[name + bound]):.9g}" for bound in BOUNDS]
            numbers = [int(part["dates"]), int(part["count"])]
            units = part[name].attrs.get("units", "")
            length = _block_length(part[name], place)
            rows.append([*label, name, *row, units, *numbers, length])
    heads = ["score", "value", "lower", "upper", "units", "dates", "count", "block_length"]
    return csv_of([*by, *heads], rows)


def _groups(scores: xr.Dataset, by: Sequence[str]) -> Iterator[tuple[list[str], xr.Dataset]]:
    for place in np.ndindex(*(scores.sizes[name] for name in by)):
        part = scores.isel(dict(zip(by, place, strict=True)))
        yield [str(part[name].item()) for name in by], part


def read_states(run: Path | str) -> xr.Dataset:
    """Read the states of a scored run.

    Raises:
        FileError: the run was not scored, or the file is damaged.
    """
    path = Path(run) / STATES
    if not path.is_file():
        raise FileError(run, f"not scored yet (it has no {STATES})", f"Run `ens10 score {run}`")
    return load_states(path, f"Run `ens10 score {run}` again")
