"""What the machine refuses, in one line; and nothing else is taken for it."""

import errno
import os
import resource

import numpy as np
import pytest
import torch

from ens10.errors import FileError, ResourceError
from ens10.machine_errors import machine_error, writing_netcdf
from ens10.signals import report_interruption


def system(number, path="runs/a"):
    return OSError(number, os.strerror(number), path)


FULL, READ_ONLY = "no space is left on the disk", "cannot be written (read-only file system)"
MEMORY, FILES = "not enough memory", "too many open files"
TOLD = [
    (system(errno.ENOSPC), f"runs/a: {FULL}"),
    (system(errno.EDQUOT), f"runs/a: {FULL}"),
    (system(errno.EROFS), f"runs/a: {READ_ONLY}"),
    (system(errno.EACCES), "runs/a: cannot be written (permission denied)"),
    (system(errno.ENOTDIR), "runs/a: a part of it is a file, not a folder"),
    (system(errno.EMFILE), FILES),
    (system(errno.ENFILE), FILES),
    (system(errno.ENOMEM), MEMORY),
    (MemoryError(), MEMORY),
    (RuntimeError("can't start new thread"), MEMORY),
    (ImportError("libx.so: failed to map segment from shared object"), MEMORY),
    (ImportError("liby.so: cannot open shared object file: Too many open files"), FILES),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MEMORY),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MEMORY),
    (RuntimeError("No space left on device"), f"a file: {FULL}"),
]


@pytest.mark.parametrize(("error", "words"), TOLD)
def test_one_line_says_what_happened_and_what_to_do(error, words, capsys):
    assert report_interruption(error) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ens10: {words}")
    assert said.count("\n") == 1
    assert said.count(". ") == 1  # what to do


def test_real_refusals_of_libraries_are_among_them():
    for make in (lambda: np.empty(1 << 57), lambda: torch.empty(1 << 50)):
        with pytest.raises((MemoryError, RuntimeError)) as raised:
            make()
        assert isinstance(machine_error(raised.value), ResourceError)


def test_the_limit_that_was_reached_is_named(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert "(the limit is 64)" in str(machine_error(system(errno.EMFILE)))


def wrapped(first, *, cause):
    try:
        try:
            raise first
        except Exception as error:
            raise ValueError("no such part") from (error if cause else None)
    except ValueError as second:
        return second


def test_causes_are_searched():
    assert isinstance(machine_error(wrapped(system(errno.ENOSPC), cause=True)), FileError)
    assert machine_error(wrapped(system(errno.ENOSPC), cause=False)) is None


def test_a_fault_while_a_refusal_was_handled_is_not_hidden():
    def fault():
        try:
            raise system(errno.EACCES)
        except OSError:
            {}["a fault of the program"]

    with pytest.raises(KeyError) as raised:
        fault()
    assert machine_error(raised.value) is None
    assert report_interruption(raised.value) is None


@pytest.mark.parametrize("error", [ValueError("memory"), KeyError("x"), system(errno.ENOENT)])
def test_other_errors_are_left_alone(error):
    assert machine_error(error) is None


def test_a_file_that_may_not_be_read_is_said_so(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.touch()
    monkeypatch.setattr(os, "access", lambda _, mode: mode == os.F_OK)
    assert "cannot be read" in str(machine_error(system(errno.EACCES, str(path))))


def test_netcdf_that_does_not_say_why(tmp_path):
    with pytest.raises(FileError, match="Look whether the disk is full"), writing_netcdf(tmp_path):
        raise RuntimeError("NetCDF: HDF error")
    with pytest.raises(OSError, match="No space"), writing_netcdf(tmp_path):
        raise system(errno.ENOSPC)
