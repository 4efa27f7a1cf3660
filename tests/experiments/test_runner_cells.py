"""Cells of models and seeds: done once, kept small, and the table of all."""

import csv
import json
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
import xarray as xr
import yaml
from realruns import compute_here, kept_run

from ens10.convert import prepare
from ens10.durable import write_whole
from ens10.errors import FileError, UnknownNameError
from ens10.experiments import studies
from ens10.experiments.demo import config_path, make_run
from ens10.experiments.runner import running
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.forks import compute_cell
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import run_cells
from ens10.experiments.runner.tables import write_files, write_summary
from ens10.experiments.runner.tasks import Task, load_budget
from ens10.experiments.runner.trainings import find_cells, keep_optimum, read_cell
from ens10.experiments.runs.claims import claim
from ens10.experiments.runs.provenance import read_provenance
from ens10.experiments.scoring.run_results import read_run
from ens10.experiments.studies import matrix as command
from ens10.experiments.training.data_numbers import read_config
from ens10.models import statistical
from ens10.signals import Terminated
from ens10.synthetic import World
from ens10.untrusted import parse_json

CONFIGS = config_path("raw").parent
BUDGETS = CONFIGS.with_name("budgets")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A matrix of two quick models, done; its arguments and folders."""
    top = tmp_path_factory.mktemp("matrix")
    work, out = top / "work", top / "out"
    world = World("8x16", range(1998, 2003), 3, seed=0, steps=(48,))
    world.write(work / "seed0" / "world")
    prepare(world.folder, work / "seed0" / "store.zarr", truth=world.folder / "truth")
    size = ["--grid", "8x16", "--years", 5, "--dates", 3]
    arguments = [work, "--out", out, "--seeds", 1, *size, "--models", "raw", "emos_global"]
    arguments = [str(argument) for argument in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "start_cell", compute_here)
        assert command.main(arguments) == 0
    return arguments, work, out


def not_at_all(cell, *_):
    raise AssertionError(f"{cell.name} is done again")


def cells(work, out, *models):
    return find_cells(models, [0], work, out, CONFIGS)


def test_the_kept_results_are_small_and_enough(done):
    _, work, out = done
    for cell in cells(work, out, "raw", "emos_global"):
        assert cell.status() == "complete"
        files = cell.results.files(cell.place)
        assert sum(map(len, files.values())) < 40_000
        whole, kept = read_run(cell.run), kept_run(cell)
        assert kept.provenance == whole.provenance
        assert "eecrps_sum" in kept.extremes
        xr.testing.assert_equal(kept.states["crps_sum"], whole.states["crps_sum"])
        assert yaml.safe_load(files["config.yaml"])["data"]["store"] == "store.zarr"


def test_the_table_holds_them_and_the_optimum(done):
    _, work, out = done
    with (out / "table.csv").open() as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["raw", "emos_global", "optimum"]
    crps = {name: float(row["crps"]) for name, row in rows.items()}
    assert crps["raw"] > crps["emos_global"] > crps["optimum"]
    expected = (crps["raw"] - crps["emos_global"]) / (crps["raw"] - crps["optimum"])
    assert float(rows["emos_global"]["attained"]) == pytest.approx(expected, rel=1e-4)
    assert float(rows["emos_global"]["cpu_seconds"]) >= 0
    raw, emos = (kept_run(cell).extremes for cell in cells(work, out, "raw", "emos_global"))
    weighted = [float(s["eecrps_sum"].sum() / s["eecrps_weight"].sum()) for s in (raw, emos)]
    assert float(rows["emos_global"]["eecrpss"]) == pytest.approx(
        1 - weighted[1] / weighted[0], rel=1e-4
    )
    assert rows["raw"]["eecrpss"] == rows["optimum"]["eecrpss"] == ""
    assert "emos_global against raw" in (out / "table.md").read_text()
    assert "of one world and one training of each" in (out / "table.md").read_text()


def test_the_table_tells_what_ten_members_cost_the_raw_ensemble(done, tmp_path):
    _, work, out = done
    (raw,) = cells(work, out, "raw")
    states = read_run(raw.run).states
    plain, fair = (
        float(states[f"{score}_sum"].sum() / states[f"{score}_weight"].sum())
        for score in ("crps", "crps_fair")
    )
    told = f"its fair CRPS, which estimates that of an infinite ensemble like it, is {fair:.4f} K"
    assert f"{told}, {100 * (1 - fair / plain):.1f} % less." in (out / "table.md").read_text()
    without = tmp_path / "seed0"
    shutil.copytree(raw.run.parent / "emos_global", without / "emos_global")
    assert "price of its" not in write_summary(tmp_path, tmp_path, ["emos_global"], [0])


def test_a_row_that_was_still_improving_is_marked(done, tmp_path):
    """By the losses of its log: the last tenth of the epochs against those before."""
    _, _, out = done

    def table(*losses):
        kept = tmp_path / str(len(list(tmp_path.iterdir())))
        with Results(out).temporary_folder() as cells:
            shutil.copytree(cells, kept)
        log = kept / "seed0" / "emos_global" / "log" / "metrics.csv"
        log.parent.mkdir(exist_ok=True)
        lines = [f"{n},{loss},{loss},{loss}" for n, loss in enumerate(losses)]
        log.write_text("\n".join(["epoch,train_loss,val_loss,val_crps", *lines]) + "\n")
        return write_summary(kept, kept, ["raw", "emos_global"], [0])

    marked, note = "global (+) |", "(+): still improving"
    for losses in ((1.0, 0.9), (*[1.0] * 18, 0.9, 0.95)):
        told = table(*losses)
        assert marked in told
        assert note in told
    for losses in ((1.0, 0.9995), (1.0, 0.9, 0.95), (*[1.0] * 17, 0.9, 0.95, 0.95)):
        assert note not in table(*losses)


@pytest.mark.slow
def test_targets_and_kinds_of_worlds(tmp_path, monkeypatch):
    """Of a displaced world, two targets: a table for each; then the same from prepared data."""
    monkeypatch.setattr(running, "start_cell", compute_here)
    size = ["--grid", "8x16", "--years", "5", "--dates", "3", "--seeds", "1"]
    models = ["--models", "raw", "emos_global", "--targets", "t2m", "si10"]
    out = ["--out", str(tmp_path / "out")]
    assert command.main([str(tmp_path / "work"), *out, *size, *models, "--world", "displaced"]) == 0
    crps = {}
    for name in ("table", "table-si10"):
        with (tmp_path / "out" / f"{name}.csv").open() as file:
            crps[name] = {row["model"]: float(row["crps"]) for row in csv.DictReader(file)}
        assert set(crps[name]) == {"raw", "emos_global", "optimum"}
    assert crps["table"]["raw"] != crps["table-si10"]["raw"]
    for name, shown in (("table", False), ("table-si10", True)):
        text = (tmp_path / "out" / f"{name}.md").read_text()
        assert ("| optimum" in text.partition("Brier, above 10")[2]) == shown
    store = ["--store", str(tmp_path / "work" / "seed0" / "store.zarr")]
    given = [str(tmp_path / "other"), "--out", str(tmp_path / "given"), "--seeds", "1"]
    assert command.main([*given, *store, "--models", "raw", "--targets", "si10"]) == 0
    with (tmp_path / "given" / "table-si10.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["crps"]) == crps["table-si10"]["raw"]


def test_nothing_is_done_twice(done, monkeypatch, capsys):
    arguments, _, _ = done
    monkeypatch.setattr(running, "start_cell", not_at_all)
    assert command.main(arguments) == 0
    assert "raw, seed 0: complete (1 of 2" in capsys.readouterr().out


def test_kept_results_count_without_their_runs(done, monkeypatch, tmp_path):
    arguments, work, _ = done
    (tmp_path / "seed0").mkdir()
    (tmp_path / "seed0" / "store.zarr").symlink_to(work / "seed0" / "store.zarr")
    monkeypatch.setattr(running, "start_cell", not_at_all)
    assert command.main([str(tmp_path), *arguments[1:]]) == 0


def test_other_code_is_noticed(done, monkeypatch, capsys):
    arguments, work, out = done
    monkeypatch.setattr(statistical, "RESULT_VERSION", statistical.RESULT_VERSION + 1)
    fresh = cells(work, out, "raw")[0]
    assert fresh.status() == "older"
    assert fresh.changes() == ["ens10.models.statistical"]
    monkeypatch.setattr(running, "start_cell", not_at_all)
    assert command.main([*arguments, "--keep-older"]) == 0
    assert "complete, but made before a change" in capsys.readouterr().out


def test_what_nobody_knows_or_holds_any_more_does_not_count(done, tmp_path):
    _, work, out = done
    (cell,) = cells(work, tmp_path, "raw")
    assert cell.status() == "missing"
    files, key = Results(out).files(cell.place), Results(out).key(cell.place)
    files.pop("cell.json")
    cell.results.add(cell.place, files, key)
    assert cell.status() == "complete"
    cell.results.add(cell.place, files, {})
    assert cell.status() == "older"


@pytest.mark.parametrize("name", ["scores.nc", "eecrps.nc"])
def test_a_kept_file_that_was_cut_off_is_refused(done, tmp_path, name):
    _, _, out = done
    Results(out).unpack(tmp_path, ["seed0/raw"])
    kept = tmp_path / "seed0" / "raw"
    assert read_cell(kept).name == "raw"
    whole = (kept / name).read_bytes()
    for length in (0, 100, len(whole) // 2, len(whole) - 9):
        (kept / name).write_bytes(whole[:length])
        with pytest.raises(FileError, match="a kept result that cannot be read"):
            read_cell(kept)


def test_an_optimum_of_other_dates_is_scored_again(done, tmp_path):
    _, work, out = done
    (cell,) = cells(work, out, "raw")
    scores = cell.run.with_name("optimum") / "scores.nc"
    right = xr.load_dataset(scores, engine="netcdf4")
    right.isel(time=slice(1, None)).to_netcdf(scores, engine="netcdf4")
    keep_optimum([cell])
    xr.testing.assert_equal(xr.load_dataset(scores, engine="netcdf4"), right)
    with cell.results.temporary_folder() as folder:
        kept = read_run(folder / "seed0" / "optimum")
    xr.testing.assert_equal(kept.states["crps_sum"], right["crps_sum"])
    archive = cell.results.path.stat().st_mtime_ns
    changed = scores.stat().st_mtime_ns
    keep_optimum([cell])
    assert scores.stat().st_mtime_ns == changed
    assert cell.results.path.stat().st_mtime_ns == archive
    # scores of earlier code or of another world on the same dates do not count either
    key = scores.with_name("cell.json")
    earlier = parse_json(key.read_bytes())
    earlier["versions"]["ens10.metrics"] = 0
    write_whole(key, json.dumps(earlier))
    right.assign(crps_sum=2 * right["crps_sum"]).to_netcdf(scores, engine="netcdf4")
    keep_optimum([cell])
    xr.testing.assert_equal(xr.load_dataset(scores, engine="netcdf4"), right)
    with claim(cell.claim.with_name("optimum")):
        scores.unlink()
        keep_optimum([cell])  # somebody else is at it
        assert not scores.exists()
    world = cell.folder / "world"
    world.rename(tmp_path / "world")
    keep_optimum([cell])  # nor can it be made without the world
    assert not scores.exists()
    (tmp_path / "world").rename(world)
    right.to_netcdf(scores, engine="netcdf4")


@pytest.mark.slow
def test_a_model_of_members_is_scored_with_as_many_as_the_data_have(tmp_path):
    world = World("8x16", range(1998, 2003), 3, seed=0, steps=(48,), members=4)
    world.write(tmp_path / "world")
    store = tmp_path / "store.zarr"
    prepare(world.folder, store, truth=world.folder / "truth")
    places = (tmp_path / "work", tmp_path / "out", CONFIGS, None, Task(members=4), store)
    (cell,) = find_cells(["transformer"], [0], *places)
    short = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=2")
    files = replace(cell, overrides=(*cell.overrides, *short)).compute()
    rows = list(csv.DictReader(files["sizes.csv"].decode().splitlines()))
    assert [row["members"] for row in rows] == ["2"]


def test_a_run_in_a_folder_that_was_moved_is_gone_on_with(done, tmp_path):
    _, work, _ = done
    shutil.copytree(work, tmp_path / "moved")
    store = work / "seed0" / "store.zarr"
    store.rename(tmp_path / "gone")
    try:
        (cell,) = cells(tmp_path / "moved", tmp_path / "out", "raw")
        checkpoint = (cell.run / "checkpoints" / "best.ckpt").stat().st_mtime_ns
        compute_cell(cell)
        assert (cell.run / "checkpoints" / "best.ckpt").stat().st_mtime_ns == checkpoint
    finally:
        (tmp_path / "gone").rename(store)
    assert cell.status() == "complete"


def test_a_cell_that_fails_does_not_stop_the_others(done, monkeypatch, tmp_path, capsys):
    arguments, _, _ = done
    tried = []

    def fails(cell, *_):
        tried.append(cell.model)
        return "a long way\nens10: features: wrong"

    monkeypatch.setattr(running, "start_cell", fails)
    options = [*arguments[:1], "--out", str(tmp_path), *arguments[3:]]
    assert command.main(options) == 1
    assert tried == ["raw", "emos_global"]
    captured = capsys.readouterr()
    assert "raw, seed 0: FAILED: ens10: features: wrong" in captured.out
    assert "Let at least one cell end" in captured.err


def test_a_run_that_was_killed_before_its_provenance_is_made_by_the_same_call(done, tmp_path):
    """Its configuration was there, and cells and demo refused it as no run."""
    _, work, _ = done
    store = work / "seed0" / "store.zarr"
    (cell,) = (
        replace(one, data=store) for one in cells(tmp_path / "work", tmp_path, "emos_global")
    )
    folder = tmp_path / "emos_global"
    makes = {cell.run: cell.fit, folder: lambda: make_run(folder, store, quiet=True)}
    for run, make in makes.items():
        make()
        checkpoint = (run / "checkpoints" / "last.ckpt").stat().st_size
        config = (run / "config.yaml").read_bytes()
        shutil.rmtree(run)
        run.mkdir()
        (run / "config.yaml").write_bytes(config)
        make()
        assert "seconds" in read_provenance(run)
        assert (run / "checkpoints" / "last.ckpt").stat().st_size == checkpoint


def test_a_run_that_was_stopped_leaves_no_mark_on_the_next(done, monkeypatch, tmp_path):
    _, work, _ = done
    stopping = []

    def stops(cell, threads, children):
        stopping.append(children.is_stopping)
        raise Terminated

    monkeypatch.setattr(running, "start_cell", stops)
    for _ in range(2):
        with pytest.raises(Terminated) as ended:
            run_cells(cells(work, tmp_path, "raw"))
        assert ended.value.line == "terminated; the same command resumes"
    assert stopping == [False, False]


def test_a_cell_that_somebody_is_at_is_left_to_them(done, monkeypatch, tmp_path, capsys):
    arguments, work, out = done
    monkeypatch.setattr(running, "start_cell", not_at_all)
    options = [*arguments[:1], "--out", str(tmp_path), *arguments[3:-1]]
    with claim(cells(work, out, "raw")[0].claim):
        assert command.main(options) == 1  # and there is nothing to make a table of
    assert "raw, seed 0: left to process" in capsys.readouterr().out


def test_a_model_without_configuration(tmp_path):
    for name in ("unett", "../configs/unet"):  # the name is that of the run's folder, too
        with pytest.raises(FileError, match=r"\.yaml: no such configuration\. Known: .*unet"):
            find_cells([name], [0], tmp_path, tmp_path, CONFIGS)


def test_a_budget_changes_options_and_has_runs_of_its_own(tmp_path):
    plain, mlp = (
        find_cells(["mlp"], [0], tmp_path, tmp_path, CONFIGS, name)[0]
        for name in (None, "five_minutes")
    )
    assert "--trainer.max_epochs=80" in mlp.overrides
    assert plain.overrides == ()
    assert len({plain.run, mlp.run}) == len({plain.claim, mlp.claim}) == 2
    with pytest.raises(UnknownNameError, match=r"budget: 'five_minute' .*did you mean"):
        load_budget("five_minute")


@pytest.mark.parametrize("budget", sorted(p.stem for p in BUDGETS.glob("*.yaml")))
def test_budgets_are_of_models_and_keys_that_exist(budget):
    for model, options in load_budget(budget).items():
        (cell,) = find_cells([model], [0], BUDGETS, BUDGETS, CONFIGS, budget)
        config = read_config(cell.config)
        for option in options:
            *path, last = option.removeprefix("--").partition("=")[0].split(".")
            held = config
            for key in path:
                held = held[key]
            assert last in held or last.startswith("limit_"), option


def test_tables_clear_what_a_killed_process_left(tmp_path):
    left, other = tmp_path / ".table.md.0a1b2c3d.tmp", tmp_path / ".mine.md.0a1b2c3d.tmp"
    for path in (left, other):
        path.write_text("half")
    write_files(tmp_path, {"table.md": "whole\n"})
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", other.name}


def test_cells_that_an_earlier_version_kept_in_folders_are_not_computed_again(done, tmp_path):
    _, work, out = done
    Results(out).unpack(tmp_path)
    with pytest.raises(FileError, match=r"an earlier version .*results .* --pack"):
        run_cells(cells(work, tmp_path, "raw"))


def test_no_cell_is_of_a_module_that_is_run():
    """Its process unpickles it by that name."""
    for module in walk_packages(studies.__path__, f"{studies.__name__}."):
        if not module.name.endswith("physical_world.simulation"):  # runs where jax is
            import_module(module.name)
    waiting, modules = [Cell], {}
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        modules[kind.__name__] = sys.modules[kind.__module__]
    assert {"ModelCell", "VariantCell", "HeatCell", "TrapCell", "StepCell"} <= set(modules)
    for module in modules.values():
        text = Path(module.__file__).read_text()
        assert "sys.exit(main())" not in text, module.__name__


def test_models_without_an_expected_order_have_no_table_of_comparisons(done):
    _, _, out = done
    with Results(out).temporary_folder() as kept:
        told = write_summary(out, kept, ["raw"], [0], "alone")
        assert "Comparison" not in told
        assert "emos_global against raw" in write_summary(
            out, kept, ["raw", "emos_global"], [0], "two"
        )
