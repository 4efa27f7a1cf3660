"""The base class of networks: its attributes describe inputs, outputs and levels."""

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from ens10.models.domain import Odd
from ens10.models.specification import InitialValues


class DataShape(NamedTuple):
    """The numbers of the data that networks depend on, by the names of networks' arguments.

    Attributes:
        in_channels: channels of the features, of each member if the features are of members.
        grid: rows and columns.
        inputs: how many of the channels are of inputs (means, or a member's fields), without
            deviations. Masks and extras come last.
        fixed: how many of the last channels are the same for all members: masks and extras.
        target: position of the target among the inputs; None if it is not among them.
    """

    in_channels: int
    grid: tuple[int, int]
    inputs: int
    fixed: int
    target: int | None


def numbers_of_class(kind: type, shape: DataShape) -> dict[str, Any]:
    """Return the arguments of a class that have no default and a name of `DataShape`."""
    parameters = inspect.signature(kind).parameters
    known = shape._replace(grid=list(shape.grid))._asdict()  # type: ignore[arg-type]
    return {
        name: value
        for name, value in known.items()
        if name in parameters and parameters[name].default is inspect.Parameter.empty
    }


class Network(InitialValues, nn.Module):
    """A map of gridded features to gridded outputs.

    Attributes:
        in_channels: channels of the input features.
        out_channels: channels of the outputs; a head requires a certain number.
        takes_members: True if it takes features of each member (`kind: members` of the data).
        gives_members: True if it has outputs for each member, for a head that takes them.
        least_members: smallest ensemble size; only if it takes members.
        pointwise: True if the outputs at a point depend on the features of that point alone. Only
            such networks take stations.
        halvings: number of times that it halves rows and columns. A grid that is split between
            processes is cut at multiples of 2^halvings.
        odd: treatment of the last of an odd number of rows or columns when it halves them.
        splittable: declared by each network in its own class, not inherited: True if it works on a
            part of the grid (see `ens10.models.domain`), or a text that says why it does not. A
            network that declares it is listed in `ens10.models.networks`.
    """

    in_channels: int
    out_channels: int
    takes_members: bool = False
    gives_members: bool = False
    least_members: int = 1
    pointwise: bool = False
    halvings: int = 0
    odd: Odd = "dropped"

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Members are the second dimension, (N, M, ...), of features if the network takes them and
        of outputs if it gives them.
        """

    @classmethod
    def numbers_of_data(
        cls,
        shape: DataShape,
        arguments: Mapping[str, Any],  # noqa: ARG003
    ) -> dict[str, Any]:
        """Return the arguments of `__init__` that follow from the data, by name.

        These are the ones that have no default and a name of `DataShape`. A subclass with another
        argument of the data adds it.

        Args:
            shape: of the data.
            arguments: the others, as far as they are given.
        """
        return numbers_of_class(cls, shape)

    @classmethod
    def shape_of_inner(
        cls,
        shape: DataShape,
        arguments: Mapping[str, Any],  # noqa: ARG003
    ) -> DataShape:
        """Return the shape of what a network passes on to the one in its argument `network`."""
        return shape

    def penalty(self) -> Tensor | None:
        """Return a term that training adds to the loss, in its units, or None."""
        return None


def start_at_zero(layer: nn.Module) -> None:
    """Set all parameters of a last layer to zero: a residual head then gives the raw ensemble."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
