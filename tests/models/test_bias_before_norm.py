"""A bias before a batch normalisation: left out in training, as if it were there."""

import copy

import torch
from torch import nn

from ens10.models.layers import BatchNorm2d, SameConv2d
from ens10.models.networks import UNet


def pair():
    """A convolution with the normalisation that follows it, and two that are independent."""
    torch.manual_seed(0)
    conv, norm = SameConv2d(3, 4).double(), BatchNorm2d(4).double()
    alone = copy.deepcopy(nn.Sequential(conv, norm))
    return nn.Sequential(conv, norm.after(conv)), alone


def test_outputs_moments_and_gradients_are_those_with_the_bias():
    ours, plain = pair()
    ours = copy.deepcopy(ours)  # the copies follow each other, too
    assert ours[0].normalised_by[0] is ours[1]
    for _ in range(4):
        x, slope = torch.randn(2, 3, 6, 8).double(), torch.randn(2, 4, 6, 8).double()
        for model in (ours, plain):
            model.zero_grad()
            model(x).backward(slope)
        assert torch.equal(ours[0].bias.grad, torch.zeros(4).double())  # rounding in the other
        torch.testing.assert_close(ours[0].weight.grad, plain[0].weight.grad, rtol=0, atol=1e-12)
        for name, buffer in ours[1].named_buffers():
            torch.testing.assert_close(buffer, plain[1].get_buffer(name), rtol=0, atol=1e-14)
    ours.eval(), plain.eval()
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-13)
    assert ours.state_dict().keys() == plain.state_dict().keys()


def test_the_convolution_has_its_bias_where_the_normalisation_evaluates():
    ours, plain = pair()
    ours[1].eval(), plain[1].eval()
    x = torch.randn(1, 3, 6, 8).double()
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-13)


def test_an_old_state_with_a_bias_goes_on_as_before():
    ours, plain = pair()
    plain[0].bias.data += 3
    plain(torch.randn(2, 3, 6, 8).double())  # its running mean has the bias
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 6, 8).double()
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)
    ours.eval(), plain.eval()
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)


def test_an_old_training_goes_on_with_the_state_of_its_optimiser():
    ours, plain = pair()
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (ours, plain)]
    batches = [torch.randn(2, 3, 6, 8).double() for _ in range(6)]

    def steps(model, optimiser, batches):
        for x in batches:
            optimiser.zero_grad()
            model(x).square().mul(torch.linspace(0, 1, 8)).mean().backward()
            optimiser.step()

    steps(plain, optimisers[1], batches[:3])
    ours.load_state_dict(plain.state_dict())
    optimisers[0].load_state_dict(copy.deepcopy(optimisers[1].state_dict()))
    for model, optimiser in zip((ours, plain), optimisers, strict=True):
        steps(model, optimiser, batches[3:])
    # the plain bias follows the rounding of its gradient, which no output of the training shows
    for name, parameter in ours.named_parameters():
        if name != "0.bias":
            torch.testing.assert_close(parameter, plain.get_parameter(name), rtol=0, atol=1e-10)
    torch.testing.assert_close(ours(batches[0]), plain(batches[0]), rtol=0, atol=1e-9)


def test_two_passes_before_one_backward_pass():
    ours, _ = pair()
    (
        ours(torch.randn(2, 3, 6, 8).double()) + ours(torch.randn(2, 3, 6, 8).double())
    ).sum().backward()
    assert ours[0].weight.grad.isfinite().all()


def test_the_blocks_of_the_u_net_leave_their_biases_out():
    network = UNet(2)
    convs = [m for m in network.modules() if isinstance(m, SameConv2d)]
    assert [bool(conv.normalised_by) for conv in convs] == [True] * (len(convs) - 1) + [False]
    network(torch.randn(2, 2, 8, 8)).sum().backward()
    assert all(not conv.bias.grad.any() for conv in convs[:-1])
    assert convs[-1].bias.grad.all()
