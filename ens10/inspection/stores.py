"""Table rows of complete and partial stores: read each chunk once and compare its checksum."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import FileError
from ens10.inspection.netcdf import variable_row
from ens10.inspection.rows import (
    Examples,
    FieldStatistics,
    Row,
    format_count,
    format_places,
    format_status,
)
from ens10.packed16.layout import DamagedChunkError, length_of, parse
from ens10.packed16.unpack import unpack
from ens10.progress import track
from ens10.store import FORMAT_VERSION, StoreKind, is_strict, open_store, store_kinds
from ens10.store.chunks import MEND, Form, check
from ens10.store.file_bytes import MemoryBytes
from ens10.store.manifest import (
    CHECKSUM_DIFFERS,
    NAME,
    FileSums,
    compare,
    compare_size,
    damaged_records,
    read_manifest,
)
from ens10.untrusted import parse_json

_KINDS: tuple[StoreKind, ...] = ("sfc", "pl", "truth")  # whose values are shown
_PROGRESS_MINIMUM = 500  # files from which a progress bar is worth it
_PLAN = "plan.json"
_CHUNK = re.compile(r"(.*)/c((?:/\d+)*)")


def is_store(path: Path) -> bool:
    """Return True if a folder holds a store of ens10, however damaged."""
    if (path / NAME).exists():
        return True
    try:
        return "ens10_format" in parse_json((path / "zarr.json").read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def store_rows(path: Path, values: bool, progress: bool) -> list[Row]:
    """Return one row for each variable and level of a store, and one for all other damage.

    Raises:
        FileError: a store of a newer version.
    """
    kinds, strict = _readable_kinds(path)
    scan = _Scan(path, values, strict)
    files, problems = _expected_files(path)
    count = len(files)
    for file in track(files, "inspect", count, progress and count > _PROGRESS_MINIMUM):
        scan.add(file)
    rows = []
    for kind in _KINDS:
        if kind in kinds:
            rows += _kind_rows(path, kind, scan)
    others = [*problems, *scan.other_problems()]
    if others:
        rows.append(Row(path.name, status=format_status(others)))
    return rows


def _readable_kinds(path: Path) -> tuple[list[str], bool]:
    """Return the kinds of data in the store, and True if a missing chunk of it is damage."""
    try:
        return store_kinds(path), is_strict(path)
    except FileError:
        try:
            version = parse_json((path / "zarr.json").read_bytes())["attributes"]["ens10_format"]
        except (OSError, ValueError, KeyError, TypeError):
            return [], True  # the scan of all files reports the damage
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise
        return [kind for kind in _KINDS if (path / kind).exists()], True


@dataclass(frozen=True)
class _StoreFile:
    """One file of a store.

    Attributes:
        path: relative to the store.
        sums: size and checksum in the manifest; None if there is none.
    """

    path: str
    sums: FileSums | None = None

    @property
    def array(self) -> str:
        """The array that a chunk belongs to; of other files, the file itself."""
        match = _CHUNK.fullmatch(self.path)
        return match[1] if match else self.path

    @property
    def place(self) -> tuple[int, ...] | None:
        """Position of a chunk, None for other files."""
        match = _CHUNK.fullmatch(self.path)
        return tuple(map(int, match[2].split("/")[1:])) if match else None


def _expected_files(store: Path) -> tuple[list[_StoreFile], list[str]]:
    """Return the files that a complete store contains, and the faults of its manifest.

    They are those in the manifest, or without one the chunks that its arrays' shapes require.
    """
    problems = []
    if (store / NAME).exists():
        try:
            sums = read_manifest(store).sums()
            damaged = [f"{store / name}: damaged at byte 0" for name in damaged_records(store)]
            faults = [f"{place}: {CHECKSUM_DIFFERS}. {MEND}." for place in damaged]
            return [_StoreFile(path, one) for path, one in sums.items()], faults
        except FileError as error:
            problems = [str(error)]
    files = [
        _StoreFile("/".join([name, "c", *map(str, place)]))
        for name, form in _forms(store)
        for place in form.places()
    ]
    return files, problems


def _forms(store: Path) -> Iterator[tuple[str, Form]]:
    """Yield the arrays in the groups of a store whose metadata can be read."""
    for metadata in sorted(store.glob("*/*/zarr.json")):
        if str(metadata.parent.relative_to(store)) == NAME.partition("/c/")[0]:
            continue
        try:
            form = Form.read(metadata.read_bytes())
            yield "/".join(metadata.parent.parts[-2:]), form
        except (OSError, ValueError):
            continue  # opening the group says what is wrong with it


@dataclass
class _LevelResult:
    """Statistics and faults of one array on one level."""

    statistics: FieldStatistics
    missing_files: Examples[str] = field(default_factory=Examples)
    damaged_files: Examples[str] = field(default_factory=Examples)

    def problems(self) -> list[str]:
        """Return descriptions of missing and damaged chunks and of impossible values."""
        remedy = MEND[0].lower() + MEND[1:]
        faults = [
            f"{format_count(len(places), 'file')} {fault}: {format_places(places)}; {remedy}"
            for fault, places in (("missing", self.missing_files), ("damaged", self.damaged_files))
            if places
        ]
        return [*faults, *self.statistics.problems()]


class _Scan:
    """Checks the files of a store one by one, and collects statistics and faults by level.

    Args:
        path: path of the store.
        values: True to read the files; False to check only their sizes.
        strict: True if a missing chunk is damage, not a chunk full of gaps.
    """

    def __init__(self, path: Path, values: bool, strict: bool) -> None:
        self.path, self._values, self._strict = path, values, strict
        self._forms: dict[str, Form | None] = {}
        self.results: dict[tuple[str, int], _LevelResult] = {}
        self._buffer = np.empty(0, np.float32)

    def add(self, file: _StoreFile) -> None:
        """Check one file, and record its faults."""
        array, place = file.array, file.place
        form = self._form(array)
        level = place[form.dims.index("level")] if place and form and "level" in form.dims else 0
        name = array.rpartition("/")[2]
        result = self.results.setdefault((array, level), _LevelResult(FieldStatistics(name)))
        path = self.path / file.path
        try:
            size = path.stat().st_size
        except OSError:
            self._add_missing(str(path), form, result)
            return
        try:
            self._read(file, path, size, form, result.statistics)
        except DamagedChunkError as error:
            result.damaged_files.add(f"{path} at byte {error.offset} ({error.reason})")
        except OSError as error:
            result.damaged_files.add(f"{path} at byte 0 (it cannot be read: {error})")

    def _add_missing(self, path: str, form: Form | None, result: _LevelResult) -> None:
        if self._strict or form is None:
            result.missing_files.add(path)
        else:
            result.statistics.empty_fields.add(path, form.field_shape[0])

    def _read(
        self, file: _StoreFile, path: Path, size: int, form: Form | None,
        statistics: FieldStatistics,
    ) -> None:  # fmt: skip
        """Check size, checksum and content of a file; add the values if the table shows them.

        Raises:
            DamagedChunkError: the file differs from what was written.
        """
        chunk_form = form if file.place is not None else None
        if chunk_form and chunk_form.codec == "bytes" and not chunk_form.compressed:
            compare_size(chunk_form.plain_size, size)
        elif file.sums is not None:
            compare_size(file.sums.size, size)
        if not self._values:
            return
        raw = np.fromfile(path, np.uint8)
        chunk = check(raw, chunk_form, file.path) if chunk_form else raw
        if file.sums is not None:
            compare(file.sums, MemoryBytes(raw))
        if chunk_form and _is_shown(file.array, chunk_form):
            self._add_values(chunk, chunk_form, file, statistics)

    def _add_values(
        self,
        chunk: npt.NDArray[np.uint8],
        form: Form,
        file: _StoreFile,
        statistics: FieldStatistics,
    ) -> None:
        path, (fields, rows, columns) = self.path / file.path, form.field_shape
        if form.codec != "packed16":
            first = form.chunk[0] * (file.place or (0,))[0]
            dates = min(form.chunk[0], form.shape[0] - first)  # the last chunk is filled up
            plain = chunk.view("<f4").reshape(fields, rows, columns)
            for n, values in enumerate(plain[: fields // form.chunk[0] * dates]):
                statistics.add(values, f"{path} field {n}")
            return
        points = rows * columns
        if self._buffer.size != points:
            self._buffer = np.empty(points, np.float32)
        for n, record in enumerate(parse(chunk.data, fields, rows, columns, chunk.size)):
            begin = int(record["offset"])
            part = chunk[begin : begin + length_of(record, points)]
            unpack(record, part, self._buffer)
            statistics.add(self._buffer, f"{path} field {n}")

    def _form(self, array: str) -> Form | None:
        if array not in self._forms:
            try:
                self._forms[array] = Form.read((self.path / array / "zarr.json").read_bytes())
            except (OSError, ValueError):
                self._forms[array] = None  # the scan checks this file too, and reports its damage
        return self._forms[array]

    def other_problems(self) -> Iterator[str]:
        """Yield faults of files whose values are not shown in the table."""
        for (array, _), result in self.results.items():
            if not _is_shown(array, self._forms[array]):
                yield from result.problems()


def _is_shown(array: str, form: Form | None) -> bool:
    """Return True if the values of an array are shown."""
    return form is not None and form.is_field and array.split("/")[0] in _KINDS


def _kind_rows(path: Path, kind: StoreKind, scan: _Scan) -> list[Row]:
    try:
        dataset = open_store(path, kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [Row(kind, status=f"{path}/{kind}: it cannot be opened ({error}). {MEND}.")]
    rows = []
    for (array, level), result in sorted(scan.results.items(), key=lambda item: item[0]):
        name = array.removeprefix(f"{kind}/")
        if not array.startswith(f"{kind}/") or name not in dataset.data_vars:
            continue
        if result.missing_files or result.damaged_files or _has_level(dataset[name], level):
            rows.append(_row(dataset[name], level, result, kind))
    return rows


def _has_level(variable: xr.DataArray, level: int) -> bool:
    """Return True if a variable has this level; the axis has the levels of all variables."""
    levels_hpa = variable.attrs.get("levels_hpa")
    if "level" not in variable.dims or levels_hpa is None:
        return True
    return float(variable["level"].to_numpy()[level]) in map(float, np.atleast_1d(levels_hpa))


def _row(variable: xr.DataArray, level: int, result: _LevelResult, kind: str) -> Row:
    place = f"{variable['level'].to_numpy()[level]:g} hPa" if "level" in variable.dims else ""
    name = f"{place} truth".strip() if kind == "truth" else place or "surface"
    row = variable_row(variable, name, result.statistics, result.problems())
    row.missing += _fields_in(variable) * len(result.missing_files)
    if method := variable.attrs.get("regridded"):
        row.grid += f" (interpolated: {method})"
    return row


def _fields_in(variable: xr.DataArray) -> int:
    """Return the number of fields in one chunk."""
    dates: int = variable.encoding.get("chunks", (1,))[0]
    return dates * int(variable.sizes.get("number", 1))


def is_partial(path: Path) -> bool:
    """Return True if a folder holds a store that is not complete."""
    return path.name.endswith(".partial") and (path / "units").is_dir()


def partial_rows(path: Path) -> list[Row]:
    """Return one row with the progress of a partial store."""
    unit_names = [entry.name for entry in (path / "units").iterdir() if entry.suffix == ".json"]
    progress = []
    for kind, total in _units_in_plan(path).items():
        count = sum(name.startswith(kind) for name in unit_names)
        progress.append(f"{count} of {total} units of {kind}")
    status = f"{path}: incomplete: {', '.join(progress) or f'{len(unit_names)} units'} are there"
    remedy = "Run the same `ens10 prepare` again to go on"
    return [Row(path.name, status=f"{status}. {remedy}.")]


def _units_in_plan(path: Path) -> dict[str, int]:
    """Return the number of units by kind from the plan; empty without a plan."""
    try:
        plan: Any = parse_json((path / _PLAN).read_bytes())
        axes = plan["axes"]
        dates = plan.get("options", {}).get("chunk_dates", 1)
        chunks = {kind: -(-len(axis["time"]) // dates) for kind, axis in axes.items()}
        steps = 1 if dates > 1 else len(axes["forecasts"]["step"])
        totals = {"forecast": chunks["forecasts"] * steps}
        if "truth" in chunks:
            totals["truth"] = chunks["truth"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return totals
