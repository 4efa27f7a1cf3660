"""Budgets: options that change how long the configurations train, a YAML of them by model."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError, UnknownNameError
from ens10.untrusted import read_mapping


def load_budget(name: str | None) -> dict[str, tuple[str, ...]]:
    """Options for `ens10 fit` by model, from `experiments/budgets/NAME.yaml`.

    Args:
        name: of the budget; None for the configurations as they are.

    Raises:
        UnknownNameError: no such budget.
        ArgumentError: the file is no mapping of models to options.
    """
    if name is None:
        return {}
    folder = Path(str(files("ens10.experiments"))) / "budgets"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        raise UnknownNameError("budget", name, sorted(p.stem for p in folder.glob("*.yaml")))
    content = read_mapping(path)
    if not all(isinstance(v, dict) for v in content.values()):
        raise ArgumentError("budget", f"{path} is no mapping of models to options")
    return {model: _options(given) for model, given in content.items()}


def _options(given: dict[str, Any]) -> tuple[str, ...]:
    """Options of one model as the command line takes them."""
    return tuple(f"--{name}={value}" for name, value in given.items())
