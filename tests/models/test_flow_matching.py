"""Flow matching against closed forms of normal errors, and a pattern that is learned."""

import math

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.flow_matching import ErrorFlow, white_noise
from ens10.models.networks import MLP, LocationUNet, Network, Transformer
from ens10.models.random_fields import SmoothNoise


class OfNormal(Network):
    """The velocity with the least loss for independent errors from N(0, s^2), and its mean loss."""

    in_channels, out_channels = 3, 1

    def __init__(self, deviation):
        super().__init__()
        self.deviation = deviation

    def slope(self, time):
        s = self.deviation**2
        return (time * s - (1 - time)) / ((1 - time) ** 2 + time**2 * s)

    def forward(self, features):
        return self.slope(features[:, 2:3]) * features[:, 1:2]

    def least_loss(self, time):
        s = self.deviation**2
        return s + 1 - (time * s - (1 - time)) ** 2 / ((1 - time) ** 2 + time**2 * s)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 2.5])
def test_the_draws_of_the_best_velocity_have_the_deviation_of_the_errors(deviation):
    flow, noise = ErrorFlow(OfNormal(deviation)), torch.randn(4, 8, 8, dtype=torch.float64)
    features = torch.zeros(1, 8, 8, dtype=torch.float64)
    gaps = [(flow.draw(features, noise, n) - deviation * noise).abs().max() for n in (10, 20, 40)]
    assert gaps[2] < 0.01
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]  # at least of order 2


@pytest.mark.parametrize("time", [0.0, 0.4, 1.0])
def test_the_loss_is_that_of_the_closed_form(time):
    random = torch.Generator().manual_seed(0)
    noise, errors = (torch.randn(50, 40, 40, generator=random) for _ in range(2))
    features, times = torch.zeros(50, 1, 40, 40), torch.full((50,), time)
    network = OfNormal(2.0)
    loss = ErrorFlow(network).loss(2 * errors, features, torch.ones(50, 40, 40), noise, times)
    assert float(loss) == pytest.approx(network.least_loss(time), rel=0.02)


def test_errors_without_weight_have_no_effect():
    random = torch.Generator().manual_seed(0)
    errors, noise = (torch.randn(2, 8, 8, generator=random) for _ in range(2))
    weights = torch.ones(2, 8, 8)
    weights[:, 2] = 0
    flow, features, time = ErrorFlow(OfNormal(2.0)), torch.zeros(2, 1, 8, 8), torch.rand(2)
    loss = flow.loss(errors, features, weights, noise, time)
    errors[:, 2] = 100
    assert flow.loss(errors, features, weights, noise, time) == loss


def test_a_trained_flow_draws_the_correlation_of_neighbours_and_the_deviation():
    torch.manual_seed(0)
    smooth = SmoothNoise([3000.0])
    flow = ErrorFlow(LocationUNet(3, (8, 16), 1, (8, 16), embedding=0))
    optimizer = torch.optim.AdamW(flow.parameters(), lr=0.01)
    features, weights = torch.zeros(32, 1, 8, 16), torch.ones(32, 8, 16)
    for _ in range(300):
        optimizer.zero_grad()
        errors = smooth(torch.randn(32, 1, 1, 8, 16)).squeeze((1, 2))
        flow.loss(errors, features, weights, torch.randn(32, 8, 16), torch.rand(32)).backward()
        optimizer.step()
    with torch.no_grad():
        draws = flow.draw(features[0], torch.randn(500, 8, 16))
    wanted = smooth(torch.randn(500, 1, 1, 8, 16)).squeeze((1, 2))

    def correlation(fields):
        """Of the points of a middle row with their neighbours in the east."""
        row = fields[:, 4]
        return float((row * row.roll(1, -1)).mean() / row.square().mean())

    assert correlation(wanted) > 0.7
    assert correlation(draws) == pytest.approx(correlation(wanted), abs=0.12)
    assert float(draws.std()) == pytest.approx(1, abs=0.12)


def test_noise_is_that_of_a_date_and_a_seed():
    one = white_noise(86400, 10, (8, 8), seed=0)
    assert torch.equal(one[:4], white_noise(86400, 4, (8, 8), seed=0))
    assert not torch.equal(one, white_noise(172800, 10, (8, 8), seed=0))
    assert not torch.equal(one, white_noise(86400, 10, (8, 8), seed=1))
    assert math.isclose(float(one.std()), 1, abs_tol=0.1)


@pytest.mark.parametrize(
    ("network", "text"),
    [(MLP(3, 2), "MLP of fields has 2"), (Transformer(3, 1), "Transformer of members has 1")],
)
def test_networks_of_several_outputs_or_of_members_are_refused(network, text):
    with pytest.raises(ArgumentError, match=f"{text} output channels"):
        ErrorFlow(network)


def test_no_steps_are_refused():
    with pytest.raises(ArgumentError, match="0 is not positive"):
        ErrorFlow(OfNormal(1.0)).draw(torch.zeros(1, 8, 8), torch.zeros(2, 8, 8), 0)
