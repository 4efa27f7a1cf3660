"""Claim: `import ens10` takes no longer than `import numpy`, so the light commands start at once.

    python benchmarks/import_time.py [--check] [--out benchmarks/results/import_time.json]

Both are timed as whole processes, one after the other and in turns, so that what else the machine
does falls on both alike; the claim is the ratio of the medians.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

TARGET = 1.0
STATEMENTS = ("import ens10", "import numpy")


def seconds(statement: str) -> float:
    """Wall time of a Python process that runs one statement."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, object]:
    """Median times of both, and their ratio."""
    for statement in STATEMENTS:  # byte code is compiled and files are read before it counts
        seconds(statement)
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(rounds):
        for statement in STATEMENTS:
            times[statement].append(seconds(statement))
    ours, theirs = (median(times[statement]) for statement in STATEMENTS)
    return {
        "claim": f"import ens10 takes at most {TARGET} of the time of import numpy",
        "ratio": round(ours / theirs, 3),
        "target": TARGET,
        "rounds": rounds,
        "median_seconds": {"import ens10": round(ours, 4), "import numpy": round(theirs, 4)},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {name: version(name) for name in ("ens10", "numpy")},
    }


def main() -> int:
    """Prints the result as JSON; with --check, exits with 1 if the target is missed."""
    parser = argparse.ArgumentParser(description="Time of `import ens10` beside `import numpy`.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = measure(options.rounds)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return int(options.check and float(str(result["ratio"])) > TARGET)


if __name__ == "__main__":
    sys.exit(main())
