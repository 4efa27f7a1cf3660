"""The base class of statistical methods: collect the training batches, then solve once."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution
from ens10.models.domain import current
from ens10.models.host_flag import HostFlag
from ens10.models.specification import InitialValues
from ens10.models.statistical.spool import Floats, Spool

Module = TypeVar("Module", bound=nn.Module)
Criterion = Literal["crps", "likelihood"]  # the score of which a fit minimises the mean


class GridBuffers(InitialValues, nn.Module):
    """A module whose buffers take their shapes, and so the grid, from the loaded checkpoint.

    A buffer is registered with the number of its dimensions, and with 0 or 1 for each size that a
    fit determines. The other sizes must be the same in a checkpoint.

    Attributes:
        may_be_nan: names of buffers in which NaN or an infinity has a meaning, such as a point
            without truth; those of other buffers are damage.
        may_be_infinite: those in which only an infinity has one, such as the logarithm of 0.
    """

    may_be_nan: ClassVar[tuple[str, ...]] = ()
    may_be_infinite: ClassVar[tuple[str, ...]] = ()
    _registered_shapes: dict[str, tuple[int, ...]]

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer, and keep its shape as the one that checkpoints must have."""
        shapes = self.__dict__.setdefault("_registered_shapes", {})
        shapes[name] = () if tensor is None else tuple(tensor.shape)
        super().register_buffer(name, tensor, persistent)

    def of_another_grid(self, grid: tuple[int, ...]) -> list[str]:
        """Return the names of maps that are neither on a grid nor one value for all its points."""
        maps = [name for name, shape in self._registered_shapes.items() if shape[-2:] == (0, 0)]
        shapes = {name: tuple(getattr(self, name).shape[-2:]) for name in maps}
        return [name for name, shape in shapes.items() if shape not in (grid, (1, 1))]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name, shape in self._registered_shapes.items():
            buffer, value = self._buffers.get(name), state_dict.get(prefix + name)
            if buffer is None or not isinstance(value, Tensor) or value.ndim != len(shape):
                continue
            if all(size < 2 or size == new for size, new in zip(shape, value.shape, strict=True)):
                self._buffers[name] = buffer.new_empty(value.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class StatisticalMethod(GridBuffers):
    """A post-processing method without gradient descent.

    Call `collect` for every training batch, then `solve`. The coefficients are buffers, so that the
    method is saved and loaded like a network.

    Attributes:
        takes_new_points: True if its own coefficients hold at any point, and it reads no features.
            Those with coefficients for each place override `move`, too.
    """

    takes_new_points = False

    def __init__(self) -> None:
        super().__init__()
        self.solved: Tensor
        self.register_buffer("solved", torch.zeros((), dtype=torch.bool))
        self._solved_flag = HostFlag()

    @property
    def is_solved(self) -> bool:
        """Return True if the coefficients are known."""
        return self._solved_flag.of(self.solved)

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients that `solve` determined."""
        return sum(b.numel() for b in self.buffers() if b.is_floating_point())

    def __call__(self, batch: Batch) -> Distribution:
        """Return the forecast in full precision, also under mixed precision.

        Coefficients are in units of the target: half precision rounds 280 K by up to 1 K.
        """
        with torch.autocast(batch["raw_mean"].device.type, enabled=False):
            forecast: Distribution = super().__call__(batch)
        return forecast

    @abstractmethod
    def collect(self, batch: Batch) -> None:
        """Add one training batch; its arrays may be reused after the call."""

    @abstractmethod
    def solve(self) -> None:
        """Compute the coefficients from the collected data, then free the data.

        Raises:
            ArgumentError: nothing was collected.
        """

    @abstractmethod
    def forward(self, batch: Batch) -> Distribution:
        """Return the forecast for a batch.

        Raises:
            ArgumentError: the method was neither solved nor loaded from a checkpoint.
        """

    def move(self, places: npt.NDArray[np.int64], coordinates: Floats) -> None:
        """Take other stations; methods with one set of coefficients do nothing.

        Args:
            places: (W,) column of the training for each new column, -1 for a new station.
            coordinates: (3, 1, W) latitude, longitude and altitude of all.
        """

    def _require_solved(self) -> None:
        if not self.is_solved:
            raise ArgumentError(
                "method",
                f"{type(self).__name__} has no coefficients yet",
                "Fit it first, or load a checkpoint of a finished fit",
            )


class SpooledMethod(StatisticalMethod):
    """A statistical method that stores fields of its training dates in a temporary file.

    Main memory holds one batch while it is written, and a few blocks of points while they are
    fitted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spool: Spool | None = None

    @abstractmethod
    def _fields(self, batch: Batch) -> Sequence[Tensor]:
        """Return the fields to store, (N, H, W) or (N, M, H, W) each."""

    @abstractmethod
    def _fit(self, spool: Spool) -> Mapping[str, Tensor | Floats]:
        """Compute the coefficients, by names of buffers."""

    def collect(self, batch: Batch) -> None:
        """Write the fields of the batch to the temporary file.

        Raises:
            ArgumentError: fields that the method needs are missing, or differ in number or grid
                from those before.
        """
        fields = self._fields(batch)
        self._spool = self._spool or Spool()
        self._spool.append(fields, batch["weights"], batch["dates"])

    def solve(self) -> None:
        """Fit the coefficients, in blocks of points.

        Raises:
            ArgumentError: nothing was collected.
        """
        if self._spool is None:
            raise nothing_collected(self)
        for name, values in self._fit(self._spool).items():
            setattr(self, name, torch.as_tensor(values).to(getattr(self, name)))
        self.solved.fill_(True)
        self._spool = None


def take_new_points(method: nn.Module) -> bool:
    """Return True if all statistical methods of a module forecast stations without past truth."""
    parts = [part for part in method.modules() if isinstance(part, StatisticalMethod)]
    return bool(parts) and all(part.takes_new_points for part in parts)


def placed_parts(model: nn.Module) -> list[StatisticalMethod]:
    """Return the statistical methods of a module that depend on the place: those with a `move`."""
    methods = [part for part in model.modules() if isinstance(part, StatisticalMethod)]
    return [part for part in methods if type(part).move is not StatisticalMethod.move]


def moved(
    model: Module, places: npt.NDArray[np.int64], coordinates: Callable[[], Floats]
) -> Module:
    """Return a model at other stations: a copy if a part has a `StatisticalMethod.move`.

    Args:
        model: a method, or a module with methods.
        places: as of `StatisticalMethod.move`.
        coordinates: returns those of `StatisticalMethod.move`; called for a copy only.
    """
    if not placed_parts(model):
        return model
    other, where = deepcopy(model), coordinates()
    for part in placed_parts(other):
        part.move(places, where)
    return other


def check_criterion(criterion: str) -> None:
    """Refuse an unknown criterion of a fit.

    Raises:
        UnknownNameError: another name than those of `Criterion`.
    """
    if criterion not in get_args(Criterion):
        raise UnknownNameError("criterion", criterion, get_args(Criterion))


def check_not_negative(name: str, value: float | None) -> None:
    """Refuse a number below 0 or NaN; None is accepted.

    Raises:
        ArgumentError: such a number.
    """
    if value is not None and not value >= 0:
        raise ArgumentError(name, f"{value} is not 0 or more", "Choose 0 or a positive number")


def require_one_target(batch: Batch) -> None:
    """Refuse a batch of several targets or lead times, for which a method has no coefficients.

    Raises:
        ArgumentError: the batch has several of either.
    """
    for argument, several in (("target", batch["raw_mean"].ndim > 3), ("step", "steps" in batch)):
        if several:
            words = "target" if argument == "target" else "lead time"
            reason = f"the statistical method was fitted for one {words}, and the data have several"
            raise ArgumentError(argument, reason, f"Name one {words}, or fit with all of them")


def single_dates(batch: Batch) -> list[Batch]:
    """Return the batch of each date."""
    parts = [
        {key: cast("Tensor", value)[n : n + 1] for key, value in batch.items()}
        for n in range(len(batch["dates"]))
    ]
    return cast("list[Batch]", parts)


def join_dates(forecasts: Sequence[Distribution]) -> Distribution:
    """Join forecasts of single dates; fields without dates, such as levels, are the same in all."""
    first: Any = forecasts[0]
    parts = {}
    for field in fields(first):
        value = getattr(first, field.name)
        if isinstance(value, Tensor) and value.ndim >= 3:
            parts[field.name] = torch.cat([getattr(forecast, field.name) for forecast in forecasts])
    result: Distribution = replace(first, **parts)
    return result


def nothing_collected(method: StatisticalMethod) -> ArgumentError:
    """Return the error of `solve` without training data."""
    return ArgumentError(
        "method",
        f"{type(method).__name__} saw no training batch",
        "Check the years of the training split",
    )


def members_of(method: StatisticalMethod, batch: Batch) -> Tensor:
    """Return the members of a batch, (N, M, H, W).

    Raises:
        ArgumentError: the batch has none.
    """
    if "members" not in batch:
        raise ArgumentError(
            "members",
            f"the batch holds no ensemble members, which {type(method).__name__} needs",
            "Ask the data module for them (members: true)",
        )
    members: Tensor = batch["members"]
    return members


def require_same_grid(method: StatisticalMethod, coefficients: Tensor, batch: Batch) -> None:
    """Refuse a batch on another grid than that of the coefficients (..., H, W).

    Raises:
        ArgumentError: the grids differ; the message has both.
    """
    fitted_shape, shape = tuple(coefficients.shape[-2:]), current().map_shape(batch["raw_mean"])
    if fitted_shape != shape:
        raise ArgumentError(
            "batch",
            f"has {shape[0]} x {shape[1]} points, but {type(method).__name__} was fitted on "
            f"{fitted_shape[0]} x {fitted_shape[1]}",
            "Fit and predict on the same grid",
        )
