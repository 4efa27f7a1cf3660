"""`prepare`: read each field of the source once, and write forecasts, truth and statistics.

The work is divided into units, one for each date and step. A store that is being written has the
suffix `.partial`; rerunning the same call resumes it after any interruption. The store gets its
name when it is complete, so a store with its final name is complete. Its bytes depend only on the
data and the options.
"""

import errno
import hashlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import xarray as xr

from ens10.command_options import PrepareOptions
from ens10.convert.empty_store import create, form_of
from ens10.convert.files import DiskFullError, Folder, partial_store, write_files
from ens10.convert.plan import (
    Plan,
    Source,
    differences,
    files_of_source,
    size_of,
    source_identity,
)
from ens10.convert.sources import Forecasts, GribForecasts, Inputs, open_inputs
from ens10.convert.work_units import (
    EmptyFieldError,
    PlannedUnit,
    axes_of,
    empty_fields,
    planned_sums,
    planned_units,
)
from ens10.convert.workers import group_units, work_on, workers_for
from ens10.durable import leftovers, sync_files
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError, printable
from ens10.extras import cluster_library
from ens10.options import chosen, takes
from ens10.partial import INPUTS, PLAN, Partial, changed_inputs, check_target, fingerprints
from ens10.progress import bar
from ens10.selection import Selection
from ens10.source.names import Names, names_of
from ens10.source.regridding import Regrid
from ens10.source.stores import dataset_of
from ens10.stations import has_stations
from ens10.store import store_kinds
from ens10.store.manifest import (
    COPY,
    NAME,
    assemble_manifest,
    encode_json,
    files_of,
    read_plan,
    to_json_types,
)

_FEW_POINTS = 16  # of a grid whose dates share chunks
_SMALL_BYTES = 1 << 14  # of the members of a date that shares its chunk with others
_SHARED_BYTES = 1 << 20  # of a chunk of several dates


@takes(PrepareOptions)
def prepare(
    src: Source | xr.DataTree,
    store: Path | str,
    options: PrepareOptions | None = None,
    *,
    progress: bool = False,
    **named: Any,
) -> Path:
    """Build a store from forecasts and, if given, the truth of their valid dates.

    Rerun the same call to resume after an interruption. A store that exists and was made with the
    same options is left unchanged. Sources whose files have equal names and sizes count as equal.

    Args:
        src: GRIB or netCDF file, table of stations (CSV, Parquet), folder of such files, Zarr
            store, icechunk repository, kerchunk references, or a lazy dataset or tree of them.
        store: folder to write; see `ens10.store` for its layout.
        options: of the command; None for its defaults.
        progress: show a progress bar.
        **named: single options.

    Returns:
        The store's path.

    Examples:
        >>> import ens10
        >>> str(ens10.prepare("world", "store.zarr", truth="world/truth"))
        'store.zarr'

    Raises:
        FileError: `store` is another one or is being written, the disk is too small, or an input
            cannot be read.
        MissingDataError: fields, or truth at valid dates, are missing.
        ArgumentError: the truth is on another grid, or a selected variable, level, step, member or
            date does not exist.
    """
    options = chosen(PrepareOptions, options, named)
    store, names = Path(store), names_of(options.names) or Names()
    names = replace(names, group=options.group or names.group)
    truth_names, regrid = names_of(options.truth_names), options.regrid
    source: Source = dataset_of(src, names.group, "src")
    truth_group = truth_names.group if truth_names else ""
    truth_source: Source | None = dataset_of(options.truth, truth_group, "truth")
    inputs = Inputs(source, truth_source, names, truth_names, regrid)
    truth_mapping = inputs.names_of_truth()  # refused before anything is read
    if regrid is not None:
        if regrid not in get_args(Regrid):
            raise UnknownNameError("regrid", regrid, get_args(Regrid))
        if truth_mapping is None:
            raise ArgumentError("regrid", "there is no truth", "Pass it with --truth")
    selection = Selection.of(
        options.variables, options.levels, options.steps, options.members, options.dates
    )
    climate = _climate(options)
    recorded = {
        "selection": selection.to_dict(),
        "names": to_json_types(names.record()),
        "truth_names": to_json_types(truth_names and truth_names.record()),
        "ensembles": sorted(set(map(int, options.ensembles))),
        "codec": options.codec,
        "missing": options.missing,
        "climate": to_json_types(climate),
        "any_values": bool(options.any_values),
        "places": True,  # chunks record their path; see ens10.packed16.layout
    }
    if regrid is not None:  # plans of other stores are as before
        recorded["regrid"] = regrid
    identities = {"source": source_identity(source), "truth": source_identity(truth_source)}
    plan = {"options": recorded, **identities}
    if options.codec not in ("none", "lz4"):
        raise ArgumentError("codec", f"{options.codec!r} is not known", "Choose 'none' or 'lz4'")
    count, force = workers_for(size_of(source), options.workers), options.force
    if _is_complete(store, plan, force):
        if progress:
            print(f"{printable(store)} is complete: nothing to do", file=sys.stderr)
        return store
    scheduler = options.scheduler
    if scheduler is not None:
        cluster_library()  # refused before anything is written
    store.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_store(store)
    with partial.lock("ens10 prepare"):
        if not force and _is_complete(store, plan, force):  # another run has just ended
            return store
        builder = StoreBuilder(store, partial, plan, force, count, scheduler, progress)
        try:
            builder.run(inputs, selection, recorded["ensembles"], climate)
        finally:
            builder.tidy_up()
    return store


