"""Which variables of a dataset are fields of a forecast: members, or a deterministic field."""

import warnings
from collections.abc import Collection
from pathlib import Path

import xarray as xr

from ens10.errors import DataNote, FileError, listing
from ens10.grib.header import PRODUCT_TYPES
from ens10.identity import FieldKind, Method

_PRODUCT_DIMS = {
    **dict.fromkeys(("quantile", "quantile_level", "percentile"), FieldKind.QUANTILE),
    **dict.fromkeys(("threshold", "threshold_above", "threshold_below"), FieldKind.PROBABILITY),
}
MEMBER_DIMS = ("number", "realization", "member", "ensemble", "sample", "ensemble_member")
_FORECAST_KIND = "forecast_kind"  # attribute of the distributions that ens10 writes


def without_products(
    dataset: xr.Dataset, source: Path | str, mapped: Collection[str] = ()
) -> xr.Dataset:
    """Drop the products of an ensemble from a dataset, with a warning that names them.

    Products are variables over quantiles or thresholds, means and spreads by CF `cell_methods`, and
    parameters of the distributions that ens10 writes.

    Args:
        dataset: with the names of its file.
        source: where it comes from, for errors.
        mapped: variables that the user has named, which are kept.

    Raises:
        FileError: no other variable is left.
    """
    kinds = {
        str(name): kind_of_variable(field, dataset) for name, field in dataset.data_vars.items()
    }
    products = {n: k for n, k in kinds.items() if not k.is_forecast and n not in mapped}
    if not products:
        return dataset
    texts = [f"{name} ({kind})" for name, kind in products.items()]
    is_all = all(dataset[n].ndim < 2 for n in kinds if n not in products)
    tell_products("variables", texts, source, is_all=is_all)
    unused = {dim for name in products for dim in dataset[name].dims}
    reduced = dataset.drop_vars(products)
    used = {dim for field in reduced.data_vars.values() for dim in field.dims}
    return reduced.drop_dims((unused - used) & set(reduced.dims))


def tell_products(what: str, texts: list[str], source: Path | str, *, is_all: bool) -> None:
    """Warn of what is left out because it is a product of an ensemble.

    Raises:
        FileError: nothing else is left.
    """
    text = listing(texts)
    if is_all:
        reason = f"it has no members and no deterministic fields, only {text}"
        raise FileError(source, reason, "Choose the ensemble that they were computed from")
    note = f"{source}: {what} that are no members are left out: {text}"
    warnings.warn(note, DataNote, stacklevel=5)


def kind_of_variable(field: xr.DataArray, dataset: xr.Dataset) -> FieldKind:
    """Return the kind of a variable.

    Args:
        field: the variable.
        dataset: that it belongs to, whose attributes may say that ens10 wrote it.
    """
    data_type = PRODUCT_TYPES.get(str(field.attrs.get("GRIB_dataType")))  # as cfgrib writes it
    if data_type is not None:
        return data_type
    for dim in field.dims:
        if dim in _PRODUCT_DIMS:
            return _PRODUCT_DIMS[str(dim)]
    name = str(field.attrs.get("standard_name", ""))
    if name.startswith("probability_of_"):
        return FieldKind.PROBABILITY
    if name.endswith(" standard_error"):
        return FieldKind.SPREAD
    is_member = any(dim in MEMBER_DIMS for dim in field.dims)
    methods = str(field.attrs.get("cell_methods", ""))
    for axis in ("realization:", "number:"):
        method = methods.partition(axis)[2].split()
        if method and method[0] != Method.POINT and not is_member:
            return FieldKind.MEAN if method[0] == Method.MEAN else FieldKind.SPREAD
    is_written = _FORECAST_KIND in dataset.attrs or _FORECAST_KIND in field.attrs
    if is_written and not is_member and field.ndim > 1:
        return FieldKind.PARAMETER
    return FieldKind.MEMBER if is_member else FieldKind.DETERMINISTIC
