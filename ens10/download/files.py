"""The forecast files of ENS-10: sizes first, then every file in parts, in parallel."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from ens10.download.bar import track_bytes
from ens10.download.folder import check_space, free_space, inside, size_text
from ens10.download.locate import Found, Say, locate
from ens10.download.partial import held, note_of, part_of
from ens10.download.record import NAME, Entry, Record, checksum
from ens10.download.remote import RefusedError, TransientError, public
from ens10.download.retry import Patience
from ens10.download.transfer import Transfer
from ens10.durable import clear_leftovers
from ens10.errors import Ens10Error, FileError, MissingDataError
from ens10.grib import scan
from ens10.machine_errors import machine_error

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
    wrong: dict[str, str] = {}
    kept: dict[str, int] = {}
    for name in names:
        _keep(record.get(name), targets[name], manner.check, kept, wrong)
    asked = [name for name in names if name not in kept and name not in wrong]
    found, lacking = locate(asked, places, manner.patience, manner.jobs, manner.say)
    wrong.update(lacking)
    coming = []
    for one in found.values():
        if targets[one.name].exists():
            _recognise(one, targets[one.name], record, manner.dry_run, kept, wrong)
        else:
            coming.append(one)
    report = _report(folder, coming, kept)
    _tell(report, coming, manner)
    check_space(folder, report.left)
    if not manner.dry_run and coming:
        folder.mkdir(parents=True, exist_ok=True)
        wrong.update(_fetch(folder, coming, record, manner))
    if wrong:
        raise MissingDataError(folder, [wrong[name] for name in names if name in wrong], _AGAIN)
    return report


def _keep(
    entry: Entry | None, target: Path, check: bool, kept: dict[str, int], wrong: dict[str, str]
) -> None:
    """Judges a file that is there and recorded."""
    if entry is None or not target.exists():
        return
    size = target.stat().st_size
    if size != entry.size:
        wrong[target.name] = _differs(target.name, f"{size} bytes, and {entry.size} were fetched")
    elif check and checksum(target) != entry.sha256:
        wrong[target.name] = _differs(target.name, f"its SHA-256 is not the one in {NAME}")
    else:
        kept[target.name] = size


def _recognise(
    one: Found,
    target: Path,
    record: Record,
    dry_run: bool,
    kept: dict[str, int],
    wrong: dict[str, str],
) -> None:
    """Judges a file that is there and not recorded, by the server's size and its own framing."""
    size = target.stat().st_size
    if one.info.size is not None and size != one.info.size:
        wrong[one.name] = _differs(one.name, f"{size} bytes, and the server has {one.info.size}")
        return
    try:
        if not dry_run:
            scan(target)
            record.add(one.name, Entry(checksum(target), size, public(one.url)))
            note_of(target).unlink(missing_ok=True)  # of a process that was killed before that
            clear_leftovers(target.parent, note_of(target).name)
        kept[one.name] = size
    except FileError as error:
        wrong[one.name] = _differs(one.name, str(error).rstrip("."))


def _differs(name: str, how: str) -> str:
    return f"{name} (another file of this name is here: {how}; remove it to fetch it)"


def _report(folder: Path, coming: Sequence[Found], kept: dict[str, int]) -> Report:
    sizes = {one.name: one.info.size or 0 for one in coming}
    here = sum(
        held(part_of(folder / one.name), note_of(folder / one.name), public(one.url), one.info)
        for one in coming
    )
    total = sum(sizes.values())
    return Report(
        folder, tuple(kept), tuple(sizes), total + sum(kept.values()), total - here,
        free_space(folder),
    )  # fmt: skip


def _tell(report: Report, coming: Sequence[Found], manner: Manner) -> None:
    if manner.dry_run:
        for one in coming:
            size = "size unknown" if one.info.size is None else size_text(one.info.size)
            manner.say(f"{public(one.url)}  {size}")
    unknown = sum(one.info.size is None for one in coming)
    manner.say(
        f"{len(coming)} files to fetch and {len(report.kept)} here, {size_text(report.size)} in all"
        + (f" and {unknown} of unknown size" if unknown else "")
        + f"; {size_text(report.left)} to come, {size_text(report.free)} free in {report.folder}"
    )


def _fetch(folder: Path, coming: Sequence[Found], record: Record, manner: Manner) -> dict[str, str]:
    """Fetches files in parallel; what went wrong, by name."""
    total = sum(one.info.size or 0 for one in coming)
    with (
        track_bytes("download", total, manner.progress) as moved,
        ThreadPoolExecutor(manner.jobs) as pool,
    ):

        def one_file(one: Found) -> str | None:
            transfer = Transfer(one.remote, manner.patience, moved, manner.stop)
            try:
                record.add(one.name, transfer.fetch(one.url, folder / one.name, one.info))
            except (RefusedError, TransientError, Ens10Error) as error:
                return f"{one.name} ({str(error).rstrip('.')})"
            return None

        futures = {pool.submit(one_file, one): one.name for one in coming}
        try:
            told = {futures[future]: future.result() for future in as_completed(futures)}
        except BaseException as error:
            manner.stop.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                other = FileError(folder, f"cannot be written to ({error})", _AGAIN)
                raise machine_error(error) or other from error
            raise
    return {name: reason for name, reason in told.items() if reason is not None}