def _climate(options: PrepareOptions) -> Any:
    """Return the options of the model climate, which may be given as words such as t2m@48."""
    climate = options.climate
    if not (isinstance(climate, list | tuple) and climate):
        return climate
    from ens10.quantiles import parse_climate

    levels, protocol = options.climate_levels, options.climate_protocol
    return parse_climate(climate, levels=levels, protocol=protocol)


def _is_complete(store: Path, plan: Plan, force: bool) -> bool:
    """Return True if the store exists, is complete and has the same plan.

    Raises:
        FileError: another store, or something that is no store, exists there.
    """
    if not store.exists() or (store.is_dir() and not any(store.iterdir())):
        return False
    if force:
        check_target(store, force, is_prepared_store, "a store")
        return False
    remedy = "Choose another folder, or give --force"
    try:
        stored_plan = read_plan(store)
    except FileError as error:
        raise FileError(store, "exists already", remedy) from error
    changes = differences({key: stored_plan.get(key) for key in plan}, plan)
    if changes:
        raise FileError(store, f"exists already, with other options ({'; '.join(changes)})", remedy)
    sweep(store)
    return True


def is_prepared_store(path: Path) -> bool:
    """Return True if `prepare` wrote a folder."""
    try:
        store_kinds(path)
    except FileError:
        return False
    return True


