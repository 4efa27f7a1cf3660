"""Download of ENS-10's forecast files: sizes first, then several files at a time, resumable.

The bytes go to `NAME.part`; beside it `NAME.part.json` names the version of the remote file that
they belong to. A complete file is checked and renamed, so that a file under its final name is
complete.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from ens10.catalog import MODEL_YEAR, Kind
from ens10.download.local_files import (
    NAME,
    Entry,
    Partial,
    Record,
    check_space,
    checksum,
    free_space,
    note_of,
    part_of,
    path_in,
    resumable_size,
    size_text,
)
from ens10.download.remote import (
    ByteRange,
    Info,
    RefusedError,
    Remote,
    RetryPolicy,
    SlowError,
    TransientError,
    redact,
    remote_of,
)
from ens10.durable import clear_leftovers, sync_folder
from ens10.errors import Ens10Error, FileError, MissingDataError
from ens10.file_locks import lock
from ens10.grib import scan
from ens10.machine_errors import machine_error
from ens10.progress import bar

# Both have served the same files; buckets have moved before.
BASES = (
    "https://object-store.os-api.cci1.ecmwf.int/maelstrom-ap4",
    "https://storage.ecmwf.europeanweather.cloud/MAELSTROM_AP4",
)
BASE_VARIABLE = "ENS10_BASE_URL"
_TRIES = 3  # with a server that is not the last one to try
Notify = Callable[[str], None]


@dataclass(frozen=True)
class RemoteFile:
    """A remote file that exists, with its size.

    Attributes:
        name: of the file.
        url: of the file.
        info: size and version.
        remote: reader of the file.
    """

    name: str
    url: str
    info: Info
    remote: Remote


def file_names(kind: Kind, days: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the files with the hindcasts of some start dates (MMDD)."""
    return tuple(f"output.{kind}.{MODEL_YEAR}{day}" for day in days)


def bases(base: str | None) -> tuple[str, ...]:
    """Return the URLs to try: `base`, else the environment variable's, else the public ones."""
    base = base or os.environ.get(BASE_VARIABLE)
    return (base,) if base else BASES


def locate(
    names: Sequence[str], places: Sequence[str], retries: RetryPolicy, jobs: int, notify: Notify
) -> tuple[dict[str, RemoteFile], dict[str, str]]:
    """Request the size of every file.

    Args:
        names: of the files.
        places: base URLs; files missing at the first are requested from the next.
        retries: after servers that do not answer.
        jobs: requests at a time.
        notify: called with a message for each further URL.

    Returns:
        The files that exist, and the reason why each other file is unavailable, both by name.
    """
    files: dict[str, RemoteFile] = {}
    reasons: dict[str, list[str]] = {name: [] for name in names}
    for n, place in enumerate(places):
        pending = [name for name in names if name not in files]
        if n and pending:
            notify(
                f"{len(pending)} of {len(names)} files not had from there: trying {redact(place)}"
            )
        last = place == places[-1]
        place_retries = retries if last else replace(retries, tries=min(_TRIES, retries.tries))
        for name, answer in _locate_at(pending, place, place_retries, jobs).items():
            if isinstance(answer, RemoteFile):
                files[name] = answer
            else:
                reasons[name].append(f"{redact(place)}: {answer}")
    faults = {name: f"{name} ({'; '.join(texts)})" for name, texts in reasons.items()}
    return files, {name: reason for name, reason in faults.items() if name not in files}


def _locate_at(
    names: Sequence[str], place: str, retries: RetryPolicy, jobs: int
) -> dict[str, "RemoteFile | str"]:
    """Request the sizes at one URL; only that of the first file if no server answers for it."""
    if not names:
        return {}
    remote = remote_of(place)
    first = _locate_one(remote, place, retries, names[0])
    if isinstance(first, TransientError) and first.unreachable:
        return dict.fromkeys(names, str(first))
    with ThreadPoolExecutor(jobs) as pool:
        others = list(pool.map(partial(_locate_one, remote, place, retries), names[1:]))
    answers = zip(names, [first, *others], strict=True)
    return {name: one if isinstance(one, RemoteFile) else str(one) for name, one in answers}


def _locate_one(
    remote: Remote, place: str, retries: RetryPolicy, name: str
) -> "RemoteFile | Exception":
    url = f"{place.rstrip('/')}/{name}"
    try:
        return RemoteFile(name, url, retries.call(lambda: remote.info(url)), remote)
    except (RefusedError, TransientError) as error:
        return error


_MAGIC = b"GRIB"
_EXCERPT_LENGTH = 160  # characters of a server's answer, in errors


class StoppedError(Exception):
    """The transfer was stopped by another thread; the part of the file remains on disk."""


