"""Forecasts and truth of the pointwise synthetic world, from Gaussian random fields on the sphere.

    member i at one step = climatology(day) + signal(start, step) + spread(start, step) * e_i

The signal is correlated in space, over the steps, from one start date to the next, and between the
channels of one family; the spread depends on the flow. Everything is a function of the seed, the
start date and its position among the world's start dates, so files can be written in any order.

Given the ten members as decoded from the files, with realised mean m and standard deviation sd of
the target at 48 h, and the realised mean of another variable aux, the truth at each point is

    y = m + b(s, day) + k(s) tanh(aux / scale) + (a(s) sd + d(s)) eps

with eps standard normal, correlated in space. a, b, d and k differ between the regions s of a
hidden map that is not among the inputs. Hence y is exactly normal with mean
m + b + k tanh(aux / scale) and standard deviation a sd + d, and no forecast can be better than
`Law.moments`.

Random fields are sums of spherical harmonics with independent normal coefficients: isotropic,
periodic in longitude, consistent at the poles, with the same variance at every point. Climate,
variability and spread of each variable are round numbers in the real units, not fitted to data.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import LEVELS_HPA, VARIABLES
from ens10.channels import split
from ens10.errors import ArgumentError, UnknownNameError
from ens10.synthetic.sphere import SphereFields

GRAVITY = 9.80665


@dataclass(frozen=True)
class Recipe:
    """Climate, variability and spread of one channel of the world, in its own units.

    Attributes:
        equator: climatological mean at the equator.
        pole: climatological mean at the poles.
        season: amplitude of the annual cycle over sea, poleward of 30 degrees; proportional to
            the sine of latitude below.
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
    """Return the recipe of a variable, on a level for variables on pressure levels.

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
    q = _MOISTURE[k]
    upper = {
        "z": Recipe(_HEIGHT_EQUATOR[k] * GRAVITY, _HEIGHT_POLE[k] * GRAVITY, 700, 700, 120, "mass"),
        "t": Recipe(_HEAT_EQUATOR[k], _HEAT_POLE[k], 7, 3, 0.8, "heat"),
        "u": Recipe(0.3 * _JET[k], _JET[k], 1, 7, 2.0, "zonal"),
        "v": Recipe(0, 0, 0.3, 7, 2.0, "meridional"),
        "q": Recipe(q, 0.1 * q, 0.05 * q, 0.15 * q, 0.06 * q, "moisture", lower=1e-7),
        "w": Recipe(-0.02, 0.01, 0, 0.15, 0.08, "vertical"),
        "d": Recipe(0, 0, 0, 2e-5, 1e-5, "divergence"),
    }
    if name not in upper:
        raise UnknownNameError("variables", name, upper)
    return upper[name] if level > 100 else replace(upper[name], season=0.0)


def climatology(
    recipe: Recipe, latitude: npt.NDArray[np.float64], land: npt.NDArray[np.bool_], day: int
) -> npt.NDArray[np.float64]:
    """Return the climatological mean of one day of the year.

    Args:
        recipe: recipe of the channel.
        latitude: shape (H,), degrees north.
        land: shape (H, W).
        day: day of the year, from 1.

    Returns:
        Shape (H, W), in the channel's units; the annual cycle peaks in July in the north.
    """
    sine = np.sin(np.deg2rad(latitude))[:, None]
    mean = recipe.equator + (recipe.pole - recipe.equator) * sine**2
    cycle = np.cos(2 * np.pi * (day - 200) / 365.25)
    amplitude = recipe.season * np.sign(sine) * np.minimum(1.0, 2 * np.abs(sine))
    centre: npt.NDArray[np.float64] = mean + amplitude * cycle * np.where(land, recipe.land, 1.0)
    return centre


Floats = npt.NDArray[np.float64]
TARGET_STEP = 48
# One row a region: bias b, its annual cycle's peak (day), response k to the wind, dispersion a and
# noise d; b, k and d in units of the target's typical spread. k changes sign between regions, so
# that a model without location cannot learn it, and a > 1 makes the raw ensemble underdispersive.
_BIAS = np.array([1.1, -0.8, 0.5, -1.2])
_PEAK = np.array([20.0, 110.0, 200.0, 290.0])
_RESPONSE = np.array([1.2, -1.1, -0.8, 0.9])
_DISPERSION = np.array([1.1, 1.5, 1.3, 1.9])
_NOISE = np.array([0.1, 0.35, 0.2, 0.15])
_CYCLE = 0.4
WIND_SCALE = 5.0  # m s-1


@dataclass(frozen=True)
class Law:
    """Conditional distribution of the truth of one target, given the forecasts.

    Attributes:
        channel: the target, such as "t2m" or "z_500".
        aux: the channel of the wind on which the bias depends.
        region: shape (H, W), the hidden map, 0 to 3.
    """

    channel: str
    aux: str
    region: npt.NDArray[np.int64]

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the channels whose members the law depends on."""
        return self.channel, self.aux

    def forecast(self, decoded: Mapping[str, xr.DataArray], step: int) -> xr.Dataset:
        """Return mean and standard deviation of the truth, given the files.

        Args:
            decoded: members of `channels`, (time, number, latitude, longitude), float64.
            step: lead time in hours.

        Returns:
            The normal forecast with `mu` and `sigma` over (time, latitude, longitude).
        """
        target, aux = (decoded[name] for name in self.channels)
        mean, spread = target.mean("number"), target.std("number", ddof=1)
        days = target["valid_time"].dt.dayofyear.to_numpy()
        moments = [
            self.moments(mean[n].to_numpy(), spread[n].to_numpy(), wind, int(days[n]), step)
            for n, wind in enumerate(aux.mean("number").to_numpy())
        ]
        mu, sigma = (mean.copy(data=np.stack(part)) for part in zip(*moments, strict=True))
        # the mean is a value of the target; its standard deviation has no CF name
        mu.attrs, sigma.attrs = dict(target.attrs), {"units": target.attrs.get("units", "")}
        return xr.Dataset({"mu": mu, "sigma": sigma}, attrs={"forecast_kind": "normal"})

    def truth(self, forecast: xr.Dataset, noise: Floats) -> Floats:
        """Return the truth of one date, (H, W), from its distribution and a standard normal error.

        Args:
            forecast: one date of the result of the method `forecast`.
            noise: (H, W), standard normal.
        """
        return np.asarray((forecast["mu"] + forecast["sigma"] * noise).to_numpy())

    def moments(
        self, mean: Floats, deviation: Floats, aux: Floats, day: int, step: int = TARGET_STEP
    ) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the truth given the forecast: the optimum.

        Args:
            mean: (H, W), realised ensemble mean of the target, as decoded.
            deviation: (H, W), its realised standard deviation (n - 1).
            aux: (H, W), realised ensemble mean of the wind, m s-1.
            day: day of the year of the valid date.
            step: lead time in hours, to which bias and noise are proportional.
        """
        scale = recipe_of(self.channel).spread * (step / TARGET_STEP)
        annual = 1 + _CYCLE * np.cos(2 * np.pi * (day - _PEAK) / 365.25)
        bias = (_BIAS * annual)[self.region] * scale
        response = _RESPONSE[self.region] * scale * np.tanh(aux / WIND_SCALE)
        sigma = _DISPERSION[self.region] * deviation + _NOISE[self.region] * scale
        return mean + bias + response, sigma


def law_of(channel: str, channels: Sequence[str], region: npt.NDArray[np.int64]) -> Law:
    """Return the law of one target; its bias depends on the zonal wind at its level, or at 10 m.

    Args:
        channel: the target, a channel of the world.
        channels: all channels of the world.
        region: the hidden map.

    Raises:
        ArgumentError: the world lacks the wind that the bias depends on.
    """
    _, level = split(channel) if channel not in VARIABLES else (channel, None)
    winds = [f"u_{level}", "u10"] if level else ["u10"]
    for aux in winds:
        if aux in channels:
            return Law(channel, aux, region)
    raise ArgumentError("variables", f"the truth of {channel} needs {' or '.join(winds)}", "Add it")


def recipe_of(channel: str) -> Recipe:
    """Return the recipe of a channel by its name."""
    return recipe(channel, None) if channel in VARIABLES else recipe(*split(channel))


def hidden_map(fields: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return a map of four regions, from the signs of two smooth fields (2, H, W)."""
    region: npt.NDArray[np.int64] = 2 * (fields[0] > 0) + (fields[1] > 0)
    return region


