"""Corrected forecasts as GRIB: mean and spread as `em` and `es`, and members.

Where the forecast came from GRIB files, each message is the raw one of its variable, date, step and
level with other values, so that all that a centre's tables say of it stays; else messages of
edition 1 are made. Values are packed with 24 bits.
"""

from collections.abc import Iterator
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
from ens10.export.message import grid_of
from ens10.grib import Encoder, Message
from ens10.progress import track
from ens10.source.gribs import GribFields

_BITS = 24  # a range of 100 K in steps of 6e-6 K; what every reader of GRIB takes
_MISSING = -1.0e30
_INSTEAD = "Write netCDF or Zarr"
_MOMENTS = {"em": "mean", "es": "std"}
_DERIVED = {"em": 0, "es": 4}  # WMO's code table 4.7: mean, and spread of all members
_TEMPLATES = {1: 2, 11: 12}  # edition 2: of a member, of what is derived from all members
Keys = dict[str, Any]


@dataclass(frozen=True)
class Header:
    """A message whose header a corrected field is given.

    Attributes:
        data: the message.
        order: (H, W) place of each point of a field, north to south and eastward, in its values.
    """

    data: bytes
    order: npt.NDArray[np.int64]

    def message(self, field: npt.NDArray[np.float32], keys: Keys) -> bytes:
        """The message with other values and keys.

        Raises:
            ArgumentError: its edition or tables have no such keys.
        """
        values = np.empty(field.size)
        # in double precision before the mark goes in: as float32 it would be another number
        values[self.order.ravel()] = np.where(np.isnan(field), _MISSING, field.astype("f8")).ravel()
        handle = eccodes.codes_new_from_message(self.data)
        try:
            for key, value in self._known(handle, keys).items():
                eccodes.codes_set(handle, key, value)
            eccodes.codes_set(handle, "bitmapPresent", int(np.isnan(field).any()))
            eccodes.codes_set(handle, "missingValue", _MISSING)
            eccodes.codes_set(handle, "packingType", "grid_simple")
            eccodes.codes_set(handle, "bitsPerValue", _BITS)
            eccodes.codes_set_values(handle, values)
            return bytes(eccodes.codes_get_message(handle))
        except eccodes.CodesInternalError as error:
            what = ", ".join(f"{key}={value}" for key, value in keys.items())
            reason = f"the raw file's GRIB headers do not take {what} ({error})"
            raise ArgumentError("format", reason, _INSTEAD) from error
        finally:
            eccodes.codes_release(handle)

    def _known(self, handle: Any, keys: Keys) -> Keys:
        """The keys, with those by which edition 2 says what is derived from all members."""
        kind = str(keys.get("type", ""))
        if eccodes.codes_get(handle, "edition") != 2 or kind not in _DERIVED:
            return keys
        number = eccodes.codes_get(handle, "productDefinitionTemplateNumber")
        if number not in _TEMPLATES:
            reason = f"no mean or spread in GRIB 2 of product definition template {number}"
            raise ArgumentError("format", reason, _INSTEAD)
        others = {key: value for key, value in keys.items() if key != "perturbationNumber"}
        template = {"productDefinitionTemplateNumber": _TEMPLATES[number]}
        return {**template, "derivedForecast": _DERIVED[kind], **others}


