"""A trained run as a function from forecasts to corrected forecasts: `load_model`.

No trainer, no truth, and nothing but tensors and plain values is read from the checkpoint.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl
import torch
import xarray as xr
from torch import Tensor, nn

from ens10.channels import step_number
from ens10.climate import Normaliser
from ens10.command_options import Gaps, InputRules, ModelOptions
from ens10.errors import ArgumentError, FileError, UnknownNameError, listing
from ens10.experiments.forecasts.bundle import Parts, read_parts
from ens10.experiments.forecasts.input_checks import DateInput, InputChecks, Mask
from ens10.experiments.forecasts.past_forecasts import PastForecasts, past_store
from ens10.experiments.forecasts.past_truth import PastTruth, days_apart, seconds_of
from ens10.experiments.forecasts.products import CorrectedDate, Fields, Products
from ens10.experiments.forecasts.training_points import (
    BeyondTrainingWarning as BeyondTrainingWarning,
)
from ens10.experiments.forecasts.training_points import (
    Columns,
    at_places,
    check_points,
    match_stations,
)
from ens10.experiments.runs.checkpoints import differences, other_architecture, shapes
from ens10.experiments.runs.reading import DATES_OF_TRAINING
from ens10.identity import Label
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Fields as WholeFields
from ens10.loader.batch_layouts import batch_layout
from ens10.loader.batches import Batches, open_samples, with_lead
from ens10.loader.content import gaps_without_mask
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.samples import Samples
from ens10.loader.tensors import as_tensors
from ens10.loader.training_members import are_texts, choose_members, recorded_members
from ens10.metrics.distributions import Distribution
from ens10.models import RandomFieldHead
from ens10.models.statistical.base import GridBuffers, moved, take_new_points
from ens10.models.statistical.place_regression import coordinates_of, places_in
from ens10.models.statistical.sliding_window import SlidingWindow
from ens10.models.statistical.targets import TargetMethods
from ens10.source.layout import tidy
from ens10.source.layouts import layout_of
from ens10.source.names import Names
from ens10.source.stores import dataset_of
from ens10.source.units import unit_of
from ens10.stations import STATION, has_stations, places_of, station_dims
from ens10.untrusted import readable
from ens10.usage import Parser, configuration_errors

_STEP_COORDINATES = ["step", "valid_time"]
_SEASON_DAYS = 31.0  # from the nearest training date in the calendar
_LONGEST = 200  # characters of a library's message
_REMEDY = "Fetch it again, or look at it in Python with `ens10.load_model`"
_NETWORK_LOCK = threading.RLock()  # dates come from several threads, the network uses them all
MEMBERS_USED = "members_used"
_MEMBERS_USED_ATTRIBUTES = {"units": "1", "long_name": "number of raw members that are used"}
_PRECISIONS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


# features of one date, the record of its checks, forecast by target
Forecasts = tuple[Batch, DateInput | None, tuple[Distribution, ...]]


class DateResult(NamedTuple):
    """Variables of a date, coordinates of their own dimensions, and attributes of the dataset."""

    fields: Fields
    core: dict[str, Any]
    attributes: dict[str, Any]


def load_model(path: Path | str, **options: Any) -> "TrainedModel | TrainedModels":
    """Load a trained model as a function from forecasts to corrected forecasts.

    A model of several targets or lead times corrects all of them in one call.

    Args:
        path: folder of a run that was trained, or a bundle of one.
        **options: `device`, `trust`, `history` and `draws` of `ModelOptions`.

    For example, `model = ens10.load_model("runs/unet")` and `corrected = model(forecast)`.

    Raises:
        FileError: there is no such run or bundle, a part of it is damaged, was changed or is of
            another model, or it names code that is not trusted.
        ArgumentError: a number of draws below 2, or of a model that draws no members.
    """
    models = load_models(path, ModelOptions(**options))
    return models[0] if len(models) == 1 else TrainedModels(models)


def load_models(
    path: Path | str,
    options: ModelOptions | None = None,
    module: pl.LightningModule | None = None,
) -> "list[TrainedModel]":
    """Load the model of each target and lead time of a run or bundle; see `load_model`.

    Args:
        path: of the run or bundle.
        options: of loading.
        module: that was trained; None to build it as the configuration says.
    """
    options = options or ModelOptions()
    parts = read_parts(path, options.trust, with_model=module is None)
    module, data = _build(parts.path, parts.config, module)
    _load_weights(module, parts.path, parts.weights, parts.normaliser.mean.shape[-2:])
    if options.draws is not None:
        _set_draws(module, parts.name, options.draws)
    store = parts.config["data"].get("store", "")
    past = store if options.history is None else options.history
    return [
        TrainedModel(parts, module, data, past, part).to(options.device)
        for part in range(len(parts.training))
    ]


def _set_draws(module: nn.Module, name: str, draws: int) -> None:
    """Set how many members a model's heads draw."""
    if draws < 2:
        raise ArgumentError("draws", f"{draws} is less than 2")
    heads = [part for part in module.modules() if isinstance(part, RandomFieldHead)]
    if not heads:
        remedy = "Leave it out, or apply a run of coherent_members"
        raise ArgumentError("draws", f"{name} draws no members", remedy)
    for head in heads:
        head.members = draws


