"""Download of ENS-10's forecast files: sizes first, then several files at a time, resumable.

The bytes go to `NAME.part`; beside it `NAME.part.json` names the version of the remote file that
they belong to. A complete file is checked and renamed, so that a file under its final name is
whole.
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
    inside,
    note_of,
    part_of,
    resumable_size,
    size_text,
)
from ens10.download.remote import (
    Info,
    Part,
    Patience,
    RefusedError,
    Remote,
    TransientError,
    public,
    remote_of,
)
from ens10.durable import clear_leftovers, sync_folder
from ens10.errors import Ens10Error, FileError, MissingDataError
from ens10.grib import scan
from ens10.machine_errors import machine_error
from ens10.progress import bar

# Both have served the same files; buckets have moved before.
BASES = (
    "https://object-store.os-api.cci1.ecmwf.int/maelstrom-ap4",
    "https://storage.ecmwf.europeanweather.cloud/MAELSTROM_AP4",
)
BASE_VARIABLE = "ENS10_BASE_URL"
_TRIES = 3  # with a place that is not the last one to try
Say = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """A remote file.

    Attributes:
        name: of the file.
        url: where it is.
        info: size and version.
        remote: reads it.
    """

    name: str
    url: str
    info: Info
    remote: Remote


def file_names(kind: Kind, days: Iterable[str]) -> tuple[str, ...]:
    """Names of the files with the hindcasts of some start dates (MMDD)."""
    return tuple(f"output.{kind}.{MODEL_YEAR}{day}" for day in days)


def bases(given: str | None) -> tuple[str, ...]:
    """Where to look, in this order: what is given, else the environment's, else the known ones."""
    base = given or os.environ.get(BASE_VARIABLE)
    return (base,) if base else BASES


def locate(
    names: Sequence[str], places: Sequence[str], patience: Patience, jobs: int, say: Say
) -> tuple[dict[str, Found], dict[str, str]]:
    """Asks for the size of every file.

    Args:
        names: of the files.
        places: base URLs; a file that the first lacks is looked for in the next.
        patience: with servers that do not answer.
        jobs: requests at a time.
        say: is told where files are looked for.

    Returns:
        What was found, and what was wrong with the others, both by name.
    """
    files: dict[str, Found] = {}
    reasons: dict[str, list[str]] = {name: [] for name in names}
    for n, place in enumerate(places):
        pending = [name for name in names if name not in files]
        if n and pending:
            say(f"{len(pending)} of {len(names)} files not had from there: trying {public(place)}")
        last = place == places[-1]
        place_patience = patience if last else replace(patience, tries=min(_TRIES, patience.tries))
        for name, answer in _ask(pending, place, place_patience, jobs).items():
            if isinstance(answer, Found):
                files[name] = answer
            else:
                reasons[name].append(f"{public(place)}: {answer}")
    faults = {name: f"{name} ({'; '.join(texts)})" for name, texts in reasons.items()}
    return files, {name: reason for name, reason in faults.items() if name not in files}


def _ask(
    names: Sequence[str], place: str, patience: Patience, jobs: int
) -> dict[str, "Found | str"]:
    """One place; where no server answers for the first file, the others are not asked for."""
    if not names:
        return {}
    remote = remote_of(place)
    first = _locate_one(remote, place, patience, names[0])
    if isinstance(first, TransientError) and first.unreachable:
        return dict.fromkeys(names, str(first))
    with ThreadPoolExecutor(jobs) as pool:
        others = list(pool.map(partial(_locate_one, remote, place, patience), names[1:]))
    answers = zip(names, [first, *others], strict=True)
    return {name: answer if isinstance(answer, Found) else str(answer) for name, answer in answers}


def _locate_one(remote: Remote, place: str, patience: Patience, name: str) -> "Found | Exception":
    url = f"{place.rstrip('/')}/{name}"
    try:
        return Found(name, url, patience.call(lambda: remote.info(url)), remote)
    except (RefusedError, TransientError) as error:
        return error


_MAGIC = b"GRIB"
_WORDS_SHOWN = 160  # characters of what a server sent instead of a file


class StoppedError(Exception):
    """The transfer was told to stop; what it has is kept."""


