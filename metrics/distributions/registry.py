"""Look up distributions by the name of their kind, as written in stores and configurations."""

import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError, listing
from ens10.metrics.distributions.base import CLASSES, ClosedForm, Distribution

_is_complete = False


def _import_all() -> None:
    """Import the modules of this package, each of which adds its classes to `CLASSES`."""
    global _is_complete
    if _is_complete:
        return
    package = import_module("ens10.metrics.distributions")
    for module in iter_modules(package.__path__):
        if not module.name.startswith("_"):  # such as the one that needs torch
            import_module(f"{package.__name__}.{module.name}")
    _is_complete = True


def kinds() -> list[str]:
    """Return the names of all kinds, the most common ones first."""
    _import_all()
    first = [kind for kind in ("normal", "ensemble", "quantiles") if kind in CLASSES]
    return first + sorted(CLASSES.keys() - set(first))


class _Families(Mapping[str, type[ClosedForm]]):
    """Mapping from kind to class, for the distributions with closed forms."""

    def __getitem__(self, name: str) -> type[ClosedForm]:
        return _closed_forms()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_closed_forms())

    def __len__(self) -> int:
        return len(_closed_forms())


def _closed_forms() -> dict[str, type[ClosedForm]]:
    pairs = ((kind, CLASSES[kind]) for kind in kinds())
    return {kind: cls for kind, cls in pairs if issubclass(cls, ClosedForm)}


FAMILIES: Mapping[str, type[ClosedForm]] = _Families()


def distribution_class(kind: str) -> type[Distribution]:
    """Return the class of a kind.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if kind not in CLASSES and kind not in kinds():
        raise UnknownNameError("kind", kind, kinds())
    return CLASSES[kind]


def location_scale(
    kind: str,
    mu: Any,
    sigma: Any,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    df: Any = math.inf,
) -> ClosedForm:
    """Build a location-scale distribution by the name of its kind.

    Args:
        kind: one of `location_scale_kinds`.
        mu: location of the distribution without bounds, (..., H, W), target units.
        sigma: its scale, above 0 (not checked), same shape and units.
        lower: lower bound of a bounded family, target units.
        upper: upper bound.
        df: degrees of freedom of a Student's t; for a finite CRPS above 1/2, above 1 if bounded.

    Raises:
        UnknownNameError: an unknown kind.
        ArgumentError: the shapes differ.
    """
    if kind not in (available := location_scale_kinds()):
        raise UnknownNameError("family", kind, available)
    build: Any = FAMILIES[kind]
    options = _own_options(FAMILIES[kind], lower=lower, upper=upper, df=df)
    forecast: ClosedForm = build(mu=mu, sigma=sigma, positive=True, **options)
    return forecast


def from_moments(
    kind: str, mean: Any, std: Any, third: Any = None, unit: Any = 1.0, **options: Any
) -> ClosedForm:
    """Build a forecast by the name of its kind, see `ClosedForm.from_moments`.

    Args:
        kind: a family with `head_channels`.
        mean: expectation before bounds, (...), target units.
        std: standard deviation before bounds, above 0, target units.
        third: any real number, (...), from which the shape is computed, where there is one.
        unit: size of the smallest amounts, target units.
        **options: `lower`, `upper` and `df`; those that are no parameter of the family are ignored.
    """
    cls = FAMILIES[kind]
    options = _own_options(cls, **options)
    forecast: ClosedForm = cls.from_moments(mean, std, third, unit, **options)
    return forecast


def _own_options(cls: type[ClosedForm], **options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in cls.parameters}


def location_scale_kinds() -> tuple[str, ...]:
    """Return the kinds with a location and a scale, with or without bounds and `df`."""
    return tuple(kind for kind, cls in FAMILIES.items() if cls.head_channels == 2)


def kind_of(forecast: xr.Dataset | xr.DataArray, argument: str = "forecast") -> type[Distribution]:
    """Return the class of a forecast Dataset, from its attribute `forecast_kind`.

    Args:
        forecast: Dataset with the attribute `forecast_kind`.
        argument: name of the caller's argument, for the message.

    Raises:
        ArgumentError: not a Dataset, or one without the attribute `forecast_kind`.
        UnknownNameError: a `forecast_kind` that is not known.
    """
    if not isinstance(forecast, xr.Dataset):
        reason = f"expected a Dataset, not a {type(forecast).__name__}"
        raise ArgumentError(argument, reason, "Variables of each kind: ens10.metrics.score_states")
    attribute = "attrs['forecast_kind']"
    name = str(forecast.attrs.get("forecast_kind", ""))
    if "forecast_kind" not in forecast.attrs:
        raise ArgumentError(
            argument,
            f"the Dataset has no {attribute}, which says what its variables are",
            f"Set {argument}.{attribute} to one of: {listing(kinds())}",
        )
    if name not in CLASSES and name not in kinds():
        raise UnknownNameError(f"{argument}.{attribute}", name, kinds())
    return CLASSES[name]
