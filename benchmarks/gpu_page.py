"""Tables of docs/gpu.md: times and counts of steps, and what the dates of training take.

    python benchmarks/gpu_page.py

The counts are those of `benchmarks/results/step_counts.json` (`step_counts.py`, and
`compiled_counts.py`). Bytes of dates are
computed here, by the function by which `--data.resident` decides, and added to that file.
"""

import json
from pathlib import Path
from typing import Any

import cuda_steps as made
import torch

from ens10.experiments.scoring.writers import fill_section
from ens10.experiments.training.data_numbers import read_config
from ens10.loader.resident import _SHARE_OF_GPU, resident_size

ROOT = Path(__file__).resolve().parents[1]
COUNTS = ROOT / "benchmarks" / "results" / "step_counts.json"
MEASURED = ROOT / "benchmarks" / "results" / "second_device" / "step_reductions.json"
STEPS = ROOT / "benchmarks" / "results" / "second_device" / "today.json"
PAGE = ROOT / "docs" / "gpu.md"
GRID, DATES = (361, 720), made.DATES
# bytes: of an H100 as its users report them, of an H200 as in second_device/loader.json
DEVICES = {"H100": 78 * 2**30, "H200": 150_109_880_320}
_LEFT_OUT = {
    "deep_ensemble": "a step trains five networks; of one of them see `location_unet`",
    "shared_trunk": "a step trains several heads on one network",
}


def size_of_dates(name: str, grid: tuple[int, int] = GRID, dates: int = DATES) -> dict[str, Any]:
    """Returns channels of a date, and bytes of all dates; None where batches are no fields.

    Bytes are those of features in float32, and of features in bfloat16.

    Args:
        name: of the configuration.
        grid: rows and columns.
        dates: of the training.
    """
    batches = made.configured_batches(name, grid, dates)
    kind = made.kind_of(read_config(made._FOLDER / f"{name}.yaml")["data"])
    if kind not in ("fields", "members"):
        return {"kind": kind, "bytes": None}
    sizes = {
        "bytes": resident_size(batches),
        "bytes in bfloat16": resident_size(batches, half=True),
    }
    return {"kind": kind, "channels": len(batches.channels), **sizes}


def takes_rounded_features(name: str, grid: tuple[int, int] = (16, 24)) -> bool | None:
    """Returns whether outputs in bfloat16 are those of features that were rounded to it before.

    On the CPU, with weights that are moved away from zero; None for several heads on one network.

    Args:
        name: of the configuration.
        grid: rows and columns.
    """
    if name in _LEFT_OUT and name != "deep_ensemble":
        return None
    network, _, _ = made.model(name, grid)
    generator = torch.Generator().manual_seed(0)
    features = made.date(network, grid, 2)["features"]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        outputs = []
        for given in (features, features.bfloat16().float()):
            torch.manual_seed(0)  # networks that draw numbers
            outputs.append(network(given))
    return torch.equal(*outputs)


