"""The group STORE/climate: its arrays, coordinates and attributes."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ens10.channels import attributes_of, channel_names, resolve
from ens10.climate import years_of
from ens10.errors import FileError, UnknownNameError
from ens10.protocol import protocol_of, reference_of, split_dates
from ens10.quantiles.members import StoreMembers
from ens10.quantiles.options import ClimateOptions, quantile_levels
from ens10.quantiles.window import Climatology
from ens10.store import consolidate, create_array, forecasts, write_coordinates
from ens10.untrusted import parse_json

_OUTER = ("judged_year", "month_day", "step")
_DIMS = (*_OUTER, "quantile", "latitude", "longitude")


@dataclass(frozen=True)
class ClimateArrays:
    """What STORE/climate holds, and where."""

    store: Path
    dataset: xr.Dataset
    channels: list[str]
    steps: list[float]
    month_days: list[str]
    judged_years: list[int]
    levels: npt.NDArray[np.float64]
    climatologies: dict[float, Climatology]

    @property
    def folder(self) -> Path:
        """Of the group."""
        return self.store / "climate"

    def members(self, channel: str, step: float) -> StoreMembers:
        """What reads the members of a channel at a step."""
        return StoreMembers(self.store, channel, step, self.dataset)

    def file(self, channel: str, place: tuple[int, int, int]) -> Path:
        """The file of the chunk at a place along judged_year, month_day and step."""
        return self.folder.joinpath(channel, "c", *map(str, place), "0", "0", "0")

    def finish(self) -> None:
        """Tells the store's own list of arrays about the climate, if it has one."""
        about = parse_json((self.store / "zarr.json").read_text())
        if "consolidated_metadata" in about:
            consolidate(self.store)


def create_climate(store: Path, options: ClimateOptions) -> ClimateArrays:
    """The arrays of a climate, made where they are not there yet.

    Raises:
        UnknownNameError: the store lacks a channel or a step.
        FileError: the store has a climate made with other options.
    """
    arrays = _planned(store, forecasts(store, dask=False), options)
    attributes = _attributes(arrays, options)
    if arrays.folder.exists():
        held = zarr.open_group(store, mode="r", use_consolidated=False)
        found: Any = held.get("climate")
        kept = dict(found.attrs) if found is not None else {}
        if {name: kept.get(name) for name in attributes} == attributes:
            return arrays
        if "protocol" in kept:
            raise FileError(
                arrays.folder, "made with other options or from other dates", "Remove it first"
            )
        shutil.rmtree(arrays.folder)  # an interrupted beginning, without values
    _create(arrays, attributes)
    return arrays


def check_climate(dataset: xr.Dataset, options: ClimateOptions) -> tuple[list[str], list[float]]:
    """The channels and steps of a climate, before any work is done for it.

    Args:
        dataset: forecasts, lazy or not.
        options: what the climate shall be.

    Raises:
        UnknownNameError: the forecasts lack a channel or a step.
        ArgumentError: their years are too few for the protocol.
    """
    known = channel_names(dataset)
    channels = list(dict.fromkeys(resolve(name, known, "climate") for name in options.channels))
    held = dataset["step"].to_numpy().tolist()
    for step in options.steps:
        if step not in held:
            raise UnknownNameError("climate: step", step, held)
    valid = dataset["valid_time"].sel(step=options.steps[0]).to_numpy()
    split_dates(protocol_of(options.protocol), dataset["time"].to_numpy(), valid)
    return channels, sorted(set(options.steps))


def _planned(store: Path, dataset: xr.Dataset, options: ClimateOptions) -> ClimateArrays:
    channels, steps = check_climate(dataset, options)
    time = dataset["time"].to_numpy().astype("M8[s]")
    valid = dataset["valid_time"].sel(step=steps).transpose("step", "time").to_numpy()
    climatologies = {
        step: Climatology(time, own.astype("M8[s]"), protocol_of(options.protocol), options.window)
        for step, own in zip(steps, valid, strict=True)
    }
    some = climatologies[steps[0]]
    levels = quantile_levels(options.levels, options.protocol)
    years = some.judged_years()
    return ClimateArrays(
        store, dataset, channels, steps, some.calendar, years, levels, climatologies
    )


def _attributes(arrays: ClimateArrays, options: ClimateOptions) -> dict[str, Any]:
    """What the climate is: equal for equal options and dates."""
    some = arrays.climatologies[arrays.steps[0]]
    years = {int(y) for i in arrays.judged_years for y in years_of(_of(some, some.eligible(i)))}
    rules, rolling = protocol_of(options.protocol), some.rolling
    rule = f"the {rolling} years that end with judged_year" if rolling else "the training years"
    kept = reference_of(rules)
    own = {} if isinstance(kept, str) else {"rules": kept}  # of a protocol of one's own
    return {
        "protocol": rules.name,
        **own,
        "years": sorted(years),
        "climate_years": rule,
        "window": options.window,
        "levels": arrays.levels.size,
        "method": "linear",
        "channels": arrays.channels,
        "dates": int(some.time.size),
    }


def _of(climatology: Climatology, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.datetime64]:
    """The dates by which climate years are counted: valid ones, or starts if they roll."""
    return (climatology.time if climatology.rolling else climatology.valid_time)[chosen]


def _create(arrays: ClimateArrays, attributes: dict[str, Any]) -> None:
    root = zarr.open_group(arrays.store, mode="r+", use_consolidated=False)
    group = root.create_group("climate")
    coordinates = _coordinates(arrays)
    shape = [coordinates.sizes[dim] for dim in _DIMS]
    for name in arrays.channels:
        create_array(
            group,
            name,
            shape,
            _DIMS,
            chunks=[1 if dim in _OUTER else size for dim, size in zip(_DIMS, shape, strict=True)],
            attributes={**attributes_of(name), **_units(arrays, name)},
        )
    write_coordinates(group, coordinates, [*_DIMS, "members"])
    group.attrs.update(attributes)  # last: a group with attributes is complete


def _units(arrays: ClimateArrays, name: str) -> dict[str, Any]:
    attributes = arrays.members(name, arrays.steps[0]).about.attrs
    return {"units": attributes["units"]} if "units" in attributes else {}


def _coordinates(arrays: ClimateArrays) -> xr.Dataset:
    dataset = arrays.dataset
    members = [
        [[_count(arrays.climatologies[step], year, day, dataset) for step in arrays.steps]
         for day in arrays.month_days]
        for year in arrays.judged_years
    ]  # fmt: skip
    whose = {"long_name": "year of the valid date that is judged, 0 for any but the climate years"}
    return xr.Dataset(
        coords={
            "judged_year": ("judged_year", np.array(arrays.judged_years, np.int64), whose),
            "month_day": ("month_day", np.array(arrays.month_days, np.dtypes.StringDType())),
            "step": ("step", np.array(arrays.steps), dict(dataset["step"].attrs)),
            "quantile": ("quantile", arrays.levels, {"units": "1"}),
            "latitude": dataset["latitude"],
            "longitude": dataset["longitude"],
            "members": (_OUTER, np.array(members, np.int64), {"long_name": "size of the sample"}),
        }
    )


def _count(climatology: Climatology, year: int, month_day: str, dataset: xr.Dataset) -> int:
    dates = climatology.positions(month_day, climatology.eligible(year))
    return int(dates.size * dataset.sizes["number"])
