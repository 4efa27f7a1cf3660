"""ecCodes in a process of its own: what happens when that process dies, hangs or needs too much."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from packedmessages import SHAPE, message
from waiting import wait_until

from ens10.catalog import variable
from ens10.cli import main
from ens10.errors import DamagedFileError, FileError
from ens10.grib import Encoder, LatLonGrid, codec, decode, header, isolated, scan, sections
from ens10.grib.isolated import EccodesError, keys_of, values_of

FIELD = np.arange(40.0).reshape(SHAPE)
RAW = message(FIELD, 2, {"packingType": "grid_ccsds"})
PATH = Path("a.grib")


@pytest.fixture(autouse=True)
def _own_workers(monkeypatch):
    """Each test begins and ends without workers."""
    held = []
    monkeypatch.setattr(isolated, "_idle", held)
    monkeypatch.setattr(header, "_headers", {})
    yield
    while held:
        held.pop().end()


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Puts a script in the place of the worker's."""

    def put(code):
        script = tmp_path / "worker.py"
        script.write_text(
            "import os, signal, sys, time\nfrom multiprocessing.connection import Connection\n"
            f"connection = Connection(int(sys.argv[1]))\nconnection.recv_bytes()\n{code}\n"
        )
        monkeypatch.setattr(isolated, "_SCRIPT", script)

    return put


@pytest.fixture
def indexed(tmp_path):
    """A file of two messages and its index."""
    path = tmp_path / "some.grib"
    path.write_bytes(RAW * 2)
    return scan(path)


def test_one_process_answers_all(indexed):
    values, packing = values_of(PATH, RAW, 40)
    np.testing.assert_allclose(values.reshape(SHAPE), FIELD, atol=1e-3)
    assert packing[3] == 16
    assert keys_of(PATH, RAW)["packingType"] == "grid_ccsds"
    (kept,) = isolated._idle
    with indexed[0].path.open("rb") as file:
        decode(indexed[1], file)
    assert isolated._idle == [kept]


@pytest.mark.parametrize(
    "name",
    [
        "SIGABRT",
        "SIGSEGV",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGBUS", "SIGFPE")),
    ],
)
def test_a_message_that_ends_eccodes(indexed, worker, name):
    isolated._idle.pop().end()
    worker(f"os.kill(os.getpid(), signal.{name})")
    with indexed[1].path.open("rb") as file, pytest.raises(DamagedFileError) as caught:
        decode(indexed[1], file)
    words = (
        f"some.grib: damaged at byte {len(RAW)}: cannot unpack (ecCodes ended on it with {name})"
    )
    assert words in str(caught.value)
    assert not isolated._idle


def test_the_command_line_says_it_in_one_line(indexed, worker, capsys, tmp_path):
    isolated._idle.pop().end()
    header._headers.clear()
    worker("os.abort()")
    path = indexed[0].path
    assert main(["prepare", str(path), str(tmp_path / "s.zarr")]) == 1
    told = capsys.readouterr().err
    assert f"{path}: damaged at byte 0: " in told
    assert "SIGABRT" in told
    assert main(["inspect", str(path)]) == 1
    assert "SIGABRT" in capsys.readouterr().out


def test_a_process_that_somebody_else_ends_is_no_damage(indexed, worker):
    isolated._idle.pop().end()
    worker("os.kill(os.getpid(), signal.SIGKILL)")
    with indexed[1].path.open("rb") as file, pytest.raises(FileError) as caught:
        decode(indexed[1], file)
    assert "some.grib: the process that reads its messages ended with SIGKILL" in str(caught.value)
    assert not isinstance(caught.value, DamagedFileError)
    worker("sys.exit(3)")
    with pytest.raises(FileError, match="ended with status 3"):
        keys_of(PATH, RAW)


def test_one_that_was_ended_while_nobody_asked_is_replaced():
    values_of(PATH, RAW, 40)
    (kept,) = isolated._idle
    os.kill(kept._process.pid, signal.SIGKILL)
    kept._process.wait()
    assert values_of(PATH, RAW, 40)[0].size == 40
    assert isolated._idle != [kept]


def test_ctrl_c_while_an_answer_is_read(monkeypatch):
    """The next request must not get the answer that nobody read."""
    values_of(PATH, RAW, 40)
    (kept,) = isolated._idle

    def interrupted(self, size):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(isolated._Worker, "values", interrupted)
        with pytest.raises(KeyboardInterrupt):
            values_of(PATH, RAW, 40)
    assert not kept.is_alive
    assert keys_of(PATH, RAW)["Ni"] == 8


def test_threads_at_once():
    raws = [message(FIELD + 100 * n, 2, {"packingType": "grid_ccsds"}) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda raw: values_of(PATH, raw, 40)[0].mean(), raws * 5))
    np.testing.assert_allclose(found, [FIELD.mean() + 100 * n for n in range(4)] * 5, atol=1e-2)
    assert 1 <= len(isolated._idle) <= 4


