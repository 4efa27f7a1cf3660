"""Names of `ens10` that need the experiments, imported on first use: `ens10.fit` and others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ens10.extras import telling_extras

if TYPE_CHECKING:
    from ens10.experiments.forecasts.load import load_model as load_model
    from ens10.experiments.from_python import Run as Run
    from ens10.experiments.from_python import fit as fit
    from ens10.experiments.from_python import save_run as save_run

_HOMES = {"load_model": "forecasts.load"} | dict.fromkeys(("Run", "fit", "save_run"), "from_python")


def __getattr__(name: str) -> Any:
    """Return a public name; torch is imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with telling_extras(f"ens10.{name}"):
        return getattr(import_module(f"ens10.experiments.{_HOMES[name]}"), name)
