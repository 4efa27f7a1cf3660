"""Quantiles by selection against sorting."""

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.domain import Whole
from ens10.models.layers.smoe.error_quantiles import (
    _by_sorting,
    _Selection,
    lower_quantile,
)


def errors(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).abs()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q", [0, 0.1, 0.3, 0.5, 0.7, 0.99, 1])
@pytest.mark.parametrize("count", [1, 2, 11, 101, 1000])
def test_more_than_it_is_more_than_the_interpolated_quantile(q, count, dtype):
    values = errors(3, count).to(dtype)
    limit = lower_quantile(values, q)
    assert limit.dtype == dtype
    # in float64, where the interpolation does not round to the next entry
    interpolated = values.double().quantile(q, dim=1, keepdim=True)
    assert torch.equal(values > limit[:, None], values.double() > interpolated)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q", [0, 0.3, 0.7, 1])
def test_equal_weights_change_nothing(q, dtype):
    values = errors(3, 501).to(dtype)
    values[0, :200] = 0
    values[1, 100:400] = values[1, 7]
    weights = torch.full((501,), 0.25)
    assert torch.equal(lower_quantile(values, q, weights), lower_quantile(values, q))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q", [0.05, 0.3, 0.7, 0.95])
def test_weighted_quantile_equals_sorting(q, dtype):
    values, weights = errors(4, 777).to(dtype), errors(777, seed=5)
    weights[::10] = 0
    limits = lower_quantile(values, q, weights)
    w = weights.double().numpy()
    for row, limit in zip(values.numpy(), limits.tolist(), strict=True):
        order = np.argsort(row[w > 0])
        level = q * w.sum() * (1 - 1 / (w > 0).sum())
        first = np.argmax(np.cumsum(w[w > 0][order]) > level)
        assert limit == row[w > 0][order][first]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q", [0, 0.3, 1])
def test_fewer_weights_are_repeated(q, dtype):
    values, weights = errors(3, 4 * 91).to(dtype), errors(91, seed=5)
    weights[::7] = 0
    repeated = lower_quantile(values, q, weights.repeat(4))
    assert torch.equal(lower_quantile(values, q, weights), repeated)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_compiled_selection_is_that_of_split_grids_and_other_devices(share, dtype):
    values, weights = errors(2, 3 * 501, seed=2).to(dtype), errors(501, seed=5)
    values[0, :400] = values[0, 7]
    level = share * (1 - 1 / 1503) * 3 * float(weights.double().sum()) * (1 + 1e-10)
    others = _Selection(values, weights.repeat(3), level, Whole()).quantiles()
    assert torch.equal(lower_quantile(values, share, weights), others)
    assert torch.equal(_by_sorting(values, weights.double().repeat(3), share), others)


def test_weights_of_zero_are_as_if_the_entries_were_not_there():
    values, weights = errors(2, 100), torch.ones(100)
    weights[50:] = 0
    assert torch.equal(lower_quantile(values, 0.3, weights), lower_quantile(values[:, :50], 0.3))
    assert torch.equal(lower_quantile(values, 0.3, 0 * weights), torch.zeros(2))
    for given in (weights.double(), 0 * weights.double()):
        found = _by_sorting(values, given, 0.3)
        assert torch.equal(found, lower_quantile(values, 0.3, given))


def test_takes_any_magnitude():
    values = torch.tensor([[0.0, 1e-45, 1e-38, 1e-20, 1.0, 3e38]])
    ranks = [lower_quantile(values, i / 5, torch.ones(6)).item() for i in range(6)]
    assert ranks == values[0].tolist()


def test_takes_more_than_2_to_the_24_entries():
    values = torch.arange(2**24 + 5, dtype=torch.float64).flip(0)[None]
    expected = float(int(0.3 * (2**24 + 4)))
    assert lower_quantile(values, 0.3).item() == expected
    assert lower_quantile(values, 0.3, torch.ones(2**24 + 5)).item() == expected


def test_refuses_what_is_no_quantile():
    with pytest.raises(ArgumentError, match="quantile"):
        lower_quantile(errors(1, 4), 1.5)
    with pytest.raises(ArgumentError, match="no entries"):
        lower_quantile(errors(1, 0), 0.5)