class StoreBuilder:
    """Builds a store in a partial folder, or resumes it, and renames it when it is complete.

    Args:
        store: path of the complete store.
        partial: the partial store; locked by the caller.
        plan: options and sources.
        force: start over if the existing partial store has another plan.
        workers: processes.
        scheduler: address of a dask.distributed scheduler, or None.
        progress: show progress bars and messages.
    """

    def __init__(
        self,
        store: Path,
        partial: Partial,
        plan: Plan,
        force: bool,
        workers: int,
        scheduler: str | None,
        progress: bool,
    ) -> None:
        self.store, self.partial, self.plan, self.force = store, partial, plan, force
        self.workers, self.scheduler, self.progress = workers, scheduler, progress
        token = hashlib.sha256(encode_json(plan)).hexdigest()[:16]
        self.folder = Folder(partial.path.absolute(), token)
        self._remaining_sizes: dict[str, int] = {}  # bytes of incomplete units
        self._fingerprints: dict[str, Any] = {}  # of the inputs, before anything is read

    def run(
        self,
        inputs: Inputs,
        selection: Selection,
        ensembles: Sequence[int],
        climate: Any,
    ) -> None:
        """Execute all remaining work, and give the store its final name."""
        path = self.folder.store
        files = {"source": files_of_source(inputs.src), "truth": files_of_source(inputs.truth)}
        resume = self._has_partial_store(files)
        if resume and (path / NAME).exists():
            self.partial.publish(path.name)
            return
        shutil.rmtree(self.folder.scratch.parent, ignore_errors=True)
        self.folder.scratch.mkdir(parents=True)
        missing = self.plan["options"]["missing"]
        forecasts, truth = open_inputs(inputs, selection, missing, self.workers, self.progress)
        is_separate = not isinstance(inputs.truth, xr.Dataset | None)
        label = str(inputs.truth) if is_separate else "truth"
        if missing == "skip":
            forecasts, truth = self._without_empty_fields(forecasts, truth, label)
        _check_ensembles(ensembles, forecasts.template.sizes["number"])
        if climate is not None:
            from ens10.quantiles import check_climate

            check_climate(forecasts.template, climate)
        self._create_structure(resume, forecasts, truth, ensembles)
        options = self.plan["options"]
        flags = (options["any_values"], options.get("places", False), missing == "error")
        dates = options.get("chunk_dates", 1)
        form = form_of(path, forecasts.template, ensembles, *flags, dates=dates)
        with self._disk_full_error():
            try:
                self._execute("prepare", planned_units(forecasts, form, truth, label))
            except EmptyFieldError as error:
                raise self._empty_fields_error(forecasts, truth, label) from error
            self._execute("sums", planned_sums(path, forecasts.template, form))
            if climate is not None:
                self._write_climate(climate)
            complete(self.folder, self.plan)
            self.partial.publish(path.name)

    def _without_empty_fields(
        self, forecasts: Forecasts, truth: xr.Dataset | None, label: str
    ) -> tuple[Forecasts, xr.Dataset | None]:
        """Leave out the dates with a field that has no value.

        Raises:
            MissingDataError: all dates have one.
        """
        empty = {
            date
            for where, fields in _fields_to_check(forecasts, truth, label)
            for date in empty_fields(fields, where, progress=self.progress)
        }
        times = forecasts.template["time"]
        complete = [n for n in range(times.size) if n not in empty]
        if not complete:
            raise self._empty_fields_error(forecasts, truth, label)
        if not empty:
            return forecasts, truth
        return (
            forecasts.at(times.isel(time=complete)),
            None if truth is None else truth.isel(time=complete),
        )

    def _empty_fields_error(
        self, forecasts: Forecasts, truth: xr.Dataset | None, label: str
    ) -> MissingDataError:
        """Return the error that lists all fields without any value; all values are read."""
        lines = []
        for where, fields in _fields_to_check(forecasts, truth, label):
            found = empty_fields(fields, where, progress=self.progress)
            prefix = f"{where}: " if fields is truth else ""
            lines += [f"{prefix}{line}" for date in found.values() for line in date]
        remedy = "Fetch them again, or accept the gaps with --missing nan or --missing skip"
        return MissingDataError(self.store, lines, remedy)

    def _has_partial_store(self, files: dict[str, list[Path]]) -> bool:
        """Return True if a partial store of this plan exists; --force clears one of another plan.

        Args:
            files: of the inputs.

        Raises:
            FileError: a partial store with other options or of other files exists.
        """
        stored_plan = self.partial.read_plan()
        if stored_plan is not None:
            changes = differences({key: stored_plan.get(key) for key in self.plan}, self.plan)
            if INPUTS in stored_plan:  # earlier versions recorded none
                changes += changed_inputs(stored_plan[INPUTS], files)
            if not changes:
                self.plan["axes"] = stored_plan["axes"]
                self.plan["options"]["places"] = stored_plan["options"].get("places", False)
                if "chunk_dates" in stored_plan["options"]:
                    self.plan["options"]["chunk_dates"] = stored_plan["options"]["chunk_dates"]
                self._fingerprints = stored_plan.get(INPUTS) or fingerprints(files)
                return True
            if not self.force:
                raise FileError(
                    self.partial.path,
                    f"a partial store with different options exists ({'; '.join(changes)})",
                    "Use the options it was begun with, or start over with --force",
                )
        self.partial.clear()
        self._fingerprints = fingerprints(files)
        return False

    def _create_structure(
        self,
        resume: bool,
        forecasts: Forecasts,
        truth: xr.Dataset | None,
        ensembles: Sequence[int],
    ) -> None:
        """Create the empty store and record its plan, or check the recorded plan."""
        folder, axes = self.folder, axes_of(forecasts.template, truth)
        if resume:
            changes = differences(self.plan["axes"], axes)
            if not changes:
                return
            if not self.force:
                raise FileError(
                    folder.path,
                    f"the source has changed since the store was begun ({'; '.join(changes)})",
                    "Start over with --force",
                )
            self.partial.clear()
            folder.scratch.mkdir(parents=True)
        self.plan["axes"] = axes
        options = self.plan["options"]
        dates = dates_of_chunk(forecasts, options["codec"])
        if dates > 1:  # plans of other stores are as before
            options["chunk_dates"] = dates
        create(folder.store, forecasts.template, truth, options["codec"], ensembles, dates)
        (folder.path / "units").mkdir()
        sync_files(folder.store, files_of(folder.store))
        self.partial.write_plan({**self.plan, INPUTS: self._fingerprints})

    def _execute(self, label: str, units: Sequence[PlannedUnit]) -> None:
        """Execute the incomplete units.

        Args:
            label: of the progress bar.
            units: all units, complete or not.
        """
        complete_names = self.folder.complete_units()
        self._remaining_sizes = {
            unit.name: unit.size for unit in units if unit.name not in complete_names
        }
        if not self._remaining_sizes:
            return
        complete_count = len(units) - len(self._remaining_sizes)
        if complete_count:
            self._print(f"resuming: {complete_count} of {len(units)} units are there")
        self._check_space(sum(self._remaining_sizes.values()))
        total = sum(unit.size for unit in units)
        complete_size = total - sum(self._remaining_sizes.values())
        jobs = group_units(
            (unit.size, unit.make()) for unit in units if unit.name not in complete_names
        )
        with bar(label, total, self.progress, initial=complete_size, in_bytes=True) as advance:

            def advance_unit(name: str) -> None:
                advance(self._remaining_sizes.pop(name, 0))

            work_on(self.folder, jobs, self.workers, self.scheduler, advance_unit)

    def _check_space(self, size: int) -> None:
        free = shutil.disk_usage(self.folder.path).free
        if self.progress and size > 10_000_000:
            self._print(f"{_gigabytes(size)} to write, {_gigabytes(free)} free")
        if size > free:
            raise FileError(
                self.store,
                f"it needs {_gigabytes(size)}, and {_gigabytes(free)} are free",
                "Make room, or choose another disk",
            )

    def _write_climate(self, climate: Any) -> None:
        from ens10.quantiles import write_climate

        write_climate(self.folder.store, climate, workers=self.workers, progress=self.progress)

    @contextmanager
    def _disk_full_error(self) -> Iterator[None]:
        """Convert the errors of a full disk to a FileError with the space that is needed."""
        try:
            yield
        except OSError as error:
            disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not (disk_full or isinstance(error, DiskFullError)):
                raise
            path = error.path if isinstance(error, FileError) else error.filename or self.store
            raise FileError(
                path,
                "no space is left on the disk; "
                f"{_gigabytes(sum(self._remaining_sizes.values()))} are needed",
                "Make room and run again: it resumes",
            ) from error

    def tidy_up(self) -> None:
        """Remove all temporary files, and the partial store if it cannot be resumed."""
        shutil.rmtree(self.folder.scratch.parent, ignore_errors=True)
        if PLAN not in self.partial.entries():
            self.partial.discard()

    def _print(self, message: str) -> None:
        if self.progress:
            print(message, file=sys.stderr)


