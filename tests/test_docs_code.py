"""The code and the commands of docs/add_your_own.md run as they stand on the page."""

import csv
import json
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from ens10.cli import main
from ens10.convert import prepare
from ens10.grid import area_weights
from ens10.synthetic import World

PAGE = (Path(__file__).parents[1] / "docs" / "add_your_own.md").read_text()
BLOCKS = dict(re.findall(r"```\w+ ([\w.]+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^    (ens10 .+)$", PAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's files beside a store, and all its commands done in their order."""
    path = tmp_path_factory.mktemp("own")
    torch.set_num_threads(1)
    world = World("8x16", range(2000, 2006), 2, seed=0, steps=(48,))
    world.write(path / "world")
    prepare(path / "world", path / "store.zarr", truth=path / "world" / "truth")
    for name, text in BLOCKS.items():
        (path / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.syspath_prepend(path)
        for command in COMMANDS:
            assert main([*command, *(["--quiet"] if command[0] != "score" else [])]) == 0, command
        yield path


def test_every_block_has_a_name_and_the_network_is_short():
    assert len(BLOCKS) == PAGE.count("```") / 2 == 8
    assert len(COMMANDS) == 4
    lines = BLOCKS["my_network.py"].partition("def __init__")[2].splitlines()
    assert len(lines) <= 30


def test_the_notebook_has_the_same_files():
    path = Path(__file__).parents[1] / "notebooks" / "05-add-your-own.ipynb"
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    head = re.compile(r"(?:%%writefile \S*/|# )([\w.]+)\n(.*)", re.DOTALL)
    written = dict(found.groups() for cell in cells if (found := head.fullmatch(cell)))
    assert set(written) == set(BLOCKS) - {"score_mine.py"}
    assert {name: BLOCKS[name].rstrip() for name in written} == written


def test_the_network_was_trained_and_scored(folder):
    with (folder / "runs" / "mine" / "scores.csv").open() as file:
        crps = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}["crps"]
    assert 0.1 < crps < 3
    with (folder / "runs" / "mine" / "log" / "metrics.csv").open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file) if row["train_loss"]]
    assert losses[-1] < losses[0]


def test_the_network_starts_at_zero_and_commutes_with_turning_the_globe(folder):
    from my_network import ResNet

    torch.manual_seed(0)
    network, features = ResNet(3).double(), torch.randn(2, 3, 6, 9, dtype=torch.float64)
    assert not network(features).any()
    torch.nn.init.normal_(network.last.weight)
    turned = network(features.roll(4, dims=-1))
    torch.testing.assert_close(turned, network(features).roll(4, dims=-1))


def test_the_run_has_the_head_and_the_loss_of_the_page(folder):
    config = (folder / "runs" / "parts" / "config.yaml").read_text()
    assert "my_head.UnitsHead" in config
    assert "my_loss.QuantileLoss" in config


def test_the_head_gives_the_distribution_it_says(folder):
    from my_head import UnitsHead

    outputs, raw = torch.randn(2, 2, 3, 4), {"raw_mean": torch.randn(2, 3, 4)}
    forecast = UnitsHead(floor=0.5)(outputs, raw)
    torch.testing.assert_close(forecast.mean, raw["raw_mean"] + outputs[:, 0])
    torch.testing.assert_close(forecast.std, 0.5 + outputs[:, 1].exp().log1p())


def test_the_loss_over_many_probabilities_is_half_the_crps(folder):
    """Its integral over all probabilities is (Laio & Tamea 2007)."""
    from my_loss import QuantileLoss

    from ens10.models import Normal

    forecast = Normal(torch.zeros(1, 2, 3), torch.full((1, 2, 3), 2.0))
    target = torch.linspace(-3, 5, 6).view(1, 2, 3)
    many = [(n + 0.5) / 2000 for n in range(2000)]
    found = 2 * QuantileLoss(many)(forecast, target)
    torch.testing.assert_close(found, forecast.crps(target), rtol=1e-3, atol=0)


def test_the_score_counts_the_medians_that_miss(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = runpy.run_path("score_mine.py")
    forecast, truth = found["forecast"].load(), found["truth"].load()
    off = abs(forecast["mu"] - truth) > 5
    rows = np.broadcast_to(area_weights(truth["latitude"].to_numpy())[:, None], off.shape[1:])
    for season, dates in off.groupby(truth["valid_time"].dt.season):
        share = np.average(dates.mean("time"), weights=rows)
        assert float(found["found"]["bust"].sel(season=season)) == pytest.approx(share)
    assert 0 < float(off.mean()) < 1


def test_the_dataset_gives_batches_of_its_values(folder):
    from my_dataset import batches, forecast, truth

    assert batches.channels == ("gust:mean", "gust:std")
    batch = next(iter(batches))
    start = batch["dates"][0].astype("M8[s]") - np.timedelta64(24, "h")
    one = forecast["gust"].sel(time=start, step=24)
    np.testing.assert_allclose(batch["raw_mean"][0], one.mean("number"), rtol=1e-5)
    seen = truth["gust"].sel(time=batch["dates"][0].astype("M8[s]"))
    np.testing.assert_array_equal(batch["target"][0], seen)
    assert sum(len(batches.splits.index[s]) for s in ("train", "val", "test")) == 96
