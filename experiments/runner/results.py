"""The results of a study: the small files of all its cells in one zip archive.

A cell's files are those that `ens10 report` reads from a run folder: states of the scores,
provenance, configuration, log. Unpacked, the archive is a folder for each cell.

    python -m ens10.experiments.runner.results experiments/results/models
    python -m ens10.experiments.runner.results experiments/results/models --unpack cells
"""

import json
import shutil
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ens10.durable import clear_leftovers, whole_path
from ens10.errors import FileError, printable
from ens10.experiments.runner.key import Key
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.provenance import FILE as PROVENANCE
from ens10.untrusted import is_inner, parse_json
from ens10.usage import command_parser, reports_errors

ARCHIVE, KEY = "cells.zip", "cell.json"
_LOCK = "cells.lock"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no times of day: the same cells make the same bytes
_MAX_BYTES = 1 << 30  # bytes of all cells
_REMEDY = "Restore it, or delete it: its cells are then computed again"
Files = Mapping[str, bytes]


class Results:
    """The kept cells of a study.

    Args:
        folder: of the study; `cells.zip` in it holds the cells.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / ARCHIVE

    def places(self) -> list[str]:
        """Return the places of all cells, such as "seed0/unet", sorted."""
        return sorted({name.rpartition("/")[0] for name in self._names() if name.endswith(KEY)})

    def key(self, place: str) -> Key | None:
        """Return the key of a cell; None if it is not kept.

        Raises:
            FileError: the archive is damaged.
        """
        name = f"{place}/{KEY}"
        if name not in self._names():
            return None
        try:
            content = parse_json(self._read([name])[name])
        except ValueError:  # damaged before it was kept: an empty key differs from all others
            content = None
        return content if isinstance(content, dict) else {}

    def files(self, place: str) -> dict[str, bytes]:
        """Return the files of a cell by name; empty if it is not kept.

        Raises:
            FileError: the archive is damaged.
        """
        names = [name for name in self._names() if name.startswith(f"{place}/")]
        return {name[len(place) + 1 :]: data for name, data in self._read(names).items()}

    def add(self, place: str, files: Files, key: Key) -> None:
        """Keep a cell, in the place of an older one: all of its files or none.

        Other processes may add cells at the same time.

        Args:
            place: of the cell in the archive.
            files: its content by name.
            key: of the cell.

        Raises:
            FileError: the archive is damaged.
            OSError: it cannot be written; the archive stays as it was.
        """
        self.add_all({place: (files, key)})

    def add_all(self, cells: Mapping[str, tuple[Files, Key]]) -> None:
        """Keep several cells at once, files and key of each by its place; see `add`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.folder / _LOCK, "a study", wait=True):
            clear_leftovers(self.folder, ARCHIVE)
            old_files = self._read(self._names())
            new_files = {n: data for n, data in old_files.items() if _place_of(n, cells) is None}
            for place, (files, key) in cells.items():
                new_files |= {f"{place}/{name}": data for name, data in files.items()}
                text = json.dumps(key, indent=1, sort_keys=True) + "\n"
                new_files[f"{place}/{KEY}"] = text.encode()
            if new_files != old_files:
                self._write(new_files)

    @contextmanager
    def temporary_folder(self, places: Collection[str] | None = None) -> Iterator[Path]:
        """Yield a temporary folder that holds a folder for each cell.

        Args:
            places: of the cells; None for all.

        Raises:
            FileError: the archive is damaged.
        """
        with TemporaryDirectory(prefix="ens10-cells-") as folder:
            self.unpack(Path(folder), places)
            yield Path(folder)

    def unpack(self, folder: Path, places: Collection[str] | None = None) -> None:
        """Write the files of cells into a folder, which `ens10 report` reads.

        Raises:
            FileError: the archive is damaged.
        """
        names = [n for n in self._names() if places is None or _place_of(n, places) is not None]
        for name, data in self._read(names).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def _names(self) -> list[str]:
        if not self.path.is_file():
            return []
        with self._open_archive() as archive:
            infos = archive.infolist()
        for info in infos:
            if not is_inner(info.filename) or "/" not in info.filename:
                raise FileError(self.path, f"names {info.filename!r}, which is no cell", _REMEDY)
        if sum(info.file_size for info in infos) > _MAX_BYTES:
            raise FileError(self.path, "unpacks to more than 1 GB", _REMEDY)
        return [info.filename for info in infos]

    def _read(self, names: Collection[str]) -> dict[str, bytes]:
        if not names:
            return {}
        with self._open_archive() as archive:
            return {name: archive.read(name) for name in names}

    @contextmanager
    def _open_archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise FileError(self.path, f"a damaged archive of cells ({error})", _REMEDY) from error

    def _write(self, content: Files) -> None:
        with (
            whole_path(self.path) as partial,
            zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for name in sorted(content):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, content[name])


def _place_of(name: str, places: Collection[str]) -> str | None:
    """Return the place of the cell that a file belongs to; None if it is not among `places`."""
    return next((place for place in places if name.startswith(f"{place}/")), None)


def folder_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their relative names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def pack_folders(out: Path) -> list[str]:
    """Move cells that earlier versions kept in folders into the archive of a study.

    The keys of such cells hold digests of code instead of result versions, so that the cells count
    as made by earlier code. Version and commit of that code are taken from their provenance.

    Args:
        out: folder of the study, with `seedN/MODEL/cell.json`.

    Returns:
        The places of the cells.
    """
    cells: dict[str, tuple[Files, Key]] = {}
    for mark in sorted([*out.rglob(KEY), *out.rglob("optimum/scores.nc")]):
        files = folder_files(mark.parent)
        old_key, record = (
            _parse_mapping(files.pop(KEY, b"{}")),
            _parse_mapping(files.get(PROVENANCE, b"{}")),
        )
        versions = record.get("versions") or {}
        origin = {"version": versions.get("ens10"), "commit": record.get("commit")}
        key: Key = {"config": old_key.get("config"), "data": old_key.get("data"), "versions": {}}
        cells[mark.parent.relative_to(out).as_posix()] = files, {**key, "made_by": origin}
    Results(out).add_all(cells)
    for place in cells:
        shutil.rmtree(out / place)
    return list(cells)


def _parse_mapping(text: bytes) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def code_in_words(key: Mapping[str, Any]) -> str:
    """Return the code versions of a cell in words, from its key."""
    if key.get("versions"):
        return ", ".join(f"{name} {number}" for name, number in key["versions"].items())
    origin = key.get("made_by") or {}
    commit = str(origin.get("commit") or "unknown")
    suffix = ", with uncommitted changes" if commit.endswith("+") else ""
    return f"before result versions: commit {commit.rstrip('+')}{suffix}"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 with one line on bad input."""
    parser = command_parser(
        "python -m ens10.experiments.runner.results",
        "The kept cells of a study, and by which code each was made.",
    )
    parser.add_argument("folder", type=Path, help="of the study, with cells.zip")
    parser.add_argument("--unpack", type=Path, metavar="DIR", help="write a folder for each cell")
    parser.add_argument(
        "--pack", action="store_true", help="first move cells that earlier versions kept in folders"
    )
    options = parser.parse_args(arguments)
    if options.pack:
        pack_folders(options.folder)
    results = Results(options.folder)
    if not results.path.is_file():
        raise FileError(results.path, "no such archive", "Give the folder of a study")
    if options.unpack is not None:
        results.unpack(options.unpack)
    for place in results.places():
        print(printable(f"{place}: {code_in_words(results.key(place) or {})}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
