"""Claim: comparing all that a training reads with checksums costs at most 3 % of its first epoch.

    python benchmarks/checksums.py [--data DIR] [--check] [--out FILE]

An epoch opens the store anew and reads dates of 11 surface variables, 361 x 720 points, with the
store's manifest and without. The training is of the smallest network that is shipped, the MLP of
the ENS-10 paper, in one thread, its steps one after the other: the share is that of the extra time
in the sum of reading and steps, as if nothing was read ahead. Later epochs compare nothing.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from common import VARIABLES, Line, interleave, run, store

from ens10.loader import Batches
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP

DATES = 6
OPEN_RECORD = "ens10.loader.store_samples.open_record"


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Share of the comparison in a first epoch, and ratio of the reading alone."""
    torch.set_num_threads(1)
    path = store(options.data, DATES)
    batches: list[Batches] = []

    def read(features: str) -> None:
        made = Batches(path, "t2m", list(VARIABLES), kind=features, threads=0)  # type: ignore[arg-type]
        batches[:] = [made]
        made.normaliser  # noqa: B018  # read here: statistics are compared too
        for _ in made:
            pass

    def unchecked(features: str) -> None:
        with patch(OPEN_RECORD, lambda _: None):
            read(features)

    read("fields")
    batch = {k: torch.from_numpy(np.array(v)) for k, v in next(iter(batches[0])).items()}  # type: ignore[attr-defined]
    model = PostProcessor(MLP(in_channels=batch["features"].shape[1]), ResidualNormalHead())
    model.log = lambda *_, **__: None  # type: ignore[method-assign]
    optimizer = torch.optim.Adam(model.parameters(), 1e-5)

    def step() -> None:
        optimizer.zero_grad()
        model.training_step(batch).backward()  # type: ignore[arg-type]
        optimizer.step()

    seconds = interleave(
        {
            "reading, compared": lambda: read("fields"),
            "reading": lambda: unchecked("fields"),
            "reading members, compared": lambda: read("members"),
            "reading members": lambda: unchecked("members"),
            "step": step,
        },
        options.rounds,
    )
    dates = len(batches[0])
    extra = seconds["reading, compared"] - seconds["reading"]
    epoch = seconds["reading, compared"] + dates * seconds["step"]
    members = seconds["reading members, compared"] / seconds["reading members"]
    lines = [
        Line(
            "comparing, share of the first epoch of the smallest network",
            extra / epoch,
            0.03,
            False,
        ),
        Line("first reading, of the time without", 1 + extra / seconds["reading"], 2, False),
        Line("first reading of members, of the time without", members, 2, False),
    ]
    return lines, {
        "dates": dates,
        "milliseconds": {k: round(1e3 * v, 2) for k, v in seconds.items()},
    }


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, rounds=9))
