"""A cell: one model with one seed, where it runs, and whether it is done."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import xarray as xr
import yaml

from ens10.durable import replace_folder, whole_path, write_whole
from ens10.errors import FileError
from ens10.experiments import provenance
from ens10.experiments.finished import (
    LOG,
    SCORES,
    SIZES,
    FinishedRun,
    read_run,
)
from ens10.experiments.matrix.budgets import load_budget
from ens10.experiments.matrix.identity import (
    Identity,
    differences,
    digest_of_content,
    identity_of,
)
from ens10.experiments.matrix.tasks import Task, task_options
from ens10.experiments.provenance import FILE as PROVENANCE
from ens10.experiments.statefile import load_states, save_states
from ens10.protocol import Protocol, content_of, protocol_of
from ens10.untrusted import parse_json, read_mapping

KEY = "cell.json"
EXTREMES = "eecrps.nc"
CONFIG = "config.yaml"
_PROTOCOL = "--data.protocol="
Status = Literal["missing", "complete", "older"]


@dataclass(frozen=True)
class Cell:
    """One model and seed.

    Args:
        model: its name, that of the run and of the configuration.
        seed: of the world and of the training.
        config: the configuration file.
        work: folder of all seeds' data and runs.
        out: folder of all seeds' kept results.
        overrides: options for `ens10 fit` besides the configuration.
        budget: name of the budget that the overrides are of; its runs have folders of their own.
        task: that the configuration is carried over to; None if it is taken as it is.
        data: prepared data of all seeds; None for those of each seed's world.
    """

    model: str
    seed: int
    config: Path
    work: Path
    out: Path
    overrides: tuple[str, ...] = ()
    budget: str | None = None
    task: Task | None = None
    data: Path | None = None

    @property
    def name(self) -> str:
        """As messages call it."""
        about = f" ({self.task.name})" if self.task else ""
        return f"{self.model}, seed {self.seed}{about}"

    @property
    def folder(self) -> Path:
        """Of the seed's data and runs."""
        return self.work / f"seed{self.seed}"

    @property
    def store(self) -> Path:
        """The prepared data."""
        return self.data or self.folder / "store.zarr"

    @property
    def _folder_of_task(self) -> str:
        return self.task.folder if self.task else ""

    @property
    def _runs(self) -> Path:
        return self.folder / (self.budget or "plain") / self._folder_of_task

    @property
    def run(self) -> Path:
        """The run folder, with checkpoints and predictions."""
        return self._runs / "runs" / self.model

    @property
    def claim(self) -> Path:
        """The file that says that somebody is at it."""
        return self._runs / "claims" / self.model

    @property
    def log(self) -> Path:
        """The file of what its process writes."""
        return self._runs / "logs" / f"{self.model}.txt"

    @property
    def kept(self) -> Path:
        """The folder of its small results, as `ens10 report` reads it."""
        return self.out / self._folder_of_task / f"seed{self.seed}" / self.model

    @property
    def process(self) -> list[str]:
        """Module and options of the process that does it."""
        given = {"model": self.model, "seed": self.seed, "work": self.work, "out": self.out}
        given |= {"budget": self.budget} if self.budget else {}
        given |= {"store": self.data} if self.data else {}
        if self.task is not None:
            task = self.task
            given |= {"protocol": task.protocol, "target": task.target, "members": task.members}
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        return ["ens10.experiments.matrix.running", *options]

    @cached_property
    def identity(self) -> Identity:
        """What its result depends on."""
        content = read_mapping(self.config)
        rules = self._rules(content)
        # by its name wherever its file lies: a folder that was moved is no other protocol
        overrides = [
            f"{_PROTOCOL}{rules.name}" if word.startswith(_PROTOCOL) else word
            for word in self.overrides
        ]
        whole = {"config": content, "overrides": overrides, "seed": self.seed}
        identity = identity_of(whole, provenance.checksum(self.store))
        # the protocols are data, so that their content is in no module
        identity["code"]["protocol"] = digest_of_content(content_of(rules))
        return identity

    def _rules(self, config: dict[str, Any]) -> Protocol:
        """The protocol, by the last that is said of it."""
        said = [w.removeprefix(_PROTOCOL) for w in self.overrides if w.startswith(_PROTOCOL)]
        return protocol_of([config.get("data", {}).get("protocol", "clean"), *said][-1])

    def changed(self) -> list[str] | None:
        """What has changed since the kept result was made; None if there is none."""
        return _changed(self.kept / KEY, self.identity)

    @property
    def begun(self) -> Path:
        """The file that says what the run was begun with."""
        return self._runs / "keys" / f"{self.model}.json"

    def changed_since_begun(self) -> list[str] | None:
        """What has changed since the run was begun; None if it was not."""
        return _changed(self.begun, self.identity)

    def status(self) -> Status:
        """Whether its result is kept; "older": by another configuration, other data or code."""
        changed = self.changed()
        if changed is None or not (self.kept / SCORES).exists():
            return "missing"
        return "older" if changed else "complete"


