"""The Lightning modules of trained networks and of statistical methods."""

import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import Metric

from ens10.errors import ArgumentError, DataNote, FileError, UnknownNameError, listing
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Points, Views, batch_layout
from ens10.loader.datamodule import EnsembleDataModule
from ens10.metrics.distributions import Distribution
from ens10.models.accumulation import AccumulatedParts, local_part
from ens10.models.domain import current
from ens10.models.finite_check import (
    GRADIENTS,
    Fault,
    FiniteCheck,
    StepReport,
    is_possible,
    saves_time,
)
from ens10.models.heads import Head, HeadOnMethod, TargetHeads
from ens10.models.layers.smoe.tracking import record_routing_loss, recorded_routing_loss, track_loss
from ens10.models.losses import CRPSLoss, Loss
from ens10.models.matching import (
    as_fields,
    forecast_of,
    require_match,
    require_no_place,
    require_pointwise,
)
from ens10.models.networks.base import Network
from ens10.models.specification import InitialValues, build, specification
from ens10.models.statistical.base import StatisticalMethod, require_one_target
from ens10.models.statistical.sliding_window import SlidingWindow
from ens10.models.statistical.targets import TargetMethods, by_target, set_past
from ens10.models.warmstart import place_methods, solve_methods, unsolved_methods
from ens10.named_code import check_code
from ens10.untrusted import readable


class WeightedMean(Metric):
    """Sum of w x over sum of w, as two sums that merge exactly; 0 if all weights are 0.

    torchmetrics' MeanMetric adds in place, which fails when a module is fitted after it was
    validated: Lightning validates in inference mode, whose tensors must not be written to later.
    """

    splittable = True
    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, total: Tensor, weight: Tensor) -> None:
        """Add one batch's sums of w x and of w."""
        self.total = self.total + total
        self.weight = self.weight + weight

    def compute(self) -> Tensor:
        """Return the mean over all batches."""
        return self.total / self.weight.clamp(min=torch.finfo(self.weight.dtype).tiny)


Stage = Literal["train", "val", "test"]
Compiled = Literal["graphs"] | bool
_RECORD = "ens10_model"  # of a checkpoint: class and arguments
_ROUTING, _ROUTING_INTERVAL = "train_routing_loss", 50
_METRIC_NAMES = ("train_loss", "val_loss", "val_crps", "test_loss", "test_crps", _ROUTING)


@dataclass(eq=False)
class Prediction:
    """Forecast and valid dates of one batch, as `predict_step` returns them.

    Args:
        forecast: the predictive distributions, N dates; one for each target.
        dates: (N,) int64 valid dates in seconds since 1970-01-01 00 UTC.
        steps: (N,) lead times, if there are several.
    """

    forecast: Distribution | tuple[Distribution, ...]
    dates: Tensor
    steps: Tensor | None = None

    @property
    def forecasts(self) -> tuple[Distribution, ...]:
        """The forecast of each target."""
        return self.forecast if isinstance(self.forecast, tuple) else (self.forecast,)