@dataclass
class Transfer:
    """How files are fetched.

    Attributes:
        remote: reads them.
        patience: with dropped connections.
        on_bytes: called with every change in the number of bytes that are here.
        stop: set by another thread to end all transfers soon.
    """

    remote: Remote
    patience: Patience
    on_bytes: Callable[[int], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)

    def fetch(self, url: str, target: Path, info: Info) -> Entry:
        """Fetches a GRIB file; goes on from what an earlier attempt left.

        Args:
            url: of the file.
            target: to write; `inside` has judged it.
            info: of the remote file, as just asked for.

        Raises:
            RefusedError, TransientError: the file cannot be had (any more).
            FileError: the server sent something else, or another process writes the same file.
            DamagedFileError: all of the file came, and it is no sound GRIB file.
            StoppedError: told to stop.
        """
        with part_of(target).open("ab+") as file, _lock_file(file, target):
            clear_leftovers(target.parent, note_of(target).name)
            partial = Partial(file, note_of(target), public(url), info, self.on_bytes)
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
        while not partial.whole:
            try:
                with self.remote.part(url, partial.position, partial.info) as part:
                    self._copy(url, part, partial)
            except TransientError as error:
                failures = 1 if partial.position > furthest else failures + 1
                furthest = max(furthest, partial.position)
                self.patience.wait(failures, error)

    def _copy(self, url: str, part: Part, partial: Partial) -> None:
        if not part.info.agrees(partial.info) and not part.info.agrees(self.remote.info(url)):
            text = _words(next(part.blocks, b""))
            raise TransientError(
                f"the server announces one file and sends another, which begins with {text!r}"
            )
        partial.adopt(part)
        for block in part.blocks if part.start else _check_first_message(part.blocks, partial.url):
            if self.stop.is_set():
                raise StoppedError
            partial.add(block)
        partial.end()


def _check_first_message(blocks: Iterator[bytes], url: str) -> Iterator[bytes]:
    """The blocks of a file from its beginning, once that is seen to be GRIB."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= len(_MAGIC):
            break
    if not head.startswith(_MAGIC[: len(head)]):  # which may be shorter, if the connection dropped
        text = _words(head)
        raise FileError(
            url, f"no GRIB file; what the server sent begins with {text!r}", "Check the base URL"
        )
    yield head
    yield from blocks


def _words(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:_WORDS_SHOWN]


def _finish(target: Path) -> None:
    """Checks a whole file from its first message to its last, and gives it its name."""
    part = part_of(target)
    try:
        scan(part)
    except FileError:
        damaged_file = target.with_name(f"{target.name}.damaged")
        part.replace(damaged_file)
        note_of(target).unlink()
        scan(damaged_file)  # says the same of the name that the file bears now
        raise
    part.replace(target)
    note_of(target).unlink(missing_ok=True)
    sync_folder(target.parent)


@contextmanager
def _lock_file(file: IO[bytes], target: Path) -> Iterator[None]:
    """Refuses a file that another process is fetching; the lock ends with the open file."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileError(
            target, "another process is fetching it", "Wait for it, or use another folder"
        ) from error
    yield


_AGAIN = "Run the same command again: what is there is kept, and parts are completed"


@dataclass(frozen=True)
class Report:
    """What a download did, or would do.

    Attributes:
        folder: that the files are in.
        kept: names of the files that were there already.
        fetched: names of the files that came (that would come, for a dry run).
        size: bytes of all of them.
        left: bytes that were still to come when it began.
        free: bytes that were free on the disk when it began.
    """

    folder: Path
    kept: tuple[str, ...]
    fetched: tuple[str, ...]
    size: int
    left: int
    free: int


@dataclass(frozen=True)
class Manner:
    """How to go about a download.

    Attributes:
        jobs: files at a time.
        dry_run: only ask for the sizes.
        check: read again what is there and compare its checksum.
        progress: show a bar.
        say: is told sizes and what happens.
        patience: with servers and connections.
        stop: set to end all transfers soon.
    """

    jobs: int
    dry_run: bool
    check: bool
    progress: bool
    say: Say
    patience: Patience
    stop: threading.Event


def fetch_files(
    folder: Path, names: Sequence[str], places: Sequence[str], manner: Manner
) -> Report:
    """Brings files into a folder; see `ens10.download.download`."""
    targets = {name: inside(folder, name) for name in (*names, NAME)}
    record = Record(folder)
    faults: dict[str, str] = {}
    local_sizes: dict[str, int] = {}
    for name in names:
        _keep(record.get(name), targets[name], manner.check, local_sizes, faults)
    missing = [name for name in names if name not in local_sizes and name not in faults]
    files, unavailable = locate(missing, places, manner.patience, manner.jobs, manner.say)
    faults.update(unavailable)
    queue = []
    for file in files.values():
        if targets[file.name].exists():
            _recognise(file, targets[file.name], record, manner.dry_run, local_sizes, faults)
        else:
            queue.append(file)
    report = _report(folder, queue, local_sizes)
    _tell(report, queue, manner)
    check_space(folder, report.left)
    if not manner.dry_run and queue:
        folder.mkdir(parents=True, exist_ok=True)
        faults.update(_fetch(folder, queue, record, manner))
    if faults:
        raise MissingDataError(folder, [faults[name] for name in names if name in faults], _AGAIN)
    return report


