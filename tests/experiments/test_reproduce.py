"""`ens10 reproduce`: what it asks for, which cells, and that one that fails stops no other."""

import shutil

import pytest
from realruns import compute_here

from ens10.cli import main
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.reproduce import command
from ens10.experiments.reproduce.command import MODELS, Request, find_all
from ens10.experiments.runner import running
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.tasks import Task, WorldSize
from ens10.experiments.runs import claims
from ens10.experiments.runs.claims import claim

TINY = ["--grid", "6x8", "--years", "5", "--dates", "3"]


@pytest.fixture
def asked(monkeypatch):
    """What the command line asks for; nothing is done."""
    found = []

    def note(request, **rest):
        found.append((request, rest))
        return 0

    monkeypatch.setattr(command, "reproduce", note)

    def ask(*words):
        assert main(["reproduce", *map(str, words)]) == 0
        return found[-1]

    return ask


def test_the_paper_in_full_is_the_default(asked, tmp_path):
    request, rest = asked("--out", tmp_path)
    assert (request.seeds, request.store, request.budget) == (3, None, None)
    assert request.rows == MODELS["clean"]
    assert request.work == tmp_path / "work"
    assert request.size == WorldSize()
    sizes = [(target, n) for target in ("z500", "t850", "t2m") for n in (5, 10)]
    assert request.tasks == [Task("clean", *pair) for pair in sizes]
    assert rest == {"workers": 1, "threads": 1, "older": False, "tables": False}


def test_all_options_reach_the_work(asked, tmp_path):
    words = ["--protocol", "paper", "--targets", "t2m", "--members", 10, 5, "--seeds", 1]
    words += ["--models", "raw", "lenet", "raw", "--budget", "five_minutes", "--work", tmp_path]
    words += ["--workers", 2, "--threads", 3, "--keep-older"]
    request, rest = asked(*words, *TINY)
    assert request.tasks == [Task("paper", "t2m", 5), Task("paper", "t2m", 10)]
    assert request.rows == ("raw", "lenet")
    assert (request.seeds, request.budget, request.work) == (1, "five_minutes", tmp_path)
    assert (request.size.grid, len(request.size.years), request.size.dates) == ("6x8", 5, 3)
    assert rest == {"workers": 2, "threads": 3, "older": True, "tables": False}
    request, _ = asked("--store", "mine.zarr", "--protocol", "paper")
    assert (str(request.store), request.rows) == ("mine.zarr", MODELS["paper"])


def test_what_cannot_be_is_told_in_one_line(tmp_path, capsys):
    def says(*words):
        assert main(["reproduce", "--out", str(tmp_path), *words]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "--grid: is of synthetic worlds" in says("--store", "s.zarr", "--grid", "6x8")
    assert "no such store" in says("--store", str(tmp_path / "s.zarr"))
    assert "unett.yaml: no such configuration" in says("--models", "unett")
    assert "did you mean" in says("--budget", "five_minute")
    assert "not a store of ens10" in says("--store", str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_results_that_are_a_file(tmp_path, capsys):
    file = tmp_path / "results"
    file.write_text("mine")
    assert main(["reproduce", "--out", str(file), *TINY]) == 1
    assert "results: is no folder" in capsys.readouterr().err
    assert main(["reproduce", "--plan", str(tmp_path), "--models", "raw", "--targets", "t2m"]) == 1
    assert "is a folder. Give the name of a file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--workers", "--threads", "--years", "--dates"])
def test_none_of_what_there_has_to_be_one_of(asked, tmp_path, option, capsys):
    with pytest.raises(SystemExit):
        asked("--out", tmp_path, option, "0")
    assert f"{option}: '0' is not a whole number of at least 1" in capsys.readouterr().err


def test_one_target_has_one_name(asked, tmp_path):
    words = ["--out", tmp_path, "--members", 10, "--targets"]
    request, _ = asked(*words, "2t", "t_850", "t850", "t2m", "msl")
    assert [task.target for task in request.tasks] == ["t2m", "t850", "msl"]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"protocol": "papers"}, UnknownNameError),
        ({"seeds": 0}, ArgumentError),
        ({"members": (1,)}, ArgumentError),
        ({"targets": ()}, ArgumentError),
        ({"models": ("raw", "heat")}, FileError),
    ],
)
def test_requests_that_cannot_be(tmp_path, changed, error):
    with pytest.raises(error):
        Request(tmp_path, tmp_path, **changed)


