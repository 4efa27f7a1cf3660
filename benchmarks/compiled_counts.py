"""Kernels and bytes of a compiled training step (`--model.compiled true`), counted without a GPU.

    python benchmarks/compiled_counts.py [NAME ...] [--write]

Network, head and loss, with the branches of a GPU, are traced at full size without values, as by
`step_counts.py`. Torch's compiler plans the forward and the backward pass and says which kernels
it would make and what they read and write; nothing is run. It plans for a CPU, which joins a few
kernels less than it would for a GPU. Convolutions and matrix products stay kernels of their own.
A normalisation counts as the passes over the data that it takes, where `step_counts.py` counts one
operation that reads once.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import cuda_steps as made
import torch
from gpu_page import COUNTS, ROOT
from step_counts import DATES, GRID
from torch import Tensor, nn
from torch._dynamo.utils import get_metrics_context
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import _recursive_post_grad_passes
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import NopKernelSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.func import functional_call

from ens10.experiments.planning.step_counts import Counts, on_gpu
from ens10.models.layers.smoe.tracking import track_loss
from ens10.models.statistical.base import StatisticalMethod

NAMES = (
    "paper_unet", "unet", "smoe_unet", "location_unet", "transformer_neighbours", "transformer",
)  # fmt: skip


class Loss(nn.Module):
    """The loss of a batch, with its penalties.

    Args:
        network: is trained.
        head: from outputs to forecasts.
        batch: on the device.
    """

    def __init__(self, network: nn.Module, head: nn.Module, batch: dict[str, Tensor]) -> None:
        super().__init__()
        self.network, self.head = network, head
        half = torch.autocast("cuda", torch.bfloat16)
        self.step = made.Step(network, head, batch, None, half)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The area mean and the penalties, a scalar."""
        with self.step.autocast:
            values = self.step.losses(batch)
        weights = batch["weights"]
        mean = torch.where(weights > 0, weights * values, 0).sum() / weights.sum()
        penalty = self.network.penalty()
        mean = track_loss(mean, self.network)
        return mean if penalty is None else mean + penalty


def count(name: str, grid: tuple[int, int] = GRID, dates: int = DATES) -> dict[str, Any]:
    """Kernels and gigabytes of forward and backward pass, without the optimiser.

    Args:
        name: of the configuration.
        grid: rows and columns.
        dates: in the batch.
    """
    passes: list[tuple[int, int]] = []
    with on_gpu(ROOT / "benchmarks") as counts, _traced_on_gpu(counts):
        network, head, _ = made.model(name, grid)
        batch = made.date(network, grid, dates)
        for method in (*network.modules(), *head.modules()):
            if isinstance(method, StatisticalMethod):
                method.is_solved  # noqa: B018  (the host reads it before the graph is made)
        loss = Loss(network, head, batch)

        def evaluate(values: dict[str, Tensor], batch: dict[str, Tensor]) -> Any:
            return functional_call(loss, values, (batch,))

        traced = aot_function(
            evaluate,
            fw_compiler=partial(_plan, passes, False),
            bw_compiler=partial(_plan, passes, True),
            partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
            decompositions=select_decomp_table(),
        )
        traced({**dict(loss.named_parameters()), **dict(loss.named_buffers())}, batch).backward()
    kernels, moved = (sum(one) for one in zip(*passes, strict=True))
    return {"kernels": kernels, "GB": round(moved / 1e9, 3)}


@contextmanager
def _traced_on_gpu(counts: Counts) -> Iterator[None]:
    """Let the package see a GPU in the tensors by which torch traces; see `on_gpu`."""

    def device(tensor: Tensor) -> torch.device:
        seen = counts.sees(sys._getframe(1).f_code.co_filename)
        return torch.device("cuda", 0) if seen else Tensor.device.__get__(tensor)

    def is_cuda(tensor: Tensor) -> bool:  # noqa: ARG001
        return counts.sees(sys._getframe(1).f_code.co_filename)

    with (
        patch.object(FunctionalTensor, "device", property(device), create=True),
        patch.object(FunctionalTensor, "is_cuda", property(is_cuda), create=True),
    ):
        yield


def _plan(
    passes: list[tuple[int, int]],
    backward: bool,
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
) -> Callable[..., Any]:
    """Plan the kernels of a graph, note their number and bytes, and return the graph itself."""
    mode = detect_fake_mode(inputs)
    with V.set_fake_mode(mode), get_metrics_context(), V.set_debug_handler(DebugContext()):
        _recursive_post_grad_passes(graph, is_inference=False)
        plan = GraphLowering(
            graph, example_inputs=inputs, shape_env=mode.shape_env, is_inference=False,
            is_backward=backward,
        )  # fmt: skip
        with V.set_graph_handler(plan), V.set_extern_kernel_nodes([]):
            plan.run(*inputs)
            plan._update_scheduler()
            nodes = plan.scheduler.nodes
            kernels = sum(not isinstance(node, NopKernelSchedulerNode) for node in nodes)
            passes.append((kernels, plan.count_bytes()[0]))
    return make_boxed_func(graph.forward)


def main() -> None:
    """Counts configurations and adds them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--write", action="store_true", help=f"add them to {COUNTS.name}")
    given = parser.parse_args()
    for name in given.names or NAMES:
        row = count(name)
        print(name, row, flush=True)
        if given.write:
            content = json.loads(COUNTS.read_text())
            content.setdefault("compiled", {})[name] = row
            COUNTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
