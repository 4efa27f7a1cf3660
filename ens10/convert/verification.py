"""`verify`: compare a store with its checksums and its source, and repair damaged files.

Every file is read and compared with the manifest. A sample of fields is decoded from the GRIB
source by ecCodes and compared bit for bit. A repair writes damaged files again from the source.
"""

import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.command_options import VerifyOptions
from ens10.convert.empty_store import create, form_of
from ens10.convert.files import Folder, partial_store, write_files
from ens10.convert.plan import find_source
from ens10.convert.sources import Forecasts, Inputs, open_inputs
from ens10.convert.work_units import PlannedUnit, planned_sums, planned_units
from ens10.convert.workers import group_units, work_on
from ens10.errors import ArgumentError, DamagedFileError, FileError, MissingDataError, listing
from ens10.grib import Message, decode, scan
from ens10.options import chosen, takes
from ens10.packed16.layout import DamagedChunkError
from ens10.progress import bar, track
from ens10.selection import Selection
from ens10.source.names import Names
from ens10.store import consolidate, store_kinds
from ens10.store.chunks import open_reader
from ens10.store.file_bytes import Buffer, FileBytes, MemoryBytes
from ens10.store.manifest import (
    CHECKSUM_DIFFERS,
    NAME,
    FileSums,
    Manifest,
    compare,
    create_manifest_arrays,
    damaged_records,
    mend_records,
    read_manifest,
)
from ens10.untrusted import check_regular, inside

_THREADS = 4
_FILES_PER_TASK = 64  # that one thread checks in a row


