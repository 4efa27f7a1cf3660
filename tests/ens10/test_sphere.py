"""Gaussian random fields on the sphere."""

import numpy as np
import pytest
from scipy.special import sph_harm_y
from spectra import variance_by_degree

from ens10.synthetic.sphere import EARTH_RADIUS_KM, SphereFields, legendre

LATITUDE = np.linspace(90, -90, 19)
COLUMNS = 36


@pytest.fixture(scope="module")
def drawn():
    """3000 fields with a correlation length of 2500 km."""
    return SphereFields.gaussian(LATITUDE, COLUMNS, 2500).draw(np.random.default_rng(1), 3000)


@pytest.mark.parametrize(("degree", "order"), [(0, 0), (1, 0), (1, 1), (5, 3), (12, 12), (15, 2)])
def test_legendre_functions_against_scipy(degree, order):
    latitude = np.linspace(90, -90, 31)
    oracle = sph_harm_y(degree, order, np.deg2rad(90 - latitude), 0.0).real * np.sqrt(4 * np.pi)
    oracle *= (-1) ** order * (np.sqrt(2) if order else 1)  # no Condon-Shortley phase; real waves
    table = legendre(latitude, 15)
    np.testing.assert_allclose(table[order, degree], oracle, atol=3e-6 * np.abs(oracle).max())


def test_legendre_at_high_degree():
    latitude = np.array([90.0, 60.0, 0.5, -45.0])
    table = legendre(latitude, 150)
    degree = np.arange(151)
    np.testing.assert_allclose(
        (table.astype(np.float64) ** 2).sum(axis=0), np.repeat(2 * degree + 1, 4).reshape(151, 4),
        rtol=1e-5,
    )  # the addition theorem  # fmt: skip
    assert not table[3, :3].any()  # no degree below the order


def test_unit_variance_everywhere(drawn):
    np.testing.assert_allclose(drawn.var(axis=0), 1.0, atol=6 * np.sqrt(2 / 3000))
    assert np.abs(drawn.mean(axis=0)).max() < 6 / np.sqrt(3000)


def test_correlation_falls_as_stated(drawn):
    """Gaussian in distance: exp(-1/2) at the given length, in every direction, from any point."""
    phi, lam = np.deg2rad(LATITUDE)[:, None], np.deg2rad(np.arange(COLUMNS) * 10.0)[None, :]
    for row, column in ((9, 0), (3, 35), (0, 0)):
        correlation = np.tensordot(drawn[:, row, column], drawn, axes=(0, 0)) / len(drawn)
        cosine = np.sin(phi[row]) * np.sin(phi) + np.cos(phi[row]) * np.cos(phi) * np.cos(
            lam - lam[:, column]
        )
        distance = EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1))
        near = distance < 5500
        want = np.exp(-0.5 * (distance[near] / 2500) ** 2)
        np.testing.assert_allclose(correlation[near], want, atol=0.09)


def test_periodic_and_single_valued_at_the_poles(drawn):
    for pole in (0, -1):
        np.testing.assert_allclose(
            drawn[:, pole], drawn[:, pole, :1] + np.zeros(COLUMNS), atol=1e-5
        )
    step = np.diff(drawn[:, 9], axis=1).std()
    seam = (drawn[:, 9, 0] - drawn[:, 9, -1]).std()
    assert seam == pytest.approx(step, rel=0.1)


@pytest.mark.parametrize("columns", [8, 9, 15, 36])
def test_a_field_is_the_sum_of_its_harmonics(columns):
    """Oracle: the sum over degree and order of real spherical harmonics, term by term."""
    fields = SphereFields.gaussian(LATITUDE, columns, 3000)
    noise = fields.noise(np.random.default_rng(2), 2)
    size = fields.truncation + 1
    assert 2 * fields.truncation < columns
    degree = np.arange(size)
    power = np.exp(-0.5 * degree * (degree + 1) * (3000 / EARTH_RADIUS_KM) ** 2)
    power /= ((2 * degree + 1) * power).sum()
    basis = legendre(LATITUDE, fields.truncation)
    lam = 2 * np.pi * np.arange(columns) / columns
    want = np.zeros((2, len(LATITUDE), columns))
    for m in range(size):
        waves = (noise[m] * np.sqrt(power)) @ basis[m]
        for f in range(2):
            want[f] += np.outer(waves[f], np.cos(m * lam)) + np.outer(waves[2 + f], np.sin(m * lam))
    np.testing.assert_allclose(fields.synthesise(noise), want, atol=2e-5)


def test_the_gradient_is_that_of_the_field():
    """Oracle: differences of the field on rows half a millidegree apart, and its Fourier series."""
    rng, columns = np.random.default_rng(3), 32
    latitude = np.array([90.0, 71.0, 33.0, 0.0, -48.0, -90.0])
    power = 1.0 / (1.0 + np.arange(13.0)) ** 3
    fields = SphereFields(latitude, columns, power)
    noise = fields.noise(rng, 2)
    east, north = fields.gradient(noise)
    step = 0.02
    inside = slice(1, -1)
    beside = [
        SphereFields(latitude[inside] + d, columns, power).synthesise(noise) for d in (step, -step)
    ]
    difference = (beside[0] - beside[1]) / (2 * np.deg2rad(step))
    np.testing.assert_allclose(north[:, inside], difference, atol=5e-3)
    waves = np.fft.rfft(fields.synthesise(noise).astype(np.float64))
    order = np.arange(waves.shape[-1])
    along = np.fft.irfft(1j * order * waves, n=columns) / np.cos(np.deg2rad(latitude))[:, None]
    np.testing.assert_allclose(east[:, inside], along[:, inside], atol=2e-4)
    # one vector at a pole: its components turn with the meridian
    lam = 2 * np.pi * np.arange(columns) / columns
    for pole, sign in ((0, 1), (-1, -1)):
        x = -sign * north[:, pole] * np.cos(lam) - east[:, pole] * np.sin(lam)
        y = -sign * north[:, pole] * np.sin(lam) + east[:, pole] * np.cos(lam)
        assert np.ptp(x, axis=-1).max() < 2e-3
        assert np.ptp(y, axis=-1).max() < 2e-3
    square = [(f**2).sum(axis=0) for f in fields.gradient(fields.noise(rng, 3000))]
    np.testing.assert_allclose((square[0] + square[1]) / 3000, fields.slope**2, rtol=0.2)


@pytest.mark.parametrize("slope", [5 / 3, 3.0])
def test_power_law_spectra_have_their_slope(slope):
    """The variance by degree, from the fields by quadrature (Clenshaw-Curtis in latitude)."""
    rows, columns = 91, 64
    latitude = np.linspace(90, -90, rows)
    fields = SphereFields.power_law(latitude, columns, slope, 5.0)
    assert fields.truncation == 31
    drawn = fields.draw(np.random.default_rng(4), 200)
    np.testing.assert_allclose(drawn.var(axis=0), 1.0, atol=0.6)
    assert drawn.var(axis=0).mean() == pytest.approx(1.0, abs=0.03)
    variance = variance_by_degree(drawn, latitude, fields.truncation)
    degree = np.arange(14, 32)
    fitted = np.polyfit(np.log(degree), np.log(variance[degree]), 1)[0]
    assert fitted == pytest.approx(-slope, abs=0.15)
    assert variance[4:7].max() == variance.max()  # the peak
