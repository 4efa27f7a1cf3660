"""What holds for every test, and the worlds, stores and runs that tests share."""

import fcntl
import gc
import hashlib
import os
import shutil
import signal
import socket
import sys

import long_tests
import pytest

_LOOPBACK = ("127.", "::1", "localhost")

# One thread in each process of tests and in those that they start, set before torch is loaded:
# with as many threads as cores in each of them, they wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files of a few tests of many minutes, which would otherwise be the last, in one process alone.
_FIRST = ("tests/packaging/", "tests/test_notebooks.py", "tests/reliability/", "tests/experiments/")


def _place(item):
    """Where a test's file begins among the others."""
    return next((n for n, start in enumerate(_FIRST) if item.nodeid.startswith(start)), len(_FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from modules and tests, which stay: it would walk all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks tests as slow, skips those of minutes, and puts the longest files first."""
    names = set(long_tests.names())
    for item in items:
        is_long = "long" in item.keywords
        if is_long or item.nodeid.partition("[")[0] in names:
            item.add_marker("slow")
        if is_long and "ENS10_LONG_TESTS" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="minutes: make test-variations"))
    items.sort(key=_place)


@pytest.fixture(autouse=True, scope="session")
def _records_elsewhere(tmp_path_factory):
    """Keeps the record of runs that tests make out of the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """A shell ignores Ctrl-C in what it starts in the background, and the tests inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _no_waits_for_the_disk():
    """Leaves out `fsync`, which matters after a loss of power alone; `fstat` takes the same files.

    A `prepare` has many; tests of the order of operations put their own in place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A function that returns a folder which one process of the tests fills, once for all of them.

    `shared(name, fill)` calls `fill(folder)` if nobody has; no test may write there afterwards.
    """
    top = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent
    top /= "shared"
    top.mkdir(exist_ok=True)

    def folder(name, fill):
        path, done = top / name, top / f"{name}.done"
        with (top / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                fill(path)
                done.touch()
        return path

    return folder


def modification_times(folder):
    """Modification time of each file of a folder."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def prepared(shared):
    """A function that returns a folder with `world/` and its `store.zarr`: prepared(*of_world).

    A test that writes there makes others fail now and then, so none may, not even for a moment.
    """
    before = {}

    def folder(*arguments, **options):
        from ens10.convert import prepare
        from ens10.synthetic import World

        def fill(path):
            World(*arguments, **options).write(path / "world")
            prepare(path / "world", path / "store.zarr", truth=path / "world" / "truth")

        key = repr((arguments, sorted(options.items())))
        made = shared(f"world-{hashlib.sha256(key.encode()).hexdigest()[:12]}", fill)
        before.setdefault(made, modification_times(made))
        return made

    yield folder
    changes = [times.items() ^ modification_times(made).items() for made, times in before.items()]
    changed = sorted({path for change in changes for path, _ in change})
    assert not changed, f"a test has written to shared data: {changed}"


@pytest.fixture
def calls_of():
    """A function that runs another and counts the calls it makes: a measure without a clock."""

    def count(function):
        calls = 0

        def note(frame, event, arg):
            nonlocal calls
            calls += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            function()
        finally:
            sys.setprofile(before)
        return calls

    return count


@pytest.fixture(autouse=True)
def _no_network(request, monkeypatch):
    """Refuses connections to other machines; only the slow tests, which install, may make them."""
    if "slow" in request.keywords:
        return
    connect = socket.socket.connect

    def local_only(self, address):
        remote = self.family != socket.AF_UNIX and not str(address[0]).startswith(_LOOPBACK)
        if remote:
            raise OSError(f"no network in tests: {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
