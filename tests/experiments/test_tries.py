"""Tries of the learning rate: chosen by validation, trained once, and kept."""

import csv
import shutil

import pytest
from realruns import compute_here

from ens10.convert import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.trainings import ModelCell
from ens10.experiments.runner.tries import Try, reuse
from ens10.experiments.runs.claims import claim
from ens10.experiments.studies import matrix
from ens10.synthetic import World
from ens10.untrusted import parse_json, read_mapping

FACTORS = (1e-6, 1, 3)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A raw ensemble and an MLP with three learning rates; arguments, folders, cells computed."""
    top = tmp_path_factory.mktemp("tries")
    work, out, computed = top / "work", top / "out", []
    world = World("8x16", range(1998, 2003), 3, seed=0, steps=(48,))
    world.write(top / "world")
    store = top / "store.zarr"
    prepare(world.folder, store, truth=world.folder / "truth")
    arguments = [work, "--out", out, "--seeds", 2, "--store", store, "--models", "raw", "mlp"]
    arguments = [str(a) for a in (*arguments, "--tries", *FACTORS)]

    def compute(cell, *rest):
        computed.append(cell.place)
        return compute_here(cell, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "start_cell", compute)
        assert matrix.main(arguments) == 0
    return arguments, work, out, computed


def losses(out):
    """By factor, of the logs that were kept."""
    found = {}
    for factor in FACTORS:
        text = Results(out).files(f"tries/{factor:g}/seed0/mlp")["log/metrics.csv"].decode()
        rows = csv.DictReader(text.splitlines())
        found[factor] = min(float(row["val_loss"]) for row in rows if row["val_loss"])
    return found


def test_each_network_has_its_tries_and_the_best_trains_every_seed(tuned):
    _, work, out, computed = tuned
    cells = ["seed0/raw", "seed0/mlp", "seed1/mlp"]  # the data are shared, and raw is not random
    assert computed == [f"tries/{f:g}/seed0/mlp" for f in FACTORS] + cells
    best = min(losses(out), key=losses(out).get)
    assert best != FACTORS[0]  # that learns nothing
    for seed in (0, 1):
        run = work / f"seed{seed}" / "plain" / "runs" / "mlp"
        optimizer = read_mapping(run / "config.yaml")["model"]["init_args"]["optimizer"]
        assert optimizer["init_args"]["lr"] == pytest.approx(0.003 * best)


def test_the_chosen_training_is_not_done_again(tuned):
    _, work, out, _ = tuned
    best = min(losses(out), key=losses(out).get)
    tried = work / "seed0" / "plain" / "tries" / f"{best:g}" / "runs" / "mlp"
    final = work / "seed0" / "plain" / "runs" / "mlp"
    stamps = [(run / "checkpoints" / "best.ckpt").stat().st_mtime_ns for run in (tried, final)]
    assert stamps[0] == stamps[1]


def test_the_table_of_tries_has_the_losses_and_the_choice(tuned):
    _, _, out, _ = tuned
    (row,) = [x for x in (out / "tries.md").read_text().splitlines() if x.startswith("| mlp")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    found = losses(out)
    assert cells[2:5] == [f"{found[factor]:.5g}" for factor in FACTORS]
    assert cells[5] == f"{0.003 * min(found, key=found.get):g}"
    assert "| mlp" in (out / "table.md").read_text()


def test_the_table_of_tries_keeps_the_models_of_earlier_commands(tuned):
    arguments, work, out, _ = tuned
    copy = out.with_name("with-another-model")
    shutil.copytree(out, copy)
    path = copy / "tries.md"
    table = path.read_text()
    (mlp,) = [line for line in table.splitlines() if line.startswith("| mlp")]
    path.write_text(table.replace(mlp, f"| unet | 1 | 2 | 3 | 4 | 5 |\n{mlp.replace('0', '9')}"))
    command = [str(work), "--out", str(copy), *arguments[3:]]
    assert matrix.main(command) == 0
    lines = table.splitlines()
    assert path.read_text().splitlines() == [*lines[:2], "| unet | 1 | 2 | 3 | 4 | 5 |", *lines[2:]]
    path.write_text(table.replace("x 3", "x 4"))  # of other factors: not the same columns
    assert matrix.main(command) == 0
    assert path.read_text() == table


def test_the_same_command_computes_nothing_again(tuned, monkeypatch):
    arguments, *_ = tuned
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: pytest.fail(cell.name))
    assert matrix.main(arguments) == 0


def test_tables_alone_tell_what_is_not_kept_and_take_a_model_once(tuned, tmp_path, capsys):
    _, _, out, _ = tuned
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    table = (copy / "table.md").read_text()
    command = [str(tmp_path / "work"), "--out", str(copy), "--seeds", "2", "--tables", "--models"]
    assert matrix.main([*command, "raw", "mlp", "raw", "unet"]) == 0
    told = capsys.readouterr().err
    assert "unet is not in table: no cell of it is kept" in told
    assert "raw in table: cells of 1 of 2 seeds are kept" in told
    assert "mlp" not in told
    rows = [line for line in (copy / "table.md").read_text().splitlines() if "| mlp" in line]
    assert len(rows) == len([line for line in table.splitlines() if "| mlp" in line])
    assert matrix.main([*command, "raw"]) == 0
    assert "the earlier table had rows of mlp, this one has none" in capsys.readouterr().err
    assert matrix.main([*command, "raw", "mlp"]) == 0
    assert "earlier" not in capsys.readouterr().err


@pytest.mark.parametrize("tables", [[], ["--tables"]])
def test_a_wrong_name_fails_before_a_world_is_made(tables, tmp_path, capsys):
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), *tables]
    assert matrix.main([*command, "--models", "raw", "unset"]) == 1
    assert "no such configuration" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_training_is_taken_over_whole_or_not_at_all(tuned, monkeypatch, tmp_path):
    _, work, out, _ = tuned
    best = min(losses(out), key=losses(out).get)
    shutil.copytree(work, tmp_path / "work")
    places = {
        "work": tmp_path / "work",
        "out": tmp_path / "other",
        "data": work.with_name("store.zarr"),
    }
    cell = ModelCell("mlp", 0, config_path("mlp"), **places)
    shutil.rmtree(cell.run)
    chosen = Try(**vars(cell), factor=best)

    def killed(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ModelCell, "write_start_key", killed)
        with pytest.raises(KeyboardInterrupt):
            reuse(chosen, cell)
    assert not cell.run.exists()  # without its key it would count as an earlier training
    with claim(cell.claim):  # another process computes the cell
        reuse(chosen, cell)
        assert not cell.run.exists()
    reuse(chosen, cell)
    assert (cell.run / "checkpoints" / "best.ckpt").exists()


def test_a_failed_try_is_not_chosen(tuned, monkeypatch, tmp_path, capsys):
    arguments, work, out, _ = tuned
    best = min(losses(out), key=losses(out).get)
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    results = Results(copy)
    place = f"tries/{best:g}/seed0/mlp"
    files, key = results.files(place), results.key(place)
    assert parse_json(files["loss.json"])["val_loss"] == losses(out)[best]
    results.add(place, files, {**key, "config": "another"})  # of other settings: it does not count
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: f"ens10: {cell.name} failed")
    command = [str(work), "--out", str(copy), *arguments[3:]]
    assert matrix.main([*command, "--keep-older"]) == 0  # there it does
    (row,) = [x for x in (copy / "tries.md").read_text().splitlines() if x.startswith("| mlp")]
    assert row.split("|")[6].strip() == f"{0.003 * best:g}"
    assert matrix.main(command) == 1
    told = capsys.readouterr()
    assert "mlp, seed 0 (clean, t2m, 10 members) is not in the table" in told.err
    assert "| mlp" not in (copy / "table.md").read_text()
    (row,) = [x for x in (copy / "tries.md").read_text().splitlines() if x.startswith("| mlp")]
    assert row.split("|")[3 + FACTORS.index(best)].strip() == "–"
    assert row.split("|")[6].strip() != f"{0.003 * best:g}"


def test_a_network_waits_for_a_try_that_another_process_is_at(tuned, monkeypatch, tmp_path, capsys):
    arguments, work, out, _ = tuned
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    results = Results(copy)
    best = min(losses(out), key=losses(out).get)
    place = f"tries/{best:g}/seed0/mlp"
    files, key = results.files(place), results.key(place)
    results.add(place, files, {**key, "config": "another"})  # to be computed again
    computed = []
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: computed.append(cell.name))
    with claim(work / "seed0" / "plain" / "tries" / f"{best:g}" / "claims" / "mlp"):
        assert matrix.main([str(work), "--out", str(copy), *arguments[3:]]) == 0
    assert computed == []
    told = capsys.readouterr().err
    for seed in (0, 1):
        assert f"mlp, seed {seed} (clean, t2m, 10 members) is not in the table: mlp, seed 0" in told
    assert f"learning rate x {best:g} is left to process" in told
    assert "| mlp" not in (copy / "table.md").read_text()


def test_a_failed_try_is_told_by_the_exit_status_even_if_all_cells_are_there(tuned, monkeypatch):
    arguments, work, out, _ = tuned
    copy = out.with_name("without-a-try")
    shutil.copytree(out, copy)
    results = Results(copy)
    place = f"tries/{FACTORS[0]:g}/seed0/mlp"  # was not chosen
    files, key = results.files(place), results.key(place)
    results.add(place, files, {**key, "config": "another"})
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: f"ens10: {cell.name} failed")
    assert matrix.main([str(work), "--out", str(copy), *arguments[3:]]) == 1


def test_the_table_of_trainings_on_the_same_data_counts_what_has_no_network_once(tuned):
    _, _, out, _ = tuned
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [row["model"] + row["seed"] for row in rows] == ["raw0", "mlp0", "mlp1"]
    raw, *trained = (float(row["crps"]) for row in rows)
    found = [float(row["crpss"]) for row in rows[1:]]
    assert found == pytest.approx([1 - crps / raw for crps in trained], abs=1e-5)  # six digits
    text = (out / "table.md").read_text()
    head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    assert "CRPS skill (%)" in head
    assert "Attained" not in text
    (mlp,) = [line.split("|") for line in lines if line.startswith("| mlp")]
    assert float(mlp[5]) == pytest.approx(100 * sum(found) / 2, abs=0.06)
    assert mlp[6].strip() == f"{100 * min(found):.1f} to {100 * max(found):.1f}"


@pytest.mark.parametrize("wrong", ["0", "inf", "fast"])
def test_a_factor_is_a_positive_number(tmp_path, wrong, capsys):
    with pytest.raises(SystemExit, match="2"):
        matrix.main([str(tmp_path / "w"), "--out", str(tmp_path / "o"), "--tries", wrong])
    assert f"--tries: {wrong!r} is not a finite number above 0" in capsys.readouterr().err
