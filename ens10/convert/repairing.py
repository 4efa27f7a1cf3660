"""Make anew the units of a store that are damaged, from its source and nothing else."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ens10.convert.files import Folder, locked, place
from ens10.convert.finishing import clear
from ens10.convert.listing import located
from ens10.convert.planning import Planned, planned_sums, planned_units
from ens10.convert.selection import Selection
from ens10.convert.sources import Forecasts, Inputs, paired_with
from ens10.convert.structure import create, form_of
from ens10.convert.workers import grouped, work_on
from ens10.errors import FileError, MissingDataError, listing
from ens10.packed16.layout import crc32c
from ens10.progress import bar
from ens10.source.names import Names
from ens10.store import consolidate
from ens10.store.manifest import NAME, Manifest, describe
from ens10.untrusted import inside

_CLIMATE = "climate/"
_COPY_METADATA = "manifest/copy/zarr.json"
_COORDINATE = 4  # slashes in the path of a coordinate's chunk, at the most


def repair_units(
    store: Path,
    manifest: Manifest,
    wrong: set[str],
    source: Path | str | None,
    truth: Path | str | None,
    workers: int | None,
    progress: bool,
) -> list[str]:
    """Replaces the files that are wrong by what the source gives.

    Args:
        store: the store.
        manifest: its record.
        wrong: paths of the files that are damaged or missing.
        source: the forecasts it was made from; looked for beside the store if None.
        truth: likewise.
        workers: processes.
        progress: show a progress bar.

    Returns:
        The paths of the files that were replaced, sorted.

    Raises:
        FileError: the source is not at hand, or no longer gives what it gave.
    """
    units = {unit for unit, row in manifest.rows() if row[0] in wrong}
    with _workshop(store) as folder:
        forecasts, paired = _sources(store, manifest.plan, source, truth)
        options = manifest.plan["options"]
        create(folder.store, forecasts.template, paired, options["codec"], options["ensembles"])
        _copy_climate(store, folder, manifest, wrong)
        length = (store / NAME).stat().st_size
        describe(folder.store, length, copied=_COPY_METADATA in manifest.paths())
        consolidate(folder.store)
        (folder.path / "units").mkdir()
        form = form_of(
            folder.store,
            forecasts.template,
            options["ensembles"],
            options["any_values"],
            options.get("places", False),
        )
        where = "truth" if truth is None else str(truth)
        makers = [t for t in planned_units(forecasts, form, paired, where) if t.name in units]
        _work(folder, makers, workers or 1, progress)
        mended = _take_over(store, folder, manifest, wrong)
        # Sums are made of the means and deviations in the store, which are whole by now.
        sums = [t for t in planned_sums(store, forecasts.template, form) if t.name in units]
        _work(folder, sums, workers or 1, progress)
        mended += _take_over(store, folder, manifest, wrong - set(mended))
    mended += _climate(store, manifest.plan["options"]["climate"], wrong, progress)
    left = sorted(wrong - set(mended))
    if left:
        remedy = "Prepare the store anew with --force"
        raise FileError(store, f"not to be repaired from the source: {listing(left)}", remedy)
    return sorted(mended)


def _climate(
    store: Path, options: dict[str, Any] | None, wrong: set[str], progress: bool
) -> list[str]:
    """Makes chunks of the model climate anew, from the members, which are whole by now."""
    lost = sorted(path for path in wrong if path.startswith(_CLIMATE))
    if not lost or options is None:
        return []
    from ens10.quantiles import ClimateOptions, write_climate

    if all("/c/" in path and path.count("/") > _COORDINATE for path in lost):
        for path in lost:
            inside(store, path, store / NAME).unlink(missing_ok=True)
    else:  # what shapes the climate is lost
        shutil.rmtree(store / _CLIMATE, ignore_errors=True)
    given: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in options.items()
    }
    write_climate(store, ClimateOptions(**given), progress=progress)
    return lost


def _copy_climate(store: Path, folder: Folder, manifest: Manifest, wrong: set[str]) -> None:
    """Copies the metadata of the climate, which the metadata at the top repeats."""
    for _, (path, *_) in manifest.rows():
        whole = path.startswith(_CLIMATE) and path.endswith("zarr.json") and path not in wrong
        if whole and (store / path).exists():
            (folder.store / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store / path, folder.store / path)


@contextmanager
def _workshop(store: Path) -> Iterator[Folder]:
    """A folder beside the store for the new files, locked against `prepare`."""
    path = store.with_name(store.name + ".partial")
    if path.exists() and any(path.iterdir()):
        raise FileError(path, "a store that was begun is in the way", "Finish or remove it first")
    with locked(path, store):
        folder = Folder(path.absolute(), "repair")
        folder.scratch.mkdir(parents=True)
        try:
            yield folder
        finally:
            clear(path)
            path.rmdir()


def _sources(
    store: Path,
    plan: dict[str, Any],
    source: Path | str | None,
    truth: Path | str | None,
) -> tuple[Forecasts, xr.Dataset | None]:
    """What the store was made from, opened as it was then."""
    options = plan["options"]
    src = located(store, plan["source"], source)
    if src is None:
        raise MissingDataError(store, ["the source of the forecasts"], "Give it with --source")
    names, own = Names(**options["names"]), options.get("truth_names")
    selection = Selection.from_plain(options["selection"])
    held = located(store, plan["truth"], truth)
    if plan["truth"] is not None and held is None:
        held = located(src, plan["truth"], None) or _within(src, plan["truth"])
    if plan["truth"] is not None and held is None:
        raise MissingDataError(store, ["the source of the truth"], "Give it with --truth")
    inputs = Inputs(src, held, names, Names(**own) if own else None)
    return paired_with(inputs, selection, options["missing"])


def _within(src: Path, about: dict[str, Any]) -> Path | None:
    """The truth in a folder inside that of the forecasts."""
    return located(src / "store", about, None) if src.is_dir() else None


def _work(folder: Folder, makers: Sequence[Planned], workers: int, progress: bool) -> None:
    sizes = {todo.name: todo.size for todo in makers}
    with bar("repair", sum(sizes.values()), progress, in_bytes=True) as advance:
        jobs = grouped((todo.size, todo.make()) for todo in makers)
        work_on(folder, jobs, workers, None, lambda name: advance(sizes[name]))


def _take_over(store: Path, folder: Folder, manifest: Manifest, wrong: set[str]) -> list[str]:
    """Puts new files in the place of those that are wrong, if they are what was written then."""
    rows = {row[0]: row for _, row in manifest.rows()}
    taken = []
    for path in sorted(wrong):
        if path.startswith(_CLIMATE) or not (folder.store / path).exists():
            continue
        content = np.fromfile(folder.store / path, np.uint8)
        if [content.size, crc32c(content)] != rows[path][1:3]:
            raise FileError(
                store,
                f"the source no longer gives what {path} held",
                "Give the files that the store was made from, or prepare it anew with --force",
            )
        inside(store, path, store / NAME)
        place(folder.scratch, store, [(path, content)])
        taken.append(path)
    return taken