def test_a_world_that_somebody_is_making_is_waited_for(tmp_path, monkeypatch):
    waits = []

    def somebody_ends(seconds):
        waits.append(seconds)
        (tmp_path / "seed0" / "store.zarr").mkdir()

    monkeypatch.setattr(claims.time, "sleep", somebody_ends)
    request = Request(tmp_path, tmp_path, models=("raw",), seeds=1)
    with claim(tmp_path / "seed0" / "store.claim"):
        cells, refused = find_all(request)  # the store holds nothing, which is told
    assert waits == [claims.HEARTBEAT]
    assert not cells
    assert list(refused) == ["raw (clean, t2m, 10 members)"]


def test_an_accident_stops_no_other_cell(capsys):
    class Broken:
        name = "broken"

        def status(self):
            raise OSError("no space left")

    class Done:
        name = "done"

        def status(self):
            return "complete"

    work = running.Work([Broken(), Done()])
    work.do_all()
    assert work.errors == {"broken": "OSError: no space left"}
    told = capsys.readouterr().out
    assert "broken: FAILED: OSError: no space left (1 of 2)" in told
    assert "done: complete (2 of 2)" in told


def test_a_cell_that_was_done_meanwhile_is_not_done_again(tmp_path, monkeypatch, capsys):
    class Waiting:
        name, claim = "raw", tmp_path / "claim"
        looks = iter(["missing", "complete"])

        def status(self):
            return next(self.looks)

    def not_at_all(cell, *_):
        raise AssertionError("done again")

    monkeypatch.setattr(running, "start_cell", not_at_all)
    work = running.Work([Waiting()])
    work.do_all()
    assert not work.errors
    assert "raw: complete (1 of 1)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_command_on_a_tiny_world_and_again(tmp_path, monkeypatch, capsys):
    def start(cell, *_):
        return "a long way\nens10: out of memory" if cell.model == "lenet" else compute_here(cell)

    monkeypatch.setattr(running, "start_cell", start)
    out = tmp_path / "out"
    words = ["reproduce", "--targets", "z500", "t2m", "--seeds", "1", *TINY, "--out", str(out)]
    words += ["--models", "raw", "lenet", "emos_global", "groenquist_paper", "--members", "10"]
    assert main(words) == 1  # of four models one fails, and one needs other inputs
    first = capsys.readouterr()
    assert "lenet, seed 0 (clean, z500, 10 members): FAILED: ens10: out of memory" in first.out
    assert "groenquist_paper (clean, t2m, 10 members): left out" in first.err
    table = (out / "reproduce-clean.md").read_text()
    assert table in first.out
    assert "| emos\\_global |" in table
    assert "| optimum |" in table
    assert "EECRPS" in table
    assert "Missing: lenet, seed 0" in table
    again = [word for word in words if word not in ("lenet", "groenquist_paper")]
    shutil.rmtree(out / "work" / "seed0" / "plain")  # kept cells count without their runs
    monkeypatch.setattr(running, "start_cell", lambda cell, *_: f"{cell.name} again")
    left = out / ".reproduce-clean.md.0a1b2c3d.tmp"  # of a process killed while it wrote the table
    left.write_text("half")
    assert main(again) == 0
    assert not left.exists()
    assert capsys.readouterr().out.count(": complete (") == 4
    assert "optimum" in (out / "reproduce-clean.md").read_text()
    results, place = Results(out), "seed0/emos_global"
    results.add(place, results.files(place), {**results.key(place), "data": "x"})
    assert main(again) == 1  # it is of other data now, and cannot be done again
    shown = (out / "reproduce-clean.csv").read_text()
    assert "t2m,10,raw" in shown
    assert "t2m,10,emos_global" not in shown
    assert main([*again, "--tables"]) == 0  # of all that is kept, without data
    assert "t2m,10,emos_global" in (out / "reproduce-clean.csv").read_text()
