"""The data files of a folder; incomplete downloads and synthetic worlds are refused."""

from pathlib import Path

from ens10.errors import FileError
from ens10.untrusted import check_regular

UNFINISHED = ".unfinished"  # in the folder of a synthetic world while it is written
IGNORED_SUFFIXES = {".idx", ".index", ".txt", ".md", ".json", ".yaml", ".yml"}


def files_in(path: Path) -> list[Path]:
    """Return the path of a file, or the sorted data files of a folder; [] if it does not exist.

    Raises:
        FileError: an incomplete download, a pipe or a device, or an incomplete synthetic world.
    """
    if not path.is_dir():
        if path.exists():
            check_regular(path)
            return [path]
        return []
    if (path / UNFINISHED).exists():
        remedy = "Run the same `ens10 synth` again"
        raise FileError(path, "a synthetic world that is not complete", remedy)
    files = [f for f in sorted(path.iterdir()) if f.is_file() and not f.name.startswith(".")]
    for file in files:
        check_complete(file)
    return [f for f in files if f.suffix not in IGNORED_SUFFIXES]


def check_complete(file: Path) -> None:
    """Refuse an incomplete download.

    Raises:
        FileError: the suffix is .part, and the JSON file of the download lies beside it.
    """
    if file.suffix == ".part" and file.with_name(f"{file.name}.json").exists():
        raise FileError(
            file,
            "a download that is not complete",
            "Run the same `ens10 download` again, or delete it and its .json",
        )
