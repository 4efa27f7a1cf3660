"""Regression of what is known of places on where they are, to predict it at other places."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from torch import Tensor

from ens10.errors import ArgumentError, DataNote, listing
from ens10.models.statistical.base import GridBuffers
from ens10.models.statistical.newton import Floats
from ens10.stations import degrees, metres

_KNOTS = 64  # places around which the predictions follow the data: enough for a region
_LENGTHS = (0.1, 0.3, 1.0)  # scales of the correlation, in typical distances between places
_NOISES = (0.01, 0.1, 1.0, 10.0, 100.0)  # variance at a place alone over that which is predicted
_SMALLEST = 1e-4  # eigenvalue, relative to the largest: float32 keeps the digits of the weights


def coordinates_of(
    degrees: tuple[npt.NDArray[Any], npt.NDArray[Any]], points: Mapping[Any, Any]
) -> Floats:
    """Return latitude, longitude (degrees) and altitude (m) of each point, (3, H, W).

    Args:
        degrees: latitude and longitude, (H, W) each.
        points: other coordinates of the points; without `altitude` it is NaN.

    Raises:
        ArgumentError: a latitude or longitude that is not finite, or altitudes in unknown units.
    """
    altitude = metres(points["altitude"]) if "altitude" in points else np.full(1, np.nan)
    found = np.stack(np.broadcast_arrays(*degrees, altitude)).astype(np.float64)
    unknown = int((~np.isfinite(found[:2])).any(0).sum())
    if unknown:
        reason = f"latitude or longitude of {unknown} of {found[0].size} points is missing"
        raise ArgumentError("points", reason, "Add them, or leave these points out")
    return found


def places_in(points: xr.Dataset) -> Floats:
    """Return latitude, longitude and altitude of a dataset's points, see `coordinates_of`.

    Raises:
        MissingDataError: stations without latitude or longitude.
    """
    return coordinates_of(degrees(points), points)


class Smoother(NamedTuple):
    """A linear regression on covariates of places, which also predicts each place from the others.

    Args:
        fitted: predictions at the places, (P, D).
        left_out: predictions at each place from the others, (P, D).
        weights: of the covariates, (C, D).
    """

    fitted: Floats
    left_out: Floats
    weights: Floats


class PlaceRegression(GridBuffers):
    """Ridge regression on place: position on the sphere, altitude, and nearby places.

    The covariates are the three coordinates of the unit vector, the altitude if every place has
    one, and a field with the correlation exp(-d / length) over the chord d, on at most 64 places
    (a kriging of reduced rank; Banerjee et al. 2008, doi:10.1111/j.1467-9868.2008.00663.x). Length
    and ridge are those of the least squared error of places that are left out, one at a time,
    which a linear smoother gives in closed form.

    Args:
        size: number D of values that are predicted.
    """

    may_be_infinite = ("width",)  # of what is the same at all places, which predicts nothing

    def __init__(self, size: int) -> None:
        super().__init__()
        self.centre: Tensor
        self.width: Tensor
        self.knots: Tensor
        self.length: Tensor
        self.weights: Tensor
        shapes = {
            "centre": (0,),
            "width": (0,),
            "knots": (0, 3),
            "length": (),
            "weights": (0, size),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def fit(self, places: Floats, values: Floats, counts: Floats) -> Floats:
        """Fit the regression; return the prediction of each place from the others, (P, D).

        Args:
            places: (3, P) latitude, longitude and altitude.
            values: (P, D) what is predicted.
            counts: (P,) weight of each place; at least one is positive.
        """
        linear, vectors = _linear(places), unit_vectors(places)
        w = counts / counts.sum()
        centre = w @ linear
        width = np.sqrt(w @ (linear - centre) ** 2)
        width = np.where(width > 1e-6 * (1 + np.abs(centre)), width, np.inf)
        knots = _spread_out(vectors[counts > 0])
        between = chords(knots, knots)
        typical = max(float(np.median(between)), 1e-6)
        best = None
        for length in [typical * factor for factor in _LENGTHS]:
            root = _inverse_root(np.exp(-between / length))
            near = np.exp(-chords(vectors, knots) / length) @ root
            x = np.concatenate([np.ones((len(w), 1)), (linear - centre) / width, near], 1)
            for noise in _NOISES:
                smoother = _smooth(x, values, w * len(w), noise)
                error = float(w @ ((values - smoother.left_out) ** 2).sum(1))
                if best is None or error < best[0]:
                    best = error, length, root, smoother
        assert best is not None
        _, length, root, smoother = best
        weights, linear_size = smoother.weights, 1 + linear.shape[1]
        weights = np.concatenate([weights[:linear_size], root @ weights[linear_size:]])
        found = {"centre": centre, "width": width, "knots": knots, "weights": weights}
        for name, value in (found | {"length": np.float64(length)}).items():
            setattr(self, name, torch.as_tensor(value).to(getattr(self, name)))
        return smoother.left_out

    def predict(self, places: Floats) -> Floats:
        """Return the predictions (P, D) at places (3, P); NaN where an altitude is needed."""
        centre, width, knots, weights = (
            getattr(self, name).double().cpu().numpy()
            for name in ("centre", "width", "knots", "weights")
        )
        linear = (_linear(places, altitude=len(centre) > 3) - centre) / width
        near = np.exp(-chords(unit_vectors(places), knots) / float(self.length))
        return np.asarray(np.concatenate([np.ones((len(near), 1)), linear, near], 1) @ weights)

    def note_extrapolation(self, places: Floats) -> None:
        """Warn of places (3, P) that are unlike those of the fit, or lack an altitude.

        They are farther from these than any of them (of at most 64) from its nearest, or their
        altitude is more than three standard deviations from the mean.
        """
        knots, centre, width = (
            getattr(self, name).double().cpu().numpy() for name in ("knots", "centre", "width")
        )
        nearest = (chords(knots, knots) + np.diag(np.full(len(knots), np.inf))).min(1)
        distance = chords(unit_vectors(places), knots).min(1)
        altitude = (places[2:].T / 1000 - centre[3:]) / width[3:]  # (P, 0) if it is not used
        effects = {
            "have no altitude, and no forecast": np.isnan(altitude).any(1),
            "are far from those of the training": distance > nearest.max(),
            "have another altitude than those of the training": (np.abs(altitude) > 3).any(1),
        }
        for effect, mask in effects.items():
            if mask.any():
                names = [f"({lat:.2f}, {lon:.2f})" for lat, lon in places[:2, mask].T]
                note = f"{mask.sum()} of {len(mask)} new points {effect}: {listing(names)}"
                warnings.warn(DataNote(note), stacklevel=4)


def unit_vectors(places: Floats) -> Floats:
    """Return unit vectors (P, 3) from latitudes and longitudes, the first two rows of `places`."""
    lat, lon = np.radians(places[:2])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)


def _linear(places: Floats, *, altitude: bool | None = None) -> Floats:
    """Return unit vectors and, by default if all are known, altitudes in km, (P, 3 or 4)."""
    known = bool(np.isfinite(places[2]).all()) if altitude is None else altitude
    return np.concatenate([unit_vectors(places), *([places[2:].T / 1000] if known else [])], 1)


def chords(a: Floats, b: Floats) -> Floats:
    """Return the distances (A, B) through the sphere, radius 1, between unit vectors."""
    return np.sqrt(np.maximum(2 - 2 * a @ b.T, 0))


def _spread_out(vectors: Floats) -> Floats:
    """Return at most 64 of the places, each the farthest from those before it."""
    chosen = [0]
    distance = chords(vectors, vectors[:1])[:, 0]
    while len(chosen) < min(_KNOTS, len(vectors)) and distance.max() > 1e-6:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, chords(vectors, vectors[chosen[-1:]])[:, 0])
    return vectors[chosen]


def _inverse_root(matrix: Floats) -> Floats:
    """Return W with W W^T the inverse of a covariance, without its smallest eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _SMALLEST * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _smooth(x: Floats, values: Floats, w: Floats, noise: float) -> Smoother:
    """Fit by weighted least squares with the ridge `noise`, the first column without."""
    penalty = np.full(x.shape[1], noise)
    penalty[0] = 0
    solution = np.linalg.solve((x.T * w) @ x + np.diag(penalty), x.T * w)  # (C, P)
    weights = solution @ values
    fitted = x @ weights
    leverage = np.einsum("pc,cp->p", x, solution)[:, None]
    # y minus the prediction without it is the residual over 1 - leverage; 1 for a single place
    share = leverage / np.maximum(1 - leverage, 1e-9) * (leverage < 1 - 1e-9)
    return Smoother(fitted, fitted - share * (values - fitted), weights)
