"""Writes `long_tests.txt`: the tests that `make test` leaves to `make test-all`, for their length.

    python -m pytest -m "not slow" --durations=0 --durations-min=0.05 > LOG
    python tests/long_tests.py LOG [SECONDS]

Tests of the list stay there unless their line is removed by hand before: the log has only those
that ran. What must always be slow (installs, a browser, kills) is marked so where it is written.
"""

import re
import sys
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
SECONDS = 2.0  # of one call, on two cores with three processes of tests


def names():
    """The tests of the list, `FILE::FUNCTION` or `FILE::CLASS::METHOD` from the project's root."""
    return LIST.read_text().split()


def long_ones(log, seconds):
    """The tests of a log one of whose calls took at least so many seconds."""
    lines = re.findall(r"^ *([\d.]+)s call +(tests/[^\s\[]+)", log, re.MULTILINE)
    return {name for length, name in lines if float(length) >= seconds}


def main(log, seconds=SECONDS):
    found = {*names(), *long_ones(Path(log).read_text(), float(seconds))}
    LIST.write_text("".join(f"{name}\n" for name in sorted(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
