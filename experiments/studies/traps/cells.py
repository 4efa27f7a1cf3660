"""The cells of the traps: the raw ensemble, or one protocol's training, with one seed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.studies.traps import raw_ensemble, training
from ens10.protocol import content_of

RESULT = "result.json"
_STATIONS = ("ens10.loader", "ens10.models", "ens10.metrics", "ens10.experiments.studies.traps")


@dataclass(frozen=True)
class TrapCell(Cell):
    """The raw ensemble, or one protocol's training, with one seed.

    Args:
        protocol: name of a protocol, or "raw".
        seed: of the world and the training.
        work: folder of the worlds.
        out: folder of the results.
    """

    protocol: str
    seed: int
    work: Path
    out: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.protocol}, seed {self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by seed and protocol."""
        return f"seed{self.seed}/{self.protocol}"

    @property
    def scratch(self) -> Path:
        """Folder of the seed's world, claims and logs."""
        return self.work / f"seed{self.seed}"

    def current_key(self) -> Key:
        """Return the key; the world is made from its numbers."""
        world = [training.GRID, training.VARIABLES, training.DATES, training.STEP]
        years = [training.TRAIN, training.VAL, training.TEST, training.FRESH]
        whole = {"world": world, "years": years, "seed": self.seed, "name": self.protocol}
        if self.protocol != training.RAW:
            whole["protocol"] = content_of(training.PROTOCOLS[self.protocol])
            whole["epochs"] = training.EPOCHS
            whole["network"] = "ens10.models.networks.UNet"
        return key_of(whole, "", _STATIONS)

    def compute(self) -> dict[str, bytes]:
        """Score the raw ensemble, or train and score."""
        store = training.store_of(self.work, self.seed)
        if self.protocol == training.RAW:
            result = {training.RAW: raw_ensemble.score_raw(store)}
        else:
            result = training.train_and_score(store, self.seed, self.protocol)
        return {RESULT: (json.dumps(result, indent=1, sort_keys=True) + "\n").encode()}


def find_cells(work: Path, out: Path, seeds: Sequence[int]) -> list[TrapCell]:
    """Return all cells; those that the paper's table does not name come last."""
    names = [training.RAW, *(n for n in training.PROTOCOLS if n != training.SELECTION)]
    return [
        TrapCell(name, seed, work, out)
        for late in (False, True)
        for seed in seeds
        for name in names
        if (name in training.LATE) == late
    ]
