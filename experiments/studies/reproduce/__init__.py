"""The former name of `ens10.experiments.reproduce` and of its modules."""

import sys
from importlib import import_module

for _name in ("", ".arguments", ".command", ".plan", ".published", ".tables"):
    sys.modules[f"{__name__}{_name}"] = import_module(f"ens10.experiments.reproduce{_name}")
