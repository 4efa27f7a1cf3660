"""Provenance of a run: versions, commit, seed, data, processor. No times of day, no paths."""

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.protocol import Protocol, protocol_of
from ens10.store.manifest import NAME
from ens10.untrusted import read_mapping

FILE = "provenance.json"
NOT_BUILT = "model_not_built"  # why the configuration has no model: it was an object in Python
OBJECTS = "python_objects"  # of the trainer, which the configuration does not have
PARTS = "parts"  # folder of a run, with a folder for each of several targets and lead times
_FORMS: tuple[tuple[tuple[type, ...], str, tuple[str, ...]], ...] = (
    (
        (str,),
        "text",
        (
            "name",
            "kind",
            "target",
            "target_units",
            "step_units",
            "protocol",
            "weights",
            "commit",
            "processor",
            NOT_BUILT,
        ),
    ),
    ((int, float), "a number", ("seed", "seconds", "cpu_seconds", "memory_mb", "parameters")),
    (
        (dict,),
        "an object of names and values",
        ("rules", "versions", "data", "dates", "years", OBJECTS),
    ),
)
_REMEDY = "Put it back, or train again"
_PACKAGES = ("ens10", "torch", "pytorch-lightning", "numpy", "xarray", "zarr", "eccodes")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    package_versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            package_versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return package_versions


def processor() -> str:
    """Return the model name of this machine's processor, or its architecture if unknown."""
    info = Path("/proc/cpuinfo")  # Linux; `platform.processor` is often empty there
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of the source tree, with "+" if files were changed; None if unknown."""
    top = Path(__file__).resolve().parents[2]
    if not (top / ".git").exists():
        return None
    try:
        head = _git(top, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(top, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):  # no git, no commit, or no answer
        return None


def checksum(store: Path | str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a store's metadata, statistics and truth.

    Of the statistics the sums count, so that a changed field changes the checksum without reading
    all fields, which `ens10 verify` does.
    """
    digest = hashlib.sha256()
    root = Path(store)
    files = [
        root / "zarr.json",
        *sorted(root.glob("*/zarr.json")),
        *sorted(root.glob("*/*/zarr.json")),
    ]
    files += sorted(f for f in root.glob("statistics/*_sum/**/*") if f.is_file())
    if not (root / "statistics").exists():  # small stores hold none
        files.append(root / NAME)
    files += sorted(f for f in root.glob("truth/*/**/*") if f.is_file())
    for file in dict.fromkeys(files):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def peak_memory_mb() -> int:
    """Return the peak memory of this process so far, MB; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 1e6 if sys.platform == "darwin" else peak / 1e3)


def write(run: Path, content: dict[str, Any]) -> None:
    """Write a run's provenance, or add to it."""
    merged = {**(_read_content(run) if (run / FILE).exists() else {}), **content}
    run.mkdir(parents=True, exist_ok=True)
    write_whole(run / FILE, json.dumps(merged, indent=1, sort_keys=True) + "\n")


def read_provenance(run: Path) -> dict[str, Any]:
    """Read a run's provenance; that of one of its targets and lead times includes the run's.

    Raises:
        FileError: the folder holds no run, or its provenance cannot be read.
    """
    top = run_of(run)
    return _read_content(run) if top == run else _read_content(top) | _read_content(run)


def _read_content(run: Path) -> dict[str, Any]:
    path = run / FILE
    if not path.is_file():
        raise FileError(run, f"no run (it has no {FILE})", "Give a folder that `ens10 fit` wrote")
    content = read_mapping(path, _REMEDY)
    for kinds, words, names in _FORMS:
        for name in names:
            if content.get(name) is not None and not isinstance(content[name], kinds):
                raise FileError(path, f"{name} is not {words}", _REMEDY)
    return content


def part_name(target: str, step: float, units: str) -> str:
    """Return the folder of a target at a lead time among several, such as "t2m-24h"."""
    return f"{target}-{step:g}{units}"


def run_of(folder: Path) -> Path:
    """Return the run that a folder of one target and lead time belongs to, or the folder itself."""
    top = folder.parent.parent
    return top if folder.parent.name == PARTS and (top / FILE).is_file() else folder


def rules_of(content: Mapping[str, Any]) -> Protocol:
    """Return the protocol of a run: as recorded when it was trained, or by its name in older runs.

    Args:
        content: provenance of the run.

    Raises:
        UnknownNameError: the name of a user's protocol, without its content.
    """
    return protocol_of(content.get("rules") or str(content.get("protocol") or "clean"))


def _git(top: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(top), *arguments], check=True, capture_output=True, text=True, timeout=10
    )
    return result.stdout.strip()


def duration(seconds: float) -> str:
    """Return a time as text in seconds, minutes or hours, depending on its length."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
