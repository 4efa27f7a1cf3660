"""The page on loggers: its code and commands run in page order, and what it says of settings."""

import re
import shlex
from pathlib import Path

import pytest
from realruns import command

import ens10
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "loggers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```|^    (ens10 [^\n]+)$", PAGE, re.DOTALL | re.MULTILINE)


def test_it_is_short():
    assert len(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).split()) < 700


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_the_page_runs(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store.zarr").symlink_to(store)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    names = {}
    with suppress_lightning_warnings():
        for code, line in BLOCKS:
            if line:
                command(*shlex.split(line)[1:])
            else:
                exec(code, names)
    assert len(BLOCKS) == 6
    assert names["run"].path.as_posix() == "runs/mlp-2"  # of the trainer; mlp-1 is of the class
    assert names["forecast"]["mu"].sizes["time"] == 8
    assert names["model"].learning_rate != 0.001
    assert len(list((tmp_path / "logs").rglob("metrics.csv"))) == 2
    assert ens10.Run("runs/stopped").path.is_dir()
