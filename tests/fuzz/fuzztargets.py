"""Readers of other people's files, fed with damaged ones: mutations of a corpus, or atheris.

    python tests/fuzz/fuzztargets.py TARGET --runs 100000 [--seed 1] [--atheris]

Each target takes any bytes, and returns or raises one of its errors, in one line. Anything else is
a find: another exception, more than 5 seconds of processor time, more memory than `ROOM` + `FACTOR`
times the size, the end of the process, or a value of a table or of a Zarr store that differs from
an independent reading (`fuzzreadings.py`); `compared` counts inputs with such values. Inputs of
mutations depend on the seed and their number alone, so that a campaign goes on where the last one
of its seed ended. The counts in `counts.json` beside this file grow with every run, and finds are
written to TMPDIR/ens10-finds. atheris (guided by coverage) is not among the requirements of the
tests: `pip install atheris`.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
from fuzzchanges import Change, change_bytes, change_json, change_table
from fuzzreadings import check_table, check_zarr

from ens10.errors import Ens10Error, FileError, ResourceError

HERE = Path(__file__).parent
COUNTS = Path(os.environ.get("ENS10_FUZZ_COUNTS", HERE / "counts.json"))
SECONDS = 5.0  # that reading a file of some kilobytes may take
ROOM, FACTOR = 1 << 23, 64  # bytes of memory, besides what is imported, and for each byte
_LIMIT = 1 << 30  # bytes of address space that a long run may take in addition


@cache
def folder() -> Path:
    """A folder in memory, if there is one."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="ens10-fuzz-", dir=shared if shared.is_dir() else None))


def _written(name: str, content: bytes) -> Path:
    path = folder() / name
    path.write_bytes(content)
    return path


def _check_named(error: Exception, path: Path) -> None:
    if path.name not in str(error):
        raise AssertionError(f"the error does not name {path.name}: {error}")


def grib_sections(content: bytes) -> None:
    """Framing and sections of a file's messages, without ecCodes."""
    from ens10.grib.index import GribFile, _frames
    from ens10.grib.sections import sections

    path = _written("a.grib", content)
    with path.open("rb") as file:
        for message in _frames(GribFile(path, file), lambda _: None):
            try:
                sections(message)
            except FileError as error:
                _check_named(error, path)


def grib_index(content: bytes) -> None:
    """All messages of a file, their headers read by ecCodes."""
    from ens10.grib import header, survey

    header._headers.clear()
    survey(_written("a.grib", content))


def grib_decode(content: bytes) -> None:
    """The values of all messages, by this package and by ecCodes."""
    from ens10.grib import decode, header, pack, packing, survey

    header._headers.clear()
    packing._exact_packings.clear()
    path = _written("a.grib", content)
    messages, _ = survey(path)
    with path.open("rb") as file:
        for message in messages:
            for read in (pack, decode):
                try:
                    read(message, file)
                except FileError as error:
                    _check_named(error, path)


def packed16(content: bytes) -> None:
    """A chunk of 4 fields of 4 x 6 points."""
    from ens10.packed16.layout import parse, read_values
    from ens10.packed16.unpack import unpack

    chunk = np.frombuffer(_with_record_checksum(content), np.uint8)
    records = parse(chunk.data, 4, 4, 6, chunk.size)
    out = np.empty(24, np.float32)
    for n, record in enumerate(records):
        unpack(record, read_values(chunk, records, n, 24).copy(), out)


def _with_record_checksum(content: bytes) -> bytes:
    """The chunk with the right checksum of its records, one time in two."""
    from ens10.packed16.layout import RECORD

    if len(content) < 32 + 4 * RECORD.itemsize or sum(content) % 2:
        return content
    held = np.uint32(crc32c.crc32c(content[32 : 32 + 4 * RECORD.itemsize])).tobytes()
    return content[:24] + held + content[28:]


def manifest(content: bytes) -> None:
    """The record of a store, its checksum put right."""
    from ens10.store.manifest import _read_manifest_file, _read_plan_file

    body, _, _ = content.rpartition(b'},"crc32c":')
    content = body + b'},"crc32c":%d}\n' % crc32c.crc32c(body)
    path = _written("manifest", content)
    for read in (_read_plan_file, _read_manifest_file):
        try:
            read(path)
        except FileError as error:
            _check_named(error, path)


