"""What holds for every test."""

import socket
import sys

import pytest

_LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture(autouse=True, scope="session")
def _records_elsewhere(tmp_path_factory):
    """Keeps the record of runs that tests make out of the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


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
