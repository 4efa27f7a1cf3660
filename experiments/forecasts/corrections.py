"""The corrections of a forecast by a trained model, date by date, and the datasets of all dates."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr

from ens10.errors import ArgumentError
from ens10.experiments.forecasts.input_checks import DateInput, InputChecks, Mask
from ens10.experiments.forecasts.past_forecasts import PastForecasts, past_store
from ens10.experiments.forecasts.past_truth import seconds_of
from ens10.experiments.forecasts.products import CorrectedDate, Fields, Products
from ens10.experiments.forecasts.training_points import Columns, at_places
from ens10.experiments.runs.reading import DATES_OF_TRAINING
from ens10.loader.batch import Batch
from ens10.loader.content import gaps_without_mask
from ens10.loader.samples import Samples
from ens10.loader.training_members import are_texts
from ens10.metrics.distributions import Distribution
from ens10.models.statistical.place_regression import coordinates_of
from ens10.stations import STATION, station_dims

if TYPE_CHECKING:
    from ens10.experiments.forecasts.load import TrainedModel

MEMBERS_USED = "members_used"
_MEMBERS_USED_ATTRIBUTES = {"units": "1", "long_name": "number of raw members that are used"}


# features of one date, the record of its checks, forecast by target
Forecasts = tuple[Batch, DateInput | None, tuple[Distribution, ...]]
# those of one date that are known, by `id` of the features that their network reads
Known = dict[int, Forecasts]


class DateResult(NamedTuple):
    """Variables of a date, coordinates of their own dimensions, and attributes of the dataset."""

    fields: Fields
    core: dict[str, Any]
    attributes: dict[str, Any]


def variable_name(target: str, name: str) -> str:
    """Return a variable's name in a dataset of several targets, such as `t2m_mu` for `mu`."""
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
        model: "TrainedModel",
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
        self._past: dict[tuple[Any, ...], PastForecasts] = {}

    def of_target(self, model: "TrainedModel") -> "Corrections":
        """Return the corrections of another target of the same run and lead time.

        Both read the same features, so that `fields` and `begin` of one may take the forecasts of
        the other, and the network runs once for all targets.

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
        return other

    def __len__(self) -> int:
        return len(self.samples)

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

    def fields(self, i: int, known: Known | None = None) -> Fields:
        """Return the variables of date `i`: parameters of the distribution, and the products.

        Args:
            i: position of the date.
            known: forecasts of the date that other targets may take too; those that are computed
                here are added.

        Raises:
            FileError: implausible values.
            MissingDataError: fields are missing.
            ArgumentError: too few members, or a forecast that is NaN although its input is
                complete.
        """
        if i in self._cached_fields:
            return self._cached_fields.pop(i)
        return self._compute_date(i, known).fields

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

    def _compute_date(self, i: int, known: Known | None) -> DateResult:
        """Compute the corrected forecast of date `i`, and refuse what it should not hold."""
        batch, record, forecasts = self._forecasts(i, {} if known is None else known)
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

    def begin(self, i: int = 0, known: Known | None = None) -> None:
        """Compute date `i`, set `form` from it, and cache its variables for `fields`.

        Otherwise `form` runs the network on zeros.
        """
        fields, core, attributes = self._compute_date(i, known)
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

    def _forecasts(self, i: int, known: Known) -> Forecasts:
        """Return the features of date `i`, and the forecast of each target of the run."""
        key = id(self.batches)
        if key not in known:
            batch, record = self._read(i)
            known[key] = (batch, record, self.model.distributions(batch))
        return known[key]

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

    def dataset(self, parts: dict[str, list[Any]]) -> xr.Dataset:
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


def datasets(parts: Sequence[Corrections], *, lazy: bool) -> list[xr.Dataset]:
    """Return the corrected forecasts of all dates by each model, in the order of the models.

    Those that share a network are computed together, so that it runs once for each date.

    Args:
        parts: the corrections by each model.
        lazy: True for dask arrays, one chunk a date; False for arrays in memory.
    """
    networks: dict[int, list[Corrections]] = {}
    for part in parts:
        networks.setdefault(id(part.batches), []).append(part)
    found: dict[int, xr.Dataset] = {}
    for own in networks.values():
        for part, dataset in zip(own, _lazy(own) if lazy else _computed(own), strict=True):
            found[id(part)] = dataset
    return [found[id(part)] for part in parts]


def _computed(parts: Sequence[Corrections]) -> list[xr.Dataset]:
    """The datasets of models that share a network, in memory."""
    known: Known = {}
    for part in parts:
        part.begin(known=known)
    dates = [_values_of_date(parts, i) for i in range(len(parts[0]))]
    return [
        part.dataset({name: [date[n][name] for date in dates] for name in part.form.fields})
        for n, part in enumerate(parts)
    ]


def _lazy(parts: Sequence[Corrections]) -> list[xr.Dataset]:
    """The datasets of models that share a network, as dask arrays."""
    import dask
    import dask.array as da

    compute: Any = dask.delayed(_values_of_date, pure=False)  # type: ignore[attr-defined]
    corrections: Any = dask.delayed(list(parts), pure=False, traverse=False)  # type: ignore[attr-defined]
    dates = [compute(corrections, i) for i in range(len(parts[0]))]
    return [
        part.dataset(
            {
                name: [da.from_delayed(date[n][name], like.shape, like.dtype) for date in dates]  # type: ignore[no-untyped-call]
                for name, (_, like, _) in part.form.fields.items()
            }
        )
        for n, part in enumerate(parts)
    ]


def _values_of_date(parts: Sequence[Corrections], i: int) -> list[dict[str, npt.NDArray[Any]]]:
    """The arrays of one date by each model and name; also a task of dask."""
    known: Known = {}
    return [
        {name: values for name, (_, values, _) in part.fields(i, known).items()} for part in parts
    ]