class TrainedModel:
    """A trained model: forecasts in, corrected forecasts out.

    Args:
        parts: of the run or bundle.
        module: the trained module.
        data: how features are made: inputs, extras, protocol, members.
        history: store with the truth of past dates.
        part: which of the targets and lead times it corrects, by its place in `parts.training`.

    Attributes:
        target: channel that is corrected.
        step: its lead time.
        step_units: "h" or "months".
        units: of the target.
        members: size of the ensemble that the model takes; None if any does.
        targets: all targets of the training.
        place: place of `target` among them.
        path: of the run or bundle.
    """

    def __init__(
        self,
        parts: Parts,
        module: pl.LightningModule,
        data: EnsembleDataModule,
        history: Path | str = "",
        part: int = 0,
    ) -> None:
        training = parts.training[part]
        self.name, self.history, self.checksum = parts.name, history, parts.checksum
        self.target, self.step = training.target, step_number(training.step)
        self.step_units, self.units = training.step_units, training.units
        self.members = data.ensemble or training.members
        self.path, self._data, self._training = parts.path, data, training
        self._trained_on = training  # `at_stations` changes `_training`
        self._places: npt.NDArray[np.int64] | None = None
        self._kept_quantiles = {q: maps[part] for q, maps in parts.truth_quantiles.items()}
        self._module = module.eval().requires_grad_(False)
        self._loaded = self._module  # `at_stations` copies it
        self.targets = [one.target for one in parts.training if one.step == training.step]
        self.place = self.targets.index(self.target)
        self._steps = list(dict.fromkeys(one.step for one in parts.training))
        self._normaliser = parts.normaliser.at(self._steps.index(training.step))
        precision = str((parts.config.get("trainer") or {}).get("precision", ""))
        self._precision = _PRECISIONS.get(precision)
        self._device = torch.device("cpu")

    def to(self, device: str) -> "TrainedModel":
        """Move the model to a device, and return it."""
        self._module, self._device = self._module.to(device), torch.device(device)
        return self

    def __call__(
        self,
        forecast: xr.Dataset | xr.DataTree | Path | str,
        *,
        group: str = "",
        missing: Gaps = "error",
        any_values: bool = False,
        **products: Any,
    ) -> xr.Dataset:
        """Correct forecasts.

        Args:
            forecast: Dataset over (time, step, [level,] number, latitude, longitude) in any order
                and under names that `ens10 prepare` recognises, of any dates, without truth; or
                the path of a store. If its arrays are dask arrays (or it is a path) the result is
                lazy: one chunk a date, computed when it is asked for.
            group: of a forecast that is a tree with several groups of fields.
            missing: "error" to refuse missing fields and members, "nan" to leave NaN, "fewer" to
                use the members that are there; see `InputRules`.
            any_values: True if implausible values are accepted.
            **products: options of `ens10.experiments.forecasts.products`, such as
                `quantiles=[0.1, 0.9]`, `probabilities=[">303.15"]` and `members="ecc"`.

        Returns:
            Dataset over (time, ..., latitude, longitude) with the parameters of the forecast
            distributions (`mu` and `sigma` of a normal) and `attrs["forecast_kind"]`.

        Raises:
            ArgumentError: a channel that the model needs is missing, another grid, lead time or
                window of a sum, or too few members. When a date is computed: a forecast that is NaN
                although its input is complete.
            MissingDataError: when a date is computed: missing fields.
            FileError: when a date is computed: implausible values.
        """
        if missing == "skip":
            remedy = "Use 'error', 'nan' or 'fewer', or leave the dates out of the forecast"
            raise ArgumentError("missing", "'skip' is an option of `ens10 apply` alone", remedy)
        data = dataset_of(forecast, group, "forecast")
        corrections = self.corrections(data, Products(**products), InputRules(missing, any_values))
        lazy = not isinstance(data, xr.Dataset) or bool(data.chunks)
        return corrections.lazy() if lazy else corrections.compute()

    def corrections(
        self,
        forecast: xr.Dataset | Path | str,
        products: Products | None = None,
        rules: InputRules | None = None,
    ) -> "Corrections":
        """Open forecasts for correction, date by date, without reading their values.

        Args:
            forecast: Dataset or path of a store.
            products: variables besides the parameters of the distributions.
            rules: what is accepted of the values when they are read; None to check nothing, as of
                a store that was prepared for the training.

        Raises:
            ArgumentError: a channel that the model needs is missing, another grid, lead time, or
                fewer members than the model takes.
        """
        try:
            source, columns, model = _source(forecast), None, self
            if isinstance(forecast, xr.Dataset) and self._training.stations:
                forecast = tidy(forecast, Names(), source)
                if has_stations(forecast):
                    new = self._takes_new_points
                    arguments = forecast, self._trained_on, self.name
                    forecast, columns = match_stations(*arguments, takes_new=new)
                    if new:
                        names = [str(name) for name in forecast[STATION].to_numpy().tolist()]
                        model = self.at_stations(names, partial(places_in, forecast))
            samples = model._open_samples(forecast, rules)
            checks = None
            if rules is not None:
                least, takes_members = self.least_members, self._takes_members
                checks = InputChecks(samples, rules, source, least, takes_members)
            return Corrections(model, samples, products or Products(), checks, columns)
        except UnknownNameError as error:
            if error.argument not in ("target", "inputs"):
                raise
            missing = [name for name in self.channels if name.partition("@")[0] not in error.known]
            raise ArgumentError(
                "forecast",
                f"it lacks {listing(missing)}, which {self.name} takes; it has "
                f"{listing(error.known)}",
                "Add what is missing, or map its names (--names)",
            ) from error

    def same_network(self, other: "TrainedModel") -> bool:
        """Return True if the other model is of the same run and lead time, for another target."""
        return self._loaded is other._loaded and self.step == other.step

    def distribution(self, batch: Batch) -> Distribution:
        """Return the corrected forecast for a batch of this model's features, on its device."""
        return self.distributions(batch)[self.place]

    def distributions(self, batch: Batch) -> tuple[Distribution, ...]:
        """Return the corrected forecasts of all targets of the run; see `distribution`."""
        autocast = torch.autocast(
            self._device.type, self._precision, enabled=self._precision is not None
        )
        if len(self._steps) > 1:
            steps = torch.full_like(batch["dates"], self.step, dtype=torch.float32)
            batch = cast("Batch", {**batch, "steps": steps})
        # a network of someone else may fail in any way
        guard = readable(self.path, "its network fails on this forecast", _REMEDY)
        with guard, _NETWORK_LOCK, torch.inference_mode(), autocast:
            forecast: Distribution | tuple[Distribution, ...] = self._module(batch)
        forecasts = forecast if isinstance(forecast, tuple) else (forecast,)
        if len(forecasts) != len(self.targets):
            reason = f"its network forecasts {len(forecasts)} targets, it was trained for"
            raise FileError(self.path, f"{reason} {len(self.targets)}", _REMEDY)
        return forecasts

    def batches(self, samples: Samples, *, members: bool) -> Batches:
        """Return the features of forecasts, computed as in the training.

        Args:
            samples: of the forecast.
            members: whether batches carry the members, besides what the model takes.
        """
        data = self._data
        return Batches(
            samples,
            samples.target,
            data.inputs or self._inputs(),
            "test",
            kind=WholeFields(features=batch_layout(data.kind).features),
            protocol=data.protocol,
            extras=with_lead(data.extras) if len(self._steps) > 1 else data.extras,
            members=data.members or members,
            normaliser=self._normaliser,
        )

    def on_device(self, batch: Any) -> Batch:
        """Return a numpy batch as tensors on this model's device."""
        tensors: Any = as_tensors(batch)
        return cast("Batch", {key: value.to(self._device) for key, value in tensors.items()})

    def past_truth(self, date: int, count: int | None = None, seed: int = 0) -> Tensor:
        """Return the truth of training dates near a date in the season, (1, count, H, W).

        Args:
            date: valid date in seconds.
            count: number of dates; None for all within 30 days of the calendar.
            seed: of their choice.

        Raises:
            ArgumentError: there is no `history`, or it has too few of the training dates.
        """
        return self._at_points(self._past.near(date, count, seed))

    def truth_quantiles(self, date: int, levels: Sequence[float]) -> Tensor:
        """Return quantiles of past truth in the season of a date, (1, L, H, W).

        The season is that within 30 days of the middle of the date's month.

        Raises:
            ArgumentError: neither `history` nor the bundle has them.
        """
        month = int(np.datetime64(date, "s").astype("datetime64[M]").astype(int)) % 12 + 1
        return self._at_points(self._past.quantiles(month, levels))

    def _at_points(self, fields: npt.NDArray[np.float32]) -> Tensor:
        """Return fields at the training's points as a tensor at those of the forecast."""
        fields = fields if self._places is None else at_places(fields, self._places)
        return torch.from_numpy(fields)[None].to(self._device)

    @cached_property
    def _past(self) -> PastTruth:
        return PastTruth(self.name, self.history, self._trained_on, self._kept_quantiles)

    def at_stations(
        self, names: Sequence[str], coordinates: Callable[[], npt.NDArray[np.float64]]
    ) -> "TrainedModel":
        """Return the model for other stations, at which its coefficients hold too.

        Features of stations without statistics are scaled by those of another: no such method
        reads them.

        Args:
            names: of the stations.
            coordinates: returns their latitude, longitude and altitude, (3, 1, W).
        """
        if list(names) == self._training.stations:
            return self
        other, places = copy(self), places_of(names, self._trained_on.stations)
        columns = [float(n) for n in range(len(names))]
        other._training = replace(self._trained_on, stations=list(names), longitude=columns)
        normaliser = self._normaliser
        other._normaliser = Normaliser(
            normaliser.channels, normaliser.mean[..., places], normaliser.scale[..., places]
        )
        other._places = places
        other._module = moved(self._module, places, coordinates)
        return other

    @property
    def _takes_new_points(self) -> bool:
        return take_new_points(getattr(self._module, "method", nn.Module()))

    def _inputs(self) -> list[str]:
        """Return the input channels of the training, by the statistics of their means."""
        names = [name.partition(":") for name in self._normaliser.channels]
        return [channel for channel, _, moment in names if moment == "mean"]

    @property
    def channels(self) -> list[str]:
        """The channels of targets and inputs, those at other lead times with `@step`."""
        return list(dict.fromkeys([*self.targets, *self._inputs()]))

    @cached_property
    def least_members(self) -> int:
        """The smallest ensemble that the model takes: two for a deviation, or more."""
        least = [getattr(part, "least_members", 1) for part in self._module.modules()]
        return max([*least, 1 if self.members == 1 else 2])

    @property
    def _takes_members(self) -> bool:
        return self._data.members or batch_layout(self._data.kind).features == "members"

    def choose_members(self, labels: Sequence[Label], *, fewer: bool) -> list[Label]:
        """Return the labels of the members to use, with a warning if others were trained on.

        Raises:
            ArgumentError: there are too few members.
        """
        if self.members is None:
            return list(labels)
        trained = recorded_members(vars(self._training))[: self.members]
        try:
            chosen, note = choose_members(
                labels, self.members, trained, fewer=fewer, least=self.least_members
            )
        except ArgumentError as error:
            reason = f"{self.name} {error.reason}"
            remedy = "Add the missing members" + ("" if fewer else ", or give --missing fewer")
            raise ArgumentError("members", reason, remedy) from error
        if note:
            warnings.warn(f"{self.name}: {note}", BeyondTrainingWarning, stacklevel=9)
        return chosen

    def _open_samples(
        self, forecast: xr.Dataset | Path | str, rules: InputRules | None = None
    ) -> Samples:
        if (
            isinstance(forecast, xr.Dataset)
            and "step" not in forecast.variables
            and layout_of(forecast) is None
        ):
            remedy = f"Assign the coordinate: forecast.assign_coords(step={self.step})"
            raise ArgumentError("step", "the forecast has no lead time", remedy)
        try:
            names = [f"{target}@{self.step}" for target in self.targets]
            choose = partial(self.choose_members, fewer=rules is not None and rules.fewer)
            samples = open_samples(forecast, names, None, choose)
        except UnknownNameError:
            raise
        except ArgumentError as error:
            if error.argument == "target":
                reason = f"{error.reason}; {self.name} was trained at {self.step:g} "
                remedy = "Give a forecast of that lead time"
                raise ArgumentError("step", reason + self.step_units, remedy) from error
            raise
        self.check_units(samples)
        self._check_windows(samples)
        check_points(samples, self._training, self.name)
        self._warn_of_seasons(samples)
        self._warn_of_windows(samples)
        return samples

    def check_units(self, samples: Samples) -> None:
        """Reject a target, inputs or lead times in other units than those of the training.

        Units of inputs are compared where both data state them.

        Raises:
            ArgumentError: the units differ; the error names both.
        """
        target_units = str(samples.targets[self.place].attributes.get("units", ""))
        pairs = {"the lead time": (samples.step_units, self.step_units)}
        for channel, units in self._training.input_units.items():
            own = samples.units.get(channel) or units
            pairs[channel] = (own, units or own)
        pairs[self.target] = (target_units, self.units)
        for name, (units, trained) in pairs.items():
            if unit_of(units) != unit_of(trained):
                reason = f"{name} of the forecast is in {units!r}, that of the training was in"
                raise ArgumentError("units", f"{reason} {trained!r}", "Convert the forecast")

    def _check_windows(self, samples: Samples) -> None:
        """Reject sums over other windows than those of the training.

        Raises:
            ArgumentError: the windows of a channel differ; the error names both.
        """
        trained = self._training.windows
        for channel in dict.fromkeys(name.partition("@")[0] for name in self.channels):
            windows = samples.windows.get(channel), trained.get(channel)
            if windows[0] != windows[1]:
                one, many = windows[0] or "the start", windows[1] or "the start"
                one = f"the sum {'of' if windows[0] else 'since'} {one}"
                many = f"sums {'of' if windows[1] else 'since'} {many}"
                reason = f"{channel} is {one}, the run was trained on {many}"
                remedy = "Give a forecast of the same window, or train on this one"
                raise ArgumentError("forecast", reason, remedy)

    def _warn_of_windows(self, samples: Samples) -> None:
        """Warn which window the coefficients of a sliding window come from.

        Raises:
            ArgumentError: a forecast starts before the end of that window.
        """
        method = getattr(self._module, "method", None)
        if isinstance(method, TargetMethods):
            method = method.of(self.step, self.place)
        for part in method.modules() if method is not None else ():
            if not isinstance(part, SlidingWindow):
                continue
            first, last = (str(day)[:10] for day in part.ends.cpu().numpy().astype("M8[s]"))
            start = samples.time.astype("datetime64[s]").min()
            if start.astype(np.int64) < int(part.ends[1]):
                raise ArgumentError(
                    "forecast",
                    f"starts at {str(start)[:13]}, before the end of the window of {self.name}, "
                    f"{first} to {last}",
                    "Use `ens10 predict`, which fits a window for each date of a store",
                )
            warnings.warn(
                f"{self.name} uses the window that ends with its training data, {first} to {last}; "
                "fit it again on later dates to move the window",
                BeyondTrainingWarning,
                stacklevel=5,
            )

    def _warn_of_seasons(self, samples: Samples) -> None:
        training_dates = np.asarray(self._training.dates, np.float64)
        if not training_dates.size:
            return
        days_away = days_apart(seconds_of(samples)[:, None], training_dates[None, :]).min(axis=1)
        far = np.flatnonzero(days_away > _SEASON_DAYS)
        if far.size:
            first = str(samples.valid_time[far[0]])[:10]
            warnings.warn(
                f"{far.size} of {len(days_away)} dates, the first {first}, "
                f"are more than {_SEASON_DAYS:g} days of the calendar from every date that "
                f"{self.name} was trained on",
                BeyondTrainingWarning,
                stacklevel=5,
            )


