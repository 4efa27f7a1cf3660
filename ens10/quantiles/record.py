"""A climate that was added to a complete store, in the store's manifest."""

import os
from pathlib import Path

from ens10.convert.identity import plain
from ens10.convert.manifest import NAME, REST, assembled, files_of, read_manifest
from ens10.quantiles.options import ClimateOptions


def record_climate(store: Path, options: ClimateOptions) -> None:
    """Makes the manifest what `prepare` would have written, had it made the climate.

    A store that is in preparation has no manifest yet, and is left alone.

    Raises:
        DamagedFileError: the manifest is damaged.
    """
    path = store / NAME
    if not path.exists():
        return
    manifest = read_manifest(store)
    plan = {**manifest.plan, "options": {**manifest.plan["options"], "climate": plain(options)}}
    made = ["zarr.json", *(f"climate/{name}" for name in files_of(store / "climate"))]
    kept = [row for row in manifest.units[REST] if not _is_made(row[0])]
    _, *units, _, _, _ = path.read_bytes().split(b"\n")
    lines = [line.removesuffix(b",") for line in units]
    content = assembled(store, plan, lines, kept, made)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content.data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _is_made(name: str) -> bool:
    return name == "zarr.json" or name.startswith("climate/")
