"""What a product of `ens10 apply` declares, and what it is computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ens10.experiments.forecasts.corrections import Corrections
    from ens10.experiments.forecasts.past_forecasts import PastForecasts
    from ens10.loader.batch import Batch
    from ens10.metrics.distributions import Distribution

# name: its dimensions, values (on the host) and attributes
Fields = dict[str, tuple[tuple[str, ...], "np.ndarray[Any, Any]", dict[str, Any]]]


@dataclass(frozen=True, eq=False)
class CorrectedDate:
    """The corrected forecast of one date, from which products are computed.

    Attributes:
        forecast: distribution of one target on tensors (1, ..., H, W).
        batch: features of the date.
        corrections: corrections of the forecasts by one model, to which the date belongs.
        is_read: False if only shapes count: `batch` is zeros, and no past truth may be read.
    """

    forecast: "Distribution"
    batch: "Batch"
    corrections: "Corrections"
    is_read: bool = True

    @property
    def target(self) -> str:
        """Name of the target; of several products it is the start of their names."""
        return self.corrections.model.target

    @property
    def units(self) -> str:
        """Units of the target."""
        return self.corrections.model.units

    @cached_property
    def features(self) -> "Batch":
        """The features of the target, if the model has several."""
        from ens10.models.statistical.targets import by_target

        return by_target(self.batch)[self.corrections.model.place]

    def past_truth(self, count: int | None = None, seed: int = 0) -> "Tensor":
        """Return the truth of training dates near the date in the season (1, count, H, W).

        Args:
            count: number of dates; None for all within 30 days of the calendar.
            seed: of their choice.

        Raises:
            ArgumentError: there is no store with the truth, or it has too few dates.
        """
        if not self.is_read:
            blank: Tensor = self.features["raw_mean"][:, None].expand(-1, count or 2, -1, -1)
            return blank
        return self.corrections.model.past_truth(int(self.batch["dates"][0]), count, seed)

    @property
    def start(self) -> "np.datetime64":
        """When the forecast starts."""
        import numpy as np

        samples = self.corrections.samples
        valid = samples.valid_time.astype("datetime64[s]").astype(np.int64)
        (place, *_) = np.flatnonzero(valid == int(self.batch["dates"][0]))
        start: np.datetime64 = samples.time[place].astype("datetime64[s]")
        return start

    def past_forecasts(
        self, path: str, levels: Sequence[float], method: str, window: int | None = None
    ) -> "PastForecasts":
        """Return past forecasts of the model, by which quantiles are calibrated.

        Args:
            path: of its run or of predictions; "" for the run that was loaded.
            levels: of the quantiles.
            method: of the calibration.
            window: number of past dates that count; None for all.

        Raises:
            ArgumentError: the model has no predictions, or they have other points.
        """
        return self.corrections.past_forecasts(path, levels, method, window)

    def truth_quantiles(self, levels: Sequence[float]) -> "Tensor":
        """Return quantiles of the truth of training dates in the date's season (1, L, H, W).

        The season is that within 30 days of the middle of the date's month.

        Raises:
            ArgumentError: neither a store with the truth nor the bundle has them.
        """
        if not self.is_read:
            blank: Tensor = self.features["raw_mean"][:, None].expand(-1, len(levels), -1, -1)
            return blank
        return self.corrections.model.truth_quantiles(int(self.batch["dates"][0]), levels)


class ForecastProduct:
    """A kind of variables that `ens10 apply` writes beside the parameters of the distributions.

    A subclass is a frozen dataclass in a file of its own in `experiments/forecasts/products/`. Its
    attributes are options of the command, and of the function that `load_model` returns; the first
    line of its docstring is its row in the documentation. Modules of products import torch inside
    functions.

    Attributes:
        variables: what follows the target in the names of its variables ("quantile": t2m_quantile).
        needs_members: True if the features of a date must have the raw members.
        needs_history: True if past truth is read.
        in_grib: False if GRIB has no such product.
        may_be_nan: True if variables may be NaN where the forecast is not.
    """

    variables: ClassVar[tuple[str, ...]]
    needs_members: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    in_grib: ClassVar[bool] = True
    may_be_nan: ClassVar[bool] = False

    @property
    def is_wanted(self) -> bool:
        """Return True if its first option is not the default."""
        first = fields(self)[0]  # type: ignore[arg-type]
        return bool(getattr(self, first.name))

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the values of the dimensions of its variables, besides time and place."""
        return {}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return its variables of a date; their names begin with `date.target`."""
        raise NotImplementedError


def new_field(
    core: str, values: "Tensor", attributes: Mapping[str, Any]
) -> tuple[tuple[str, ...], "np.ndarray[Any, Any]", dict[str, Any]]:
    """Return a variable of `ForecastProduct.fields`.

    Args:
        core: its dimension besides time and place; "" for none.
        values: (1, [core,] H, W).
        attributes: of the variable.
    """
    from ens10.metrics.distributions.base import FIELD

    dims = (FIELD[0], core, *FIELD[1:]) if core else FIELD
    return dims, values.detach().cpu().float().numpy(), dict(attributes)


def options_of(product: ForecastProduct) -> dict[str, Any]:
    """Return the options of a product by name."""
    return asdict(product)  # type: ignore[call-overload, no-any-return]
