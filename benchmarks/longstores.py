"""Long stores for little disk space: each chunk of a new date is a hard link to one of an old."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ens10.climate import blocks
from ens10.packed16.layout import MAGIC, PLACE
from ens10.store import consolidate, store_kinds

_DAY = 86400


def lengthened(store: Path, out: Path, dates: int, every: int = 7) -> Path:
    """A store of `dates` start dates whose chunks are those of a short one, over and over.

    Args:
        store: made by `prepare`, with as many start dates as it has.
        out: folder of the new store; left as it is if it exists.
        dates: number of start dates.
        every: days between start dates.
    """
    if out.exists():
        return out
    shutil.copytree(store, out, ignore=shutil.ignore_patterns("c"))
    root = zarr.open_group(str(out), mode="r+", use_consolidated=False)
    short = zarr.open_group(str(store), mode="r", use_consolidated=False)
    for name in store_kinds(store):
        _lengthen(root[name], short[name], store / name, out / name, dates, every * _DAY)  # type: ignore[arg-type]
    shutil.rmtree(out / "manifest", ignore_errors=True)
    consolidate(out)
    return out


def _lengthen(
    group: zarr.Group, old: zarr.Group, source: Path, out: Path, dates: int, apart: int
) -> None:
    held = int(old["time"].shape[0])  # type: ignore[union-attr]
    start = np.asarray(old["time"][...])[0] + apart * np.arange(dates)  # type: ignore[index]
    lead = np.asarray(old["valid_time"][...])[0] - np.asarray(old["time"][...])[0]  # type: ignore[index]
    for name, array in old.arrays():
        dims = array.metadata.dimension_names
        if dims is None or dims[0] not in ("time", "block"):
            shutil.copytree(source / name / "c", out / name / "c")
        elif name == "time":
            _rewrite(group, name, start)
        elif name == "valid_time":
            _rewrite(group, name, start[:, None] + lead)
        elif dims[0] == "time":
            group[name].resize((dates, *array.shape[1:]))  # type: ignore[union-attr]
            chunks = out / name / "c"
            for n in range(held):
                _copy_without_place(source / name / "c" / str(n), chunks / str(n))
            for n in range(held, dates):
                _link(chunks / str(n % held), chunks / str(n))
    if "valid_year" in old:
        _blocks(group, old, (start[:, None] + lead).astype("datetime64[s]"))


def _blocks(group: zarr.Group, old: zarr.Group, valid: Any) -> None:
    """Sums of as many blocks as the new dates have, each with the values of the first old one."""
    years, _ = blocks(valid)
    for name, array in list(old.arrays()):
        dims = array.metadata.dimension_names
        if dims is None or dims[0] != "block":
            continue
        if name == "valid_year":
            _rewrite(group, name, years)
            continue
        group[name].resize((len(years), *array.shape[1:]))  # type: ignore[union-attr]
        folder = Path(str(group.store_path).removeprefix("file://")) / name / "c"
        source = Path(str(old.store_path).removeprefix("file://")) / name / "c"
        for n in range(len(years)):
            _link(source / "0", folder / str(n))


def _rewrite(group: zarr.Group, name: str, values: Any) -> None:
    array: Any = group[name]
    attributes, dims, dtype = dict(array.attrs), array.metadata.dimension_names, array.dtype
    del group[name]
    new = group.create_array(
        name, shape=values.shape, chunks=values.shape, dtype=dtype,
        dimension_names=dims, attributes=attributes, compressors=None,
    )  # fmt: skip
    new[...] = values.astype(dtype)


def _copy_without_place(source: Path, out: Path) -> None:
    """Copies chunks; packed ones forget their place, since they will lie at several."""
    for file in source.rglob("*"):
        if file.is_file():
            target = out / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = bytearray(file.read_bytes())
            if content.startswith(MAGIC):
                content[PLACE] = bytes(4)
            target.write_bytes(content)


def _link(source: Path, out: Path) -> None:
    for file in source.rglob("*") if source.is_dir() else []:
        if file.is_file():
            target = out / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)
