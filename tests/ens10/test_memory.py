"""Opening, and the memory of a training, do not grow with the number of dates."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sparsestore import lengthen

from ens10 import prepare
from ens10.loader import Batches
from ens10.synthetic import World

RUN = """
import json, re, sys
from ens10.loader import Batches, Points
import numpy as np
from ens10.protocol import Protocol

def anonymous():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\\s+(\\d+) kB", file.read())[1]) * 1024

settings = json.loads(sys.argv[2])
if settings.pop("points", False):
    settings["kind"] = Points(size=1000)
calls = 0
def note(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(note)
batches = Batches(sys.argv[1], "t2m", ["t2m", "u10"], protocol="paper", **settings)
sys.setprofile(None)
one = sum(v.nbytes for v in batches.batch(batches.index[:settings["batch_size"]]).values())
before, most, count = anonymous(), 0, 0
for batch in batches:
    count += 1
    if count % 10 == 0:
        most = max(most, anonymous())
    if count == 1500:
        break
print(json.dumps({"calls": calls, "batch": one, "before": before, "most": most,
                  "count": count, "length": len(batches)}))
"""


def short_store(folder, grid):
    """A store of eight dates."""
    World(grid, range(2000, 2004), ["0104", "0702"], ["t2m", "u10"], seed=1, members=2,
          steps=(48,)).write(folder / "w")  # fmt: skip
    return prepare(folder / "w", folder / "s.zarr", truth=folder / "w" / "truth")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return short_store(tmp_path_factory.mktemp("few"), "96x192")


def measured(store, **settings):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(store), json.dumps(settings)],
        capture_output=True, text=True, check=False, env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_longer_store_has_the_dates_and_fields_of_the_short_one(tmp_path):
    few = short_store(tmp_path, "8x16")
    many = lengthen(few, tmp_path / "many", 740)  # three years
    short = Batches(few, "t2m", ["t2m"], protocol="paper")
    long = Batches(many, "t2m", ["t2m"], protocol="paper", normaliser=short.normaliser)
    assert len(long.samples) == 740
    assert (np.diff(long.samples.valid_time) == np.timedelta64(1, "D")).all()
    for date in (0, 7, 8, 739):
        want, got = (b.batch(np.array([n])) for b, n in ((short, date % 8), (long, date)))
        for key in ("features", "target", "raw_std"):
            np.testing.assert_array_equal(got[key], want[key])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fields", "points"])
def test_memory_and_opening_at_1000_and_20000_dates(few, tmp_path, kind):
    settings = {"batch_size": 8, "ring": 4, "threads": 2, "points": kind == "points"}
    found = {}
    for dates in (1000, 20_000):
        many = lengthen(few, tmp_path / f"{dates}", dates)
        found[dates] = measured(many, **settings)
        most = (settings["ring"] + 2) * found[dates]["batch"] + 64 * 2**20
        assert found[dates]["most"] - found[dates]["before"] < most
    assert found[20_000]["calls"] < 1.05 * found[1000]["calls"]
    assert abs(found[20_000]["most"] - found[1000]["most"]) < 24 * 2**20