class _ForecastModule(InitialValues, pl.LightningModule):
    """Base of the Lightning modules: the common training, validation and test step."""

    def __init__(self, loss: Loss | None) -> None:
        super().__init__()
        self.loss = loss if loss is not None else CRPSLoss()
        # (sum of w loss, sum of w), so that batches and processes merge exactly
        self.means = nn.ModuleDict({name: WeightedMean() for name in _METRIC_NAMES})
        self.grid: tuple[int, int] | None = None  # of the data, once it is known
        self._record: dict[str, Any] = {}
        self._finite: FiniteCheck | None = None  # of a fit that checks its steps on the device
        self._weight_of_batch: tuple[Tensor, int]

    @abstractmethod
    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the forecast for a batch, or that of each of several targets."""

    def setup(self, stage: str) -> None:
        """Refuse half precision: the nearest numbers to 280 K are up to 2 K apart.

        Raises:
            ArgumentError: the trainer's precision is `16-true` or `bf16-true`, or the data are
                stations or points and a network or a loss uses neighbouring points, or views that
                are moved and the model has parts bound to places.
        """
        self._record = self._record or _record_of(self)  # before a fit changes the model
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, EnsembleDataModule):
            self.grid = data.grid
            if data.stations:
                require_pointwise(self)
            kind = batch_layout(data.kind)
            if stage == "fit" and isinstance(kind, Points):
                require_pointwise(self, "points")
            if stage == "fit" and isinstance(kind, Views) and kind.moves:
                require_no_place(self, data.grid)
        if self.trainer.precision in ("16-true", "bf16-true"):
            raise ArgumentError(
                "precision",
                f"{self.trainer.precision} rounds raw ensemble and truth to a few digits",
                "Set precision to bf16-mixed, which leaves fields in physical units as they are",
            )

    def on_fit_start(self) -> None:
        """Set the wind channels and the grid of the advection in statistical methods.

        Raises:
            ArgumentError: the wind is not among the features.
        """
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, EnsembleDataModule):
            place_methods(self, data)

    def _step(self, batch: Batch, stage: Stage, forecast: Any = None) -> Tensor:
        """Log and return the weighted mean of the loss over the valid points of all dates."""
        is_crps = isinstance(self.loss, CRPSLoss)
        if forecast is None and (stage == "train" or is_crps):
            losses = self._loss_map(batch)
        else:
            forecast = self(batch) if forecast is None else forecast
            losses = self._losses_of(forecast, batch)
        loss = self._weighted_mean(losses, batch, f"{stage}_loss")
        if stage != "train":
            crps = losses
            if not is_crps:
                crps = self._losses(forecast, batch, lambda f, b: f.crps(b["target"]))
            self._weighted_mean(crps, batch, f"{stage}_crps")
        return loss

    def _loss_map(self, batch: Batch) -> Tensor:
        """Return the loss at each point: the part of a step that `torch.compile` compiles."""
        return self._losses_of(self(batch), batch)

    def _losses_of(self, forecast: Distribution | tuple[Distribution, ...], batch: Batch) -> Tensor:
        return self._losses(
            forecast, batch, lambda f, b: self.loss.evaluate(f, b["target"], b["weights"])
        )

    def _losses(
        self,
        forecast: Distribution | tuple[Distribution, ...],
        batch: Batch,
        loss: Callable[[Any, Batch], Tensor],
    ) -> Tensor:
        """Return losses (N, H, W), or (N, T, H, W) in units of each target's scale."""
        if not isinstance(forecast, tuple):
            return loss(forecast, batch)
        parts = zip(forecast, by_target(batch), self._scales, strict=True)
        return torch.stack([loss(one, of) / scale for one, of, scale in parts], 1)

    @property
    @abstractmethod
    def _scales(self) -> Tensor:
        """Scales of the losses of several targets, in units of the targets."""

    def _weighted_mean(self, values: Tensor, batch: Batch, name: str) -> Tensor:
        weights, domain = batch["weights"], current()
        # where(), not a product: a forecast may be NaN where there is no truth
        sums = torch.where(weights > 0, weights * values, 0).flatten(1).sum(1)
        # Where samples are split, all processes see what is wrong in one of the parts. Without the
        # check on the device this is the step's only synchronisation with it, and comes before the
        # gradients: at the next step it would be too late for the weights.
        all_sums = domain.total(sums)
        describe = partial(_fault, name, all_sums, batch, self._feature_names())
        if self._finite is not None and name == "train_loss":
            self._finite.add(StepReport(all_sums, describe))
        elif not bool(all_sums.isfinite().all()):
            raise ArgumentError(*describe())
        part = weights.sum()
        total = domain.total(part).clamp(min=torch.finfo(part.dtype).tiny)
        # gradients of the parts are averaged: each loss is as if its part were the whole
        mean: Tensor = sums.sum() / total * domain.size
        points = math.prod(self.grid) if self.grid else batch["weights"][0].numel()
        self._weight_of_batch = total, points
        metric = cast("WeightedMean", self.means[name])
        metric.update(sums.sum().detach(), part)
        prog_bar = name in ("train_loss", "val_loss")
        self.log(name, metric, on_step=False, on_epoch=True, prog_bar=prog_bar)
        return mean

    def _feature_names(self) -> Sequence[str]:
        """Return the names of the features, if the trainer's data module has them."""
        data = getattr(self._trainer, "datamodule", None)
        return tuple(getattr(data, "channels", ()))

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls,
        checkpoint_path: Path | str,
        map_location: Any = "cpu",
        *,
        trust: Sequence[str] = (),
        **parts: Any,
    ) -> "Self":
        """Load a model from a checkpoint, which holds its class path and arguments.

        Nothing is unpickled but tensors and plain values.

        Args:
            checkpoint_path: that a trainer or `ens10 fit` saved.
            map_location: where to load the tensors.
            trust: modules besides this package and torch's optimisers whose classes may be used.
            **parts: arguments of the class in place of those in the checkpoint, such as `network`
                and `head`; needed for those that are no plain values.

        Raises:
            FileError: it is no checkpoint of this class, holds other objects, or names a class that
                is not trusted.
            ArgumentError: an argument is not in the checkpoint.
        """
        with readable(checkpoint_path, "no checkpoint, or one that holds more than plain values"):
            checkpoint = torch.load(checkpoint_path, map_location=map_location, weights_only=True)
        record = checkpoint.get(_RECORD) or {"class": cls.__name__, "init_args": {}, "others": {}}
        if record["class"] != cls.__name__:
            reason = f"holds a {record['class']}, not a {cls.__name__}"
            raise FileError(checkpoint_path, reason, "Load it with that class")
        values = {"model": {k: v for k, v in record["init_args"].items() if k not in parts}}
        check_code(Path(checkpoint_path), values, trust, "pass trust=['{}']")
        known = {**record["init_args"], **parts}
        for name, parameter in inspect.signature(cls).parameters.items():
            if name not in known and parameter.default is parameter.empty:
                reason = record["others"].get(name, "it is not in the checkpoint")
                raise ArgumentError(name, reason, f"Pass {name}=")
        if missing := [name for name in record["others"] if name not in parts]:
            text = f"{listing(missing)} not in the checkpoint: the default is used"
            warnings.warn(text, DataNote, stacklevel=2)
        model: Self = build(cls, record["init_args"], **parts)
        model.load_state_dict(checkpoint["state_dict"])
        return model

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the arguments of the model; refuse to save weights that are not finite.

        With NaN or infinite weights the previous checkpoint is kept.

        A finite loss can have a gradient that is not finite, and the weights after an epoch's last
        step have not entered a loss yet. This costs one synchronisation per checkpoint.

        Raises:
            ArgumentError: with the names of the first such parameters, or the last step's loss or
                gradients were not finite.
        """
        if self._finite is not None:
            self._finite.read()
        checkpoint[_RECORD] = self._record or _record_of(self)
        parameters = [
            (n, local_part(p.detach())) for n, p in self.named_parameters() if p.is_floating_point()
        ]
        flags = (
            torch.stack([p.isfinite().all() for _, p in parameters]).tolist() if parameters else []
        )
        wrong = [name for (name, _), finite in zip(parameters, flags, strict=True) if not finite]
        if wrong:
            raise ArgumentError(
                "weights", f"not finite after the last step: {listing(wrong)}", _DIVERGENCE_ADVICE
            )

    def validation_step(self, batch: Batch) -> None:
        """Log `val_loss` and `val_crps`."""
        self._step(batch, "val")

    def test_step(self, batch: Batch) -> None:
        """Log `test_loss` and `test_crps`."""
        self._step(batch, "test")

    def predict_step(self, batch: Batch) -> Prediction:
        """Return the forecast with its valid dates."""
        return Prediction(self(batch), batch["dates"], batch.get("steps"))


def _record_of(model: nn.Module) -> dict[str, Any]:
    """Return class and arguments of a model, and why some of these are no plain values."""
    record: dict[str, Any] = {"class": type(model).__name__, "init_args": {}, "others": {}}
    for name, value in vars(model).get("initial_values", {}).items():
        try:
            record["init_args"][name] = specification(value, name)
        except ArgumentError as error:
            record["others"][name] = error.reason
    return record


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Return the default optimiser: Adam with learning rate 1e-3."""
    return torch.optim.Adam(parameters, lr=1e-3)


