"""The run at the true size: memory is that of all processes; it goes on where it stopped."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ens10.errors import FileError
from ens10.experiments.full_size import __main__ as command
from ens10.experiments.full_size import clock, log, rates
from ens10.experiments.full_size.stations import MODELS, Place
from ens10.experiments.full_size.watch import TooMuchMemoryError, Usage, processes, watched
from ens10.experiments.full_size.world import write, year

MB = 1_000_000
HOLD = "import time; held = bytearray({size}); time.sleep({seconds})"
FORK = """
import os, time
held = bytearray({size})
if os.fork() == 0:
    time.sleep(0.5)
    os._exit(0)
os.wait()
"""


def python(code, tmp_path, most=1e9, **more):
    command = [sys.executable, "-S", "-c", code]
    return watched(command, tmp_path / "out.txt", most, every=0.02, **more)


def test_memory_of_a_child_of_the_command_counts(tmp_path):
    inner = HOLD.format(size=150 * MB, seconds=0.5)
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}])"
    usage = python(code, tmp_path)
    assert usage.largest < usage.own + 20 * MB
    assert 150 * MB < usage.own < 190 * MB
    assert usage.own <= usage.resident < 220 * MB
    assert usage.largest > 150 * MB
    assert 0.5 < usage.seconds < 30
    assert 0 < usage.cpu_seconds < 5


def test_memory_that_two_share_counts_once(tmp_path):
    assert python(FORK.format(size=100 * MB), tmp_path).own < 150 * MB


def test_too_much_memory_stops_all_processes(tmp_path):
    inner = HOLD.format(size=100 * MB, seconds=60)
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}])"
    with pytest.raises(TooMuchMemoryError, match=r"held 0\.\d\d GB, more than 0\.05 GB"):
        python(code, tmp_path, most=50 * MB)


def test_a_command_that_fails_is_told_by_its_last_lines(tmp_path):
    with pytest.raises(FileError, match="exit status 3") as told:
        python("print('on its way'); raise SystemExit(3)", tmp_path)
    assert "on its way" in str(told.value)
    assert list(processes(-1)) == []


def test_one_core_is_one_core(tmp_path):
    python("import os; print(len(os.sched_getaffinity(0)))", tmp_path, cores=1)
    assert (tmp_path / "out.txt").read_text().split() == ["1"]


def test_a_year_from_april_to_march():
    world = year("6x8")
    starts = [start for day in world.month_days for start in world._starts(day)]
    valid = np.array(sorted(starts), "M8[D]") + 2
    assert len(valid) == 105
    years, counts = np.unique(valid.astype("M8[Y]").astype(str), return_counts=True)
    assert dict(zip(years, counts, strict=True)) == {"1998": 78, "1999": 27}
    assert np.diff(valid).astype(int).max() <= 4  # no gap but those between the start dates
    assert "1999-01-03" in valid.astype(str)  # the event of the case study


@pytest.mark.slow
def test_several_processes_write_what_one_writes(tmp_path):
    year("6x8", 6).write(tmp_path / "one")
    write(year("6x8", 6), tmp_path / "two", 2)
    names = {p.relative_to(tmp_path / "two") for p in (tmp_path / "two").rglob("*") if p.is_file()}
    assert len(names) == 8
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.fixture
def done(monkeypatch, tmp_path):
    """Names of the stations that are done; nothing is run."""
    found = []

    def note(words, output, most, environment, cores):
        assert environment["OMP_NUM_THREADS"] == str(cores) == "2"
        if output.stem in failing:
            raise TooMuchMemoryError(output, "held 13.00 GB, more than 12 GB")
        found.append(output.stem)
        return Usage(90.0, 60.0, 2 * 10**9, 10**9, 10**9, 1.5)

    failing = set()
    monkeypatch.setattr(command, "watched", note)
    monkeypatch.setattr(command, "write_rates", lambda *_: found.append("rates"))
    facts = {"gigabytes": 0.5}
    monkeypatch.setattr("ens10.experiments.full_size.stations._disk", lambda _: facts)
    for name in ("_trained", "_scored"):
        monkeypatch.setattr(f"ens10.experiments.full_size.stations.{name}", lambda _: {})

    def start():
        found.clear()
        return command.main([str(tmp_path / "work"), "--out", str(tmp_path / "out")])

    return SimpleNamespace(start=start, names=found, failing=failing, out=tmp_path / "out")


def test_it_goes_on_after_the_stations_in_the_log(done, capsys):
    done.failing.add("unet-fit")
    assert done.start() == 1
    assert "held 13.00 GB, more than 12 GB" in capsys.readouterr().err
    before = list(done.names)
    assert before == ["synth", "prepare", "verify", "free", "raw-fit", "raw-predict", "raw-score"]
    done.failing.clear()
    assert done.start() == 0
    assert done.names[0] == "unet-fit"
    assert done.names[-2:] == ["case", "rates"]
    assert len(before) + len(done.names) - 1 == 4 + 3 * len(MODELS) + 2
    assert done.start() == 0
    assert done.names == ["rates"]
    text = (done.out / log.TABLE).read_text()
    assert "361x720 points, 10 members, 105 start dates of one year, 11 variables" in text
    assert "| unet: fit | one epoch | 90.0 s | 60.0 s | 1.5 | 2.00 GB | 1.00 GB |  |" in text
    assert "Together 22.5 min; the most memory at any time was 2.00 GB." in text
    kept = json.loads((done.out / log.FILE).read_text())
    assert kept["machine"]["cores_used"] <= 2
    assert str(done.out.parent) not in json.dumps(kept)


def test_commands_are_of_the_true_size(tmp_path):
    stations = {one.name: one for one in Place(tmp_path).stations(2)}
    assert (
        "--model.init_args.network.init_args.grid=[361,720]" in stations["smoe_unet: fit"].command
    )
    assert not any("grid" in word for word in stations["unet: fit"].command)
    assert len({one.name for one in stations.values()}) == 15


def test_the_clock_leaves_the_first_step_out(tmp_path, monkeypatch):
    times = iter([10.0, 13.0, 17.0])
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(times))
    monkeypatch.setattr(clock.time, "process_time", lambda: 1.0)
    one = clock.StepClock()
    for count in (4, 4, 2):
        one.on_train_batch_end(None, None, None, {"target": [0] * count}, 0)
    one.on_train_epoch_end(SimpleNamespace(default_root_dir=tmp_path), None)
    found = json.loads((tmp_path / clock.FILE).read_text())
    assert found == {"steps": 2, "samples": 6, "seconds": 7.0, "cpu_seconds": 0.0}


def test_rates_are_seconds_of_one(tmp_path):
    stations = {
        "prepare": {"cpu_seconds": 23.1},
        "unet: score": {"cpu_seconds": 13.0, "dates": 26.0},
        "unet: fit": {"own_gb": 5.3},
    }
    about = {"grid": "361x720", "dates": 105, "members": 10, "variables": 11}
    machine = {"processor": "some", "cores": 2}
    models = {"unet": {"memory_gb": 4.5}}
    found = rates.rates_of({**about, "machine": machine, "stations": stations}, models, 0.02)
    assert (found["prepare"], found["score"], found["climate"]) == (0.002, 0.5, 0.02)
    assert found["reading_gb"] == 0.8
    assert found["grid"] == [361, 720]
    assert found["machine"] == "some (2 cores)"


@pytest.mark.slow
def test_the_climate_of_more_points_takes_longer():
    few, many = rates.climate_seconds((10, 10)), rates.climate_seconds((100, 100))
    assert 30 < many / few < 300