def _keep(
    entry: Entry | None,
    target: Path,
    check: bool,
    local_sizes: dict[str, int],
    faults: dict[str, str],
) -> None:
    """Judges a file that is there and recorded."""
    if entry is None or not target.exists():
        return
    size = target.stat().st_size
    if size != entry.size:
        faults[target.name] = _differs(target.name, f"{size} bytes, and {entry.size} were fetched")
    elif check and checksum(target) != entry.sha256:
        faults[target.name] = _differs(target.name, f"its SHA-256 is not the one in {NAME}")
    else:
        local_sizes[target.name] = size


def _recognise(
    file: Found,
    target: Path,
    record: Record,
    dry_run: bool,
    local_sizes: dict[str, int],
    faults: dict[str, str],
) -> None:
    """Judges a file that is there and not recorded, by the server's size and its own framing."""
    size = target.stat().st_size
    if file.info.size is not None and size != file.info.size:
        faults[file.name] = _differs(
            file.name, f"{size} bytes, and the server has {file.info.size}"
        )
        return
    try:
        if not dry_run:
            scan(target)
            record.add(file.name, Entry(checksum(target), size, public(file.url)))
            note_of(target).unlink(missing_ok=True)  # of a process that was killed before that
            clear_leftovers(target.parent, note_of(target).name)
        local_sizes[file.name] = size
    except FileError as error:
        faults[file.name] = _differs(file.name, str(error).rstrip("."))


def _differs(name: str, reason: str) -> str:
    return f"{name} (another file of this name is here: {reason}; remove it to fetch it)"


def _report(folder: Path, queue: Sequence[Found], local_sizes: dict[str, int]) -> Report:
    sizes = {file.name: file.info.size or 0 for file in queue}
    partial_size = sum(
        resumable_size(
            part_of(folder / file.name), note_of(folder / file.name), public(file.url), file.info
        )
        for file in queue
    )
    total = sum(sizes.values())
    return Report(
        folder, tuple(local_sizes), tuple(sizes), total + sum(local_sizes.values()),
        total - partial_size, free_space(folder),
    )  # fmt: skip


def _tell(report: Report, queue: Sequence[Found], manner: Manner) -> None:
    if manner.dry_run:
        for file in queue:
            size = "size unknown" if file.info.size is None else size_text(file.info.size)
            manner.say(f"{public(file.url)}  {size}")
    unknown_count = sum(file.info.size is None for file in queue)
    manner.say(
        f"{len(queue)} files to fetch and {len(report.kept)} here, {size_text(report.size)} in all"
        + (f" and {unknown_count} of unknown size" if unknown_count else "")
        + f"; {size_text(report.left)} to come, {size_text(report.free)} free in {report.folder}"
    )


@contextmanager
def fetching_pool(folder: Path, manner: Manner) -> Iterator[ThreadPoolExecutor]:
    """Yield the threads that fetch; an error stops them and drops what they have not begun.

    Args:
        folder: where the files go, for errors.
        manner: number of threads, and the event that stops them.

    Raises:
        FileError: instead of an `OSError` of the folder.
    """
    with ThreadPoolExecutor(manner.jobs) as pool:
        try:
            yield pool
        except BaseException as error:
            manner.stop.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                other = FileError(folder, f"cannot be written to ({error})", _AGAIN)
                raise machine_error(error) or other from error
            raise


def _fetch(folder: Path, queue: Sequence[Found], record: Record, manner: Manner) -> dict[str, str]:
    """Fetches files in parallel; what went wrong, by name."""
    total = sum(file.info.size or 0 for file in queue)
    with (
        bar("download", total, manner.progress, in_bytes=True) as on_bytes,
        fetching_pool(folder, manner) as pool,
    ):

        def fetch_one(file: Found) -> str | None:
            transfer = Transfer(file.remote, manner.patience, on_bytes, manner.stop)
            try:
                record.add(file.name, transfer.fetch(file.url, folder / file.name, file.info))
            except (RefusedError, TransientError, Ens10Error) as error:
                return f"{file.name} ({str(error).rstrip('.')})"
            return None

        futures = {pool.submit(fetch_one, file): file.name for file in queue}
        reasons = {futures[future]: future.result() for future in as_completed(futures)}
    return {name: reason for name, reason in reasons.items() if reason is not None}
