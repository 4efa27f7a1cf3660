"""Flips every bit of the headers of some GRIB messages, one at a time, and counts what is said.

python tests/ens10/gribflips.py benchmarks/results/gribflips.json
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from test_sections import SWEPT, header_bits, read_all


def main() -> None:
    """Counts by message: bits, errors, fields, processes that ended, and hangs."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flipped.grib"
        for name, raw in SWEPT.items():
            bits, counts = header_bits(raw), Counter()
            for bit in bits:
                flipped = bytearray(raw)
                flipped[bit // 8] ^= 128 >> bit % 8
                path.write_bytes(flipped)
                told = read_all(path)
                counts["error" if told else "field"] += 1
                counts["by the sections"] += ", section " in (told or "")
                counts["process ended"] += "ecCodes ended" in (told or "")
                counts["hang"] += "reads it for more than" in (told or "")
            results[name] = {"bits": len(bits), **counts}
            print(name, results[name], flush=True)
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
