"""One run of `prepare`: what is left to do, in which order, and how it ends."""

import errno
import hashlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.convert import finishing
from ens10.convert.files import DiskFullError, Folder, place
from ens10.convert.identity import Plan, differences
from ens10.convert.planning import Planned, axes_of, planned_sums, planned_units
from ens10.convert.selection import Selection
from ens10.convert.sources import Inputs, paired_with
from ens10.convert.structure import create, form_of
from ens10.convert.workers import grouped, work_on
from ens10.durable import sync_files
from ens10.errors import ArgumentError, FileError
from ens10.progress import bar
from ens10.store.manifest import NAME, encoded, files_of
from ens10.untrusted import parse_json


class Engine:
    """Builds a store under its provisional name, or goes on with it.

    Args:
        store: where it will be.
        partial: where it is until then; locked by the caller.
        plan: options and sources.
        force: begin anew if what is there has another plan.
        workers: processes.
        scheduler: of a cluster, or None.
        progress: show bars and say what is done.
    """

    def __init__(
        self,
        store: Path,
        partial: Path,
        plan: Plan,
        force: bool,
        workers: int,
        scheduler: str | None,
        progress: bool,
    ) -> None:
        self.store, self.plan, self.force = store, plan, force
        self.workers, self.scheduler, self.progress = workers, scheduler, progress
        token = hashlib.sha256(encoded(plan)).hexdigest()[:16]
        self.folder = Folder(partial.absolute(), token)
        self._left: dict[str, int] = {}  # bytes of the units in hand that are not done yet

    def run(
        self,
        inputs: Inputs,
        selection: Selection,
        ensembles: Sequence[int],
        climate: Any,
    ) -> None:
        """Does all that is left to do, and gives the store its name."""
        path = self.folder.store
        begun = self._begun()
        if begun and (path / NAME).exists():
            finishing.publish(self.folder, self.store)
            return
        shutil.rmtree(self.folder.scratch.parent, ignore_errors=True)
        self.folder.scratch.mkdir(parents=True)
        missing = self.plan["options"]["missing"]
        forecasts, paired = paired_with(inputs, selection, missing, self.workers, self.progress)
        _check_ensembles(ensembles, forecasts.template.sizes["number"])
        if climate is not None:
            from ens10.quantiles import check_climate

            check_climate(forecasts.template, climate)
        self._structure(begun, forecasts.template, paired, ensembles)
        options = self.plan["options"]
        form = form_of(
            path, forecasts.template, ensembles, options["any_values"], options.get("places", False)
        )
        with self._explained():
            kept_apart = not isinstance(inputs.truth, xr.Dataset | None)
            where = str(inputs.truth) if kept_apart else "truth"
            self._work("prepare", planned_units(forecasts, form, paired, where))
            self._work("sums", planned_sums(path, forecasts.template, form))
            if climate is not None:
                self._climate(climate)
            finishing.complete(self.folder, self.plan)
            finishing.publish(self.folder, self.store)

    def _begun(self) -> bool:
        """Whether a store of this plan was begun; makes room if another one was.

        Raises:
            FileError: another store was begun, or something else lies there.
        """
        path = self.folder.path
        if not any(path.iterdir()):
            return False
        held = _plan_of(self.folder)
        if held is not None:
            told = differences({key: held.get(key) for key in self.plan}, self.plan)
            if not told:
                self.plan["axes"] = held["axes"]
                self.plan["options"]["places"] = held["options"].get("places", False)
                return True
            if not self.force:
                raise FileError(
                    path,
                    f"a store that was begun otherwise ({'; '.join(told)})",
                    "Go on with the options it was begun with, or begin anew with --force",
                )
        elif not self._is_ours():
            raise FileError(path, "in the way, and no store that was begun", "Move it away")
        finishing.clear(path)
        return False

    def _structure(
        self, begun: bool, forecasts: xr.Dataset, truth: xr.Dataset | None, ensembles: Sequence[int]
    ) -> None:
        """Creates the empty store and records its plan; or checks that the plan still fits."""
        folder, axes = self.folder, axes_of(forecasts, truth)
        if begun:
            told = differences(self.plan["axes"], axes)
            if not told:
                return
            if not self.force:
                raise FileError(
                    folder.path,
                    f"the source has changed since the store was begun ({'; '.join(told)})",
                    "Begin anew with --force",
                )
            finishing.clear(folder.path)
            folder.scratch.mkdir(parents=True)
        self.plan["axes"] = axes
        create(folder.store, forecasts, truth, self.plan["options"]["codec"], ensembles)
        (folder.path / "units").mkdir()
        sync_files(folder.store, files_of(folder.store))
        content = np.frombuffer(encoded(self.plan), np.uint8)
        place(folder.scratch, folder.path, [(folder.plan.name, content)])

    def _work(self, what: str, units: Sequence[Planned]) -> None:
        """Does the units that are not done yet."""
        done = self.folder.done()
        self._left = {unit.name: unit.size for unit in units if unit.name not in done}
        if not self._left:
            return
        there = len(units) - len(self._left)
        if there:
            self._say(f"resuming: {there} of {len(units)} units are there")
        self._check_space(sum(self._left.values()))
        total = sum(unit.size for unit in units)
        begun = total - sum(self._left.values())
        jobs = grouped((unit.size, unit.make()) for unit in units if unit.name not in done)
        with bar(what, total, self.progress, done=begun, in_bytes=True) as advance:

            def finished(name: str) -> None:
                advance(self._left.pop(name, 0))

            work_on(self.folder, jobs, self.workers, self.scheduler, finished)

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.folder.path).free
        if self.progress and needed > 10_000_000:
            self._say(f"{_gigabytes(needed)} to write, {_gigabytes(free)} free")
        if needed > free:
            raise FileError(
                self.store,
                f"it needs {_gigabytes(needed)}, and {_gigabytes(free)} are free",
                "Make room, or choose another disk",
            )

    def _climate(self, climate: Any) -> None:
        from ens10.quantiles import write_climate

        write_climate(self.folder.store, climate, workers=self.workers, progress=self.progress)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says what to do when the disk is full."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not (full or isinstance(error, DiskFullError)):
                raise
            path = error.path if isinstance(error, FileError) else error.filename or self.store
            raise FileError(
                path,
                f"no space is left on the disk; {_gigabytes(sum(self._left.values()))} are needed",
                "Make room and run again: it resumes",
            ) from error

    def tidy_up(self) -> None:
        """Removes all temporary files, and everything if there is nothing to go on with."""
        path = self.folder.path
        shutil.rmtree(self.folder.scratch.parent, ignore_errors=True)
        if path.exists() and not self.folder.plan.exists() and self._is_ours():
            finishing.clear(path)
            path.rmdir()

    def _is_ours(self) -> bool:
        """Whether the folder holds nothing but what a run leaves."""
        ours = {".tmp", "units", "store", self.folder.plan.name}
        return {inside.name for inside in self.folder.path.iterdir()} <= ours

    def _say(self, words: str) -> None:
        if self.progress:
            print(words, file=sys.stderr)


def _check_ensembles(ensembles: Sequence[int], members: int) -> None:
    wrong = [k for k in ensembles if not 1 <= k <= members]
    if wrong:
        raise ArgumentError("ensembles", f"the first {wrong[0]} of {members} members", "Give fewer")


def _plan_of(folder: Folder) -> Plan | None:
    """The plan of a store that was begun, None if it was not recorded yet."""
    try:
        plan: Plan = parse_json(folder.plan.read_bytes())
    except (OSError, ValueError):
        return None
    return plan


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
