"""A disk cache beside a remote store whose entries leave by their next use, which the seed tells.

    python -m ens10.experiments.studies.next_use WORK --out experiments/results/next_use

A prepared store is read through a local web server of small bandwidth. The order of an epoch's
dates follows from the seed, so that a cache can drop what is needed last (Belady 1966; Dryden et
al. 2021). It is compared with dropping the least recently used, with keeping the first entries, as
the loader's own cache in memory does, and with reading ahead alone. Batches must be those of the
local store. The consumer waits a fixed time with each batch, in place of a training step.

Each date is read once an epoch, so that it can be hit only if it is kept from the epoch before: no
cache has more hits in an epoch than it has room for dates, and a fixed part has as many.
"""

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import fsspec
import numpy as np
import numpy.typing as npt

from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.json_cells import JsonCell, Result, read_json_cells
from ens10.experiments.studies.small_unet import WORLD, compute_here, data_of
from ens10.experiments.studies.study import run_study, study_parser
from ens10.loader import Batches, EnsembleDataModule
from ens10.loader.order import Ranks, jobs_of_epoch
from ens10.usage import reports_errors

CHANGES = {"grid": "46x96", "dates": 6, "kind": "pointwise"}
EPOCHS, BATCH, RING = 4, 4, 3  # RING: batches in memory
FILES = 3  # of a date: mean, deviation and truth
SECONDS = 0.4  # of the consumer with each batch
BANDWIDTH, LATENCY = 1e6, 0.02  # bytes a second, and seconds for each file


@dataclass
class DiskCache:
    """Files of a remote store on the local disk; those of the largest rank leave first.

    Args:
        folder: of the files.
        capacity: bytes.
        rank: of a key in this cache; the one that was just read may leave at once.
        fetch: reads a remote file.

    Attributes:
        fetched: bytes of each read; 0 from the disk.
        reads: number of reads of each key.
        last: number of the last read of each key.
        entered: number of the read with which an entry came in.
    """

    folder: Path
    capacity: int
    rank: Callable[["DiskCache", str], float]
    fetch: Callable[[str], bytes]
    fetched: list[int] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    entered: dict[str, int] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def read(self, key: str) -> bytes:
        """Return a file, from the disk if it is there; for one thread."""
        self.reads[key] += 1
        self.last[key] = self.reads.total()
        if key in self._sizes:
            self.fetched.append(0)
            return self._path(key).read_bytes()
        content = self.fetch(key)
        self.fetched.append(len(content))
        self._sizes[key], self.entered[key] = len(content), self.last[key]
        self._path(key).write_bytes(content)
        while sum(self._sizes.values()) > self.capacity:
            leaving = max(self._sizes, key=partial(self.rank, self))
            del self._sizes[leaving]
            self._path(leaving).unlink()
        return content

    def _path(self, key: str) -> Path:
        return self.folder / quote(key, safe="")


def least_recent(cache: DiskCache, key: str) -> float:
    """Return the rank of a key by its last read."""
    return -cache.last[key]


def newest(cache: DiskCache, key: str) -> float:
    """Return the rank of a key by its entry, so that the first entries stay."""
    return cache.entered[key]


def by_next_use(order: Sequence[Hashable], of_key: Callable[[str], Hashable] = str) -> Any:
    """Return the rank of a key by its next use.

    Args:
        order: of everything that will be read.
        of_key: which of these a key belongs to; each key of one is read once with each use.
    """
    uses: dict[Hashable, list[float]] = {}
    for place, one in enumerate(order):
        uses.setdefault(one, []).append(place)

    def rank(cache: DiskCache, key: str) -> float:
        return [*uses[of_key(key)], np.inf][cache.reads[key]]

    return rank


def date_of(key: str) -> int | None:
    """Return the date of a chunk that each epoch reads; None for other files."""
    match = re.search(r"(?:/ensemble_mean|/ensemble_std|truth/t2m)/c/(\d+)/", key)
    return int(match[1]) if match else None


def answer_of(path: str) -> bytes:
    """Return a file, or the page of a folder, of the local server."""
    try:
        with urlopen(f"http://{path}") as answer:
            return bytes(answer.read())
    except HTTPError as error:
        raise FileNotFoundError(path) from error


class CachedFiles(fsspec.AbstractFileSystem):
    """A web server's files for zarr; chunks of dates come through a cache once there is one."""

    protocol = "nextuse"
    cache: ClassVar[DiskCache | None] = None

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        """Return bytes of a file."""
        cache = None if date_of(path) is None else self.cache
        return (cache.read if cache else answer_of)(path)[start:end]

    def ls(self, path: str, detail: Any = False, **_: Any) -> list[str]:  # noqa: ARG002
        """Return the names in a folder."""
        links = re.findall('href="([^"]+)"', answer_of(f"{path}/").decode())
        return [f"{path}/{link.rstrip('/')}" for link in links]


