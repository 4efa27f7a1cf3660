"""What a training step of each configuration costs on a GPU, counted without one.

    python benchmarks/step_counts.py [NAME ...] [--breaks] [--out FILE.json]

A step of network, head, loss, backward pass and fused Adam runs at full size on tensors without
values (FakeTensor, on the CPU, under autocast to bfloat16). Counted are: operations (kernels
launched, views left out), bytes that they read and write, floating-point operations of matrix
products and convolutions, host synchronisations (values read by the host, sizes that depend on
values, copies between devices), bytes of activations saved for the backward pass, and breaks of
the graph of `torch.compile`. Two bounds on an H200 follow from them:

    K      the time if every operation ran at the device's rates: the sum over the operations of the
           larger of bytes / 4.18 TB/s and operations / 775 TFLOP/s
    saved  the time if batch, parameters with their moments and saved activations were moved once
           each way: what can be reached without recomputing

The package takes the branches of a GPU: it sees the device "cuda" in each tensor, torch sees "cpu".
What differs from CUDA: convolutions choose no workspace and no other layout; operations that CUDA
fuses (a softmax, an interpolation) count as one, as there; the operators that CUDA's autocast runs
in float32 and the CPU's does not (`FLOAT32`) are cast here by hand; kernels written by this project
count as inputs, outputs and saved tensors, not by what they declare.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cuda_steps as made
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from ens10.models.losses import CRPSLoss
from ens10.models.matching import forecast_of
from ens10.models.networks import transformer
from ens10.models.statistical.base import StatisticalMethod

ROOT = Path(__file__).resolve().parents[1]
GRID, DATES = (361, 720), 4
FLOPS, BYTES = 775e12, 4.18e12  # a second, of an H200: bfloat16 products and a copy, as measured
MEMORY = 139 * 2**30
F = torch.nn.functional
FLOAT32 = {
    torch.exp, torch.expm1, torch.log, torch.log1p, torch.pow, torch.cumsum, torch.sum, torch.prod,
    torch.softmax, F.softmax, F.log_softmax, F.softplus, F.layer_norm, F.group_norm, Tensor.exp,
    Tensor.log, Tensor.pow, Tensor.sum, Tensor.cumsum, Tensor.softmax, torch.norm, torch.rsqrt,
}  # fmt: skip
aten = torch.ops.aten
_CUDA = torch.device("cuda", 0)
_READS = (aten._local_scalar_dense.default, aten.equal.default)
_SIZES = ("nonzero", "masked_select", "unique", "_unique2", "bincount")
_FREE = ("empty", "detach", "set_", "resize")
_ADAM_PASSES = 7  # over each parameter: reads it, its gradient and its moments, writes three


class Counts(TorchDispatchMode):
    """Counter of operations, bytes and synchronisations of what runs within it."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Begins at zero."""
        self.operations = self.bytes = self.flops = 0
        self.seconds = 0.0
        self.syncs: Counter[str] = Counter()
        self.by_place: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation on tensors without values and counts it."""
        args, kwargs = tree_map(_on_cpu, (args, kwargs or {}))
        name = func.__name__.split(".")[0]
        if func in _READS or name in _SIZES:
            self.syncs[_caller()] += 1
        if func is aten._local_scalar_dense.default:
            return 1 if args[0].dtype != torch.bool else True
        results = func(*args, **kwargs)
        inputs, outputs = _tensors((args, kwargs)), _tensors(results)
        if func in (aten.copy_.default,):
            inputs = inputs[1:]
        views = {_storage(t) for t in outputs} <= {_storage(t) for t in inputs}
        if name.startswith(_FREE) or (views and not func._schema.is_mutable):
            return results
        moved = sum(map(_memory, (*inputs, *outputs)))
        count = flop_registry.get(func._overloadpacket)
        flops = count(*args, **kwargs, out_val=results) if count else 0
        extra = _bias(name, args, outputs)
        self.operations += 1 + bool(extra)
        self.bytes += moved + extra
        self.flops += flops
        self.seconds += max(moved / BYTES, flops / FLOPS) + extra / BYTES
        self.by_place[f"{_caller()} {name}"] += moved + extra
        return results


def _memory(tensor: Tensor) -> int:
    """Bytes of a tensor, of a broadcast view only what lies in memory."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _bias(name: str, args: Any, outputs: list[Tensor]) -> int:
    """Bytes of adding the bias of a convolution, which on CUDA is an operation of its own."""
    if name == "convolution" and args[2] is not None:
        return 2 * outputs[0].nbytes
    return 0


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _caller() -> str:
    """The line of the package that led here."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if _of_package(path) and path != __file__:
            return f"{Path(path).resolve().relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward pass"


def _of_package(path: str) -> bool:
    return path.startswith(str(ROOT)) and not path.startswith(str(ROOT / ".venv"))


class _Device(TorchFunctionMode):
    """Lets a device "cuda" that the package asks for be the CPU, and casts as CUDA's autocast."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if func is Tensor.backward:  # whose backward passes may be written in Python
            with self:
                return torch.autograd.backward(args[0])
        if func in (Tensor.cpu, Tensor.numpy) or (func is Tensor.to and _to_host(args, kwargs)):
            self.counts.syncs[_caller()] += 1
        args, kwargs = tree_map(_on_cpu, (args, kwargs))
        if func in FLOAT32 and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map(_single, (args, kwargs))
        return func(*args, **kwargs)


