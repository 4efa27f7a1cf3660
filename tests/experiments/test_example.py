"""The example of the notebooks is made once, and gives way to a store of one's own."""

import threading
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import ens10
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments import demo, example
from ens10.experiments.example import command, example_runs, example_store, figure_style


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with the example, of few dates."""
    folder = tmp_path_factory.mktemp("example") / "work"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(example.STORE, raising=False)
        patch.setattr(example, "_GRID", "8x16")
        patch.setattr(example, "_YEARS", range(2000, 2004))
        patch.setattr(example, "_DATES", 3)
        example_store(folder)
    return folder


@pytest.fixture(autouse=True)
def _no_store(monkeypatch):
    monkeypatch.delenv(example.STORE, raising=False)


def test_the_store_is_whole_and_made_once(work, monkeypatch):
    store = example_store(work)
    assert sorted(path.name for path in store.parent.iterdir()) == ["store.zarr", "world"]
    forecasts = ens10.open_store(store, "sfc")
    assert forecasts["t2m"].sizes["number"] == 10
    assert forecasts["step"].values.tolist() == [0, 24, 48]
    assert ens10.open_store(store, "truth")["t2m"].sizes["time"] == 12
    assert ens10.open_store(store, "climate")["t2m"].sizes["quantile"] == 101
    monkeypatch.setattr(example, "prepare", lambda *a, **k: pytest.fail("made again"))
    assert example_store(work) == store


def test_runs_are_made_once_and_in_the_order_asked_for(work, monkeypatch, capsys):
    runs = example_runs("emos_global", "optimum", "raw", work=work)
    assert list(runs) == ["emos_global", "optimum", "raw"]
    assert all((run / "scores.csv").is_file() for run in runs.values())
    assert capsys.readouterr().out.count(" in ") == 3
    monkeypatch.setattr(demo, "make_run", lambda *a, **k: pytest.fail("made again"))
    assert example_runs("raw", work=work) == {"raw": runs["raw"]}
    assert capsys.readouterr().out == ""


def test_a_store_of_ones_own_takes_its_place(work, tmp_path, monkeypatch):
    own = example_store(work)
    monkeypatch.setenv(example.STORE, str(own))
    assert example_store(tmp_path) == own
    runs = example_runs("raw", "optimum", work=tmp_path)
    assert list(runs) == ["raw"]
    assert runs["raw"].parent.name.startswith("runs-store-")
    assert not (tmp_path / "example").exists()


def test_a_store_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(example.STORE, str(tmp_path / "none"))
    with pytest.raises(FileError, match="ENS10_STORE"):
        example_store(tmp_path)


def test_what_was_interrupted_leaves_nothing_that_looks_whole(work, tmp_path, monkeypatch):
    def stop(source, store, **options):
        store.mkdir()
        raise KeyboardInterrupt

    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "world").symlink_to(work / "example" / "world")
    monkeypatch.setattr(example, "prepare", stop)
    with pytest.raises(KeyboardInterrupt):
        example_store(tmp_path)
    assert not (tmp_path / "example" / "store.zarr").exists()


def test_another_that_was_faster_is_taken(tmp_path):
    path, begun = tmp_path / "made", threading.Event()

    def theirs(partial):
        begun.set()
        time.sleep(1)
        partial.mkdir()
        (partial / "theirs").touch()

    other = threading.Thread(target=example._make_once, args=(path, theirs, "thing"))
    other.start()
    begun.wait(60)
    example._make_once(path, Path.mkdir, "thing")
    other.join(60)
    assert [part.name for part in tmp_path.iterdir()] == ["made"]
    assert (path / "theirs").exists()


def test_an_unknown_model_is_refused(work):
    with pytest.raises(UnknownNameError, match="emos_local"):
        example_runs("emos_lokal", work=work)


def test_a_command_that_fails_stops(tmp_path, capsys):
    command("info")
    assert "ENS-10" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match=r"ens10 inspect .*exit status 1"):
        command("inspect", tmp_path / "none")
    with pytest.raises(ArgumentError, match="exit status 2"):
        command("inspekt")
    assert "inspect" in capsys.readouterr().err


def test_figures_look_alike():
    with plt.rc_context():
        figure_style()
        assert plt.rcParams["axes.prop_cycle"].by_key()["color"][0] == "#0072B2"
        assert not plt.rcParams["axes.spines.top"]
