"""The log of the stations: one JSON file, and a table to read."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ens10 import catalog
from ens10.durable import write_whole
from ens10.experiments import provenance
from ens10.experiments.full_size.stations import Place, Station
from ens10.experiments.full_size.watch import Usage
from ens10.untrusted import read_mapping

FILE, TABLE = "log.json", "log.md"
_GB = 1e9
_RULE = "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
_MEANING = (
    "Memory is the most that all processes of a station held together: with the pages of files "
    "that they had mapped, and without them (the system takes those back when it needs them). "
    "Load is the mean number of processes that wanted a core of the machine, those of others "
    "included: where it is above the cores in use, the time is longer than on a machine of one's "
    "own, and the processor time says more."
)


def machine(cores: int) -> dict[str, Any]:
    """Processor, cores in use and on the machine, memory."""
    lines = _lines("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    total = next((int(x.split()[1]) for x in _lines("/proc/meminfo") if x[:8] == "MemTotal"), 0)
    return {
        "processor": names[0] if names else platform.processor(),
        "cores_used": min(cores, len(os.sched_getaffinity(0))),
        "cores": os.cpu_count(),
        "memory_gb": round(1024 * total / _GB, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def entry(station: Station, usage: Usage) -> dict[str, Any]:
    """What is kept of a station."""
    numbers = {k: v for k, v in asdict(usage).items() if not k.startswith("_")}
    sizes = {
        f"{name}_gb": round(numbers.pop(name) / _GB, 3) for name in ("resident", "own", "largest")
    }
    rounded = {name: round(value, 2) for name, value in numbers.items()}
    return {"what": station.what, **rounded, **sizes, **station.facts()}


class Log:
    """The entries of stations that are done.

    Args:
        folder: holds `log.json` and `log.md`.
        about: of the whole run: sizes and machine; an older log of something else is refused.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._folder, self._path = folder, folder / FILE
        self.content: dict[str, Any] = {**about, "versions": provenance.versions(), "stations": {}}
        if self._path.exists():
            self.content = read_mapping(self._path)

    @property
    def stations(self) -> dict[str, dict[str, Any]]:
        """By name."""
        found: dict[str, dict[str, Any]] = self.content["stations"]
        return found

    def add(self, station: Station, usage: Usage) -> None:
        """Keeps an entry, and writes both files."""
        self.stations[station.name] = entry(station, usage)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(self.content, indent=1) + "\n")
        write_whole(self._folder / TABLE, table(self.content))


def table(content: Mapping[str, Any]) -> str:
    """The log as Markdown."""
    used, stations = content["machine"], content["stations"]
    head = ("station", "what", "time", "processor time", "load", "memory", "without files", "left")
    size = (
        f"{content['grid']} points, {content['members']} members, {content['dates']} start dates "
        f"of one year, {content['variables']} variables at one step"
    )
    machine = f"{used['cores_used']} cores ({used['processor']}, {used['memory_gb']:g} GB)"
    most = max((one["resident_gb"] for one in stations.values()), default=0.0)
    time = sum(one["seconds"] for one in stations.values())
    lines = [
        "# One year of ENS-10's true size",
        f"{size}, on {machine}; {content['most_gb']:g} GB were allowed.",
        _MEANING,
        "\n".join([_row(head), _RULE, *(_line(*item) for item in stations.items())]),
        f"Together {clock(time)}; the most memory at any time was {most:.2f} GB.",
    ]
    return "\n\n".join(lines) + "\n"


def _line(name: str, one: Mapping[str, Any]) -> str:
    times = (clock(one["seconds"]), clock(one["cpu_seconds"]), f"{one['load']:.1f}")
    memory = [f"{one[kind]:.2f} GB" for kind in ("resident_gb", "own_gb")]
    left = f"{one['gigabytes']:.2f} GB" if "gigabytes" in one else ""
    return _row((name, one["what"], *times, *memory, left))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def clock(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def about(place: Place, cores: int, most: float) -> dict[str, Any]:
    """What the log says of the whole run.

    Args:
        place: the data.
        cores: in use.
        most: bytes that a station may hold.
    """
    return {
        "grid": place.grid,
        "dates": place.dates or len(catalog.month_days()),
        "members": len(catalog.MEMBERS),
        "variables": len(catalog.names_of_kind("sfc")),
        "most_gb": most / _GB,
        "machine": machine(cores),
    }
