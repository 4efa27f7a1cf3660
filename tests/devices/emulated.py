"""An emulated accelerator: tensors that are not on the CPU, with values, on a machine without one.

Its tensors report the device "meta", so that code takes the paths of an accelerator, but hold
their values beside: every operation is done on the CPU. As on CUDA, tensors of two devices do not
mix (but for numbers and indices on the CPU), and numpy does not see the values.
"""

from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import torch
from torch import nn
from torch._library.custom_ops import CustomOpDef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
_CROSSING = (aten._to_copy.default, aten.copy_.default)
_CPU_INDICES = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
_MADE_FROM_DATA = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)


class OnDevice(torch.Tensor):
    """A tensor of the emulated device.

    Args:
        held: its values, on the CPU.
    """

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device="meta",
        )  # fmt: skip
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Dispatch(TorchDispatchMode):
    """Makes new tensors of the device "meta" ones that hold values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Tensors from lists and arrays, which torch does not fill on the device "meta"."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _MADE_FROM_DATA:
            like = args[0] if func is torch.Tensor.new_tensor else None
            device = kwargs.get("device") or (None if like is None else like.device)
            source = args[0] if like is None else args[1]
            if device is not None and torch.device(device).type == "meta":
                if not isinstance(source, torch.Tensor):
                    dtype = kwargs.get("dtype") or (None if like is None else like.dtype)
                    return OnDevice(torch.tensor(source, dtype=dtype))
                return source.to("meta", kwargs.get("dtype") or source.dtype)
        return func(*args, **kwargs)


def _computed(func, args, kwargs):
    given = tree_flatten((args, kwargs))[0]
    tensors = [t for t in given if isinstance(t, torch.Tensor)]
    device = kwargs.get("device")
    here = any(isinstance(t, OnDevice) for t in tensors)
    if device is not None:
        here = torch.device(device).type == "meta"
        kwargs = {**kwargs, "device": torch.device("cpu")}
    elif func not in (*_CROSSING, *_CPU_INDICES):
        _refuse_mixed(func, tensors)
    originals = {id(t.held): t for t in tensors if isinstance(t, OnDevice)}
    unwrapped = tree_map(lambda t: t.held if isinstance(t, OnDevice) else t, (args, kwargs))
    made = func(*unwrapped[0], **unwrapped[1])
    if func is aten.copy_.default:
        here = isinstance(args[0], OnDevice)
    if not here:
        return made

    def wrapped(value):
        if not isinstance(value, torch.Tensor):
            return value
        return originals.get(id(value)) if id(value) in originals else OnDevice(value)

    return tree_map(wrapped, made)


def _refuse_mixed(func, tensors):
    plain = [t for t in tensors if not isinstance(t, OnDevice) and t.ndim]
    if plain and len(plain) < len(tensors) and any(isinstance(t, OnDevice) for t in tensors):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device")


@contextmanager
def accelerator():
    """While it lasts, what is made on the device "meta" has values."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(device="cuda"):
        return False if device == "meta" else enabled(device)

    def none_there(device, *args, **kwargs):
        return nullcontext() if device == "meta" else autocast(device, *args, **kwargs)

    def call(operator, *args, **kwargs):
        return operator._init_fn(*args, **kwargs)

    with (
        # the Python code of our operators is done operation by operation
        patch.object(CustomOpDef, "__call__", call),
        patch.object(torch, "is_autocast_enabled", is_enabled),
        patch.object(torch, "autocast", none_there),
        _Functions(),
        _Dispatch(),
    ):
        yield


def moved(value):
    """Tensors, modules in place, and dictionaries of them, on the emulated device."""
    if isinstance(value, dict):
        return {key: moved(one) for key, one in value.items()}
    if isinstance(value, nn.Module):
        return _moved_module(value)
    return OnDevice(value.detach().clone())


def _moved_module(module):
    shared = {}

    def once(tensor):
        if id(tensor) not in shared:
            copy = moved(tensor)
            is_parameter = isinstance(tensor, nn.Parameter)
            shared[id(tensor)] = nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy
        return shared[id(tensor)]

    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = once(tensor)
    return module
