"""A script that requests the truth from the Copernicus Climate Data Store.

The store queues requests and needs an account, so the user runs the script. Each request has the
days of one month, and only the days that are needed: a request is a product of lists.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ens10.catalog import GRID_SHAPE
from ens10.download.choice import ERA5_NAMES, Choice
from ens10.download.files import DownloadSettings, Report
from ens10.download.local_files import free_space, size_text
from ens10.durable import write_whole
from ens10.errors import FileError

_SURFACE = "reanalysis-era5-single-levels"
_LEVELS = "reanalysis-era5-pressure-levels"
_BYTES = 2  # of a value: GRIB packs ERA5 in 16 bits
_SCRIPT = '''\
"""Requests ERA5 from the Copernicus Climate Data Store; written by `ens10 download`.

1. Make an account at https://cds.climate.copernicus.eu and accept the licence of both datasets
   (at the end of the download form of {surface}
   and of {levels}).
2. Put the address and the key that https://cds.climate.copernicus.eu/how-to-api shows into
   ~/.cdsapirc, and: pip install cdsapi
3. Run this file with python: {count} requests, about {size}, which wait in a queue. Run it
   again if it ends early; what is there is not requested again.
4. ens10 prepare SRC STORE --truth FOLDER, with the folder below.
"""

import json
from pathlib import Path

FOLDER = Path({folder!r})
REQUESTS = json.loads("""
{requests}
""")


def main():
    import cdsapi

    FOLDER.mkdir(parents=True, exist_ok=True)
    client = cdsapi.Client()
    for name, dataset, request in REQUESTS:
        target = FOLDER / name
        if target.exists():
            continue
        part = FOLDER / ("." + name + ".part")
        client.retrieve(dataset, request, str(part))
        part.rename(target)


if __name__ == "__main__":
    main()
'''


def requests(choice: Choice) -> list[tuple[str, str, dict[str, Any]]]:
    """Return file name, dataset and request, for each month and kind.

    A month whose days differ from hour to hour of the day becomes several requests.
    """
    jobs = []
    for (year, month, hours), days in sorted(_groups(choice).items()):
        dates = {
            "year": [f"{year}"], "month": [f"{month:02d}"], "day": [f"{day:02d}" for day in days],
            "time": [f"{hour:02d}:00" for hour in hours],
        }  # fmt: skip
        times = "-".join(f"{hour:02d}" for hour in hours)
        kinds = (("sfc", _SURFACE, choice.surface), ("pl", _LEVELS, choice.upper))
        for kind, dataset, names in kinds:
            if names:
                request = {
                    "product_type": ["reanalysis"],
                    "variable": [ERA5_NAMES[name] for name in names],
                    **dates,
                    **_levels(choice, kind),
                    # As text: a list is refused for pressure levels ("cost limits exceeded").
                    "grid": f"{choice.spacing:g}/{choice.spacing:g}",
                    "data_format": "grib",
                    "download_format": "unarchived",
                }
                jobs.append((f"era5.{kind}.{year}-{month:02d}.{times}.grib", dataset, request))
    return jobs


def _levels(choice: Choice, kind: str) -> dict[str, list[str]]:
    return {"pressure_level": [str(level) for level in choice.levels]} if kind == "pl" else {}


def _groups(choice: Choice) -> dict[tuple[int, int, tuple[int, ...]], list[int]]:
    """Group days by year, month and the hours of the day that are needed on them."""
    hours_of: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for hour in choice.hours:
        hours_of[hour.year, hour.month, hour.day].append(hour.hour)
    groups: dict[tuple[int, int, tuple[int, ...]], list[int]] = defaultdict(list)
    for (year, month, day), hours in sorted(hours_of.items()):
        groups[year, month, tuple(hours)].append(day)
    return groups


def write_request(script: Path, folder: Path, choice: Choice, settings: DownloadSettings) -> Report:
    """Write the script, and print how to use it.

    Raises:
        FileError: the script's folder does not exist, or the script is a folder.
    """
    if not script.parent.is_dir() or script.is_dir():
        reason = "no file can be written there"
        raise FileError(script, reason, "Give a file in a folder that exists")
    jobs = requests(choice)
    size = _size(choice)
    lines = ",\n".join(json.dumps(job) for job in jobs)
    text = _SCRIPT.format(
        surface=_SURFACE, levels=_LEVELS, count=len(jobs), size=size_text(size),
        folder=str(folder), requests=f"[\n{lines}\n]",
    )  # fmt: skip
    if not settings.dry_run:
        write_whole(script, text)
    settings.notify(
        f"{script}: {len(jobs)} requests for {len(choice.hours)} hours, about {size_text(size)}, "
        f"into {folder}"
    )
    settings.notify(
        "It needs an account at https://cds.climate.copernicus.eu and `pip install cdsapi`; then "
        f"`python {script}` and `ens10 prepare SRC STORE --truth {folder}`"
    )
    names = tuple(name for name, _, _ in jobs)
    return Report(folder, (), names, size, size, free_space(folder))


def _size(choice: Choice) -> int:
    rows, columns = GRID_SHAPE
    points = rows * columns * (0.5 / choice.spacing) ** 2
    return round(points * _BYTES * choice.field_count * len(choice.hours))
