"""The units of a store, with their names and sizes, before any of them is made."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import dask
import numpy as np
import xarray as xr

from ens10.climate import blocks
from ens10.convert.identity import Plan
from ens10.convert.sources import Forecasts
from ens10.convert.structure import Chunks
from ens10.convert.units import SUMS, ForecastUnit, Form, SumsUnit, TruthUnit, Unit
from ens10.packed16.layout import values_begin

_FLOAT_BYTES, _SUM_BYTES = 4, 8


@dataclass(frozen=True)
class Planned:
    """A unit that is made when its turn comes.

    Attributes:
        name: of the unit.
        size: bytes that it will write, at the most.
        make: makes the unit.
    """

    name: str
    size: int
    make: Callable[[], Unit]


def planned_units(
    forecasts: Forecasts, form: Form, truth: xr.Dataset | None, where: str
) -> list[Planned]:
    """The units of forecasts and truth, in the order of the dates."""
    sizes = forecasts.template.sizes
    points = form.rows * form.columns
    moments = 2 * len(form.ensembles) * form.channels * points * _FLOAT_BYTES
    chunks = Chunks.of(forecasts.template)
    found = []
    for place in product(range(sizes["time"]), range(sizes["step"])):
        parts = chunks.at(place)
        heads = len(parts) * (values_begin(form.members) + 8 * form.members)
        size = forecasts.width(place, parts) + heads + moments
        found.append(_forecast(forecasts, form, chunks, place, size))
    if truth is not None:
        fields = sum(field[0].size for field in truth.data_vars.values())
        for i in range(truth.sizes["time"]):
            found.append(_truth(truth, i, fields * _FLOAT_BYTES, where, form.any_values))
    return found


def _forecast(
    forecasts: Forecasts, form: Form, chunks: Chunks, place: tuple[int, int], size: int
) -> Planned:
    name = f"forecast-{place[0]:06d}-{place[1]:03d}"

    def make() -> Unit:
        parts = chunks.at(place)
        return ForecastUnit(name, place, form, parts, forecasts.fields(place, parts))

    return Planned(name, size, make)


def _truth(truth: xr.Dataset, date: int, size: int, where: str, any_values: bool) -> Planned:
    name = f"truth-{date:06d}"

    def make() -> Unit:
        (culled,) = dask.optimize(truth.isel(time=date))  # type: ignore[no-untyped-call, attr-defined]
        return TruthUnit(name, date, culled, where, any_values)

    return Planned(name, size, make)


def planned_sums(root: Path, forecasts: xr.Dataset, form: Form) -> list[Planned]:
    """The units of sums, one for each block of valid years and step."""
    years, block_of = blocks(forecasts["valid_time"].to_numpy())
    shape = (form.channels, form.rows, form.columns)
    kinds = tuple(f"{kind}{suffix}" for suffix, _ in form.ensembles for kind in ("mean", "std"))
    size = len(kinds) * len(SUMS) * int(np.prod(shape)) * _SUM_BYTES
    found = []
    for block, step in product(range(len(years)), range(forecasts.sizes["step"])):
        dates = tuple(i for i, member in enumerate(block_of) if member == block)
        unit = SumsUnit(f"sums-{block:06d}-{step:03d}", root, (block, step), dates, kinds, shape)
        found.append(Planned(unit.name, size, lambda unit=unit: unit))  # type: ignore[misc]
    return found


def axes_of(forecasts: xr.Dataset, truth: xr.Dataset | None) -> Plan:
    """What the store's arrays span, as JSON holds it."""
    axes: Plan = {"forecasts": _axes(forecasts)}
    if truth is not None:
        axes["truth"] = _axes(truth)
    return axes


def _axes(dataset: xr.Dataset) -> Plan:
    axes: Plan = {}
    for dim in map(str, dataset.dims):
        values = dataset[dim].to_numpy()
        if np.issubdtype(values.dtype, np.datetime64):
            axes[dim] = [str(value) for value in values.astype("datetime64[s]")]
        elif dim in ("latitude", "longitude"):
            axes[dim] = [values.size, float(values[0]), float(values[-1])]
        else:
            axes[dim] = values.tolist()
    axes["variables"] = {str(n): list(map(str, f.dims)) for n, f in dataset.data_vars.items()}
    return axes
