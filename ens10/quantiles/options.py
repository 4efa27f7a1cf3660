"""What climate a store shall hold."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ens10.channels import step_number
from ens10.errors import ArgumentError
from ens10.protocol import Protocol, protocol_names, protocol_of

_STEP = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class ClimateOptions:
    """The model-climate quantiles to keep: every channel at every step.

    Attributes:
        channels: such as "t2m" or "z500".
        steps: in the units of the store.
        levels: number of evenly spaced quantile levels from 0 to 1; None for the protocol's (101,
            or the authors' 21 in `paper`).
        window: start dates of the calendar that make up the climate of one, itself in the middle.
        protocol: its name, or a protocol of one's own; see `ens10.quantiles.window`.

    Raises:
        ArgumentError: no channel or step, an even window, fewer than two levels.
        UnknownNameError: no such protocol.
    """

    channels: tuple[str, ...]
    steps: tuple[float, ...]
    levels: int | None = None
    window: int = 9
    protocol: str | Protocol = "clean"

    def __post_init__(self) -> None:
        if not (self.channels and self.steps):
            raise ArgumentError("climate", "no channel or no step", "Write for example t2m@48")
        quantile_levels(self.levels, self.protocol)
        check_window(self.window)


def parse_climate(
    words: Sequence[str],
    *,
    levels: int | None = None,
    window: int | None = None,
    protocol: str | Protocol = "clean",
) -> ClimateOptions:
    """Options from words such as "t2m@48" or "z500@24,48"; what is None is the protocol's.

    Raises:
        ArgumentError: another form, channels at different steps, or an option out of range.
        UnknownNameError: no such protocol.
    """
    wanted: dict[str, list[float]] = {}
    for word in words:
        channel, _, steps = word.partition("@")
        parts = steps.split(",")
        if not channel or not all(_STEP.fullmatch(part) for part in parts):
            raise ArgumentError("climate", f"{word!r} is no CHANNEL@STEP", "Write t2m@48")
        wanted.setdefault(channel, []).extend(step_number(part) for part in parts)
    each = {channel: tuple(sorted(set(steps))) for channel, steps in wanted.items()}
    if len(set(each.values())) > 1:
        said = "; ".join(f"{channel} at {', '.join(map(str, s))}" for channel, s in each.items())
        raise ArgumentError("climate", f"different steps: {said}", "Give all the same steps")
    common = next(iter(each.values()), ())
    rules = protocol_of(protocol)
    kept = protocol if protocol in protocol_names() else rules  # not the path of a file
    return ClimateOptions(tuple(each), common, levels, window or rules.efi.window, kept)


def quantile_levels(levels: int | None, protocol: str | Protocol) -> npt.NDArray[np.float64]:
    """Evenly spaced levels from 0 to 1; None for as many as the protocol has.

    Raises:
        ArgumentError: fewer than two.
        UnknownNameError: no such protocol.
    """
    count = protocol_of(protocol).efi.levels if levels is None else levels
    if count < 2:
        raise ArgumentError("levels", f"{count} quantile levels", "Give 2 or more, such as 101")
    return np.linspace(0.0, 1.0, count)


def check_window(window: int) -> None:
    """Refuses a window that has no middle.

    Raises:
        ArgumentError: it is even or less than 1.
    """
    if window < 1 or window % 2 == 0:
        raise ArgumentError("window", f"{window} dates have no middle", "Give an odd number")