@dataclass
class Transfer:
    """A transfer of remote files to this machine.

    Attributes:
        remote: reader of the files.
        retries: after dropped connections.
        on_bytes: called with every change in the number of local bytes.
        stop: set by another thread to end all transfers soon.
    """

    remote: Remote
    retries: RetryPolicy
    on_bytes: Callable[[int], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, url: str, target: Path, info: Info) -> Entry:
        """Download a GRIB file; resume if a part of it exists.

        Args:
            url: of the file.
            target: path to write, from `path_in`.
            info: current size and version of the remote file.

        Returns:
            Checksum, size and URL, for the record.

        Raises:
            RefusedError, TransientError: the file is not available (any more).
            FileError: the server sent something else, or another process writes the same file.
            DamagedFileError: the file is complete, but not a valid GRIB file.
            StoppedError: the event `stop` was set.
        """
        with part_of(target).open("ab+") as file:
            _lock_file(file, target)
            clear_leftovers(target.parent, note_of(target).name)
            partial = Partial(file, note_of(target), redact(url), info, self.on_bytes)
            try:
                self._fill(url, partial)
            except FileError:
                part_of(target).unlink()
                note_of(target).unlink()
                raise
            file.flush()
            os.fsync(file.fileno())
            _finish(target)
        return Entry(partial.checksum, partial.position, partial.url)

    def _fill(self, url: str, partial: Partial) -> None:
        failures, furthest = 0, partial.position
        while not partial.is_complete:
            try:
                start = partial.position if partial.info.version else 0
                with self.remote.read_from(url, start, partial.info) as part:
                    part.blocks = self.retries.check_rate(part.blocks)
                    self._copy(url, part, partial)
            except TransientError as error:
                has_progress = partial.position > furthest and not isinstance(error, SlowError)
                failures = 1 if has_progress else failures + 1
                furthest = max(furthest, partial.position)
                self.retries.wait(failures, error)

    def _copy(self, url: str, part: ByteRange, partial: Partial) -> None:
        if not part.info.matches(partial.info) and not part.info.matches(self.remote.info(url)):
            text = _excerpt(next(part.blocks, b""))
            reason = f"the server announces one file and sends another, which begins with {text!r}"
            raise TransientError(reason)
        partial.adopt(part)
        for block in part.blocks if part.start else _check_first_message(part.blocks, partial.url):
            if self.stop.is_set():
                raise StoppedError
            partial.add(block)
        partial.end()


