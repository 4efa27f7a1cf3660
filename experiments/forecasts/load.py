"""A trained run as a function from forecasts to corrected forecasts: `load_model`.

No trainer, no truth, and nothing but tensors and plain values is read from the checkpoint.
"""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

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
from ens10.experiments.forecasts.corrections import (
    Corrections,
    datasets,
    variable_name,
)
from ens10.experiments.forecasts.input_checks import InputChecks
from ens10.experiments.forecasts.past_truth import PastTruth, warn_of_seasons
from ens10.experiments.forecasts.products import Products
from ens10.experiments.forecasts.training_points import (
    BeyondTrainingWarning as BeyondTrainingWarning,
)
from ens10.experiments.forecasts.training_points import (
    at_places,
    check_points,
    check_units,
    check_windows,
    match_stations,
    warn_beyond_training,
)
from ens10.experiments.forecasts.weights import REMEDY, build_modules, load_weights
from ens10.identity import Label
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Fields as WholeFields
from ens10.loader.batch_layouts import batch_layout
from ens10.loader.batches import Batches, open_samples, with_lead
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.samples import Samples
from ens10.loader.tensors import as_tensors
from ens10.loader.training_members import choose_members, recorded_members
from ens10.metrics.distributions import Distribution
from ens10.models import RandomFieldHead
from ens10.models.statistical.base import moved, take_new_points
from ens10.models.statistical.place_regression import places_in
from ens10.models.statistical.sliding_window import SlidingWindow
from ens10.models.statistical.targets import TargetMethods
from ens10.source.layout import tidy
from ens10.source.layouts import layout_of
from ens10.source.names import Names
from ens10.source.stores import dataset_of
from ens10.stations import STATION, has_stations, places_of
from ens10.untrusted import readable

_STEP_COORDINATES = ["step", "valid_time"]
_NETWORK_LOCK = threading.RLock()  # dates come from several threads, the network uses them all
_PRECISIONS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


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
    module, data = build_modules(parts.path, parts.config, module)
    load_weights(module, parts.path, parts.weights, parts.normaliser.mean.shape[-2:])
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
        (dataset,) = _correct([self], forecast, group, InputRules(missing, any_values), products)
        return dataset

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
        guard = readable(self.path, "its network fails on this forecast", REMEDY)
        with guard, _NETWORK_LOCK, torch.inference_mode(), autocast:
            forecast: Distribution | tuple[Distribution, ...] = self._module(batch)
        forecasts = forecast if isinstance(forecast, tuple) else (forecast,)
        if len(forecasts) != len(self.targets):
            reason = f"its network forecasts {len(forecasts)} targets, it was trained for"
            raise FileError(self.path, f"{reason} {len(self.targets)}", REMEDY)
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
            warn_beyond_training(f"{self.name}: {note}")
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
        check_windows(samples, self._training, self.channels)
        check_points(samples, self._training, self.name)
        warn_of_seasons(samples, self._training, self.name)
        self._warn_of_windows(samples)
        return samples

    def check_units(self, samples: Samples) -> None:
        """Reject a target, inputs or lead times in other units than those of the training.

        Raises:
            ArgumentError: the units differ; the error names both.
        """
        check_units(samples, self._training, self.place)

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
            warn_beyond_training(
                f"{self.name} uses the window that ends with its training data, {first} to {last}; "
                "fit it again on later dates to move the window"
            )


class TrainedModels:
    """A trained model of several targets or lead times: forecasts in, corrected forecasts out.

    Args:
        models: of each target and lead time.
    """

    def __init__(self, models: Sequence[TrainedModel]) -> None:
        self.models = list(models)

    def __call__(
        self,
        forecast: xr.Dataset | xr.DataTree | Path | str,
        *,
        group: str = "",
        missing: Gaps = "error",
        any_values: bool = False,
        **products: Any,
    ) -> xr.Dataset:
        """Correct forecasts; arguments and errors as for `TrainedModel`.

        The network of several targets runs once for each date.

        Returns:
            Dataset over (time, [step,] ..., latitude, longitude); the names of parameters begin
            with their target (`t2m_mu`), and each has the attribute `forecast_kind`.
        """
        rules = InputRules(missing, any_values)
        fields: dict[str, list[xr.DataArray]] = {}
        results = _correct(self.models, forecast, group, rules, products)
        for model, dataset in zip(self.models, results, strict=True):
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


def _correct(
    models: Sequence[TrainedModel],
    forecast: xr.Dataset | xr.DataTree | Path | str,
    group: str,
    rules: InputRules,
    products: dict[str, Any],
) -> list[xr.Dataset]:
    """Return the corrected forecasts by each model, lazy where the forecast is."""
    if rules.missing == "skip":
        remedy = "Use 'error', 'nan' or 'fewer', or leave the dates out of the forecast"
        raise ArgumentError("missing", "'skip' is an option of `ens10 apply` alone", remedy)
    data = dataset_of(forecast, group, "forecast")
    parts = all_corrections(models, data, Products(**products), rules)
    return datasets(parts, lazy=not isinstance(data, xr.Dataset) or bool(data.chunks))


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


def _source(forecast: xr.Dataset | Path | str) -> str:
    """Return where a forecast comes from, for errors."""
    if isinstance(forecast, xr.Dataset):
        return str(forecast.encoding.get("source") or "the forecast")
    return str(forecast)
