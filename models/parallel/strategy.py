"""The Lightning strategy that splits samples between processes."""

import inspect
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Literal, get_args

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import StrategyRegistry
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.order import Share
from ens10.models.domain import Cut, Odd, Whole, use
from ens10.models.networks.base import Network
from ens10.models.parallel.automatic import lat_of_run, memory_of_process
from ens10.models.parallel.cost import ChosenLat
from ens10.models.parallel.exchange import ProcessGroupExchange
from ens10.models.parallel.failure_detection import FailureDetectingStrategy
from ens10.models.parallel.mesh import Mesh
from ens10.models.parallel.shard import Shard
from ens10.models.parallel.sharding import (
    gather_shards,
    is_sharded,
    optimizer_state_like,
    shard_like,
    shard_parameters,
)
from ens10.models.parallel.supported_modules import require_supported

Grid = tuple[int, int]
Parameters = Literal["replicated", "sharded"]
# torch 2.13 gave it another name
_NAMES = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers"


class SpatialStrategy(FailureDetectingStrategy):
    """Split each sample into lat x lon parts, with the results of a serial run to rounding.

    Processes that hold parts of the same samples exchange halos and sums. The world / (lat lon)
    groups of such processes share the dates, as in data-parallel training. Gradients are averaged
    over all processes, so that any Lightning option that works with DDP works here. Parameters and
    optimiser states are whole on each process, and checkpoints are those of a serial run: they move
    freely between numbers of processes.

    On the command line: `--trainer.strategy=SpatialStrategy --trainer.strategy.lat=4`, or
    `--trainer.strategy=ddp_spatial` for the defaults. The NCCL backend is untested: it has not run
    on two GPUs yet.

    Args:
        lat: number of parts of the rows; "auto" for the fewest that fit into memory, by the cost
            model.
        lon: number of parts of the columns.
        timeout: seconds after which waiting for another process is an error.
        process_group_backend: "gloo" or "nccl"; None for the device's default.
        find_unused_parameters: option of DDP: detect parameters without gradient.
        parameters: "replicated" on each process, or "sharded" over all of them (FSDP2), for models
            whose parameters and optimiser states do not fit into memory. Checkpoints are the same.
        start_method: "popen" to start processes by the same command again, or "spawn", "fork",
            "forkserver".

    Raises:
        ArgumentError: parts that are not positive, or do not divide the number of processes.
        UnknownNameError: another value of `parameters`.
    """

    def __init__(
        self,
        lat: int | Literal["auto"] = "auto",
        lon: int = 1,
        timeout: float = 600.0,
        process_group_backend: str | None = None,
        find_unused_parameters: bool = False,
        parameters: Parameters = "replicated",
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
    ) -> None:
        for name, parts in (("lat", lat), ("lon", lon)):
            if parts != "auto" and (not isinstance(parts, int) or parts < 1):
                raise ArgumentError(name, f"{parts!r} is not a positive number of parts")
        if parameters not in get_args(Parameters):
            raise UnknownNameError("parameters", parameters, get_args(Parameters))
        if not timeout > 0:
            raise ArgumentError(
                "timeout", f"{timeout} is not positive", "Choose a number of seconds"
            )
        super().__init__(
            process_group_backend=process_group_backend,
            timeout=timedelta(seconds=timeout),
            start_method=start_method,
            find_unused_parameters=find_unused_parameters,
        )
        self.lat, self.lon, self.parameters = lat, lon, parameters
        self._mesh: Mesh | None = None
        self._domain: Shard | None = None
        self._share: Share | None = None
        self._exit_stack = ExitStack()

    @property
    def domain(self) -> Shard:
        """This process's part of the grid.

        Raises:
            ArgumentError: before `share` was called, which sets the grid.
        """
        if self._domain is None:
            raise ArgumentError(
                "data",
                f"{type(self).__name__} has no size of the grid to split",
                "Use EnsembleDataModule, or a data module whose setup() calls "
                "trainer.strategy.share((rows, columns)) and reads that part",
            )
        return self._domain

    def setup_environment(self) -> None:
        """Start the processes; the shares of an earlier run are discarded."""
        self._share = None
        super().setup_environment()

    def share(self, grid: Grid) -> Share:
        """Return the dates, rows and columns that this process reads.

        The first call of a run is collective; later calls return the same result without
        communication.

        Args:
            grid: rows and columns of the data.

        Raises:
            ArgumentError: more parts than the grid has, or another grid than before.
        """
        if self._share is None:
            self._share = self._make_share(grid)
        run_grid = self._share.grid
        if run_grid != tuple(grid):
            raise ArgumentError(
                "data",
                f"a grid of {grid[0]} x {grid[1]} points in a run on {run_grid[0]} x {run_grid[1]}",
            )
        return self._share

    def _make_share(self, grid: Grid) -> Share:
        """Return this process's dates, rows and columns; sets the domain if there is none."""
        mesh = self._make_mesh(grid)
        if self._domain is None:
            halvings, odd = levels_of(self.lightning_module)
            exchange = ProcessGroupExchange(mesh.group, mesh.lat, mesh.lon)
            i, j = exchange.place
            rows = _make_cut("lat", grid[0], mesh.lat, i, halvings, odd)
            columns = _make_cut("lon", grid[1], mesh.lon, j, halvings, odd)
            self._domain = Shard(rows, columns, exchange)
        rows, columns = self._domain.rows, self._domain.columns
        bounds = tuple(rows.bounds), tuple(columns.bounds)
        return Share(mesh.data_rank, mesh.data_world, rows.local_slice, columns.local_slice, bounds)

    def _make_mesh(self, grid: Grid) -> Mesh:
        """Return the mesh of the processes, which the first call builds; a collective call."""
        if self._mesh is None:
            lat = self._choose_lat(grid) if self.lat == "auto" else self.lat
            self._mesh = Mesh.of_world(lat, self.lon, self._timeout)
        return self._mesh

    def _choose_lat(self, grid: Grid) -> int:
        """Return the number of parts for lat="auto"; the first process computes it and says so."""
        model = self.lightning_module
        outcome: ChosenLat | ArgumentError | None = None
        if self.is_global_zero:
            memory = memory_of_process(self.root_device, self.num_processes)
            trainer = None if model is None else model.trainer
            try:
                outcome = lat_of_run(model, trainer, grid, self.world_size, self.lon, memory)
            except ArgumentError as error:
                outcome = error
        choice: ChosenLat | ArgumentError = self.broadcast(outcome)  # type: ignore[assignment]
        if isinstance(choice, ArgumentError):
            raise choice
        if self.is_global_zero:
            sys.stderr.write(f"ens10: {choice}\n")
        return choice.lat

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Arguments of the sampler: processes with parts of the same samples draw the same ones."""
        parts = 1 if self.lat == "auto" else self.lat * self.lon
        mesh = self._mesh
        world = mesh.data_world if mesh else self.world_size // parts
        return {"num_replicas": world, "rank": self.global_rank // (self.world_size // world)}

    def setup(self, trainer: pl.Trainer) -> None:
        """Check every module of the model, and split the grid from here on."""
        domain = self.domain
        assert self.lightning_module is not None
        if domain.size > 1:
            require_supported(self.lightning_module)
        self._exit_stack.enter_context(use(domain if domain.size > 1 else Whole()))
        if trainer.state.fn == "fit" or not is_sharded(self.lightning_module):
            super().setup(trainer)
            return
        # evaluation after sharded training: nothing to synchronise
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        self.model_to_device()
        self.setup_precision_plugin()

    def configure_ddp(self) -> None:
        """Replicate the parameters under DDP, or shard them."""
        if self.parameters == "replicated":
            # buffers are statistics of whole fields, the same in all parts of the same samples
            self._ddp_kwargs[_SYNC_BUFFERS] = self.world_size > self.domain.size
            super().configure_ddp()
            return
        assert self.model is not None
        if not is_sharded(self.model):  # from an earlier run
            shard_parameters(self.model, self.root_device)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the whole state of the model, as a serial run would save it."""
        state: dict[str, Any] = gather_shards(super().lightning_module_state_dict())
        return state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """Return the whole state of an optimiser."""
        state: dict[str, Tensor] = gather_shards(super().optimizer_state(optimizer))
        return state

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load whole optimiser states of a checkpoint, sharded where parameters are."""
        pairs = zip(self.optimizers, checkpoint["optimizer_states"], strict=True)
        states = [optimizer_state_like(optimizer, state) for optimizer, state in pairs]
        super().load_optimizer_state_dict({**checkpoint, "optimizer_states": states})

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load the whole model state of a checkpoint, sharded where parameters are."""
        assert self.lightning_module is not None
        templates = self.lightning_module.state_dict()
        state = checkpoint["state_dict"]
        local_state = {
            key: shard_like(value, templates.get(key, value)) for key, value in state.items()
        }
        super().load_model_state_dict({**checkpoint, "state_dict": local_state}, strict)

    def process_dataloader(self, dataloader: object) -> object:
        """Refuse data loaders whose lengths differ between processes.

        Raises:
            ArgumentError: different lengths; raised on all processes.
        """
        try:
            length = len(dataloader)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):  # a stream of unknown length
            length = -1
        lengths: list[Any] = [None] * self.world_size
        dist.all_gather_object(lengths, length)
        if len(set(lengths)) > 1:
            raise ArgumentError(
                "data",
                f"the processes have loaders of {', '.join(map(str, lengths))} batches",
                "Use equal numbers of batches: otherwise processes would wait forever",
            )
        return dataloader

    def teardown(self) -> None:
        """End the split of the grid."""
        self._exit_stack.close()
        super().teardown()
        if self._mesh is not None and dist.is_initialized():
            dist.destroy_process_group(self._mesh.group)
        self._domain = self._mesh = None


def levels_of(model: nn.Module | None) -> tuple[int, Odd]:
    """Return how often a model's networks halve the grid, and how they treat odd lengths.

    Raises:
        ArgumentError: networks that treat them in different ways.
    """
    networks = [m for m in model.modules() if isinstance(m, Network)] if model else []
    halving = [network for network in networks if network.halvings]
    rules = {network.odd for network in halving}
    if len(rules) > 1:
        names = ", ".join(sorted({type(network).__name__ for network in halving}))
        raise ArgumentError(
            "network", f"{names} halve odd numbers of rows in different ways", "Split one of them"
        )
    return max((n.halvings for n in halving), default=0), rules.pop() if rules else "dropped"


def _make_cut(name: str, total: int, parts: int, index: int, halvings: int, odd: Odd) -> Cut:
    """Build a `Cut`; its errors name the argument `name`, "lat" or "lon"."""
    try:
        return Cut(total, parts, index, halvings, odd)
    except ArgumentError as error:
        raise ArgumentError(name, str(error).removeprefix("parts: ")) from None


StrategyRegistry.register(
    "ddp_spatial", SpatialStrategy, description="Splits samples between processes"
)
