"""Cells whose result is one JSON file: a variant of a study with one seed."""

import json
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ens10.errors import FileError, MissingDataError
from ens10.experiments.runner.cell import Cell
from ens10.untrusted import parse_json

RESULT = "result.json"
Result = dict[str, Any]


@dataclass(frozen=True)
class JsonCell(Cell):
    """One variant with one seed.

    Args:
        variant: its name.
        seed: of everything random.
        work: folder of worlds, claims and logs.
        out: folder of the results.
    """

    variant: str
    seed: int
    work: Path
    out: Path

    @property
    def name(self) -> str:
        """Variant and seed in words, for progress and error messages."""
        return f"{self.variant}, seed {self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by seed and variant."""
        return f"seed{self.seed}/{self.variant}"

    @property
    def scratch(self) -> Path:
        """Folder of the seed's world, claims and logs."""
        return self.work / f"seed{self.seed}"

    @abstractmethod
    def result(self) -> Result:
        """Compute the result."""

    def compute(self) -> dict[str, bytes]:
        """Compute the result; return it as a file."""
        return {RESULT: (json.dumps(self.result(), indent=1, sort_keys=True) + "\n").encode()}


def read_json_cells(folder: Path, keys: tuple[str, ...] = ()) -> dict[str, Result]:
    """Return the results of unpacked cells by place.

    Args:
        folder: of the cells.
        keys: that each result must have.

    Raises:
        FileError: a file is no result.
        MissingDataError: there are none.
    """
    results = {}
    for file in sorted(folder.rglob(RESULT)):
        try:
            result = parse_json(file.read_bytes())
            results[file.parent.relative_to(folder).as_posix()] = {
                k: result[k] for k in (*result, *keys)
            }
        except (ValueError, LookupError, TypeError) as error:
            remedy = "Restore the archive of results, or delete it and run again"
            raise FileError(file, f"no result ({error!r})", remedy) from error
    if not results:
        raise MissingDataError(folder, ["a result"], "Run the study first, without --tables")
    return results