@dataclass
class Verification:
    """The result of `verify`.

    Attributes:
        chunks: number of files that the store should hold.
        bytes: bytes read.
        damaged: path and fault of each file that differs from what was written.
        missing: paths of missing files.
        extra: paths of unexpected files.
        sampled: number of fields decoded from the source again.
        differing: sampled fields whose values differ: path in the store, place in the source.
        repaired: paths of files that were written again.
    """

    chunks: int = 0
    bytes: int = 0
    damaged: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    sampled: int = 0
    differing: list[tuple[str, str]] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no fault was found."""
        return not (self.damaged or self.missing or self.extra or self.differing)


@takes(VerifyOptions)
def verify(
    store: Path | str,
    options: VerifyOptions | None = None,
    *,
    progress: bool = False,
    **named: Any,
) -> Verification:
    """Check every file of a store against its checksum, and some fields against the source.

    Args:
        store: a store that `prepare` wrote.
        options: of the command; None for its defaults.
        progress: show a progress bar.
        **named: single options.

    Returns:
        The faults; after a repair, the remaining ones.

    Examples:
        >>> import ens10
        >>> ens10.verify("store.zarr").ok
        True

    Raises:
        FileError: no store, one without a manifest, `source` is not its source, or a repair is not
            possible.
        MissingDataError: a repair needs a source that is not found.
        DamagedFileError: the manifest is damaged.
        ArgumentError: a negative `sample`.
    """
    options = chosen(VerifyOptions, options, named)
    sample, workers = options.sample, options.workers
    if sample < 0:
        raise ArgumentError("sample", f"{sample} fields", "Choose 0 or more")
    store = Path(store)
    if not store.is_dir():
        store_kinds(store)  # says what is wrong
        raise FileError(store, "not a local store", "Verify the store where it lies")
    manifest = read_manifest(store)
    result = _check_files(store, manifest, workers or _THREADS, progress)
    if options.repair and not result.ok:
        repaired_paths = mend_records(store)
        faulty_paths = _faulty_paths(result) - set(repaired_paths)
        if faulty_paths:
            repaired_paths += repair_units(
                store, manifest, faulty_paths, options.source, options.truth, workers, progress
            )
        result = _check_files(store, manifest, workers or _THREADS, progress)
        result.repaired = sorted(repaired_paths)
    path = find_source(store, manifest.plan["source"], options.source)
    if path is not None and sample:
        fields = samples(manifest, path, sample, Random(options.seed))
        _check_sample(store, result, fields, progress)
    return result


def _faulty_paths(result: Verification) -> set[str]:
    return {path for path, _ in result.damaged} | set(result.missing)


def _check_files(store: Path, manifest: Manifest, threads: int, progress: bool) -> Verification:
    """Check every file of the manifest against size and checksum, and list extra files."""
    files = list(manifest.sums().items())
    result = Verification(chunks=len(files), extra=manifest.differing_names(store)[1])
    parts = [files[n : n + _FILES_PER_TASK] for n in range(0, len(files), _FILES_PER_TASK)]
    total = sum(sums.size for _, sums in files)
    with (
        ThreadPoolExecutor(threads) as pool,
        bar("verify", total, progress, in_bytes=True) as advance,
    ):
        for future in as_completed([pool.submit(_check, store, part) for part in parts]):
            for path, size, fault in future.result():
                result.bytes += 0 if fault else size
                advance(size)
                if fault == _MISSING:
                    result.missing.append(path)
                elif fault:
                    result.damaged.append((path, fault))
    result.damaged += [(name, CHECKSUM_DIFFERS) for name in damaged_records(store)]
    result.damaged.sort()
    result.missing.sort()
    return result


_MISSING = "missing"
_thread_memory = threading.local()


def _check(store: Path, files: Iterable[tuple[str, FileSums]]) -> list[tuple[str, int, str]]:
    """Return the path, size and fault ("" for none) of each file."""
    return [(path, sums.size, _fault_of(store / path, sums)) for path, sums in files]


def _fault_of(path: Path, sums: FileSums) -> str:
    try:
        check_regular(path)
        with path.open("rb", buffering=0) as file:
            compare(sums, FileBytes(file.fileno()), into=_memory)
    except FileNotFoundError:
        return _MISSING
    except FileError:
        return "it is not a regular file"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except DamagedChunkError as error:
        return error.reason
    return ""


def _memory(size: int) -> Buffer:
    """Return memory of this thread, which is used for all its files."""
    buffer: Buffer | None = getattr(_thread_memory, "buffer", None)
    if buffer is None or buffer.size < size:
        buffer = _thread_memory.buffer = np.empty(size, np.uint8)
    return buffer[:size]


@dataclass(frozen=True)
class Sample:
    """One member of one chunk, and the position of its message in the source.

    Attributes:
        path: of the chunk, in the store.
        array: array of the chunk, such as "sfc/t2m".
        place: index of the chunk along the array's outer dimensions.
        member: index along `number`.
        file: source file with the message.
        offset: first byte of the message in it.
        length: bytes of the message.
    """

    path: str
    array: str
    place: tuple[int, ...]
    member: int
    file: Path
    offset: int
    length: int

    @property
    def where(self) -> str:
        """File and first byte of the message, for reports."""
        return f"{self.file} at byte {self.offset}"


def samples(manifest: Manifest, source: Path, count: int, random: Random) -> list[Sample]:
    """Choose at most `count` random fields among those whose messages the manifest lists."""
    rows = [row for _, row in manifest.rows() if len(row) > _ORIGIN_COLUMN and row[_ORIGIN_COLUMN]]
    names = [name for name, _ in manifest.plan["source"].get("files", [])]
    random_samples = []
    for row in (random.choice(rows) for _ in range(count if rows else 0)):
        present = [(n, o) for n, o in enumerate(row[_ORIGIN_COLUMN].split()) if o != "-"]
        if not present:
            continue
        member, origin = random.choice(present)
        number, _, span = origin.partition(":")
        offset, _, length = span.partition("+")
        array, _, place = row[0].rpartition("/c/")
        outer = tuple(int(n) for n in place.split("/")[:-3])
        file = source / names[int(number)] if source.is_dir() else source
        random_samples.append(Sample(row[0], array, outer, member, file, int(offset), int(length)))
    return sorted(set(random_samples), key=lambda s: (str(s.file), s.offset, s.path))


def decode_by_eccodes(sample: Sample) -> npt.NDArray[np.float32]:
    """Decode a message by ecCodes, in the store's layout.

    Raises:
        DamagedFileError: no message is at the position in the manifest.
    """
    message = _message(sample)
    with sample.file.open("rb") as file:
        return decode(message, file)


def _message(sample: Sample) -> Message:
    """Read and index the message of a sample.

    Raises:
        DamagedFileError: no message is at this position.
    """
    with sample.file.open("rb") as file:
        file.seek(sample.offset)
        content = file.read(sample.length)
    if content[:4] != b"GRIB" or content[-4:] != b"7777":
        reason = "no message begins here; the file has changed since the store was made"
        raise DamagedFileError(sample.file, sample.offset, reason)
    with tempfile.NamedTemporaryFile() as message_file:
        message_file.write(content)
        message_file.flush()
        (message,) = scan(Path(message_file.name))
    return replace(message, path=sample.file, offset=sample.offset, length=sample.length)


def _check_sample(
    store: Path, result: Verification, samples: Sequence[Sample], progress: bool
) -> None:
    """Compare sampled fields with their messages decoded by ecCodes; add the result to `result`."""
    faulty_paths = _faulty_paths(result)
    for sample in track(samples, "decode", len(samples), progress):
        if sample.path in faulty_paths or f"{sample.array}/zarr.json" in faulty_paths:
            continue
        expected = decode_by_eccodes(sample)
        reader = open_reader(store, sample.array)
        actual = np.empty((1, *expected.shape), np.float32)
        reader.read_into(sample.place, actual, [sample.member])
        result.sampled += 1
        if not np.array_equal(actual[0].view(np.uint32), expected.view(np.uint32)):
            result.differing.append((sample.path, sample.where))


_ORIGIN_COLUMN = 6  # of a row of the manifest


_CLIMATE = "climate/"
_COPY_METADATA = "manifest/copy/zarr.json"
_MAX_COORDINATE_SLASHES = 4  # slashes in the path of a coordinate's chunk, at the most


def repair_units(
    store: Path, manifest: Manifest, faulty_paths: set[str], source: Path | str | None,
    truth: Path | str | None, workers: int | None, progress: bool,
) -> list[str]:  # fmt: skip
    """Write damaged or missing files of a store again from its source.

    Args:
        store: the store.
        manifest: its manifest.
        faulty_paths: paths of the files that are damaged or missing.
        source: the forecasts that it was made from; searched for beside the store if None.
        truth: the truth, likewise.
        workers: processes; None for one.
        progress: show a progress bar.

    Returns:
        The paths of the files that were replaced, sorted.

    Raises:
        FileError: the files differ from the source of the store, their content has changed, or a
            file cannot be repaired.
        MissingDataError: a source is not found.
    """
    unit_names = {unit for unit, row in manifest.rows() if row[0] in faulty_paths}
    with _repair_folder(store) as folder:
        forecasts, paired_truth = _open_sources(store, manifest.plan, source, truth)
        options, template = manifest.plan["options"], forecasts.template
        dates = options.get("chunk_dates", 1)
        ensembles = options["ensembles"]
        create(folder.store, template, paired_truth, options["codec"], ensembles, dates)
        _copy_climate(store, folder, manifest, faulty_paths)
        length = (store / NAME).stat().st_size
        create_manifest_arrays(folder.store, length, with_copy=_COPY_METADATA in manifest.paths())
        consolidate(folder.store)
        (folder.path / "units").mkdir()
        flags = (options["any_values"], options.get("places", False))
        form = form_of(folder.store, template, ensembles, *flags, dates=dates)
        label = "truth" if truth is None else str(truth)
        planned = planned_units(forecasts, form, paired_truth, label)
        units = [unit for unit in planned if unit.name in unit_names]
        _execute(folder, units, workers or 1, progress)
        repaired_paths = _replace_files(store, folder, manifest, faulty_paths)
        # Sums are computed from the means and deviations in the store, which are repaired by now.
        sums = [u for u in planned_sums(store, template, form) if u.name in unit_names]
        _execute(folder, sums, workers or 1, progress)
        sum_paths = faulty_paths - set(repaired_paths)
        repaired_paths += _replace_files(store, folder, manifest, sum_paths)
    repaired_paths += _repair_climate(store, options["climate"], faulty_paths, progress)
    remaining_paths = sorted(faulty_paths - set(repaired_paths))
    if remaining_paths:
        remedy = "Prepare the store anew with --force"
        reason = f"not to be repaired from the source: {listing(remaining_paths)}"
        raise FileError(store, reason, remedy)
    return sorted(repaired_paths)


def _repair_climate(
    store: Path, options: dict[str, Any] | None, faulty_paths: set[str], progress: bool
) -> list[str]:
    """Compute faulty files of the model climate again from the members, which are repaired by now.

    Returns:
        The faulty paths of the climate; an empty list if there are none, or no climate.
    """
    climate_paths = sorted(path for path in faulty_paths if path.startswith(_CLIMATE))
    if not climate_paths or options is None:
        return []
    from ens10.quantiles import ClimateOptions, write_climate

    if all("/c/" in path and path.count("/") > _MAX_COORDINATE_SLASHES for path in climate_paths):
        for path in climate_paths:
            inside(store, path, store / NAME).unlink(missing_ok=True)
    else:  # metadata or coordinates are lost: compute all of it
        shutil.rmtree(store / _CLIMATE, ignore_errors=True)
    arguments: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
    }
    write_climate(store, ClimateOptions(**arguments), progress=progress)
    return climate_paths


def _copy_climate(store: Path, folder: Folder, manifest: Manifest, faulty_paths: set[str]) -> None:
    """Copy intact metadata of the climate to the folder; consolidated metadata include them."""
    for _, (path, *_) in manifest.rows():
        is_metadata = path.startswith(_CLIMATE) and path.endswith("zarr.json")
        if is_metadata and path not in faulty_paths and (store / path).exists():
            (folder.store / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store / path, folder.store / path)


@contextmanager
def _repair_folder(store: Path) -> Iterator[Folder]:
    """Create a folder beside the store for the new files, locked against `prepare`."""
    partial = partial_store(store)
    with partial.lock("ens10 verify"):
        if partial.read_plan() is not None:
            reason = "a store that was begun is in the way"
            raise FileError(partial.path, reason, "Finish or remove it first")
        partial.clear()  # of a repair that was killed
        folder = Folder(partial.path.absolute(), "repair")
        folder.scratch.mkdir(parents=True)
        try:
            yield folder
        finally:
            partial.discard()


def _open_sources(
    store: Path, plan: dict[str, Any], source: Path | str | None, truth: Path | str | None
) -> tuple[Forecasts, xr.Dataset | None]:
    """Open the sources of the store with the recorded options."""
    options = plan["options"]
    src = find_source(store, plan["source"], source)
    if src is None:
        raise MissingDataError(store, ["the source of the forecasts"], "Pass it with --source")
    names, truth_names = Names(**options["names"]), options.get("truth_names")
    selection = Selection.from_dict(options["selection"])
    truth_source = find_source(store, plan["truth"], truth)
    if plan["truth"] is not None and truth_source is None:
        truth_source = find_source(src, plan["truth"], None) or _find_inside(src, plan["truth"])
    if plan["truth"] is not None and truth_source is None:
        raise MissingDataError(store, ["the source of the truth"], "Pass it with --truth")
    truth_mapping = Names(**truth_names) if truth_names else None
    inputs = Inputs(src, truth_source, names, truth_mapping, options.get("regrid"))
    return open_inputs(inputs, selection, options["missing"])


def _find_inside(src: Path, identity: dict[str, Any]) -> Path | None:
    """Return the truth's folder if it lies inside that of the forecasts."""
    return find_source(src / "store", identity, None) if src.is_dir() else None


def _execute(folder: Folder, units: Sequence[PlannedUnit], workers: int, progress: bool) -> None:
    sizes = {unit.name: unit.size for unit in units}
    with bar("repair", sum(sizes.values()), progress, in_bytes=True) as advance:
        jobs = group_units((unit.size, unit.make()) for unit in units)
        work_on(folder, jobs, workers, None, lambda name: advance(sizes[name]))


def _replace_files(
    store: Path, folder: Folder, manifest: Manifest, faulty_paths: set[str]
) -> list[str]:
    """Replace damaged files by new ones whose checksums equal the recorded ones."""
    recorded, replaced_paths = manifest.sums(), []
    for path in sorted(faulty_paths):
        if path.startswith(_CLIMATE) or not (folder.store / path).exists():
            continue
        content = np.fromfile(folder.store / path, np.uint8)
        try:
            compare(recorded[path], MemoryBytes(content))
        except DamagedChunkError as error:
            reason = f"the source no longer gives what {path} held"
            remedy = "Pass the files that the store was made from, or prepare it anew with --force"
            raise FileError(store, reason, remedy) from error
        inside(store, path, store / NAME)
        write_files(folder.scratch, store, [(path, content)])
        replaced_paths.append(path)
    return replaced_paths
