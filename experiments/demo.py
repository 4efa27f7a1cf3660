"""The demonstration on a synthetic world: GRIB files, store, five models, scores, one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ens10.command_options import DemoOptions
from ens10.convert import prepare
from ens10.convert.files import partial_store
from ens10.errors import FileError
from ens10.experiments.reporting.report import write_report
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.optimum import score_optimum
from ens10.experiments.scoring.score import STATES, score_run
from ens10.experiments.training.data_numbers import config_path as config_path
from ens10.experiments.training.run import run_stage
from ens10.options import chosen, takes
from ens10.synthetic import World
from ens10.synthetic.world import WorldKind

MODELS = ("raw", "emos_global", "emos_local", "mlp", "unet")
YEARS = range(1998, 2008)
DATES = 40
_CONSOLE = Console(stderr=True)


@takes(DemoOptions)
def run_demo(
    out: Path | str,
    options: DemoOptions | None = None,
    *,
    models: Sequence[str] = MODELS,
    quiet: bool = False,
    **named: Any,
) -> Path:
    """Run the demonstration; skip steps whose results are in the folder already.

    Args:
        out: folder for everything.
        options: of the command; None for its defaults.
        models: configurations in `experiments/configs`; "raw" among them.
        quiet: no progress bars.
        **named: single options.

    Returns:
        The path of the report's page.

    Raises:
        FileError: the folder holds something else, or a demonstration of another world.
    """
    out, options = Path(out), chosen(DemoOptions, options, named)
    seed = options.seed
    world = _world(out, seed, options.kind, quiet)
    store = out / "store.zarr"
    # again if it was interrupted after its last rename, to remove what it left
    if not store.exists() or partial_store(store).path.exists():
        prepare(out / "world", store, truth=out / "world" / "truth", progress=not quiet)
    runs = [out / "runs" / name for name in models]
    for run in runs:
        make_run(run, store, seed, quiet=quiet)
    optimum = out / "runs" / "optimum"
    if not (optimum / STATES).exists():
        score_optimum(world, runs[0], optimum, progress=not quiet)
    page = write_report([*runs, optimum], out / "report", progress=not quiet)
    if not quiet:
        print((out / "report" / "table.md").read_text())
        print(f"Report: {page}")
    return page


def _world(out: Path, seed: int, kind: WorldKind, quiet: bool) -> World:
    folder = out / "world"
    is_new = not out.exists() or {path.name for path in out.iterdir()} <= {"world.partial"}
    if not (is_new or (folder / "world.json").exists()):
        remedy = "Remove it, or choose another --out"
        raise FileError(out, "holds files, but no demonstration to resume", remedy)
    world = World("46x96", YEARS, DATES, seed=seed, steps=(48,), kind=kind)
    return world.write_once(folder, progress=not quiet)


def make_run(
    run: Path, store: Path, seed: int = 0, *, options: Sequence[str] = (), quiet: bool = False
) -> None:
    """Fit, predict and score one model, unless it has scores; resume an interrupted call.

    Args:
        run: folder of the run, called like a configuration in `experiments/configs`.
        store: to fit on.
        seed: of the training.
        options: further options of `ens10 fit`.
        quiet: no progress bars.
    """
    if (run / STATES).exists():
        return
    if not quiet:
        _CONSOLE.print(run.name, style="bold", markup=False)
    quiet_options = ["--quiet"] if quiet else []
    if not (run / "config.yaml").exists():
        path_options = ["--config", str(config_path(run.name)), "--data.store", str(store)]
        seed_options = ["--seed_everything", str(seed), *options]
        run_stage("fit", [*path_options, *seed_options, "--run", str(run), *quiet_options])
    elif not (run / provenance.FILE).exists() or "seconds" not in provenance.read_provenance(run):
        run_stage("fit", ["--run", str(run), "--resume", *quiet_options])
    run_stage("predict", ["--run", str(run), *quiet_options])
    score_run(run)