def predictions(content: bytes) -> None:
    """A store of predictions; the first byte says which of its metadata files is replaced."""
    from ens10.experiments.runs.reading import open_predictions

    store = folder() / "predictions.zarr"
    files = _predictions()
    if not store.exists():
        for name, whole in files.items():
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            _written(f"{store.name}/{name}", whole)
    name = list(files)[content[0] % len(files)] if content else "zarr.json"
    _written(f"{store.name}/{name}", content[1:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forecast, truth = open_predictions(store)
            repr(forecast), repr(truth)
    finally:
        _written(f"{store.name}/{name}", files[name])


@cache
def _predictions() -> dict[str, bytes]:
    """The metadata and coordinates of a small store of predictions, by path."""
    corpus = HERE / "corpus" / "predictions.json"
    return {name: text.encode("latin-1") for name, text in json.loads(corpus.read_text()).items()}


def table(content: bytes) -> bool:
    """A table of stations, half of them as forecasts and half as observations."""
    from ens10.source.names import Names
    from ens10.source.tables import table_dataset

    path = _written("a.parquet" if content.startswith(b"PAR1") else "a.csv", content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            truth = crc32c.crc32c(content) % 2 == 1
            dataset = table_dataset(path, Names(), "nan", truth=truth)
    except Ens10Error as error:
        _check_named(error, path)
        raise
    return check_table(content, dataset, truth=truth)


def zarr_source(content: bytes) -> bool:
    """A user's Zarr store; the first byte says which of its metadata files is replaced."""
    from ens10.source import open_source
    from ens10.source.layout import read_values

    number = content[0] if content else 0
    files = _zarr_sources()[number % 2]
    store = folder() / f"source{number % 2}.zarr"
    if not store.exists():
        for name, whole in files.items():
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            _written(f"{store.name}/{name}", whole)
    names = [name for name in files if Path(name).name[:2] in ("za", ".z")]
    name = names[number // 2 % len(names)]
    _written(f"{store.name}/{name}", content[1:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = read_values(open_source(store, missing="nan"), store.name)
    except ResourceError as error:  # of an axis that is longer than the memory
        if b"shape" not in content:
            raise AssertionError("no shape needs memory") from error
    finally:
        _written(f"{store.name}/{name}", files[name])
    return check_zarr({**files, name: content[1:]}, dataset)


@cache
def _zarr_sources() -> list[dict[str, bytes]]:
    """The files of two small stores, of version 3 and 2 of Zarr, by path."""
    stores = json.loads((HERE / "corpus" / "zarr_source.json").read_text())
    return [{name: text.encode("latin-1") for name, text in store.items()} for store in stores]


def json_text(content: bytes) -> None:
    """JSON."""
    from ens10.untrusted import parse_json

    parse_json(content)


def yaml_text(content: bytes) -> None:
    """YAML."""
    from ens10.untrusted import parse_yaml

    parse_yaml(content)


def config(content: bytes) -> None:
    """The names of a source's variables in YAML, and a protocol in YAML."""
    from ens10.protocol import protocol_of
    from ens10.source.names import read_names

    path = _written("a.yaml", content)
    for read in (read_names, protocol_of):
        try:
            read(path)
        except Ens10Error as error:
            _check_named(error, path)


def checkpoint(content: bytes) -> None:
    """The shapes of a checkpoint's tensors, and whether it is whole."""
    from ens10.experiments.runs.checkpoints import checkpoint_shapes, is_intact

    path = _written("a.ckpt", content)
    is_intact(path)
    checkpoint_shapes(path)


def model_json(content: bytes) -> None:
    """The description in a bundle."""
    from ens10.experiments.forecasts.bundle import _read_description
    from ens10.loader.datamodule import TrainingData

    path = folder() / "a.ens10"
    try:
        about = _read_description(path, content)
    except FileError as error:
        _check_named(error, path)
        raise
    TrainingData.read(about.trained)


@dataclass(frozen=True)
class Target:
    """A reader, the errors that it may raise, and how many runs the ordinary tests make.

    Attributes:
        read: reads; True if the values were compared with an independent reading.
        errors: that it may raise.
        tested: runs of the ordinary tests.
        change: changes the content within its format; made for half of the inputs, because nearly
            all with random bytes are refused by the parser.
    """

    read: Callable[[bytes], bool | None]
    errors: tuple[type[Exception], ...]
    tested: int
    change: Change | None = None


TARGETS = {
    "grib_sections": Target(grib_sections, (FileError,), 300),
    "grib_index": Target(grib_index, (FileError,), 60),
    "grib_decode": Target(grib_decode, (FileError,), 60),
    "packed16": Target(packed16, (Ens10Error, ValueError), 500),
    "manifest": Target(manifest, (FileError,), 200),
    "predictions": Target(predictions, (Ens10Error,), 20),
    "table": Target(table, (Ens10Error,), 20, change_table),
    "zarr_source": Target(zarr_source, (Ens10Error,), 20, change_json),
    "json": Target(json_text, (ValueError,), 1000),
    "yaml": Target(yaml_text, (ValueError,), 300),
    "config": Target(config, (Ens10Error,), 100),
    "checkpoint": Target(checkpoint, (FileError,), 200),
    "model_json": Target(model_json, (FileError, ValueError), 500),
}


def corpus_of(name: str) -> list[bytes]:
    """The inputs of a target from which mutations are made, in the order of their names."""
    return [path.read_bytes() for path in sorted((HERE / "corpus" / name).iterdir())]


def mutations(
    corpus: list[bytes], seed: int, first: int, count: int, change: Change | None = None
) -> Iterator[bytes]:
    """Inputs with the numbers `first` to `first + count - 1` of a seed."""
    for number in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + number)
        content = bytearray(rng.choice(corpus))
        mutate = change_bytes if change is None or number % 2 else change
        # fewer changes within the format, so that ens10 accepts more and values are compared
        for _ in range(1 + int(rng.expovariate(0.7 if mutate is change_bytes else 1.4))):
            mutate(content, corpus, rng)
        yield bytes(content)


class HangError(Exception):
    """Reading takes too long."""


def execute(target: Target, content: bytes) -> bool:
    """Reads one input; raises what is a find, and returns True if its values were compared."""
    _catch_hangs()
    # Of this process's own time, since others may keep it waiting; ecCodes works in another one.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 100 * SECONDS)
    try:
        return bool(target.read(content))
    except target.errors as error:
        if isinstance(error, ResourceError):  # memory or files that did not suffice
            raise
        if isinstance(error, Ens10Error) and not str(error).isprintable():
            raise AssertionError(f"more than one line: {error!r}") from error
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@cache
def _catch_hangs() -> None:
    def late(*_: object) -> None:
        raise HangError(f"more than {SECONDS} s")

    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)


def _campaign(name: str, seed: int, runs: int, seconds: float) -> None:
    """Mutations from where the last campaign of the seed ended; finds are written to `finds`."""
    counts = _counts(name)
    done = counts["mutations"].get(str(seed), 0)
    corpus, told, compared = corpus_of(name), 0, 0
    _work_in_one_thread()
    _import(name)
    gc.freeze()  # what is imported is not searched again and again
    begun = time.monotonic()
    _limit_memory()
    inputs = mutations(corpus, seed, done, runs, TARGETS[name].change)
    for number, content in enumerate(inputs, 1):
        try:
            compared += execute(TARGETS[name], content)
        except Exception as error:
            _keep(name, content, error)
        if number % 1000 == 0 or number == runs or time.monotonic() - begun > seconds:
            _record(name, "mutations", number - told, seed)
            _record(name, "compared", compared, seed)
            told, compared = number, 0
            if time.monotonic() - begun > seconds:
                break


def _work_in_one_thread() -> None:
    """Let zarr run its coroutines in the thread that calls them, which saves half of the time."""
    import zarr.core.sync

    loops, threaded = threading.local(), zarr.core.sync.sync

    def sync(coroutine: Any, loop: object = None, timeout: object = None) -> Any:
        if not hasattr(loops, "own"):
            loops.own = asyncio.new_event_loop()
        return loops.own.run_until_complete(coroutine)

    async def call(function: Any, *args: Any, **options: Any) -> Any:
        return function(*args, **options)

    for module in list(sys.modules.values()):
        if getattr(module, "sync", None) is threaded:
            module.sync = sync  # type: ignore[attr-defined]
    asyncio.to_thread = call  # type: ignore[assignment]


def _import(name: str) -> None:
    """Reads one input without a limit of time: what is needed is imported."""
    with suppress(*TARGETS[name].errors):
        TARGETS[name].read(corpus_of(name)[0])


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + _LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


def _guided(name: str, runs: int, seconds: float) -> None:
    """The same with atheris, which instruments the package as it is imported."""
    import atheris

    with atheris.instrument_imports(include=["ens10", "yaml", "json"]):
        _import(name)
    kept = Path(tempfile.gettempdir()) / f"ens10-fuzz-{name}"
    kept.mkdir(exist_ok=True)
    number = 0

    def once(content: bytes) -> None:
        nonlocal number
        number += 1
        if number % 1000 == 0:
            _record(name, "atheris", 1000, 0)
        try:
            execute(TARGETS[name], content)
        except Exception as error:
            _keep(name, content, error)

    options = [f"-runs={runs}", f"-max_total_time={int(seconds)}", "-max_len=4096", "-timeout=10"]
    options += ["-rss_limit_mb=4096", "-verbosity=0", str(kept), str(HERE / "corpus" / name)]
    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


def _keep(name: str, content: bytes, error: Exception) -> None:
    """Writes a find to a file, once for each kind of error and place."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (
        "" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).stem}-{trace.tb_lineno}"
    )
    path = Path(tempfile.gettempdir()) / "ens10-finds" / f"{name}-{type(error).__name__}-{place}"
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    _record(name, "finds", 1, 0)
    print(f"{path}: {error!r}"[:300], flush=True)


def _counts(name: str) -> dict[str, Any]:
    held = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    empty: dict[str, Any] = {"mutations": {}, "atheris": 0, "finds": 0}
    own: dict[str, Any] = held.get(name, empty)
    return own


def _record(name: str, what: str, more: int, seed: int) -> None:
    """Adds to the counts; one process writes them at a time."""
    held = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    own = held.setdefault(name, {"mutations": {}, "atheris": 0, "finds": 0})
    if what == "mutations":
        own[what][str(seed)] = own[what].get(str(seed), 0) + more
    else:
        own[what] = own.get(what, 0) + more
    partial = COUNTS.with_suffix(".tmp")
    partial.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")
    partial.replace(COUNTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    if options.atheris:
        _guided(options.target, options.runs, options.seconds)
    else:
        _campaign(options.target, options.seed, options.runs, options.seconds)
    shutil.rmtree(folder())


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    main()
