"""Packages that a bare install lacks, and what is told where one of them is needed."""

from collections.abc import Iterator
from contextlib import contextmanager

from ens10.errors import Ens10Error

EXTRAS = {
    "torch": "train",
    "pytorch_lightning": "train",
    "torchmetrics": "train",
    "jsonargparse": "train",
    "matplotlib": "plot",
    "distributed": "cluster",
    "aiohttp": "cloud",
    "gcsfs": "cloud",
}


class MissingExtraError(Ens10Error, ModuleNotFoundError):
    """A package is needed that an extra of ens10 brings, and that is not installed.

    Args:
        what: what needs it.
        module: the package, as it is imported.
        extras: the extras to install, by their names.
    """

    def __init__(self, what: str, module: str, *extras: str) -> None:
        self.what, self.extras = what, extras
        chosen = ",".join(extras)
        super().__init__(f"{what} needs {module}. Install it with: pip install 'ens10[{chosen}]'")
        self.name = module


@contextmanager
def telling_extras(what: str, *besides: str) -> Iterator[None]:
    """Names the extra to install where a package of one is not found.

    Args:
        what: what needs it, for the error.
        besides: extras that will be needed as well.

    Raises:
        MissingExtraError: instead of a `ModuleNotFoundError`, if an extra brings the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if isinstance(error, MissingExtraError) or module not in EXTRAS:
            raise
        extras = dict.fromkeys([*besides, EXTRAS[module]])
        raise MissingExtraError(what, module, *extras) from error
