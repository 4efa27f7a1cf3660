"""Deep ensembles whose members share one network but for the last layer and factors of channels."""

from collections.abc import Sequence

import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution
from ens10.models.deep_ensemble import average_of_targets
from ens10.models.heads import Head
from ens10.models.layers.smoe.tracking import track_loss
from ens10.models.losses import Loss
from ens10.models.matching import as_fields, finish_outputs, require_match
from ens10.models.networks.base import Network
from ens10.models.postprocessor import TrainedModule, adam, with_penalty

_DEVIATION = 0.5  # of the factors at the start, around 1


class MemberScales(nn.Module):
    """A convolution whose input and output channels have factors of each member.

    y = s_k conv(r_k x) for member k, so that its weights are W s_k r_k^T, elementwise: one matrix
    of weights and a change of rank 1 for each member (Wen et al. 2020, arXiv:2002.06715, eq. 1).
    The bias is multiplied by s_k.

    Args:
        conv: the convolution that members share.
        size: number of members.

    Attributes:
        members: member of each sample, (N,), or one number for all samples.
    """

    splittable = True

    def __init__(self, conv: nn.Conv2d, size: int) -> None:
        super().__init__()
        self.conv = conv
        self.members: Tensor | int = 0
        self.before = nn.Parameter(1 + _DEVIATION * torch.randn(size, conv.in_channels))
        self.after = nn.Parameter(1 + _DEVIATION * torch.randn(size, conv.out_channels))

    def forward(self, *parts: Tensor) -> Tensor:
        """(N, in_channels, H, W), or parts of the channels -> (N, out_channels, H, W)."""
        before, after = (s[self.members, ..., None, None] for s in (self.before, self.after))
        factors = torch.split(before, [part.shape[-3] for part in parts], -3)
        outputs: Tensor = after * self.conv(*(f * p for f, p in zip(factors, parts, strict=True)))
        return outputs


class SharedTrunk(TrainedModule):
    """Members of a deep ensemble that share the weights of one network, their trunk.

    Each member has output channels of its own (a linear last layer is then a head for each), and,
    with `scales`, factors of the channels of every convolution, see `MemberScales`. In training
    each date goes to one member, in turn, so that an epoch costs as much as that of one network
    (members differ because they start with different factors or learn from different batches).
    Validation and prediction average the forecasts of all members as `DeepEnsemble` does, in one
    pass of the network without scales, and in a pass for each member with them.

    Args:
        network: the trunk, with the output channels of all members: `size` times the head's.
        head: turns a member's outputs into a predictive distribution.
        size: number of members.
        scales: True for factors of the channels; one member has none, and is the plain network.
        loss: loss at each point; None for the CRPS.
        optimizer: makes the optimiser from the parameters.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.

    Raises:
        ArgumentError: fewer than one member, outputs that are not those of all members, or scales
            for a network with batch normalisation (whose statistics would mix the members), with
            features of ensemble members, or without convolutions.
    """

    splittable = True

    def __init__(
        self,
        network: Network,
        head: Head,
        size: int = 5,
        scales: bool = True,
        loss: Loss | None = None,
        optimizer: OptimizerCallable = adam,
        scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(head, loss, optimizer, scheduler)
        if size < 1:
            raise ArgumentError("size", f"{size} is less than 1", "Choose the number of members")
        require_match(network, head, size)
        self.network, self.size, self._batch_size = network, size, 0
        if scales and size > 1:
            _add_scales(network, size)

    @property
    def passes(self) -> int:
        """Number of passes of the network for a forecast."""
        return self.size if self._scaled_layers() else 1

    def _scaled_layers(self) -> list[MemberScales]:
        return [layer for layer in self.network.modules() if isinstance(layer, MemberScales)]

    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the average of the members' forecasts for a batch.

        Raises:
            ArgumentError: the batch does not have the features that the network takes.
        """
        each = torch.arange(self.size, device=batch["features"].device).unbind()
        passes = [[one] for one in each] if self.passes > 1 else [each]
        forecasts = [one for members in passes for one in self._forecasts(batch, members)]
        return average_of_targets(forecasts) if len(forecasts) > 1 else forecasts[0]

    def training_step(self, batch: Batch, batch_idx: int = 0) -> Tensor:
        """Return the loss of the forecasts for the dates, each of one member, with the penalty."""
        batch = as_fields(batch)
        dates = len(batch["features"])
        if batch_idx == 0 or not self._batch_size:
            self._batch_size = dates  # the last batch of an epoch may be shorter
        positions = torch.arange(dates, device=batch["features"].device)
        members = positions + batch_idx * self._batch_size
        loss = self._step(batch, "train", self._forecasts(batch, [members % self.size])[0])
        return with_penalty(track_loss(loss, self.network), self.network)

    def _forecasts(
        self, batch: Batch, members: Sequence[Tensor]
    ) -> list[Distribution | tuple[Distribution, ...]]:
        """Return forecasts from one pass of the network.

        Args:
            batch: of N samples.
            members: for each forecast one member, or that of each sample, (N,). Factors of channels
                are those of the first.
        """
        for layer in self._scaled_layers():
            layer.members = members[0]

        def finish(outputs: Tensor) -> list[Distribution | tuple[Distribution, ...]]:
            channels = torch.unflatten(outputs, -3, (self.size, -1)).movedim(-4, 1)
            samples = torch.arange(len(outputs), device=outputs.device)
            return [self.head(channels[samples, which], batch) for which in members]

        return finish_outputs(self.network, self.head, batch, self.grid, finish)


def _add_scales(network: Network, size: int) -> None:
    """Put `MemberScales` around each convolution of a network."""
    convolutions = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Conv2d)
    ]
    reason = (
        "has features of each ensemble member" if network.takes_members
        else "has batch normalisation, whose statistics would mix members" if _has_norm(network)
        else "" if convolutions else "has no convolution"
    )  # fmt: skip
    if reason:
        text = f"{type(network).__name__} {reason}"
        raise ArgumentError("scales", text, "Set scales to false, or choose another network")
    for parent, name, child in convolutions:
        setattr(parent, name, MemberScales(child, size))


def _has_norm(network: Network) -> bool:
    return any(isinstance(part, nn.BatchNorm2d) for part in network.modules())