def _check_first_message(blocks: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Yield the blocks of a file from its beginning, after checking that it is GRIB."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= len(_MAGIC):
            break
    if not head.startswith(_MAGIC[: len(head)]):  # which may be shorter, if the connection dropped
        text = _excerpt(head)
        reason = f"no GRIB file; what the server sent begins with {text!r}"
        raise FileError(url, reason, "Check the base URL")
    yield head
    yield from blocks


def _excerpt(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:_EXCERPT_LENGTH]


def _finish(target: Path) -> None:
    """Check all messages of a complete file, and rename it to its final name."""
    part = part_of(target)
    try:
        scan(part)
    except FileError:
        damaged_file = target.with_name(f"{target.name}.damaged")
        part.replace(damaged_file)
        note_of(target).unlink()
        scan(damaged_file)  # raises the same error with the new name of the file
        raise
    part.replace(target)
    note_of(target).unlink(missing_ok=True)
    sync_folder(target.parent)


def _lock_file(file: IO[bytes], target: Path) -> None:
    """Lock a file, or raise an error if another process writes it; closing the file unlocks it."""
    try:
        lock(file)
    except BlockingIOError as error:
        reason = "another process is fetching it"
        raise FileError(target, reason, "Wait for it, or use another folder") from error


_REMEDY = "Run the same command again: what is there is kept, and parts are completed"


@dataclass(frozen=True)
class Report:
    """Files and sizes of a download, or of a dry run.

    Attributes:
        folder: of the files.
        existing_files: names of the files that existed before.
        new_files: names of the files that were (for a dry run: would be) downloaded.
        size: bytes of all files.
        remaining_size: bytes still to download at the start.
        free_space: free bytes on the disk at the start.
    """

    folder: Path
    existing_files: tuple[str, ...]
    new_files: tuple[str, ...]
    size: int
    remaining_size: int
    free_space: int


@dataclass(frozen=True)
class DownloadSettings:
    """Settings of a download.

    Attributes:
        jobs: files at a time.
        dry_run: only request the sizes.
        check: compare the checksums of existing files with the record.
        progress: show a progress bar.
        notify: called with messages about sizes and progress.
        retries: after errors of servers and connections.
        stop: set to end all transfers soon.
    """

    jobs: int
    dry_run: bool
    check: bool
    progress: bool
    notify: Notify
    retries: RetryPolicy
    stop: threading.Event


def fetch_files(
    folder: Path, names: Sequence[str], places: Sequence[str], settings: DownloadSettings
) -> Report:
    """Download forecast files to a folder; see `ens10.download.download`."""
    targets = {name: path_in(folder, name) for name in (*names, NAME)}
    record = Record(folder)
    here: dict[str, int | str] = {}  # size or fault of each file that exists
    for name in names:
        entry = record.get(name)
        if entry is not None and targets[name].exists():
            here[name] = _check_recorded(entry, targets[name], settings.check)
    missing = [name for name in names if name not in here]
    files, faults = locate(missing, places, settings.retries, settings.jobs, settings.notify)
    queue = []
    for file in files.values():
        if targets[file.name].exists():
            here[file.name] = _check_unrecorded(file, targets[file.name], record, settings.dry_run)
        else:
            queue.append(file)
    faults |= {name: fault for name, fault in here.items() if isinstance(fault, str)}
    local_sizes = {name: size for name, size in here.items() if isinstance(size, int)}
    report = _report(folder, queue, local_sizes)
    _show_sizes(report, queue, settings)
    check_space(folder, report.remaining_size)
    if not settings.dry_run and queue:
        folder.mkdir(parents=True, exist_ok=True)
        faults.update(_fetch(folder, queue, record, settings))
    if faults:
        reasons = {fault.removeprefix(name) for name, fault in faults.items()}
        missing = [faults[name] for name in names if name in faults]
        if len(reasons) == 1 and len(missing) == len(names) > 1:
            missing = [f"all {len(names)} files{reasons.pop()}"]
        raise MissingDataError(folder, missing, _REMEDY)
    return report


def _check_recorded(entry: Entry, target: Path, check: bool) -> int | str:
    """Compare an existing file with its entry in the record; return its size, or its fault."""
    size = target.stat().st_size
    if size != entry.size:
        return _conflict(target.name, f"{size} bytes, and {entry.size} were fetched")
    if check and checksum(target) != entry.sha256:
        return _conflict(target.name, f"its SHA-256 is not the one in {NAME}")
    return size


def _check_unrecorded(file: RemoteFile, target: Path, record: Record, dry_run: bool) -> int | str:
    """Check an existing file that is not in the record, by the server's size and its GRIB messages.

    A valid file is added to the record, unless this is a dry run.

    Returns:
        Its size, or its fault.
    """
    size = target.stat().st_size
    if file.info.size is not None and size != file.info.size:
        return _conflict(file.name, f"{size} bytes, and the server has {file.info.size}")
    try:
        if not dry_run:
            scan(target)
            record.add(file.name, Entry(checksum(target), size, redact(file.url)))
            note_of(target).unlink(missing_ok=True)  # of a process that was killed before that
            clear_leftovers(target.parent, note_of(target).name)
    except FileError as error:
        return _conflict(file.name, str(error).rstrip("."))
    return size


def _conflict(name: str, reason: str) -> str:
    return f"{name} (another file of this name is here: {reason}; remove it to fetch it)"


def _report(folder: Path, queue: Sequence[RemoteFile], local_sizes: dict[str, int]) -> Report:
    sizes = {file.name: file.info.size or 0 for file in queue}
    partial_size = 0
    for file in queue:
        path = folder / file.name
        partial_size += resumable_size(part_of(path), note_of(path), redact(file.url), file.info)
    total = sum(sizes.values())
    return Report(
        folder, tuple(local_sizes), tuple(sizes), total + sum(local_sizes.values()),
        total - partial_size, free_space(folder),
    )  # fmt: skip


def _show_sizes(report: Report, queue: Sequence[RemoteFile], settings: DownloadSettings) -> None:
    if settings.dry_run:
        for file in queue:
            size = "size unknown" if file.info.size is None else size_text(file.info.size)
            settings.notify(f"{redact(file.url)}  {size}")
    unknown_count = sum(file.info.size is None for file in queue)
    unknown = f" and {unknown_count} of unknown size" if unknown_count else ""
    settings.notify(
        f"{len(queue)} files to fetch and {len(report.existing_files)} here, "
        f"{size_text(report.size)} in all{unknown}; {size_text(report.remaining_size)} to come, "
        f"{size_text(report.free_space)} free in {report.folder}"
    )


@contextmanager
def fetching_pool(folder: Path, settings: DownloadSettings) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of download threads; an error stops them and cancels pending jobs.

    Args:
        folder: of the files, for errors.
        settings: number of threads, and the event that stops them.

    Raises:
        FileError: instead of an `OSError` of the folder.
    """
    with ThreadPoolExecutor(settings.jobs) as pool:
        try:
            yield pool
        except BaseException as error:
            settings.stop.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                other = FileError(folder, f"cannot be written to ({error})", _REMEDY)
                raise machine_error(error) or other from error
            raise


def _fetch(
    folder: Path, queue: Sequence[RemoteFile], record: Record, settings: DownloadSettings
) -> dict[str, str]:
    """Download files in parallel; return the reasons of failures by name."""
    total = sum(file.info.size or 0 for file in queue)
    with (
        bar("download", total, settings.progress, in_bytes=True) as on_bytes,
        fetching_pool(folder, settings) as pool,
    ):

        def fetch_one(file: RemoteFile) -> str | None:
            transfer = Transfer(file.remote, settings.retries, on_bytes, settings.stop)
            try:
                record.add(file.name, transfer.fetch(file.url, folder / file.name, file.info))
            except (RefusedError, TransientError, Ens10Error) as error:
                return f"{file.name} ({str(error).rstrip('.')})"
            return None

        futures = {pool.submit(fetch_one, file): file.name for file in queue}
        reasons = {futures[future]: future.result() for future in as_completed(futures)}
    return {name: reason for name, reason in reasons.items() if reason is not None}
