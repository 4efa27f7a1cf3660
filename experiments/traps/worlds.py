"""The small worlds, the years of each split, and the protocols: `clean`, and one trap at a time."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ens10.convert import prepare
from ens10.protocol import Protocol, protocol_of
from ens10.synthetic import World

TARGET = "t2m"
GRID = "18x36"
VARIABLES = ("t2m", "u10", "v10", "msl", "sst", "tp")
DATES = 16  # in each year
TRAIN, VAL, TEST = list(range(1998, 2005)), [2005], [2006, 2007]
FRESH = [2008, 2009]  # no protocol looks at them
STEP = 48

_CLEAN = replace(protocol_of("clean"), test=TEST, val=VAL, train=TRAIN)
_PAPER = protocol_of("paper")
# One rule of the paper's at a time. The training years stay the same, so that selecting on the
# test years changes nothing but the epoch.
_TRAPS: Mapping[str, tuple[str, ...]] = {
    "clean": (),
    "selection": ("val",),
    "normalisation": ("normalise_on",),
    "weights": ("weighting",),
    "deviation": ("unbiased",),
    "epsilon": ("epsilon",),
    "masks": ("masks",),
    "all": ("val", "normalise_on", "weighting", "unbiased", "epsilon", "masks"),
}
PROTOCOLS: Mapping[str, Protocol] = {
    name: replace(_CLEAN, name=name, **{rule: getattr(_PAPER, rule) for rule in rules})
    for name, rules in _TRAPS.items()
}
RAW, SELECTION = "raw", "selection"
LATE = ("epsilon", "masks")  # done when all others are


def on_years(protocol: Protocol, years: list[int]) -> Protocol:
    """The protocol with other test years, to predict them."""
    changed: dict[str, Any] = {"test": years, "val": []}
    return replace(protocol, **changed)


def store_of(work: Path, seed: int) -> Path:
    """The prepared world of a seed, which is made if it is not there."""
    store = work / f"seed{seed}" / "store.zarr"
    if not store.exists():
        source = store.with_name("world")
        if not (source / "world.json").exists():
            years = [*TRAIN, *VAL, *TEST, *FRESH]
            World(GRID, years, DATES, VARIABLES, seed, steps=(STEP,)).write(source)
        prepare(source, store, truth=source / "truth", workers=1, progress=False)
    return store
