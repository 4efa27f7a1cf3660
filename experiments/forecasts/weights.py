"""Build the network of a trained run or bundle from its configuration, and load its weights."""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ens10.errors import FileError
from ens10.experiments.runs.checkpoints import differences, other_architecture, shapes
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models.statistical.base import GridBuffers
from ens10.untrusted import readable
from ens10.usage import Parser, configuration_errors

REMEDY = "Fetch it again, or look at it in Python with `ens10.load_model`"
_LONGEST = 200  # characters of a library's message


def build_modules(
    path: Path, config: dict[str, Any], module: pl.LightningModule | None = None
) -> tuple[pl.LightningModule, EnsembleDataModule]:
    """Build the untrained module of a configuration, and its data module, which opens no store.

    Args:
        path: of the run or bundle, for errors.
        config: of the run.
        module: to copy in place of the configuration's.

    Raises:
        FileError: the configuration cannot be used.
    """
    parser = Parser(exit_on_error=False)
    if module is None:
        settings: dict[str, Any] = {"fail_untyped": False, "required": True}
        parser.add_subclass_arguments(pl.LightningModule, "model", **settings)
    parser.add_class_arguments(EnsembleDataModule, "data", fail_untyped=False)
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    with readable(path, "its configuration cannot be used", REMEDY), configuration_errors(path):
        data = {"store": "", **config["data"]}
        model = {"model": config["model"]} if module is None else {}
        instances = build(parser.parse_object({**model, "data": data}))
    return instances.model if module is None else deepcopy(module), instances.data


def load_weights(
    module: pl.LightningModule, path: Path, state: dict[str, Any], grid: tuple[int, ...]
) -> None:
    """Load trained weights into a module.

    Args:
        module: untrained.
        path: of the run or bundle.
        state: parameters and buffers by name.
        grid: rows and columns of the training.

    Raises:
        FileError: they are of another model, which is told from their shapes, of another kind of
            number, of another grid, or not finite.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks on types, which are compared below
            module.load_state_dict(state)
    except RuntimeError as error:
        differing = differences(shapes(state), shapes(module.state_dict()))
        if not differing:
            reason = f"damaged weights ({' '.join(str(error).split())[:_LONGEST]})"
            raise FileError(path, reason, REMEDY) from error
        raise other_architecture(path, differing) from error
    # a module adds what fits of older versions lack
    loaded = {name: value for name, value in module.state_dict().items() if name in state}
    for name, value in loaded.items():
        if _kind_of_numbers(value) != _kind_of_numbers(state[name]):
            reason = (
                f"damaged: {name} is of the type {state[name].dtype}, in the model {value.dtype}"
            )
            raise FileError(path, reason, REMEDY)
    for prefix, part in module.named_modules():
        for name in part.of_another_grid(grid) if isinstance(part, GridBuffers) else ():
            reason = f"damaged: {prefix}.{name} is not on the grid of the training, {grid}"
            raise FileError(path, reason, REMEDY)
        if Path(path).is_dir():  # of runs, the forecasts are checked
            continue
        for name, value in (*part._parameters.items(), *part._buffers.items()):
            if value is not None and _has_damage(part, name, value):
                reason = f"damaged: {prefix}.{name} has values that are NaN or infinite"
                raise FileError(path, reason, "Fetch it again, or train again")


def _has_damage(part: nn.Module, name: str, value: Tensor) -> bool:
    """Return True if a tensor of a module has a value that means nothing there."""
    if name in getattr(part, "may_be_nan", ()):
        return False
    wrong = value.isnan() if name in getattr(part, "may_be_infinite", ()) else ~value.isfinite()
    return bool(wrong.any())


def _kind_of_numbers(value: Tensor) -> tuple[bool, bool, bool]:
    """Return what must agree between weights; the number of bits need not."""
    return value.is_floating_point(), value.is_complex(), value.dtype == torch.bool
