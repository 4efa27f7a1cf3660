"""What it costs to check GRIB messages first and to run ecCodes in a process of its own.

    python benchmarks/gribguard.py --out benchmarks/results/gribguard.json

Each figure is the median over the repetitions of a ratio of processor times that were measured one
after the other: of a message's sections to unpacking its field, and of reading an index to mapping
it. Those of ecCodes in a process of its own to ecCodes in this one are ratios of the least times by
the clock, since two processes work in turn. The fields are 361 x 720.
"""

import argparse
import json
import mmap
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import eccodes
import numpy as np

from ens10.catalog import variable
from ens10.grib import Encoder, LatLonGrid, Message, decode, index, pack, scan
from ens10.grib.index import GribFile
from ens10.grib.sections import RawMessage, sections

GRID = LatLonGrid(361, 720, 90.0, -90.0, 0.0, 0.5)
MESSAGES = 200


class Mapped(GribFile):
    """A GRIB file as a memory map, which a file that becomes shorter turns into SIGBUS."""

    def __init__(self, path: Path, file) -> None:  # type: ignore[no-untyped-def]
        super().__init__(path, file)
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getitem__(self, span: slice) -> bytes:
        return self._map[span]


def written(path: Path) -> list[Message]:
    """A file of many fields of simple packing, as those of ENS-10."""
    values = np.random.default_rng(0).normal(280.0, 10.0, (GRID.rows, GRID.columns))
    encoder = Encoder(GRID)
    with path.open("wb") as file:
        for n in range(MESSAGES):
            raw = encoder.message(
                values, variable("t2m"), date=20160101 + n % 28, step=24, number=n % 10
            )
            file.write(raw)
    return list(scan(path))


def with_packing(path: Path, kind: str) -> tuple[Message, bytes]:
    """One field in another packing."""
    raw = path.read_bytes()[: scan(path)[0].length]
    handle = eccodes.codes_new_from_message(raw)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_set(handle, "edition", 2)
    eccodes.codes_set_values(handle, values)
    eccodes.codes_set(handle, "packingType", kind)
    made = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    other = path.with_name(kind)
    other.write_bytes(made)
    return scan(other)[0], made


def in_this_process(raw: bytes) -> np.ndarray:
    """Values of a message as ecCodes unpacks them."""
    handle = eccodes.codes_new_from_message(raw)
    eccodes.codes_set(handle, "missingValue", 1e300)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    return values.reshape(GRID.rows, GRID.columns).astype(np.float32)


def ratio(
    one: Callable[[], object], other: Callable[[], object], clock: Callable[[], float], times: int
) -> float:
    """The median of the ratio of two times, each of which is the least of three."""

    def least(action: Callable[[], object]) -> float:
        spans = []
        for _ in range(3):
            begun = clock()
            action()
            spans.append(clock() - begun)
        return min(spans)

    one()
    other()
    return statistics.median(least(one) / least(other) for _ in range(times))


def ratio_of_least(one: Callable[[], object], other: Callable[[], object], times: int) -> float:
    """The ratio of the least times of each by the clock, measured in turn."""
    spans: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for action, own in zip((one, other), spans, strict=True):
            begun = time.perf_counter()
            action()
            own.append(time.perf_counter() - begun)
    return min(spans[0]) / min(spans[1])


def main() -> None:
    """Measures, prints and writes the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    results: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.grib"
        messages = written(path)
        first = messages[0]
        raw = path.read_bytes()[: first.length]
        framed = RawMessage(path, raw, 0, len(raw), 1, raw[:512])
        many = range(200)
        cpu = time.process_time
        with path.open("rb") as file:
            share = ratio(
                lambda: [sections(framed) for _ in many],
                lambda: [pack(message, file) for message in messages],
                cpu,
                options.times,
            )
            results["sections / unpacking of 16-bit simple packing"] = share
            guarded = ratio(lambda: scan(path), lambda: [pack(m, file) for m in messages], cpu, 5)
            results["index / unpacking of 16-bit simple packing"] = guarded
        reading = index.GribFile
        begun = scan(path)

        def mapped() -> None:
            index.GribFile = Mapped  # type: ignore[misc]
            assert list(scan(path)) == list(begun)
            index.GribFile = reading  # type: ignore[misc]

        results["index by reading / by a memory map"] = ratio(
            lambda: list(scan(path)) == list(begun), mapped, cpu, options.times
        )
        for kind in ("grid_simple", "grid_ccsds"):
            message, content = with_packing(path, kind)
            with message.path.open("rb") as file:
                np.testing.assert_array_equal(in_this_process(content), decode(message, file))
                results[f"ecCodes in its own process / in this one, {kind}"] = ratio_of_least(
                    lambda m=message, f=file: decode(m, f),  # type: ignore[misc]
                    lambda c=content: in_this_process(c),  # type: ignore[misc]
                    20 * options.times,
                )
    text = json.dumps({name: round(value, 3) for name, value in results.items()}, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
