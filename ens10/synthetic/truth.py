"""The truth of the synthetic world, which no forecast can know better than `Law.moments`.

Given the ten members as decoded from the files, with realised mean m and standard deviation sd of
the target at 48 h, and the realised mean of another variable aux, the truth at each point is

    y = m + b(s, day) + k(s) tanh(aux / scale) + (a(s) sd + d(s)) eps

with eps standard normal, correlated in space. a, b, d and k differ between the regions of a map
that is in no input. Hence y is normal with mean m + b + k g and deviation a sd + d, exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ens10.catalog import VARIABLES
from ens10.channels import split
from ens10.errors import ArgumentError
from ens10.synthetic.recipes import Recipe, recipe

Floats = npt.NDArray[np.float64]
TARGET_STEP = 48
# One row a region: bias b, its annual cycle's peak (day), response k to the wind, dispersion a and
# noise d; b, k and d in units of the target's typical spread. k changes sign between regions, so
# that no model without location can have it, and a > 1 makes the raw ensemble too sure of itself.
_BIAS = np.array([1.1, -0.8, 0.5, -1.2])
_PEAK = np.array([20.0, 110.0, 200.0, 290.0])
_RESPONSE = np.array([1.2, -1.1, -0.8, 0.9])
_DISPERSION = np.array([1.1, 1.5, 1.3, 1.9])
_NOISE = np.array([0.1, 0.35, 0.2, 0.15])
_CYCLE = 0.4
WIND_SCALE = 5.0  # m s-1


@dataclass(frozen=True)
class Law:
    """How the truth of one target follows from the forecasts.

    Attributes:
        channel: the target, such as "t2m" or "z_500".
        aux: the channel of the wind that the bias responds to.
        region: shape (H, W), the hidden map, 0 to 3.
    """

    channel: str
    aux: str
    region: npt.NDArray[np.int64]

    def moments(
        self, mean: Floats, deviation: Floats, aux: Floats, day: int
    ) -> tuple[Floats, Floats]:
        """Mean and deviation of the truth given the forecast: the optimum.

        Args:
            mean: (H, W), realised ensemble mean of the target, as decoded.
            deviation: (H, W), its realised standard deviation (n - 1).
            aux: (H, W), realised ensemble mean of the wind, m s-1.
            day: day of the year of the valid date.
        """
        scale = recipe_of(self.channel).spread
        annual = 1 + _CYCLE * np.cos(2 * np.pi * (day - _PEAK) / 365.25)
        bias = (_BIAS * annual)[self.region] * scale
        response = _RESPONSE[self.region] * scale * np.tanh(aux / WIND_SCALE)
        sigma = _DISPERSION[self.region] * deviation + _NOISE[self.region] * scale
        return mean + bias + response, sigma


def law_of(channel: str, held: Sequence[str], region: npt.NDArray[np.int64]) -> Law:
    """The law of one target: its bias responds to the zonal wind on its level, or at 10 m.

    Args:
        channel: the target, a channel of the world.
        held: all channels of the world.
        region: the hidden map.

    Raises:
        ArgumentError: the world holds no wind for the bias to respond to.
    """
    _, level = split(channel) if channel not in VARIABLES else (channel, None)
    winds = [f"u_{level}", "u10"] if level else ["u10"]
    for aux in winds:
        if aux in held:
            return Law(channel, aux, region)
    raise ArgumentError("variables", f"the truth of {channel} needs {' or '.join(winds)}", "Add it")


def recipe_of(channel: str) -> Recipe:
    """The recipe of a channel by its name."""
    return recipe(channel, None) if channel in VARIABLES else recipe(*split(channel))


def hidden_map(fields: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Four regions from the signs of two smooth fields (2, H, W)."""
    region: npt.NDArray[np.int64] = 2 * (fields[0] > 0) + (fields[1] > 0)
    return region
