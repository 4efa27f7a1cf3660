"""A signal at every operation of the loader, and in what Python calls when it frees an object."""

import contextlib
import gc
import inspect
import signal
import sys
import weakref

import pytest
from batchtools import copied, readers
from waiting import wait_until

from ens10 import signals
from ens10.loader import Batches, buffers
from ens10.loader import batches as batches_module
from ens10.loader.buffers import BlockPool, read_ahead
from ens10.signals import Terminated, stoppable

TERM = signal.SIGTERM
WATCHED = {buffers.__file__, batches_module.__file__, contextlib.__file__}


class SignalAt:
    """Sends this process SIGTERM before the n-th line or call of the loader in this thread."""

    def __init__(self, n):
        self.n, self.count = n, 0

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in WATCHED:
            return None
        # Python looks for signals neither where a generator goes on nor where it is closed
        resumes = event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR
        if event in ("call", "line") and not resumes:
            self.count += 1
            if self.count == self.n:
                sys.settrace(None)
                signal.raise_signal(TERM)
        return self

    @contextlib.contextmanager
    def watching(self):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


@pytest.fixture
def ignored(monkeypatch):
    """Exceptions that Python printed and ignored."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_value))
    return found


@pytest.fixture(autouse=True)
def _stopped(monkeypatch):
    """Ends readers where a signal came before the end of `read_ahead` has begun to end them."""
    rings, begin = [], buffers._Ring.__init__

    def recording(ring, *given):
        begin(ring, *given)
        rings.append(ring)

    monkeypatch.setattr(buffers._Ring, "__init__", recording)
    yield
    for ring in rings:
        ring.stopped = True
        ring.free_queue.put(None)
    wait_until(lambda: not readers())


def dropped(begin):
    for _ in begin():
        break


def in_a_cycle(begin):
    iterator = begin()
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect(0)  # it is young


def after_an_error(begin):
    with contextlib.suppress(ZeroDivisionError):
        for _ in begin():
            1 / 0  # noqa: B018


def at_the_end(begin):
    for _ in begin():
        pass


def end_everywhere(use, ignored):
    """Uses something once for each operation, with a signal before it; returns their number."""
    n = 1
    while True:
        send, ended = SignalAt(n), False
        try:
            with stoppable():
                use(send)
        except Terminated:
            ended = True
        assert ignored == []
        if send.count < n:
            return n - 1
        assert ended, n
        n += 1


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("use", [dropped, in_a_cycle, after_an_error, at_the_end])
def test_a_signal_at_every_operation_of_the_ring_ends_its_use(ignored, use, threads):
    def watched(send):
        with send.watching():
            use(lambda: read_ahead(range(3), lambda job, block: None, BlockPool(8), 2, threads))

    assert end_everywhere(watched, ignored) > 30


@pytest.mark.parametrize("threads", [0, 1])
def test_a_signal_at_every_operation_while_batches_are_closed(store, ignored, threads):
    batches = Batches(store, "t2m", ["t2m"], threads=threads, batch_size=3, shuffle=False)
    whole = copied(batches)
    held = []

    def watched(send):
        held.append(iter(batches))
        next(held[0])
        with send.watching():
            held.clear()

    assert end_everywhere(watched, ignored) > 10
    batches.load_state_dict({**batches.state_dict(), "epoch": 0, "batches": 0})
    assert copied(batches) == whole


class Freed:
    def __del__(self):
        signal.raise_signal(TERM)


def weak_finaliser():
    weakref.finalize(type("Plain", (), {})(), signal.raise_signal, TERM)


def generator():
    def numbers():
        try:
            yield 1
        finally:
            signal.raise_signal(TERM)

    next(numbers())


@pytest.mark.parametrize("free", [Freed, weak_finaliser, generator])
def test_a_signal_in_a_finaliser_ends_the_work_after_it(ignored, free):
    def work():
        free()
        gc.collect()
        wait_until(lambda: False)

    with pytest.raises(Terminated), stoppable():
        work()
    assert ignored == []


def test_an_exception_that_python_ignored_is_raised_at_the_latest_at_the_end(ignored, monkeypatch):
    monkeypatch.setattr(signals._thread, "start_new_thread", lambda *_: None)
    done = []

    def work():
        Freed()
        done.append("all")

    with pytest.raises(Terminated), stoppable():
        work()
    assert (done, ignored) == (["all"], [])


def test_other_exceptions_that_python_ignores_are_reported_as_before(ignored):
    class Wrong:
        def __del__(self):
            raise OSError("gone")

    with stoppable():
        Wrong()
        gc.collect()
    assert [str(error) for error in ignored] == ["gone"]


def test_a_deferred_signal_that_nobody_read_is_raised_at_the_end_of_the_block():
    def work():
        with stoppable() as stop:
            stop.deferred = True
            signal.raise_signal(TERM)
            stop.deferred = False

    with pytest.raises(Terminated):
        work()


def test_blocks_inside_each_other_have_one_stop_which_ignores_what_is_passed_on(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ens10.signals.time.monotonic", lambda: now[0])
    seen = []

    def work():
        with stoppable() as outer, stoppable() as inner:
            assert outer is inner
            with pytest.raises(Terminated):
                inner.end(TERM)  # that another process received
            now[0] += 0.5
            signal.raise_signal(TERM)  # passed on by it
            seen.append("went on")

    with pytest.raises(Terminated):  # at the end of the block
        work()
    assert seen == ["went on"]
