"""Locks of files and folders: one holder, waiting, and file systems and systems without them."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from waiting import PATIENCE

from ens10 import file_locks
from ens10.errors import FileError
from ens10.file_locks import folder_lock, lock
from ens10.partial import Partial


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, None])
def no_locks(request, monkeypatch):
    """A file system without locks, by the error that it answers; or a system other than POSIX."""
    if request.param is None:
        monkeypatch.setattr(file_locks, "_IS_POSIX", False)
        return

    def refuses(file, kind):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(file_locks.fcntl, "flock", refuses)


def test_a_file_has_one_holder_until_it_is_closed(tmp_path):
    path = tmp_path / "a.part"
    with path.open("wb") as first, path.open("rb") as second:
        assert lock(first)
        with pytest.raises(BlockingIOError):
            lock(second)
        first.close()
        assert lock(second.fileno())


def test_one_waits_for_a_folder_or_gets_the_error_given(tmp_path):
    order = []

    def second():
        with folder_lock(tmp_path):
            order.append("second")

    in_use = FileError(tmp_path, "in use", "Wait")
    with folder_lock(tmp_path):
        with pytest.raises(FileError, match="in use"), folder_lock(tmp_path, in_use):
            raise AssertionError
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)  # in which a wrong lock would let it in
        order.append("first")
    thread.join(PATIENCE)
    assert order == ["first", "second"]


def test_work_goes_on_without_locks(no_locks, tmp_path):
    with (tmp_path / "a").open("wb") as file:
        assert not lock(file)
    with folder_lock(tmp_path), folder_lock(tmp_path, FileError(tmp_path, "in use", "Wait")):
        pass
    with Partial(tmp_path / "store").lock("ens10 prepare"):
        assert (tmp_path / "store.partial").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_other_errors_are_not_taken_for_missing_locks(tmp_path, monkeypatch):
    def refuses(file, kind):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_locks.fcntl, "flock", refuses)
    with Path(tmp_path / "a").open("wb") as file, pytest.raises(OSError, match="Input/output"):
        lock(file)
