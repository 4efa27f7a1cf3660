"""Fields of the displaced world: power-law spectra, balanced wind, orography, clustered members.

Five families of random fields make every variable: mass (geopotential and pressure, spectral slope
-3), heat, moisture and lift (-5/3), and the potential of the divergent wind (-11/3, so that the
wind has -5/3). A family has one field at the surface and one on each level, which share most of
their variance, as do those of the lead times. In each family

    member i = signal(start, step) + growth(step) * share * spread(start) * p_i

with p_i from a spectrum of smaller scales. On some days, by region, a part of the members follows
a common pattern: the ensemble then has two clusters of unequal size.

The wind is geostrophic to the mass field plus a divergent part. A geostrophic wind has the slope
of the geopotential plus 2; so that -3 and -5/3 go together, the balanced part of the mass field
falls off like n^(-1/3) at the small scales. The Coriolis parameter f becomes f + f0^2 / f near the
equator. At the surface the wind is weaker and turned towards low pressure.

The ground lowers the 2 m temperature by the standard atmosphere's lapse rate. On a level below the
ground the temperature is raised by a tenth of it, for the depth below ground. Where the ground is
high, spread and precipitation are larger.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ens10.synthetic.atmosphere import (
    ERROR_KM,
    GRAVITY,
    LAND_THRESHOLD,
    MAP_KM,
    SHARED_BY_FAMILY,
    SHARED_BY_STEPS,
    TARGET_STEP,
    Channel,
    Fields,
    Floats,
    Generator,
    climatology,
    hidden_map,
    mix,
    recipe,
)
from ens10.synthetic.sphere import EARTH_RADIUS_KM, SphereFields

LAPSE_RATE = 6.5e-3  # K m-1
REFERENCE_YEAR = 2008
_RADIUS = 1e3 * EARTH_RADIUS_KM
_ROTATION = 7.292e-5  # rad s-1
_FADE_LATITUDE = 15.0  # degrees of latitude below which the geostrophic wind fades out
_DENSITY = 1.2  # kg m-3, at the surface
_FRICTION, _TURN = 0.65, 25.0  # share of the wind at 10 m, and degrees towards low pressure
_OVER_LAND = 0.7
_DIVERGENT = 2.0  # m s-1, root mean square of each component
_BELOW_GROUND = 0.1  # of the lapse rate
_WARMING = {"heat": 0.02, "mass": 0.0, "moisture": 0.0}  # K a year
_FLOW = 0.35  # standard deviation of the logarithm of the spread
_CLUSTER_THRESHOLD, _CLUSTER_FACTOR = 0.2, 4.0  # threshold and factor of the clusters' distance
_MASS, _HEAT, _MOISTURE, _LIFT, _POTENTIAL = range(5)
_FAMILIES = 5
# ratio of the members' standard deviation at 48 h to that of the signal, by family
_SHARES = np.array([0.205, 0.3, 0.4, 0.5, 0.3], dtype=np.float32)
_STATIC, _SIGNAL, _SPREAD, _MEMBERS, _ERROR = range(10, 15)  # streams of random numbers
_SPREAD_KM = 1800.0


@dataclass(frozen=True)
class Ground:
    """Fields of the world that do not depend on time: land, orography and the hidden map.

    Attributes:
        latitude: shape (H,), degrees north.
        land: shape (H, W), True over land.
        orography: shape (H, W), height of the ground in m.
        unresolved_orography: shape (H, W), height of the real ground above the model's, m; hidden.
        region: shape (H, W), the hidden map, 0 to 3.
    """

    latitude: Floats
    land: npt.NDArray[np.bool_]
    orography: Floats
    unresolved_orography: Floats
    region: npt.NDArray[np.int64]

    @property
    def sine(self) -> Floats:
        """Return the sine of the latitude, (H, 1)."""
        return np.asarray(np.sin(np.deg2rad(self.latitude))[:, None])

    @property
    def cosine(self) -> Floats:
        """Return the cosine of the latitude, (H, 1)."""
        return np.asarray(np.cos(np.deg2rad(self.latitude))[:, None])

    @property
    def inverse_coriolis(self) -> Floats:
        """Return f / (f^2 + f0^2), in s, (H, 1)."""
        f, f0 = 2 * _ROTATION * self.sine, 2 * _ROTATION * np.sin(np.deg2rad(_FADE_LATITUDE))
        return np.asarray(f / (f**2 + f0**2))


def climate(channel: Channel, ground: Ground, valid_date: dt.date) -> Floats:
    """Return the climatological mean of a channel on one day, (H, W), in its units.

    Args:
        channel: a channel of temperature, mass or wind; of others the result is not the exact mean.
        ground: of the world.
        valid_date: date at which the forecast is valid; its year determines the warming since 2008.
    """
    channel_recipe = channel.recipe
    if channel_recipe.family in ("zonal", "meridional"):
        mean = _mean_wind(channel, ground) if channel_recipe.family == "zonal" else 0.0
        return np.asarray(mean + np.zeros(ground.land.shape))
    day = valid_date.timetuple().tm_yday
    centre = climatology(channel_recipe, ground.latitude, ground.land, day)
    centre = centre + _WARMING.get(channel_recipe.family, 0.0) * (valid_date.year - REFERENCE_YEAR)
    if channel.name in ("t2m", "skt"):
        centre = centre - LAPSE_RATE * ground.orography
    elif channel.name == "t":
        centre = centre + _BELOW_GROUND * LAPSE_RATE * depth_below_ground(channel, ground)
    return np.asarray(centre)


def depth_below_ground(channel: Channel, ground: Ground) -> Floats:
    """Return how far a level lies below the ground, in m and 0 above it, (H, W)."""
    geopotential = recipe("z", channel.level)
    equator, pole = geopotential.equator, geopotential.pole
    height = (equator + (pole - equator) * ground.sine**2) / GRAVITY
    return np.maximum(0.0, ground.orography - height)


def _mean_wind(channel: Channel, ground: Ground) -> Floats:
    """Return the zonal wind that balances the mean geopotential; at 10 m trades and westerlies."""
    if channel.level is None:
        angle = np.deg2rad(ground.latitude)[:, None]
        return np.asarray(-4.0 * np.cos(3 * angle) * ground.cosine)
    geopotential = recipe("z", channel.level)
    slope = 2 * (geopotential.pole - geopotential.equator) * ground.sine * ground.cosine
    return np.asarray(-slope / _RADIUS * ground.inverse_coriolis)


class Weather(Generator):
    """Generator of the fields of the displaced world; see `Generator`."""

    def _prepare(self) -> None:
        latitude, columns = self._latitude, self._columns
        self._levels = sorted({c.level for c in self.channels if c.level is not None})
        self.ground = self._ground(latitude, columns)
        sine = self.ground.sine
        self._mass_by_latitude = np.sqrt(0.1 + 0.9 * sine**2)
        # derivative of the line above by latitude
        self._mass_slope = 0.9 * sine * self.ground.cosine / self._mass_by_latitude
        land = np.where(self.ground.land, 1.15, 0.85)
        self._heat_by_place = (0.55 + 0.45 * sine**2) * land
        self._spread_by_place = 1 + 0.4 * self.ground.orography / 1500
        self._smooth = SphereFields.gaussian(latitude, columns, _SPREAD_KM)
        self._error = SphereFields.power_law(latitude, columns, 5 / 3, EARTH_RADIUS_KM / ERROR_KM)
        self._signal = _Spectra(latitude, columns, (7.0, 5.0))
        self._perturbation = _Spectra(latitude, columns, (12.0, 9.0))

    @property
    def region(self) -> npt.NDArray[np.int64]:
        """Return the hidden map."""
        return self.ground.region

    def forecast(self, start: dt.date) -> Iterator[tuple[int, Channel, Fields]]:
        """Yield (step, channel, members (M, H, W)) of one start date; NaN for missing values."""
        signal = self._signals(start)
        perturbation = self._perturbations(start)
        for s, step in enumerate(self._steps):
            growth = self._growth(step)
            valid_date = start + dt.timedelta(hours=step)
            for place, level in enumerate([None, *self._levels]):
                channels = [c for c in self.channels if c.level == level]
                parts = [a[s, place] + growth * b[:, place] for a, b in zip(
                    signal, perturbation, strict=True)]  # fmt: skip
                state = _State(*parts)
                winds: dict[str, Floats] = {}
                for channel in channels:
                    values = self._channel_members(channel, state, valid_date, step, winds)
                    yield step, channel, np.asarray(values, dtype=np.float32)

    def error(self, start: dt.date, stream: int, step: int = TARGET_STEP) -> Floats:
        """Return a standard normal field (H, W); the truth is the quantile at its probability."""
        field = self._error.draw(self._rng(_ERROR, start.toordinal(), stream, step), 1)[0]
        return np.asarray(field, dtype=np.float64)

    def _ground(self, latitude: Floats, columns: int) -> Ground:
        rng = self._rng(_STATIC)
        smooth = SphereFields.gaussian(latitude, columns, MAP_KM).draw(rng, 3).astype(np.float64)
        rough = SphereFields.power_law(latitude, columns, 5 / 3, 6).draw(rng, 2).astype(np.float64)
        above = np.maximum(0.0, smooth[0] - LAND_THRESHOLD)
        height = np.minimum(800 * above * np.exp(0.7 * rough[0]), 5000.0)
        unresolved = np.tanh(rough[1]) * (40 + 0.06 * height) * (above > 0)
        region = hidden_map(smooth[1:].astype(np.float32))
        return Ground(latitude, above > 0, height, unresolved, region)

    def _signals(self, start: dt.date) -> "tuple[Fields, ...]":
        """Return the signal of each part of a state, (step, place, H, W)."""
        places = 1 + len(self._levels)
        count = (1 + len(self._steps)) * _FAMILIES * (1 + places)
        noise = self._signal_noise(self._signal.noise, _SIGNAL, start, count)
        by_step = noise.reshape(*_noise_shape(noise, 1 + len(self._steps)))
        fields = self._signal.fields(mix(SHARED_BY_STEPS, by_step[:, :, :1], by_step[:, :, 1:]))
        return tuple(f.reshape(len(self._steps), places, *f.shape[1:]) for f in fields)

    def _perturbations(self, start: dt.date) -> "tuple[Fields, ...]":
        """Return the deviation of the members at 48 h, for each part (member, place, H, W)."""
        rng, places = self._rng(_MEMBERS, start.toordinal()), 1 + len(self._levels)
        noise = self._perturbation.noise(rng, (self._members + 1) * _FAMILIES * (1 + places))
        parts = self._perturbation.fields(noise.reshape(*_noise_shape(noise, self._members + 1)))
        side = self._cluster_sides(rng)
        flow = self._smooth.draw(self._rng(_SPREAD, start.toordinal()), 1 + _FAMILIES)
        distance = _CLUSTER_FACTOR * np.maximum(0.0, flow[-1] - _CLUSTER_THRESHOLD)
        unit = np.sqrt(1 + distance**2 * (side**2).mean())
        spread = np.exp(_FLOW * flow[:-1] - _FLOW**2 / 2) * self._spread_by_place / unit
        fields = []
        for part, family in zip(parts, _FAMILY_OF_PART, strict=True):
            field = part.reshape(self._members + 1, places, *part.shape[1:])
            pattern = side[:, None, None, None] * (distance * field[-1])
            fields.append((_SHARES[family] * spread[family] * (field[:-1] + pattern)).astype("f4"))
        return tuple(fields)

    def _cluster_sides(self, rng: np.random.Generator) -> Fields:
        """Return a number for each member, of sum 0; positive in the smaller of two clusters."""
        smaller = int(rng.integers(1, max(self._members // 2, 1) + 1))
        side = np.full(self._members, -smaller / self._members, dtype=np.float32)
        side[rng.permutation(self._members)[:smaller]] += 1
        return side

    def _channel_members(
        self, channel: Channel, state: "_State", date: dt.date, step: int, winds: dict[str, Floats]
    ) -> Floats:
        """Return the members of one channel, (M, H, W)."""
        name, ground = channel.name, self.ground
        if name in ("u", "v", "u10", "v10", "si10"):
            if not winds:
                winds.update(zip("uv", self._wind(channel, state, date), strict=True))
            if name == "si10":
                return np.asarray(np.hypot(winds["u"], winds["v"]))
            return winds[name[0]]
        channel_recipe = channel.recipe
        if name in ("tp", "cp"):
            return self._rain(name, state, step)
        centre = climate(channel, ground, date)
        if channel_recipe.family == "mass":
            return np.asarray(centre + channel_recipe.signal * self._mass_by_latitude * state.mass)
        if channel_recipe.family == "moisture":
            # at most 2.2 times the climate's: rare clusters of members lie many deviations away
            relative = np.minimum(np.exp(0.17 * state.moisture), 2.2)
            relative = relative * (1.02 if name == "tcw" else 1.0)
            return np.asarray(np.maximum(centre * relative, channel_recipe.lower))
        if channel_recipe.family == "heat":
            skin_term = 0.15 * state.lift if name == "skt" else 0.0
            values = centre + channel_recipe.signal * (self._heat_by_place * state.heat + skin_term)
            return np.where(ground.land, np.nan, values) if name == "sst" else np.asarray(values)
        if channel_recipe.family == "cloud":
            cover = 0.6 + 0.25 * (0.5 * state.moisture + 0.85 * state.lift)
            return np.asarray(np.clip(cover, channel_recipe.lower, channel_recipe.upper))
        sign = -1.0 if name == "w" else 1.0
        return np.asarray(centre + sign * channel_recipe.signal * state.lift)

    def _wind(self, channel: Channel, state: "_State", date: dt.date) -> tuple[Floats, Floats]:
        """Return the wind at a level or at 10 m: mean, geostrophic and divergent part."""
        surface = channel.level is None
        mass = recipe("msl", None) if surface else recipe("z", channel.level)
        scale = mass.signal / (_DENSITY if surface else 1.0) / _RADIUS
        factor = scale * self.ground.inverse_coriolis
        east = self._mass_by_latitude * state.mass_east
        north = self._mass_by_latitude * state.mass_north + self._mass_slope * state.balanced_mass
        u, v = -factor * north, factor * east
        if surface:
            turn = np.deg2rad(_TURN) * np.sign(self.ground.sine)
            share = _FRICTION * np.where(self.ground.land, _OVER_LAND, 1.0)
            cosine, sine = np.cos(turn), np.sin(turn)
            u, v = share * (u * cosine - v * sine), share * (u * sine + v * cosine)
        zonal = Channel("u10" if surface else "u", channel.level)
        u = u + climate(zonal, self.ground, date) + _DIVERGENT * state.divergent_east
        return u, v + _DIVERGENT * state.divergent_north

    def _rain(self, name: str, state: "_State", step: int) -> Floats:
        """Return the precipitation since the start, in m."""
        potential = 0.8 * state.lift + 0.5 * state.moisture
        rate = np.maximum(0.0, potential - 0.2) ** 1.3
        daily = 0.003 * (1 + 1.2 * self.ground.cosine**4) * (1 + 0.5 * self.ground.orography / 1500)
        share = 0.2 + 0.5 * self.ground.cosine**2 if name == "cp" else 1.0
        return np.asarray(share * daily * rate * step / 24)


@dataclass(frozen=True)
class _State:
    """Standardised fields at the surface or on a level, each (M, H, W).

    `mass_east` and `mass_north` are the derivatives of `balanced_mass`, the balanced part of the
    mass field, per radian. The components of the divergent wind have variance 1.
    """

    mass: Fields
    balanced_mass: Fields
    mass_east: Fields
    mass_north: Fields
    heat: Fields
    moisture: Fields
    lift: Fields
    divergent_east: Fields
    divergent_north: Fields


_FAMILY_OF_PART = (
    _MASS, _MASS, _MASS, _MASS, _HEAT, _MOISTURE, _LIFT, _POTENTIAL, _POTENTIAL
)  # fmt: skip


class _Spectra:
    """Generators of the families' fields, which share one truncation.

    Args:
        latitude: shape (H,), degrees north.
        columns: number of longitudes.
        peaks: degree of the largest scales, of the mass field and of the others.
    """

    def __init__(self, latitude: Floats, columns: int, peaks: tuple[float, float]) -> None:
        self._mass = SphereFields.power_law(latitude, columns, 3.0, peaks[0])
        self._others = SphereFields.power_law(latitude, columns, 5 / 3, peaks[1])
        self._potential = SphereFields.power_law(latitude, columns, 11 / 3, peaks[1])
        self.noise = self._mass.noise
        degree = np.arange(self._mass.truncation + 1)
        self._balance = ((1 + (degree / peaks[0]) ** 6) ** (-1 / 18)).astype(np.float32)

    def fields(self, noise: Fields) -> tuple[Fields, ...]:
        """Return the parts of a state, each (K * places, H, W).

        Args:
            noise: (order, 2, K, family, 1 + places, degree); places are the surface and the levels,
                after a first entry that is common to all.
        """
        by_place = mix(SHARED_BY_FAMILY, noise[:, :, :, :, :1], noise[:, :, :, :, 1:])
        mass, independent_heat, independent_moisture, lift, potential = (
            np.ascontiguousarray(by_place[:, :, :, n]).reshape(len(noise), -1, noise.shape[-1])
            for n in range(_FAMILIES)
        )
        heat = mix(0.25, mass, independent_heat)
        moisture = mix(0.16, heat, independent_moisture)
        balanced = mass * self._balance
        east, north = self._mass.gradient(balanced)
        slopes = self._potential.gradient(potential)
        unit = np.float32(np.sqrt(2) / self._potential.slope)
        masses = (self._mass.synthesise(mass), self._mass.synthesise(balanced), east, north)
        others = (self._others.synthesise(one) for one in (heat, moisture, lift))
        return (*masses, *others, *(unit * slope for slope in slopes))


def _noise_shape(noise: Fields, count: int) -> tuple[int, ...]:
    """Return the shape (order, cosine and sine, count, family, 1 + places, degree) of noise."""
    return len(noise), 2, count, _FAMILIES, -1, noise.shape[-1]
