"""Compiled fits of r ~ N(b'x, exp(g'x)^2): ridge by Fisher scoring, and componentwise boosting.

With z = (r - mu) / sigma and eta = log sigma, the score of a sample is the negative log likelihood
without its constant, eta + z^2 / 2, or the CRPS, sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi))
(Gneiting et al. 2005, doi:10.1175/MWR2904.1). Derivatives, and their expected curvature for a
calibrated forecast, by which Fisher scoring has two independent positive definite systems:

    likelihood:  d/dmu = -z / sigma         d/deta = 1 - z^2                        1/sigma^2, 2
    CRPS:        d/dmu = 1 - 2 Phi(z)       d/deta = sigma (2 phi(z) - 1/sqrt(pi))
                 curvature 1 / (sigma sqrt(pi)), sigma / (2 sqrt(pi))

Arrays are contiguous float64: predictors (k, n), of which the first is 1, the others (n,).
"""

import math

import numba
import numpy as np

from ens10.compiled import OPTIONS
from ens10.models.statistical.newton import Floats

_ROOT_PI = math.sqrt(math.pi)
_ROOT_2PI = math.sqrt(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_LARGEST_LOG = 12.0  # of sigma in standardised units: no exponential overflows
_ITERATIONS, _HALVINGS, _ARMIJO, _CONVERGED = 200, 30, 1e-4, 1e-14
_JITTER = 1e-10  # of the mean diagonal: collinear predictors leave the system solvable


@numba.njit(**OPTIONS)
def mean_score(likelihood, r, w, mu, eta):  # type: ignore[no-untyped-def]
    """Return the weighted sum of the scores."""
    total = 0.0
    for i in range(r.size):
        e = min(max(eta[i], -_LARGEST_LOG), _LARGEST_LOG)
        d, s = r[i] - mu[i], math.exp(e)
        z = d / s
        if likelihood:
            total += w[i] * (e + 0.5 * z * z)
        else:
            density = math.exp(-0.5 * z * z) / _ROOT_2PI
            total += w[i] * (d * math.erf(z * _ROOT_HALF) + s * (2 * density - 1 / _ROOT_PI))
    return total


@numba.njit(**OPTIONS)
def _derivatives(likelihood, r, w, mu, eta, derivatives, curvature):  # type: ignore[no-untyped-def]
    """Fill the derivatives by mu and eta and their expected curvatures, (2, n), times w."""
    for i in range(r.size):
        s = math.exp(min(max(eta[i], -_LARGEST_LOG), _LARGEST_LOG))
        z = (r[i] - mu[i]) / s
        if likelihood:
            derivatives[0, i], derivatives[1, i] = -w[i] * z / s, w[i] * (1 - z * z)
            curvature[0, i], curvature[1, i] = w[i] / (s * s), 2 * w[i]
        else:
            density = math.exp(-0.5 * z * z) / _ROOT_2PI
            derivatives[0, i] = -w[i] * math.erf(z * _ROOT_HALF)
            derivatives[1, i] = w[i] * s * (2 * density - 1 / _ROOT_PI)
            curvature[0, i], curvature[1, i] = w[i] / (s * _ROOT_PI), w[i] * s / (2 * _ROOT_PI)


@numba.njit(**OPTIONS)
def ridge_fit(likelihood, x, r, w, prior, penalty, start):  # type: ignore[no-untyped-def]
    """Minimise sum w score + sum penalty (theta - prior)^2 / 2 by Fisher scoring.

    Args:
        likelihood: the score: True for the negative log likelihood, False for the CRPS.
        x: predictors.
        r: response.
        w: weights, which sum to 1.
        prior: (2, k), of b and g.
        penalty: (2, k).
        start: (2, k).

    Returns:
        theta (2, k): b and g.
    """
    theta = start.copy()
    k, n = x.shape
    derivatives, curvature = np.empty((2, n)), np.empty((2, n))
    linear = np.dot(theta, x)
    value = mean_score(likelihood, r, w, linear[0], linear[1])
    value += 0.5 * np.sum(penalty * (theta - prior) ** 2)
    for _ in range(_ITERATIONS):
        _derivatives(likelihood, r, w, linear[0], linear[1], derivatives, curvature)
        gradient = np.dot(derivatives, x.T) + penalty * (theta - prior)
        step = np.empty_like(theta)
        for q in range(2):
            hessian = np.dot(x * curvature[q], x.T)
            mean = np.trace(hessian) / k
            for j in range(k):
                hessian[j, j] += penalty[q, j] + _JITTER * mean + 1e-300
            step[q] = -np.linalg.solve(hessian, gradient[q])
        gain = -np.sum(gradient * step)
        if not gain > _CONVERGED * (1 + abs(value)):
            break
        length, success = 1.0, False
        for _ in range(_HALVINGS):
            trial = theta + length * step
            trial_linear = np.dot(trial, x)
            trial_value = mean_score(likelihood, r, w, trial_linear[0], trial_linear[1])
            trial_value += 0.5 * np.sum(penalty * (trial - prior) ** 2)
            if trial_value <= value - _ARMIJO * length * gain:
                success = True
                break
            length /= 2
        if not success:
            break
        theta, linear, value = trial, trial_linear, trial_value
    return theta


@numba.njit(**OPTIONS)
def boost(likelihood, x, r, w, rate, steps, left_out_x, left_out_r, left_out_w):  # type: ignore[no-untyped-def]
    """Boost location and log scale by componentwise least squares (Messner et al. 2017).

    From b = g = 0, each step regresses the negative gradients by mu and by eta on each predictor
    alone, takes the best predictor of each, and adds `rate` times its coefficient to b or to g,
    whichever lowers the score more.

    Args:
        likelihood: the score: True for the negative log likelihood, False for the CRPS.
        x: predictors, those that vary of weighted mean 0 and variance 1, others 0.
        r: response, of mean 0 and variance 1.
        w: weights, which sum to 1.
        rate: step length in (0, 1].
        steps: number of steps.
        left_out_x: predictors of left-out samples, (k, m); m may be 0.
        left_out_r: their response.
        left_out_w: their weights.

    Returns:
        theta (2, k), and the weighted sum of the scores of the left-out samples before each step
        and after the last, (steps + 1,).
    """
    k, n = x.shape
    theta = np.zeros((2, k))
    linear, derivatives, curvature = np.zeros((2, n)), np.empty((2, n)), np.empty((2, n))
    left_out_linear = np.zeros((2, left_out_r.size))
    path = np.empty(steps + 1)
    path[0] = mean_score(likelihood, left_out_r, left_out_w, left_out_linear[0], left_out_linear[1])
    for m in range(steps):
        _derivatives(likelihood, r, w, linear[0], linear[1], derivatives, curvature)
        slopes = -np.dot(derivatives, x.T)
        mu_at, eta_at = np.argmax(np.abs(slopes[0])), np.argmax(np.abs(slopes[1]))
        mu_step, eta_step = rate * slopes[0, mu_at], rate * slopes[1, eta_at]
        mu = linear[0] + mu_step * x[mu_at]
        eta = linear[1] + eta_step * x[eta_at]
        mu_score = mean_score(likelihood, r, w, mu, linear[1])
        if mu_score <= mean_score(likelihood, r, w, linear[0], eta):
            theta[0, mu_at] += mu_step
            linear[0] = mu
            left_out_linear[0] += mu_step * left_out_x[mu_at]
        else:
            theta[1, eta_at] += eta_step
            linear[1] = eta
            left_out_linear[1] += eta_step * left_out_x[eta_at]
        path[m + 1] = mean_score(
            likelihood, left_out_r, left_out_w, left_out_linear[0], left_out_linear[1]
        )
    return theta, path


def no_samples(predictors: int) -> tuple[Floats, Floats, Floats]:
    """Return left-out predictors, response and weights of no sample, for `boost`."""
    return np.zeros((predictors, 0)), np.zeros(0), np.zeros(0)
