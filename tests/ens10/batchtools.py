"""What the tests of batches share."""

import threading

import numpy as np

from ens10 import open_store
from ens10.source import open_source


def lazy(tiny):
    return open_source(tiny / "w"), open_source(tiny / "w" / "truth")


def whole(batches):
    """All batches of an iteration as one."""
    parts = list(batches)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def members_of(store, name, step, level=None):
    """(time, number, H, W) in float64, straight from the store."""
    field = open_store(store, "sfc" if level is None else "pl")[name].sel(step=step)
    return (field if level is None else field.sel(level=level)).to_numpy().astype(np.float64)


def copied(batches):
    """The batches of an iteration as bytes, taken one by one as a training does."""
    return [{key: values.tobytes() for key, values in batch.items()} for batch in batches]


def readers():
    """Reader threads that are alive."""
    return [t for t in threading.enumerate() if t.name.startswith("ens10 reader")]
