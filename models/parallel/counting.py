"""What torch's operations compute, move and keep, without computing anything."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Saved:
    """Bytes of the storages that are kept for a backward pass.

    Args:
        but: tensors whose storages do not count.
    """

    def __init__(self, but: Sequence[Tensor]) -> None:
        self._but = {_storage(tensor) for tensor in but}
        self.sizes: dict[int, int] = {}
        self._kept: list[Tensor] = []  # so that no other storage gets the same address

    def keep(self, tensor: Tensor) -> Tensor:
        """To be called with each tensor that is kept."""
        if _storage(tensor) not in self._but:
            self.sizes[_storage(tensor)] = tensor.untyped_storage().nbytes()
            self._kept.append(tensor)
        return tensor


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what operations compute and move, and lets networks run on the meta device.

    A value that a network asks for is 1, or True; autocast, which meta tensors do not have, is off.

    Attributes:
        flops: of convolutions and products, as torch's own counter has them.
        operations: those that are more than a view.
        moved: bytes read and written; views are free.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops, self.operations, self.moved = 0, 0, 0
        self._entered = ExitStack()

    def __enter__(self) -> "Meter":
        self._entered.enter_context(patch.object(torch, "autocast", _no_autocast))
        self._entered.enter_context(patch.object(torch, "is_autocast_enabled", _never))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._entered.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs one operation."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return _one(args[0].dtype)
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        if (count_flops := flop_registry.get(func._overloadpacket)) is not None:
            self.flops += count_flops(*args, **kwargs, out_val=results)
        inputs, outputs = list(_tensors(args)), list(_tensors(results))
        if func is torch.ops.aten.copy_.default:
            inputs = inputs[1:]  # the other is written alone
        made = "empty" not in func.__name__
        if made and (func._schema.is_mutable or not _is_view(inputs, outputs)):
            self.operations += 1
            self.moved += sum(tensor.nbytes for tensor in (*inputs, *outputs))
        return results


def _is_view(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    known = {_storage(tensor) for tensor in inputs}
    return all(_storage(tensor) in known for tensor in outputs)


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


def _one(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def _no_autocast(*_: object, **__: object) -> nullcontext[None]:
    return nullcontext()


def _never(*_: object) -> bool:
    return False


@contextmanager
def without_values() -> Iterator[None]:
    """Modules that are made within are on the meta device, and take no memory."""
    with torch.device("meta"), Meter():
        yield