class Headers:
    """The headers of corrected fields: those of raw messages, or new ones.

    Args:
        dataset: the corrected forecast, for its grid.
        raw: the GRIB files that were corrected; None if the forecast was none.
    """

    def __init__(self, dataset: xr.Dataset, raw: GribFields | None) -> None:
        self._raw, self._encoder = raw, None
        if raw is None:
            self._grid = grid_of(dataset)
            self._encoder = Encoder(self._grid, "pf", int(dataset.sizes.get("number", 1)))

    def of(self, target: str, time: np.datetime64, step: float, member: int = 0) -> Header:
        """The header of a field.

        Args:
            target: channel.
            time: start.
            step: hours.
            member: position of the raw member whose message it is.
        """
        name, level = (target, None) if target in VARIABLES else split_exactly(target)
        if self._encoder is not None:
            return self._made(_variable(name), time, int(step), int(level or 0))
        message = self._found(name, level, time, step, member)
        with message.path.open("rb") as file:
            file.seek(message.offset)
            data = file.read(message.length)
        points = np.arange(message.grid.rows * message.grid.columns)
        return Header(data, message.scan.orient(points, message.grid))

    def _found(
        self, name: str, level: float | None, time: np.datetime64, step: float, member: int
    ) -> Message:
        raw: Any = self._raw
        i = int(np.searchsorted(raw.times, time.astype(raw.times.dtype)))
        place = 0 if level is None else raw.levels[name].index(level)
        held = raw.messages(name, i, raw.steps.index(int(step)), place)
        found: Message = held[member] or next(message for message in held if message is not None)
        return found

    def _made(self, variable: Variable, time: np.datetime64, step: int, level: int) -> Header:
        moment = time.astype("datetime64[s]").item()
        zeros, date = np.zeros((self._grid.rows, self._grid.columns)), int(f"{moment:%Y%m%d}")
        encoder: Any = self._encoder
        data = encoder.message(zeros, variable, date=date, step=step, level=level)
        order = np.arange(zeros.size).reshape(zeros.shape)
        return Header(_at(data, moment.hour * 100 + moment.minute), order)


def write_corrected(
    path: Path,
    dataset: xr.Dataset,
    targets: list[str],
    raw: GribFields | None,
    *,
    same_members: bool,
    progress: bool = False,
) -> None:
    """Write mean, spread and members of corrected forecasts, one field in memory at a time.

    Args:
        path: the file; what is there is replaced.
        dataset: variables TARGET_mean, TARGET_std and, for members, TARGET, over time, step where
            lead times differ, number, latitude and longitude.
        targets: channels.
        raw: the GRIB files that were corrected; None if the forecast was none.
        same_members: whether each member is the correction of a raw member, whose number and type
            it keeps; if not, members are perturbed forecasts numbered from 1.
        progress: show a progress bar.

    Raises:
        ArgumentError: GRIB cannot hold the grid, the steps, or what is derived from members.
    """
    whole = dataset if "step" in dataset.dims else _with_step(dataset)
    check_for_grib(whole.drop_attrs(), "sfc")
    headers, total = Headers(whole, raw), whole.sizes["time"] * whole.sizes["step"] * len(targets)
    with path.open("wb") as file:
        for messages in track(
            _each(whole, targets, headers, same_members), "GRIB", total, progress
        ):
            for message in messages:
                file.write(message)


def _each(
    dataset: xr.Dataset, targets: list[str], headers: Headers, same_members: bool
) -> Iterator[Iterator[bytes]]:
    for i, time in enumerate(dataset["time"].to_numpy()):
        for j, step in enumerate(dataset["step"].to_numpy().tolist()):
            for target in targets:
                one = dataset.isel(time=i, step=j)
                yield _messages(one, target, time, step, headers, same_members)


def _messages(
    one: xr.Dataset,
    target: str,
    time: np.datetime64,
    step: float,
    headers: Headers,
    same_members: bool,
) -> Iterator[bytes]:
    """The messages of one target, date and step; none where no run corrects it."""
    mean = one[f"{target}_mean"].to_numpy()
    if np.isnan(mean).all():
        return
    header = headers.of(target, time, step)
    for kind, moment in _MOMENTS.items():
        keys = {"type": kind, "perturbationNumber": 0}
        yield header.message(one[f"{target}_{moment}"].to_numpy(), keys)
    for n in range(one.sizes["number"] if target in one else 0):
        kept = headers.of(target, time, step, n) if same_members else header
        own: Keys = {} if same_members else {"type": "pf", "perturbationNumber": n + 1}
        yield kept.message(one[target].isel(number=n).to_numpy(), own)


def _with_step(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset of one step with a dimension of it."""
    units = dataset["step"].attrs
    raised = dataset.reset_coords("valid_time").expand_dims("step", axis=1)
    return raised.set_coords("valid_time").assign_coords(
        step=("step", [float(dataset["step"])], units)
    )


def _variable(name: str) -> Variable:
    if name not in VARIABLES:
        reason = f"{name} has no GRIB parameter number in the catalogue"
        raise ArgumentError("format", reason, _INSTEAD)
    return VARIABLES[name]


def _at(data: bytes, clock: int) -> bytes:
    handle = eccodes.codes_new_from_message(data)
    try:
        eccodes.codes_set(handle, "dataTime", clock)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)
