"""Cells that train a configuration: one model and seed, on a world or on prepared data."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy.typing as npt
import xarray as xr
import yaml

from ens10.durable import whole_path, write_whole
from ens10.errors import ArgumentError, Ens10Error, FileError, MissingDataError
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.key import Key, differences, digest_of, key_of
from ens10.experiments.runner.results import KEY
from ens10.experiments.runner.sizes import score_sizes, takes_members
from ens10.experiments.runner.tasks import Task, config_of, load_budget, task_options
from ens10.experiments.runs import provenance
from ens10.experiments.runs.claims import claim
from ens10.experiments.runs.provenance import FILE as PROVENANCE
from ens10.experiments.runs.raw_ensemble import open_raw, with_name
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.runs.trust import write_config
from ens10.experiments.scoring.optimum import score_optimum
from ens10.experiments.scoring.run_results import (
    EXTREMES,
    LOG,
    SCORES,
    SIZES,
    FinishedRun,
    load_states,
    read_run,
    save_states,
)
from ens10.experiments.scoring.score import score_run
from ens10.experiments.training.data_numbers import read_config
from ens10.experiments.training.run import run_stage
from ens10.metrics import score_states
from ens10.protocol import Protocol, content_of, protocol_of, reference_of
from ens10.synthetic import World
from ens10.untrusted import parse_json, read_mapping

CONFIG, OPTIMUM = "config.yaml", "optimum"
_PROTOCOL = "--data.protocol="


@dataclass(frozen=True)
class ModelCell(Cell):
    """One model and seed.

    Args:
        model: name of the run and of the configuration.
        seed: of the world and of the training.
        config: the configuration file.
        work: folder of all seeds' data and runs.
        out: folder of the study's results.
        overrides: options for `ens10 fit` besides the configuration.
        budget: name of the budget that the overrides are of; its runs have folders of their own.
        task: that the configuration is carried over to; None to take it as it is.
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
        """Model, seed or variant in words, for progress and error messages."""
        about = f" ({self.task.name})" if self.task else ""
        return f"{self.model}, seed {self.seed}{about}"

    @property
    def folder(self) -> Path:
        """Folder of the seed's data and runs."""
        return self.work / f"seed{self.seed}"

    @property
    def store(self) -> Path:
        """The prepared data."""
        return self.data or self.folder / "store.zarr"

    @property
    def scratch(self) -> Path:
        """Folder of the runs, claims and logs of its seed, budget and task."""
        return self.folder / (self.budget or "plain") / (self.task.folder if self.task else "")

    @property
    def run(self) -> Path:
        """The run folder, with checkpoints and predictions."""
        return self.scratch / "runs" / self.model

    @property
    def place(self) -> str:
        """Its place in the archive, by task, seed and model."""
        return place_of(self.task, self.seed, self.model)

    @property
    def start_key_file(self) -> Path:
        """File of the key that the run had when its training started."""
        return self.scratch / "keys" / f"{self.model}.json"

    @property
    def has_network(self) -> bool:
        """Whether it trains a network: other seeds then give other results on the same data."""
        return "network" in read_mapping(self.config)["model"].get("init_args", {})

    def current_key(self) -> Key:
        """Return the key, which includes the content of the protocol."""
        content = read_config(self.config)
        rules = self._rules(content)
        # by its name wherever its file is: a folder that was moved is no other protocol
        overrides = [
            f"{_PROTOCOL}{rules.name}" if word.startswith(_PROTOCOL) else word
            for word in self.overrides
        ]
        settings = {"config": content, "overrides": overrides, "seed": self.seed}
        settings["protocol"] = content_of(rules)
        return key_of(settings, provenance.checksum(self.store))

    def _rules(self, config: dict[str, Any]) -> Protocol:
        """Return the protocol; the last option that names one decides."""
        options = [w.removeprefix(_PROTOCOL) for w in self.overrides if w.startswith(_PROTOCOL)]
        return protocol_of([config.get("data", {}).get("protocol", "clean"), *options][-1])

    def changes_since_start(self) -> list[str] | None:
        """Return what differs from the key at the start of the run; None if it has not started."""
        if not self.start_key_file.is_file():
            return None
        return differences(_read_key(self.start_key_file), self.key)

    def fit(self) -> None:
        """Train the model or resume its training; return at once if it is trained.

        Raises:
            Ens10Error: as `ens10 fit`.
        """
        if self.changes_since_start() or not (self.run / PROVENANCE).exists():
            shutil.rmtree(self.run, ignore_errors=True)
            self.write_start_key()
            options = ["--data.store", str(self.store), "--seed_everything", str(self.seed)]
            config = ["--config", str(self.config), *self.overrides]
            run_stage(
                "fit", [*config, *options, "--run", str(self.run), "--quiet"], all_inputs=True
            )
            return
        self._update_store_path()
        if "seconds" not in provenance.read_provenance(self.run):
            run_stage("fit", ["--run", str(self.run), "--resume", "--quiet"])

    def write_start_key(self) -> None:
        """Write the present key as that of the start of the run."""
        self.start_key_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.start_key_file, json.dumps(self.key, indent=1, sort_keys=True) + "\n")

    def _update_store_path(self) -> None:
        """Write the present path of the data into the configuration of a started run."""
        path = self.run / CONFIG
        config = read_mapping(path)
        if config["data"]["store"] != str(self.store):  # the folder was moved
            config["data"]["store"] = str(self.store)
            write_config(path, config, derived_from=path)

    def compute(self) -> dict[str, bytes]:
        """Train, predict and score, or resume where an earlier process was interrupted.

        The EECRPS is left out, with a line in the log, if no model climate can be made, for example
        from too few years.

        Raises:
            Ens10Error: as `ens10 fit`, `predict` and `score`.
        """
        self.fit()
        return self.finish()

    def finish(self) -> dict[str, bytes]:
        """Predict and score a trained model; return the files to keep.

        These are the states of its scores without maps, provenance, configuration and log: some
        15 KB, from which tables, intervals and comparisons are made.

        Raises:
            Ens10Error: as `ens10 predict` and `score`.
        """
        run_stage("predict", ["--run", str(self.run), "--quiet"])
        score_run(self.run)
        if takes_members(self.run) and not (self.run / SIZES).exists():
            score_sizes(self.run)
        try:
            score_extremes(self)
        except (ArgumentError, MissingDataError) as error:  # such as too few years for a climate
            print(f"no EECRPS: {error}", file=sys.stderr)
        return self._small_files()

    def _small_files(self) -> dict[str, bytes]:
        names = (PROVENANCE, LOG, SIZES, EXTREMES)
        files = {n: (self.run / n).read_bytes() for n in names if (self.run / n).exists()}
        config = read_mapping(self.run / CONFIG)
        config["data"]["store"] = self.store.name  # no machine's paths in a result
        files[CONFIG] = yaml.safe_dump(config, sort_keys=False).encode()
        files[SCORES] = states_file(load_states(self.run / SCORES))
        return files


