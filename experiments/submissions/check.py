"""Check a submission with the truth, dates and forecasts of the checker's own store."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from ens10.command_options import SubmitOptions
from ens10.errors import Ens10Error, listing
from ens10.experiments.forecasts.bundle import read_parts
from ens10.experiments.forecasts.load import load_model
from ens10.experiments.runs.reading import open_forecast
from ens10.experiments.scoring.score import score_forecast
from ens10.experiments.submissions.content import (
    MODEL,
    PREDICTIONS,
    SCORES,
    Claim,
    opened,
    seconds_of,
)
from ens10.loader.batches import open_samples
from ens10.loader.samples import Samples
from ens10.metrics import summarise
from ens10.options import chosen, takes
from ens10.protocol import Protocol, content_of, protocol_of
from ens10.splits import split_dates

_NOT_DETECTED = (
    "Not detected: a training on the test dates that is not declared, a choice of the model by its "
    "test scores, and data that the store lacks."
)
_SCORE_TOLERANCE = 1e-5  # of the score; predictions and truth are float32
_TOLERANCE = 1e-4  # of the range of a field that is computed again, perhaps on other hardware


@dataclass
class Verdict:
    """What a check found.

    Attributes:
        path: of the submission.
        name: of the model; that of the file where the claim cannot be read.
        claim: what it claims; None where it cannot be read.
        refusals: why it is refused; none if it is accepted.
        notes: what could not be checked.
        scores: computed with the checker's truth, with `_lower` and `_upper` bounds.
        states: sums from which these are computed.
        not_detected: what no check finds, in a sentence.
    """

    path: Path
    name: str
    claim: Claim | None = None
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    states: xr.Dataset | None = None
    not_detected: ClassVar[str] = _NOT_DETECTED

    @property
    def is_accepted(self) -> bool:
        """Return True if nothing disagrees."""
        return not self.refusals

    def __str__(self) -> str:
        lines = [f"{self.path}: {'accepted' if self.is_accepted else 'REFUSED'}: {self.name}"]
        lines += [f"  refused: {text}" for text in self.refusals]
        scores = [f"{name} {self.scores[name]:.4g}" for name in SCORES if name in self.scores]
        lines += [f"  with this truth: {', '.join(scores)}"] if scores else []
        lines += [f"  not checked: {text}" for text in self.notes]
        return "\n".join(lines)


@takes(SubmitOptions)
def check(
    path: Path | str,
    store: Path | str,
    options: SubmitOptions | None = None,
    **named: Any,
) -> Verdict:
    """Score a submission again with one's own truth, and compare all that it claims.

    Args:
        path: of the submission.
        store: of `ens10 prepare`, with forecasts and truth.
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The verdict; a submission that cannot be read is refused, too.
    """
    path, options = Path(path), chosen(SubmitOptions, options, named)
    verdict = Verdict(path, path.stem)
    try:
        with opened(path) as (folder, claim):
            verdict.name, verdict.claim = claim.name, claim
            verdict.refusals += _disagreements(folder, claim, store, options, verdict)
    except Ens10Error as error:
        verdict.refusals.append(str(error))
    return verdict


def _disagreements(
    folder: Path, claim: Claim, store: Path | str, options: SubmitOptions, verdict: Verdict
) -> Iterator[str]:
    """Yield in words what does not agree; later checks need what earlier ones compare."""
    protocol = protocol_of(options.protocol)
    if claim.rules != content_of(protocol):
        yield f"the protocol {claim.protocol!r} has other rules than {protocol.name!r}"
        return
    samples = open_samples(store, f"{claim.target}@{claim.step:g}")
    forecast, _ = open_forecast(folder / PREDICTIONS)
    differing = list(_other_data(claim, forecast, samples))
    yield from differing
    if differing:
        return
    yield from _wrong_dates(folder, claim, forecast, samples, protocol)
    wrong_scores = list(_wrong_scores(folder, claim, store, protocol, verdict))
    yield from wrong_scores
    if not wrong_scores:
        yield from _other_forecasts(folder, forecast, store, options.recompute, verdict)


def _other_data(claim: Claim, forecast: xr.Dataset, samples: Samples) -> Iterator[str]:
    units = str(samples.attributes.get("units", ""))
    if claim.units != units:
        yield f"{claim.target} is in {claim.units}, in the store in {units}"
    if claim.step_units != samples.step_units:
        yield f"the lead time is in {claim.step_units}, in the store in {samples.step_units}"
    if samples.stations:
        names = [str(name) for name in np.atleast_1d(forecast.get("station", xr.DataArray([])))]
        if names != samples.station_names:
            yield "the stations are not those of the store, in their order"
        return
    for name in ("latitude", "longitude"):
        own, theirs = getattr(samples, name), forecast.get(name)
        if theirs is None or not np.array_equal(own, theirs.to_numpy()):
            yield f"{name} differs from that of the store"


def _wrong_dates(
    folder: Path, claim: Claim, forecast: xr.Dataset, samples: Samples, protocol: Protocol
) -> Iterator[str]:
    """Compare the dates with those of the store's test split, and those of the training."""
    valid = samples.valid_time.astype("datetime64[s]").astype(np.int64)
    split = split_dates(protocol, samples.time, samples.valid_time).index
    test = set(valid[np.setdiff1d(split["test"], samples.without_truth())].tolist())
    predicted = seconds_of(forecast)
    if predicted != claim.dates:
        yield "the predictions are of other dates than submission.json says"
    for dates, words in (
        (sorted(test - set(predicted)), "test dates are not predicted"),
        (sorted(set(predicted) - test), "predicted dates are not of the test split"),
    ):
        if dates:
            yield f"{len(dates)} {words}: {_days(dates)}"
    (training,) = read_parts(folder / MODEL).training
    if sorted(training.dates) != claim.trained_on:
        yield "the model was trained on other dates than submission.json says"
    overlap = sorted(test & {*claim.trained_on, *training.dates})
    if overlap:
        yield f"trained on {len(overlap)} dates of the test split: {_days(overlap)}"
    if (training.target, training.step) != (claim.target, claim.step):
        yield f"the model corrects {training.target} at {training.step:g}"


