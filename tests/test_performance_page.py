"""The speeds in docs/performance.md: each row has a script and a result, and marks misses."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "performance.md").read_text()
# What checks cost: docs/reliability.md tells it.
COSTS = ("checksums", "gribflips", "gribguard", "integrity", "soak", "walks")
ROWS = re.findall(r"^\| (?!what|---)([^|]+)\| ([^|]+)\| ([^|]+)\| (\w+) \|$", TABLE, re.MULTILINE)


def test_there_is_a_row_for_each_script():
    assert len(ROWS) == 25
    assert {row[3] for row in ROWS} == {
        path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")
    } - {
        "cuda",
        "import_time",
        "isotonic",
        "statistical",
        "statistical_against",
        "step_counts",
        "train_for_less",
        "unet_step",
        *COSTS,
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:30])
def test_figures_come_from_results(row):
    what, _, measured, name = row
    assert (ROOT / "benchmarks" / f"{name}.py").is_file()
    lines = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["lines"]
    lines = [
        line for line in lines if name != "members" or ("lz4" in line["what"]) == ("lz4" in what)
    ]
    assert ("**" in measured) == any(not line["met"] for line in lines)
    first = float(re.search(r"[\d.]+", measured).group())
    near = [line["value"] * scale for line in lines for scale in (1, 100, 1e-6)]
    for features in re.findall(r"\d+ features", what):
        assert any(features in line["what"] for line in lines)
    if name != "memory":  # which gives what is above the ring
        assert min(abs(first - value) for value in near) <= (0.6 if first >= 10 else 0.051)


def test_dates_a_second_on_a_gpu_come_from_the_result():
    page = (ROOT / "docs" / "gpu.md").read_text()
    result = json.loads((ROOT / "benchmarks" / "results" / "cuda.json").read_text())
    assert result["about"]["measured on"] == "CUDA"
    assert result["about"]["device"]["name"].removeprefix("NVIDIA ") in page
    rows = re.findall(
        r"^\| `(\w+)`[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) GB", page, re.M
    )
    assert len(rows) == 5
    for name, *told in rows:
        variants = ("float32", "float32, 4 dates", "bfloat16, 4 dates")
        steps = [result["parts"]["steps"][f"{name}, {variant}"] for variant in variants]
        measured = [step["samples a second"] for step in steps] + [steps[-1]["peak memory, GB"]]
        assert [float(value) for value in told] == pytest.approx(measured, rel=0.05)
