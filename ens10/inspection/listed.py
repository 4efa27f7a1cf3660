"""The files that a store should hold: those of its manifest, or one for each chunk."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import crc32c

from ens10.inspection.rows import Row
from ens10.store.form import Form
from ens10.store.record import END, NAME
from ens10.untrusted import is_inner, parse_json

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
        """Line by line: the manifest of half a million chunks is long."""
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
    """The files of one unit."""
    rows = parse_json(b"{" + line.rstrip(b"\n,") + b"}")
    files = [File(path, size, crc) for (unit,) in [rows.values()] for path, size, crc, *_ in unit]
    strange = [file.path for file in files if not is_inner(file.path)]
    if strange:
        raise ValueError(f"{strange[0]!r} is not a path inside the store")
    return files


def _chunks(size: int, part: int) -> int:
    return -(-size // part)


def _forms(store: Path) -> Iterator[tuple[str, Form]]:
    """The arrays in the groups of a store whose description can be read."""
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
    """Whether a folder holds a store that is not complete."""
    return path.name.endswith(".partial") and (path / "units").is_dir()


def partial_rows(path: Path) -> list[Row]:
    """One row that tells how far the store has come."""
    done = [entry.name for entry in (path / "units").iterdir() if entry.suffix == ".json"]
    told = []
    for kind, total in _planned(path).items():
        held = sum(name.startswith(kind) for name in done)
        told.append(f"{held} of {total} units of {kind}")
    status = f"{path}: incomplete: {', '.join(told) or f'{len(done)} units'} are there"
    remedy = "Run the same `ens10 prepare` again to go on"
    return [Row(path.name, status=f"{status}. {remedy}.")]


def _planned(path: Path) -> dict[str, int]:
    """Units by kind, from the plan; none if there is no plan yet."""
    try:
        axes: Any = parse_json((path / _PLAN).read_bytes())["axes"]
        planned = {"forecast": len(axes["forecasts"]["time"]) * len(axes["forecasts"]["step"])}
        if "truth" in axes:
            planned["truth"] = len(axes["truth"]["time"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return planned