def parameter_groups(
    module: nn.Module, factors: Mapping[str, float]
) -> list[tuple[float, list[nn.Parameter]]]:
    """Return the parameters of a module grouped by the factor of their learning rate.

    Args:
        module: e.g. the Lightning module.
        factors: by a part of the dotted name of parameters: "gate" or "last.gate" match
            `network.last.gate.weight`. Of several parts that match, the first counts.

    Returns:
        Pairs of factor and parameters: first those that no part matches, with factor 1.

    Raises:
        ArgumentError: a part that no parameter has, or a negative factor.
    """
    others: list[nn.Parameter] = []
    groups: dict[str, list[nn.Parameter]] = {part: [] for part in factors}
    for name, parameter in module.named_parameters():
        matches = (part for part in factors if f".{part}." in f".{name}.")
        part = next(matches, None)
        (others if part is None else groups[part]).append(parameter)
    for part, group in groups.items():
        if not group:
            names = sorted({p for n, _ in module.named_parameters() for p in n.split(".")[:-1]})
            part_names = ", ".join(name for name in names if not name.isdigit())
            reason = f"no parameter has {part!r} in its name"
            raise ArgumentError("learning_rates", reason, f"Choose from: {part_names}")
        if not 0 <= factors[part] < math.inf:
            raise ArgumentError("learning_rates", f"{part}: {factors[part]} is not a factor")
    return [(1.0, others), *((factors[part], group) for part, group in groups.items())]


