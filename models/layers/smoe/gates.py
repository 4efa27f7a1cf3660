"""Gates: the weight of every expert at every grid point, and the choice of the largest weights."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import Weighting, area_weights
from ens10.models.domain import current
from ens10.models.layers.location_convolutions import CoordConv2d, LocallyConnected2d, checked_grid
from ens10.models.layers.padding import FreeConv2d, Poles
from ens10.models.layers.smoe.loops import bands, choose
from ens10.models.layers.threads import in_threads
from ens10.models.statistical.regions import RegionalRegression

Nested = Sequence[Sequence[Sequence[float]]]


def read_map(path: str | Path) -> Tensor:
    """Read the one array of a .npy, .npz or netCDF file.

    Raises:
        ArgumentError: no such file, another kind of file, or not exactly one array in it.
    """
    path = Path(path)
    if not path.is_file():
        raise ArgumentError("weights", f"there is no file {path}")
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    elif path.suffix in (".nc", ".nc4"):
        import xarray as xr

        with xr.open_dataset(path) as dataset:
            arrays = {str(name): dataset[name].to_numpy() for name in dataset.data_vars}
    else:
        raise ArgumentError("weights", f"{path} does not end in .npy, .npz or .nc")
    if len(arrays) != 1:
        raise ArgumentError(
            "weights", f"{path} holds {len(arrays)} arrays ({', '.join(arrays)}), must be one"
        )
    return torch.from_numpy(next(iter(arrays.values())))


def normalise_area(area: Tensor | Sequence[float]) -> Tensor:
    """Normalise area weights (H,) or (H, W) to mean 1, and return them as (H, 1) or (H, W).

    Raises:
        ArgumentError: another shape, negative or NaN weights, or only zeros.
    """
    area = torch.as_tensor(area, dtype=torch.get_default_dtype())
    if area.ndim not in (1, 2) or not bool((area >= 0).all()) or not bool(area.sum() > 0):
        raise ArgumentError(
            "area", "must be (H,) or (H, W), not negative, not NaN and not all zero"
        )
    area = area[:, None] if area.ndim == 1 else area
    return area / area.mean()


def area_by_name(name: str, rows: int | None) -> Tensor | None:
    """Return row weights of a global grid whose first and last row are the poles.

    Args:
        name: "cell", "cos" or "none", see `ens10.grid.area_weights`.
        rows: number of rows of the gate's map, or None if it has none.

    Returns:
        (rows, 1) of mean 1, or None for "none".

    Raises:
        UnknownNameError: another name.
        ArgumentError: a gate without a map (`rows` is None), and a name other than "none".
    """
    if name not in get_args(Weighting):
        raise UnknownNameError("area", name, get_args(Weighting))
    if name == "none":
        return None
    if rows is None:
        raise ArgumentError(
            "area",
            f"{name!r} needs the rows of the grid, which this gate does not have",
            "Pass the weights of the rows, from ens10.grid.area_weights",
        )
    return normalise_area(area_weights(np.linspace(90, -90, rows), name).tolist())  # type: ignore[call-overload]


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

    splittable = True

    def __init__(self, num_experts: int, selected: int, grid: Sequence[int]) -> None:
        super().__init__()
        check_selected(selected, num_experts)
        self.num_experts = num_experts
        self.weight = nn.Parameter(torch.empty(num_experts, *checked_grid(grid)))
        bound = math.sqrt(3 * num_experts / selected)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:  # noqa: ARG002  (other gates use it)
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

    splittable = True
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


class RegionGate(Gate):
    """The regions of a clusterwise regression: 1 for the expert of a point's region, else 0.

    Training solves the regression first, in one pass over the training dates
    (`ens10.models.warmstart`); its regions are buffers of the checkpoint. Before that, all points
    belong to the first expert.

    Args:
        num_experts: number E of experts, one for each region.
        grid: rows and columns (H, W) of a learned correction, which starts at 0 and is added; None
            to use the regions of the regression unchanged.
        harmonics: number of annual harmonics among the predictors of the regression.
        advection: True for advection among them; see `RegionalRegression`.

    Raises:
        ArgumentError: fewer than one expert, or a grid that is not two positive numbers.
    """

    splittable = True

    def __init__(
        self,
        num_experts: int,
        grid: Sequence[int] | None = None,
        harmonics: int = 1,
        advection: bool = False,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.method = RegionalRegression(num_experts, harmonics, advection)
        size = None if grid is None else (num_experts, *checked_grid(grid))
        self.weight = None if size is None else nn.Parameter(torch.zeros(size))

    def forward(self, features: Tensor) -> Tensor:
        """Return the map of weights, (1, E, H, W)."""
        if self.method.is_solved:
            weights = current().part(self.method.shares())[None].to(features.dtype)
        else:
            weights = features.new_zeros(1, self.num_experts, *features.shape[-2:])
        return weights if self.weight is None else weights + current().part(self.weight)[None]


def check_selected(selected: int, num_experts: int) -> None:
    """Refuse a number of selected experts outside 1 to `num_experts`.

    Raises:
        ArgumentError: fewer than 1 or more than `num_experts`.
    """
    if not 1 <= selected <= num_experts:
        raise ArgumentError(
            "selected",
            f"{selected} of {num_experts} experts",
            f"Select from 1 to {num_experts}, or have more experts",
        )


class ConvGate(Gate):
    """A convolution of the input, without bias.

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        kernel_size: rows and columns of the filter, odd.
        stride: stride of the layer that uses the gate.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a stride that is not positive.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        kernel_size: int = 3,
        *,
        stride: int = 1,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.conv = FreeConv2d(
            in_channels,
            num_experts,
            kernel_size,
            stride=stride,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H', W')."""
        weights: Tensor = self.conv(features)
        return weights


class CoordConvGate(Gate):
    """A convolution of the input and its coordinates (`CoordConv2d`).

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.conv = CoordConv2d(
            in_channels,
            num_experts,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H, W)."""
        weights: Tensor = self.conv(features)
        return weights


class LocallyConnectedGate(Gate):
    """A locally connected layer: separate weights at every grid point.

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        grid: rows and columns (H, W).
        kernel_size: rows and columns of the filters, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a grid that is not two positive numbers.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        grid: Sequence[int],
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.local = LocallyConnected2d(
            in_channels,
            num_experts,
            grid,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H, W)."""
        weights: Tensor = self.local(features)
        return weights


_MAX_EXPERTS = 2**16  # whose index fits into a sort key
_BAND = 2**13  # points


def largest_weights(routing: Tensor, k: int) -> Tensor:
    """Return the k experts of largest weight at each point.

    On the CPU in float32 experts of equal weight are taken in order (by a sorting network for many
    points at once); elsewhere `torch.topk` breaks ties arbitrarily.

    Args:
        routing: R, (N, E, H, W).
        k: number of selected experts.

    Returns:
        (N, H, W, k) indices in rank order, in the smallest type that holds E - 1.
    """
    routing = routing.detach()
    E = routing.shape[1]
    if routing.dtype != torch.float32 or routing.device.type != "cpu" or E > _MAX_EXPERTS:
        indices = routing.movedim(1, -1).topk(k, dim=-1).indices
        return indices.to(_smallest_dtype(E)).contiguous()
    choices: Tensor = _largest_by_loops(routing, k)
    return choices


@torch.library.custom_op("ens10::largest_weights", mutates_args=())
def _largest_by_loops(routing: Tensor, k: int) -> Tensor:
    """Return the choices of `largest_weights` for float32 weights on the CPU."""
    choices: Tensor = _empty_choices(routing, k)
    bits = routing.contiguous().view(torch.int32).flatten(2).numpy()
    pieces = [(n, band) for n in range(len(bits)) for band in bands(bits.shape[2], _BAND)]
    in_threads(lambda n, band: choose(bits[n], band, choices[n].flatten(0, 1).numpy()), pieces)
    return choices


@_largest_by_loops.register_fake
def _empty_choices(routing: Tensor, k: int) -> Tensor:
    N, E, H, W = routing.shape
    return routing.new_empty(N, H, W, k, dtype=_smallest_dtype(E))


def planes(choices: Tensor) -> Tensor:
    """Return choices (N, H, W, k) as int64 indices (N, k, H, W), as torch.gather requires them."""
    return choices.movedim(-1, 1).long()


def _smallest_dtype(num_experts: int) -> torch.dtype:
    """Return the smallest type that holds indices of so many experts."""
    if num_experts <= 2**8:
        return torch.uint8
    return torch.int16 if num_experts <= 2**15 else torch.int32
