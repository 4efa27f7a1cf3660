"""Waiting in tests for what another thread or process does, on a machine that may be busy."""

import time

PATIENCE = 500.0  # seconds, after which only a test that hangs ends


def wait_until(is_so, pause=0.01):
    """Calls a function every `pause` seconds until it returns something true."""
    latest = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > latest:
            raise TimeoutError(f"not so after {PATIENCE:g} s")
        time.sleep(pause)
