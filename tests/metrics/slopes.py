"""Gradients against central differences, at all points at once."""

import torch


def assert_slopes(function, inputs, step=1e-6, rtol=1e-3, atol=1e-5):
    """Do what `gradcheck` does, if a value depends on the inputs at its own point alone.

    The steps and tolerances are those of `gradcheck`, which moves one number at a time.
    """
    found = torch.autograd.grad(
        function(*inputs).sum(), inputs, allow_unused=True, materialize_grads=True
    )
    with torch.no_grad():
        for n, slope in enumerate(found):
            moved = [
                function(*inputs[:n], inputs[n] + side, *inputs[n + 1 :]) for side in (step, -step)
            ]
            wanted = (moved[0] - moved[1]) / (2 * step)
            torch.testing.assert_close(slope, wanted.expand_as(slope), rtol=rtol, atol=atol)