Fields = npt.NDArray[np.float32]
_SIGNAL_KM, _MEMBER_KM, MAP_KM, ERROR_KM = 1500.0, 900.0, 3500.0, 600.0
# weight of the noise of the start before, relative to a start's own; with PAST = 3 the signal has
# an autocorrelation of 0.48 from one start date to the next
MEMORY = 0.5
PAST = 3  # number of starts that a signal depends on, itself included
SHARED_BY_FAMILY = 0.8
SHARED_BY_STEPS = 0.8
_FLOW = 0.35  # standard deviation of the logarithm of the spread
SPREAD_AT_START = 0.35  # of that at 48 h
LAND_THRESHOLD = 0.45
_STATIC, _SIGNAL, _SPREAD, _MEMBERS, _ERROR = range(5)  # streams of random numbers


@dataclass(frozen=True)
class Channel:
    """A variable, on a level in hPa or (None) at the surface."""

    name: str
    level: int | None

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the channel."""
        return recipe(self.name, self.level)


class Generator:
    """Base of the generators of a world's fields.

    Args:
        latitude: shape (H,), degrees north.
        columns: number of longitudes.
        channels: channels of the forecasts.
        steps: lead times in hours.
        members: size of the ensemble.
        starts: all start dates, in order.
        seed: seed of all random fields.
    """

    def __init__(
        self, latitude: Floats, columns: int, channels: Sequence[Channel], steps: Sequence[int],
        members: int, starts: Sequence[dt.date], seed: int,
    ) -> None:  # fmt: skip
        self.channels, self._steps, self._members = list(channels), list(steps), members
        self._latitude, self._columns, self._seed = latitude, columns, seed
        self._start_index = {start: n for n, start in enumerate(starts)}
        self._prepare()

    def _prepare(self) -> None:
        """Compute what all start dates share."""

    def _rng(self, stream: int, *key: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, stream, *key])

    def _growth(self, step: int) -> float:
        """Return the spread at a lead time, relative to that at 48 h."""
        return SPREAD_AT_START + (1 - SPREAD_AT_START) * step / TARGET_STEP

    def _signal_noise(
        self, draw: Callable[[np.random.Generator, int], Fields], stream: int, start: dt.date,
        count: int,
    ) -> Fields:  # fmt: skip
        """Return the noise of a signal, which depends on the starts before it, too."""
        weights = MEMORY ** np.arange(PAST)
        weights /= np.sqrt((weights**2).sum())
        last = self._start_index[start] + PAST
        noises = (draw(self._rng(stream, last - n), count) for n in range(PAST))
        return np.asarray(sum(w * noise for w, noise in zip(weights, noises, strict=True)))


class Atmosphere(Generator):
    """Generator of the fields of the pointwise world; see `Generator`."""

    def _prepare(self) -> None:
        latitude, columns = self._latitude, self._columns
        families = [channel.recipe.family for channel in self.channels]
        self._families = sorted(set(families))
        self._family_index = [self._families.index(family) for family in families]
        static = SphereFields.gaussian(latitude, columns, MAP_KM).draw(self._rng(_STATIC), 3)
        self.land: npt.NDArray[np.bool_] = static[0] > LAND_THRESHOLD
        self.region = hidden_map(static[1:])
        self._signal = SphereFields.gaussian(latitude, columns, _SIGNAL_KM)
        self._perturbation = SphereFields.gaussian(latitude, columns, _MEMBER_KM)
        self._error = SphereFields.gaussian(latitude, columns, ERROR_KM)

    def forecast(self, start: dt.date) -> Iterator[tuple[int, Channel, Fields]]:
        """Yield (step, channel, members (M, H, W)) of one start date; NaN for missing values."""
        signal, flow = self._signals(start), self._flow(start)
        perturbation = self._perturbations(start)
        for s, step in enumerate(self._steps):
            day = (start + dt.timedelta(hours=step)).timetuple().tm_yday
            for c, channel in enumerate(self.channels):
                channel_recipe = channel.recipe
                centre = climatology(channel_recipe, self._latitude, self.land, day)
                centre = centre + channel_recipe.signal * signal[s, c]
                spread = channel_recipe.spread * self._growth(step) * flow[self._family_index[c]]
                members = centre + spread * perturbation[:, c]
                members = np.clip(members, channel_recipe.lower, channel_recipe.upper)
                if channel.name == "sst":
                    members[:, self.land] = np.nan
                yield step, channel, members.astype(np.float32)

    def error(self, start: dt.date, stream: int, step: int = TARGET_STEP) -> Floats:
        """Return the random error of the truth: a standard normal field (H, W)."""
        # the key of 48 h has no lead time: worlds of that truth alone keep their values
        key = (start.toordinal(), stream, *([step] if step != TARGET_STEP else []))
        field = self._error.draw(self._rng(_ERROR, *key), 1)[0]
        return np.asarray(field, dtype=np.float64)

    def _signals(self, start: dt.date) -> Fields:
        """Return the forecast signals, standard normal fields (step, channel, H, W)."""
        count = (1 + len(self._steps)) * (len(self._families) + len(self.channels))
        noise = self._signal_noise(self._signal.noise, _SIGNAL, start, count)
        size = self._signal.truncation + 1
        per_step = noise.reshape(size, 2, 1 + len(self._steps), -1, size)
        common_noise, step_noise = per_step[:, :, :1], per_step[:, :, 1:]
        by_step = mix(SHARED_BY_STEPS, common_noise, step_noise)
        by_channel = self._mix_families(by_step).reshape(size, -1, size)
        fields = self._signal.synthesise(by_channel)
        return fields.reshape(len(self._steps), len(self.channels), *fields.shape[1:])

    def _mix_families(self, noise: Fields) -> Fields:
        """Return the noise of each channel, a part of which is shared by its family of variables.

        Args:
            noise: of the families, then of the channels, (..., families + channels, degree).

        Returns:
            Shape (..., channels, degree).
        """
        families = len(self._families)
        shared = noise[..., :families, :][..., self._family_index, :]
        return mix(SHARED_BY_FAMILY, shared, noise[..., families:, :])

    def _flow(self, start: dt.date) -> Fields:
        """Return the flow-dependent factor of the spread by family, (family, H, W), mean 1."""
        rng = self._rng(_SPREAD, start.toordinal())
        fields = self._signal.draw(rng, len(self._families))
        return np.asarray(np.exp(_FLOW * fields - _FLOW**2 / 2))

    def _perturbations(self, start: dt.date) -> Fields:
        """Return member perturbations, (member, channel, H, W), the same at every step."""
        rng = self._rng(_MEMBERS, start.toordinal())
        count = self._members * (len(self._families) + len(self.channels))
        size = self._perturbation.truncation + 1
        noise = self._perturbation.noise(rng, count)
        by_channel = self._mix_families(noise.reshape(size, 2, self._members, -1, size))
        fields = self._perturbation.synthesise(by_channel.reshape(size, -1, size))
        return fields.reshape(self._members, len(self.channels), *fields.shape[1:])


def mix(share: float, common: Fields, independent: Fields) -> Fields:
    """Return the weighted sum, of unit variance, of two independent fields of unit variance.

    Args:
        share: share of the variance that is from the common part, 0 to 1.
        common: the part that several fields share.
        independent: the part of each field.
    """
    return np.asarray(np.sqrt(share) * common + np.sqrt(1 - share) * independent, dtype=np.float32)
