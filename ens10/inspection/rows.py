"""A row of the inspection table with its running sums, and the files of a partial store."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Generic, TypeVar

import crc32c
import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.errors import FileError
from ens10.source.units import check_range
from ens10.store.chunks import Form
from ens10.store.manifest import END, NAME
from ens10.untrusted import is_inner, parse_json

_MOST = 20  # places named in a status; more are counted

T = TypeVar("T")


class Few(Generic[T]):
    """The first few of many items, and their number: memory does not grow with damage."""

    def __init__(self) -> None:
        self.first: list[T] = []
        self._count = 0

    def add(self, thing: T, times: int = 1) -> None:
        """Count one more item, or several that are reported as one."""
        self._count += times
        if len(self.first) < _MOST:
            self.first.append(thing)

    def __len__(self) -> int:
        return self._count


@dataclass
class Row:
    """One variable on one level, or (with a problem) one file that cannot be read.

    Attributes:
        name: cfgrib's name, or the file's.
        level: such as "surface" or "500 hPa".
        dates: number of start dates.
        first: first start date.
        last: last one.
        steps: lead times.
        members: number of members.
        missing: fields that lack, of all dates x steps x members.
        minimum: of all values.
        mean: of all finite values, unweighted.
        maximum: of all values.
        units: of the values.
        grid: in words.
        status: "ok", or what is wrong, where, and what to do.
        note: further information.
    """

    name: str
    level: str = ""
    dates: int = 0
    first: str = ""
    last: str = ""
    steps: Sequence[Any] = field(default_factory=list)
    members: int = 0
    missing: int = 0
    minimum: float = np.nan
    mean: float = np.nan
    maximum: float = np.nan
    units: str = ""
    grid: str = ""
    status: str = "ok"
    note: str = ""


class Moments:
    """Running count, sum, minimum and maximum of the fields of one row, and their anomalies.

    Args:
        name: of the variable, whose range is known if the catalogue has it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count, self.total = 0, 0.0
        self.minimum, self.maximum = np.inf, -np.inf
        self.empty: Few[str] = Few()
        self.odd: Few[FileError] = Few()
        self.wrong: Few[FileError] = Few()

    def add(self, values: npt.NDArray[np.float32], where: str) -> None:
        """Add the values of one field.

        Args:
            values: of any shape.
            where: file and place in it, for messages.
        """
        flat = np.ascontiguousarray(values).reshape(-1)
        held, finite, total, low, high = _sweep(flat)
        if not held:
            self.empty.add(where)
            return
        self.count += finite
        self.total += total
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        try:
            check_range(self.name, low, high, where)
        except FileError as error:
            self.odd.add(error)

    def into(self, row: Row) -> Row:
        """Return the row with the statistics filled in."""
        if self.minimum <= self.maximum:
            row.minimum, row.maximum = self.minimum, self.maximum
            row.mean = self.total / self.count if self.count else np.nan
        return row

    def problems(self) -> list[str]:
        """Return descriptions of unreadable and impossible values."""
        found = [first_of(self.wrong)] if self.wrong else []
        return [*found, first_of(self.odd)] if self.odd else found


@numba.njit(**OPTIONS)
def _sweep(values):  # type: ignore[no-untyped-def]
    """Return the number of values, of finite ones, their sum, and minimum and maximum of all."""
    held, finite, total = 0, 0, 0.0
    low, high = np.inf, -np.inf
    for value in values:
        if np.isnan(value):
            continue
        held += 1
        low, high = min(low, value), max(high, value)
        if np.isfinite(value):
            finite += 1
            total += value
    return held, finite, total, low, high


def first_of(errors: Few[FileError]) -> str:
    """Format the first error in full, and the number of others."""
    more = len(errors) - 1
    return str(errors.first[0]) + (f" (And {more} more like it.)" if more else "")


