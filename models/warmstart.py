"""Solution of statistical methods within a head before the first epoch."""

from collections.abc import Iterable, Iterator

import pytorch_lightning as pl
from torch import Tensor, nn

from ens10.errors import ArgumentError, Ens10Error
from ens10.loader.batch import Batch
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.tensors import TorchBatches, as_tensors
from ens10.models.domain import Whole, use
from ens10.models.heads import TargetHeads
from ens10.models.statistical.advection import Advection
from ens10.models.statistical.anomaly_emos import AnomalyEMOS
from ens10.models.statistical.base import StatisticalMethod, require_one_target
from ens10.models.statistical.place_regression import coordinates_of
from ens10.models.statistical.targets import TargetMethods, by_target

_DATES = 8  # read at a time


def unsolved_methods(model: nn.Module) -> list[StatisticalMethod]:
    """Return the statistical methods within a model that have no coefficients yet."""
    methods = (m for m in model.modules() if isinstance(m, StatisticalMethod))
    return [method for method in methods if not method.is_solved]


def outermost_methods(model: nn.Module) -> list[tuple[StatisticalMethod | TargetMethods, int]]:
    """Return the methods of a model that are not within another, each with its target's index."""
    methods: list[tuple[StatisticalMethod | TargetMethods, int]] = []
    heads = next((m for m in model.modules() if isinstance(m, TargetHeads)), None)
    parts = [*heads.heads, model] if heads is not None else [model]
    submodules: set[nn.Module] = set()
    for place, part in enumerate(parts):
        for module in part.modules():
            if isinstance(module, StatisticalMethod | TargetMethods) and module not in submodules:
                methods.append((module, place if part is not model else 0))
                submodules.update(module.modules())
    return methods


def place_methods(model: nn.Module, data: EnsembleDataModule) -> None:
    """Set what a model's methods need of the points: an advection also of the wind channels.

    Raises:
        ArgumentError: the wind is not among the features.
    """
    targets = list(dict.fromkeys(samples.target for samples in data.parts))
    first = data.parts[0]
    where = first.latitude.tolist(), first.longitude.tolist()
    for method, place in outermost_methods(model):
        several = isinstance(method, TargetMethods) and len(method.scales) > 1
        copies = method.methods if isinstance(method, TargetMethods) else [method]
        for number, copy in enumerate(copies):
            target = targets[number % len(targets) if several else place]
            for part in copy.modules():
                if isinstance(part, Advection):
                    part.place(data.channels, target, *where)
                if isinstance(part, AnomalyEMOS):
                    part.place(coordinates_of(first.degrees, first.stations))


def solve_methods(model: pl.LightningModule) -> None:
    """Solve the methods within a model that have no coefficients, e.g. from a checkpoint.

    The first process collects all training dates with whole fields, including those of the other
    processes, solves, and broadcasts the coefficients. This takes one pass over the data. An error
    in the first process is raised by all processes, so that none waits forever.

    Args:
        model: attached to a trainer that has its training data.

    Raises:
        ArgumentError: batches are patches or points, or several processes train on data loaders of
            another package, which give each process only some dates.
    """
    trainer = model.trainer
    methods = [pair for pair in outermost_methods(model) if unsolved_methods(pair[0])]
    if not methods:
        return
    problem = _solve(methods, trainer) if trainer.is_global_zero else None
    if trainer.world_size > 1:
        problem = trainer.strategy.broadcast(problem, src=0)
    if problem is not None:
        raise problem
    if trainer.world_size > 1:
        for method, _ in methods:
            _broadcast(method, trainer)
    model.to(model.device)


def _solve(
    methods: list[tuple[StatisticalMethod | TargetMethods, int]], trainer: pl.Trainer
) -> Ens10Error | None:
    """Solve on whole fields, in this process alone; return an error that a user can fix."""
    try:
        with use(Whole()):
            for batch in _all_dates(trainer.train_dataloader, trainer.world_size):
                targets = by_target(batch)
                for method, place in methods:
                    if not isinstance(method, TargetMethods):
                        require_one_target(targets[place])
                    method.collect(targets[place])
            for method, _ in methods:
                method.solve()
    except Ens10Error as error:
        return error
    return None


def _all_dates(loader: object, world_size: int) -> Iterator[Batch]:
    """Yield batches of all training dates, whichever process trains on them."""
    if isinstance(loader, TorchBatches):
        # by position: the loader's order and position are unchanged
        batches = loader.batches.full_fields()
        parts = (batches.index[n : n + _DATES] for n in range(0, len(batches.index), _DATES))
        training_batches: Iterable[Batch] = (as_tensors(batches.batch(part)) for part in parts)
    elif world_size == 1 and isinstance(loader, Iterable):
        training_batches = loader
    else:
        raise ArgumentError(
            "data",
            f"each of {world_size} processes sees a part of them, but a statistical method "
            "needs all",
            "Train in one process, or with EnsembleDataModule",
        )
    for batch in training_batches:
        if "rows" in batch or "latitude" in batch:
            raise ArgumentError(
                "kind",
                "a statistical method needs whole fields, not patches or points",
                "Set data.kind to fields or members",
            )
        yield batch


def _broadcast(method: StatisticalMethod | TargetMethods, trainer: pl.Trainer) -> None:
    """Broadcast the first process's buffers; their shapes may differ in other processes."""
    state = {name: value.cpu() for name, value in method.state_dict().items()}
    first_state: dict[str, Tensor] = trainer.strategy.broadcast(state, src=0)
    method.load_state_dict(first_state)
