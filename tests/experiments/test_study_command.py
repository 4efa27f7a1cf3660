"""What the commands of studies share: cells of one JSON, how they are read, and a run."""

import json
from dataclasses import dataclass
from functools import partial

import pytest
from realruns import compute_here

from ens10.errors import FileError, MissingDataError
from ens10.experiments.runner import running
from ens10.experiments.runner.key import key_of
from ens10.experiments.studies.json_cells import JsonCell, read_json_cells
from ens10.experiments.studies.study import compute, run_study, study_parser, with_bounds
from ens10.metrics import Interval


@dataclass(frozen=True)
class Squares(JsonCell):
    """The square of the seed; a negative seed fails."""

    def current_key(self):
        return key_of({"variant": self.variant, "seed": self.seed}, "", ("ens10.metrics",))

    def result(self):
        if self.seed < 0:
            raise FileError(self.work, "no root", "Give another seed")
        return {"square": self.seed**2, "name": self.variant}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The command with some seeds: exit status, and what it wrote of the results."""
    monkeypatch.setattr(running, "start_cell", compute_here)

    def run(*seeds, more=(), of_call=False):
        out = tmp_path / "out"
        options = study_parser("squares").parse_args(
            [str(tmp_path / "w"), "--out", str(out), *more]
        )
        cells = [Squares("a", seed, options.work, options.out) for seed in seeds]

        def write(folder, _):
            found = {place: r["square"] for place, r in read_json_cells(folder).items()}
            return json.dumps(found)

        return run_study(options, partial(compute, cells, options), write, of_call=of_call)

    return run


def test_what_is_kept_is_read_and_what_is_complete_is_not_computed_again(study, capsys):
    assert study(2, 3) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"seed2/a": 4, "seed3/a": 9}
    assert study(3, 5) == 0
    told = capsys.readouterr().out
    assert "a, seed 3: complete" in told
    assert json.loads(told.splitlines()[-1]) == {"seed2/a": 4, "seed3/a": 9, "seed5/a": 25}


def test_a_study_of_its_own_cells_and_one_of_tables_alone(study, capsys):
    study(2, 3)
    assert study(3, of_call=True) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"seed3/a": 9}
    assert study(7, more=["--tables"], of_call=True) == 0
    assert json.loads(capsys.readouterr().out) == {"seed2/a": 4, "seed3/a": 9}


def test_a_cell_that_fails_is_the_exit_status(study, capsys):
    assert study(1, -1) == 1
    assert "no root" in capsys.readouterr().err


def test_results_must_be_there_and_have_their_keys(study, tmp_path):
    with pytest.raises(MissingDataError, match="without --tables"):
        study(1, more=["--tables"])
    (tmp_path / "seed0" / "a").mkdir(parents=True)
    (tmp_path / "seed0" / "a" / "result.json").write_text('{"square": 1}')
    assert read_json_cells(tmp_path, ("square",)) == {"seed0/a": {"square": 1}}
    with pytest.raises(FileError, match=r"no result \(KeyError\('name'\)\)"):
        read_json_cells(tmp_path, ("name",))


def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_computed(study, tmp_path):
    (tmp_path / "w").write_text("mine")
    with pytest.raises(FileError, match="is no folder"):
        study(1)
    assert not (tmp_path / "out").exists()


def test_a_value_with_its_bounds():
    assert with_bounds(Interval(0.5, -0.25, 1.0), "+.2f") == "+0.50 [-0.25, +1.00]"