def place_of(task: Task | None, seed: int, model: str) -> str:
    """Return the place of a cell in the archive."""
    folder = f"{task.folder}/" if task and task.folder else ""
    return f"{folder}seed{seed}/{model}"


def states_file(states: xr.Dataset) -> bytes:
    """Return score states without their maps as the content of a small netCDF file."""
    maps = [dim for dim in ("latitude", "longitude") if dim in states.dims]
    with TemporaryDirectory(prefix="ens10-states-") as folder:
        path = Path(folder) / SCORES
        # the classic form: a third of the bytes, without HDF's own
        save_states(states.drop_dims(maps), path, "NETCDF3_64BIT")
        return path.read_bytes()


def read_cell(folder: Path) -> FinishedRun:
    """Return the run of an unpacked cell.

    Raises:
        FileError: a file that cannot be read.
    """
    try:
        return read_run(folder)
    except FileError as error:
        remedy = "Delete the archive of results, or restore it: its cells are then computed again"
        raise FileError(error.path, "a kept result that cannot be read", remedy) from error


def score_extremes(cell: ModelCell) -> None:
    """Write the states of a predicted run's EECRPS into its folder.

    The index is that of all raw members, also for an ensemble of fewer, so that all forecasts
    have the same weights. The climate is the store's if it has that of the cell's protocol, and is
    made from the members otherwise, by the method of that protocol's index.

    Raises:
        Ens10Error: no members, or too few years or dates for a climate.
    """
    record = provenance.read_provenance(cell.run)
    forecast, truth = open_predictions(cell.run)
    rules = provenance.rules_of(record)
    states = score_states(
        with_name(forecast, cell.run),
        truth,
        ["eecrps"],
        weights=record["weights"],
        raw=open_raw(cell.store, record["target"], forecast),
        climate=_climate(cell.store, record, rules, forecast["time"].to_numpy()),
        efi_method=rules.efi.method,
        scores_raw=cell.model == "raw",
    )
    with whole_path(cell.run / EXTREMES) as file:
        save_states(states, file, "NETCDF3_64BIT")


