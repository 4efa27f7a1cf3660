"""A store of many dates whose chunks are hard links to those of a few."""

import json
import os
from pathlib import Path

import numpy as np

_BEGIN = np.datetime64("1950-01-01", "s").astype(np.int64)
_SPACING = 86400


def lengthen(store: Path, folder: Path, dates: int) -> Path:
    """Writes a store with another number of dates, a day apart from 1950, and the same sums.

    It has no manifest: what is read from it is not compared with checksums.

    Args:
        store: a store of few dates.
        folder: to write.
        dates: number of dates.
    """
    for source in sorted(store.rglob("zarr.json")):
        about = json.loads(source.read_text())
        about.pop("consolidated_metadata", None)
        array = source.parent.relative_to(store)
        if array.parts[:1] == ("manifest",):
            continue  # it is that of the short store
        (folder / array).mkdir(parents=True, exist_ok=True)
        if about.get("dimension_names", [None])[0] == "time":
            few = about["shape"][0]
            about["shape"][0] = dates
            if array.name in ("time", "valid_time"):
                _write_times(store, folder, array, about)
            else:
                _link(store / array / "c", folder / array / "c", few, dates)
        elif about["node_type"] == "array":
            (folder / array / "c").symlink_to(store / array / "c")
        (folder / array / "zarr.json").write_text(json.dumps(about))
    return folder


def _write_times(store: Path, folder: Path, array: Path, about: dict) -> None:
    begin = _BEGIN + _SPACING * np.arange(about["shape"][0])
    about["chunk_grid"]["configuration"]["chunk_shape"] = about["shape"]
    if array.name == "valid_time":
        steps = np.fromfile(store / array.parent / "step" / "c" / "0", "<i8")
        begin = begin[:, None] + 3600 * steps
    chunk = folder.joinpath(array, "c", *["0"] * begin.ndim)
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(begin.astype("<i8").tobytes())


def _link(source: Path, target: Path, few: int, dates: int) -> None:
    for date in range(few):
        files = [path for path in (source / str(date)).rglob("*") if path.is_file()]
        for path in files:
            inner = path.relative_to(source / str(date))
            for place in range(date, dates, few):
                linked = target / str(place) / inner
                linked.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, linked)
