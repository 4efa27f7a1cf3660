"""Gates: the weight of every expert at every grid point."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.locally_connected import checked_grid
from ens10.models.layers.smoe.maps import Nested, read_map


class Gate(nn.Module):
    """Weights of the experts at the points of a layer's output.

    Several layers may share one gate, and with it the parameters and, if it does not depend on the
    input, the choices.

    Attributes:
        num_experts: number of experts.
    """

    num_experts: int

    @property
    def rows(self) -> int | None:
        """Number of rows of the gate's learned or fixed map, or None if it has none."""
        return self.weight.shape[1] if isinstance(self, TensorGate | FixedGate) else None

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """(N, E, H, W) from features (N, C, H, W), or (1, E, H, W) if the same for all samples."""


class TensorGate(Gate):
    """A learned map of E x H x W weights, independent of the input: tensor routing.

    The gate of the paper's experiments (Dryden & Hoefler 2022, arXiv:2211.13491), initialised from
    U(+-sqrt(3 E / k)).

    Args:
        num_experts: number E of experts.
        selected: number k of experts used at each point.
        grid: rows and columns (H, W) of the layer's output.

    Raises:
        ArgumentError: k not from 1 to E, or a grid that is not two positive numbers.
    """

    def __init__(self, num_experts: int, selected: int, grid: Sequence[int]) -> None:
        super().__init__()
        check_selected(selected, num_experts)
        self.num_experts = num_experts
        self.weight = nn.Parameter(torch.empty(num_experts, *checked_grid(grid)))
        bound = math.sqrt(3 * num_experts / selected)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:  # noqa: ARG002  (other gates look at it)
        """Return the map of weights, (1, E, H, W)."""
        return current().part(self.weight)[None]


class FixedGate(Gate):
    """A fixed map of weights, such as an oracle or a random baseline.

    It is a buffer: saved in checkpoints, moved between devices, and never trained.

    Args:
        weights: (E, H, W) weights, the largest k of which are used at each point; or nested lists
            of them, or the path of a .npy, .npz or netCDF file with this one array.

    Raises:
        ArgumentError: not three dimensions, values that are not finite, or no such file.
    """

    weight: Tensor

    def __init__(self, weights: Tensor | Nested | str | Path) -> None:
        super().__init__()
        weights = read_map(weights) if isinstance(weights, str | Path) else weights
        weights = torch.as_tensor(weights, dtype=torch.get_default_dtype())
        if weights.ndim != 3 or not bool(weights.isfinite().all()):
            raise ArgumentError(
                "weights", f"shape {tuple(weights.shape)}, must be (E, H, W) and finite"
            )
        self.num_experts = weights.shape[0]
        self.register_buffer("weight", weights.clone())

    @classmethod
    def from_choices(cls, choices: Tensor, num_experts: int) -> "FixedGate":
        """Build the gate that makes the given choices.

        Args:
            choices: (k, H, W) or (H, W) integers from 0 to E - 1, in rank order.
            num_experts: number E of experts.

        Raises:
            ArgumentError: an expert that does not exist, or one chosen twice at a point.
        """
        choices = torch.as_tensor(choices).long()
        choices = choices if choices.ndim == 3 else choices[None]
        low, high = int(choices.min()), int(choices.max())
        if low < 0 or high >= num_experts:
            raise ArgumentError(
                "choices", f"experts from {low} to {high}, there are 0 to {num_experts - 1}"
            )
        k = choices.shape[0]
        ranks = torch.arange(k, 0, -1, dtype=torch.get_default_dtype())
        weights = torch.zeros(num_experts, *choices.shape[1:])
        weights.scatter_(0, choices, ranks[:, None, None].expand(choices.shape))
        if bool(((weights > 0).sum(0) < k).any()):
            raise ArgumentError("choices", "an expert is chosen twice at a point")
        return cls(weights)

    def forward(self, features: Tensor) -> Tensor:  # noqa: ARG002
        """Return the map of weights, (1, E, H, W)."""
        return current().part(self.weight)[None]


def check_selected(selected: int, num_experts: int) -> None:
    """Reject a number of selected experts outside 1 to `num_experts`.

    Raises:
        ArgumentError: fewer than 1 or more than `num_experts`.
    """
    if not 1 <= selected <= num_experts:
        raise ArgumentError(
            "selected",
            f"{selected} of {num_experts} experts",
            f"Select from 1 to {num_experts}, or have more experts",
        )
