"""Deep ensembles: several networks from different starts, whose forecasts are averaged."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution, Ensemble, Normal, Quantiles
from ens10.metrics.distributions.quantiles import LEVELS
from ens10.models.heads import Head
from ens10.models.layers.smoe.tracking import track_loss
from ens10.models.losses import Loss
from ens10.models.matching import as_fields, forecast_of, require_match
from ens10.models.networks.base import Network
from ens10.models.postprocessor import TrainedModule, adam, with_penalty


class DeepEnsemble(TrainedModule):
    """Networks of one architecture with different initial values, whose forecasts are averaged.

    They train side by side on the same batches, so that data are read once. Their losses are added:
    with an optimiser that updates each parameter independently, such as Adam, each network is
    trained exactly as it would be alone. (Clipping the gradient's norm would couple them.) A
    statistical method within the head is solved once for all networks. Validation scores the
    averaged forecast (`average_forecasts`); `train_loss` is the mean of the networks' losses.

    Lakshminarayanan et al. 2017, arXiv:1612.01474; averaging of quantile functions as in Schulz &
    Lerch 2022, arXiv:2204.02291.

    Args:
        network: function that makes a network; in YAML, its `class_path` and `init_args`.
        head: turns outputs into a predictive distribution; must have no parameters.
        size: number of networks.
        loss: loss at each point; None for the CRPS.
        optimizer: makes the optimiser from the parameters.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.

    Raises:
        ArgumentError: fewer than one network, a head with parameters that the networks would have
            to share, or networks and head that do not fit together.
    """

    splittable = True

    def __init__(
        self,
        network: Callable[[], Network],
        head: Head,
        size: int = 5,
        loss: Loss | None = None,
        optimizer: OptimizerCallable = adam,
        scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(head, loss, optimizer, scheduler)
        if size < 1:
            raise ArgumentError("size", f"{size} is less than 1", "Choose the number of networks")
        if any(True for _ in head.parameters()):
            raise ArgumentError(
                "head",
                f"{type(head).__name__} has parameters, which the networks would share",
                "Take a head without, or train the networks one by one",
            )
        self.networks = nn.ModuleList(network() for _ in range(size))
        require_match(self._network_list()[0], head)

    def _network_list(self) -> list[Network]:
        return [network for network in self.networks if isinstance(network, Network)]

    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the average of the networks' forecasts for a batch.

        Raises:
            ArgumentError: the batch does not have the features that the networks take.
        """
        forecasts = [
            forecast_of(network, self.head, batch, self.grid) for network in self._network_list()
        ]
        return average_of_targets(forecasts)

    def training_step(self, batch: Batch) -> Tensor:
        """Return the sum of the networks' losses, each with its penalty."""
        batch = as_fields(batch)
        losses = [self._loss(network, batch) for network in self._network_list()]
        return track_loss(torch.stack(losses).sum(), self.networks)

    def _loss(self, network: Network, batch: Batch) -> Tensor:
        forecast = forecast_of(network, self.head, batch, self.grid)
        return with_penalty(self._step(batch, "train", forecast), network)


def average_of_targets(
    forecasts: Sequence[Distribution | tuple[Distribution, ...]],
) -> Distribution | tuple[Distribution, ...]:
    """Average forecasts, or those of each of several targets; see `average_forecasts`."""
    of_targets = [one for one in forecasts if isinstance(one, tuple)]
    if of_targets:
        return tuple(average_forecasts(each) for each in zip(*of_targets, strict=True))
    return average_forecasts([one for one in forecasts if not isinstance(one, tuple)])


def average_forecasts(forecasts: Sequence[Distribution]) -> Distribution:
    """Average several forecasts into one, whose CRPS is at most the mean of theirs.

    Quantile functions are averaged (Vincentisation); for normal distributions this gives the normal
    with the mean of mu and of sigma. The members of ensembles are pooled into one ensemble. For
    other distributions the quantiles at 1 % to 99 % are averaged.

    The CRPS is convex in the quantile function (it is the integral of the quantile loss) and in the
    distribution function, so that neither average scores worse than the mean score of its parts
    (for ensembles: by the plain estimator).

    Args:
        forecasts: one or more, of one type and shape.

    Raises:
        ArgumentError: no forecast, or forecasts of several types.
    """
    kinds = sorted({type(forecast).__name__ for forecast in forecasts})
    if len(kinds) != 1:
        type_names = " and ".join(kinds) or "none"
        raise ArgumentError("forecasts", f"{type_names}: must be of one kind")
    first = forecasts[0]
    if isinstance(first, Normal):
        mu, sigma = (_mean([f.variables()[name] for f in forecasts]) for name in ("mu", "sigma"))
        return replace(first, mu=mu, sigma=sigma)
    if isinstance(first, Ensemble):
        members = torch.cat([f.variables()["members"] for f in forecasts], dim=1)
        return replace(first, members=members)
    levels = first.levels if isinstance(first, Quantiles) else LEVELS
    p = torch.tensor(levels, dtype=torch.float64)
    return Quantiles(_mean([f.quantile(p) for f in forecasts]).transpose(0, 1), levels)


def _mean(values: Sequence[Tensor]) -> Tensor:
    """Return the elementwise mean; equal values give that value exactly."""
    first = values[0]
    return first + torch.stack([value - first for value in values]).mean(0)