def keep(cell: Cell) -> None:
    """Puts a finished run's small results into their folder, all of them or none.

    These are the states of its scores without the maps, provenance, configuration and log: some
    15 KB, from which tables, intervals and comparisons are made.
    """
    partial = cell.kept.with_name(f"{cell.model}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / LOG).parent.mkdir(parents=True)
    states = load_states(cell.run / SCORES)
    # the classic form: a third of the bytes, without HDF's own
    save_states(without_maps(states), partial / SCORES, "NETCDF3_64BIT")
    for name in (PROVENANCE, LOG, SIZES, EXTREMES):
        if (cell.run / name).exists():
            shutil.copyfile(cell.run / name, partial / name)
    config = read_mapping(cell.run / CONFIG)
    config["data"]["store"] = cell.store.name  # no machine's paths in a result
    write_whole(partial / CONFIG, yaml.safe_dump(config, sort_keys=False))
    write_key(partial / KEY, cell.identity)
    replace_folder(partial, cell.kept)


def keep_optimum(run: Path, kept: Path) -> None:
    """As `keep`, for the best possible forecast, which depends on the data alone."""
    kept.mkdir(parents=True, exist_ok=True)
    states = without_maps(load_states(run / SCORES))
    write_whole(kept / PROVENANCE, (run / PROVENANCE).read_bytes())
    with whole_path(kept / SCORES) as file:
        save_states(states, file, "NETCDF3_64BIT")


def read_kept(folder: Path) -> tuple[FinishedRun, xr.Dataset | None]:
    """A kept cell: its run, and the states of its EECRPS if it has one.

    Raises:
        FileError: a file that cannot be read.
    """
    extremes = folder / EXTREMES
    try:
        return read_run(folder), load_states(extremes) if extremes.exists() else None
    except FileError as error:
        remedy = f"Delete the folder {folder}, and the cell is done again"
        raise FileError(error.path, "a kept result that cannot be read", remedy) from error


def without_maps(states: xr.Dataset) -> xr.Dataset:
    """The states that are not kept by grid point."""
    return states.drop_dims([dim for dim in ("latitude", "longitude") if dim in states.dims])


def write_key(path: Path, identity: Identity) -> None:
    """Writes what a result depends on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(identity, indent=1, sort_keys=True) + "\n")


def find_cells(
    models: Sequence[str],
    seeds: Sequence[int],
    work: Path,
    out: Path,
    configs: Path,
    budget: str | None = None,
    task: Task | None = None,
    data: Path | None = None,
) -> list[Cell]:
    """The cells of models and seeds, all models of a seed together.

    Args:
        models: names of configurations.
        seeds: one world each.
        work: folder for data and runs.
        out: folder for results.
        configs: folder of the configurations.
        budget: see `load_budget`.
        task: to carry the configurations over to, for which the data have to be there; None to
            take them as they are.
        data: prepared data of all seeds, in place of a world for each.

    Raises:
        FileError: a model has no configuration.
        UnknownNameError: no such budget.
        ArgumentError: a configuration that cannot be carried over to the task; see `task_options`.
    """
    options = load_budget(budget)
    found = []
    for seed in seeds:
        for model in models:
            usual = (config_of(model, configs), work, out, options.get(model, ()), budget)
            cell = Cell(model, seed, *usual, task, data)
            if task is not None:
                changes = task_options(cell.config, task, cell.store)
                cell = replace(cell, overrides=(*cell.overrides, *changes))
            found.append(cell)
    return found


def config_of(model: str, configs: Path) -> Path:
    """The configuration of a model.

    Raises:
        FileError: there is none.
    """
    path = configs / f"{model}.yaml"
    if path.is_file() and path.parent == configs:
        return path
    known = ", ".join(sorted(p.stem for p in configs.glob("*.yaml")))
    raise FileError(path, "no such configuration", f"Known: {known}")


def _changed(path: Path, identity: Identity) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        before: Any = parse_json(path.read_bytes())
    except ValueError:  # damaged: nobody knows what it was made with
        before = None
    return differences(before if isinstance(before, dict) else {}, identity)
