"""The Lightning modules: a network with its head, and a statistical method, behind one step."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from ens10.errors import ArgumentError, listing
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution
from ens10.models.domain import current
from ens10.models.heads import Head
from ens10.models.layers.smoe.tracking import (
    record_routing_loss,
    recorded_routing_loss,
    track_loss,
)
from ens10.models.losses import CRPSLoss, Loss
from ens10.models.matching import forecast_of, require_match
from ens10.models.means import WeightedMean
from ens10.models.networks.base import Network
from ens10.models.statistical.base import StatisticalMethod
from ens10.models.warmstart import solve_methods, unsolved

Stage = Literal["train", "val", "test"]
_ROUTING, _ROUTING_EVERY = "train_routing_loss", 50
_LOGGED = ("train_loss", "val_loss", "val_crps", "test_loss", "test_crps", _ROUTING)


@dataclass(eq=False)
class Prediction:
    """What `predict_step` returns for one batch.

    Args:
        forecast: the predictive distributions, N dates.
        dates: (N,) int64 valid dates in seconds since 1970-01-01 00 UTC.
    """

    forecast: Distribution
    dates: Tensor


class _ForecastModule(pl.LightningModule):
    """The step that training, validation and test share; subclasses say what the forecast is."""

    def __init__(self, loss: Loss | None) -> None:
        super().__init__()
        self.loss = loss if loss is not None else CRPSLoss()
        # (sum of w loss, sum of w), so that batches and processes merge exactly
        self.means = nn.ModuleDict({name: WeightedMean() for name in _LOGGED})

    @abstractmethod
    def forward(self, batch: Batch) -> Distribution:
        """The forecast for a batch."""

    def setup(self, stage: str) -> None:  # noqa: ARG002  (the name in LightningModule)
        """Refuses data in half precision, which knows 280 K to the nearest 2 K.

        Raises:
            ArgumentError: the trainer's precision is `16-true` or `bf16-true`.
        """
        if self.trainer.precision in ("16-true", "bf16-true"):
            raise ArgumentError(
                "precision",
                f"{self.trainer.precision} rounds raw ensemble and truth to a few digits",
                "Set precision to bf16-mixed, which leaves fields in physical units as they are",
            )

    def _step(self, batch: Batch, stage: Stage, forecast: Distribution | None = None) -> Tensor:
        """Weighted mean of the loss over the valid points of all dates; logs it."""
        forecast = self(batch) if forecast is None else forecast
        losses = self.loss.evaluate(forecast, batch["target"], batch["weights"])
        loss = self._weighted_mean(losses, batch, f"{stage}_loss")
        if stage != "train":
            same = isinstance(self.loss, CRPSLoss)
            crps = losses if same else forecast.crps(batch["target"])
            self._weighted_mean(crps, batch, f"{stage}_crps")
        return loss

    def _weighted_mean(self, values: Tensor, batch: Batch, name: str) -> Tensor:
        weights, domain = batch["weights"], current()
        # where(), not a product: a forecast may be NaN where there is nothing to compare with
        sums = torch.where(weights > 0, weights * values, 0).flatten(1).sum(1)
        # Where samples are split, all processes see what is wrong in one of the parts. This is the
        # step's only synchronisation with the device, and it comes before the gradients: a check
        # at the next step would find the weights spoilt. What is wrong is looked for only then.
        if not bool((found := domain.total(sums)).isfinite().all()):
            raise _not_finite(name, found, batch, self._feature_names())
        part = weights.sum()
        total = domain.total(part).clamp(min=torch.finfo(part.dtype).tiny)
        # gradients of the parts are averaged: each loss is as if its part were the whole
        mean: Tensor = sums.sum() / total * domain.size
        metric = cast("WeightedMean", self.means[name])
        metric.update(sums.sum().detach(), part)
        prog_bar = name in ("train_loss", "val_loss")
        self.log(name, metric, on_step=False, on_epoch=True, prog_bar=prog_bar)
        return mean

    def _feature_names(self) -> Sequence[str]:
        """Names of the features, if the trainer's data module has them."""
        data = getattr(self._trainer, "datamodule", None)
        return tuple(getattr(data, "channels", ()))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Refuse to save NaN or infinite weights, so that the previous checkpoint is kept.

        A finite loss can have a gradient that is not, and the weights after the last step of an
        epoch have not been in a loss yet. One synchronisation a checkpoint, none a step.

        Raises:
            ArgumentError: with the names of the first such parameters.
        """
        held = [
            (n, _local(p.detach())) for n, p in self.named_parameters() if p.is_floating_point()
        ]
        whole = torch.stack([p.isfinite().all() for _, p in held]).tolist() if held else []
        wrong = [name for (name, _), finite in zip(held, whole, strict=True) if not finite]
        if wrong:
            raise ArgumentError(
                "weights", f"not finite after the last step: {listing(wrong)}", _DIVERGED
            )

    def validation_step(self, batch: Batch) -> None:
        """Logs `val_loss` and `val_crps`."""
        self._step(batch, "val")

    def test_step(self, batch: Batch) -> None:
        """Logs `test_loss` and `test_crps`."""
        self._step(batch, "test")

    def predict_step(self, batch: Batch) -> Prediction:
        """The forecast with its valid dates."""
        return Prediction(self(batch), batch["dates"])


def adam(parameters: Any) -> torch.optim.Optimizer:
    """The default optimiser: Adam with learning rate 1e-3."""
    return torch.optim.Adam(parameters, lr=1e-3)


class TrainedModule(_ForecastModule):
    """What trained models share: a head, an optimiser, and a start at the head's method.

    Args:
        head: from outputs to a predictive distribution. A statistical method within it that has
            no coefficients is solved before the first epoch, from one pass over the dates.
        loss: of forecast and truth at each point; None for the CRPS.
        optimizer: makes the optimiser from the parameters.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.
    """

    def __init__(
        self,
        head: Head,
        loss: Loss | None,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
    ) -> None:
        super().__init__(loss)
        self.head = head
        self._optimizer, self._scheduler = optimizer, scheduler

    @property
    def method(self) -> StatisticalMethod | None:
        """The statistical method that the head is a residual on, if it is on one."""
        return getattr(self.head, "method", None)

    def on_train_start(self) -> None:
        """Solves the statistical method within the head, if it has one that is not solved."""
        solve_methods(self)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:  # noqa: ARG002
        """Has experts record the routing loss on every 50th batch from the first: it costs time."""
        record_routing_loss(self, batch_idx % _ROUTING_EVERY == 0)

    def on_after_backward(self) -> None:
        """Logs `train_routing_loss`, the mean over layers, of batches that recorded it."""
        loss = recorded_routing_loss(self)
        if loss is not None:
            metric = cast("WeightedMean", self.means[_ROUTING])
            metric.update(loss, torch.ones_like(loss))
            self.log(_ROUTING, metric, on_step=False, on_epoch=True)

    def validation_step(self, batch: Batch) -> None:
        """As the shared step, but passes over the sanity check before a method is solved."""
        if not (self.trainer.sanity_checking and unsolved(self)):
            super().validation_step(batch)

    def configure_optimizers(self) -> Any:
        """Optimiser, and schedule if there is one; a plateau schedule watches `val_loss`."""
        optimizer = self._optimizer(self.parameters())
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"},
        }


class PostProcessor(TrainedModule):
    """A network trained to correct the raw ensemble.

    Args:
        network: from features to outputs.
        head: from outputs to a predictive distribution.
        loss: of forecast and truth at each point, by default the CRPS; the step takes its mean
            with the batch's weights.
        optimizer: makes the optimiser from the parameters, by default Adam at 1e-3.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.

    Examples:
        >>> import torch
        >>> from ens10.models import PostProcessor, ResidualNormalHead
        >>> from ens10.models.networks import MLP
        >>> model = PostProcessor(MLP(in_channels=2), ResidualNormalHead())
        >>> raw = {"raw_mean": torch.full((1, 4, 8), 280.0), "raw_std": torch.ones(1, 4, 8)}
        >>> forecast = model({"features": torch.zeros(1, 2, 4, 8), **raw})
        >>> forecast.mean.shape, forecast.crps(torch.full((1, 4, 8), 281.0)).shape
        (torch.Size([1, 4, 8]), torch.Size([1, 4, 8]))

    Raises:
        ArgumentError: the network delivers another number of channels than the head takes, or
            one of them works on members and the other does not.
    """

    def __init__(
        self,
        network: Network,
        head: Head,
        loss: Loss | None = None,
        optimizer: OptimizerCallable = adam,
        scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(head, loss, optimizer, scheduler)
        require_match(network, head)
        self.network = network

    def forward(self, batch: Batch) -> Distribution:
        """The forecast for a batch.

        Raises:
            ArgumentError: the batch has another number of channels than the network takes, fewer
                members than it needs, or no features of members where it takes them.
        """
        return forecast_of(self.network, self.head, batch)

    def training_step(self, batch: Batch) -> Tensor:
        """Logs `train_loss` and returns the loss, with the network's penalty if it has one."""
        return with_penalty(track_loss(self._step(batch, "train"), self.network), self.network)