def _wrong_scores(
    folder: Path, claim: Claim, store: Path | str, protocol: Protocol, verdict: Verdict
) -> Iterator[str]:
    """Score the predictions with the store's truth, and compare with what is claimed."""
    with TemporaryDirectory() as out:
        options: dict[str, Any] = {"variable": claim.target, "weights": protocol.weighting}
        result = score_forecast(folder / PREDICTIONS, truth=store, out=out, **options)
        verdict.states = result.states.load()
    scores = summarise(verdict.states, maps=False)
    verdict.scores = {
        name: float(scores[name])
        for base in SCORES
        for name in (base, f"{base}_lower", f"{base}_upper")
        if name in scores
    }
    if "crps" not in claim.scores:
        yield "no CRPS is claimed"
    for name, claimed in claim.scores.items():
        found = verdict.scores.get(name)
        if found is None:
            yield f"{name} is claimed, and is no score of these predictions"
        elif not abs(found - claimed) <= _SCORE_TOLERANCE * abs(found):
            yield f"{name} is claimed as {claimed:.6g}, and is {found:.6g} with this truth"


def _other_forecasts(
    folder: Path, forecast: xr.Dataset, store: Path | str, count: int, verdict: Verdict
) -> Iterator[str]:
    """Compute some dates again from the model and the store's forecasts, and compare them."""
    if not count:
        verdict.notes.append("whether the model gives these predictions (--recompute 0)")
        return
    try:
        corrections = load_model(folder / MODEL).corrections(Path(store))  # type: ignore[union-attr]
    except Ens10Error as error:
        verdict.notes.append(f"whether the model gives these predictions: {error}")
        return
    starts, times = corrections.samples.time.astype("M8[s]"), forecast["time"].to_numpy()
    chosen_times = times[np.unique(np.linspace(0, times.size - 1, count).astype(int))]
    for time in chosen_times:
        place = int(np.flatnonzero(starts == time.astype("M8[s]"))[0])
        for name, (dims, values, _) in corrections.fields(place).items():
            if name not in forecast:
                continue
            theirs = forecast[name].sel(time=[time]).transpose(*dims).to_numpy()
            room = _TOLERANCE * max(float(np.nanmax(values) - np.nanmin(values)), 1e-30)
            if not np.allclose(values, theirs, rtol=_TOLERANCE, atol=room, equal_nan=True):
                yield f"the model gives another {name} for {str(time)[:13]}"
                return


def _days(seconds: list[int]) -> str:
    return listing([str(np.datetime64(second, "s"))[:13] for second in seconds][:3]) + (
        ", ..." if len(seconds) > 3 else ""
    )
