"""Experiments: which model on which data gives which table.

The rooms, each of which imports only those before it: `runs`, `training`, `scoring`, `forecasts`,
`reporting`, `runner`, then `demo`, `planning`, `reproduce` and the studies.
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

if __name__ == "experiments":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.experiments, not as experiments")

_ROOMS = {
    "runs": "provenance checkpoints locks reading predictions raw_ensemble trust",
    "training": "run",
    "planning": "plan",
    "scoring": "score run_results optimum tables writers",
    "forecasts": "load apply bundle couple products",
    "reporting": "report figures case case_inputs case_page",
}
_FORMER = {name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}


class _FormerNames(MetaPathFinder, Loader):
    """Imports of modules by the names that they had before there were rooms."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        package, name = fullname.rpartition(".")[::2]
        return ModuleSpec(fullname, self) if package == __name__ and name in _FORMER else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.rpartition(".")[2]
        sys.modules[module.__name__] = import_module(f"{__name__}.{_FORMER[name]}")


sys.meta_path.append(_FormerNames())
