"""Table rows of stores: each chunk is read once, compared with its checksum, and counted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import FileError
from ens10.inspection.netcdf import points_in_words
from ens10.inspection.rows import Few, File, Listed, Moments, Row, counted, few, status_of
from ens10.packed16.layout import DamagedChunkError, crc32c, length_of, parse
from ens10.packed16.unpack import unpack
from ens10.progress import track
from ens10.store import FORMAT_VERSION, StoreKind, is_strict, open_store, store_kinds
from ens10.store.chunks import MEND, Form, check
from ens10.store.manifest import NAME
from ens10.untrusted import parse_json

_KINDS: tuple[StoreKind, ...] = ("sfc", "pl", "truth")  # whose values are shown
_LONG = 500  # chunks from which a progress bar is worth it


def is_store(path: Path) -> bool:
    """Return True if a folder holds a store of ens10, however damaged."""
    if (path / NAME).exists():
        return True
    try:
        return "ens10_format" in parse_json((path / "zarr.json").read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def store_rows(path: Path, values: bool, progress: bool) -> list[Row]:
    """Return one row for each variable and level, and one for whatever else is damaged.

    Raises:
        FileError: a store of a newer version.
    """
    held, strict = _opened(path)
    files = _Files(path, values, strict)
    listed = Listed(path)
    for file in track(listed, "inspect", listed.total, progress and listed.total > _LONG):
        files.add(file)
    rows = []
    for kind in _KINDS:
        if kind in held:
            rows += _kind_rows(path, kind, files)
    others = [*listed.problems, *files.others()]
    if others:
        rows.append(Row(path.name, status=status_of(others)))
    return rows


def _opened(path: Path) -> tuple[list[str], bool]:
    """Return the store's parts that can be opened; and True if all chunks were written."""
    try:
        return store_kinds(path), is_strict(path)
    except FileError:
        try:
            about = parse_json((path / "zarr.json").read_bytes())["attributes"]["ens10_format"]
        except (OSError, ValueError, KeyError, TypeError):
            return [], True  # that it is damaged is said where all files are looked at
        if isinstance(about, int) and about > FORMAT_VERSION:
            raise
        return [kind for kind in _KINDS if (path / kind).exists()], True


@dataclass
class _Found:
    """Results for one array on one level."""

    moments: Moments
    missing: Few[str] = field(default_factory=Few)
    damaged: Few[str] = field(default_factory=Few)

    def problems(self) -> list[str]:
        """Return descriptions of missing and damaged chunks and of impossible values."""
        told = [
            f"{counted(len(places), 'file')} {what}: {few(places)}; {MEND[0].lower()}{MEND[1:]}"
            for what, places in (("missing", self.missing), ("damaged", self.damaged))
            if places
        ]
        return [*told, *self.moments.problems()]


