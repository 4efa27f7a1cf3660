"""Claim: batches are the same bytes for any threads and after resuming; ranks share the dates.

python benchmarks/determinism.py [--data DIR] [--check] [--out FILE]
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from common import LOADER, VARIABLES, Line, run, store

from ens10.loader import Batches, Patches, Slabs

CODE = (*LOADER, "packed16")


def digests(batches: Iterable[Any]) -> list[str]:
    """A fingerprint of each batch, all its arrays in the order of their names."""
    found = []
    for batch in batches:
        digest = hashlib.sha256()
        for key in sorted(batch):
            digest.update(batch[key].tobytes())
        found.append(digest.hexdigest())
    return found


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Numbers of epochs that differ, and of dates that ranks miss or share."""
    path = store(options.data)

    def batches(threads: int, **more: Any) -> Batches:
        return Batches(path, "t2m", list(VARIABLES), seed=3, threads=threads, **more)

    differing, compared = 0, 0
    for kind in ({}, {"kind": "members"}, {"kind": Patches((128, 128))}, {"kind": Slabs(90, 270)}):
        want = digests(batches(0, **kind))
        for threads in (1, 2):
            differing, compared = (
                differing + (digests(batches(threads, **kind)) != want),
                compared + 1,
            )
        for threads in (0, 1, 2):
            begun = batches(threads, **kind)
            source = iter(begun)
            head = digests(next(source) for _ in range(5))
            state = begun.state_dict()
            resumed = batches(threads, **kind)
            resumed.load_state_dict(state)
            differing, compared = differing + (head + digests(resumed) != want), compared + 1
    whole = sorted(second for b in batches(0) for second in b["dates"].tolist())
    ranks = [
        [second for b in batches(1, rank=r, world=3) for second in b["dates"].tolist()]
        for r in range(3)
    ]
    shared = sorted(second for rank in ranks for second in rank)
    lines = [
        Line("epochs that differ", differing, 0, False),
        Line(
            "dates that three ranks miss or share",
            len(set(whole) ^ set(shared)) + len(shared) - len(set(shared)),
            0,
            False,
        ),
    ]
    return lines, {"epochs_compared": compared, "dates": len(whole)}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=1))
