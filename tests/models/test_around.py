"""Convolution around the globe, against that of a padded copy in float64."""

import pytest
import torch
from torch.nn import functional

from ens10.models.around import convolve_around
from ens10.models.layers import SameConv2d


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("kernel", "dilation", "groups"), [(3, 1, 1), (5, 1, 2), (3, 2, 1), (5, 2, 4), (7, 1, 1)]
)
def test_it_equals_the_convolution_of_a_padded_copy(kernel, dilation, groups, is_last):
    half = dilation * (kernel // 2)
    kept = torch.channels_last if is_last else torch.contiguous_format
    for width in (half, half + 1, 9):
        x = torch.randn(2, 4, 6, width, dtype=torch.float64).contiguous(memory_format=kept)
        weight = torch.randn(8, 4 // groups, kernel, kernel, dtype=torch.float64)
        ours, theirs = (
            [t.clone().requires_grad_() for t in (x, weight, torch.randn(8).double() * 0 + 0.5)]
            for _ in "ab"
        )
        a = convolve_around(*ours, half, dilation, groups)
        fields = theirs[0]
        wide = torch.cat([fields[..., width - half :], fields, fields[..., :half]], -1)
        b = functional.conv2d(wide, *theirs[1:], 1, (half, 0), dilation, groups)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        assert a.is_contiguous(memory_format=kept)
        slope = torch.randn_like(a)
        a.backward(slope)
        b.backward(slope)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-11)


def test_a_frozen_weight_or_input_gets_no_gradient():
    x, weight = torch.randn(1, 2, 4, 6), torch.randn(3, 2, 3, 3)
    for needed in (x, weight):
        needed.requires_grad_()
        convolve_around(x, weight, None, 1, 1, 1).sum().backward()
        assert needed.grad is not None
        needed.requires_grad_(requires_grad=False)
        needed.grad = None
    assert x.grad is None
    assert weight.grad is None


def test_mixed_precision_is_that_of_torch():
    layer = SameConv2d(2, 3, periodic_longitude=True)
    x = torch.randn(1, 2, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(x)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs.float(), layer(x), rtol=0.02, atol=0.02)
