"""`verify`: compare a store with its checksums and its source, and repair damaged files.

Every file is read and compared with the manifest; a sample of fields is decoded from the GRIB
source by ecCodes and compared bit for bit; a repair remakes damaged files from the source.
"""

import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from crc32c import crc32c

from ens10.convert.empty_store import create, form_of
from ens10.convert.files import Folder, lock_store, place
from ens10.convert.plan import find_source
from ens10.convert.preparation import clear
from ens10.convert.sources import Forecasts, Inputs, paired_with
from ens10.convert.work_units import Planned, planned_sums, planned_units
from ens10.convert.workers import group_units, work_on
from ens10.errors import ArgumentError, DamagedFileError, FileError, MissingDataError, listing
from ens10.grib import Message, decode, scan
from ens10.progress import bar, track
from ens10.selection import Selection
from ens10.source.names import Names
from ens10.store import consolidate, store_kinds
from ens10.store.chunks import open_reader
from ens10.store.manifest import (
    NAME,
    Manifest,
    Row,
    damaged_records,
    describe,
    files_of,
    mend_records,
    read_manifest,
)
from ens10.untrusted import check_regular, inside

_THREADS = 4
_PIECE = 1 << 22  # bytes read at a time
_FILES = 64  # checked at a time by one thread


@dataclass
class Verification:
    """The result of `verify`.

    Attributes:
        chunks: number of files that the store should hold.
        bytes: bytes read.
        damaged: path and reason of files that differ from what was written.
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


def verify(
    store: Path | str,
    *,
    source: Path | str | None = None,
    truth: Path | str | None = None,
    sample: int = 64,
    seed: int = 0,
    repair: bool = False,
    workers: int | None = None,
    progress: bool = False,
) -> Verification:
    """Check every file of a store against its checksum, and some fields against the source.

    Args:
        store: a store that `prepare` made.
        source: the files it was made from; looked for beside the store if None.
        truth: likewise, for a repair of the truth.
        sample: how many fields to decode again through ecCodes, if the source is GRIB and is
            there; 0 for none.
        seed: seed of the choice of these fields.
        repair: write damaged files again from the source.
        workers: threads, or processes of a repair.
        progress: show a progress bar.

    Returns:
        The faults; after a repair, the remaining ones.

    Examples:
        >>> import ens10
        >>> ens10.verify("store.zarr").ok
        True

    Raises:
        FileError: no store, one without a manifest, or a repair that is not possible.
        DamagedFileError: the manifest is damaged.
        ArgumentError: a negative `sample`.
    """
    if sample < 0:
        raise ArgumentError("sample", f"{sample} fields", "Choose 0 or more")
    store = Path(store)
    if not store.is_dir():
        store_kinds(store)  # says what is wrong
        raise FileError(store, "not a local store", "Verify the store where it lies")
    manifest = read_manifest(store)
    result = _check_files(store, manifest, workers or _THREADS, progress)
    if repair and not result.ok:
        repaired_paths = mend_records(store)
        wrong = _wrong_paths(result) - set(repaired_paths)
        if wrong:
            repaired_paths += repair_units(store, manifest, wrong, source, truth, workers, progress)
        result = _check_files(store, manifest, workers or _THREADS, progress)
        result.repaired = sorted(repaired_paths)
    path = find_source(store, manifest.plan["source"], source)
    if path is not None and sample:
        _check_sample(store, result, samples(manifest, path, sample, Random(seed)), progress)
    return result


def _wrong_paths(result: Verification) -> set[str]:
    return {path for path, _ in result.damaged} | set(result.missing)


def _check_files(store: Path, manifest: Manifest, threads: int, progress: bool) -> Verification:
    """Check every file of the manifest against size and checksum, and list extra files."""
    rows = [row for _, row in manifest.rows()]
    paths = {row[0] for row in rows}
    result = Verification(chunks=len(rows), extra=[p for p in files_of(store) if p not in paths])
    parts = [rows[n : n + _FILES] for n in range(0, len(rows), _FILES)]
    total = sum(row[1] for row in rows)
    with (
        ThreadPoolExecutor(threads) as pool,
        bar("verify", total, progress, in_bytes=True) as advance,
    ):
        for future in as_completed([pool.submit(_check, store, part) for part in parts]):
            for path, size, reason in future.result():
                result.bytes += size
                advance(size)
                if reason == _MISSING:
                    result.missing.append(path)
                elif reason:
                    result.damaged.append((path, reason))
    result.damaged += [(name, "it does not match its checksum") for name in damaged_records(store)]
    result.damaged.sort()
    result.missing.sort()
    return result


_MISSING = "missing"
_thread_memory = threading.local()


def _check(store: Path, rows: Iterable[Row]) -> list[tuple[str, int, str]]:
    """Return the path, bytes read and fault ("" for none) of each file."""
    return [(row[0], *_check_file(store / row[0], row[1], row[2])) for row in rows]


def _check_file(path: Path, size: int, crc: int) -> tuple[int, str]:
    buffer: npt.NDArray[np.uint8] | None = getattr(_thread_memory, "buffer", None)
    if buffer is None:
        buffer = _thread_memory.buffer = np.empty(_PIECE, np.uint8)
    checksum, bytes_read = 0, 0
    try:
        check_regular(path)
        with path.open("rb", buffering=0) as file:
            while bytes_read <= size and (count := file.readinto(buffer.data)):
                checksum = crc32c(buffer[:count].data, checksum)
                bytes_read += count
    except FileNotFoundError:
        return 0, _MISSING
    except FileError:
        return 0, "it is not a regular file"
    except OSError as error:
        return bytes_read, f"it cannot be read ({error.strerror})"
    if bytes_read != size:
        return bytes_read, f"{path.stat().st_size} bytes instead of {size}"
    return bytes_read, "" if checksum == crc else "it does not match its checksum"


@dataclass(frozen=True)
class Sample:
    """One member of one chunk.

    Attributes:
        path: of the chunk, in the store.
        array: that it belongs to, such as "sfc/t2m".
        place: of the chunk along the array's outer dimensions.
        member: place along `number`.
        file: with the message.
        offset: of the message.
        length: of the message.
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
        """File and byte."""
        return f"{self.file} at byte {self.offset}"


