"""Whether a store is what was written, byte for byte, and what its source says, bit for bit."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import crc32c
import numpy as np
import numpy.typing as npt

from ens10.convert.listing import located
from ens10.convert.sampling import Sample, decoded, samples
from ens10.errors import ArgumentError, FileError
from ens10.progress import bar, track
from ens10.store import store_kinds
from ens10.store.chunks import open_reader
from ens10.store.manifest import (
    Manifest,
    Row,
    damaged_records,
    files_of,
    mend_records,
    read_manifest,
)
from ens10.untrusted import check_regular

_THREADS = 4
_PIECE = 1 << 22  # bytes read at a time
_FILES = 64  # checked at a time by one thread


@dataclass
class Verification:
    """What was found.

    Attributes:
        chunks: files that the store should hold.
        bytes: of the files that were read.
        damaged: path and reason of files that are not what was written.
        missing: paths of files that are not there.
        extra: paths of files that should not be there.
        sampled: fields that were decoded from the source again.
        differing: of these, those whose values differ: path in the store, place in the source.
        repaired: paths of files that were made anew.
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
        """Whether nothing is wrong."""
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
    """Reads every file of a store again, and decodes some fields from the source again.

    Args:
        store: a store that `prepare` made.
        source: the files it was made from; looked for beside the store if None.
        truth: likewise, for a repair of the truth.
        sample: how many fields to decode again through ecCodes, if the source is GRIB and is
            there; 0 for none.
        seed: of the choice of these fields.
        repair: make anew the units that are damaged, from the source.
        workers: threads, or processes of a repair.
        progress: show a progress bar.

    Returns:
        What was found; after a repair, what is left to be found.

    Examples:
        >>> import ens10
        >>> ens10.verify("store.zarr").ok
        True

    Raises:
        FileError: no store, one without a manifest, or a repair that is not possible.
        DamagedFileError: the manifest is damaged.
        ArgumentError: fewer than no fields.
    """
    if sample < 0:
        raise ArgumentError("sample", f"{sample} fields", "Give 0 or more")
    store = Path(store)
    if not store.is_dir():
        store_kinds(store)  # says what is wrong
        raise FileError(store, "not a local store", "Verify the store where it lies")
    manifest = read_manifest(store)
    found = _checked(store, manifest, workers or _THREADS, progress)
    if repair and not found.ok:
        from ens10.convert.repairing import repair_units

        mended = mend_records(store)
        wrong = _wrong(found) - set(mended)
        if wrong:
            mended += repair_units(store, manifest, wrong, source, truth, workers, progress)
        found = _checked(store, manifest, workers or _THREADS, progress)
        found.repaired = sorted(mended)
    path = located(store, manifest.plan["source"], source)
    if path is not None and sample:
        _check_sample(store, found, samples(manifest, path, sample, Random(seed)), progress)
    return found


def _wrong(found: Verification) -> set[str]:
    return {path for path, _ in found.damaged} | set(found.missing)


def _checked(store: Path, manifest: Manifest, threads: int, progress: bool) -> Verification:
    """Every file of the manifest against its size and checksum, and no others."""
    rows = [row for _, row in manifest.rows()]
    known = {row[0] for row in rows}
    found = Verification(chunks=len(rows), extra=[p for p in files_of(store) if p not in known])
    parts = [rows[n : n + _FILES] for n in range(0, len(rows), _FILES)]
    total = sum(row[1] for row in rows)
    with (
        ThreadPoolExecutor(threads) as pool,
        bar("verify", total, progress, in_bytes=True) as advance,
    ):
        for future in as_completed([pool.submit(_check, store, part) for part in parts]):
            for path, size, reason in future.result():
                found.bytes += size
                advance(size)
                if reason == _MISSING:
                    found.missing.append(path)
                elif reason:
                    found.damaged.append((path, reason))
    found.damaged += [(name, "it does not match its checksum") for name in damaged_records(store)]
    found.damaged.sort()
    found.missing.sort()
    return found


_MISSING = "missing"
_kept = threading.local()


def _check(store: Path, rows: Iterable[Row]) -> list[tuple[str, int, str]]:
    """Path, bytes read, and what is wrong, of each file."""
    return [(row[0], *_check_file(store / row[0], row[1], row[2])) for row in rows]


def _check_file(path: Path, size: int, crc: int) -> tuple[int, str]:
    buffer: npt.NDArray[np.uint8] | None = getattr(_kept, "buffer", None)
    if buffer is None:
        buffer = _kept.buffer = np.empty(_PIECE, np.uint8)
    found, done = 0, 0
    try:
        check_regular(path)
        with path.open("rb", buffering=0) as file:
            while done <= size and (count := file.readinto(buffer.data)):
                found = crc32c.crc32c(buffer[:count].data, found)
                done += count
    except FileNotFoundError:
        return 0, _MISSING
    except FileError:
        return 0, "it is not a regular file"
    except OSError as error:
        return done, f"it cannot be read ({error.strerror})"
    if done != size:
        return done, f"{path.stat().st_size} bytes instead of {size}"
    return done, "" if found == crc else "it does not match its checksum"


def _check_sample(
    store: Path, found: Verification, chosen: Sequence[Sample], progress: bool
) -> None:
    """Compares fields of the store with what ecCodes makes of their messages."""
    wrong = _wrong(found)
    for one in track(chosen, "decode", len(chosen), progress):
        if one.path in wrong or f"{one.array}/zarr.json" in wrong:
            continue
        want = decoded(one)
        reader = open_reader(store, one.array)
        got = np.empty((1, *want.shape), np.float32)
        reader.read_into(one.place, got, [one.member])
        found.sampled += 1
        if not np.array_equal(got[0].view(np.uint32), want.view(np.uint32)):
            found.differing.append((one.path, one.where))
