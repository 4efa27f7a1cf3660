"""The Lightning module of any kind of model: a module, a network, a method, a module of torch."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.heads import Head, ResidualNormalHead
from ens10.models.networks.base import DataShape, Network, numbers_of_class
from ens10.models.networks.module_network import ModuleNetwork
from ens10.models.postprocessor import PostProcessor, StatisticalPostProcessor
from ens10.models.statistical.base import StatisticalMethod


def lightning_module(
    model: object, shape: DataShape, head: Head | None = None, **options: Any
) -> pl.LightningModule:
    """Return the Lightning module that trains a model.

    Args:
        model: a Lightning module; a `Network` or another module of torch, to be trained with a
            head, or its class, which is made with the numbers of the data; or a statistical method.
        shape: of the data.
        head: of a network; None for `ResidualNormalHead()`.
        **options: of `PostProcessor`, such as `optimizer`.

    Raises:
        ArgumentError: it is no model, it does not take such features, its outputs do not fit the
            head, or a head and options of a model that has its own.
    """
    if isinstance(model, pl.LightningModule | StatisticalMethod) and (head or options):
        name = "head" if head else min(options)
        reason = f"is for networks; a {type(model).__name__} has its own"
        raise ArgumentError(name, reason, "Leave it out")
    if isinstance(model, pl.LightningModule):
        return model
    if isinstance(model, StatisticalMethod):
        return StatisticalPostProcessor(model)
    if isinstance(model, type) and issubclass(model, nn.Module):
        model = model(**numbers_of_class(model, shape))
    if not isinstance(model, nn.Module):
        remedy = "Pass a configuration's name or file, a PostProcessor, a Network or an nn.Module"
        raise ArgumentError("model", f"a {type(model).__name__} is no model", remedy)
    if not isinstance(model, Network):
        channels = _output_channels(model, (shape.in_channels, *shape.grid))
        model = ModuleNetwork(model, shape.in_channels, channels)
    return PostProcessor(model, head or ResidualNormalHead(), **options)


def _output_channels(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the channels of a module's outputs, found by a run on one batch of zeros."""
    parameter = next(module.parameters(), torch.zeros(0))
    name, training = type(module).__name__, module.training
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs = module.eval()(torch.zeros(1, *shape, device=parameter.device))
    except Exception as error:  # of the user's module
        text = " ".join(str(error).split())[:200]
        reason = f"{name} fails on features of the shape {(1, *shape)} ({text})"
        raise ArgumentError("model", reason, "It takes dates, channels, rows, columns") from error
    finally:
        module.train(training)
    if not isinstance(outputs, Tensor) or outputs[:, 0].shape != (1, *shape[1:]):
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        reason = f"{name} gives {found} for features of the shape {(1, *shape)}"
        raise ArgumentError("model", reason, "It gives dates, channels, rows, columns")
    return int(outputs.shape[1])