def samples(manifest: Manifest, source: Path, count: int, random: Random) -> list[Sample]:
    """Choose random fields among those whose messages the manifest lists."""
    rows = [row for _, row in manifest.rows() if len(row) > _ORIGIN and row[_ORIGIN]]
    names = [name for name, _ in manifest.plan["source"].get("files", [])]
    random_samples = []
    for row in (random.choice(rows) for _ in range(count if rows else 0)):
        present = [(n, o) for n, o in enumerate(row[_ORIGIN].split()) if o != "-"]
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
        DamagedFileError: the message is not where the manifest says.
    """
    message = _message(sample)
    with sample.file.open("rb") as file:
        return decode(message, file)


def _message(sample: Sample) -> Message:
    """Index one message by scanning its bytes alone."""
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
    return Message(
        path=sample.file,
        offset=sample.offset,
        length=sample.length,
        time=message.time,
        number=message.number,
        meaning=message.meaning,
    )


def _check_sample(
    store: Path, result: Verification, samples: Sequence[Sample], progress: bool
) -> None:
    """Compare fields of the store with their messages as ecCodes decodes them."""
    wrong = _wrong_paths(result)
    for sample in track(samples, "decode", len(samples), progress):
        if sample.path in wrong or f"{sample.array}/zarr.json" in wrong:
            continue
        expected = decode_by_eccodes(sample)
        reader = open_reader(store, sample.array)
        actual = np.empty((1, *expected.shape), np.float32)
        reader.read_into(sample.place, actual, [sample.member])
        result.sampled += 1
        if not np.array_equal(actual[0].view(np.uint32), expected.view(np.uint32)):
            result.differing.append((sample.path, sample.where))


_ORIGIN = 6  # of a row of the manifest


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
    """Replace damaged or missing files by those made from the source.

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
        forecasts, paired_truth = _sources(store, manifest.plan, source, truth)
        options = manifest.plan["options"]
        create(
            folder.store, forecasts.template, paired_truth, options["codec"], options["ensembles"]
        )
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
        label = "truth" if truth is None else str(truth)
        makers = [u for u in planned_units(forecasts, form, paired_truth, label) if u.name in units]
        _work(folder, makers, workers or 1, progress)
        repaired_paths = _take_over(store, folder, manifest, wrong)
        # Sums are made of the means and deviations in the store, which are whole by now.
        sums = [u for u in planned_sums(store, forecasts.template, form) if u.name in units]
        _work(folder, sums, workers or 1, progress)
        repaired_paths += _take_over(store, folder, manifest, wrong - set(repaired_paths))
    repaired_paths += _climate(store, manifest.plan["options"]["climate"], wrong, progress)
    remaining_paths = sorted(wrong - set(repaired_paths))
    if remaining_paths:
        remedy = "Prepare the store anew with --force"
        raise FileError(
            store, f"not to be repaired from the source: {listing(remaining_paths)}", remedy
        )
    return sorted(repaired_paths)


