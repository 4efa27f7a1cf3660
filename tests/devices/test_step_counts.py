"""Counts of a training step without a GPU: upper limits, which hold for one version of torch."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from ens10.metrics.distributions._torch import evaluate
from ens10.metrics.distributions.csgd import CSGD
from ens10.metrics.distributions.formula import KERNELS

FOLDER = Path(__file__).parents[2] / "benchmarks"
# operations and MB at 24 x 48 points with two dates, in bfloat16
LIMITS = {
    "paper_unet": (272, 54),
    "unet": (390, 61),
    "location_unet": (450, 26),
    "smoe_unet": (411, 69),
    "smoe_paper": (525, 113),
    "transformer": (274, 890),
    "transformer_neighbours": (1376, 124),
}


@pytest.fixture(scope="module")
def step_counts():
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("step_counts", FOLDER / "step_counts.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["step_counts"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the limits are of torch 2.13")
@pytest.mark.parametrize("name", LIMITS)
def test_a_step_does_no_more_than_before_and_waits_for_nothing(step_counts, name):
    found = step_counts.count(name, (24, 48), 2)
    operations, megabytes = LIMITS[name]
    assert found["synchronisations"] == 0, found["places of synchronisations"]
    assert operations / 2 < found["operations"] <= operations
    assert megabytes / 2 < 1e3 * found["GB"] <= megabytes


def test_a_waiting_host_is_counted(step_counts):
    with step_counts.on_gpu() as counts:
        x = torch.ones(3)
        assert bool(x.sum())
        x.cpu()
    assert sum(counts.syncs.values()) == 2


def test_a_closed_form_on_the_host_is_a_wait(step_counts):
    kernel = next(one for one in KERNELS if one.on_host and not one.takes_tensors)
    with step_counts.on_gpu() as counts:
        parameters = [torch.ones(3, 4, requires_grad=True) for _ in range(4)]
        evaluate(kernel, *parameters).sum().backward()
    assert list(counts.syncs.values()) == [2]  # four fields at once, forward and backward


def test_a_closed_form_that_takes_tensors_is_no_wait(step_counts):
    parameters = [torch.ones(3, 4, requires_grad=True) for _ in range(4)]
    with step_counts.on_gpu() as counts:
        evaluate(CSGD.kernels["crps"], *(p.clone() for p in parameters)).sum().backward()
    assert counts.total.operations > 50
    assert not counts.syncs


def test_bytes_are_those_of_a_sum_by_hand(step_counts):
    with step_counts.on_gpu() as counts:
        x = torch.empty(1000)
        counts.reset()
        x + x.expand(4, 1000)
    assert counts.total.operations == 1
    assert counts.total.bytes == 4 * (1000 + 1000 + 4000)


# which had breaks; the others are in the table of docs/gpu.md
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the breaks are of torch 2.13")
@pytest.mark.parametrize("name", ["smoe_unet", "location_smoe", "smoe_regions", "poet"])
def test_the_graph_has_no_break(step_counts, name):
    found = step_counts.graph_breaks(name, (16, 24))
    assert found == {"graph breaks": 0, "places of breaks": {}}


@pytest.fixture
def gpu_page(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu_page")


def test_the_tables_of_the_page_are_those_of_the_results(gpu_page):
    files = (gpu_page.COUNTS, gpu_page.MEASURED, gpu_page.STEPS)
    counts, measured, steps = (json.loads(path.read_text()) for path in files)
    text = gpu_page.PAGE.read_text()
    assert gpu_page.page(text, counts, measured, steps) == text
    sizes = counts["resident"]
    assert list(sizes) == gpu_page.made.networks()
    for name in ("paper_unet", "poet", "transformer_members"):
        assert gpu_page.size_of_dates(name).items() <= sizes[name].items()


# the points of the network with members join their features in float32
@pytest.mark.parametrize(("name", "same"), [("paper_unet", True), ("unet_members", False)])
def test_features_that_are_rounded_before_change_what_the_page_says(gpu_page, name, same):
    assert gpu_page.takes_rounded_features(name) is same
    kept = json.loads(gpu_page.COUNTS.read_text())["resident"]
    assert kept[name]["takes rounded features"] is same


def test_bytes_of_dates_are_those_of_a_product_by_hand(gpu_page):
    # 22 features, and mean, deviation, target and weights in float32; and a valid date
    found = gpu_page.size_of_dates("paper_unet", (40, 60), 64)
    assert found["channels"] == 22
    assert found["bytes"] == 64 * (26 * 40 * 60 * 4 + 8)
    assert found["bytes in bfloat16"] == 64 * ((22 * 2 + 4 * 4) * 40 * 60 + 8)
