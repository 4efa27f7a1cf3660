"""Properties of every public score: tensors and lazy arrays give what numpy arrays give."""

import warnings

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from test_masked import CASES, call

import ens10.metrics as metrics

NO_TENSORS = {"pit_counts"}  # takes numpy arrays


def numbers(result):
    """The numbers in a result, by name."""
    if isinstance(result, tuple):
        return {f"{i} {k}": v for i, one in enumerate(result) for k, v in numbers(one).items()}
    if isinstance(result, metrics.FrozenEFI):
        return numbers(result.values)
    if isinstance(result, xr.Dataset):
        return {str(k): np.asarray(v) for k, v in result.variables.items()}
    if hasattr(result, "detach"):
        return {"": result.detach().numpy()}
    return {"": np.asarray(result)}


def with_arrays(name, make):
    """The score of the same arrays, made by a function."""
    arrays, options = CASES[name]
    made = {k: make(np.asarray(v)) if np.ndim(v) else v for k, v in arrays.items()}
    fields = {k: make(v) for k, v in options.items() if np.ndim(v) > 1}
    with warnings.catch_warnings(action="ignore"):
        return call(name, made, options | fields)


@pytest.mark.parametrize("name", sorted(CASES.keys() - NO_TENSORS))
@pytest.mark.parametrize("make", [torch.as_tensor, da.asarray])
def test_each_library_gives_the_same(name, make):
    wanted, got = (with_arrays(name, one) for one in (np.asarray, make))
    lazy = numbers(got)
    assert lazy.keys() == numbers(wanted).keys()
    for key, values in numbers(wanted).items():
        np.testing.assert_allclose(lazy[key], values, rtol=1e-9, atol=1e-12, err_msg=key)
    if isinstance(wanted, np.ndarray | np.floating):
        assert isinstance(got, torch.Tensor if make is torch.as_tensor else da.Array)