class StatisticalPostProcessor(_ForecastModule):
    """A statistical method that `fit` solves in one epoch (`max_epochs: 1`), in one process.

    Training batches are collected, and the last one solves for the coefficients, before
    validation and checkpoint. Validation before that (the sanity check) is passed over.

    Args:
        method: e.g. EMOS.
    """

    def __init__(self, method: StatisticalMethod) -> None:
        super().__init__(None)
        self.automatic_optimization = False
        self.method = method

    def forward(self, batch: Batch) -> Distribution:
        """The forecast for a batch."""
        forecast: Distribution = self.method(batch)
        return forecast

    def setup(self, stage: str) -> None:
        """Refuses to be fitted by several processes, which would each see a part of the dates.

        Before a strategy looks for parameters, of which there are none.

        Raises:
            ArgumentError: more than one process, or as for all modules.
        """
        super().setup(stage)
        if stage == "fit" and self.trainer.world_size > 1:
            raise ArgumentError(
                "devices",
                f"{type(self.method).__name__} is fitted in one process, not "
                f"{self.trainer.world_size}",
                "Set devices to 1",
            )

    def training_step(self, batch: Batch) -> None:
        """Collects the batch; solves if it is the last."""
        self.method.collect(batch)
        if self.trainer.is_last_batch:
            self.method.solve()
            optimizer = self.optimizers()
            if isinstance(optimizer, pl.core.optimizer.LightningOptimizer):
                optimizer.step()

    def validation_step(self, batch: Batch) -> None:
        """As the shared step, but passes over the sanity check before the fit."""
        if not self.trainer.sanity_checking:
            super().validation_step(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimiser of nothing: Lightning saves a checkpoint only after a step was counted."""
        return torch.optim.SGD([torch.zeros(1)], lr=0.0)


def with_penalty(loss: Tensor, network: Network) -> Tensor:
    """The loss with what the network adds to it."""
    penalty = network.penalty()
    return loss if penalty is None else loss + penalty


_DIVERGED = (
    "The training diverged: lower the learning rate; the last checkpoint is of before. If it "
    "goes on, verify the store with `ens10 verify`"
)


def _not_finite(name: str, sums: Tensor, batch: Batch, features: Sequence[str]) -> ArgumentError:
    """The error of a loss that is not finite: its dates, and the inputs that are not finite."""
    bad = ~sums.isfinite()
    wrong = batch["dates"][bad].tolist()
    days = [f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H}" for second in wrong]
    reason = f"not finite for valid date{'s' if len(days) > 1 else ''} {listing(days)}"
    inputs = _not_finite_inputs(batch, bad, features)
    if not inputs:
        return ArgumentError(name, f"{reason}, where all inputs are finite", _DIVERGED)
    return ArgumentError(
        name,
        f"{reason}, where these inputs are NaN or infinite: {listing(inputs)}",
        "Look at these variables and dates with `ens10 inspect`, and verify the store with "
        "`ens10 verify`",
    )


def _not_finite_inputs(batch: Batch, bad: Tensor, features: Sequence[str]) -> list[str]:
    """Names of what is not finite in some dates of a batch, where points have weight."""
    valid = batch["weights"][bad] > 0
    held = batch["features"][bad]
    wrong = ~held.isfinite()
    channels = [n for n in range(held.shape[-3]) if bool(wrong[..., n, :, :].any())]
    known = len(features) == held.shape[-3]
    inputs = [features[n] if known else f"feature {n}" for n in channels]
    for key, values in batch.items():
        if key in ("raw_mean", "raw_std", "target", "members") and isinstance(values, Tensor):
            part = values[bad]
            counted = valid.unsqueeze(1) if part.ndim > valid.ndim else valid
            if bool((~part.isfinite() & counted).any()):
                inputs.append(key)
    return inputs


def _local(parameter: Tensor) -> Tensor:
    """The part of a parameter that this process holds, where it is kept in shards."""
    part: Tensor = getattr(parameter, "to_local", lambda: parameter)()
    return part