def _fields_to_check(
    forecasts: Forecasts, truth: xr.Dataset | None, label: str
) -> list[tuple[str, xr.Dataset]]:
    """Return what may have whole fields of NaN, each with its source.

    Missing GRIB messages of forecasts are known before, and stations may lack any value.
    """
    fields = []
    if not isinstance(forecasts, GribForecasts):
        fields.append((forecasts.label, forecasts.template))
    if truth is not None:
        fields.append((label, truth))
    return [] if has_stations(forecasts.template) else fields


def dates_of_chunk(forecasts: Forecasts, codec: str) -> int:
    """Return how many dates share a chunk: several if those of stations or few points are small.

    GRIB fields keep their packing, and compressed chunks are those of one date.
    """
    sizes = forecasts.template.sizes
    points = sizes["latitude"] * sizes["longitude"]
    size = 4 * points * sizes["number"]
    is_small = size <= _SMALL_BYTES and (has_stations(forecasts.template) or points <= _FEW_POINTS)
    if not is_small or codec != "none" or isinstance(forecasts, GribForecasts):
        return 1
    return min(_SHARED_BYTES // size, sizes["time"])


def _check_ensembles(ensembles: Sequence[int], members: int) -> None:
    wrong = [k for k in ensembles if not 1 <= k <= members]
    if wrong:
        k = max(wrong)
        reason = f"needs {k} members, found {members}" if k > members else f"{k} is less than 1"
        raise ArgumentError("ensembles", reason, "Choose fewer")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def complete(folder: Folder, plan: Plan) -> None:
    """Write the manifest and the consolidated metadata, after removing leftovers of a kill."""
    for where in (".", "climate", "climate/*", "manifest", "manifest/*"):
        for leftover in folder.store.glob(f"{where}/zarr.*.partial"):
            leftover.unlink()  # of a run that was killed while zarr wrote
    write_manifest(folder, plan)


def sweep(store: Path) -> None:
    """Remove the files that a run left if it was killed after the store got its final name."""
    partial = partial_store(store)
    if partial.path.is_dir() or leftovers(store.parent, store.name):
        # unless another process is at work there, or it is not a partial store
        with suppress(OSError), partial.lock("ens10 prepare"):
            if "store" not in partial.entries():
                partial.discard()


def write_manifest(folder: Folder, plan: dict[str, Any]) -> None:
    """Write the manifest from the entries of all units and all other files of the store."""
    units = sorted(folder.complete_units())
    lines = [f'"{unit}":'.encode() + folder.entry(unit).read_bytes() for unit in units]
    unit_paths = {row[0] for unit in units for row in folder.rows(unit)}
    arrays = {path.rpartition("/c/")[0] for path in unit_paths}
    other_paths = [path for path in files_of(folder.store, arrays) if path not in unit_paths]
    content = assemble_manifest(folder.store, plan, lines, [], other_paths)
    write_files(folder.scratch, folder.store, [(COPY, content)])
    # The manifest comes last: a store that has it is complete.
    write_files(folder.scratch, folder.store, [(NAME, content)])
