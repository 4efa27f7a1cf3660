"""Optional packages, and the error that says how to install them."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

from ens10.errors import ArgumentError, Ens10Error

_MODULES = {
    "train": ("torch", "pytorch_lightning", "torchmetrics", "safetensors"),
    "plot": ("jinja2", "matplotlib"),
    "cluster": ("distributed",),
    "cloud": ("aiohttp", "gcsfs"),
    "tables": ("pyarrow",),
}
EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules}
PACKAGES = ("icechunk", "kerchunk")  # of no extra; pip installs them by these names


def pip_install(*extras: str) -> str:
    """Return the command that installs the packages of extras.

    It names the packages themselves, with the bounds of this installation's metadata, so that it
    works from a clone and from a wheel alike, and needs no index that has this package.
    """
    try:
        needs = metadata.requires("ens10") or []
    except metadata.PackageNotFoundError:  # a clone on the path, without an installation
        needs = []
    marks = [f'extra == "{extra}"' for extra in extras]
    packages = [n.partition(";")[0].strip() for n in needs if any(mark in n for mark in marks)]
    if not packages:
        packages = [module for extra in extras for module in _MODULES[extra]]
    return shlex.join(["pip", "install", *packages])


class MissingExtraError(Ens10Error, ModuleNotFoundError):
    """A required package is not installed; the message names the extra that has it, or the package.

    Args:
        what: the feature that needs it.
        module: import name of the package.
        extras: the extras to install, by their names; none for a package that no extra has.
    """

    def __init__(self, what: str, module: str, *extras: str) -> None:
        self.what, self.extras = what, extras
        of_extras = f", of the extra {', '.join(extras)}" if extras else ""
        command = pip_install(*extras) if extras else f"pip install {module}"
        super().__init__(f"{what} needs {module}{of_extras}. Install it with: {command}")
        self.name = module


@contextmanager
def telling_extras(what: str, *besides: str) -> Iterator[None]:
    """Convert an ImportError to an error that names the extra to install.

    Libraries such as fsspec may wrap the ImportError in another ImportError.

    Args:
        what: the feature that needs the package, for the error.
        besides: further extras that are needed.

    Raises:
        MissingExtraError: in place of an `ImportError`, if an extra has the package.
    """
    try:
        yield
    except ImportError as error:
        first = error.__cause__ if error.name is None else error
        module = str(getattr(first, "name", "")).partition(".")[0]
        if not isinstance(first, ModuleNotFoundError) or module not in (*EXTRAS, *PACKAGES):
            raise
        if isinstance(error, MissingExtraError):
            raise
        extras = dict.fromkeys([*besides, *([EXTRAS[module]] if module in EXTRAS else [])])
        raise MissingExtraError(what, module, *extras) from error


def cluster_library() -> Any:
    """Import `distributed`.

    Raises:
        ArgumentError: it is not installed.
    """
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        reason = f"distributed, of the extra cluster, cannot be imported ({error})"
        remedy = f"Install it with: {pip_install('cluster')}"
        raise ArgumentError("scheduler", reason, remedy) from error
