"""The study of trainings on two sizes of the grid, on smaller worlds."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from ens10.experiments.runner.results import Results
from ens10.experiments.studies import mixed_sizes, small_unet
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.experiments.studies.mixed_sizes import COARSE, FINE, SpacingUNet, averaged_store
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models.layers import SameConv2d
from ens10.models.networks.unet import UNetBody

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "mixed_sizes"
ROWS, COLUMNS = 16, 24


@pytest.fixture
def smaller(monkeypatch):
    """A world of 16 x 24 points and 24 dates."""
    for name, value in {"years": [*range(2000, 2006)], "dates": 4}.items():
        monkeypatch.setitem(small_unet.WORLD, name, value)
    monkeypatch.setattr(mixed_sizes, "GRID", f"{ROWS}x{COLUMNS}")
    monkeypatch.setattr(mixed_sizes, "ROWS", ROWS)


def averaged(fields):
    """Averages over 2 x 2 points."""
    fine = np.asarray(fields, np.float64)
    return fine.reshape(*fine.shape[:-2], ROWS // 2, 2, COLUMNS // 2, 2).mean((-3, -1))


def test_the_coarse_spread_is_that_of_averaged_members(smaller, tmp_path):
    fine = small_unet.data_of(tmp_path, 0, 3, grid=mixed_sizes.GRID)
    coarse = EnsembleDataModule(str(averaged_store(Path(fine.store))), batch_size=3, members=True)
    fine.members = True
    given, made = (next(iter(data.batches("test"))) for data in (fine, coarse))
    members = averaged(given["members"])
    np.testing.assert_allclose(made["members"], members, rtol=1e-6)
    np.testing.assert_allclose(made["raw_mean"], members.mean(1), rtol=1e-6)
    np.testing.assert_allclose(made["raw_std"], members.std(1, ddof=1), atol=2e-4)
    np.testing.assert_allclose(made["target"], averaged(given["target"]), rtol=1e-6)


def test_the_spacing_is_an_input(smaller):
    network = SpacingUNet(3, 2, lambda _, before, after: SameConv2d(before, after), 4)
    plain = UNetBody(4, 2, lambda _, before, after: SameConv2d(before, after), 4)
    plain.load_state_dict(network.state_dict())
    for rows, spacing in ((ROWS, -0.5), (ROWS // 2, 0.5)):
        features = torch.randn(2, 3, rows, 2 * rows)
        one = torch.full((2, 1, rows, 2 * rows), spacing)
        assert torch.equal(network(features), plain(torch.cat([features, one], 1)))


@pytest.mark.slow
def test_the_command(smaller, tmp_path, monkeypatch):
    shapes, trainings = [], {"fine": ([FINE], False), "mixed": ([COARSE, FINE] * 2, True)}
    monkeypatch.setattr(mixed_sizes, "TRAININGS", trainings)

    class Watched(SpacingUNet):
        def forward(self, features):
            if self.training:
                shapes.append(tuple(features.shape))
            return super().forward(features)

    monkeypatch.setattr(mixed_sizes, "SpacingUNet", Watched)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--seeds", "1"]
    command += ["--variants", *trainings]
    assert mixed_sizes.main(command) == 0
    dates = 12  # of the training
    coarse = [(dates, 10, ROWS // 2, COLUMNS // 2)]
    fine = [(mixed_sizes.BATCH, 10, ROWS, COLUMNS)] * (dates // mixed_sizes.BATCH)
    assert [(n, *rest) for n, _, *rest in shapes] == [
        (n, *rest) for n, _, *rest in (coarse + fine) * 2
    ]
    rows = list(csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines()))
    assert [row["variant"] for row in rows] == ["fine", "mixed"]
    assert len({row[name] for row in rows for name in ("crps", "coarse_crps")}) == 4
    monkeypatch.delattr(mixed_sizes, "train_briefly")  # complete: nothing is trained again
    assert mixed_sizes.main(command) == 0


def test_the_kept_tables_are_those_of_the_cells():
    with Results(RESULTS).temporary_folder() as folder:
        results = read_json_cells(folder)
    files = small_unet.tables_of(results.values(), mixed_sizes.LABELS, mixed_sizes.COLUMNS)
    assert {name: (RESULTS / name).read_text() for name in files} == files
