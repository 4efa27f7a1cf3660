"""The truth of the displaced world: forecasts displaced by the flow, with errors added.

With x_i the members as decoded from the files, c the climate of the place, day and year, and d a
displacement that depends on the ensemble-mean wind at the point and on the hidden map, the moved
members are x_i' = c(s) + (x_i - c)(s + d): bilinear on the sphere, periodic in longitude, across
the poles. Given the files, the truth of a temperature or of geopotential is a mixture of normals

    (1 - p) sum_i w_i N(m' + b + a (x_i' - m'), s^2) + p N(m' + b + g S, (2 S)^2)

with m' the mean of the moved members, b a bias by region, day, year and unresolved orography, and
s, S the scales of a member's error and of the whole. The last component makes the tails heavy and,
by g, skewed. The weights w_i prefer one side of the ensemble, by region and meridional wind, so
that the clusters of members carry information. Precipitation is a censored, shifted gamma variable,
wind speed a normal one truncated at 0, with parameters from mean and deviation of the moved
members.

The truth is the quantile function of that distribution at Phi(G), G a standard normal field that
is coherent in space. Hence no forecast can be better than `DisplacedLaw.forecast`.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from ens10.catalog import VARIABLES
from ens10.channels import split
from ens10.errors import ArgumentError, UnknownNameError
from ens10.synthetic.atmosphere import TARGET_STEP, Channel, Floats
from ens10.synthetic.sphere import EARTH_RADIUS_KM
from ens10.synthetic.weather import LAPSE_RATE, REFERENCE_YEAR, Ground, climate, depth_below_ground

if TYPE_CHECKING:
    from ens10.metrics.distributions import Distribution

Knowledge = Literal["neighbours", "flow", "place", "members", "year"]
DISPLACED_TARGETS = ("t2m", "z_500", "t_850", "tp", "si10")
_KINDS = {"tp": "csgd", "si10": "truncated_normal"}

_DISPLACEMENT_KM = 280.0
_DISPLACEMENT_CELLS = 0.6  # at least, of the distance between rows
_SATURATION = {"surface": 6.0, "upper": 15.0}  # m s-1
# One value a region. The displacement changes sign: a model without location cannot learn it.
_ALONG = np.array([1.0, -1.1, 0.8, -0.9])
_BIAS = np.array([0.35, -0.25, 0.15, -0.4])  # in units of the target's typical spread
_PEAK = np.array([20.0, 110.0, 200.0, 290.0])
_CYCLE = 0.4
_TREND = np.array([0.02, -0.015, 0.01, -0.02])  # in the units of _BIAS, a year
_DISPERSION = np.array([1.0, 1.2, 1.1, 1.3])
_KERNEL = np.array([0.5, 0.7, 0.6, 0.8])
_PREFERENCE = np.array([0.3, -0.35, -0.25, 0.35])
_BUST = np.array([0.08, 0.15, 0.1, 0.2])
_SKEW = np.array([-1.0, 0.8, 1.2, -0.7])
_STEERING = 5.0  # m s-1 of meridional wind


@dataclass(frozen=True)
class _Scale:
    """Sizes of one target's errors.

    Attributes:
        error: scale of a member's error at 48 h, in the target's units.
        bias: scale of the bias, in the target's units.
        reach: factor of the displacement; small for geopotential, whose error would otherwise be
            mostly displacement.
    """

    error: float
    bias: float
    reach: float = 1.0


_SCALES = {
    "t2m": _Scale(0.6, 0.5, 0.8),
    "z_500": _Scale(60.0, 25.0, 0.42),
    "t_850": _Scale(0.7, 0.65, 1.1),
    "tp": _Scale(0.0015, 0.0),
    "si10": _Scale(0.7, 0.5, 0.7),
}
_RAIN = np.array([1.15, 0.8, 1.0, 0.7])
_RAIN_SPREAD = np.array([0.9, 1.2, 1.0, 1.3])
_RAIN_SHIFT = 0.4
_GUST = np.array([1.03, 0.92, 0.97, 1.06])
_SHELTER = 0.12  # share of the wind speed lost per km of height


@dataclass(frozen=True)
class DisplacedLaw:
    """Conditional distribution of the truth of one target, given the forecasts.

    Attributes:
        channel: the target, such as "t2m" or "z_500".
        winds: channels of the zonal and meridional wind that steers the displacement.
        ground: orography and hidden map of the world.
        without: knowledge that is not available to the forecast; the truth depends on all of it.
    """

    channel: str
    winds: tuple[str, str]
    ground: Ground
    without: frozenset[Knowledge] = frozenset()

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the channels whose members the law depends on."""
        return (self.channel, *self.winds)

    @property
    def kind(self) -> str:
        """Return the kind of the distribution."""
        return _KINDS.get(self.channel, "normal_mixture")

    def remove_knowledge(self, knowledge: Sequence[str]) -> "DisplacedLaw":
        """Return the law of a forecast without some knowledge, to measure what it is worth.

        Args:
            knowledge: names among `Knowledge`; see `World.optimum`.

        Raises:
            UnknownNameError: an unknown kind of knowledge.
        """
        for name in knowledge:
            if name not in get_args(Knowledge):
                raise UnknownNameError("without", name, get_args(Knowledge))
        return replace(self, without=frozenset(knowledge))  # type: ignore[arg-type]

    def forecast(self, decoded: Mapping[str, xr.DataArray], step: int) -> xr.Dataset:
        """Return the distribution of the truth, as a forecast of `kind`.

        Args:
            decoded: members of `channels`, (time, number, latitude, longitude), float64.
            step: lead time in hours.
        """
        field = decoded[self.channel]
        valid = field["valid_time"].to_numpy().astype("datetime64[D]").astype(object)
        distributions = []
        for n, date in enumerate(np.atleast_1d(valid)):
            members, u, v = (decoded[name][n].to_numpy() for name in self.channels)
            distributions.append(self.distribution(members, u, v, date, step))
        kind = type(distributions[0])
        coords = {name: c for name, c in field.coords.items() if name != "number"}
        arrays = {}
        for name in distributions[0].variables():
            values = np.stack([one.variables()[name] for one in distributions])
            dims = ("time", *[d for d in kind.core_dims() if values.ndim == 4], *field.dims[2:])
            arrays[name] = (dims, values, distributions[0].variable_attributes(name, field.attrs))
        core = {name: list(v) for name, v in dict(distributions[0].core_coordinates()).items()}
        return xr.Dataset(arrays, coords={**core, **coords}, attrs={"forecast_kind": self.kind})

    def truth(self, forecast: xr.Dataset, noise: Floats) -> Floats:
        """Return the truth of one date, (H, W): the quantile of its distribution at Phi(noise).

        Args:
            forecast: one date of the result of the method `forecast`.
            noise: (H, W), standard normal.
        """
        from ens10.metrics.distributions import distribution_class

        names = distribution_class(self.kind).stored_variables(forecast)
        arrays = {name: forecast[name].to_numpy() for name in names}
        distribution = distribution_class(self.kind).from_variables(arrays, forecast.coords)
        with np.errstate(all="ignore"):
            return np.asarray(distribution._quantile_at(special.ndtr(noise)))

    def distribution(
        self, members: Floats, u: Floats, v: Floats, valid_date: dt.date, step: int = TARGET_STEP
    ) -> "Distribution":
        """Return the distribution of the truth of one date.

        Args:
            members: (M, H, W), members of the target, as decoded.
            u: (M, H, W), zonal wind, m s-1.
            v: (M, H, W), meridional wind, m s-1.
            valid_date: date at which the forecast is valid.
            step: lead time in hours, to which bias and scales are proportional.
        """
        share = step / TARGET_STEP
        u_mean, v_mean = u.mean(axis=0), v.mean(axis=0)
        if "flow" in self.without:
            u_mean, v_mean = self._climatological_wind(valid_date)
        east, north = self.displacement(u_mean, v_mean)
        moved_members = self._displace_members(members, east * share, north * share, valid_date)
        if self.channel == "tp":
            return self._rain(moved_members, share)
        if self.channel == "si10":
            return self._wind_speed(moved_members, share)
        return self._mixture(moved_members, v_mean, valid_date, share)

    def displacement(self, u: Floats, v: Floats) -> tuple[Floats, Floats]:
        """Return the displacement at 48 h to the east and to the north, in km, (H, W).

        It is along the wind or against it, by region, and saturates for strong winds.
        """
        rows = EARTH_RADIUS_KM * np.pi / (len(self.ground.latitude) - 1)
        longest = max(_DISPLACEMENT_KM, _DISPLACEMENT_CELLS * rows)
        reach = longest * _SCALES[self.channel].reach
        full = _SATURATION["upper" if split(self.channel)[1] else "surface"]
        along = self._parameter_map(_ALONG) * reach / np.sqrt(full**2 + u**2 + v**2)
        if "neighbours" in self.without:
            along = 0.0 * along
        return along * u, along * v

    def _parameter_map(self, table: Floats) -> Floats:
        """Return a parameter of the regions at each point, (H, W); its mean without the map."""
        region = self.ground.region
        return np.full(region.shape, table.mean()) if "place" in self.without else table[region]

    def _climatological_wind(self, valid_date: dt.date) -> tuple[Floats, Floats]:
        channels = (Channel(*split(name)) for name in self.winds)
        u, v = (climate(channel, self.ground, valid_date) for channel in channels)
        return u, v

    def _displace_members(
        self, members: Floats, east: Floats, north: Floats, valid_date: dt.date
    ) -> Floats:
        """Return the members with their departures from the climate displaced, (M, H, W)."""
        if self.channel in _KINDS:
            return displace(members, self.ground.latitude, east, north)
        centre = climate(Channel(*split(self.channel)), self.ground, valid_date)
        return centre + displace(members - centre, self.ground.latitude, east, north)

    def _bias(self, valid_date: dt.date, share: float) -> Floats:
        day = valid_date.timetuple().tm_yday
        annual = 1 + _CYCLE * np.cos(2 * np.pi * (day - _PEAK) / 365.25)
        years = 0 if "year" in self.without else valid_date.year - REFERENCE_YEAR
        bias = self._parameter_map(_BIAS * annual + _TREND * years) * _SCALES[self.channel].bias
        ground = self.ground
        if "place" not in self.without:
            name, level = split(self.channel)
            if name == "t2m":
                bias = bias - LAPSE_RATE * ground.unresolved_orography
            elif name == "t":
                below = depth_below_ground(Channel(name, level), ground)
                bias = bias - 0.05 * LAPSE_RATE * below
        return np.asarray(bias * share)

    def _mixture(
        self, members: Floats, v: Floats, valid_date: dt.date, share: float
    ) -> "Distribution":
        mean, deviation = members.mean(axis=0), members.std(axis=0, ddof=1)
        anomalies = members - mean
        roughness = 1 + 0.3 * self.ground.orography / 1500
        kernel = self._parameter_map(_KERNEL) * _SCALES[self.channel].error * share * roughness
        dispersion = self._parameter_map(_DISPERSION)
        preference = self._parameter_map(_PREFERENCE) * np.tanh(v / _STEERING)
        weights = np.exp(preference * anomalies / np.where(deviation > 0, deviation, 1.0))
        bust = self._parameter_map(_BUST)
        weights *= (1 - bust) / weights.sum(axis=0)
        centre = mean + self._bias(valid_date, share)
        total_spread = np.hypot(dispersion * deviation, kernel)
        skewed = centre + self._parameter_map(_SKEW) * total_spread
        mu = np.concatenate([centre + dispersion * anomalies, skewed[None]])
        sigma = np.concatenate([np.broadcast_to(kernel, anomalies.shape), 2 * total_spread[None]])
        weights = np.concatenate([weights, bust[None]])
        if "members" in self.without:
            average = (weights * mu).sum(axis=0)
            variance = (weights * (sigma**2 + (mu - average) ** 2)).sum(axis=0)
            mu, sigma, weights = average[None], np.sqrt(variance)[None], np.ones_like(mu[:1])
        return _new_distribution(self.kind, mu, sigma, weights)

    def _rain(self, members: Floats, share: float) -> "Distribution":
        """Return a censored, shifted gamma distribution, in m since the start."""
        scale = _SCALES["tp"].error * share
        wet = (1 + 0.3 * self.ground.orography / 1500) * self._parameter_map(_RAIN)
        mean = wet * members.mean(axis=0) + 0.1 * scale
        deviation = members.std(axis=0, ddof=1)
        if "members" in self.without:
            deviation = np.full_like(deviation, deviation.mean())
        variance = (self._parameter_map(_RAIN_SPREAD) ** 2) * (0.5 * scale * mean + deviation**2)
        spread = np.sqrt(variance)
        shift = np.full_like(mean, _RAIN_SHIFT * scale)
        # mean and deviation of the gamma variable before the shift
        mean = mean + shift
        return _new_distribution(self.kind, (mean / spread) ** 2, spread**2 / mean, shift)

    def _wind_speed(self, members: Floats, share: float) -> "Distribution":
        sizes = _SCALES["si10"]
        scale = sizes.error * share
        calm = np.maximum(0.3, 1 - _SHELTER * self.ground.orography / 1000)
        mean, deviation = members.mean(axis=0), members.std(axis=0, ddof=1)
        if "members" in self.without:
            deviation = np.full_like(deviation, deviation.mean())
        bias = self._parameter_map(_BIAS) * sizes.bias * share
        centre = self._parameter_map(_GUST) * calm * mean + bias
        error = self._parameter_map(_KERNEL) * (0.5 * scale + 0.06 * mean)
        spread = np.hypot(self._parameter_map(_DISPERSION) * deviation, error)
        limits = np.zeros_like(mean), np.full_like(mean, np.inf)
        return _new_distribution(self.kind, centre, spread, *limits)


