"""ENS-10's variables on a regular grid, from the fields on the model's levels and Gaussian grid."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.grib import LatLonGrid

Array = npt.NDArray[Any]

GRAVITY = 9.80665  # m s-2
GAS_CONSTANT = 287.0  # of dry air, J kg-1 K-1
LAPSE_RATE = 6.5e-3  # K m-1, of the standard atmosphere, below the lowest level
LEVELS = (200, 500, 700, 850)
GRID = LatLonGrid(46, 96, 90.0, -90.0, 0.0, 3.75)
SURFACE = ("t2m", "skt", "msl", "u10", "v10", "si10", "tp", "tcw")
UPPER = ("z", "t", "u", "v", "q")
CHANNELS = (*((name, 0) for name in SURFACE), *((name, p) for name in UPPER for p in LEVELS))
_PASCAL = 100.0  # in a hectopascal
_MM = 1e-3  # m
_COLD = 255.0  # K
_CLIPPED = ("q", "si10", "tp", "tcw")  # spectral transforms leave small negative amounts


@dataclass(frozen=True)
class ModelGrid:
    """The grid and orography of the model.

    Attributes:
        latitude: of the Gaussian rows, degrees north, rising, (lat,).
        sigma: pressure over surface pressure of the levels, rising, (level,).
        sigma_edges: of the layers, from 0 to 1, (level + 1,).
        surface_geopotential: m2 s-2, (lon, lat).
    """

    latitude: Array
    sigma: Array
    sigma_edges: Array
    surface_geopotential: Array

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "ModelGrid":
        """Return the grid that the simulation wrote beside its fields."""
        return cls(*(np.asarray(arrays[name]) for name in cls.__dataclass_fields__))


def to_pressure(
    field: Array, sigma: Array, surface_pressure: Array, pressure: float, below: str = "constant"
) -> Array:
    """Interpolate linearly in the logarithm of pressure.

    Args:
        field: (..., level, lon, lat), level from the top down.
        sigma: pressure over surface pressure of the levels, (level,).
        surface_pressure: Pa, (..., lon, lat).
        pressure: of the result, Pa.
        below: what is assumed between the lowest level and the pressure, where the pressure is
            larger: "constant", "linear" (in the logarithm) or "lapse" (a temperature, in K, that
            rises with 6.5 K/km).

    Returns:
        (..., lon, lat). Above the highest level, its value.
    """
    log_sigma = np.log(sigma)
    log_target = np.log(pressure / surface_pressure)
    upper = np.clip(np.searchsorted(log_sigma, log_target, side="right") - 1, 0, len(sigma) - 2)
    weight = (log_target - log_sigma[upper]) / (log_sigma[upper + 1] - log_sigma[upper])
    weight = np.clip(weight, 0.0, np.inf if below == "linear" else 1.0)
    index = upper[..., None, :, :]
    first = np.take_along_axis(field, index, -3)[..., 0, :, :]
    second = np.take_along_axis(field, index + 1, -3)[..., 0, :, :]
    result: Array = first + weight * (second - first)
    if below == "lapse":
        lowest = field[..., -1, :, :]
        exponent = GAS_CONSTANT * LAPSE_RATE / GRAVITY
        extrapolation = lowest * np.exp(exponent * np.maximum(log_target - log_sigma[-1], 0.0))
        result = np.where(log_target > log_sigma[-1], extrapolation, result)
    return result


def sea_level_pressure(
    surface_pressure: Array, lowest: Array, sigma_lowest: float, surface_geopotential: Array
) -> Array:
    """Reduce surface pressure to sea level with a lapse rate of 6.5 K/km.

    Surface temperatures below 255 K, of inversions over ice, are replaced by their mean with 255 K,
    as the ECMWF does (Trenberth et al. 1993, NCAR/TN-396, doi:10.5065/D6HX19NH).

    Args:
        surface_pressure: Pa.
        lowest: temperature of the lowest level, K.
        sigma_lowest: pressure over surface pressure of that level.
        surface_geopotential: m2 s-2.

    Returns:
        Pa. The hydrostatic equation is integrated exactly through a layer of constant lapse rate.
    """
    exponent = GAS_CONSTANT * LAPSE_RATE / GRAVITY
    surface = lowest * sigma_lowest**-exponent
    surface = np.where(surface < _COLD, (surface + _COLD) / 2, surface)
    warmer = 1.0 + LAPSE_RATE * surface_geopotential / (GRAVITY * surface)
    result: Array = surface_pressure * warmer ** (1.0 / exponent)
    return result


def to_grid(field: Array, latitude: Array) -> Array:
    """Interpolate a scalar linearly in latitude to `GRID`; the poles get their nearest row's mean.

    Args:
        field: (..., lon, lat), 96 longitudes from Greenwich.
        latitude: degrees north, rising, (lat,).

    Returns:
        (..., 46, 96), north to south.
    """
    inner = field @ _row_weights(latitude).T  # (..., lon, 44)
    means = [np.mean(field[..., row], axis=-1)[..., None, None] for row in (-1, 0)]
    north, south = (np.broadcast_to(mean, (*inner.shape[:-1], 1)) for mean in means)
    return np.swapaxes(np.concatenate([north, inner, south], axis=-1), -1, -2)


def wind_to_grid(u: Array, v: Array, latitude: Array) -> tuple[Array, Array]:
    """Interpolate a wind to `GRID`; at a pole one vector, seen from each longitude.

    Args:
        u: eastward component, (..., lon, lat).
        v: northward component, (..., lon, lat).
        latitude: degrees north, rising, (lat,).

    Returns:
        Both components, (..., 46, 96), north to south.
    """
    u_grid, v_grid = to_grid(u, latitude), to_grid(v, latitude)
    longitude = np.deg2rad(GRID.longitude())
    sine, cosine = np.sin(longitude), np.cos(longitude)
    for row, nearest, sign in ((0, -1, -1.0), (-1, 0, 1.0)):
        # x points to Greenwich, y to 90 E: u = -x sin + y cos, v = sign (x cos + y sin)
        east, north = u[..., nearest], v[..., nearest]
        x = np.mean(sign * north * cosine - east * sine, axis=-1, keepdims=True)
        y = np.mean(sign * north * sine + east * cosine, axis=-1, keepdims=True)
        u_grid[..., row, :] = y * cosine - x * sine
        v_grid[..., row, :] = sign * (x * cosine + y * sine)
    return u_grid, v_grid


def _row_weights(latitude: Array) -> Array:
    """Return weights (44, lat) of linear interpolation to the rows of `GRID` between the poles."""
    rows = GRID.latitude()[1:-1]
    above = np.clip(np.searchsorted(latitude, rows), 1, len(latitude) - 1)
    share = (rows - latitude[above - 1]) / (latitude[above] - latitude[above - 1])
    weights = np.zeros((len(rows), len(latitude)))
    lines = np.arange(len(rows))
    weights[lines, above - 1], weights[lines, above] = 1.0 - share, share
    return weights


def derive(levels: Array, surface: Array, model: ModelGrid) -> Array:
    """Return ENS-10's fields of model states.

    Args:
        levels: geopotential (m2 s-2), temperature (K), eastward and northward wind (m s-1) and
            specific humidity (kg kg-1) on the model's levels, (..., 5, level, lon, lat).
        surface: surface pressure (Pa), temperatures near the surface and of the skin (K), eastward
            and northward wind near the surface (m s-1), and precipitation of the last 24 hours
            (kg m-2), (..., 6, lon, lat).
        model: the model's grid.

    Returns:
        (..., channel, 46, 96), float32, in the order of `CHANNELS` and ENS-10's units.
    """
    levels, surface = levels.astype(np.float64), surface.astype(np.float64)
    pressure, near, skin, u10, v10, rain = (surface[..., n, :, :] for n in range(6))
    z, t, u, v, q = (levels[..., n, :, :, :] for n in range(5))
    thickness = np.diff(model.sigma_edges)[:, None, None]
    water = (q * thickness).sum(-3) * pressure / GRAVITY
    reduced = sea_level_pressure(
        pressure, t[..., -1, :, :], float(model.sigma[-1]), model.surface_geopotential
    )
    wind = wind_to_grid(u10, v10, model.latitude)
    fields = dict(zip(("u10", "v10"), wind, strict=True))
    fields["si10"] = np.hypot(*wind)
    scalars = {"t2m": near, "skt": skin, "msl": reduced, "tp": _MM * rain, "tcw": water}
    fields |= {name: to_grid(field, model.latitude) for name, field in scalars.items()}
    parts = {"z": (z, "linear"), "t": (t, "lapse")}
    parts |= {name: (part, "constant") for name, part in (("u", u), ("v", v), ("q", q))}
    for level in LEVELS:
        at = {
            name: to_pressure(part, model.sigma, pressure, level * _PASCAL, below)
            for name, (part, below) in parts.items()
        }
        for name in ("z", "t", "q"):
            fields[f"{name}{level}"] = to_grid(at[name], model.latitude)
        pair = wind_to_grid(at["u"], at["v"], model.latitude)
        fields[f"u{level}"], fields[f"v{level}"] = pair
    channels = []
    for name, level in CHANNELS:
        channel = fields[f"{name}{level}" if level else name]
        channels.append(np.maximum(channel, 0.0) if name in _CLIPPED else channel)
    return np.stack(channels, axis=-3).astype(np.float32)


def pack_fields(fields: Array) -> dict[str, Array]:
    """Pack each field (..., lat, lon) into 16 bits, as GRIB's simple packing does.

    Returns:
        `packed` (uint16, the shape of the fields), `offset` and `scale` (float64, (...)); the
        largest error is half the scale, 1/131070 of the field's range.
    """
    values = fields.astype(np.float64)
    offset = values.min((-1, -2))
    scale = (values.max((-1, -2)) - offset) / np.iinfo(np.uint16).max
    divisor = np.where(scale > 0, scale, 1.0)[..., None, None]
    packed = np.rint((values - offset[..., None, None]) / divisor).astype(np.uint16)
    return {"packed": packed, "offset": offset, "scale": scale}


def unpack_fields(packed: Mapping[str, Array]) -> Array:
    """Return the fields of `pack_fields`, float32."""
    scale, offset = packed["scale"][..., None, None], packed["offset"][..., None, None]
    fields: Array = (offset + scale * packed["packed"]).astype(np.float32)
    return fields