def test_a_message_that_eccodes_reads_without_end(monkeypatch, worker):
    monkeypatch.setattr(isolated, "_TIMEOUT", 0.1)
    worker("time.sleep(1000)")
    with pytest.raises(EccodesError, match=r"more than 0\.1 s"):
        keys_of(PATH, RAW)
    assert not isolated._idle


def test_memory_of_a_message_is_limited(monkeypatch):
    many = 1 << 22
    values_of(PATH, constant(many), many)
    monkeypatch.setattr(isolated, "_BASE_MEMORY", 1 << 20)
    monkeypatch.setattr(isolated, "_MEMORY_FACTOR", 0)
    with pytest.raises((EccodesError, FileError)):
        values_of(PATH, constant(many), many)


def constant(points):
    """A message of few bytes and many points."""
    raw = bytearray(message(np.full(SHAPE, 4.0), 2))
    framed = sections.RawMessage(PATH, bytes(raw), 0, len(raw), 2)
    grid, packing = (sections.sections(framed)[n][0] for n in (3, 5))
    for place, number in ((6, points), (30, points), (34, 1)):
        raw[grid + place : grid + place + 4] = number.to_bytes(4, "big")
    raw[packing + 5 : packing + 9] = points.to_bytes(4, "big")
    return bytes(raw)


# Octets of an sst message in which some releases of ecCodes abort on a flipped bit.
ABORTING = (9, 61, 62, 63, 64)


@pytest.mark.parametrize("checked", [True, False])
def test_flips_on_which_eccodes_aborts(checked, tmp_path, monkeypatch):
    """The header's check refuses them; without it, the process ends that is there for that."""
    values = np.where(np.arange(2048) % 64 < 20, np.nan, 280.0 + np.arange(2048)).reshape(32, 64)
    grid = LatLonGrid(32, 64, 80.0, -80.0, 0.0, 5.625)
    whole = Encoder(grid).message(values, variable("sst"), date=20160101, step=24, number=1)
    path, told = tmp_path / "sst.grib", []
    path.write_bytes(whole)
    (index,) = scan(path)
    if not checked:
        monkeypatch.setattr(codec, "sections", lambda _: {})
    for octet in ABORTING:
        for bit in range(8):
            raw = bytearray(whole)
            raw[octet] ^= 1 << bit
            path.write_bytes(raw)
            with path.open("rb") as file:
                try:
                    decode(index, file)
                except DamagedFileError as error:
                    told.append(str(error))
    assert len(told) > 20
    assert all("sst.grib: damaged at byte 0: " in line for line in told)
    assert not checked or not [line for line in told if "ended" in line]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_does_not_use_the_process_of_its_parent():
    values_of(PATH, RAW, 40)
    (kept,) = isolated._idle
    child = os.fork()
    if not child:
        try:
            held = list(isolated._idle)
            values_of(PATH, RAW, 40)
            alone = not held and isolated._idle[0]._process.pid != kept._process.pid
            isolated._end_all()
            os._exit(0 if alone else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert isolated._idle == [kept]
    assert values_of(PATH, RAW, 40)[0].size == 40


_DIES = """
import os, sys
from pathlib import Path
from ens10.grib import isolated
isolated.keys_of(Path("a.grib"), Path(sys.argv[1]).read_bytes())
print(isolated._idle[0]._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_the_process_that_started_it(tmp_path):
    path = tmp_path / "a.grib"
    path.write_bytes(RAW)
    command = [sys.executable, "-c", _DIES, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    about = Path(f"/proc/{int(done.stdout)}/cmdline")
    wait_until(lambda: not about.exists() or b"eccodesworker" not in about.read_bytes())


def test_it_is_replaced_when_it_keeps_much_memory(monkeypatch):
    values_of(PATH, RAW, 40)
    (kept,) = isolated._idle
    request = isolated._Worker.request

    def full(self, *given):
        answer = request(self, *given)
        self.is_full = True
        return answer

    monkeypatch.setattr(isolated._Worker, "request", full)
    assert values_of(PATH, RAW, 40)[0].size == 40
    assert not isolated._idle
    assert not kept.is_alive


def test_what_eccodes_prints_does_not_reach_the_user(tmp_path):
    path = tmp_path / "a.grib"
    raw = bytearray(RAW)
    raw[16 + 21 + 72 + 8] = 99  # the product template, of which ecCodes prints several lines
    path.write_bytes(raw)
    code = "import sys; from ens10.cli import main; sys.exit(main(['inspect', sys.argv[1]]))"
    command = [sys.executable, "-W", "error", "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "a.grib: the message at byte 0 has no paramId" in done.stdout
