"""The extreme forecast index of the raw ensemble on the dates of a forecast, block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array
from ens10.metrics.extremes import Origin, efi, origin
from ens10.metrics.verification.alignment import APART

Role = Literal["other", "raw", "any"]


@dataclass(frozen=True)
class RawIndex:
    """Where the index of each date comes from. Nothing is read before `load`.

    Attributes:
        fields: "members" and "climate", or "index"; dimensions in order, time as the forecast's.
        apart: steps and levels of the forecast, 1 for what it has not.
        made: what the index is made of.
        method: of `efi`.
        roles: of each scored forecast: "other" must not be the raw ensemble, "raw" must.
    """

    fields: dict[str, xr.DataArray]
    apart: tuple[int, int]
    made: Origin
    method: str
    roles: tuple[Role, ...]

    def part(self, dates: slice) -> "RawIndex":
        """Some of the dates."""
        return replace(self, fields={k: v.isel(time=dates) for k, v in self.fields.items()})

    @property
    def size(self) -> int:
        """How many values there are to read."""
        return sum(field.size for field in self.fields.values())

    def load(self) -> "LoadedRaw":
        """Reads it."""
        arrays = {}
        for name, field in self.fields.items():
            core = [d for d in field.dims if d not in ("time", *APART)]
            shape = [field.sizes["time"], *self.apart, *(field.sizes[d] for d in core)]
            arrays[name] = field.to_numpy().reshape(shape)
        levels = None
        if "climate" in self.fields:
            levels = self.fields["climate"]["quantile"].to_numpy().astype(np.float64)
        return LoadedRaw(arrays, levels, self.made, self.method, self.roles)


@dataclass(frozen=True)
class LoadedRaw:
    """A block of it in memory.

    Attributes:
        arrays: as `RawIndex.fields`, (dates, steps, levels, [core,] H, W).
        levels: of the climate's quantiles.
        made: as of `RawIndex`, like what follows.
        method: of `efi`.
        roles: of each scored forecast.
    """

    arrays: dict[str, Array]
    levels: npt.NDArray[np.float64] | None
    made: Origin
    method: str
    roles: tuple[Role, ...]

    def index(self) -> Array:
        """The index of every case, (dates, steps, levels, H, W)."""
        if "index" in self.arrays:
            return self.arrays["index"]
        members, climate = self.arrays["members"], self.arrays["climate"]
        shape = members.shape[:3]
        found = [
            efi(
                members[case], climate[case], method=self.method,
                member_dim=0, quantile_dim=0, levels=self.levels,
            )
            for case in np.ndindex(shape)
        ]  # fmt: skip
        whole: Array = np.stack(found).reshape(*shape, *members.shape[4:])
        return whole

    def check(self, scored: Sequence[Array | None]) -> None:
        """Refuses members that are, or are not, those that the index is made of.

        Args:
            scored: members of each forecast; None for other kinds.

        Raises:
            ArgumentError: a date of an "other" forecast is the raw ensemble's, or none of "raw".
        """
        marks: set[str] | None = None
        for members, role in zip(scored, self.roles, strict=True):
            if members is None or role == "any":
                continue
            if marks is None:
                raw = self.arrays.get("members")
                marks = set(self.made.marks) if raw is None else _marks(raw)
            own = _marks(members)
            if own & marks and role == "other":
                raise improper(self.made)
            if own and not own & marks and role == "raw":
                raise another(self.made)


def _marks(values: Array) -> set[str]:
    """Marks of the dates whose values differ: others look alike without being the same."""
    varied = [
        date for date in values if np.fmin.reduce(date, axis=None) < np.fmax.reduce(date, axis=None)
    ]
    return set(origin("values", *varied).marks)


def improper(made: Origin) -> ArgumentError:
    """A forecast that is weighted by an index of itself."""
    return ArgumentError(
        "raw",
        f"the forecast that is scored is {made.source!r}, of which the EFI is: that is improper",
        "Take the raw ensemble; to score that one itself, say scores_raw (--scores-raw)",
    )


def another(made: Origin) -> ArgumentError:
    """A forecast that was said to be the raw ensemble."""
    return ArgumentError(
        "scores_raw",
        f"the EFI is of {made.source!r}, the forecast is another",
        "Leave it out, or give both the same forecast_name if they are one",
    )