class _Files:
    """Checks and statistics of a store's files, one by one.

    Args:
        path: path of the store.
        values: True to read the files; False to check only their sizes.
        strict: True if a missing chunk is damage, not a chunk full of gaps.
    """

    def __init__(self, path: Path, values: bool, strict: bool) -> None:
        self.path, self._values, self._strict = path, values, strict
        self._forms: dict[str, Form | None] = {}
        self.found: dict[tuple[str, int], _Found] = {}
        self._buffer = np.empty(0, np.float32)

    def add(self, file: File) -> None:
        """Check one file, and record its faults."""
        array, place = file.array, file.place
        form = self._form(array)
        level = place[form.dims.index("level")] if place and form and "level" in form.dims else 0
        name = array.rpartition("/")[2]
        kept = self.found.setdefault((array, level), _Found(Moments(name)))
        path = self.path / file.path
        try:
            size = path.stat().st_size
        except OSError:
            self._lacks(str(path), form, kept)
            return
        try:
            self._look(file, path, size, form, kept.moments)
        except DamagedChunkError as error:
            kept.damaged.add(f"{path} at byte {error.offset} ({error.reason})")
        except OSError as error:
            kept.damaged.add(f"{path} at byte 0 (it cannot be read: {error})")

    def _lacks(self, path: str, form: Form | None, kept: _Found) -> None:
        if self._strict or form is None:
            kept.missing.add(path)
        else:
            kept.moments.empty.add(path, form.field_shape[0])

    def _look(self, file: File, path: Path, size: int, form: Form | None, moments: Moments) -> None:
        chunked = form if file.place is not None else None
        plain = chunked and chunked.codec == "bytes" and not chunked.compressed
        wanted = chunked.plain_size if chunked and plain else file.size
        if wanted is not None and size != wanted:
            raise DamagedChunkError(min(size, wanted), f"{size} bytes instead of {wanted}")
        if not self._values:
            return
        raw = np.fromfile(path, np.uint8)
        chunk = check(raw, chunked, file.path) if chunked else raw
        if file.crc is not None and crc32c(raw) != file.crc:
            raise DamagedChunkError(0, "it does not match its checksum in the manifest")
        if chunked and _is_shown(file.array, chunked):
            self._count(chunk, chunked, path, moments)

    def _count(
        self, chunk: npt.NDArray[np.uint8], form: Form, path: Path, moments: Moments
    ) -> None:
        fields, rows, columns = form.field_shape
        if form.codec != "packed16":
            for n, values in enumerate(chunk.view("<f4").reshape(fields, rows, columns)):
                moments.add(values, f"{path} field {n}")
            return
        points = rows * columns
        if self._buffer.size != points:
            self._buffer = np.empty(points, np.float32)
        for n, record in enumerate(parse(chunk.data, fields, rows, columns, chunk.size)):
            begin = int(record["offset"])
            part = chunk[begin : begin + length_of(record, points)]
            unpack(record, part, self._buffer)
            moments.add(self._buffer, f"{path} field {n}")

    def _form(self, array: str) -> Form | None:
        if array not in self._forms:
            try:
                self._forms[array] = Form.read((self.path / array / "zarr.json").read_bytes())
            except (OSError, ValueError):
                self._forms[array] = None  # the file itself is among those looked at
        return self._forms[array]

    def others(self) -> Iterator[str]:
        """Yield faults of files whose values are not shown in the table."""
        for (array, _), found in self.found.items():
            if not _is_shown(array, self._forms[array]):
                yield from found.problems()


def _is_shown(array: str, form: Form | None) -> bool:
    """Return True if the values of an array are shown."""
    return form is not None and form.is_field and array.split("/")[0] in _KINDS


def _kind_rows(path: Path, kind: StoreKind, files: _Files) -> list[Row]:
    try:
        dataset = open_store(path, kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [Row(kind, status=f"{path}/{kind}: it cannot be opened ({error}). {MEND}.")]
    rows = []
    for (array, level), found in sorted(files.found.items(), key=lambda item: item[0]):
        name = array.removeprefix(f"{kind}/")
        if not array.startswith(f"{kind}/") or name not in dataset.data_vars:
            continue
        if found.missing or found.damaged or _is_meant(dataset[name], level):
            rows.append(_row(dataset[name], level, found, kind))
    return rows


def _is_meant(variable: xr.DataArray, level: int) -> bool:
    """Return True if a variable has a level; the axis holds the levels of all variables."""
    own = variable.attrs.get("levels_hpa")
    if "level" not in variable.dims or own is None:
        return True
    return float(variable["level"].to_numpy()[level]) in map(float, np.atleast_1d(own))


def _row(variable: xr.DataArray, level: int, found: _Found, kind: str) -> Row:
    times = variable["time"].to_numpy()
    place = f"{variable['level'].to_numpy()[level]:g} hPa" if "level" in variable.dims else ""
    empty = found.moments.empty
    problems = found.problems()
    if empty:
        problems.append(f"{counted(len(empty), 'field')} missing (without any value): {few(empty)}")
    how = variable.attrs.get("regridded")
    row = Row(
        name=str(variable.name),
        level=f"{place} truth".strip() if kind == "truth" else place or "surface",
        dates=len(times),
        first=str(times.min())[:13],
        last=str(times.max())[:13],
        steps=np.atleast_1d(variable["step"].to_numpy()).tolist(),
        members=int(variable.sizes.get("number", 1)),
        missing=len(empty) + _fields_in(variable) * len(found.missing),
        units=str(variable.attrs.get("units", "")),
        grid=points_in_words(variable) + (f" (interpolated: {how})" if how else ""),
        status=status_of(problems),
    )
    return found.moments.into(row)


def _fields_in(variable: xr.DataArray) -> int:
    """Return the number of fields in one chunk."""
    return int(variable.sizes.get("number", 1))