class TrainedModule(_ForecastModule):
    """Base of trained models: head, optimiser, and solution of the head's statistical method.

    Args:
        head: maps outputs to a predictive distribution. A statistical method within it that has no
            coefficients is solved before the first epoch, in one pass over the dates.
        loss: loss at each point; None for the CRPS.
        optimizer: makes the optimiser from the parameters.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.
        learning_rates: factors of the optimiser's learning rate, see `parameter_groups`.

    Attributes:
        checks_on_device: True to check training steps by `FiniteCheck` where the optimiser allows,
            False to wait for each loss (the default until a device has measured the other), None to
            wait only where that costs no time.
    """

    checks_on_device: bool | None = False

    def __init__(
        self,
        head: Head,
        loss: Loss | None,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
        learning_rates: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(loss)
        self.head = head
        self._optimizer, self._scheduler = optimizer, scheduler
        self._learning_rates = dict(learning_rates or {})
        self._parts: AccumulatedParts

    @property
    def learning_rate(self) -> float:
        """The optimiser's learning rate; Lightning's `Tuner.lr_find` reads and sets it.

        Raises:
            ArgumentError: it is set, and the optimiser is a function of the user's.
        """
        return float(self._optimizer([torch.zeros(1)]).param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if self._optimizer is not adam and not isinstance(self._optimizer, partial):
            remedy = "Use functools.partial(torch.optim.Adam, lr=0.001)"
            raise ArgumentError("optimizer", "a function, whose rate cannot be set", remedy)
        kind: Any = torch.optim.Adam if self._optimizer is adam else self._optimizer
        self._optimizer = partial(kind, lr=float(value))
        vars(self).setdefault("initial_values", {})["optimizer"] = self._optimizer
        self._record = {}

    def setup(self, stage: str) -> None:
        """Set the scales of several targets' losses, unless they are known.

        A statistical method within a head gets coefficients for each of several lead times.

        Raises:
            ArgumentError: half precision, or scales that are not known without this package's data
                module.
        """
        super().setup(stage)
        head = self.head
        for part in head.modules() if stage == "fit" else ():
            if isinstance(part, HeadOnMethod) and part.method is not None:
                data = getattr(self.trainer, "datamodule", None)
                part.method = TargetMethods.of_data(part.method, data, one_target=True)
                if isinstance(part.method, TargetMethods):
                    require_fields(data, "a statistical method of several lead times takes")
        if stage != "fit" or not isinstance(head, TargetHeads) or head.scales.isfinite().all():
            return
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, EnsembleDataModule):
            reason = "the scales of the targets' losses are not known"
            raise ArgumentError("scales", reason, "Name them: TargetHeads(heads, scales=...)")
        scales = data.target_scales
        if len(scales) != len(head.scales):
            reason = f"{len(head.scales)} heads for {len(scales)} targets"
            raise ArgumentError("heads", reason, "Name one head for each target")
        head.scales.copy_(torch.tensor(scales))

    @property
    def method(self) -> StatisticalMethod | TargetMethods | None:
        """The statistical method that the head is a residual on, if it is on one."""
        return getattr(self.head, "method", None)

    @property
    def _scales(self) -> Tensor:
        return cast("TargetHeads", self.head).scales

    def on_train_start(self) -> None:
        """Solve the statistical method within the head, if it has one that is not solved."""
        solve_methods(self)
        self._parts = AccumulatedParts()
        optimizers, self._finite = self.trainer.optimizers, None  # also after a fit that failed
        if is_possible(optimizers, str(self.trainer.precision)):
            checks = self.checks_on_device
            if saves_time(optimizers[0]) if checks is None else checks:
                self._finite = FiniteCheck(self, optimizers[0])

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:  # noqa: ARG002
        """Record the experts' routing loss on every 50th batch: it costs time."""
        record_routing_loss(self, batch_idx % _ROUTING_INTERVAL == 0)
        if self._finite is not None:
            self._finite.start()

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:
        """Compute the gradients; an error of a layer's gradient tells of the loss if it is NaN."""
        if self.trainer.accumulate_grad_batches > 1:
            weight, points = self._weight_of_batch
            loss = self._parts.weighted(loss, weight / points)
        try:
            super().backward(loss, *args, **options)
        except ArgumentError:
            if self._finite is not None:
                self._finite.read_loss()
            raise

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002
        """Weight accumulated gradients as those of one batch."""
        self._parts.rescale(
            self.parameters(), self.trainer.accumulate_grad_batches, self.trainer.strategy
        )

    def on_validation_start(self) -> None:
        """Read whether the last training step was finite."""
        if self._finite is not None:
            self._finite.read()

    def on_train_epoch_end(self) -> None:
        """Read whether the last training step was finite."""
        if self._finite is not None:
            self._finite.read()

    def teardown(self, stage: str) -> None:
        """End the check of training steps."""
        if self._finite is not None:
            self._finite.end()
            self._finite = None
        super().teardown(stage)

    def on_after_backward(self) -> None:
        """Log `train_routing_loss`, the mean over layers, of batches that recorded it."""
        if self._finite is not None:
            self._finite.finish()
        loss = recorded_routing_loss(self)
        if loss is not None:
            metric = cast("WeightedMean", self.means[_ROUTING])
            metric.update(loss, torch.ones_like(loss))
            self.log(_ROUTING, metric, on_step=False, on_epoch=True)

    def validation_step(self, batch: Batch) -> None:
        """Log `val_loss` and `val_crps`; skip the sanity check before the method is solved."""
        if not (self.trainer.sanity_checking and unsolved_methods(self)):
            super().validation_step(batch)

    def configure_optimizers(self) -> Any:
        """Return the optimiser, and the schedule if any; a plateau schedule monitors `val_loss`.

        Adam and AdamW run in torch's fused form, unless one of their forms is chosen.

        Raises:
            ArgumentError: a part in `learning_rates` that no parameter has, or a negative factor.
        """
        if not self._learning_rates:
            optimizer = self._optimizer(self.parameters())
        else:
            groups = parameter_groups(self, self._learning_rates)
            optimizer = self._optimizer([{"params": params} for _, params in groups])
            for (factor, _), group in zip(groups, optimizer.param_groups, strict=True):
                group["lr"] *= factor
        use_fused(optimizer)
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"},
        }