def _new_distribution(kind: str, *parameters: Floats) -> "Distribution":
    from ens10.metrics.distributions import distribution_class

    cls = distribution_class(kind)
    return cls(*parameters, positive=True)  # type: ignore[call-arg]


def displaced_law(channel: str, channels: Sequence[str], ground: Ground) -> DisplacedLaw:
    """Return the law of one target; the wind at its level, or at 10 m, steers it.

    Args:
        channel: the target, one of `DISPLACED_TARGETS`.
        channels: all channels of the world.
        ground: of the world.

    Raises:
        ArgumentError: no such target, or the world lacks the wind.
    """
    if channel not in DISPLACED_TARGETS:
        reason = f"the displaced world has no truth of {channel}"
        raise ArgumentError("target", reason, f"Choose one of {', '.join(DISPLACED_TARGETS)}")
    level = split(channel)[1] if channel not in VARIABLES else None
    choices = [(f"u_{level}", f"v_{level}")] if level else []
    for u, v in [*choices, ("u10", "v10")]:
        if u in channels and v in channels:
            return DisplacedLaw(channel, (u, v), ground)
    names = " or ".join(f"{u} and {v}" for u, v in [*choices, ("u10", "v10")])
    raise ArgumentError("variables", f"the truth of {channel} needs {names}", "Add them")


