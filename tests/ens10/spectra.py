"""The variance of fields on the sphere by total wavenumber, by quadrature."""

import numpy as np
from scipy.special import sph_harm_y


def variance_by_degree(fields, latitude, truncation):
    """Mean over fields (count, H, W) of the variance by degree, 0 to `truncation`.

    Rows are evenly spaced from pole to pole, at least twice as many as the truncation.
    """
    rows, columns = fields.shape[1:]
    angle = np.deg2rad(90 - latitude)
    # Clenshaw-Curtis weights of evenly spaced angles: integrals of sin over (0, pi)
    k = np.arange(1, (rows - 1) // 2 + 1)
    series = np.where(2 * k == rows - 1, 1.0, 2.0) / (4.0 * k**2 - 1)
    weights = 1 - (series * np.cos(2 * np.outer(angle, k))).sum(axis=1)
    weights *= 2 / (rows - 1)
    weights[[0, -1]] /= 2
    waves = np.fft.rfft(fields.astype(np.float64), axis=-1) / columns * 2 * np.pi
    variance = np.zeros(truncation + 1)
    for n in range(truncation + 1):
        for m in range(n + 1):
            harmonic = sph_harm_y(n, m, angle, 0.0).real
            coefficient = (waves[:, :, m] * harmonic * weights).sum(axis=1)
            share = (np.abs(coefficient) ** 2).mean() * (2 if m else 1)
            variance[n] += share / (4 * np.pi)
    return variance
