"""Which modules of the package a task visits, in the order of the first calls.

    python benchmarks/walks.py [--out benchmarks/results/walks.json] [--draw]

Each function counts once, when it is called for the first time. A visit is a run of such calls
within one module; a return is a visit to a module that was left before. `calls` is the number of
all Python calls inside the package. Tasks: `prepare` on a small GRIB file, one training step of the
U-Net, the CRPS of a normal distribution, and the scoring of a run's predictions.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = tuple(f"{ROOT / folder}/" for folder in ("ens10", "metrics", "models", "experiments"))
GRIB = ROOT / "tests" / "data" / "era5-levels-members.grib"


class Walk:
    """Context that records the calls of the package's functions, in all threads."""

    def __init__(self) -> None:
        self.calls = 0
        self._modules: dict[CodeType, str | None] = {}
        self.visits: list[str] = []

    def _module(self, code: CodeType) -> str | None:
        path = Path(code.co_filename)
        if not code.co_filename.startswith("/"):
            return None
        name = str(path.resolve())
        return name.removeprefix(f"{ROOT}/") if name.startswith(FOLDERS) else None

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        first = code not in self._modules
        if first:
            self._modules[code] = self._module(code)
        module = self._modules[code]
        if module is None:
            return
        self.calls += 1
        if first and not code.co_name.startswith("<"):
            self.visits.append(module)

    def __enter__(self) -> "Walk":
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def result(self) -> dict[str, Any]:
        """Modules, visits, returns and calls, and the walk itself."""
        visits = [module for module, _ in groupby(self.visits)]
        modules = len(set(visits))
        return {
            "modules": modules,
            "returns": len(visits) - modules,
            "calls": self.calls,
            "visits": visits,
        }


def walk(task: Callable[[], Any]) -> dict[str, Any]:
    """The walk of a task; modules are imported by a call before it."""
    with Walk() as walked:
        task()
    return walked.result()


def _tasks(folder: Path) -> dict[str, Callable[[], Any]]:
    import torch

    import ens10
    from ens10.loader import EnsembleDataModule
    from ens10.metrics import score_states
    from ens10.models import CRPSLoss, Normal, PostProcessor, ResidualNormalHead
    from ens10.models.networks import UNet
    from ens10.synthetic import World

    truth = (
        World(grid="8x16", years=range(1998, 2005), dates=8, seed=0).write(folder / "w") / "truth"
    )
    store = ens10.prepare(folder / "w", folder / "w.zarr", truth=truth)
    stores = (folder / f"{n}.zarr" for n in range(10))
    data = EnsembleDataModule(store, "t2m@48", ["t2m", "u10"])
    data.setup("fit")
    batches = iter(data.train_dataloader())
    channels = next(batches)["features"].shape[1]
    model = PostProcessor(UNet(channels, 2), ResidualNormalHead(), CRPSLoss(), torch.optim.Adam)
    forecast = Normal(torch.rand(4, 8, 16), torch.rand(4, 8, 16).add_(1), positive=True)
    stated = forecast.to_dataset(_coordinates(), "K")
    observed = stated["mu"] + 1

    return {
        "prepare a GRIB file": lambda: ens10.prepare(GRIB, next(stores)),
        "training step": lambda: model.training_step(next(batches)),
        "CRPS of a normal": lambda: forecast.crps(forecast.mu),
        "score states": lambda: score_states(stated, observed),
    }


def _coordinates() -> dict[str, Any]:
    time = np.arange("2001-01-01", "2001-01-05", dtype="datetime64[D]").astype("datetime64[ns]")
    return {
        "time": time,
        "valid_time": ("time", time + np.timedelta64(48, "h")),
        "step": 48,
        "latitude": np.linspace(80.0, -80.0, 8),
        "longitude": np.arange(16) * 22.5,
    }


def main() -> None:
    """Prints the walks' lengths, and with --draw the walks; writes them with --out."""
    parser = argparse.ArgumentParser(description="Modules that a task visits.")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--draw", action="store_true", help="print each visit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, task in _tasks(Path(folder)).items():
            task()  # imports and compiles
            found[name] = walk(task)
    for name, result in found.items():
        counts = ", ".join(f"{result[key]} {key}" for key in ("modules", "returns", "calls"))
        print(f"{name}: {counts}")
        if options.draw:
            print("\n".join(f"    {module}" for module in result["visits"]))
    if options.out:
        kept = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**kept, "now": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