class TrainedModels:
    """A trained model of several targets or lead times: forecasts in, corrected forecasts out.

    Args:
        models: of each target and lead time.
    """

    def __init__(self, models: Sequence[TrainedModel]) -> None:
        self.models = list(models)

    def __call__(
        self, forecast: xr.Dataset | xr.DataTree | Path | str, **options: Any
    ) -> xr.Dataset:
        """Correct forecasts; options as for `TrainedModel`.

        Returns:
            Dataset over (time, [step,] ..., latitude, longitude); the names of parameters begin
            with their target (`t2m_mu`), and each has the attribute `forecast_kind`.
        """
        fields: dict[str, list[xr.DataArray]] = {}
        for model in self.models:
            dataset = model(forecast, **options)
            for name, field in dataset.data_vars.items():
                parts = fields.setdefault(variable_name(model.target, str(name)), [])
                parts.append(field.assign_attrs(dataset.attrs))
        several = len({model.step for model in self.models}) > 1
        if not several:
            return xr.Dataset({name: parts[0] for name, parts in fields.items()})
        variables = {
            name: xr.concat(parts, "step", coords=_STEP_COORDINATES)
            for name, parts in fields.items()
        }
        return xr.Dataset(variables).transpose("time", "step", ...)


def all_corrections(
    models: Sequence[TrainedModel],
    forecast: xr.Dataset | Path | str,
    products: Products,
    rules: InputRules | None = None,
) -> "list[Corrections]":
    """Open forecasts for correction by several models; those of one network share its forecasts.

    Raises:
        ArgumentError: as for `TrainedModel.corrections`.
    """
    corrections: list[Corrections] = []
    for model in models:
        sibling = next((other for other in corrections if other.model.same_network(model)), None)
        corrections.append(
            sibling.of_target(model) if sibling else model.corrections(forecast, products, rules)
        )
    return corrections


