"""What each variable of the synthetic world looks like: climate, variability, forecast spread.

Round numbers in the real units and ranges; nothing here is fitted to data.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ens10.catalog import LEVELS_HPA
from ens10.errors import UnknownNameError

_GRAVITY = 9.80665


@dataclass(frozen=True)
class Recipe:
    """One channel of the world, in its own units.

    Attributes:
        equator: climatological mean at the equator.
        pole: climatological mean at the poles.
        season: amplitude of the annual cycle at the poles (half of it at 30 degrees), over sea.
        signal: standard deviation of the forecast signal.
        spread: typical ensemble standard deviation at 48 h.
        family: channels of one family share most of their signal.
        lower: smallest value possible.
        upper: largest value possible.
        land: factor of the annual cycle over land.
    """

    equator: float
    pole: float
    season: float
    signal: float
    spread: float
    family: str
    lower: float = -np.inf
    upper: float = np.inf
    land: float = 1.0


_SURFACE = {
    "sst": Recipe(301, 271.6, 4, 0.8, 0.15, "heat", lower=271.35),
    "tcw": Recipe(45, 5, 4, 5, 2.0, "moisture", lower=0.1),
    "tcwv": Recipe(44, 4.5, 4, 5, 2.0, "moisture", lower=0.1),
    "cp": Recipe(0.003, 0.0, 0.0002, 0.002, 0.001, "rain", lower=0.0),
    "msl": Recipe(101100, 100900, 200, 900, 220, "mass"),
    "tcc": Recipe(0.6, 0.65, 0.0, 0.25, 0.15, "cloud", lower=0.0, upper=1.0),
    "u10": Recipe(-2, 2, 0.3, 5, 1.4, "zonal"),
    "v10": Recipe(0, 0, 0.2, 5, 1.4, "meridional"),
    "t2m": Recipe(299, 252, 12, 3.5, 0.9, "heat", land=1.8),
    "tp": Recipe(0.005, 0.0005, 0.0003, 0.003, 0.0015, "rain", lower=0.0),
    "skt": Recipe(300, 251, 13, 4.0, 1.1, "heat", land=2.0),
}
_HEIGHT_EQUATOR = (31000, 20700, 16600, 12400, 9690, 7590, 5870, 3150, 1500, 780, 100)
_HEIGHT_POLE = (29500, 19500, 15500, 11000, 8500, 6600, 5050, 2700, 1250, 600, 0)
_HEAT_EQUATOR = (232, 208, 195, 219, 241, 256, 268, 283, 291, 296, 300)
_HEAT_POLE = (225, 215, 218, 218, 215, 225, 235, 250, 258, 260, 262)
_JET = (10, 8, 15, 25, 20, 15, 12, 7, 5, 4, 2)
_MOISTURE = (3e-6, 3e-6, 3e-6, 3e-5, 3e-4, 1e-3, 2.5e-3, 6e-3, 0.011, 0.014, 0.017)


def recipe(name: str, level: int | None) -> Recipe:
    """The recipe of a variable, on a level for variables on pressure levels.

    Raises:
        UnknownNameError: the world has no such variable or level.
    """
    if level is None:
        if name not in _SURFACE:
            raise UnknownNameError("variables", name, _SURFACE)
        return _SURFACE[name]
    if level not in LEVELS_HPA:
        raise UnknownNameError("levels", level, LEVELS_HPA)
    k = LEVELS_HPA.index(level)
    upper = {
        "z": Recipe(
            _HEIGHT_EQUATOR[k] * _GRAVITY, _HEIGHT_POLE[k] * _GRAVITY, 700, 700, 120, "mass"
        ),
        "t": Recipe(_HEAT_EQUATOR[k], _HEAT_POLE[k], 7, 3, 0.8, "heat"),
        "u": Recipe(0.3 * _JET[k], _JET[k], 1, 7, 2.0, "zonal"),
        "v": Recipe(0, 0, 0.3, 7, 2.0, "meridional"),
        "q": Recipe(
            _MOISTURE[k],
            0.1 * _MOISTURE[k],
            0.05 * _MOISTURE[k],
            0.15 * _MOISTURE[k],
            0.06 * _MOISTURE[k],
            "moisture",
            lower=1e-7,
        ),
        "w": Recipe(-0.02, 0.01, 0, 0.15, 0.08, "vertical"),
        "d": Recipe(0, 0, 0, 2e-5, 1e-5, "divergence"),
    }
    if name not in upper:
        raise UnknownNameError("variables", name, upper)
    return upper[name] if level > 100 else replace(upper[name], season=0.0)


def climatology(
    recipe: Recipe, latitude: npt.NDArray[np.float64], land: npt.NDArray[np.bool_], day: int
) -> npt.NDArray[np.float64]:
    """The climatological mean of one day of the year.

    Args:
        recipe: of the channel.
        latitude: shape (H,), degrees north.
        land: shape (H, W).
        day: day of the year, from 1.

    Returns:
        Shape (H, W), in the channel's units; the annual cycle peaks in July in the north.
    """
    sine = np.sin(np.deg2rad(latitude))[:, None]
    mean = recipe.equator + (recipe.pole - recipe.equator) * sine**2
    cycle = np.cos(2 * np.pi * (day - 200) / 365.25)
    amplitude = recipe.season * np.sign(sine) * np.minimum(1.0, 2 * np.abs(sine)) / 1.0
    centre: npt.NDArray[np.float64] = mean + amplitude * cycle * np.where(land, recipe.land, 1.0)
    return centre
