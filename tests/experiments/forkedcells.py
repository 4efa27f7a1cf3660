"""Cells of one call each, for the tests of the processes that compute cells."""

import fcntl
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ens10.errors import ArgumentError
from ens10.experiments.runner.cell import Cell


@dataclass(frozen=True)
class ForkedCell(Cell):
    """Does what its name says, and keeps what it found in a file of its folder."""

    does: str
    out: Path

    place = "cell"

    @property
    def name(self):
        return self.does

    @property
    def scratch(self):
        return self.out

    def current_key(self):
        return {}

    def compute(self):
        print(f"{self.name} begins", flush=True)
        found = getattr(self, self.name)()
        return {"found": " ".join(map(str, found)).encode()}

    def keep(self, files):
        (self.out / "found").write_bytes(files["found"])

    def process(self):
        return os.getpid(), os.getppid(), os.environ["OMP_NUM_THREADS"], torch.get_num_threads()

    def loads(self):
        return ("pytorch_lightning" in sys.modules, "ens10.models" in sys.modules)

    def refuses(self):
        raise ArgumentError("colour", "'blue' is no colour", "Choose red")

    def fails(self):
        raise ValueError("a fault of the code")

    def aborts(self):
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    def exits(self):
        os._exit(7)

    def waits(self):
        held = (self.out / "held").open("w")
        fcntl.flock(held, fcntl.LOCK_EX)  # until this process ends
        print("waits", flush=True)
        for _ in range(6000):  # a signal just before a long sleep would be handled after it
            time.sleep(0.1)

    def ignores(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.waits()
