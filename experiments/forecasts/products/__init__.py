"""Products of `ens10 apply`: what it writes beside the parameters of the forecast distributions.

Each product is a file of this folder, which declares its options, its variables and how they are
computed. Nothing here imports torch before a forecast is corrected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    options_of,
)

__all__ = ["CorrectedDate", "Fields", "ForecastProduct", "Products", "product_types"]


@cache
def product_types() -> tuple[type[ForecastProduct], ...]:
    """Return the products of this folder, by the names of their files."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(
        member
        for module in modules
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, ForecastProduct)
        and member is not ForecastProduct
    )


class Products:
    """The variables to write besides the parameters of the forecast distributions.

    Args:
        quantiles: levels between 0 and 1.
        probabilities: thresholds in the target's units, such as ">303.15" and "<273.15".
        members: "ecc", "schaake" or "sample"; None for none.
        **options: other options of products, which the files of this folder declare.

    Raises:
        ArgumentError: an invalid option of a product.
        UnknownNameError: another option, or an unknown choice of one.
    """

    def __init__(
        self,
        quantiles: Sequence[float] = (),
        probabilities: Sequence[str] = (),
        members: str | None = None,
        **options: Any,
    ) -> None:
        options |= {"quantiles": quantiles, "probabilities": probabilities, "members": members}
        names = {kind: [one.name for one in fields(kind)] for kind in product_types()}  # type: ignore[arg-type]
        known = [name for one in names.values() for name in one]
        for name in options:
            if name not in known:
                raise UnknownNameError("product", name, known)
        self.all = tuple(
            kind(**{name: options[name] for name in names[kind] if name in options})
            for kind in names
        )

    def __iter__(self) -> Iterator[ForecastProduct]:
        """Return the products that are wanted."""
        return (product for product in self.all if product.is_wanted)

    @property
    def options(self) -> dict[str, Any]:
        """The options of all products, by name."""
        return {name: value for one in self.all for name, value in options_of(one).items()}

    def for_grib(self) -> "Products":
        """Return the products as GRIB holds them: with moments in place of parameters.

        Raises:
            ArgumentError: GRIB has no such product.
        """
        for product in self:
            if not product.in_grib:
                name = next(iter(options_of(product)))
                raise ArgumentError(name, "GRIB has no such product", "Write netCDF or Zarr")
        return Products(**{**self.options, "moments": True})

    @property
    def need_members(self) -> bool:
        """True if the features of a date must have the raw members."""
        return any(product.needs_members for product in self)

    @property
    def need_history(self) -> bool:
        """True if past truth is read."""
        return any(product.needs_history for product in self)

    def may_be_nan(self, name: str) -> bool:
        """Return True for a variable that may be NaN where the forecast is not."""
        suffixes = [s for product in self if product.may_be_nan for s in product.variables]
        return any(name.endswith(f"_{suffix}") for suffix in suffixes)

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:
        """Return the values of the dimensions of all products, besides time and place."""
        return {name: v for one in self for name, v in one.coordinates(date).items()}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the variables of all products of a date."""
        return {name: v for one in self for name, v in one.fields(date).items()}
