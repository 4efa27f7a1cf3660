"""The CRPS of zonal Fourier coefficients, for training ensembles with variance at every scale."""

from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import as_array
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import spread_factor
from ens10.metrics.multivariate._variables import size_of, variable_axes
from ens10.metrics.multivariate.energy import energy_of

__all__ = ["spectral_crps"]


def spectral_crps(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    longitude_dim: Dim,
    wave_weights: Any = None,
    alpha: float = 0.95,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the CRPS of the Fourier coefficients around each latitude circle, summed over waves.

    With W columns and c_m = 1/W sum_k x_k exp(-2 pi i m k / W) for m = 0 .. W/2, it is
    sum_m n_m w_m [mean_i |c_im - c_ym| - a / M^2 sum_{i<j} |c_im - c_jm|]. |.| is the modulus of
    the complex number, so each term is the energy score of a real and an imaginary part, proper,
    and independent of the longitude of origin. n_m is 2 for waves that represent both m and -m,
    and 1 for m = 0 and m = W/2. An error that is one wave of amplitude A, or a constant A, has
    the score A. `a` is that of `crps_ensemble`. A NaN in a row gives NaN.

    The result has one score for each row; the mean over the sphere is a mean over latitude with
    area weights: `dim="latitude", weights=area_weights(latitude)`. FourCastNet 3 (Bonev et al.
    2025, arXiv:2507.12144) is trained on the same sum over spherical harmonics, with the same
    factors of 1 and 2; with rows instead, the score needs no Legendre transform and no rows at
    the poles, and does not measure meridional waves. Use it in addition to the CRPS of the points,
    not instead of it.

    Gradients of tensors are analytic, and 0 for coefficients that coincide.

    Args:
        members: the ensemble; any shape with a member axis and a longitude axis.
        y: observations: the members' shape without the member axis. Other axes may be missing or
            of length 1, and then broadcast.
        estimator: "plain", "fair" or "almost_fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        longitude_dim: the axis of equally spaced longitudes that go once round the Earth,
            counted in `members`, whose member axis counts too.
        wave_weights: w_m, numbers of 0 or more that broadcast to W // 2 + 1; 1 if None. 0 leaves
            waves out; reciprocal amplitudes give every scale the same weight.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        dim: dimensions of a weighted mean of scores: axis numbers or names without members and
            longitudes; "all"; None for the scores of all rows.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The scores, in the unit of `members`, as an array of the input's type.

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: longitudes that do not go round the Earth; no such axis; a fair score of
            one member; weights, observations, coordinates or units that do not match.
    """
    core, (columns, *more) = variable_axes(members, y, member_dim, longitude_dim)
    if more:
        raise ArgumentError("longitude_dim", f"expected one axis, got {longitude_dim!r}")
    if isinstance(members, xr.DataArray) and longitude_dim in members.coords:
        _check_circle(str(longitude_dim), members.coords[longitude_dim].to_numpy())
    options = {
        "factor": spread_factor(size_of(members, member_dim), estimator, alpha),
        "waves": _weights(wave_weights, columns),
    }
    attrs = {"estimator": estimator}
    score = apply(SCORE, {"members": members, "y": y}, core, options=options, attrs=attrs)
    return mean_over(score, dim, weights, nan)


def _check_circle(name: str, longitude: Any) -> None:
    """Refuse longitudes that are not a full, equally spaced circle.

    Raises:
        ArgumentError: they do not go round the Earth, or in unequal steps.
    """
    step = 360.0 / longitude.size
    steps = np.diff(longitude, append=longitude[0]) % 360
    if not any(np.allclose(steps, one, atol=0.01 * step) for one in (step, 360 - step)):
        raise ArgumentError(
            "longitude_dim",
            f"{name!r} does not go once round the Earth in equal steps",
            "Score a region with `energy_score`",
        )


def _weights(wave_weights: Any, columns: int) -> Any:
    """Return the weight n_m w_m of each wave number.

    Raises:
        ArgumentError: weights that do not fit, or are negative.
    """
    n = columns // 2 + 1
    waves = np.full(n, 2.0)
    waves[0] = 1.0
    if columns % 2 == 0:
        waves[-1] = 1.0
    if wave_weights is None:
        return waves
    values = as_array(
        wave_weights.detach().cpu() if hasattr(wave_weights, "detach") else wave_weights, np.float64
    )
    if values.shape not in {(), (1,), (n,)} or not (values >= 0).all():
        raise ArgumentError(
            "wave_weights",
            f"expected {n} numbers of 0 or more (wave numbers 0 to {n - 1}), got shape "
            f"{values.shape}" + ("" if (values >= 0).all() else " with negative or NaN ones"),
        )
    return waves * values


def _on_numpy(members: Any, y: Any, *, factor: float, waves: Any) -> Any:
    from scipy.fft import rfft

    x = members - y  # the transform is linear, and large common parts go before rounding
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    coefficients = rfft(x, axis=1, norm="forward")
    M, n = coefficients.shape[:2]
    parts = np.stack([coefficients.real, coefficients.imag], axis=1).reshape(M, 2, -1)
    score = energy_of(parts, factor).reshape(n, -1)
    total = np.tensordot(waves, score.astype(np.float64), axes=1)
    return total.reshape(x.shape[2:]).astype(members.dtype)


def _on_tensors(members: Any, y: Any, *, factor: float, waves: Any) -> Any:
    from ens10.metrics.multivariate._torch import spectral_crps_of_tensors as on_torch

    return on_torch(members, y, factor=factor, waves=waves)


SCORE = Score("spectral_crps", "CRPS of zonal waves", _on_numpy, _on_tensors)