def few(places: Sequence[str] | Few[str]) -> str:
    """Format the first places, and the number of others."""
    first = places.first if isinstance(places, Few) else places[:_MOST]
    more = len(places) - len(first)
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def counted(n: int, what: str) -> str:
    """Format a count, such as "1 field" and "2 fields"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def status_of(problems: Sequence[str]) -> str:
    """Join problems to one line; "ok" if there are none."""
    return " ".join(p if p.endswith((".", ")")) else f"{p}." for p in problems) or "ok"


_PLAN = "plan.json"
_CHUNK = re.compile(r"(.*)/c((?:/\d+)*)")
_ANEW = "Prepare the store anew with --force"


@dataclass(frozen=True)
class File:
    """One file of a store.

    Attributes:
        path: relative to the store.
        size: bytes that it should have, None if that is not known.
        crc: crc32c that it should have, likewise.
    """

    path: str
    size: int | None = None
    crc: int | None = None

    @property
    def array(self) -> str:
        """The array that a chunk belongs to; of other files, the file itself."""
        found = _CHUNK.fullmatch(self.path)
        return found[1] if found else self.path

    @property
    def place(self) -> tuple[int, ...] | None:
        """Position of a chunk, None for other files."""
        found = _CHUNK.fullmatch(self.path)
        return tuple(map(int, found[2].split("/")[1:])) if found else None


class Listed:
    """The files that a store should hold, one after the other.

    Attributes:
        total: how many they are, for the progress bar.
        problems: what is wrong with the list itself; complete once all files were given.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._forms = dict(_forms(store))
        self.total = sum(prod(map(_chunks, f.shape, f.chunk)) for f in self._forms.values())
        if (store / NAME).exists():
            groups = {name.split("/")[0] for name in self._forms}
            self.total += len(self._forms) + len(groups) + 3  # the top, and the manifest's own
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[File]:
        if (self._store / NAME).exists():
            return self._in_manifest()
        return self._in_arrays()

    def _in_arrays(self) -> Iterator[File]:
        for name, form in self._forms.items():
            for place in form.places():
                yield File("/".join([name, "c", *map(str, place)]))

    def _in_manifest(self) -> Iterator[File]:
        """Read files from the manifest line by line: it may have half a million chunks."""
        path = self._store / NAME
        offset, check, ended = 0, 0, False
        with path.open("rb") as lines:
            for n, line in enumerate(lines):
                if line.startswith(END):
                    ended = self._ends(path, line, offset, check)
                    break
                check = crc32c.crc32c(line, check)
                try:
                    rows = _rows(line) if n else []
                except (ValueError, LookupError, TypeError) as error:
                    self.problems.append(f"{path}: damaged at byte {offset}: {error}. {_ANEW}")
                    rows = []
                yield from rows
                offset += len(line)
        if not ended:
            self.problems.append(f"{path}: damaged at byte {offset}: its end is missing. {_ANEW}")

    def _ends(self, path: Path, line: bytes, offset: int, check: int) -> bool:
        found = line.removeprefix(END).rstrip(b" \n").removesuffix(b"}")
        if found != str(check).encode() or not line.endswith(b"\n"):
            reason = "it does not match its checksum"
            self.problems.append(f"{path}: damaged at byte {offset}: {reason}. {_ANEW}")
        return True


def _rows(line: bytes) -> list[File]:
    """Return the files of one unit."""
    rows = parse_json(b"{" + line.rstrip(b"\n,") + b"}")
    files = [File(path, size, crc) for (unit,) in [rows.values()] for path, size, crc, *_ in unit]
    strange = [file.path for file in files if not is_inner(file.path)]
    if strange:
        raise ValueError(f"{strange[0]!r} is not a path inside the store")
    return files


def _chunks(size: int, part: int) -> int:
    return -(-size // part)


def _forms(store: Path) -> Iterator[tuple[str, Form]]:
    """Yield the arrays in the groups of a store whose metadata can be read."""
    for metadata in sorted(store.glob("*/*/zarr.json")):
        if str(metadata.parent.relative_to(store)) == NAME.partition("/c/")[0]:
            continue
        try:
            yield (
                f"{metadata.parent.parent.name}/{metadata.parent.name}",
                Form.read(metadata.read_bytes()),
            )
        except (OSError, ValueError):
            continue  # opening the group says what is wrong with it


def is_partial(path: Path) -> bool:
    """Return True if a folder holds a store that is not complete."""
    return path.name.endswith(".partial") and (path / "units").is_dir()


def partial_rows(path: Path) -> list[Row]:
    """Return one row with the progress of a partial store."""
    done = [entry.name for entry in (path / "units").iterdir() if entry.suffix == ".json"]
    told = []
    for kind, total in _planned(path).items():
        held = sum(name.startswith(kind) for name in done)
        told.append(f"{held} of {total} units of {kind}")
    status = f"{path}: incomplete: {', '.join(told) or f'{len(done)} units'} are there"
    remedy = "Run the same `ens10 prepare` again to go on"
    return [Row(path.name, status=f"{status}. {remedy}.")]


def _planned(path: Path) -> dict[str, int]:
    """Return the number of units by kind from the plan; empty without a plan."""
    try:
        axes: Any = parse_json((path / _PLAN).read_bytes())["axes"]
        planned = {"forecast": len(axes["forecasts"]["time"]) * len(axes["forecasts"]["step"])}
        if "truth" in axes:
            planned["truth"] = len(axes["truth"]["time"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return planned
