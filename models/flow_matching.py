"""Flow matching: a network that turns white noise into fields of forecast errors.

Lipman et al. (2023, arXiv:2210.02747), with straight paths: at time t the field is
(1 - t) noise + t error, and the network learns its velocity, error - noise, from the field, the
time and the features of the forecast. Couairon et al. (arXiv:2504.03463) correct forecasts so.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.networks.base import Network
from ens10.models.statistical.coupling import generator_of

STEPS = 4


class ErrorFlow(nn.Module):
    """Fields of standardised errors, given the features of a forecast.

    The errors are (truth - mean) / deviation of a forecast at each point, so that mean + deviation
    x draw is a member. The order of the draws at a point is also a template for `couple`.

    Args:
        network: takes the features and two channels more, the field and the time, and has one
            output channel.

    Raises:
        ArgumentError: a network of more outputs, or over members.
    """

    splittable = False

    def __init__(self, network: Network) -> None:
        super().__init__()
        if network.out_channels != 1 or network.takes_members:
            takes = "members" if network.takes_members else "fields"
            reason = (
                f"{type(network).__name__} of {takes} has {network.out_channels} output channels"
            )
            raise ArgumentError("network", reason, "Give one of fields, with one output channel")
        self.network = network

    def velocity(self, fields: Tensor, time: Tensor, features: Tensor) -> Tensor:
        """Return the velocity (N, H, W) of fields at a time.

        Args:
            fields: (N, H, W).
            time: (N,), from 0 (noise) to 1 (error).
            features: (N, C, H, W) of the forecast.
        """
        clock = time[:, None, None, None].expand(-1, 1, *fields.shape[-2:])
        outputs: Tensor = self.network(torch.cat([features, fields[:, None], clock], dim=1))
        return outputs[:, 0]

    def loss(
        self, errors: Tensor, features: Tensor, weights: Tensor, noise: Tensor, time: Tensor
    ) -> Tensor:
        """Return the weighted mean square error of the velocity, a number.

        Args:
            errors: (N, H, W) standardised errors; 0 where there is no truth, since neighbours of
                such points see them.
            features: (N, C, H, W).
            weights: (N, H, W), of the loss; not 0 everywhere.
            noise: (N, H, W), from N(0, 1).
            time: (N,), from U(0, 1).
        """
        fields = torch.lerp(noise, errors, time[:, None, None])
        gap = self.velocity(fields, time, features) - (errors - noise)
        return (weights * gap.square()).sum() / weights.sum()

    def draw(self, features: Tensor, noise: Tensor, steps: int = STEPS) -> Tensor:
        """Return fields of errors (M, H, W) of one date.

        Args:
            features: (C, H, W) of the date.
            noise: (M, H, W), from N(0, 1).
            steps: of the midpoint rule, of two evaluations of the network each.

        Raises:
            ArgumentError: fewer than one step.
        """
        if steps < 1:
            raise ArgumentError("steps", f"{steps} is not positive")
        fields, step = noise, 1 / steps
        many = features.expand(len(noise), *features.shape)
        for n in range(steps):
            start = noise.new_full((len(noise),), n * step)
            half = fields + 0.5 * step * self.velocity(fields, start, many)
            fields = fields + step * self.velocity(half, start + 0.5 * step, many)
        return fields


def white_noise(date: int, members: int, grid: Any, seed: int) -> Tensor:
    """Return noise (M, H, W) that depends on the date and the seed only.

    Args:
        date: in seconds.
        members: number M of fields; the first ones do not depend on it.
        grid: rows and columns.
        seed: of the draws.
    """
    random = generator_of(date, seed, "flow")
    return torch.from_numpy(random.standard_normal((members, *grid), np.float32))