def _to_host(args: Any, kwargs: Any) -> bool:
    places = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, str | torch.device)]
    return any(torch.device(place).type == "cpu" for place in places)


def _on_cpu(value: Any) -> Any:
    is_place = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return torch.device("cpu") if is_place else value


def _single(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype == torch.bfloat16
    return value.float() if is_half else value


@contextmanager
def on_gpu() -> Iterator[Counts]:
    """Tensors without values on what the package takes for a GPU, counted."""
    fake_device = FakeTensor.device.fget
    autocast, enabled = torch.autocast, torch.is_autocast_enabled
    half = torch.get_autocast_dtype

    def device(tensor: Any) -> torch.device:
        seen = _of_package(sys._getframe(1).f_code.co_filename)
        return _CUDA if seen else fake_device(tensor)

    def is_cuda(tensor: Any) -> bool:  # noqa: ARG001
        return _of_package(sys._getframe(1).f_code.co_filename)

    counts = Counts()
    functions = _Device(counts)

    def recomputed(function: Any, *args: Any, **kwargs: Any) -> Any:
        # the backward pass begins without modes of functions
        def within(*inner: Any) -> Any:
            with functions:
                return function(*inner)

        return checkpoint(within, *args, **kwargs)

    with (
        patch.object(transformer, "checkpoint", recomputed),
        patch.object(torch.cuda, "mem_get_info", lambda _: (MEMORY, MEMORY)),
        patch.object(FakeTensor, "device", property(device)),
        patch.object(FakeTensor, "is_cuda", property(is_cuda), create=True),
        patch.object(torch, "autocast", lambda _, *a, **k: autocast("cpu", *a, **k)),
        patch.object(torch, "is_autocast_enabled", lambda _="cuda": enabled("cpu")),
        patch.object(torch, "get_autocast_dtype", lambda _="cuda": half("cpu")),
        FakeTensorMode(allow_non_fake_inputs=True),
        counts,
        functions,
    ):
        yield counts


def count(name: str, grid: tuple[int, int] = GRID, dates: int = DATES) -> dict[str, Any]:
    """Counts of one training step of a configuration, in bfloat16 with fused Adam.

    Args:
        name: of the configuration.
        grid: rows and columns.
        dates: in the batch.
    """
    saved: dict[int, Tensor] = {}
    with on_gpu() as counts:
        network, head, _ = made.model(name, grid)
        batch = made.date(network, grid, dates)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        step = made.Step(network, head, batch, optimizer, torch.autocast("cuda", torch.bfloat16))
        step()  # which makes the moments of the optimiser
        kept = {_storage(t) for t in (*network.parameters(), *network.buffers(), *batch.values())}

        def keep(tensor: Tensor) -> Tensor:
            if _storage(tensor) not in kept:
                saved.setdefault(_storage(tensor), tensor)
            return tensor

        counts.reset()
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            step()
        state = sum(p.nbytes for p in network.parameters())
        least = 2 * sum(t.nbytes for t in saved.values()) + sum(t.nbytes for t in batch.values())
    fused = max((least + _ADAM_PASSES * state) / BYTES, counts.flops / FLOPS)
    return {
        "operations": counts.operations,
        "GB": round(counts.bytes / 1e9, 3),
        "GFLOP": round(counts.flops / 1e9, 2),
        "synchronisations": sum(counts.syncs.values()),
        "places of synchronisations": dict(counts.syncs),
        "saved GB": round(sum(t.nbytes for t in saved.values()) / 1e9, 3),
        "K, ms": round(1e3 * counts.seconds, 3),
        "saved once, ms": round(1e3 * fused, 3),
        "GB by place": {k: round(v / 1e9, 2) for k, v in counts.by_place.most_common(8)},
    }


def graph_breaks(name: str, grid: tuple[int, int] = (48, 96)) -> dict[str, Any]:
    """Breaks of the graph of network, head and loss, on a device that is not the CPU ("meta").

    Args:
        name: of the configuration.
        grid: rows and columns.
    """
    torch._dynamo.reset()
    network, head, _ = made.model(name, grid)
    batch = {key: value.to("meta") for key, value in made.date(network, grid, 2).items()}
    for method in (*network.modules(), *head.modules()):
        if isinstance(method, StatisticalMethod):
            method.is_solved  # noqa: B018  (the host reads it before the graph is made)
    network, head, loss = network.to("meta"), head.to("meta"), CRPSLoss()

    def evaluate(batch: dict[str, Tensor]) -> Tensor:
        values = loss.evaluate(forecast_of(network, head, batch), batch["target"], batch["weights"])
        return values.mean()

    enter = torch.amp._enter_autocast

    def enter_known(device: str, *options: Any) -> Any:
        return enter("cpu" if device == "meta" else device, *options)  # "meta" has no autocast

    try:
        with patch.object(torch.amp, "_enter_autocast", enter_known):
            found = torch._dynamo.explain(evaluate)(batch)
    except Exception as error:
        return {"graph breaks": None, "failed": f"{type(error).__name__}: {error}"[:300]}
    places = Counter(
        f"{Path(r.user_stack[-1].filename).name}:{r.user_stack[-1].lineno} "
        f"{str(r.reason).splitlines()[0]}"
        for r in found.break_reasons
    )
    return {"graph breaks": found.graph_break_count, "places of breaks": dict(places)}


def table(rows: dict[str, Any]) -> str:
    """The counts as Markdown."""
    columns = ("operations", "GB", "GFLOP", "saved GB", "synchronisations", "K, ms")
    columns = (*columns, "saved once, ms", "graph breaks")
    lines = [f"| configuration | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for name, row in rows.items():
        cells = " | ".join(f"{row.get(column, '')}" for column in columns)
        lines.append(f"| `{name}` | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Counts the configurations that are named, or all, and adds them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of a network")
    parser.add_argument("--grid", default="361x720")
    parser.add_argument("--dates", type=int, default=DATES)
    parser.add_argument("--breaks", action="store_true", help="breaks of the graph, too")
    parser.add_argument("--out", type=Path, help="JSON, to which rows are added")
    given = parser.parse_args()
    grid = tuple(map(int, given.grid.split("x")))
    rows: dict[str, Any] = {}
    for name in given.names or made.networks():
        try:
            rows[name] = count(name, (grid[0], grid[1]), given.dates)
        except Exception as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if given.breaks:
            rows[name] |= graph_breaks(name)
        if given.out:
            old = json.loads(given.out.read_text()) if given.out.exists() else {}
            content = {**old, "torch": torch.__version__.split("+")[0], "grid": given.grid}
            content |= {"dates": given.dates, "rows": {**old.get("rows", {}), **rows}}
            given.out.write_text(json.dumps(content, indent=1) + "\n")
        print(table({name: rows[name]}).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
