"""The papers' tables by one command: compute the missing cells, then write the tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ens10.catalog import variable
from ens10.channels import split
from ens10.errors import ArgumentError, Ens10Error, FileError
from ens10.experiments.runner.tasks import (
    MEMBERS,
    Task,
    WorldSize,
    config_of,
    load_budget,
    store_of,
)
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.training.data_numbers import config_path
from ens10.protocol import Protocol, protocol_of
from ens10.store import store_kinds

if TYPE_CHECKING:
    from ens10.experiments.runner.running import Outcome
    from ens10.experiments.runner.trainings import ModelCell

TARGETS = ("t2m", "z500", "t850")
# The papers' lines and, under the clean protocol (and any but the paper's), what does better.
MODELS = {
    "clean": (
        *("raw", "raw_normal", "emos_paper", "emos_global", "emos_local", "emos_neighbours"),
        *("mlp", "lenet", "unet"),
        *("transformer", "smoe_unet", "location_unet"),
    ),
    "paper": ("raw", "raw_normal", "emos_paper", "paper_mlp", "lenet", "paper_unet", "transformer"),
}
_DEFAULT_SIZE = WorldSize()


@dataclass(frozen=True)
class Request:
    """The contents of a table, and the data and folders of its cells.

    Attributes:
        out: folder of the tables and of the kept cells; cells that it holds are not done again.
        work: folder of data and runs.
        store: prepared data of all seeds; None for a synthetic world of each seed.
        protocol: "clean", "paper", or the path of a YAML file.
        targets: channels.
        members: sizes of the ensemble; those of the protocol if empty.
        models: names of configurations; those of `MODELS` if empty.
        seeds: number of seeds.
        budget: name of a budget of training, None for the configurations' own lengths.
        size: of the synthetic worlds.

    Raises:
        UnknownNameError: no such protocol or budget.
        ArgumentError: no seed, or a size of an ensemble below 2.
        FileError: a model without configuration; results or work that is no folder.
    """

    out: Path
    work: Path
    store: Path | None = None
    protocol: str = "clean"
    targets: tuple[str, ...] = ("t2m",)
    members: tuple[int, ...] = (MEMBERS,)
    models: tuple[str, ...] = ()
    seeds: int = 3
    budget: str | None = None
    size: WorldSize = _DEFAULT_SIZE

    def __post_init__(self) -> None:
        protocol_of(self.protocol)  # refuses what is none
        load_budget(self.budget)
        for folder in (self.out, self.work):
            refuse_file(folder)
        if self.seeds < 1:
            raise ArgumentError("--seeds", f"{self.seeds} is none", "Give 1 or more")
        if not self.targets:
            raise ArgumentError("--targets", "no target")
        for count in self.members:
            if count < 2:
                raise ArgumentError("--members", f"{count} make no ensemble", "Give 2 or more")
        for model in self.rows:
            config_of(model, self.configs)

    @property
    def configs(self) -> Path:
        """Folder of the configurations."""
        return config_path("raw").parent

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the models, in the order of the table."""
        usual = MODELS.get(self.rules.name, MODELS["clean"])
        return tuple(dict.fromkeys(self.models or usual))

    @property
    def rules(self) -> Protocol:
        """The protocol itself."""
        return protocol_of(self.protocol)

    @property
    def tasks(self) -> list[Task]:
        """Tasks by target and ensemble size, in the order of the paper's columns."""
        targets = dict.fromkeys(self.targets)
        sizes = sorted({*(self.members or self.rules.members)})
        return [Task(self.protocol, target, size) for target in targets for size in sizes]


def find_all(request: Request) -> tuple["list[ModelCell]", dict[str, str]]:
    """Return the cells of a request; make their data if needed.

    Cells of the first seed come first, so that a table of all models is complete early.

    Args:
        request: contents and data of the table.

    Returns:
        The cells; and, by name, the reason why a model cannot be carried over to a task.

    Raises:
        FileError: the store does not exist.
    """
    from ens10.experiments.runner.trainings import find_cells

    if request.store is not None:
        if not request.store.is_dir():
            raise FileError(request.store, "no such store", "Make it with `ens10 prepare`")
        store_kinds(request.store)
    cells, refusals = [], {}
    for seed in range(request.seeds):
        if request.store is None:
            store_of(request.work / f"seed{seed}", seed, request.size, wait=True)
        for task in request.tasks:
            for model in request.rows:
                where = (request.work, request.out, request.configs, request.budget)
                try:
                    cells += find_cells([model], [seed], *where, task, request.store)
                except Ens10Error as error:
                    refusals[f"{model} ({task.name})"] = str(error)
    return cells, refusals


def usual_name(channel: str) -> str:
    """Return the name of a channel in tables and folders: t2m for `2t`, t850 for `t_850`."""
    try:
        return variable(channel).name
    except Ens10Error:
        name, level = split(channel)
        return channel if level is None else f"{name}{level}"


def reproduce(
    request: Request,
    *,
    workers: int = 1,
    threads: int = 1,
    older: bool = False,
    tables: bool = False,
) -> int:
    """Compute what is missing and write the tables of all cells that are kept.

    Args:
        request: contents and data of the table.
        workers: number of cells computed at a time.
        threads: of each cell's process.
        older: whether cells of older code, data or configurations count as complete.
        tables: whether to compute no cell and only write the tables of the kept ones.

    Returns:
        The exit status: 1 if a cell failed or cannot be computed.

    Raises:
        Ens10Error: as `find_all`; MissingDataError if no cell at all is kept.
        Terminated, Interrupted: a signal ended it, and the processes of its cells; the same call
            resumes.
    """
    from ens10.experiments.reproduce.tables import write_tables
    from ens10.experiments.runner.results import Results
    from ens10.experiments.runner.running import Outcome

    outcome = Outcome() if tables else _compute(request, workers, threads, older)
    with Results(request.out).temporary_folder() as cells_folder:
        print(write_tables(request, cells_folder, outcome.missing, outcome.places))
    return int(outcome.failed)


def _compute(request: Request, workers: int, threads: int, older: bool) -> "Outcome":
    from ens10.experiments.runner.running import run_cells
    from ens10.experiments.runner.trainings import OPTIMUM, place_of

    cells, refusals = find_all(request)
    print(f"{len(cells)} cells: {len(request.tasks)} tasks, {len(request.rows)} models, ", end="")
    print(f"{request.seeds} seeds", flush=True)
    outcome = run_cells(cells, refusals, workers=workers, threads=threads, older=older)
    if request.store is None:
        _keep_optima(cells)
    optima = {place_of(cell.task, cell.seed, OPTIMUM) for cell in cells}
    return replace(outcome, places=(outcome.places or frozenset()) | optima)


def _keep_optima(cells: "Sequence[ModelCell]") -> None:
    """Score and keep the best possible forecast, which is known for ensembles of all members."""
    from ens10.experiments.runner.trainings import keep_optimum

    full_cells = [cell for cell in cells if cell.task and cell.task.members == MEMBERS]
    for _, group in groupby(full_cells, lambda cell: (cell.seed, cell.task)):
        keep_optimum(list(group))
