"""The demonstration, tiny and whole."""

import csv

import pytest
import realruns

from ens10.errors import FileError
from ens10.experiments import demo
from ens10.experiments.scoring.run_results import read_runs
from ens10.experiments.scoring.score import read_states
from ens10.experiments.scoring.tables import score_table
from ens10.metrics import summarise


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A demonstration with few dates and two models; it begins where one was interrupted."""
    out = tmp_path_factory.mktemp("demo") / "out"
    (out / "world.partial").mkdir(parents=True)
    (out / "world.partial" / "output.sfc.20180101").write_text("half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "YEARS", range(2000, 2004))
        patch.setattr(demo, "DATES", 3)
        page = demo.run_demo(out, models=("raw", "emos_global"), quiet=True)
    return out, page


@pytest.fixture
def few(monkeypatch):
    """The dates of the tiny demonstration."""
    monkeypatch.setattr(demo, "YEARS", range(2000, 2004))
    monkeypatch.setattr(demo, "DATES", 3)


def test_the_demonstration_makes_a_report(tiny):
    out, page = tiny
    assert page.is_file()
    table = (out / "report" / "table.md").read_text()
    for name in ("raw", "emos_global", "optimum"):
        assert name in table.replace("\\_", "_")
    crps = {}
    for name in ("raw", "emos_global", "optimum"):
        with (out / "runs" / name / "scores.csv").open() as file:
            crps[name] = float(next(csv.DictReader(file))["value"])
    assert crps["optimum"] < crps["emos_global"] < crps["raw"]


@pytest.mark.slow
def test_the_demonstration_on_the_displaced_world(tmp_path, few):
    out = tmp_path / "demo"
    demo.run_demo(out, kind="displaced", models=("raw", "emos_global"), quiet=True)
    runs = {run.name: run for run in read_runs(sorted((out / "runs").iterdir()))}
    rows = {row.model: row for row in score_table(list(runs.values()))}
    assert rows["optimum"].crps.value < rows["emos_global"].crps.value < rows["raw"].crps.value
    assert 0 < rows["emos_global"].attained.value < 0.5


def test_what_is_done_is_not_done_again(tiny, few, monkeypatch):
    out, _ = tiny
    table = (out / "report" / "table.md").read_bytes()

    def fail(*arguments, **options):
        pytest.fail("done again")

    for name in ("prepare", "run_stage", "score_run", "score_optimum"):
        monkeypatch.setattr(demo, name, fail)
    demo.run_demo(out, models=("raw", "emos_global"), quiet=True)
    assert (out / "report" / "table.md").read_bytes() == table


def test_another_seed_or_another_folder_is_refused(tiny, few, tmp_path):
    for options, difference in (
        ({"seed": 1}, "seed: 0, now 1"),
        ({"kind": "displaced"}, "kind: .*, now displaced"),
    ):
        with pytest.raises(FileError, match=rf"world: .* settings \({difference}\)"):
            demo.run_demo(tiny[0], **options, quiet=True)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(FileError, match="--out"):
        demo.run_demo(tmp_path, quiet=True)
    assert (tmp_path / "letter.txt").read_text() == "mine"
    realruns.command("demo", "--out", tmp_path, status=1)


@pytest.mark.parametrize(("name", "value"), [("DATES", 4), ("YEARS", range(2000, 2005))])
def test_a_world_of_other_dates_is_refused(tiny, few, monkeypatch, name, value):
    """As of a demonstration by another version of the package."""
    monkeypatch.setattr(demo, name, value)
    with pytest.raises(FileError, match=f"{name.lower()}: .*, now"):
        demo.run_demo(tiny[0], models=("raw", "emos_global"), quiet=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_order_of_the_models(tmp_path):
    demo.run_demo(tmp_path / "demo", quiet=True)
    runs = tmp_path / "demo" / "runs"
    states = {name: read_states(runs / name) for name in (*demo.MODELS, "optimum")}
    for worse, better in (
        ("raw", "emos_global"),
        ("emos_global", "emos_local"),
        ("emos_global", "mlp"),
        ("emos_local", "unet"),
        ("mlp", "unet"),
    ):
        pair = summarise(states[better], states[worse])
        assert float(pair["crps_difference_upper"]) < 0, (worse, better)
    crps = {name: float(summarise(part)["crps"]) for name, part in states.items()}
    gain = crps["raw"] - crps["optimum"]
    attained = {name: (crps["raw"] - value) / gain for name, value in crps.items()}
    assert all(attained[name] < 1 for name in demo.MODELS)
    assert attained["unet"] > 0.8
