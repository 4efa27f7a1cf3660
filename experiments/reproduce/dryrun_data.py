"""What data a reproduction is made from, and what a store of them takes on the disk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10 import catalog
from ens10.channels import channel_names, resolve, split
from ens10.climate import blocks
from ens10.loader.content import EXTRA_NAMES
from ens10.packed16.layout import packed_bytes
from ens10.protocol import Protocol
from ens10.quantiles.options import Climatology

TARGET_STEP = 48
_SUMS = 2 * 3 * 8  # bytes at a point: of mean and deviation count, sum and sum of squares
_GAPS = "sst"  # the one variable of ENS-10 with missing values


@dataclass(frozen=True, eq=False)
class Data:
    """What a store holds, or would hold.

    Attributes:
        time: start dates, shape (n,).
        steps: hours.
        grid: rows and columns.
        members: of the ensemble.
        channels: canonical names, such as "t2m" and "z_500"; each variable on all levels.
        truth: channels of the truth, at the target's step.
        ensembles: sizes of smaller ensembles that have statistics of their own.
        climate: channels with a model climate.
    """

    time: npt.NDArray[np.datetime64]
    steps: tuple[int, ...]
    grid: tuple[int, int]
    members: int
    channels: tuple[str, ...]
    truth: tuple[str, ...]
    ensembles: tuple[int, ...] = ()
    climate: tuple[str, ...] = ()

    @property
    def valid_time(self) -> npt.NDArray[np.datetime64]:
        """Valid dates, shape (n, steps)."""
        return np.stack([self.valid_at(step) for step in self.steps], axis=1)

    def valid_at(self, step: int) -> npt.NDArray[np.datetime64]:
        """Valid dates at a step."""
        found: npt.NDArray[np.datetime64] = self.time + np.timedelta64(step, "h")
        return found

    def of_kind(self, kind: catalog.Kind) -> list[str]:
        """The channels at the surface, or those on levels."""
        return [name for name in self.channels if (split(name)[1] is None) == (kind == "sfc")]


def ens10(
    targets: Sequence[str], wanted: Iterable[tuple[str, int]] | None = None, **more: tuple[Any, ...]
) -> Data:
    """ENS-10 itself, from the catalogue.

    Args:
        targets: channels with truth.
        wanted: channels and steps to keep, and with them every variable on each of their levels
            (as `ens10 prepare` keeps them); None for all.
        more: `ensembles` and `climate` of the data.
    """
    days = catalog.month_days()
    written = [f"{y}-{day[:2]}-{day[2:]}T00:00:00" for y in catalog.HINDCAST_YEARS for day in days]
    whole = [(n, step) for n in _channels(catalog.LEVELS_HPA) for step in catalog.STEPS_HOURS]
    kept = whole if wanted is None else list(wanted)
    levels = sorted({level for name, _ in kept if (level := split(name)[1]) is not None})
    known = _channels(levels, any(split(name)[1] is None for name, _ in kept))
    return Data(
        np.array(written, "M8[s]"),
        tuple(sorted({step for _, step in kept})),
        catalog.GRID_SHAPE,
        len(catalog.MEMBERS),
        tuple(known),
        tuple(resolve(target, known, "targets") for target in targets),
        **more,
    )


def _channels(levels: Iterable[int], surface: bool = True) -> list[str]:
    upper = [f"{name}_{level}" for name in catalog.names_of_kind("pl") for level in levels]
    return [*(catalog.names_of_kind("sfc") if surface else ()), *upper]


def of_store(path: Path) -> Data:
    """What a store holds.

    Raises:
        Ens10Error: no store, or one that is damaged.
    """
    from ens10.store import forecasts, open_store, store_kinds

    dataset, kinds = forecasts(path, dask=False), store_kinds(path)
    statistics = open_store(path, "statistics")
    smaller = [str(n).partition("_first")[2] for n in statistics if "ensemble_mean_first" in str(n)]
    truth = open_store(path, "truth") if "truth" in kinds else None
    climate = [str(n) for n in open_store(path, "climate")] if "climate" in kinds else []
    sizes = dataset.sizes
    return Data(
        dataset["time"].to_numpy().astype("M8[s]"),
        tuple(int(step) for step in dataset["step"].to_numpy()),
        (sizes["latitude"], sizes["longitude"]),
        sizes["number"],
        tuple(channel_names(dataset)),
        tuple(channel_names(truth)) if truth is not None else (),
        tuple(sorted(map(int, smaller))),
        tuple(climate),
    )


def sizes_of(data: Data, rules: Protocol) -> dict[str, int]:
    """Bytes of all values in a store by its parts, by the form of a store.

    Fields count as 16-bit ones. One that is the same everywhere (rain at the start) takes next to
    nothing; metadata and the list of files, some hundred bytes a chunk, come on top.

    Args:
        data: what it holds.
        rules: of the climate.
    """
    rows, columns = data.grid
    points, files = rows * columns, len(data.time) * len(data.steps)
    chunk = packed_bytes(data.members, rows, columns)
    surface, upper = (len(data.of_kind(kind)) for kind in ("sfc", "pl"))
    ensembles, channels = 1 + len(data.ensembles), len(data.channels)
    years, _ = blocks(data.valid_time)
    sums = years.shape[0] * len(data.steps) * _SUMS
    found = {
        "sfc": files * surface * chunk,
        "pl": files * upper * chunk,
        "statistics": ensembles * channels * points * (files * 2 * 4 + sums),
        "truth": len(data.time) * _truth_fields(data) * points * 4,
    }
    if data.climate:
        each = len(kept_climates(data, rules)) * rules.efi.levels
        found["climate"] = len(data.climate) * each * points * 4
    return {name: size for name, size in found.items() if size}


def kept_climates(data: Data, rules: Protocol) -> list[int]:
    """Members of each climate that a store keeps for a channel."""
    climatology = Climatology(data.time, data.valid_at(TARGET_STEP), rules, rules.efi.window)
    return [
        data.members * len(climatology.positions(day, climatology.eligible(year)))
        for year in climatology.judged_years()
        for day in climatology.calendar
    ]


def _truth_fields(data: Data) -> int:
    """Fields of a date: each variable on levels has all the levels of the truth."""
    named = [split(name) for name in data.truth]
    upper = {name for name, level in named if level is not None}
    levels = {level for _, level in named if level is not None}
    return len(named) - sum(level is not None for _, level in named) + len(upper) * len(levels)


def sizes_on_disk(path: Path) -> dict[str, int]:
    """Bytes of a store by its parts, as its files are."""
    found: dict[str, int] = {}
    for file in path.rglob("*"):
        if file.is_file():
            part = file.relative_to(path).parts[0] if file.parent != path else "metadata"
            found[part] = found.get(part, 0) + file.stat().st_size
    return found


def inputs_of(config: Mapping[str, Any], target: str, data: Data) -> list[tuple[str, int]]:
    """Channel and step of each input of a model.

    Args:
        config: the `data` of its configuration.
        target: that it is carried over to.
        data: what there is.

    Raises:
        UnknownNameError: an input that the data lack.
    """
    known = list(data.channels)
    aim = resolve(target, known, "targets")
    given = config.get("inputs")
    if given is None:
        level = split(aim)[1]
        return [(name, TARGET_STEP) for name in known if split(name)[1] == level]
    if given == [config["target"]]:
        given = [target]
    parts = [text.partition("@") for text in given]
    return [(resolve(name, known, "inputs"), int(step or TARGET_STEP)) for name, _, step in parts]


def count_channels(
    config: Mapping[str, Any], inputs: Sequence[tuple[str, int]], rules: Protocol
) -> int:
    """How many features a network gets: of each member, or mean and deviation; masks; extras."""
    each = 1 if config.get("kind") == "members" else 2
    masks = sum(name == _GAPS for name, _ in inputs) if rules.masks else 0
    extras = sum(len(EXTRA_NAMES[extra]) for extra in config.get("extras") or ())
    return each * len(inputs) + masks + extras


def with_needs(data: Data, ensembles: Sequence[int], climate: Sequence[str]) -> Data:
    """The same with the statistics and climates that spare every cell a pass over the members."""
    smaller = tuple(sorted({size for size in ensembles if size < data.members}))
    named = tuple(resolve(name, list(data.channels)) for name in climate)
    return replace(data, ensembles=smaller, climate=named)
