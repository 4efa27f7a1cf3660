"""The base class of forecast distributions, and that of families with closed forms.

A distribution contains numpy arrays or torch tensors whose last two axes are latitude and
longitude, where present: a field (..., H, W). Members, quantiles or coefficients are the axis
before them: (..., M, H, W), here called the core axis.

`Distribution` has the methods of a forecast, with default methods that need only quantiles or the
cdf. `ClosedForm` takes scores and moments from formulas of the parameters; `Bounded` adds bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import fill_masked
from ens10.metrics._ops import NUMPY, are_tensors, is_tensor, ops_of
from ens10.metrics.distributions.formula import Formula, Function, Kernel, Parameter, on_tensors

FIELD = ("time", "latitude", "longitude")
CORE = -3  # the axis of members, quantiles or coefficients
CLASSES: "dict[str, type[Distribution]]" = {}  # by kind, of the modules that were imported
_TWCRPS_QUANTILES = 100  # of a distribution whose twCRPS has no closed form
# statistics that `verify` computes: of every kind, and of the kinds that have quantiles
COMMON_STATISTICS = frozenset({"crps", "brier", "histogram", "eecrps", "abs_efi"})
QUANTILE_STATISTICS = COMMON_STATISTICS | {"quantile_score", "coverage", "width"}

LOCATION = Parameter(long_name="location of the forecast")
SCALE = Parameter("nonnegative", long_name="scale of the forecast")
LOWER = Parameter(default=-np.inf, long_name="lower bound of the forecast")
UPPER = Parameter(default=np.inf, long_name="upper bound of the forecast")
BOUNDED = {"mu": LOCATION, "sigma": SCALE, "lower": LOWER, "upper": UPPER}
SHAPE = Parameter("positive", "1", long_name="shape of the forecast")
POSITIVE_SCALE = Parameter("positive", long_name="scale of the forecast")


class Distribution:
    """A distribution of the target at each date and grid point.

    Heads return it, stores of predictions contain it, and `verify` scores it. To add a kind, write
    a dataclass of its parameters with `kind=`, by which stores find it, and the five methods
    `crps`, `mean`, `std`, `cdf` and `quantile`. The others have defaults that follow from these.
    (The dataclass must not be frozen, because Lightning cannot move frozen ones between devices.)

    Attributes:
        kind: name of the kind, in `attrs["forecast_kind"]` of a Dataset.
        parameters: parameters by name, in the order of the constructor.
        offers: names of the statistics that `verify` can compute for it.
        crps_estimator: name of its CRPS estimator, in the attributes of results.
        counts_ranks: True if `verify` counts a rank histogram.
    """

    kind: ClassVar[str] = ""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    offers: ClassVar[frozenset[str]] = COMMON_STATISTICS
    crps_estimator: ClassVar[str] = ""
    counts_ranks: ClassVar[bool] = False

    def __init_subclass__(cls, kind: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind:
            cls.kind, CLASSES[kind] = kind, cls
            cls.crps_estimator = cls.__dict__.get("crps_estimator", kind)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a parameter; masked values become NaN."""
        super().__setattr__(name, fill_masked(value))

    # ------------------------------------------------------------------ implemented by each kind

    def crps(self, y: Any) -> Any:
        """Return the continuous ranked probability score of each point for `y`, in its unit."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """Return the expectation at each point."""
        raise NotImplementedError

    @property
    def std(self) -> Any:
        """Return the standard deviation at each point."""
        raise NotImplementedError

    def cdf(self, y: Any) -> Any:
        """Return the probability of a value of at most `y`."""
        raise NotImplementedError

    def quantile(self, q: Any) -> Any:
        """Return the quantile of `q`, the smallest value whose cdf reaches `q`.

        Args:
            q: one probability, or a vector (Q,) of them.

        Returns:
            A field, or (Q, ..., H, W) for a vector.

        Raises:
            ArgumentError: a probability outside [0, 1], or an array of more than one dimension.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ defaults

    def log_score(self, y: Any) -> Any:  # noqa: ARG002
        """Return minus the logarithm of the density at `y`, in nats.

        Raises:
            ArgumentError: the distribution has no density.
        """
        raise ArgumentError(
            "loss",
            f"{type(self).__name__} forecasts have no density for a logarithmic score",
            "Train on the CRPS, or choose a head with a density, such as ResidualNormalHead",
        )

    @property
    def variance(self) -> Any:
        """Return the variance at each point."""
        std = self.std
        return std * std

    def cdf_below(self, y: Any) -> Any:
        """Return the probability of a value less than `y`."""
        return self.cdf(y)

    def above(self, threshold: Any) -> Any:
        """Return the probability of a value greater than a threshold (a number or a field)."""
        return 1.0 - self.cdf(self._as_field(threshold))

    def pit(self, y: Any, seed: int = 0) -> Any:
        """Return the PIT F(y); where F jumps at y, it is drawn uniformly within the jump.

        Args:
            y: observations, a numpy field.
            seed: seed of the draws.
        """
        below, at = self.cdf_below(y), self.cdf(y)
        if below is at or not np.any(below < at):
            return at
        from ens10.metrics._point_random import draws

        return below + draws({"pit": at}, {}, seed) * (at - below)

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS for the interval from `lower` to `upper`.

        It is the integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper`, which are
        numbers or fields. Without a closed form the quantiles at the levels (k - 1/2) / 100 are
        scored as an ensemble.
        """
        from ens10.metrics.crps import crps_ensemble

        ops = self.ops
        levels = (np.arange(_TWCRPS_QUANTILES) + 0.5) / _TWCRPS_QUANTILES
        # the twCRPS of an interval is the CRPS after clipping forecast and observation to it
        values = clip(ops, self.quantile(levels), lower, upper)
        observations = clip(ops, y, lower, upper)
        return crps_ensemble(values, observations, estimator="plain", member_dim=0)

    def sample(self, n: int, generator: Any = None) -> Any:
        """Return `n` samples that are independent between points, (..., n, H, W).

        Args:
            n: number of samples at each point.
            generator: a `torch.Generator` for tensors; for numpy a `numpy.random.Generator` or
                a seed.
        """
        return samples_to_core_axis(self.ops, self._quantile_at(self._random_levels(n, generator)))

    def estimated_quantile(self, level: float) -> Any:
        """Return the quantile that scores use; an ensemble estimates that of its population."""
        return self.quantile(level)

    def statistics(self, y: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the fields that one pass over the forecast computes together, by name."""
        return {}

    def hersbach_sums(self, y: Any, weights: Any) -> dict[str, Any]:
        """Return the sums for Hersbach's decomposition of the CRPS of members."""
        raise NotImplementedError

    def ranks(
        self,
        y: Any,  # noqa: ARG002
        statistics: Mapping[str, Any],  # noqa: ARG002
    ) -> tuple[Any, Any, Any] | None:
        """Return the rank of `y` among the values of a step function; None for other kinds.

        Args:
            y: observations, a field.
            statistics: result of the method `statistics` for `y`.

        Returns:
            Numbers of values below `y` (-1 where one is missing) and equal to it, int32, and the
            probabilities at which the ranks begin and end, from 0 to 1.
        """
        return None

    # ------------------------------------------------------------------ arrays

    @property
    def values_by_name(self) -> dict[str, Any]:
        """Return the parameters by name, in the order of the constructor."""
        return {name: getattr(self, name) for name in self.parameters}

    @property
    def ops(self) -> Any:
        """Return the elementwise functions of its library (numpy or torch)."""
        return ops_of(*self.values_by_name.values())

    @property
    def like(self) -> Any:
        """Return a field of its shape, dtype and device."""
        arrays = self.values_by_name
        fields = [
            value[..., 0, :, :] if self.parameters[name].core_dim else value
            for name, value in arrays.items()
            if getattr(value, "ndim", 0)
        ]
        if not fields:
            fields = [v for v in arrays.values() if is_tensor(v)] or [np.zeros(())]
        return fields[0]

    def check_shapes(self) -> None:
        """Check that all parameters that are fields have the same shape.

        Raises:
            ArgumentError: fields of different shapes.
        """
        first, expected = "", None
        for name, value in self.values_by_name.items():
            if self.parameters[name].core_dim or not getattr(value, "ndim", 0):
                continue
            if expected is None:
                first, expected = name, value.shape
            elif value.shape != expected:
                shapes = f"{tuple(value.shape)}, {first} {tuple(expected)}"
                raise ArgumentError(name, f"has shape {shapes}")

    def _as_field(self, value: Any) -> Any:
        """Return a field, or a number broadcast to one; masked values are NaN."""
        value = fill_masked(value)
        return value if getattr(value, "ndim", 0) else self.ops.full_like(self.like, float(value))

    def _quantile_at(self, p: Any) -> Any:
        """Return quantiles at probabilities p, float64 of shape (..., *field)."""
        raise NotImplementedError

    def _random_levels(self, n: int, generator: Any) -> Any:
        # not below 2^-54: the quantile of level 0 can be minus infinity
        return self.ops.random((n, *self.like.shape), self.like, generator, 2.0**-54)

    def probabilities(self, q: Any) -> Any:
        """Convert probabilities to the distribution's library, dtype and device.

        Raises:
            ArgumentError: a probability outside [0, 1], or an array of more than one dimension.
        """
        p = self.ops.double_like(q, self.like)
        if isinstance(q, list | tuple) and p.ndim == 1:  # a GPU need not be waited for
            valid = all(0 <= level <= 1 for level in q)
        else:
            valid = p.ndim <= 1 and bool(((p >= 0) & (p <= 1)).all())
        if not valid:
            raise ArgumentError(
                "q", f"{q} is not a probability or a vector of probabilities in [0, 1]"
            )
        return p

    # ------------------------------------------------------------------ Datasets

    def variables(self) -> dict[str, Any]:
        """Return the arrays that a Dataset of the distribution contains, by variable name."""
        return {name: self._as_field(value) for name, value in self.values_by_name.items()}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Return the coordinates of dimensions other than time, latitude and longitude."""
        return {}

    @classmethod
    def core_dims(cls) -> tuple[str, ...]:
        """Return the dimensions other than time, step, level, latitude and longitude."""
        return tuple(dict.fromkeys(p.core_dim for p in cls.parameters.values() if p.core_dim))

    @property
    def dims(self) -> tuple[str, ...]:
        """Return the dimensions of its variables."""
        return ("time", *self.core_dims(), *FIELD[1:])

    def attributes(self) -> dict[str, str]:
        """Return the attributes of its Dataset, with `forecast_kind`."""
        return {"forecast_kind": self.kind}

    def variable_attributes(self, name: str, target: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of a variable of the Dataset.

        Only a value of the target (a member, a quantile, the mean) keeps the target's attributes,
        such as the CF `standard_name`: it has no name for a scale, a shape or a bound, and the
        mean of a component is not that of the forecast.

        Args:
            name: of the variable.
            target: attributes of the target, such as `units`, `long_name` and `standard_name`.
        """
        parameter = self._stored_parameters[name]
        attributes = dict(target) if parameter.is_quantity else {}
        attributes["units"] = target.get("units", "") if parameter.unit == "target" else "1"
        words = [parameter.long_name or name, str(target.get("long_name", ""))]
        return attributes | {"long_name": " of ".join(filter(None, words))}

    @property
    def _stored_parameters(self) -> Mapping[str, Parameter]:
        return self.parameters

    def to_dataset(self, coords: Mapping[str, Any], units: str) -> xr.Dataset:
        """Convert the forecast to a Dataset over time, (a core dimension,) latitude, longitude.

        Args:
            coords: coordinates, as in `xarray.Dataset`: `time` (start dates), `valid_time` as
                `("time", dates)`, the scalar `step`, `latitude`, `longitude`, and for an ensemble
                optionally `number` (default 1 to M).
            units: units of the target variable.

        Raises:
            ArgumentError: a coordinate is missing or has another length than its dimension.
        """
        missing = [d for d in (*FIELD, "step", "valid_time") if d not in coords]
        if missing:
            raise ArgumentError("coords", f"{', '.join(missing)} missing")
        arrays = {
            name: (self.dims, on_host(value), self.variable_attributes(name, {"units": units}))
            for name, value in self.variables().items()
        }
        core: dict[str, Any] = {k: list(values) for k, values in self.core_coordinates().items()}
        try:
            return xr.Dataset(arrays, coords={**core, **coords}, attrs=self.attributes())
        except ValueError as error:
            raise ArgumentError("coords", f"do not fit the forecast: {error}") from error

    @classmethod
    def stored_variables(cls, names: Any) -> tuple[str, ...]:
        """Return the parameters to read from a Dataset with these variables."""
        return tuple(k for k, p in cls.parameters.items() if k in names or p.default is None)

    @classmethod
    def target_unit_variables(cls, names: Any) -> tuple[str, ...]:
        """Return those variables to read that have the target's unit."""
        return tuple(k for k in cls.stored_variables(names) if cls.parameters[k].unit == "target")

    @classmethod
    def from_variables(
        cls,
        variables: Mapping[str, Any],
        coordinates: Mapping[Any, Any],  # noqa: ARG003
    ) -> "Distribution":
        """Build the distribution from a Dataset's variables (..., [core,] H, W).

        Args:
            variables: arrays by name.
            coordinates: coordinates of the core dimensions.
        """
        return cls(**variables)

    @staticmethod
    def from_dataset(dataset: xr.Dataset) -> "Distribution":
        """Build the distribution of a forecast Dataset, with numpy arrays.

        Raises:
            ArgumentError: no `forecast_kind` in its attributes.
            UnknownNameError: a `forecast_kind` that is not known.
            MissingDataError: variables of that kind that it lacks.
        """
        from ens10.metrics.distributions.forecast_dataset import checked_forecast

        checked = checked_forecast(dataset)
        kind = CLASSES[str(checked.attrs["forecast_kind"])]
        arrays = {str(name): values.to_numpy() for name, values in checked.data_vars.items()}
        return kind.from_variables(arrays, checked.coords)


class ClosedForm(Distribution):
    """A family of distributions whose scores are closed forms of its parameters.

    A subclass is a dataclass of the parameters and, last, `positive`: True if the caller
    guarantees valid parameters, so that scores do not check them (a check synchronises with the
    GPU).

    Attributes:
        kernels: the closed forms by the names "crps", "log_score", "cdf", "cdf_below" (for
            families with point masses), "mean" and "variance".
        formulas: the same as functions of arrays of any library.
        inverse: function (ops, *parameters, p) that returns quantiles in float64, or None.
        inverse_on_host: True if `inverse` takes numpy arrays only.
        bounds: names of the parameters that are bounds, of "lower" and "upper".
        support: interval that contains every value, whatever the parameters.
        symmetric: True if the density is even about `mu`.
        censored_as: kind of the censored version of the family, if there is one.
        truncates: True for a family whose bounds `lower` and `upper` truncate it.
        head_channels: numbers from which `from_moments` builds it: 2 for location and scale, 3
            with a shape. 0 if heads and statistical methods cannot forecast it.
        oracles: what its CRPS is tested against, for the page of the scores.
        amounts: True for a family of amounts of 0 or more, such as precipitation.
        unit_scale: scale of the distribution without bounds whose standard deviation is 1.
    """

    kernels: ClassVar[Mapping[str, Kernel]] = {}
    formulas: ClassVar[Mapping[str, Any]] = {}
    inverse: ClassVar[Function | None] = None
    inverse_on_host: ClassVar[bool] = False
    bounds: ClassVar[tuple[str, ...]] = ()
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    symmetric: ClassVar[bool] = False
    censored_as: ClassVar[str] = ""
    truncates: ClassVar[bool] = False
    head_channels: ClassVar[int] = 0
    oracles: ClassVar[str] = ""
    amounts: ClassVar[bool] = False
    unit_scale: ClassVar[float] = 1.0
    positive: bool

    def __init_subclass__(cls, kind: str = "", **options: Any) -> None:
        super().__init_subclass__(kind, **options)
        cls.bounds = tuple(k for k in ("lower", "upper") if k in cls.parameters)
        cls.formulas = {k: v.formula(k, cls.parameters, cls.kind) for k, v in cls.kernels.items()}
        cls.offers = QUANTILE_STATISTICS if cls.inverse is not None else COMMON_STATISTICS
        cls.offers |= {"log_score", "variance"} & cls.kernels.keys()
        cls.offers |= {"error", "error2"} if "mean" in cls.kernels else set()

    def __post_init__(self) -> None:
        self.check_shapes()

    @classmethod
    def from_moments(cls, mean: Any, std: Any, third: Any, unit: Any, **options: Any) -> Any:  # noqa: ARG003
        """Build a forecast from numbers of any size, as heads and statistical methods have them.

        Args:
            mean: expectation before bounds, (...), target units; of a family without mean, the
                location.
            std: standard deviation before bounds, above 0, target units.
            third: any real number, (...), that the shape is computed from; families with two
                `head_channels` ignore it.
            unit: size of the smallest amounts, target units, for families with a shift.
            **options: further parameters, such as bounds.
        """
        build: Any = cls
        return build(mu=mean, sigma=cls.unit_scale * std, positive=True, **options)

    def _evaluate(self, name: str, *y: Any) -> Any:
        """Return the result of a closed form for the parameters and, where it has one, `y`."""
        formula: Formula = self.formula(name)
        # tensors of one dtype take the path with analytic gradients
        names = self.parameters
        arguments = (*map(getattr, [self] * len(names), names), *y)
        if formula.has_gradient and are_tensors(arguments):
            return on_tensors(formula, *arguments, check=not self.positive)
        return formula(*arguments, check=not self.positive)

    @classmethod
    def formula(cls, name: str) -> Any:
        """Return a formula by name.

        Raises:
            ArgumentError: the family has no such closed form.
        """
        if name not in cls.formulas:
            label = "density" if name == "log_score" else name
            raise ArgumentError("family", f"the {label} of {cls.kind} is not in closed form here")
        return cls.formulas[name]

    def crps(self, y: Any) -> Any:
        """Return the CRPS in closed form."""
        return self._evaluate("crps", y)

    def log_score(self, y: Any) -> Any:
        """Return minus the logarithm of the density, or of the probability of a point mass."""
        return self._evaluate("log_score", y)

    def cdf(self, y: Any) -> Any:
        """Return the probability of a value of at most `y`; 1/2 at `y = mu` if the scale is 0."""
        return self._evaluate("cdf", y)

    def cdf_below(self, y: Any) -> Any:
        """Return the probability of a value less than `y`."""
        return self._evaluate("cdf_below" if "cdf_below" in self.formulas else "cdf", y)

    def pit(self, y: Any, seed: int = 0) -> Any:
        """Return the PIT, drawn uniformly where the family has a point mass."""
        return super().pit(y, seed) if "cdf_below" in self.formulas else self._evaluate("cdf", y)

    def twcrps(self, y: Any, lower: Any, upper: Any) -> Any:
        """Return the threshold-weighted CRPS: in closed form if there is one, else by quantiles.

        That of truncated families has no gradient; tensors are scored by quantiles.
        """
        if not (self.censored_as or (self.truncates and self.ops is NUMPY)):
            return super().twcrps(y, lower, upper)
        ops, bounds = self.ops, (getattr(self, "lower", -np.inf), getattr(self, "upper", np.inf))
        start, end, a, b = (self._as_field(x) for x in (lower, upper, *bounds))
        low, high = clip(ops, start, a, b), clip(ops, end, a, b)
        # beyond its own bounds the cdf is 0 or 1, and the integral a distance
        y, none = self._as_field(y), ops.full_like(low, 0.0)
        below = ops.maximum(ops.minimum(a, end) - ops.maximum(start, y), none)
        above = ops.maximum(ops.minimum(y, end) - ops.maximum(b, start), none)
        outside = ops.where(a > -np.inf, below, none) + ops.where(b < np.inf, above, none)
        return self._twcrps_within(clip(ops, y, low, high), low, high) + outside

    def _twcrps_within(self, y: Any, low: Any, high: Any) -> Any:
        """Return the threshold-weighted CRPS for thresholds within the bounds, y between them.

        If truncated, F(z) is p + q G(z) between the thresholds, with G truncated to them, and the
        score q^2 CRPS(G, y) + 2 q [p E(y - Z)+ + r E(Z - y)+] + p^2 (y - low) + r^2 (high - y),
        where p and r are the probabilities beyond the thresholds; no term is negative.
        """
        if self.censored_as:
            from ens10.metrics.distributions.registry import distribution_class

            return self._with_bounds(distribution_class(self.censored_as), low, high).crps(y)
        ops = self.ops
        p, r = self.cdf(low), 1.0 - self.cdf(high)
        q = 1.0 - p - r
        # an interval without width has q = 0; it is widened, so that its CRPS is finite
        inside = self._with_bounds(type(self), low, ops.where(low < high, high, low + 1.0))
        level = inside.cdf(y)

        def beyond(share: Any, mass: Any, bound: Any) -> Any:
            """Return the terms of the probability `share` beyond `bound`, `mass` that up to it."""
            distant = ops.isfinite(bound) & (bound != y)
            other = ops.where(distant, bound, y - 1.0)
            first, last = ops.minimum(other, y), ops.maximum(other, y)
            part = self._with_bounds(type(self), first, last)
            mean_distance = 0.5 * (part.crps(y) - part.crps(other) + last - first)
            terms = share * (2.0 * q * mass * mean_distance + share * (last - first))
            return ops.where(distant, terms, 0.0 * share)

        return q * q * inside.crps(y) + beyond(p, level, low) + beyond(r, 1.0 - level, high)

    def _with_bounds(self, cls: "type[Any]", lower: Any, upper: Any) -> Any:
        values = self.values_by_name | {"lower": lower, "upper": upper}
        return cls(**values, positive=True)

    @classmethod
    def has_twcrps(cls) -> bool:
        """Return True if the threshold-weighted CRPS is a closed form."""
        return bool(cls.censored_as) or cls.truncates or cls.twcrps is not ClosedForm.twcrps

    @property
    def mean(self) -> Any:
        """Return the expectation."""
        return self._evaluate("mean")

    @property
    def variance(self) -> Any:
        """Return the variance."""
        return self._evaluate("variance")

    @property
    def std(self) -> Any:
        """Return the standard deviation."""
        return self.ops.sqrt(self.variance)

    def quantile(self, q: Any) -> Any:
        """Return the quantiles of one probability, or of a vector (Q,) of them."""
        p = self.probabilities(q)
        return self._quantile_at(p.reshape(*p.shape, *[1] * self.like.ndim))

    def _quantile_at(self, p: Any) -> Any:
        """Return quantiles at probabilities that broadcast against the field."""
        if self.inverse is None:
            raise ArgumentError("family", f"{self.kind} has no quantiles in closed form here")
        ops, like = self.ops, self.like
        values = self.values_by_name.items()
        if self.inverse_on_host and ops is not NUMPY:
            if any(getattr(v, "requires_grad", False) for _, v in values):
                raise ArgumentError(self.kind, "its quantiles have no gradient", "Pass .detach()")
            arrays = [on_host(v).astype(np.float64) for _, v in values]
            return ops.cast(type(self).inverse(NUMPY, *arrays, on_host(p)), like)  # type: ignore[misc]
        arguments = [ops.double_like(v, like) for _, v in values]
        with np.errstate(all="ignore"):
            quantile = type(self).inverse(ops, *arguments, p)  # type: ignore[misc]
        return ops.cast(quantile, like)


@dataclass(eq=False)
class Bounded(ClosedForm):
    """A family between two bounds: truncated there, or censored, which puts a mass at each bound.

    Args:
        mu: location before the bounds, (..., H, W), target units.
        sigma: scale before the bounds, 0 or more, target units.
        lower: lower bound, a number or a field; -inf for none.
        upper: upper bound, above `lower`; inf for none.
        positive: True to skip the check that the parameters are valid.
    """

    mu: Any
    sigma: Any
    lower: Any = -np.inf
    upper: Any = np.inf
    positive: bool = False

    parameters: ClassVar = BOUNDED
    head_channels = 2
    amounts = True


def clip(ops: Any, x: Any, lower: Any, upper: Any) -> Any:
    """Clip values to two bounds."""
    return ops.minimum(ops.maximum(x, lower), upper)


def samples_to_core_axis(ops: Any, samples: Any) -> Any:
    """Move the axis of samples: (n, ..., H, W) -> (..., n, H, W)."""
    return ops.moveaxis(samples, 0, max(CORE, -samples.ndim))


def on_host(value: Any) -> Any:
    """Return the values of an array of either library as numpy."""
    return value.detach().cpu().numpy() if is_tensor(value) else np.asarray(value)
