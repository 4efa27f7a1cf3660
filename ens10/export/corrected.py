"""Corrected forecasts as GRIB: mean, spread, members, quantiles and probabilities.

If the forecast was read from GRIB files, each message is a copy of the raw message of its variable,
date, step and level with new values and the keys of `ens10.export.grib_products`, so that all other
entries of a centre's tables are kept; otherwise new messages are encoded. Values are packed with 24
bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eccodes
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES, Variable
from ens10.channels import split_exactly
from ens10.errors import ArgumentError
from ens10.export.grib import check_for_grib
from ens10.export.grib_products import REMEDY, Encoding, GribProduct, set_product
from ens10.export.message import grid_of, handle_of
from ens10.grib import Encoder, Message
from ens10.progress import track
from ens10.source.gribs import GribFields

_BITS = 24  # a range of 100 K in steps of 6e-6 K; what every reader of GRIB takes
_MISSING = -1.0e30
_PERCENT = 100.0


@dataclass(frozen=True)
class Header:
    """A message whose header is used for a corrected field.

    Attributes:
        data: the message.
        order: (H, W) place of each point of a field, north to south and eastward, in its values.
        encoding: how the field is written.
    """

    data: bytes
    order: npt.NDArray[np.int64]
    encoding: Encoding

    def message(self, field: npt.NDArray[np.float32], product: GribProduct) -> bytes:
        """Return the message with new values and the keys of a product.

        Raises:
            ArgumentError: its edition or tables have no such keys.
        """
        values = np.empty(field.size)
        # in double precision before the mark goes in: as float32 it would be another number
        values[self.order.ravel()] = np.where(np.isnan(field), _MISSING, field.astype("f8")).ravel()
        with handle_of(self.data) as handle:
            self._set_edition(handle)
            set_product(handle, product, self.encoding.post_processed)
            eccodes.codes_set(handle, "bitmapPresent", int(np.isnan(field).any()))
            eccodes.codes_set(handle, "missingValue", _MISSING)
            eccodes.codes_set(handle, "packingType", "grid_simple")
            eccodes.codes_set(handle, "bitsPerValue", _BITS)
            eccodes.codes_set_values(handle, values)
            return bytes(eccodes.codes_get_message(handle))

    def _set_edition(self, handle: Any) -> None:
        """Convert a message to the edition of the encoding, if it has another."""
        edition = eccodes.codes_get(handle, "edition")
        new_edition = self.encoding.edition or edition
        if new_edition == edition:
            return
        name = eccodes.codes_get(handle, "shortName")
        try:
            eccodes.codes_set(handle, "edition", new_edition)
            is_same_variable = eccodes.codes_get(handle, "shortName") == name
        except eccodes.CodesInternalError:
            is_same_variable = False
        if not is_same_variable:
            reason = f"ecCodes cannot convert {name} from GRIB edition {edition} to {new_edition}"
            raise ArgumentError("edition", reason, "Leave out --edition")


class Headers:
    """The headers of corrected fields: those of raw messages, or new ones.

    Args:
        dataset: the corrected forecast, for its grid.
        raw: the GRIB files that were corrected; None if the forecast is not GRIB.
        encoding: how fields are written.
    """

    def __init__(self, dataset: xr.Dataset, raw: GribFields | None, encoding: Encoding) -> None:
        self._raw, self._encoder, self._encoding = raw, None, encoding
        if raw is None:
            self._grid = grid_of(dataset)
            self._encoder = Encoder(self._grid, "pf", int(dataset.sizes.get("number", 1)))

    def of(
        self, target: str, time: np.datetime64, step: float, member: int | None = None
    ) -> Header:
        """Return the header of a field.

        Args:
            target: channel.
            time: start.
            step: hours.
            member: label of the raw member whose message it is; None for any.
        """
        name, level = (target, None) if target in VARIABLES else split_exactly(target)
        if self._encoder is not None:
            if step != int(step):
                reason = f"the new GRIB headers have whole hours, and the lead time is {step:g} h"
                raise ArgumentError("format", reason, "Write netCDF or Zarr")
            return self._new_header(_variable(name), time, int(step), int(level or 0))
        message = self._raw_message(name, level, time, step, member)
        with message.path.open("rb") as file:
            file.seek(message.offset)
            data = file.read(message.length)
        grid, scan = message.meaning.grid, message.meaning.scan
        order = scan.orient(np.arange(grid.rows * grid.columns), grid)
        return Header(data, order, self._encoding)

    def _raw_message(
        self, name: str, level: float | None, time: np.datetime64, step: float, member: int | None
    ) -> Message:
        raw: Any = self._raw
        time_index = int(np.searchsorted(raw.times, time.astype(raw.times.dtype)))
        level_index = 0 if level is None else raw.levels[name].index(level)
        members = raw.messages(name, time_index, raw.steps.index(step), level_index)
        own = members[raw.numbers.index(member)] if member in raw.numbers else None
        parts = own or next(parts for parts in members if parts)
        message: Message = parts[-1].message
        return message

    def _new_header(self, variable: Variable, time: np.datetime64, step: int, level: int) -> Header:
        moment = time.astype("datetime64[s]").item()
        zeros, date = np.zeros((self._grid.rows, self._grid.columns)), int(f"{moment:%Y%m%d}")
        encoder: Any = self._encoder
        data = encoder.message(zeros, variable, date=date, step=step, level=level)
        order = np.arange(zeros.size).reshape(zeros.shape)
        with handle_of(data) as handle:
            eccodes.codes_set(handle, "dataTime", moment.hour * 100 + moment.minute)
            data = bytes(eccodes.codes_get_message(handle))
        return Header(data, order, self._encoding)


def write_corrected(
    path: Path,
    dataset: xr.Dataset,
    targets: list[str],
    raw: GribFields | None,
    *,
    raw_members: Sequence[int] | None,
    sizes: Mapping[tuple[str, float], int],
    encoding: Encoding,
    progress: bool = False,
) -> None:
    """Write corrected forecasts, one field in memory at a time.

    Args:
        path: the file; what is there is replaced.
        dataset: variables TARGET_mean and TARGET_std and, if there are any, TARGET (members),
            TARGET_quantile, TARGET_probability_above and TARGET_probability_below, over time, step
            where lead times differ, their own dimension, latitude and longitude. Probabilities
            are written in percent.
        targets: channels.
        raw: the GRIB files that were corrected; None if the forecast is not GRIB.
        raw_members: labels of the raw members whose number and type the members keep; None if
            members are perturbed forecasts numbered from 1. A member that is NaN everywhere is
            left out.
        sizes: number of raw members of each target and step that mean and spread are derived from,
            at dates without the variable `members_used` (or TARGET_members_used).
        encoding: edition and templates.
        progress: show a progress bar.

    Raises:
        ArgumentError: GRIB cannot hold the grid, the steps, or a product.
    """
    total = dataset.sizes["time"] * dataset.sizes.get("step", 1) * len(targets)
    parts = _message_groups(dataset, targets, raw, encoding, raw_members, sizes)
    with path.open("wb") as file:
        for messages in track(parts, "GRIB", total, progress):
            for message in messages:
                file.write(message)


def check_corrected(
    dataset: xr.Dataset,
    targets: list[str],
    raw: GribFields | None,
    *,
    raw_members: Sequence[int] | None,
    sizes: Mapping[tuple[str, float], int],
    encoding: Encoding,
) -> None:
    """Check that `write_corrected` can write forecasts, by encoding the first date.

    Args:
        dataset: as for `write_corrected`; its values may be zeros, NaN where nothing is corrected.
        targets: channels.
        raw: the GRIB files that were corrected; None if the forecast is not GRIB.
        raw_members: as for `write_corrected`.
        sizes: as for `write_corrected`.
        encoding: edition and templates.

    Raises:
        ArgumentError: GRIB cannot hold the grid, the steps, or a product.
    """
    part = dataset.isel(time=[0], number=[0], missing_dims="ignore")
    for messages in _message_groups(part, targets, raw, encoding, raw_members, sizes):
        for _ in messages:
            pass


def _message_groups(
    dataset: xr.Dataset, targets: list[str], raw: GribFields | None, encoding: Encoding,
    raw_members: Sequence[int] | None, sizes: Mapping[tuple[str, float], int],
) -> Iterator[Iterator[bytes]]:  # fmt: skip
    """Yield the messages of each date, step and target."""
    dataset = dataset if "step" in dataset.dims else _with_step(dataset)
    check_for_grib(dataset.drop_attrs(), "sfc")
    headers = Headers(dataset, raw, encoding)
    for i, time in enumerate(dataset["time"].to_numpy()):
        for j, step in enumerate(dataset["step"].to_numpy().tolist()):
            for target in targets:
                forecast = dataset.isel(time=i, step=j)
                size = _members_used(forecast, target, sizes.get((target, step), 0))
                yield _messages(forecast, target, time, step, headers, raw_members, size)


def _messages(
    forecast: xr.Dataset, target: str, time: np.datetime64, step: float, headers: Headers,
    raw_members: Sequence[int] | None, size: int,
) -> Iterator[bytes]:  # fmt: skip
    """Yield the messages of one target, date and step; none if its mean is NaN everywhere."""
    if np.isnan(forecast[f"{target}_mean"].to_numpy()).all():
        return
    header = headers.of(target, time, step)
    for n in range(forecast.sizes["number"] if target in forecast else 0):
        field = forecast[target].isel(number=n).to_numpy()
        if np.isnan(field).all():
            continue
        own = None if raw_members is None else headers.of(target, time, step, raw_members[n])
        yield (own or header).message(field, GribProduct("pf", n + 1 if own is None else None))
    for product_field, product in _products(forecast, target, size):
        yield header.message(product_field.to_numpy(), product)


def _members_used(forecast: xr.Dataset, target: str, size: int) -> int:
    """Return the number of raw members of one target, date and step; `size` if none is missing."""
    names = (f"{target}_members_used", "members_used")
    counts = [float(forecast[name]) for name in names if name in forecast]
    return int(counts[0]) if counts and np.isfinite(counts[0]) else size


def _products(
    forecast: xr.Dataset, target: str, size: int
) -> Iterator[tuple[xr.DataArray, GribProduct]]:
    """Yield the fields of one target, date and step that are not members, with their products."""
    yield forecast[f"{target}_mean"], GribProduct("em", total=size)
    yield forecast[f"{target}_std"], GribProduct("es", total=size)
    if f"{target}_quantile" in forecast:
        for n, level in enumerate(forecast["quantile_level"].to_numpy().tolist()):
            yield (
                forecast[f"{target}_quantile"].isel(quantile_level=n),
                GribProduct("pb", value=level),
            )
    events = [
        (forecast[f"{target}_probability_{side}"].isel({f"threshold_{side}": n}), side, threshold)
        for side in ("above", "below")
        if f"{target}_probability_{side}" in forecast
        for n, threshold in enumerate(forecast[f"threshold_{side}"].to_numpy().tolist())
    ]
    for n, (field, side, threshold) in enumerate(events, 1):
        yield field * _PERCENT, GribProduct("ep", n, len(events), threshold, side == "above")


def _with_step(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset of one step with a dimension `step`."""
    units = dataset["step"].attrs
    expanded = dataset.reset_coords("valid_time").expand_dims("step", axis=1)
    return expanded.set_coords("valid_time").assign_coords(
        step=("step", [float(dataset["step"])], units)
    )


def _variable(name: str) -> Variable:
    if name not in VARIABLES:
        reason = f"{name} has no GRIB parameter number in the catalogue"
        raise ArgumentError("format", reason, REMEDY)
    return VARIABLES[name]
