"""What one training step of a configuration costs on a GPU, counted without one.

A step of network, head, loss, backward pass and fused Adam runs at full size on tensors without
values (FakeTensor, on the CPU). Counted are: operations (kernels launched, views left out), bytes
that they read and write, floating-point operations of matrix products and convolutions, host
synchronisations (values read by the host, sizes that depend on values, copies between devices), and
bytes of activations saved for the backward pass. After Ivanov et al. 2021, arXiv:2007.00072: most
of a step's time is the movement of data, and the counts say by what.

The package takes the branches of a GPU: it sees the device "cuda" in each tensor, torch sees "cpu".
What differs from CUDA: convolutions choose no workspace and no other layout; operations that CUDA
fuses (a softmax, an interpolation) count as one, as there; the operators that CUDA's autocast runs
in float32 and the CPU's does not (`FLOAT32`) are cast here by hand; kernels written by this project
count as inputs, outputs and saved tensors, not by what they declare.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

import ens10
from ens10.errors import FileError
from ens10.experiments.planning.rates import Grid, build_part, on_grid, random_batch
from ens10.experiments.training.data_numbers import read_config
from ens10.metrics.distributions import _torch as closed_forms
from ens10.models.layers.smoe.tracking import track_loss
from ens10.models.matching import forecast_of
from ens10.models.networks import transformer
from ens10.models.parallel.cost import Precision, SavedTensors, gigabytes
from ens10.models.statistical import SeasonalEMOS, StatisticalMethod
from ens10.usage import configuration_errors

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
_ON_HOST = ("random_orders",)  # operators of ours that read numbers on the host
_FREE = ("empty", "detach", "set_", "resize")
_ADAM_PASSES = 7  # over each parameter: reads it, its gradient and its moments, writes three


class Amount(NamedTuple):
    """Operations, the bytes that they read and write, floating-point operations, and seconds.

    The seconds are those at the rates of an H200, if each operation ran alone.
    """

    operations: int = 0
    bytes: int = 0
    flops: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":  # type: ignore[override]
        """Return the amounts of two groups of operations together."""
        return Amount(
            self.operations + other.operations,
            self.bytes + other.bytes,
            self.flops + other.flops,
            self.seconds + other.seconds,
        )


class Counts(TorchDispatchMode):
    """Counter of operations, bytes and synchronisations of what runs within it.

    Args:
        folders: of the code that takes the branches of a GPU, whose lines are named.

    Attributes:
        syncs: synchronisations by line.
        by_place: bytes by line and operation.
        by_name: what each operation does.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._folders = [str(folder) for folder in folders]
        self.reset()

    def reset(self) -> None:
        """Begin at zero."""
        self.syncs: Counter[str] = Counter()
        self.by_place: Counter[str] = Counter()
        self.by_name: dict[str, Amount] = {}

    @property
    def total(self) -> Amount:
        """The sum over all operations."""
        return sum(self.by_name.values(), Amount())

    def sees(self, path: str) -> bool:
        """Return True for code that takes the branches of a GPU."""
        return any(path.startswith(folder) for folder in self._folders)

    def caller(self) -> str:
        """Return the line of the package that led here."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if path != __file__ and (folder := next(filter(path.startswith, self._folders), "")):
                return f"{Path(path).relative_to(folder)}:{frame.f_lineno}"
            frame = frame.f_back
        return "backward pass"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation on tensors without values and count it."""
        args, kwargs = tree_map(_on_cpu, (args, kwargs or {}))
        name = func.__name__.split(".")[0]
        if func in _READS or name in (*_SIZES, *_ON_HOST):
            self.syncs[self.caller()] += 1
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
        seconds = max(moved / BYTES, flops / FLOPS) + extra / BYTES
        amount = Amount(1 + bool(extra), moved + extra, flops, seconds)
        self.by_name[name] = self.by_name.get(name, Amount()) + amount
        self.by_place[f"{self.caller()} {name}"] += moved + extra
        return results