def steps_table(measured: dict[str, Any], counts: dict[str, Any]) -> str:
    """Returns dates a second of each network, peak memory, and K's share of the time."""
    steps = measured["parts"]["steps"]
    columns = ("float32", "float32, 4 dates", "bfloat16, 4 dates")
    titles = [c if "dates" in c else f"{c}, 1 date" for c in columns]
    lines = [f"| network | {' | '.join(titles)} | peak memory (GB) | K's share of the time (%) |"]
    lines.append("|---|" + "---:|" * (len(columns) + 2))
    for name in made.CONFIGS:
        rows = [steps[f"{name}, {column}"] for column in columns]
        share = 100 * counts["rows"][name]["K, ms"] / rows[-1]["milliseconds"]
        cells = [f"{row['samples a second']:.3g}" for row in rows]
        cells += [f"{rows[-1]['peak memory, GB']:.1f}", f"{share:.0f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    about = measured["about"]
    device = f"{about['device']['name']}, torch {about['versions']['torch']}"
    return "\n".join([*lines, "", f"{device}, code of commit {about['commit']}."])


def epochs_table(counts: dict[str, Any]) -> str:
    """Returns the seconds of ten epochs of ENS-10, predicted from the counts, and the goals."""
    lines = ["| network | at K (s) | at twice K (s) | goal (s) |", "|---|---:|---:|---:|"]
    for name, goal in made.GOALS.items():
        seconds = counts["rows"][name]["K, ms"] / 1e3 * 10 * DATES / counts["dates"]
        lines.append(f"| `{name}` | {seconds:.1f} | {2 * seconds:.1f} | {goal} |")
    return "\n".join(lines)


def counts_table(counts: dict[str, Any]) -> str:
    """Returns the counts of all configurations as Markdown, and reasons where there are none."""
    columns = {"operations": "operations", "GB": "GB", "GFLOP": "GFLOP", "saved GB": "saved GB"}
    columns |= {"waits": "synchronisations", "K (ms)": "K, ms"}
    columns |= {"fused (ms)": "saved once, ms", "graph breaks": "graph breaks"}
    rows: list[str] = []
    reasons: dict[str, list[str]] = {}
    for name, row in sorted(counts["rows"].items()):
        if name in _LEFT_OUT:
            reasons[_LEFT_OUT[name]] = [f"`{name}`"]
            continue
        cells = [f"{row[key]:,}" if row.get(key) is not None else "–" for key in columns.values()]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
        found = [row[key].splitlines()[0] for key in ("failed", "breaks failed") if key in row]
        for reason in dict.fromkeys(found):
            reasons.setdefault(reason, []).append(f"`{name}`")
    head = f"| configuration | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}\n"
    notes = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n\n".join([head + "\n".join(rows), *notes])


def reductions_table(counts: dict[str, Any], measured: dict[str, Any]) -> str:
    """Returns counts of earlier and of this code, and times on an H200, as Markdown."""
    before, now = counts["earlier code, b6be3e1a"], counts["rows"]
    keys = {"operations": "operations", "GB": "GB", "synchronisations": "waits", "K, ms": "K (ms)"}
    titles = [f"{title} {when}" for title in keys.values() for when in _WHEN]
    titles += ["kernels compiled", "GB compiled", *(f"measured (ms) {when}" for when in _WHEN)]
    lines = [f"| network | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for name in before:
        cells = [f"{rows[name][key]:,}" for key in keys for rows in (before, now)]
        compiled = counts["compiled"].get(name, {})
        cells += [f"{compiled[key]:,}" if compiled else "–" for key in ("kernels", "GB")]
        cells += _milliseconds(measured["milliseconds of a step, median"], name)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


_WHEN = ("before", "now")


def _milliseconds(measured: dict[str, Any], name: str) -> list[str]:
    """Returns the times with four dates of the earlier and, if it was measured, of this code."""
    before, after, padded = measured.values()
    step = f"{name}, bfloat16, 4 dates"
    now = padded.get(step) or after[step]["ms"]
    # products by `einsum`, which the code has no longer
    return [f"{before[step]['ms']:.1f}", "–" if name == "transformer_neighbours" else f"{now:.1f}"]


def sizes_table(sizes: dict[str, Any]) -> str:
    """Returns the bytes of dates as Markdown: whether they stay on a device by `auto`."""
    titles = ["channels", "MB a date", "GB", *DEVICES, "GB in bfloat16", "same outputs"]
    lines = [f"| configuration | {' | '.join(titles)} |"]
    lines.append("|---|---:|---:|---:|" + "---|" * len(DEVICES) + "---:|---|")
    for name, row in sorted(sizes.items()):
        if row["bytes"] is None:
            lines.append(f"| `{name}` ({row['kind']}) | – | – | – | no | no | – | – |")
            continue
        fits = ["yes" if row["bytes"] <= _SHARE_OF_GPU * m else "no" for m in DEVICES.values()]
        date = f"{row['bytes'] / DATES / 1e6:.1f} | {row['bytes'] / 1e9:.0f}"
        many = f" ({row['kind']})" if row["kind"] == "members" else ""
        same = {True: "yes", False: "no", None: "–"}[row["takes rounded features"]]
        half = f"{row['bytes in bfloat16'] / 1e9:.0f} | {same}"
        lines.append(
            f"| `{name}`{many} | {row['channels']} | {date} | {' | '.join(fits)} | {half} |"
        )
    return "\n".join(lines)


def page(text: str, counts: dict[str, Any], measured: dict[str, Any], steps: dict[str, Any]) -> str:
    """Returns the page with its tables replaced."""
    text = fill_section(text, "step times", steps_table(steps, counts))
    text = fill_section(text, "epochs", epochs_table(counts))
    text = fill_section(text, "step reductions", reductions_table(counts, measured))
    text = fill_section(text, "step counts", counts_table(counts))
    return fill_section(text, "resident sizes", sizes_table(counts["resident"]))


def main() -> None:
    """Computes the bytes of dates, and writes the page."""
    counts = json.loads(COUNTS.read_text())
    counts["resident"] = {
        name: {**size_of_dates(name), "takes rounded features": takes_rounded_features(name)}
        for name in made.networks()
    }
    COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    measured, steps = (json.loads(path.read_text()) for path in (MEASURED, STEPS))
    PAGE.write_text(page(PAGE.read_text(), counts, measured, steps))


if __name__ == "__main__":
    main()