def _climate(
    store: Path, record: dict[str, Any], rules: Protocol, dates: npt.NDArray[Any]
) -> xr.DataArray:
    from ens10.quantiles import model_climate, stored_climate
    from ens10.store import open_store, store_kinds

    channel, step = record["target"], int(record["step"])
    if "climate" in store_kinds(store):
        climate = open_store(store, "climate")
        climate_rules = climate.attrs.get("rules") or climate.attrs.get("protocol")
        if climate_rules == reference_of(rules) and channel in climate:
            return stored_climate(store, channel, dates, step=step)
    return model_climate(store, channel, step=step, dates=dates, protocol=rules)


def find_cells(
    models: Sequence[str],
    seeds: Sequence[int],
    work: Path,
    out: Path,
    configs: Path,
    budget: str | None = None,
    task: Task | None = None,
    data: Path | None = None,
) -> list[ModelCell]:
    """Return the cells of models and seeds, all models of a seed together.

    Args:
        models: names of configurations.
        seeds: one world each.
        work: folder for data and runs.
        out: folder for results.
        configs: folder of the configurations.
        budget: see `load_budget`.
        task: to which the configurations are carried over, which needs the data; None to use them
            unchanged.
        data: prepared data of all seeds, in place of a world for each.

    Raises:
        FileError: a model has no configuration.
        UnknownNameError: no such budget.
        ArgumentError: a configuration that cannot be carried over to the task; see `task_options`.
    """
    options = load_budget(budget)
    cells = []
    for seed in seeds:
        for model in models:
            arguments = (config_of(model, configs), work, out, options.get(model, ()), budget)
            cell = ModelCell(model, seed, *arguments, task, data)
            if task is not None:
                try:
                    changes = task_options(cell.config, task, cell.store)
                except Ens10Error as error:
                    raise ArgumentError(f"model {model}", str(error)) from error
                cell = replace(cell, overrides=(*cell.overrides, *changes))
            cells.append(cell)
    return cells


def keep_optimum(cells: Sequence[ModelCell]) -> None:
    """Score and keep the best possible forecast on the dates of the first predicted cell.

    Args:
        cells: of one seed and task, on that seed's world.
    """
    kept_places = set(cells[0].results.places()) if cells else set()
    cell = next((c for c in cells if (c.run / SCORES).exists() and c.place in kept_places), None)
    if cell is None:
        return
    run = cell.run.with_name(OPTIMUM)
    world = cell.folder / "world"
    with claim(cell.claim.with_name(OPTIMUM)) as has_claim:
        if not has_claim:
            return
        key = {**cell.key, "config": digest_of({"model": OPTIMUM, "seed": cell.seed})}
        is_current = (run / KEY).is_file() and not differences(_read_key(run / KEY), key)
        if not (is_current and _same_weights(run, cell.run)):
            if not world.exists():  # deleted: it is large, and only the optimum needs it
                return
            score_optimum(World.load(world), cell.run, run)
            write_whole(run / KEY, json.dumps(key, indent=1, sort_keys=True) + "\n")
        files = {PROVENANCE: (run / PROVENANCE).read_bytes()}
        files[SCORES] = states_file(load_states(run / SCORES))
        cell.results.add(place_of(cell.task, cell.seed, OPTIMUM), files, key)


def _read_key(path: Path) -> Key:
    """Return the key in a file; an empty one, which differs from all, if it is damaged."""
    try:
        key: Any = parse_json(path.read_bytes())
    except ValueError:
        key = None
    return key if isinstance(key, dict) else {}


def _same_weights(optimum: Path, run: Path) -> bool:
    """Return True if an optimum was scored with the dates, points and weights of a run."""
    if not (optimum / SCORES).exists():
        return False
    try:
        mine, its = (load_states(folder / SCORES)["crps_weight"] for folder in (optimum, run))
    except FileError:
        return False
    return bool(mine.equals(its))
