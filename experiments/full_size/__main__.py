"""The command: every station that is not in the log yet, one after another."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ens10.experiments.commands import tells_errors
from ens10.experiments.full_size.log import Log, about, clock
from ens10.experiments.full_size.rates import write_rates
from ens10.experiments.full_size.stations import Place, remove, write_protocol
from ens10.experiments.full_size.watch import watched

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line if a station failed or took too much memory."""
    given = _parse(arguments)
    place = Place(given.work, given.grid, given.dates)
    most = 1e9 * given.most_gb
    log = Log(given.out, about(place, given.cores, most))
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(given.cores))}
    write_protocol(place)
    for station in place.stations(given.cores):
        if station.name in log.stations:
            continue
        print(f"{station.name} ...", flush=True)
        remove(station)
        output = given.work / "output" / f"{station.name.replace(': ', '-')}.txt"
        usage = watched(station.command, output, most, environment, given.cores)
        log.add(station, usage)
        print(f"  {clock(usage.seconds)}, {usage.resident / 1e9:.2f} GB", flush=True)
    print(f"rates: {write_rates(log.content, given.out, given.work)}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ens10.experiments.full_size",
        description="One year of the true size through every station; resumable. Linux.",
    )
    parser.add_argument("work", type=Path, help="folder for data and runs (15 GB)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the log")
    parser.add_argument("--grid", default="361x720", help="default: %(default)s")
    parser.add_argument("--dates", type=int, metavar="N", help="default: all 105")
    parser.add_argument("--cores", type=int, default=2, help="default: 2")
    parser.add_argument(
        "--most-gb", type=float, default=12.0, metavar="GB",
        help="memory that a station may hold (default: 12)",
    )  # fmt: skip
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
