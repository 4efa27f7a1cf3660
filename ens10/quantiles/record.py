"""A climate that was added to a complete store, in the store's manifest."""

from pathlib import Path

from ens10.convert.identity import plain
from ens10.durable import write_whole
from ens10.quantiles.options import ClimateOptions
from ens10.store.manifest import COPY, NAME, REST, assembled, files_of, read_manifest


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
    write_whole(path, content.tobytes())
    (store / COPY).parent.mkdir(parents=True, exist_ok=True)
    write_whole(store / COPY, content.tobytes())


def _is_made(name: str) -> bool:
    return name == "zarr.json" or name.startswith("climate/")
