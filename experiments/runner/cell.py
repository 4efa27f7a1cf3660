"""A cell of a study: what it is called, where it is kept, and whether it is complete."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Literal

from ens10.experiments.runner.key import Key, differences
from ens10.experiments.runner.results import Results

Status = Literal["missing", "complete", "older"]


class Cell(ABC):
    """One result of a study, computed once in a process of its own.

    Subclasses are frozen dataclasses: a cell is pickled and sent to the process that computes it.

    Attributes:
        out: folder of the study's results.
    """

    out: Path

    @property
    @abstractmethod
    def name(self) -> str:
        """Model, seed or variant in words, for progress and error messages."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Its place in the archive of results, such as "seed0/unet"."""

    @property
    @abstractmethod
    def scratch(self) -> Path:
        """Folder of its claim and log, shared by the processes of the study."""

    @abstractmethod
    def current_key(self) -> Key:
        """Return what its result depends on; see `key_of`."""

    @abstractmethod
    def compute(self) -> dict[str, bytes]:
        """Compute the result, or resume its computation; return the files to keep, by name."""

    @cached_property
    def key(self) -> Key:
        """The key of the cell under the present configuration, data and code."""
        return self.current_key()

    @property
    def results(self) -> Results:
        """The archive of the study's results."""
        return Results(self.out)

    @property
    def claim(self) -> Path:
        """The file by which a process claims it."""
        return self.scratch / "claims" / Path(self.place).name

    @property
    def log(self) -> Path:
        """The file of what its process prints."""
        return self.scratch / "logs" / f"{Path(self.place).name}.txt"

    def changes(self) -> list[str] | None:
        """Return what has changed since the kept result was made; None if none is kept."""
        kept_key = self.results.key(self.place)
        return None if kept_key is None else differences(kept_key, self.key)

    def status(self) -> Status:
        """Return "complete", "missing", or "older" if configuration, data or code have changed."""
        changes = self.changes()
        if changes is None:
            return "missing"
        return "older" if changes else "complete"

    def keep(self, files: dict[str, bytes]) -> None:
        """Keep the files of the result."""
        self.results.add(self.place, files, self.key)