def use_fused(optimizer: torch.optim.Optimizer) -> None:
    """Set Adam and AdamW to torch's fused form, a third of the time, unless a form is chosen."""
    if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        for group in optimizer.param_groups:
            if group["fused"] is group["foreach"] is None and not group["differentiable"]:
                group["fused"] = True


class PostProcessor(TrainedModule):
    """A network trained to correct the raw ensemble.

    Args:
        network: maps features to outputs.
        head: maps outputs to a predictive distribution.
        loss: loss at each point, by default the CRPS; the step takes its mean with the batch's
            weights.
        optimizer: makes the optimiser from the parameters, by default Adam at 1e-3.
        scheduler: makes a learning rate schedule from the optimiser, stepped once an epoch.
        compiled: True to compile network, head and loss as one by `torch.compile` before a fit. It
            takes a minute and needs a C++ compiler on a CPU; `benchmarks/networks.py` measures what
            it is worth. "graphs" also replays each pass as a CUDA graph where its shapes are fixed,
            which saves the launches of a GPU's kernels.
        learning_rates: factors of the optimiser's learning rate for parts of the model, by a part
            of the parameters' dotted names: {"gate": 30} for all gates, {"embedding": 3}.

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
        ArgumentError: the channels of network and head differ, or only one of them works on
            members.
        UnknownNameError: a `compiled` that is not known.
    """

    splittable = True

    def __init__(
        self,
        network: Network,
        head: Head,
        loss: Loss | None = None,
        optimizer: OptimizerCallable = adam,
        scheduler: LRSchedulerCallable | None = None,
        compiled: Compiled = False,
        learning_rates: dict[str, float] | None = None,
    ) -> None:
        super().__init__(head, loss, optimizer, scheduler, learning_rates)
        require_match(network, head)
        if compiled not in (True, False, "graphs"):
            raise UnknownNameError("compiled", compiled, ("true", "false", "graphs"))
        self.network, self._compiled = network, compiled

    def setup(self, stage: str) -> None:
        """Compile network, head and loss as one before a fit if `compiled` asks for it.

        Raises:
            ArgumentError: CUDA graphs with accumulated gradients.
        """
        super().setup(stage)
        if stage != "fit" or not self._compiled:
            return
        mode = "reduce-overhead" if self._compiled == "graphs" else None
        if mode and self.trainer.accumulate_grad_batches > 1:
            # torch keeps the gradients in the graph's memory, which the next batch overwrites
            reason = "CUDA graphs cannot accumulate gradients over batches"
            remedy = "Set accumulate_grad_batches to 1, or compiled to true"
            raise ArgumentError("compiled", reason, remedy)
        self._loss_map = torch.compile(super()._loss_map, mode=mode)  # type: ignore[method-assign]

    def teardown(self, stage: str) -> None:
        """Discard the compiled code, which cannot be copied or pickled."""
        vars(self).pop("_loss_map", None)
        super().teardown(stage)

    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the forecast for a batch, or that of each of several targets.

        Raises:
            ArgumentError: the batch has another number of channels than the network takes, fewer
                members than it needs, or no features of members where it takes them.
        """
        return forecast_of(self.network, self.head, batch, self.grid)

    def training_step(self, batch: Batch) -> Tensor:
        """Log `train_loss` and return the loss, including the network's penalty."""
        loss = self._step(as_fields(batch), "train")
        return with_penalty(track_loss(loss, self.network), self.network)