def _climate(
    store: Path, options: dict[str, Any] | None, wrong: set[str], progress: bool
) -> list[str]:
    """Recompute chunks of the model climate from the members, which are complete by now."""
    climate_paths = sorted(path for path in wrong if path.startswith(_CLIMATE))
    if not climate_paths or options is None:
        return []
    from ens10.quantiles import ClimateOptions, write_climate

    if all("/c/" in path and path.count("/") > _COORDINATE for path in climate_paths):
        for path in climate_paths:
            inside(store, path, store / NAME).unlink(missing_ok=True)
    else:  # what shapes the climate is lost
        shutil.rmtree(store / _CLIMATE, ignore_errors=True)
    arguments: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
    }
    write_climate(store, ClimateOptions(**arguments), progress=progress)
    return climate_paths


def _copy_climate(store: Path, folder: Folder, manifest: Manifest, wrong: set[str]) -> None:
    """Copy the metadata of the climate, which the consolidated metadata repeat."""
    for _, (path, *_) in manifest.rows():
        is_intact = path.startswith(_CLIMATE) and path.endswith("zarr.json") and path not in wrong
        if is_intact and (store / path).exists():
            (folder.store / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store / path, folder.store / path)


@contextmanager
def _workshop(store: Path) -> Iterator[Folder]:
    """Create a folder beside the store for the new files, locked against `prepare`."""
    path = store.with_name(store.name + ".partial")
    if path.exists() and any(path.iterdir()):
        raise FileError(path, "a store that was begun is in the way", "Finish or remove it first")
    with lock_store(path, store):
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
    """Open the sources of the store with the recorded options."""
    options = plan["options"]
    src = find_source(store, plan["source"], source)
    if src is None:
        raise MissingDataError(store, ["the source of the forecasts"], "Pass it with --source")
    names, truth_names = Names(**options["names"]), options.get("truth_names")
    selection = Selection.from_plain(options["selection"])
    truth_source = find_source(store, plan["truth"], truth)
    if plan["truth"] is not None and truth_source is None:
        truth_source = find_source(src, plan["truth"], None) or _within(src, plan["truth"])
    if plan["truth"] is not None and truth_source is None:
        raise MissingDataError(store, ["the source of the truth"], "Pass it with --truth")
    inputs = Inputs(
        src,
        truth_source,
        names,
        Names(**truth_names) if truth_names else None,
        options.get("regrid"),
    )
    return paired_with(inputs, selection, options["missing"])


def _within(src: Path, about: dict[str, Any]) -> Path | None:
    """Return the truth's folder if it lies inside that of the forecasts."""
    return find_source(src / "store", about, None) if src.is_dir() else None


def _work(folder: Folder, makers: Sequence[Planned], workers: int, progress: bool) -> None:
    sizes = {unit.name: unit.size for unit in makers}
    with bar("repair", sum(sizes.values()), progress, in_bytes=True) as advance:
        jobs = group_units((unit.size, unit.make()) for unit in makers)
        work_on(folder, jobs, workers, None, lambda name: advance(sizes[name]))


def _take_over(store: Path, folder: Folder, manifest: Manifest, wrong: set[str]) -> list[str]:
    """Replace damaged files by new ones whose checksums equal the recorded ones."""
    rows = {row[0]: row for _, row in manifest.rows()}
    replaced_paths = []
    for path in sorted(wrong):
        if path.startswith(_CLIMATE) or not (folder.store / path).exists():
            continue
        content = np.fromfile(folder.store / path, np.uint8)
        if [content.size, crc32c(content.data)] != rows[path][1:3]:
            raise FileError(
                store,
                f"the source no longer gives what {path} held",
                "Pass the files that the store was made from, or prepare it anew with --force",
            )
        inside(store, path, store / NAME)
        place(folder.scratch, store, [(path, content)])
        replaced_paths.append(path)
    return replaced_paths
