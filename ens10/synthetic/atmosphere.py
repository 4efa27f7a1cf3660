"""The forecasts of the synthetic world: climatology, a shared signal, and the members around it.

    member i at one step = climatology(day) + signal(start, step) + spread(start, step) * e_i

The signal is correlated in space, over the steps, from one start date to the next, and between the
channels of one family; the spread depends on the flow. Everything is a function of the seed, the
start date and its place among the world's start dates, so files can be written in any order.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ens10.synthetic.recipes import Recipe, climatology, recipe
from ens10.synthetic.sphere import SphereFields
from ens10.synthetic.truth import hidden_map

Fields = npt.NDArray[np.float32]
_SIGNAL_KM, _MEMBER_KM, _MAP_KM, _ERROR_KM = 1500.0, 900.0, 3500.0, 600.0
_MEMORY = 0.5  # how much of a start's signal is left at the next one, 3 or 4 days later
_PAST = 3  # starts that a signal remembers, itself included
_SHARED_BY_FAMILY = 0.8
_SHARED_BY_STEPS = 0.8
_FLOW = 0.35  # standard deviation of the logarithm of the spread
_SPREAD_AT_START = 0.35  # of that at 48 h
_LAND_SHARE_QUANTILE = 0.45
_STATIC, _SIGNAL, _SPREAD, _MEMBERS, _ERROR = range(5)  # streams of random numbers


@dataclass(frozen=True)
class Channel:
    """A variable, on a level in hPa or (None) at the surface."""

    name: str
    level: int | None

    @property
    def recipe(self) -> Recipe:
        """What it looks like."""
        return recipe(self.name, self.level)


class Atmosphere:
    """Draws the world's fields.

    Args:
        latitude: shape (H,), degrees north.
        columns: number of longitudes.
        channels: what is forecast.
        steps: lead times in hours.
        members: size of the ensemble.
        starts: all start dates, in order.
        seed: of everything random.
    """

    def __init__(
        self,
        latitude: npt.NDArray[np.float64],
        columns: int,
        channels: Sequence[Channel],
        steps: Sequence[int],
        members: int,
        starts: Sequence[dt.date],
        seed: int,
    ) -> None:
        self.channels, self._steps, self._members = list(channels), list(steps), members
        self._latitude, self._seed = latitude, seed
        self._order = {start: n for n, start in enumerate(starts)}
        families = [channel.recipe.family for channel in channels]
        self._families = sorted(set(families))
        self._family_of = [self._families.index(family) for family in families]
        static = SphereFields(latitude, columns, _MAP_KM).draw(self._rng(_STATIC), 3)
        self.land: npt.NDArray[np.bool_] = static[0] > _LAND_SHARE_QUANTILE
        self.region = hidden_map(static[1:])
        self._signal = SphereFields(latitude, columns, _SIGNAL_KM)
        self._perturbation = SphereFields(latitude, columns, _MEMBER_KM)
        self._error = SphereFields(latitude, columns, _ERROR_KM)

    def forecast(self, start: dt.date) -> Iterator[tuple[int, Channel, Fields]]:
        """(step, channel, members (M, H, W)) of one start date, NaN where there is no value."""
        growth = [_SPREAD_AT_START + (1 - _SPREAD_AT_START) * step / 48 for step in self._steps]
        signal, flow = self._signals(start), self._flow(start)
        perturbation = self._perturbations(start)
        for s, step in enumerate(self._steps):
            day = (start + dt.timedelta(hours=step)).timetuple().tm_yday
            for c, channel in enumerate(self.channels):
                look = channel.recipe
                centre = climatology(look, self._latitude, self.land, day)
                centre = centre + look.signal * signal[s, c]
                spread = look.spread * growth[s] * flow[self._family_of[c]]
                members = np.clip(centre + spread * perturbation[:, c], look.lower, look.upper)
                if channel.name == "sst":
                    members[:, self.land] = np.nan
                yield step, channel, members.astype(np.float32)

    def error(self, start: dt.date, stream: int) -> npt.NDArray[np.float64]:
        """Standard normal field (H, W), correlated in space: what the truth adds."""
        field = self._error.draw(self._rng(_ERROR, start.toordinal(), stream), 1)[0]
        return np.asarray(field, dtype=np.float64)

    def _rng(self, stream: int, *key: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, stream, *key])

    def _signals(self, start: dt.date) -> Fields:
        """Standard normal fields (step, channel, H, W)."""
        weights = _MEMORY ** np.arange(_PAST)
        weights /= np.sqrt((weights**2).sum())
        index = self._order[start]
        noise = sum(w * self._signal_noise(index - n) for n, w in enumerate(weights))
        size = self._signal.truncation + 1
        per_step = np.asarray(noise).reshape(size, 2, 1 + len(self._steps), -1, size)
        common, own = per_step[:, :, :1], per_step[:, :, 1:]
        mixed = _mix(_SHARED_BY_STEPS, common, own)
        by_channel = self._share(mixed).reshape(size, -1, size)
        fields = self._signal.synthesise(by_channel)
        return fields.reshape(len(self._steps), len(self.channels), *fields.shape[1:])

    def _signal_noise(self, index: int) -> Fields:
        count = (1 + len(self._steps)) * (len(self._families) + len(self.channels))
        return self._signal.noise(self._rng(_SIGNAL, index + _PAST), count)

    def _share(self, noise: Fields) -> Fields:
        """Coefficients (..., family and channel, degree) mixed to (..., channel, degree)."""
        families = len(self._families)
        shared = noise[..., :families, :][..., self._family_of, :]
        return _mix(_SHARED_BY_FAMILY, shared, noise[..., families:, :])

    def _flow(self, start: dt.date) -> Fields:
        """Factor of the spread by family, (family, H, W), with mean 1."""
        rng = self._rng(_SPREAD, start.toordinal())
        fields = self._signal.draw(rng, len(self._families))
        return np.asarray(np.exp(_FLOW * fields - _FLOW**2 / 2))

    def _perturbations(self, start: dt.date) -> Fields:
        """Standard normal fields (member, channel, H, W); the same at every step."""
        rng = self._rng(_MEMBERS, start.toordinal())
        count = self._members * (len(self._families) + len(self.channels))
        size = self._perturbation.truncation + 1
        noise = self._perturbation.noise(rng, count)
        by_channel = self._share(noise.reshape(size, 2, self._members, -1, size))
        fields = self._perturbation.synthesise(by_channel.reshape(size, -1, size))
        return fields.reshape(self._members, len(self.channels), *fields.shape[1:])


def _mix(share: float, common: Fields, own: Fields) -> Fields:
    """Unit variance from a common part, with that share of the variance, and an own part."""
    mixed = np.sqrt(share) * common + np.sqrt(1 - share) * own
    return np.asarray(mixed, dtype=np.float32)