class StatisticalPostProcessor(_ForecastModule):
    """A statistical method that Lightning fits in one epoch (`max_epochs: 1`), in one process.

    Training batches are collected, and the last one solves for the coefficients, before validation
    and checkpoint. Validation before that (the sanity check) is skipped. Of several targets or lead
    times of an `EnsembleDataModule`, a copy of the method is fitted to each.

    Args:
        method: statistical method, e.g. EMOS.
    """

    splittable = "it is fitted in one process; set devices to 1"

    def __init__(self, method: StatisticalMethod) -> None:
        super().__init__(None)
        self.automatic_optimization = False
        self.method: StatisticalMethod | TargetMethods = method

    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the forecast for a batch, or that of each of several targets."""
        if not isinstance(self.method, TargetMethods):
            require_one_target(batch)
        forecast: Distribution | tuple[Distribution, ...] = self.method(batch)
        return forecast

    def setup(self, stage: str) -> None:
        """Refuse fitting in several processes, each of which would see only some dates.

        Called before the strategy looks for parameters, which do not exist.

        Raises:
            ArgumentError: more than one process, half precision, or patches or points.
        """
        super().setup(stage)
        if stage != "fit":
            return
        if self.trainer.world_size > 1:
            name = type(next(m for m in self.modules() if isinstance(m, StatisticalMethod)))
            reason = f"{name.__name__} is fitted in one process, not {self.trainer.world_size}"
            raise ArgumentError("devices", reason, "Set devices to 1")
        data = getattr(self.trainer, "datamodule", None)
        require_fields(data, "a statistical method is fitted on")
        self.method = TargetMethods.of_data(self.method, data)

    def on_validation_start(self) -> None:
        """Give sliding windows access to the past dates of the data."""
        self._set_past()

    def on_test_start(self) -> None:
        """Give sliding windows access to the past dates of the data."""
        self._set_past()

    def on_predict_start(self) -> None:
        """Give sliding windows access to the past dates of the data."""
        self._set_past()

    def _set_past(self) -> None:
        """Set `past` of sliding windows.

        Raises:
            ArgumentError: the trainer has a data module of another package.
        """
        if not any(isinstance(part, SlidingWindow) for part in self.method.modules()):
            return
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, EnsembleDataModule):
            reason = "a sliding window needs the past dates of EnsembleDataModule"
            raise ArgumentError("data", reason, "Pass it as `datamodule` to the trainer")
        if isinstance(self.method, TargetMethods):
            self.method.set_past(data)
        else:
            set_past(self.method, data)

    @property
    def _scales(self) -> Tensor:
        return cast("TargetMethods", self.method).scales

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        self.method = TargetMethods.of_state(self.method, state_dict, f"{prefix}method.")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def training_step(self, batch: Batch) -> None:
        """Collect the batch; solve after the last one."""
        if not isinstance(self.method, TargetMethods):
            require_one_target(batch)
        self.method.collect(batch)
        if self.trainer.is_last_batch:
            self.method.solve()
            optimizer = self.optimizers()
            if isinstance(optimizer, pl.core.optimizer.LightningOptimizer):
                optimizer.step()

    def validation_step(self, batch: Batch) -> None:
        """Log `val_loss` and `val_crps`; skip the sanity check before the fit."""
        if not self.trainer.sanity_checking:
            super().validation_step(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return a dummy optimiser: Lightning saves a checkpoint only after a counted step."""
        return torch.optim.SGD([torch.zeros(1)], lr=0.0)


