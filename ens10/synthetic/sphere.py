"""Gaussian random fields on the sphere, by spherical harmonics.

Sums of spherical harmonics with independent normal coefficients are isotropic, periodic in
longitude and consistent at the poles by construction, and every point has the same variance.
"""

import numpy as np
import numpy.typing as npt

EARTH_RADIUS_KM = 6371.0


class SphereFields:
    """Draws fields of unit variance with a Gaussian correlation of a given length.

    Args:
        latitude: shape (H,), degrees north.
        columns: number of longitudes W, evenly spaced from 0 degrees east round the Earth.
        length_km: distance at which the correlation has fallen to about exp(-1/2).
    """

    def __init__(self, latitude: npt.NDArray[np.float64], columns: int, length_km: float) -> None:
        scale = EARTH_RADIUS_KM / length_km
        self.truncation = int(min(np.ceil(3.5 * scale), columns // 2 - 1, len(latitude) - 1))
        degree = np.arange(self.truncation + 1)
        power = np.exp(-0.5 * degree * (degree + 1) / scale**2)
        power /= np.sum((2 * degree + 1) * power)  # unit variance: sum over degree and order
        amplitude = np.sqrt(power).astype(np.float32)
        self._basis = legendre(latitude, self.truncation) * amplitude[None, :, None]
        self._columns = columns

    def noise(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
        """Independent standard normal coefficients of `count` fields."""
        size = self.truncation + 1
        return rng.standard_normal((size, 2 * count, size), dtype=np.float32)

    def synthesise(self, noise: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Fields (count, H, W) of standard normal values from coefficients (or mixes of them)."""
        waves = noise @ self._basis  # (order, cosine and sine of each field, latitude)
        count = waves.shape[1] // 2
        spectrum = (waves[:, :count] - 1j * waves[:, count:]) * (self._columns / 2)
        spectrum[0] = 2 * spectrum[0].real
        fields = np.fft.irfft(spectrum.transpose(1, 2, 0), n=self._columns, axis=-1)
        return fields.astype(np.float32)

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
        """Independent fields, shape (count, H, W)."""
        return self.synthesise(self.noise(rng, count))


def legendre(latitude: npt.NDArray[np.float64], truncation: int) -> npt.NDArray[np.float32]:
    """Associated Legendre functions, normalised so that harmonics have mean square 1.

    Standard forward column recursion (Holmes and Featherstone 2002, doi:10.1007/s00190-002-0216-2,
    eq. 11), stable far beyond the truncations used here.

    Args:
        latitude: shape (H,), degrees north.
        truncation: largest degree.

    Returns:
        Shape (order, degree, H), float32; zero where the degree is below the order.
    """
    sine, cosine = np.sin(np.deg2rad(latitude)), np.cos(np.deg2rad(latitude))
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
    return table.astype(np.float32)