def variable_name(target: str, name: str) -> str:
    """Return the name of a variable of one target among those of several."""
    has_target = name == target or name.startswith(f"{target}_")
    return name if has_target else f"{target}_{name}"


class Corrections:
    """The corrections of forecasts by one model, date by date.

    Args:
        model: the model.
        samples: the forecasts.
        products: variables besides the parameters of the distributions.
        checks: of the fields that are read, and of the forecasts; None for none.
        columns: stations of the result, where these are not those of `samples`.

    Attributes:
        samples: the forecasts.
        batches: their features.
        checks: as given.
    """

    def __init__(
        self,
        model: TrainedModel,
        samples: Samples,
        products: Products,
        checks: InputChecks | None = None,
        columns: Columns | None = None,
    ) -> None:
        self.model, self.samples, self.products = model, samples, products
        self.checks, self._columns = checks, columns
        self.batches = model.batches(samples, members=products.need_members)
        self.batches.channels  # noqa: B018  # refuses features of another training
        self._cached_fields: dict[int, Fields] = {}
        self._last_forecasts: dict[int, Forecasts] | None = None
        self._past: dict[tuple[Any, ...], PastForecasts] = {}

    def of_target(self, model: TrainedModel) -> "Corrections":
        """Return the corrections of another target of the same run and lead time.

        Both share the features and forecasts of the date that was computed last, so that the
        network runs once for all targets.

        Raises:
            ArgumentError: the target has other units than in the training.
        """
        model.check_units(self.samples)
        where = partial(coordinates_of, self.samples.degrees, self.samples.stations)
        model = model.at_stations(self.samples.station_names, where)
        other = copy(self)
        other.model, other._cached_fields, other._past = model, {}, {}
        other.__dict__.pop("form", None)
        other.__dict__.pop("_form_of_zeros", None)
        self._last_forecasts = other._last_forecasts = (
            {} if self._last_forecasts is None else self._last_forecasts
        )
        return other

    def __len__(self) -> int:
        return len(self.samples)

    def distribution(self, i: int) -> Distribution:
        """Return the corrected forecast of date `i`, (1, ..., H, W), on the model's device."""
        return self._forecasts(i)[2][self.model.place]

    def past_forecasts(
        self, path: str, levels: Sequence[float], method: Any, window: int | None
    ) -> PastForecasts:
        """Open past forecasts of the model, by which quantiles are calibrated.

        Args:
            path: of its run or of predictions; "" for the run that was loaded.
            levels: of the quantiles.
            method: of the calibration.
            window: number of past dates that count; None for all.
        """
        key = (path, *levels, method, window)
        if key not in self._past:
            options = (self.model, self.samples, levels, method, window)
            self._past[key] = PastForecasts(past_store(path, self.model), *options)
        return self._past[key]

    def fields(self, i: int) -> Fields:
        """Return the variables of date `i`: parameters of the distribution, and the products.

        Raises:
            FileError: implausible values.
            MissingDataError: fields are missing.
            ArgumentError: too few members, or a forecast that is NaN although its input is
                complete.
        """
        if i in self._cached_fields:
            return self._cached_fields.pop(i)
        return self._compute_date(i).fields

    @property
    def coordinates(self) -> dict[str, Any]:
        """The coordinates of the corrected forecasts, as `xarray.Dataset` takes them."""
        samples = self.samples
        return {
            "time": samples.time,
            "valid_time": ("time", samples.valid_time),
            "step": ((), samples.step, {"units": samples.step_units}),
            **(samples.horizontal if self._columns is None else self._columns.coordinates),
        }

    def _on_stations(self, fields: Fields) -> Fields:
        """Return variables at the stations of the result."""
        if self._columns is None:
            return fields
        places = self._columns.places
        return {
            name: (dims, at_places(v, places, dims.index(STATION)) if STATION in dims else v, attrs)
            for name, (dims, v, attrs) in fields.items()
        }

    def _compute_date(self, i: int) -> DateResult:
        """Compute and check variables, coordinates and attributes of date `i`."""
        batch, record, forecasts = self._forecasts(i)
        fields, core, attributes = self._compute_batch(batch, forecasts)
        if record is None or self.checks is None:
            return DateResult(self._on_stations(fields), core, attributes)
        self._require_numbers(i, record, fields)
        gaps = self._input_gaps(record)
        if gaps.any():
            fields = {
                name: (dims, np.where(gaps, np.float32(np.nan), values), attrs)
                for name, (dims, values, attrs) in fields.items()
            }
        if self.checks.rules.fewer:
            fields = {name: self._pad(name, field, record) for name, field in fields.items()}
            used = np.array([self.checks.used[i]], np.float32)
            fields[MEMBERS_USED] = (("time",), used, _MEMBERS_USED_ATTRIBUTES)
        return DateResult(self._on_stations(fields), core, attributes)

    def _input_gaps(self, record: DateInput) -> Mask:
        """Return the points where the model reads 0 in place of an input, and no mask says so."""
        gaps = gaps_without_mask(
            self.batches.normaliser,
            self.batches.inputs,
            self.batches.protocol,
            self.samples.step,
            lambda one: record.gaps[one[1], one[0]],
        )
        gaps = np.zeros_like(record.partial) if gaps is None else gaps
        return gaps.ravel() if self.samples.stations else gaps

    def _require_numbers(self, i: int, record: DateInput, fields: Fields) -> None:
        """Refuse a forecast that is NaN at points where its input is complete.

        Points where a plain input gives NaN too have no coefficients, and are accepted.

        Raises:
            ArgumentError: there are such points.
        """
        complete = record.complete.ravel() if self.samples.stations else record.complete
        for name, (_, values, _) in fields.items():
            if self.products.may_be_nan(name):
                continue
            wrong = _nan_points(values, complete.ndim) & complete
            if not wrong.any():
                continue
            without = _nan_points(self._form_of_zeros.fields[name][1], complete.ndim)
            if not without.all():
                wrong &= ~without
            if wrong.any():
                cause = "its weights are not numbers" if without.all() else "its values overflow"
                when = f"{str(self.samples.time[i])[:13]}, step {self.samples.step:g}"
                raise ArgumentError(
                    "run",
                    f"{self.model.name} gives NaN for {name} of {self.model.target} at "
                    f"{int(wrong.sum())} of {wrong.size} points of {when}, where the input is "
                    f"complete; {cause}",
                    "Look at the run's log and at the range of the input, and train it again",
                )

    def _pad(self, name: str, field: Any, record: DateInput) -> Any:
        """Return a variable of fewer members in the shape of one of all members.

        Members that are not there are NaN; further components of a mixture have the weight 0.
        """
        dims, values, attrs = field
        shape = self._form_of_zeros.fields[name][1].shape
        if values.shape == shape:
            return field
        (axis,) = (n for n, size in enumerate(shape) if size != values.shape[n])
        if dims[axis] == "number":
            padded = np.full(shape, np.nan, np.float32)
            padded[(slice(None),) * axis + (record.present,)] = values
        else:
            widths = [(0, full - size) for full, size in zip(shape, values.shape, strict=True)]
            padded = (
                np.pad(values, widths)
                if name == "component_weights"
                else np.pad(values, widths, mode="edge")
            )
        return dims, padded, attrs

    def begin(self, i: int = 0) -> None:
        """Compute date `i`, set `form` from it, and cache its variables for `fields`.

        Otherwise `form` runs the network on zeros.
        """
        fields, core, attributes = self._compute_date(i)
        if self._counts_members:  # of which date `i` may have fewer
            core = self._form_of_zeros.core
        self.form = DateResult(fields, core, attributes)
        self._cached_fields = {i: fields}

    @property
    def _counts_members(self) -> bool:
        return self.checks is not None and self.checks.rules.fewer

    @cached_property
    def form(self) -> DateResult:
        """Variables of some date, coordinates of their own dimensions, and attributes.

        Shapes, dimensions and attributes are those of any date; no date is read.
        """
        fields, core, attributes = self._form_of_zeros
        if self._counts_members:
            used = np.array([self.samples.members], np.float32)
            fields = fields | {MEMBERS_USED: (("time",), used, _MEMBERS_USED_ATTRIBUTES)}
        return DateResult(self._on_stations(fields), core, attributes)

    @cached_property
    def _form_of_zeros(self) -> DateResult:
        """Variables, coordinates and attributes for an input of zeros."""
        shapes = self.batches.content.shapes(len(self.samples.latitude))
        zeros: Any = {key: torch.zeros(1, *shape) for key, shape in shapes.items()}
        zeros |= {"raw_std": zeros["raw_std"] + 1, "dates": torch.zeros(1, dtype=torch.int64)}
        batch = self.model.on_device({key: value.numpy() for key, value in zeros.items()})
        return self._compute_batch(batch, self.model.distributions(batch), past=False)

    def _forecasts(self, i: int) -> Forecasts:
        """Return the features of date `i`, and the forecast of each target of the run."""
        forecasts = (self._last_forecasts or {}).get(i)
        if forecasts is None:
            batch, record = self._read(i)
            forecasts = (batch, record, self.model.distributions(batch))
            if self._last_forecasts is not None:
                self._last_forecasts.clear()
                self._last_forecasts[i] = forecasts
        return forecasts

    def _compute_batch(
        self, batch: Batch, forecasts: tuple[Distribution, ...], *, past: bool = True
    ) -> DateResult:
        """Compute variables, coordinates and attributes of the forecast for a batch of one date.

        Args:
            batch: its features.
            forecasts: of each target of the run.
            past: whether past truth may be read, for members in its order.
        """
        forecast = forecasts[self.model.place]
        date = CorrectedDate(forecast, batch, self, past)
        core: dict[str, Any] = {k: list(v) for k, v in forecast.core_coordinates().items()}
        core |= self.products.coordinates(date)
        return DateResult(self._fields(date), core, forecast.attributes())

    def compute(self) -> xr.Dataset:
        """Return the corrected forecasts of all dates, in memory."""
        self.begin()
        parts = [self.fields(i) for i in range(len(self))]
        return self._dataset({name: [part[name][1] for part in parts] for name in self.form.fields})

    def lazy(self) -> xr.Dataset:
        """Return the corrected forecasts of all dates as dask arrays, one chunk a date."""
        import dask
        import dask.array as da

        compute: Any = dask.delayed(_fields_of_date, pure=False)  # type: ignore[attr-defined]
        corrections: Any = dask.delayed(self, pure=False, traverse=False)  # type: ignore[attr-defined]
        dates = [compute(corrections, i) for i in range(len(self))]
        return self._dataset(
            {
                name: [da.from_delayed(one[name], like.shape, like.dtype) for one in dates]  # type: ignore[no-untyped-call]
                for name, (_, like, _) in self.form.fields.items()
            }
        )

    def _dataset(self, parts: dict[str, list[Any]]) -> xr.Dataset:
        """Return the Dataset of all dates from lists of the arrays of each date, by variable."""
        import dask.array as da

        fields, core, attributes = self.form
        variables = {}
        for name, arrays in parts.items():
            concatenate = np.concatenate if isinstance(arrays[0], np.ndarray) else da.concatenate
            dims, _, attrs = fields[name]
            variables[name] = (dims, concatenate(arrays), attrs)
        dataset = xr.Dataset(variables, {**core, **self.coordinates}, attributes)
        if "number" in dataset:
            dataset["number"].attrs.update(self.member_attributes)
        return dataset

    @property
    def provenance(self) -> dict[str, int]:
        """The number of dates that the model was trained on, as an attribute, if there are any."""
        trained = int(np.isin(seconds_of(self.samples), self.model._training.dates).sum())
        return {DATES_OF_TRAINING: trained} if trained else {}

    @property
    def member_attributes(self) -> dict[str, Any]:
        """The texts of members in the order of raw ones, as the attribute `labels` of `number`."""
        labels = self.samples.member_labels
        return {"labels": list(labels)} if self.products.need_members and are_texts(labels) else {}

    def batch(self, i: int) -> Batch:
        """Return the features of date `i`, on the model's device."""
        return self._read(i)[0]

    def _read(self, i: int) -> tuple[Batch, DateInput | None]:
        """Read date `i`: return its features, of the members that are there, and its checks."""
        batch: Any = self.batches.batch(np.array([i]))
        record = None if self.checks is None else self.checks.finish(i)
        if record is not None and self._counts_members and not record.present.all():
            if self._takes_member_features:
                batch["features"] = batch["features"][:, record.present]
            if "members" in batch:
                batch["members"] = batch["members"][..., record.present, :, :]
        return self.model.on_device(batch), record

    @property
    def _takes_member_features(self) -> bool:
        return self.batches.kind.features == "members"

    def member_count(self, batch: Batch) -> int:
        """Return the number of raw members in a batch."""
        if "members" in batch:
            return int(batch["members"].shape[-3])
        if self._takes_member_features:
            return int(batch["features"].shape[1])
        return self.samples.members

    def _fields(self, date: CorrectedDate) -> Fields:
        forecast, units = date.forecast, self.model.units
        attributes = self.samples.targets[self.model.place].attributes
        fields: Fields = {
            name: (
                forecast.dims,
                value.detach().cpu().float().numpy(),
                forecast.variable_attributes(name, {**attributes, "units": units}),
            )
            for name, value in forecast.variables().items()
        }
        fields |= self.products.fields(date)
        if not self.samples.stations:
            return fields
        return {
            name: (station_dims(dims), values.squeeze(dims.index("latitude")), attrs)
            for name, (dims, values, attrs) in fields.items()
        }


