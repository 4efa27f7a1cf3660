"""Quantiles of new forecasts, calibrated by past forecasts of the same model and their truth."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, DataNote
from ens10.experiments.runs import provenance
from ens10.experiments.runs.reading import open_predictions, run_parts, store_of
from ens10.metrics.distributions import Distribution
from ens10.metrics.verification.alignment import valid_times
from ens10.models.conformal import Calibration, QuantileOffsets
from ens10.models.matching import is_amount
from ens10.stations import STATION, as_row

if TYPE_CHECKING:
    from ens10.experiments.forecasts.load import TrainedModel
    from ens10.loader.samples import Samples

_REMEDY = "Name predictions of this model with --past-forecasts"


def past_store(path: Path | str, model: "TrainedModel") -> Path:
    """Return the store of a model's past forecasts.

    Args:
        path: of its run or of predictions; "" for the run that was loaded.
        model: the model.

    Raises:
        ArgumentError: the model was loaded from a bundle, which has no predictions.
    """
    folder = Path(path or model.path)
    if not path and folder.is_file():
        reason = f"{model.name} is a bundle, which holds no predictions"
        raise ArgumentError("past_forecasts", reason, _REMEDY)
    name = provenance.part_name(model.target, model.step, model.step_units)
    parts = {part.name: part for part in run_parts(folder)}
    return store_of(parts.get(name, folder))


def target_of(store: Path) -> str:
    """Return the target of the run whose predictions these are; "" if it is unknown."""
    run = store.parent
    known = provenance.read_provenance(run) if (run / provenance.FILE).is_file() else {}
    return str(known.get("target") or "")


class PastForecasts:
    """Past forecasts of a model, in the order in which their truth became known.

    Args:
        path: of the predictions, with truth.
        model: the model, whose lead time they must have.
        samples: the new forecasts, whose points they must have.
        levels: of the quantiles.
        method: of the calibration.
        window: number of past dates that count; None for all.

    Raises:
        FileError: no predictions, or predictions without truth.
        ArgumentError: another target, unit, lead time or grid, or none of the stations.
    """

    def __init__(
        self, path: Path, model: "TrainedModel", samples: "Samples", levels: Sequence[float],
        method: Calibration, window: int | None = None,
    ) -> None:  # fmt: skip
        forecast, truth = open_predictions(path)
        found = target_of(path), float(forecast["step"]), str(truth.attrs.get("units", ""))
        wanted = model.target, model.step, model.units
        if any(a not in ("", b) for a, b in zip(found, wanted, strict=True)):
            (target, step, units), (own, own_step, own_units) = found, wanted
            reason = f"{path} is of {target or 'a target'} in {units} at the lead time {step:g}"
            reason += f", and {model.name} corrects {own} in {own_units} at {own_step:g}"
            raise ArgumentError("past_forecasts", reason, _REMEDY)
        least = 0.0 if is_amount(model.target) else -np.inf
        self._window, self._bounds = window, (least, np.inf)
        self._path, self._levels, self._method = path, np.array(levels), method
        self._places = _places(forecast, samples, path)
        self._forecast, self._truth = as_row(forecast), as_row(truth)
        self._known = valid_times(forecast).ravel().astype("datetime64[s]")
        self._order = np.argsort(self._known, kind="stable")
        self._lock = Lock()
        self._start_again()

    def _start_again(self) -> None:
        self._offsets = QuantileOffsets(
            self._levels.tolist(), self._method, window=self._window, bounds=self._bounds
        )
        self._until: np.datetime64 = np.datetime64(-(2**62), "s")

    def calibrated(
        self, quantiles: npt.NDArray[Any], start: np.datetime64
    ) -> npt.NDArray[np.float64]:
        """Calibrate the quantiles (L, H, W) of a forecast by the truth that its start knows.

        They are unchanged, and a note says so, if that is none.
        """
        with self._lock:
            if start < self._until:
                self._start_again()
            for n in self._order[self._offsets.dates :]:
                if self._known[n] > start:
                    break
                self._learn(int(n))
            self._until = start
            if not self._offsets.dates:
                first = str(self._known.min())[:13]
                reason = f"{self._path} has no truth until {first}"
                note = f"{reason}: quantiles of forecasts that start before are not calibrated"
                warnings.warn(note, DataNote, stacklevel=2)
            return self._offsets.calibrated(quantiles)

    def _learn(self, n: int) -> None:
        """Learn from date `n`; stations without past forecasts keep their quantiles."""
        forecast = self._forecast.isel(time=[n]).load()
        quantiles = np.asarray(Distribution.from_dataset(forecast).quantile(self._levels))[:, 0]
        truth = self._truth.isel(time=n).to_numpy()
        if self._places is not None:
            quantiles = np.where(self._places < 0, np.nan, quantiles[..., self._places])
            truth = truth[..., self._places]
        self._offsets.update(quantiles, truth)


def _places(forecast: Any, samples: "Samples", path: Path) -> npt.NDArray[np.int64] | None:
    """Return the column of each station of new forecasts in the past ones, -1 if it is absent.

    None for a grid, which must be the same.
    """
    if STATION in forecast.dims and samples.station_names:
        names = [str(name) for name in forecast[STATION].to_numpy().tolist()]
        at = {name: n for n, name in enumerate(names)}
        places = np.array([at.get(name, -1) for name in samples.station_names])
        if (places >= 0).any():
            return places
        raise ArgumentError("past_forecasts", f"{path} has none of the stations", _REMEDY)
    if STATION not in forecast.dims and not samples.station_names:
        grids = [(forecast[name], getattr(samples, name)) for name in ("latitude", "longitude")]
        if all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in grids):
            return None
    raise ArgumentError("past_forecasts", f"{path} is on other points", _REMEDY)