def displace(
    fields: Floats, latitude: Floats, east: Floats, north: Floats
) -> npt.NDArray[np.float64]:
    """Interpolate fields at displaced points: along great circles, across poles and the seam.

    Args:
        fields: (M, H, W), on evenly spaced rows from 90 to -90 degrees north and all longitudes.
        latitude: (H,), degrees north.
        east: (H, W), displacement to the east in km, at the point.
        north: (H, W), displacement to the north in km.

    Returns:
        (M, H, W), the bilinear interpolation in latitude and longitude at the displaced points.
    """
    rows, columns = fields.shape[1:]
    phi = np.deg2rad(latitude)[:, None]
    distance = np.hypot(east, north)
    angle = distance / EARTH_RADIUS_KM
    rate = np.where(distance > 0, np.sin(angle) / np.where(distance > 0, distance, 1.0), 0.0)
    up, northward = np.cos(angle), rate * north  # along the vertical, the meridian and the parallel
    sine = np.clip(up * np.sin(phi) + northward * np.cos(phi), -1.0, 1.0)
    x = up * np.cos(phi) - northward * np.sin(phi)
    longitude_shift = np.arctan2(rate * east, x)
    row = (90.0 - np.rad2deg(np.arcsin(sine))) / 180.0 * (rows - 1)
    column = (np.arange(columns) + longitude_shift / (2 * np.pi) * columns) % columns
    north_row = np.minimum(row.astype(np.int64), rows - 2)
    west_column = column.astype(np.int64) % columns
    south_weight, east_weight = row - north_row, column - np.floor(column)
    first = north_row * columns + west_column
    second = north_row * columns + (west_column + 1) % columns
    flat = fields.reshape(len(fields), -1)
    upper = flat[:, first] * (1 - east_weight) + flat[:, second] * east_weight
    lower = flat[:, first + columns] * (1 - east_weight) + flat[:, second + columns] * east_weight
    return np.asarray(upper * (1 - south_weight) + lower * south_weight)
