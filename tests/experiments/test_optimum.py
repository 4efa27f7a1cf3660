"""The best possible forecast as a run."""

import pytest

from ens10.errors import MissingDataError
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.optimum import score_optimum
from ens10.experiments.scoring.run_results import read_run, read_runs
from ens10.experiments.scoring.score import read_states
from ens10.metrics import summarise
from ens10.synthetic import World


def test_the_optimum_is_scored_on_the_dates_of_a_run(world, runs, tmp_path):
    folder = tmp_path / "optimum"
    score_optimum(world, runs["raw"], folder)
    best, raw = read_states(folder), read_states(runs["raw"])
    assert (best["time"] == raw["time"]).all()
    pair = summarise(best, raw)
    assert float(pair["crps_difference_upper"]) < 0
    # a reliable normal: its spread is its error, and its CRPS that of the noise alone
    assert float(pair["spread_error"]) == pytest.approx(1, abs=0.1)
    assert read_run(folder).kind == "optimum"
    known = provenance.read_provenance(folder)
    assert known["target"] == "t2m"
    assert known["dates"] == provenance.read_provenance(runs["raw"])["dates"]
    names = [run.name for run in read_runs([runs["raw"], runs["mlp"], folder])]
    assert names == ["raw", "mlp", "optimum"]


def test_dates_that_another_world_lacks_are_listed(runs, tmp_path):
    other = World("8x16", [2004], 4, ["t2m", "u10", "v10", "tp"], steps=(48,))
    other.write(tmp_path / "world")
    with pytest.raises(MissingDataError) as told:
        score_optimum(other, runs["raw"], tmp_path / "optimum")
    assert len(told.value.missing) == 4
    assert all(date.startswith("2005-") for date in told.value.missing)
    assert not (tmp_path / "optimum").exists()
