"""A store of many dates, each a symbolic link to one of a few."""

import json
from pathlib import Path

import numpy as np

from ens10.climate import blocks

_BEGIN = np.datetime64("1950-01-01", "s").astype(np.int64)
_SPACING = 86400


def lengthen(store: Path, folder: Path, dates: int) -> Path:
    """Writes a store with another number of dates, a day apart from 1950, and repeated sums.

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
        elif about.get("dimension_names", [None])[0] == "block":
            few, years = about["shape"][0], _years(store, dates)
            about["shape"][0] = len(years)
            if array.name == "valid_year":
                _write_whole(folder, array, about, years)
            else:
                _link(store / array / "c", folder / array / "c", few, len(years))
        elif about["node_type"] == "array":
            (folder / array / "c").symlink_to(store / array / "c")
        (folder / array / "zarr.json").write_text(json.dumps(about))
    return folder


def _write_times(store: Path, folder: Path, array: Path, about: dict) -> None:
    begin = _BEGIN + _SPACING * np.arange(about["shape"][0])
    if array.name == "valid_time":
        begin = _valid_times(store / array.parent, begin)
    _write_whole(folder, array, about, begin)


def _valid_times(part: Path, begin: np.ndarray) -> np.ndarray:
    return begin[:, None] + 3600 * np.fromfile(part / "step" / "c" / "0", "<i8")


def _years(store: Path, dates: int) -> np.ndarray:
    valid = _valid_times(store / "sfc", _BEGIN + _SPACING * np.arange(dates))
    return blocks(valid.astype("datetime64[s]"))[0]


def _write_whole(folder: Path, array: Path, about: dict, values: np.ndarray) -> None:
    about["chunk_grid"]["configuration"]["chunk_shape"] = about["shape"]
    chunk = folder.joinpath(array, "c", *["0"] * values.ndim)
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(values.astype("<i8").tobytes())


def _link(source: Path, target: Path, few: int, dates: int) -> None:
    target.mkdir(parents=True)
    for date in range(dates):
        (target / str(date)).symlink_to(source / str(date % few))
