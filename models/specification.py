"""Models as plain values: class paths and arguments, from which an equal model is built.

Bases of this package remember the arguments of their objects (`InitialValues`). Those of another
module of torch are its attributes of the same names; the module is then built again and compared,
because nothing else shows that they are right.
"""

import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any, Self

import torch
from torch import nn

from ens10.errors import ArgumentError

_VALUES = "initial_values"


class InitialValues:
    """A base of modules, which remembers the arguments that an object was made with."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments; `__init__` refuses those that do not fit."""
        self = super().__new__(cls)
        try:
            bound = inspect.signature(cls.__init__).bind(self, *args, **kwargs)
        except TypeError:  # wrong ones, or none for a copy, which gets those of the original
            return self
        values = dict(list(bound.arguments.items())[1:])
        self.__dict__[_VALUES] = values | values.pop("kwargs", {})
        return self


def specification(part: object, name: str = "model") -> Any:
    """Return a value as plain values: an object as `class_path` and `init_args`.

    Args:
        part: plain value, module of torch, dataclass, class with arguments (`functools.partial`),
            function of a module, or lists and mappings of these.
        name: of the value, for errors.

    Raises:
        ArgumentError: it cannot be written like this.

    Examples:
        >>> from ens10.models.networks import MLP
        >>> from ens10.models.specification import specification
        >>> specification(MLP(in_channels=2))
        {'class_path': 'ens10.models.networks.MLP', 'init_args': {'in_channels': 2}}
    """
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, list | tuple):
        return [specification(one, f"{name}[{n}]") for n, one in enumerate(part)]
    if isinstance(part, Mapping):
        return {str(key): specification(one, f"{name}.{key}") for key, one in part.items()}
    if isinstance(part, FunctionType):
        return _path(part, name)
    kind: Any = type(part)
    if isinstance(part, partial):  # the parser's own has the class as an argument
        kind = next((one for one in (part.func, *part.args[::-1]) if isinstance(one, type)), None)
        arguments = dict(part.keywords)
    elif isinstance(part, nn.Module):
        values = vars(part).get(_VALUES)
        arguments = _arguments_by_attributes(part, name) if values is None else values
    elif is_dataclass(part):
        arguments = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
    else:
        kind, arguments = None, {}
    if kind is None:
        reason = f"a {type(part).__name__} is no plain value"
        raise ArgumentError(name, reason, "Use functools.partial(CLASS, ...) for a function")
    path = _path(kind, name)
    values = {key: specification(one, f"{name}.{key}") for key, one in arguments.items()}
    return {"class_path": path, "init_args": values} if values else {"class_path": path}


def _path(definition: Any, name: str) -> str:
    """Return the shortest path that a class or function is imported by."""
    module, own = definition.__module__.split("."), definition.__qualname__
    for n in range(1, len(module) + 1):
        home = sys.modules.get(".".join(module[:n]))
        if getattr(home, own, None) is definition and module != ["__main__"]:
            return ".".join([*module[:n], own])
    reason = f"{own} is defined in {'this session' if module == ['__main__'] else module[-1]}"
    raise ArgumentError(name, f"{reason}, where nothing can import it", "Put it into a file")


def _arguments_by_attributes(module: nn.Module, name: str) -> dict[str, Any]:
    """Return the arguments of a module that are its attributes, if they give an equal module."""
    kind, arguments = type(module), {}
    for one in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if hasattr(module, one.name):
            arguments[one.name] = getattr(module, one.name)
        elif one.default is one.empty:
            reason = f"{kind.__name__} does not keep its argument {one.name}"
            remedy = f"Set self.{one.name} = {one.name} in its __init__"
            raise ArgumentError(name, reason, remedy)
    with torch.random.fork_rng(devices=[]), suppress(Exception):  # attributes of another meaning
        if _form(module) == _form(kind(**arguments)):
            return arguments
    reason = f"{kind.__name__} is not what it was when it was made, or keeps not all arguments"
    raise ArgumentError(name, reason, "Set self.NAME = NAME for each argument NAME")


_OF_TORCH = {*vars(nn.Module()), _VALUES}


def _form(module: nn.Module) -> list[str]:
    """Return all of a module but the values in checkpoints: classes, attributes and shapes."""
    form = [str([(n, v.shape, v.dtype) for n, v in module.state_dict().items()])]
    form.append(str([p.requires_grad for p in module.parameters()]))
    for name, part in module.named_modules():
        own = {key: value for key, value in vars(part).items() if key not in _OF_TORCH}
        own |= {key: part._buffers[key] for key in sorted(part._non_persistent_buffers_set)}
        # arrays and tensors in full, since their texts are shortened
        texts = {key: getattr(value, "tolist", lambda v=value: v)() for key, value in own.items()}
        form.append(f"{name} {type(part)} {texts}")
    return form


def rebuilt_specification(model: nn.Module) -> dict[str, Any]:
    """Return class path and arguments of a model, after a model of the same shapes was built.

    Raises:
        ArgumentError: an argument is no plain value, or the model was changed after it was made.
    """
    values: dict[str, Any] = specification(model)
    with torch.random.fork_rng(devices=[]):
        try:
            other = build(type(model), values.get("init_args", {}))
        except Exception as error:  # of the model's class
            reason = f"its arguments do not make it again ({' '.join(str(error).split())[:200]})"
            raise ArgumentError("model", reason, "Look at the types of its arguments") from error
    forms = [[(n, v.shape) for n, v in one.state_dict().items()] for one in (model, other)]
    if forms[0] != forms[1]:
        raise ArgumentError("model", "was changed after it was made", "Write it as a class")
    return values


def build(kind: type, arguments: Mapping[str, Any], **objects: Any) -> Any:
    """Build an object of a class from plain values, as the command line does.

    Args:
        kind: its class.
        arguments: as `specification` writes them; classes that they name are imported.
        **objects: arguments that are objects already.

    Raises:
        jsonargparse.ArgumentError: values that the class does not take.
    """
    from ens10.usage import Parser

    parser = Parser(exit_on_error=False)
    settings: dict[str, Any] = {"skip": set(objects), "instantiate": False, "fail_untyped": False}
    parser.add_class_arguments(kind, "model", **settings)
    make = getattr(parser, "instantiate", None) or parser.instantiate_classes
    values = {key: value for key, value in arguments.items() if key not in objects}
    made = make(parser.parse_object({"model": values})).model
    return kind(**dict(made.items(branches=True, nested=False)), **objects)
