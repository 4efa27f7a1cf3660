"""Check a submission with the truth, dates and forecasts of the checker's own store."""

from collections.abc import Iterator, Mapping
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
from ens10.loader.datamodule import TrainingData
from ens10.loader.samples import Samples
from ens10.metrics import summarise
from ens10.options import chosen, takes
from ens10.protocol import Protocol, content_of, protocol_of
from ens10.splits import split_dates
from ens10.store import open_store

_NOT_DETECTED = (
    "Not detected: a training on the test dates that is not declared, a choice of the model by its "
    "test scores, and data that the store lacks."
)
_SCORE_TOLERANCE = 1e-5  # of the score; predictions and truth are float32
_TOLERANCE = 1e-3  # of the CRPS, of a field that is computed again, perhaps on other hardware


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

    Raises:
        FileError: the store cannot be read, or has no truth.
        Ens10Error: the protocol cannot be read.
    """
    path, options = Path(path), chosen(SubmitOptions, options, named)
    protocol_of(options.protocol)
    open_store(store, "truth")
    verdict = Verdict(path, path.name)
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
        yield (
            f"the protocol {claim.protocol!r} has other rules than {protocol.name!r} (--protocol "
            "names another)"
        )
        return
    if claim.weights != protocol.weighting:
        yield f"scored with weights {claim.weights!r}, the protocol has {protocol.weighting!r}"
        return
    parts = read_parts(folder / MODEL, options.trust)
    if len(parts.training) != 1:
        yield f"the model corrects {len(parts.training)} targets or lead times"
        return
    if claim.name == "raw" and not _is_raw(parts.config):
        yield "only the raw ensemble may be called raw, since it is the reference"
    samples = open_samples(store, f"{claim.target}@{claim.step:g}")
    forecast, _ = open_forecast(folder / PREDICTIONS)
    differing = list(_other_data(claim, forecast, samples))
    yield from differing
    if differing:
        return
    wrong_dates = list(_wrong_dates(parts.training[0], claim, forecast, samples, protocol))
    yield from wrong_dates
    wrong_scores = list(_wrong_scores(folder, claim, store, protocol, verdict))
    yield from wrong_scores
    if not (wrong_scores or wrong_dates):
        yield from _other_forecasts(folder, forecast, store, options, verdict)


def _is_raw(config: Mapping[str, Any]) -> bool:
    method = config["model"].get("init_args", {}).get("method", {})
    path = method.get("class_path") if isinstance(method, Mapping) else method
    return path == "ens10.models.statistical.Raw"


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
    training: TrainingData, claim: Claim, forecast: xr.Dataset, samples: Samples,
    protocol: Protocol,
) -> Iterator[str]:  # fmt: skip
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
    starts = dict(zip(valid.tolist(), samples.time.astype("datetime64[s]"), strict=True))
    times = forecast["time"].to_numpy().astype("datetime64[s]")
    if any(starts.get(n) not in (None, t) for n, t in zip(predicted, times, strict=True)):
        yield "the starts of the predictions are not those of their valid dates in the store"
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
    folder: Path, forecast: xr.Dataset, store: Path | str, options: SubmitOptions, verdict: Verdict
) -> Iterator[str]:
    """Compute some dates again from the model and the store's forecasts, and compare them.

    They are drawn anew each time, and the date with the fewest values is among them.
    """
    if not options.recompute or verdict.states is None:
        verdict.notes.append("whether the model gives these predictions (--recompute 0)")
        return
    try:
        model: Any = load_model(folder / MODEL, trust=options.trust)
        corrections = model.corrections(Path(store))
        corrections.begin()
    except Ens10Error as error:
        yield f"its model cannot be computed on this store: {error}"
        return
    kind = corrections.form.attributes["forecast_kind"]
    if forecast.attrs.get("forecast_kind") != kind:
        yield f"the predictions are {forecast.attrs.get('forecast_kind')}, the model gives {kind}"
        return
    for name, values in corrections.form.core.items():
        if name not in forecast.coords or not _are_near(values, forecast[name].to_numpy(), 1e-6):
            yield f"the coordinate {name} is not that of the model"
            return
    starts = corrections.samples.time.astype("datetime64[s]")
    times = forecast["time"].to_numpy().astype("datetime64[s]")
    counts = verdict.states["crps_count"].to_numpy()
    drawn = np.random.default_rng().permutation(times.size)[: options.recompute]
    for place in dict.fromkeys([int(counts.argmin()), *map(int, drawn)]):
        fields = corrections.fields(int(np.flatnonzero(starts == times[place])[0]))
        for name, (dims, values, attributes) in fields.items():
            if name not in forecast:
                yield f"the predictions lack {name} of the model"
                return
            theirs = forecast[name].isel(time=[place]).transpose(*dims).to_numpy()
            is_quantity = attributes.get("units") == verdict.claim.units if verdict.claim else True
            size = verdict.scores["crps"] if is_quantity else float(np.nanmax(np.abs(values)))
            if not _are_near(values, theirs, _TOLERANCE * size):
                yield f"the model gives another {name} for {str(times[place])[:13]}"
                return


def _are_near(ours: Any, theirs: Any, room: float) -> bool:
    """Return True if numbers differ by at most `room`, and other values not at all."""
    one, other = np.asarray(ours), np.asarray(theirs)
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fiu":
        return bool(np.array_equal(one.astype(str), other.astype(str)))
    return bool(np.allclose(one, other, rtol=1e-6, atol=room, equal_nan=True))


def _days(seconds: list[int]) -> str:
    return listing([str(np.datetime64(second, "s"))[:13] for second in seconds][:3]) + (
        ", ..." if len(seconds) > 3 else ""
    )