class SlowHandler(SimpleHTTPRequestHandler):
    """Answer as over a link of small bandwidth."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send a file after the time that it takes."""
        content = source.read()
        time.sleep(LATENCY + len(content) / BANDWIDTH)
        outputfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; yield the address for `CachedFiles`."""
    handler = partial(SlowHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"nextuse://127.0.0.1:{server.server_port}"
        server.shutdown()


RANKS = {"none": newest, "least recent": least_recent, "first": newest, "next use": None}
LABELS = {
    "none": "reading ahead alone",
    "least recent": "the least recently used leaves",
    "first": "the first entries stay",
    "next use": "what is needed last leaves",
}
VARIANTS = ["none-0", *(f"{rank}-{n}" for n in (25, 50) for rank in list(LABELS)[1:])]
NUMBERS = ("variant", "seed", "size", "fetched", "computed", "stall")


class ReadingCell(JsonCell):
    """One kind of cache of one size: its name and percent of the training dates."""

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        settings = [EPOCHS, BATCH, RING, SECONDS, BANDWIDTH, LATENCY, WORLD | CHANGES]
        return key_of({"settings": settings, "cache": self.place}, "", ("ens10.loader",))

    def result(self) -> Result:
        """Read all epochs, compare each batch, and count what was fetched and waited for."""
        policy, share = self.variant.split("-")
        data = data_of(self.scratch, self.seed, BATCH, **CHANGES)
        local, store = data.batches("train"), Path(str(data.store))
        order = dates_of(local, self.seed)
        files = (f for f in store.rglob("*/0/0") if date_of(str(f)) in set(order) and f.is_file())
        size = sum(f.stat().st_size for f in files)
        with serve(self.scratch) as url, TemporaryDirectory() as folder:
            options: dict[str, Any] = {
                "inputs": data.inputs,
                "batch_size": BATCH,
                "seed": self.seed,
                "ring": RING,
            }
            remote = EnsembleDataModule(f"{url}/{store.name}", extras=["location"], **options)
            batches = remote.batches("train")  # opened without the cache
            rank = RANKS[policy] or by_next_use(order, date_of)
            cache = DiskCache(Path(folder), int(share) * size // 100, rank, answer_of)
            CachedFiles.cache = cache
            stall = sum(read_epoch(n, local, batches) for n in range(EPOCHS))
            CachedFiles.cache = None
        facts = {"variant": self.variant, "seed": self.seed, "size": size}
        epochs = np.split(np.array(cache.fetched), EPOCHS)
        computed = sum(stall_of(one) for one in epochs)
        return {**facts, "fetched": sum(cache.fetched), "computed": computed, "stall": stall}


def dates_of(batches: Batches, seed: int) -> list[int]:
    """Return the dates of all epochs in the order in which they are read."""
    epochs = (jobs_of_epoch(batches.index, Ranks(), BATCH, seed, n, True) for n in range(EPOCHS))
    return [date for jobs in epochs for job in jobs for date in job.dates.tolist()]


def stall_of(fetched: npt.NDArray[np.int64]) -> float:
    """Return the seconds that the consumer waits in an epoch, if only link and consumer take time.

    Args:
        fetched: bytes of each read of the epoch, `FILES` of each date.
    """
    seconds = np.where(fetched > 0, LATENCY + fetched / BANDWIDTH, 0)
    ready, ends = 0.0, [0.0] * RING  # a batch is read once the one before the ring is consumed
    for first in range(0, len(seconds), BATCH * FILES):
        cost = seconds[first : first + BATCH * FILES].sum()
        ready = max(ready, ends[-RING]) + cost
        ends.append(max(ready, ends[-1]) + SECONDS)
    return float(ends[-1] - SECONDS * (len(ends) - RING))


def read_epoch(epoch: int, local: Batches, remote: Batches) -> float:
    """Return the seconds that the consumer waits in an epoch; the batches must be equal."""
    for batches in (local, remote):
        batches.set_epoch(epoch)
    stall, received, source = 0.0, [], iter(remote)
    for _ in range(len(remote)):
        start = time.perf_counter()
        received.append(next(source))
        stall += time.perf_counter() - start
        time.sleep(SECONDS)
    for one, other in zip(received, local, strict=True):
        np.testing.assert_equal(dict(one), dict(other))
    return stall


def tables(results: Collection[Result]) -> dict[str, str]:
    """Return the tables of bytes and of waiting, of all epochs together."""
    rows = []
    for variant in VARIANTS:
        policy, share = variant.split("-")
        for r in (r for r in results if r["variant"] == variant):
            part = f"{r['fetched'] / r['size'] / EPOCHS:.0%}"
            numbers = [f"{r['fetched'] / 1e6:.1f}", part, f"{r['computed']:.1f}"]
            rows.append([LABELS[policy], f"{share} %", *numbers])
    heads = ["cache", "of the training dates", "fetched (MB)", "of all that is read", "wait (s)"]
    return {
        "table.md": markdown_of(columns_of(heads, rows)),
        "table.csv": csv_of(NUMBERS, results, ".6g"),
    }


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = study_parser("next_use").parse_args(arguments)
    cells = [ReadingCell(variant, 0, options.work, options.out) for variant in VARIANTS]

    def write(folder: Path, _: Outcome) -> str:
        files = tables(read_json_cells(folder, NUMBERS).values())
        write_files(options.out, files)
        return files["table.md"]

    return run_study(options, partial(compute_here, cells), write)


fsspec.register_implementation(CachedFiles.protocol, CachedFiles)

if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import next_use

    sys.exit(next_use.main())
