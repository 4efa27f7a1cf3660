"""Post-processing of ensemble weather forecasts with the ENS-10 dataset.

Only the light parts are imported here: `import ens10` needs no torch and takes well under a
second. The public functions import their modules on first use.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ens10.cli.python_names import Run, fit, load_model, save_run
    from ens10.convert import prepare, verify
    from ens10.export import export
    from ens10.store import open_store

__version__ = "0.1.0"
__all__ = [
    "Run", "__version__", "export", "fit", "load_model", "open_store", "prepare", "save_run",
    "verify",
]  # fmt: skip

_PYTHON = "ens10.cli.python_names"
_HOMES = {
    "Run": _PYTHON, "export": "ens10.export", "fit": _PYTHON, "load_model": _PYTHON,
    "open_store": "ens10.store", "prepare": "ens10.convert", "save_run": _PYTHON,
    "verify": "ens10.convert",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ens10' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if f"ens10.{name}" in sys.modules)})
