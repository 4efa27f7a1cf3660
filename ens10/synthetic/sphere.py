"""Random fields on the sphere, from spherical harmonics with independent normal coefficients.

Such fields are isotropic, periodic in longitude, consistent at the poles, and have the same
variance at every point. The spectrum is Gaussian, or a power law at the small scales.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

EARTH_RADIUS_KM = 6371.0
_SHARPNESS = 6  # of the bend of a power-law spectrum at its peak
_FINEST = 127  # highest degree of a power-law spectrum, half a wavelength of 160 km
_DELTA = 1e-5  # radians; half the difference from which derivatives by latitude are computed


class SphereFields:
    """Generator of random fields of unit variance with a given spectrum.

    Args:
        latitude: shape (H,), degrees north.
        columns: number of longitudes W, evenly spaced from 0 degrees east round the Earth.
        power: shape (degrees,), variance of each harmonic by its degree, from 0, up to a factor.

    Attributes:
        truncation: the highest degree.
        slope: root mean square of the gradient, per radian.
    """

    def __init__(self, latitude: Floats, columns: int, power: Floats) -> None:
        self.truncation = len(power) - 1
        degree = np.arange(self.truncation + 1)
        # unit variance: sum over degree and order
        power = power / np.sum((2 * degree + 1) * power)
        self.slope = float(np.sqrt(np.sum((2 * degree + 1) * degree * (degree + 1) * power)))
        self._amplitude = np.sqrt(power).astype(np.float32)
        self._basis = legendre(latitude, self.truncation) * self._amplitude[None, :, None]
        self._latitude, self._columns = latitude, columns
        self._slopes: tuple[Singles, Singles] | None = None

    @classmethod
    def gaussian(cls, latitude: Floats, columns: int, length_km: float) -> "SphereFields":
        """Return a generator of fields with a Gaussian correlation.

        Args:
            latitude: shape (H,), degrees north.
            columns: number of longitudes.
            length_km: distance at which the correlation has fallen to about exp(-1/2).
        """
        scale = EARTH_RADIUS_KM / length_km
        truncation = int(min(np.ceil(3.5 * scale), _highest_degree(latitude, columns)))
        degree = np.arange(truncation + 1)
        return cls(latitude, columns, np.exp(-0.5 * degree * (degree + 1) / scale**2))

    @classmethod
    def power_law(cls, latitude: Floats, columns: int, slope: float, peak: float) -> "SphereFields":
        """Return a generator of fields whose variance by degree is a power law at small scales.

        The variance of all harmonics of degree n is proportional to x^2 (1 + x^6)^(-(2 + s) / 6)
        with x = n / peak: n^2 at the large scales, n^-s at the small ones, up to the finest degree
        that the grid resolves (at most 127).

        Args:
            latitude: shape (H,), degrees north.
            columns: number of longitudes.
            slope: s, such as 5/3 or 3.
            peak: degree of the largest scales, near which the spectrum has its maximum.
        """
        degree = np.arange(min(_FINEST, _highest_degree(latitude, columns)) + 1)
        x = degree / peak
        variance = x**2 * (1 + x**_SHARPNESS) ** (-(2 + slope) / _SHARPNESS)
        return cls(latitude, columns, variance / (2 * degree + 1))

    def noise(self, rng: np.random.Generator, count: int) -> Singles:
        """Return independent standard normal coefficients of `count` fields."""
        size = self.truncation + 1
        return rng.standard_normal((size, 2 * count, size), dtype=np.float32)

    def synthesise(self, noise: Singles) -> Singles:
        """Return standard normal fields (count, H, W) from coefficients (or mixtures of them)."""
        return self._on_grid(self._spectrum(noise @ self._basis))

    def gradient(self, noise: Singles) -> tuple[Singles, Singles]:
        """Return the derivatives to the east and to the north of the fields of `synthesise`.

        Returns:
            Two arrays (count, H, W), in the fields' unit per radian of distance. At a pole they
            are the components of one vector along the meridian of each column.
        """
        if self._slopes is None:
            amplitude = self._amplitude[None, :, None]
            slopes = _slopes(self._latitude, self.truncation)
            self._slopes = slopes[0] * amplitude, slopes[1] * amplitude
        east, north = (self._spectrum(noise @ basis) for basis in self._slopes)
        order = np.arange(self.truncation + 1)[:, None, None]
        return self._on_grid(1j * order * east), self._on_grid(north)

    def _spectrum(self, waves: Singles) -> npt.NDArray[np.complexfloating]:
        """Return Fourier coefficients (order, count, H) from (order, cosines and sines, H)."""
        count = waves.shape[1] // 2
        spectrum = (waves[:, :count] - 1j * waves[:, count:]) * (self._columns / 2)
        spectrum[0] = 2 * spectrum[0].real
        return np.asarray(spectrum)

    def _on_grid(self, spectrum: npt.NDArray[np.complexfloating]) -> Singles:
        fields = np.fft.irfft(spectrum.transpose(1, 2, 0), n=self._columns, axis=-1)
        return fields.astype(np.float32)

    def draw(self, rng: np.random.Generator, count: int) -> Singles:
        """Return independent fields, shape (count, H, W)."""
        return self.synthesise(self.noise(rng, count))


def legendre(latitude: Floats, truncation: int) -> Singles:
    """Return associated Legendre functions, normalised so that harmonics have mean square 1.

    Standard forward column recursion (Holmes and Featherstone 2002, doi:10.1007/s00190-002-0216-2,
    eq. 11), stable far beyond the truncations used here.

    Args:
        latitude: shape (H,), degrees north.
        truncation: largest degree.

    Returns:
        Shape (order, degree, H), float32; zero where the degree is below the order.
    """
    return _legendre(np.deg2rad(latitude), truncation).astype(np.float32)


def _highest_degree(latitude: Floats, columns: int) -> int:
    """Return the highest degree that a grid resolves."""
    return min(columns // 2 - 1, len(latitude) - 1)


def _legendre(latitude: Floats, truncation: int) -> Floats:
    """Return the functions of `legendre` in float64 at latitudes in radians, also beyond a pole."""
    sine, cosine = np.sin(latitude), np.cos(latitude)
    table = np.zeros((truncation + 1, truncation + 1, len(latitude)))
    diagonal = np.ones_like(sine)
    for m in range(truncation + 1):
        if m:
            diagonal = diagonal * cosine * np.sqrt((2 * m + 1) / (2 * m) * (2 if m == 1 else 1))
        table[m, m] = diagonal
        for n in range(m + 1, truncation + 1):
            a = np.sqrt((4 * n**2 - 1) / (n**2 - m**2))
            table[m, n] = a * sine * table[m, n - 1]
            if n > m + 1:
                b = (2 * n + 1) * ((n - 1) ** 2 - m**2) / ((n**2 - m**2) * (2 * n - 3))
                table[m, n] -= np.sqrt(b) * table[m, n - 2]
    return table


def _slopes(latitude: Floats, truncation: int) -> tuple[Singles, Singles]:
    """Return P / cos(latitude) and the derivative of P by latitude, each (order, degree, H)."""
    angle = np.deg2rad(latitude)
    # order 0 has no wave to the east, and all others vanish at the poles: their limit is taken
    inside = np.clip(angle, -np.pi / 2 + _DELTA, np.pi / 2 - _DELTA)
    east = _legendre(inside, truncation) / np.cos(inside)
    after, before = (_legendre(angle + d, truncation) for d in (_DELTA, -_DELTA))
    north = (after - before) / (2 * _DELTA)
    return east.astype(np.float32), north.astype(np.float32)
