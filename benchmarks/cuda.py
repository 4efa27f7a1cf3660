"""Claim: what ens10 does on a CUDA device, in one command of a few minutes.

    python benchmarks/cuda.py [--minutes 8] [--parts tests steps ...] [--out FILE]
    python benchmarks/cuda.py --device cpu --tiny      # the same program on a small grid

It needs torch with CUDA and the light dependencies of the package, no installation: what else is
missing is listed and done without. The parts, in their order:

    tests    the tests marked `cuda`
    epochs   ten epochs of ENS-10's size of four networks, from steps over a sample of dates
    steps    a training step of five networks at 361 x 720: seconds, memory, share of the roofline
    scores   kernels of scores against a copy of the same bytes on the device
    train    networks fitted, applied and scored by the command line, against the CPU
    loader   what a step waits for the loader's pinned ring
    split    two processes against the serial step, on two devices where there are two
    profile  the operators of the U-Net's step

Each part runs in a process of its own, within its share of the time. The result is written after
each of them, so that nothing is lost when a part fails or the time runs out. A run on the CPU or on
the small grid says so in the result, and is written only where `--out` says.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARES = {
    "tests": 100,
    "epochs": 60,
    "steps": 150,
    "scores": 35,
    "train": 50,
    "loader": 30,
    "split": 35,
    "profile": 20,
}
"""Parts, the most valuable first, and their seconds of eight minutes; the rest goes to the next."""
NEEDED = ("torch", "numpy", "scipy", "xarray", "numba", "yaml")
USED = ("pytest", "pytorch_lightning", "torchmetrics", "rich", "zarr", "dask", "numcodecs",
        "crc32c", "jsonargparse", "netCDF4", "eccodes", "safetensors")  # fmt: skip
_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
LEAST = 5.0  # seconds in which a part is not begun


def missing(names: tuple[str, ...]) -> list[str]:
    """The packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Where and with what the figures were measured."""
    import torch
    from common import machine

    found: dict[str, Any] = {
        "measured on": "CUDA" if options.device == "cuda" else "the CPU: NOT figures of a GPU",
        "grid": "small: NOT figures of the full size" if options.tiny else "361 x 720",
        "commit": options.commit or _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "changed files": "unknown: sources without their history"
        if options.commit
        else _output("git", "-C", str(ROOT), "status", "--porcelain", "-uno"),
        "torch": torch.__version__,
        "missing packages": missing(USED),
        **machine(),
    }
    if options.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["device"] = {
            "name": properties.name,
            "memory": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "CUDA": torch.version.cuda,
            "cuDNN": torch.backends.cudnn.version(),
            "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        }
    return found


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def written(result: dict[str, Any], path: Path | None) -> None:
    """Writes the result so that a reader finds the old one or the new one, never a part."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    text = _FOLDERS.sub("", json.dumps(result, indent=1))  # of the machine, in errors and logs
    partial.write_text(text + "\n")
    partial.replace(path)


def carried_out(part: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a part in a process of its own; what it had written counts however it ends.

    A part that ends before its time is up may write its status itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [sys.executable, str(ROOT / "benchmarks" / "cuda_parts.py"), part]
        command += ["--device", options.device, "--seconds", f"{seconds:.0f}", "--out", str(kept)]
        command += ["--tiny"] if options.tiny else []
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        start = time.perf_counter()
        with log.open("w") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=environment, start_new_session=True
            )
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:  # also what it started
                _end(process)
        found = json.loads(kept.read_text()) if kept.exists() else {}
        status = {0: "complete", None: "stopped: out of time"}.get(code, f"failed: exit {code}")
        head = {"status": status, "seconds": round(time.perf_counter() - start, 1)}
        if code != 0:
            head["last lines"] = log.read_text().splitlines()[-12:]
    return head | found


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All parts, one after another, within the time."""
    deadline = time.perf_counter() + 60 * options.minutes
    result: dict[str, Any] = {"claim": __doc__.splitlines()[0].removeprefix("Claim: ")}
    result |= {"about": about(options), "lines": [], "parts": {}}
    written(result, options.out)
    for n, part in enumerate(options.parts):
        left = deadline - time.perf_counter()
        if left < LEAST:
            result["parts"][part] = {"status": "skipped: out of time"}
        else:
            rest = sum(SHARES[name] for name in options.parts[n:])
            result["parts"][part] = carried_out(part, left * SHARES[part] / rest, options)
        written(result, options.out)
        print(part, result["parts"][part]["status"], file=sys.stderr, flush=True)
    return result


def main() -> int:
    """Reads the command line, measures, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].removeprefix("Claim: "))
    parser.add_argument("--parts", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small grid, to try the program")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--commit", help="to record where the sources have no git history")
    parser.add_argument("--out", type=Path, help="by default benchmarks/results/cuda.json on CUDA")
    options = parser.parse_args()
    if lacking := missing(NEEDED):
        print(f"not installed, and needed: {', '.join(lacking)}", file=sys.stderr)
        return 2
    from common import import_elsewhere

    import_elsewhere("cuda")
    sys.path.append(str(ROOT))
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"torch {torch.__version__} sees no CUDA device. Try the program with "
            "--device cpu --tiny",
            file=sys.stderr,
        )
        return 2
    if options.out is None and options.device == "cuda" and not options.tiny:
        options.out = ROOT / "benchmarks" / "results" / "cuda.json"
    result = measured(options)
    print(json.dumps(result, indent=1))
    whole = all(part["status"] == "complete" for part in result["parts"].values())
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