def with_penalty(loss: Tensor, network: Network) -> Tensor:
    """Return the loss plus the network's penalty, if it has one."""
    penalty = network.penalty()
    return loss if penalty is None else loss + penalty


def require_fields(data: object, subject: str) -> None:
    """Refuse patches and points of this package's data module.

    Raises:
        ArgumentError: data of such a kind.
    """
    if isinstance(data, EnsembleDataModule):
        kind = batch_layout(data.kind)
        if kind.evaluation is not kind:
            reason = f"{subject} whole fields, not {type(kind).__name__.lower()}"
            raise ArgumentError("kind", reason, "Set data.kind to fields or members")


_DIVERGENCE_ADVICE = (
    "The training diverged: lower the learning rate; the last checkpoint is of before. If it "
    "goes on, verify the store with `ens10 verify`"
)


def _fault(name: str, sums: Tensor, batch: Batch, features: Sequence[str]) -> Fault:
    """Return what is wrong with a step: its dates, and the inputs concerned.

    Where all sums of losses are finite, its gradients are not.
    """
    bad = ~sums.isfinite()
    if is_gradient := not bool(bad.any()):
        name, bad = GRADIENTS, torch.ones_like(bad)
    wrong = batch["dates"][bad].tolist()
    days = [f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H}" for second in wrong]
    reason = f"not finite for valid date{'s' if len(days) > 1 else ''} {listing(days)}"
    if is_gradient:
        return name, f"{reason}, where the loss is finite", _DIVERGENCE_ADVICE
    inputs = _not_finite_inputs(batch, bad, features)
    if not inputs:
        return name, f"{reason}, where all inputs are finite", _DIVERGENCE_ADVICE
    return (
        name,
        f"{reason}, where these inputs are NaN or infinite: {listing(inputs)}",
        "Look at these variables and dates with `ens10 inspect`, and verify the store with "
        "`ens10 verify`",
    )


def _not_finite_inputs(batch: Batch, bad: Tensor, features: Sequence[str]) -> list[str]:
    """Return the names of inputs that are not finite in the bad dates, where points have weight."""
    valid = batch["weights"][bad] > 0
    fields = batch["features"][bad]
    wrong = ~fields.isfinite()
    channels = [n for n in range(fields.shape[-3]) if bool(wrong[..., n, :, :].any())]
    has_names = len(features) == fields.shape[-3]
    inputs = [features[n] if has_names else f"feature {n}" for n in channels]
    for key, values in batch.items():
        if key in ("raw_mean", "raw_std", "target", "members") and isinstance(values, Tensor):
            part = values[bad]
            has_weight = valid.unsqueeze(-3) if part.ndim > valid.ndim else valid
            if bool((~part.isfinite() & has_weight).any()):
                inputs.append(key)
    return inputs