def _nan_points(values: npt.NDArray[Any], ndim: int) -> npt.NDArray[np.bool_]:
    """Return the points, along the last `ndim` dimensions, where any value is NaN."""
    nan: npt.NDArray[np.bool_] = np.isnan(values).any(axis=tuple(range(values.ndim - ndim)))
    return nan


def _source(forecast: xr.Dataset | Path | str) -> str:
    """Return where a forecast comes from, for errors."""
    if isinstance(forecast, xr.Dataset):
        return str(forecast.encoding.get("source") or "the forecast")
    return str(forecast)


def _fields_of_date(corrections: Corrections, i: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one date by name, as a task of dask."""
    return {name: values for name, (_, values, _) in corrections.fields(i).items()}


def _build(
    path: Path, config: dict[str, Any], module: pl.LightningModule | None = None
) -> tuple[pl.LightningModule, EnsembleDataModule]:
    """Build the untrained module of a configuration, and its data module, which opens no store.

    Args:
        path: of the run or bundle, for errors.
        config: of the run.
        module: to copy in place of the configuration's.

    Raises:
        FileError: the configuration cannot be used.
    """
    parser = Parser(exit_on_error=False)
    if module is None:
        settings: dict[str, Any] = {"fail_untyped": False, "required": True}
        parser.add_subclass_arguments(pl.LightningModule, "model", **settings)
    parser.add_class_arguments(EnsembleDataModule, "data", fail_untyped=False)
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    with readable(path, "its configuration cannot be used", _REMEDY), configuration_errors(path):
        data = {"store": "", **config["data"]}
        model = {"model": config["model"]} if module is None else {}
        instances = build(parser.parse_object({**model, "data": data}))
    return instances.model if module is None else deepcopy(module), instances.data


def _load_weights(
    module: pl.LightningModule, path: Path, state: dict[str, Any], grid: tuple[int, ...]
) -> None:
    """Load trained weights into a module.

    Args:
        module: untrained.
        path: of the run or bundle.
        state: parameters and buffers by name.
        grid: rows and columns of the training.

    Raises:
        FileError: they are of another model, which is told from their shapes, of another kind of
            number, of another grid, or not finite.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks on types, which are compared below
            module.load_state_dict(state)
    except RuntimeError as error:
        differing = differences(shapes(state), shapes(module.state_dict()))
        if not differing:
            reason = f"damaged weights ({' '.join(str(error).split())[:_LONGEST]})"
            raise FileError(path, reason, _REMEDY) from error
        raise other_architecture(path, differing) from error
    for name, value in module.state_dict().items():
        if _kind_of_numbers(value) != _kind_of_numbers(state[name]):
            reason = (
                f"damaged: {name} is of the type {state[name].dtype}, in the model {value.dtype}"
            )
            raise FileError(path, reason, _REMEDY)
    for prefix, part in module.named_modules():
        for name in part.of_another_grid(grid) if isinstance(part, GridBuffers) else ():
            reason = f"damaged: {prefix}.{name} is not on the grid of the training, {grid}"
            raise FileError(path, reason, _REMEDY)
        if Path(path).is_dir():  # of runs, the forecasts are checked
            continue
        for name, value in (*part._parameters.items(), *part._buffers.items()):
            if value is not None and _has_damage(part, name, value):
                reason = f"damaged: {prefix}.{name} has values that are NaN or infinite"
                raise FileError(path, reason, "Fetch it again, or train again")


def _has_damage(part: nn.Module, name: str, value: Tensor) -> bool:
    """Return True if a tensor of a module has a value that means nothing there."""
    if name in getattr(part, "may_be_nan", ()):
        return False
    wrong = value.isnan() if name in getattr(part, "may_be_infinite", ()) else ~value.isfinite()
    return bool(wrong.any())


def _kind_of_numbers(value: Tensor) -> tuple[bool, bool, bool]:
    """Return what must agree between weights; the number of bits need not."""
    return value.is_floating_point(), value.is_complex(), value.dtype == torch.bool