def _memory(tensor: Tensor) -> int:
    """Return the bytes of a tensor, of a broadcast view only what lies in memory."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _bias(name: str, args: Any, outputs: list[Tensor]) -> int:
    """Return the bytes moved to add a convolution's bias, which CUDA does in a second operation."""
    if name == "convolution" and args[2] is not None:
        return 2 * outputs[0].nbytes
    return 0


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _Device(TorchFunctionMode):
    """Replace the device "cuda" that the package asks for by the CPU; cast as CUDA's autocast."""

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
            self.counts.syncs[self.counts.caller()] += 1
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
def on_gpu(*folders: Path) -> Iterator[Counts]:
    """Count what runs within on tensors without values, which the package takes for a GPU's.

    Args:
        folders: of code besides the package that takes the branches of a GPU.
    """
    seen_device: Any = FakeTensor.device
    autocast, enabled = torch.autocast, torch.is_autocast_enabled
    half = torch.get_autocast_dtype

    def device(tensor: Any) -> torch.device:
        seen = counts.sees(sys._getframe(1).f_code.co_filename)
        return _CUDA if seen else seen_device.fget(tensor)

    def is_cuda(tensor: Any) -> bool:  # noqa: ARG001
        return counts.sees(sys._getframe(1).f_code.co_filename)

    def any_on_host(tensor: Tensor) -> Any:
        counts.syncs[counts.caller()] += 1
        return np.ones(tensor.shape, np.float64 if tensor.dtype == torch.float64 else np.float32)

    counts = Counts([Path(ens10.__file__).parent, *folders])
    functions = _Device(counts)

    def recomputed(function: Any, *args: Any, **kwargs: Any) -> Any:
        # the backward pass begins without modes of functions
        def within(*inner: Any) -> Any:
            with functions:
                return function(*inner)

        return checkpoint(within, *args, **kwargs)

    with (
        patch.object(transformer, "checkpoint", recomputed),
        patch.object(closed_forms, "on_host", any_on_host),
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


class Subject(NamedTuple):
    """A training step, with the tensors that it begins with.

    Attributes:
        step: runs the step.
        state: parameters and buffers.
        batch: inputs.
    """

    step: Callable[[], Any]
    state: Sequence[Tensor]
    batch: Mapping[str, Tensor]


class StepCounts(NamedTuple):
    """Counts of a training step.

    Attributes:
        counts: of its operations.
        saved_bytes: of activations saved for the backward pass.
        saved_once: seconds if batch, parameters with their moments and saved activations were moved
            once each way: what can be reached without recomputing.
    """

    counts: Counts
    saved_bytes: int
    saved_once: float


def count_step(make: Callable[[], Subject], *folders: Path) -> StepCounts:
    """Count a training step after a first one, which makes the moments of the optimiser.

    Args:
        make: makes the step, on tensors without values.
        folders: see `on_gpu`.
    """
    with on_gpu(*folders) as counts:
        step, state, batch = make()
        step()
        counts.reset()
        with SavedTensors((*state, *batch.values())) as saved:
            step()
        passes = _ADAM_PASSES * sum(t.nbytes for t in state if t.requires_grad)
        moved = 2 * sum(saved.sizes) + sum(t.nbytes for t in batch.values()) + passes
    seconds = max(moved / BYTES, counts.total.flops / FLOPS)
    return StepCounts(counts, sum(saved.sizes), seconds)


def count_config(
    config: Path, grid: Grid, dates: int | None = None, precision: Precision = "bf16"
) -> tuple[StepCounts, int]:
    """Count a training step of a configuration, with fused Adam; return its dates, too.

    Args:
        config: YAML with a `model`, as `ens10 fit` takes it.
        grid: rows and columns.
        dates: of the step; None for the configuration's.
        precision: of the fields.

    Raises:
        FileError: no such file, no single network in it, a head on a method whose coefficients are
            not known without data, or an operation that needs values.
    """
    content = read_config(config, "Give one of experiments/configs", grid)
    model = content.get("model") or {}
    arguments = model.get("init_args") or {}
    is_several = str(model.get("class_path")).endswith(("DeepEnsemble", "SharedTrunk"))
    if is_several or not {"network", "head"} <= set(arguments):
        reason = (
            "it has several networks or members" if is_several else "it has no network and head"
        )
        raise FileError(config, reason, "Counts are of one network")
    data, specification = content["data"], on_grid(content["model"], grid)
    count = dates or int(data.get("batch_size") or 1)

    def make() -> Subject:
        with warnings.catch_warnings():
            # of copies that are made while the model is built
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            model = build_part(pl.LightningModule, specification)
        for method in (m for m in model.modules() if isinstance(m, StatisticalMethod)):
            if not isinstance(method, SeasonalEMOS):
                reason = f"{type(method).__name__} is solved on data, and nothing is read here"
                raise FileError(config, reason, "Count a configuration without it")
            _give_coefficients(method, grid)
        batch: Any = random_batch(data, model.network.in_channels, grid, count, 0)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        half = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else nullcontext()
        state = (*model.parameters(), *model.buffers())
        return Subject(lambda: _step(model, batch, adam, half), state, batch)

    with configuration_errors(config):
        try:
            return count_step(make), count
        except RuntimeError as error:
            reason = f"a part of it needs values, which are not counted ({_first_line(error)})"
            raise FileError(config, reason, "Count a configuration without it") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _give_coefficients(method: SeasonalEMOS, grid: Grid) -> None:
    """Set coefficients of some values."""
    method.coefficients = torch.zeros(4, 1 + 2 * method.harmonics, *grid)
    method.centre, method.floor = torch.zeros(grid), torch.ones(grid)
    method.solved.fill_(True)


def _step(
    model: Any, batch: Any, optimizer: torch.optim.Optimizer, half: AbstractContextManager[Any]
) -> None:  # fmt: skip
    """Run what `PostProcessor` and Lightning run, but logs and whether the loss is finite.

    To read that is a wait of each step, unless the model's `checks_on_device` is True.
    """
    with half:
        forecast = forecast_of(model.network, model.head, batch)
        values = model.loss.evaluate(forecast, batch["target"], batch["weights"])
    weights = batch["weights"]
    loss = torch.where(weights > 0, weights * values, 0).sum() / weights.sum()
    loss, penalty = track_loss(loss, model.network), model.network.penalty()
    optimizer.zero_grad()
    (loss if penalty is None else loss + penalty).backward()
    optimizer.step()


_KINDS = {
    "convolutions": ("convolution",),
    "matrix products": ("mm", "attention", "einsum", "linear"),
    "normalisations": ("norm",),
    "optimiser": ("adam", "foreach"),
    "copies and padding": ("copy", "cat", "clone", "pad", "index", "roll", "stack", "slice"),
    "sums and softmax": ("sum", "mean", "max", "min", "var"),
    "samplings": ("upsample", "pool", "interpolate"),
}


def _kind(name: str) -> str:
    """Return the kind of an operation of torch by its name."""
    return next((k for k, words in _KINDS.items() if any(w in name for w in words)), "pointwise")


def by_kind(counts: Counts) -> dict[str, Amount]:
    """Return what each kind of operation does, those that move most bytes first."""
    kinds: dict[str, Amount] = {}
    for name, amount in counts.by_name.items():
        kinds[_kind(name)] = kinds.get(_kind(name), Amount()) + amount
    return dict(sorted(kinds.items(), key=lambda item: -item[1].bytes))


def print_counts(found: StepCounts, title: str, console: Console) -> None:
    """Print the table by kind of operation, waits, saved activations and bounds."""
    total = found.counts.total
    console.print(title, style="bold", highlight=False)
    header = ("operations", "GB read and written", "GFLOP", "least ms on an H200")
    table = Table("", *header, box=None, padding=(0, 1))
    for name, amount in {**by_kind(found.counts), "all": total}.items():
        cells = (
            f"{amount.bytes / 1e9:.3g}",
            f"{amount.flops / 1e9:.3g}",
            f"{1e3 * amount.seconds:.3g}",
        )
        table.add_row(name, str(amount.operations), *cells)
    console.print(table, highlight=False)
    waits = ", ".join(f"{place} ({n})" for place, n in found.counts.syncs.items()) or "none"
    lines = [
        f"Waits of the host for the device: {waits}; besides one in each step to read whether the "
        "loss is finite, unless model.checks_on_device is True",
        f"Activations saved for the backward pass: {gigabytes(found.saved_bytes)}",
        f"Bounds on an H200: {1e3 * total.seconds:.3g} ms if each operation ran at its rates; "
        f"{1e3 * found.saved_once:.3g} ms if parameters, batch and saved activations were moved "
        "once each way",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
