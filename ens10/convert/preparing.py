"""Files to a store: `prepare` reads each field once and writes forecasts, truth and statistics.

The work is cut into units, one for each date and step. A store that is being written carries the
suffix `.partial`, can be gone on with after any interruption, and gets its name when it is
complete, so a store that exists is whole. Its bytes depend on the data and the options alone.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.convert.engine import Engine
from ens10.convert.files import locked
from ens10.convert.finishing import sweep
from ens10.convert.identity import Plan, described, differences, plain, size_of
from ens10.convert.listing import Source
from ens10.convert.selection import Selection
from ens10.convert.sources import Inputs, Missing
from ens10.convert.workers import cluster_library, workers_for
from ens10.errors import ArgumentError, FileError
from ens10.source.names import Names
from ens10.store import Codec, store_kinds
from ens10.store.manifest import read_plan


def prepare(
    src: Source,
    store: Path | str,
    *,
    truth: Source | None = None,
    names: Names | None = None,
    truth_names: Names | None = None,
    variables: Sequence[str] | None = None,
    levels: Sequence[float] | None = None,
    steps: Sequence[float] | None = None,
    members: Sequence[int] | int | None = None,
    dates: Sequence[object] | None = None,
    ensembles: Sequence[int] = (),
    codec: Codec = "none",
    missing: Missing = "error",
    climate: Any = None,
    any_values: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    force: bool = False,
    progress: bool = False,
) -> Path:
    """Builds a store from forecasts and, if given, the truth of their valid dates.

    A call that was interrupted is gone on with by the same call; a store that is there already, and
    is what is asked for, is left as it is. The source is taken for the same if the names and sizes
    of its files are.

    Args:
        src: GRIB or netCDF file, folder of such files, Zarr store, or a lazy dataset.
        store: folder to write; see `ens10.store` for its layout.
        truth: like `src`; may be left out if `names` or `truth_names` name the truth in `src`.
        names: how the names in the files map to ours (`ens10.source.names`).
        truth_names: the same for the truth alone, where its names are others than the forecasts'.
        variables: forecast variables to keep (all if None).
        levels: levels to keep, in hPa.
        steps: steps to keep.
        members: how many of the first members to keep, or their numbers.
        dates: start dates to keep: ISO dates, months or years, or ranges FIRST:LAST.
        ensembles: sizes k of ensembles whose mean and deviation are kept besides those of all
            members, each of the first k members.
        codec: "none", or "lz4" for compressed chunks.
        missing: what to do about missing fields and truth: "error", "nan" (fill with NaN) or
            "skip" (leave out the dates concerned).
        climate: options of the model climate's quantiles (`ens10.quantiles`), None for none.
        any_values: accept values that no forecast can have, as anomalies and other derived data
            do; otherwise they are taken for wrong units or damage.
        workers: processes on this machine; None for one, or as many as there are cores if the
            source is larger than 1 GB.
        scheduler: address of a dask.distributed scheduler whose workers are used instead; they
            need to see the same files.
        force: replace a store that exists (nothing but a store is ever replaced), or one that was
            begun with other options.
        progress: show a progress bar.

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
        ArgumentError: the truth is on another grid, or something is asked for that is not there.
    """
    store, names = Path(store), names or Names()
    inputs = Inputs(src, truth, names, truth_names)
    inputs.names_of_truth()  # refused before anything is read
    selection = Selection.of(variables, levels, steps, members, dates)
    options = {
        "selection": selection.plain(),
        "names": plain(names),
        "truth_names": plain(truth_names),
        "ensembles": sorted(set(map(int, ensembles))),
        "codec": codec,
        "missing": missing,
        "climate": plain(climate),
        "any_values": bool(any_values),
        "places": True,  # chunks carry their place; see ens10.packed16.layout
    }
    plan = {"options": options, "source": described(src), "truth": described(truth)}
    if codec not in ("none", "lz4"):
        raise ArgumentError("codec", f"{codec!r} is not known", "Give none or lz4")
    count = workers_for(size_of(src), workers)
    if _is_there(store, plan, force):
        if progress:
            print(f"{store} is complete: nothing to do", file=sys.stderr)
        return store
    if scheduler is not None:
        cluster_library()  # refused before anything is written
    partial = store.with_name(store.name + ".partial")
    with locked(partial, store):
        if not force and _is_there(store, plan, force):  # another run has just ended
            partial.rmdir()
            return store
        engine = Engine(store, partial, plan, force, count, scheduler, progress)
        try:
            engine.run(inputs, selection, options["ensembles"], climate)
        finally:
            engine.tidy_up()
    return store


def _is_there(store: Path, plan: Plan, force: bool) -> bool:
    """Whether the store is complete and what is asked for.

    Raises:
        FileError: it is another store that is not to be replaced, or no store.
    """
    if not store.exists() or (store.is_dir() and not any(store.iterdir())):
        return False
    if force:
        _check_store(store)
        return False
    remedy = "Choose another folder, or give --force"
    try:
        held = read_plan(store)
    except FileError as error:
        raise FileError(store, "exists already", remedy) from error
    told = differences({key: held.get(key) for key in plan}, plan)
    if told:
        raise FileError(store, f"exists already, made otherwise ({'; '.join(told)})", remedy)
    sweep(store)
    return True


def _check_store(store: Path) -> None:
    try:
        store_kinds(store)
    except FileError as error:
        raise FileError(
            store,
            "exists and is no store of ens10, so --force does not replace it",
            "Choose another folder",
        ) from error
