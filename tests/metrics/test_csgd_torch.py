"""The form of the censored, shifted gamma's CRPS for devices, against the one of the host."""

import numpy as np
import pytest
import torch

from ens10.metrics._ops_torch import TORCH
from ens10.metrics.distributions.csgd import CSGD

KERNEL = CSGD.kernels["crps"]


def arguments(low, high, count=4000):
    """Shapes from 10^low to 10^high, scales and shifts of many sizes, and dry and wet truth."""
    rng = np.random.default_rng(0)
    shape = 10 ** rng.uniform(low, high, count)
    scale, shift = 10 ** rng.uniform(-2, 2, count), 10 ** rng.uniform(-3, 2, count)
    wet = shape * scale * 10 ** rng.uniform(-2, 1, count)
    return shape, scale, shift, np.where(rng.random(count) < 0.4, 0.0, wet)


@pytest.mark.parametrize(("low", "high", "error"), [(-2, 0.9, 1e-11), (-4, 4, 2e-8)])
def test_values_and_derivatives_are_those_of_the_host(low, high, error):
    given = arguments(low, high)
    shape, scale = given[:2]
    tensors = [torch.from_numpy(a) for a in given]
    value = KERNEL.value(TORCH, *tensors).numpy()
    assert (np.abs(value - KERNEL.apply_to_numpy(KERNEL.value, *given)) / scale).max() < error
    # a slope by the shape has the unit of the scale, and is small for many of them
    units = scale / np.sqrt(shape), 1 + np.sqrt(shape), 1.0, 1.0
    wanted = KERNEL.apply_to_numpy(KERNEL.partials, *given)
    found = KERNEL.partials(TORCH, *tensors)
    for one, other, unit in zip(found, wanted, units, strict=True):
        assert (np.abs(one.numpy() - other) / unit).max() < 100 * error


@pytest.mark.parametrize("y", [-1.0, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("shape", [1e-3, 1.0, np.inf, np.nan])
def test_limits_are_those_of_the_host(shape, y):
    given = [np.array([v]) for v in (shape, 1.0, 0.5, y)]
    tensors = [torch.from_numpy(a) for a in given]
    wanted = KERNEL.apply_to_numpy(KERNEL.value, *given)
    np.testing.assert_allclose(KERNEL.value(TORCH, *tensors).numpy(), wanted, rtol=1e-12)
