"""The guard of tests/conftest.py works."""

import socket

import pytest


def test_other_machines_are_out_of_reach():
    with (
        socket.socket() as one,
        pytest.raises(OSError, match="no network in tests"),
    ):
        one.connect(("192.0.2.1", 80))


def test_this_machine_is_in_reach():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
