"""What a command writes beside its target until it is complete: made, resumed, renamed, removed.

TARGET.partial/plan.json     options and a fingerprint of the inputs, by which a later call resumes
TARGET.partial/write.lock    locked by the process that writes
TARGET.partial/...           the result, and marks of what is complete
.TARGET.????????.tmp         a file while it is written, or the older target while it is replaced

Only what ens10 made is removed or replaced, recognised by its content; anything else is refused.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from ens10.durable import clear_leftovers, remove, replace_folder, write_whole
from ens10.errors import FileError, listing
from ens10.file_locks import hold_file
from ens10.untrusted import read_mapping

PLAN, INPUTS, RESULT = "plan.json", "inputs", "result"
_LOCK = "write.lock"
_OWN_NAMES = (PLAN, f"{_LOCK}*", ".*.tmp")
_COMPARED_BYTES = 1 << 30  # of all files of an input
_COMPARED_FILES = 4096
_BLOCK = 1 << 16
Inputs = Mapping[str, Sequence[Path]]


class Partial:
    """The folder `TARGET.partial` of a command.

    Args:
        target: the file or folder that the command makes.
        names: patterns of the names of what it writes to the folder, besides plan and lock.
        is_older: recognises a folder that an earlier version left, of another layout.

    Attributes:
        path: the folder.
    """

    def __init__(
        self, target: Path, *names: str, is_older: Callable[[Path], bool] | None = None
    ) -> None:
        self.target, self.path = target, target.with_name(f"{target.name}.partial")
        self._names, self._is_older = (*_OWN_NAMES, *names), is_older

    @contextmanager
    def lock(
        self,
        command: str,
        *,
        wait: bool = False,
        hold: Callable[..., AbstractContextManager[None]] = hold_file,
    ) -> Iterator[None]:
        """Create and lock the folder, and remove temporary files of killed processes beside it.

        The folder is removed at the end of the block if nothing is left in it.

        Args:
            command: such as "ens10 apply", for messages.
            wait: whether to wait for another process instead of refusing.
            hold: holds the lock file, such as `ens10.experiments.runs.locks.hold_lock`.

        Raises:
            FileError: another process holds the lock, or the folder holds something else.
        """
        with ExitStack() as stack:
            stack.callback(self._remove_empty)
            while True:
                self.check()
                self.path.mkdir(exist_ok=True)
                with suppress(FileNotFoundError):  # another process has just removed the folder
                    stack.enter_context(hold(self.path / _LOCK, command, wait=wait))
                    break
            clear_leftovers(self.target.parent, self.target.name)
            yield

    def _remove_empty(self) -> None:
        with suppress(OSError):
            self.path.rmdir()

    def entries(self) -> list[str]:
        """Return the names in the folder, except that of the lock; none if there is no folder."""
        try:
            names = sorted(path.name for path in self.path.iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            return [self.path.name]
        return [name for name in names if not name.startswith(_LOCK)]

    def check(self) -> None:
        """Refuse a folder that holds something that the command does not write.

        Raises:
            FileError: it does.
        """
        foreign = [name for name in self.entries() if not self._is_known(name)]
        if foreign and not (self._is_older and self._is_older(self.path)):
            reason = f"not a partial store or file of this command: it holds {listing(foreign)}"
            raise FileError(self.path, reason, "Move it away")

    def _is_known(self, name: str) -> bool:
        return any(fnmatch(name, known) for known in self._names)

    def clear(self) -> None:
        """Remove what an earlier call has written.

        Raises:
            FileError: the folder holds something else.
        """
        self.check()
        self._remove(self.entries())

    def _remove(self, names: Sequence[str]) -> None:
        for name in sorted(names, key=lambda name: name != PLAN):
            remove(self.path / name)  # the plan first: without it nothing is resumed

    def read_plan(self) -> dict[str, Any] | None:
        """Return the plan of an earlier call; None if there is none.

        Raises:
            FileError: it cannot be read.
        """
        path = self.path / PLAN
        return read_mapping(path, "Move the folder away") if path.exists() else None

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Write the plan, after which the folder can be resumed."""
        write_whole(self.path / PLAN, json.dumps(plan, indent=1))

    def publish(self, name: str = RESULT) -> None:
        """Rename a complete folder in the partial one to the target, and remove the rest."""
        replace_folder(self.path / name, self.target)
        self.discard()

    def discard(self) -> None:
        """Remove what the command has written, and nothing else."""
        self._remove(list(filter(self._is_known, self.entries())))
        self._remove_empty()


def write_folder(target: Path, write: Callable[[Path], object], *older: str) -> None:
    """Write a folder unless it exists; it gets its name when it is complete.

    Args:
        target: the folder.
        write: function that writes it at the path that it gets.
        older: patterns of names that earlier versions left in `TARGET.partial`.

    Raises:
        FileError: `TARGET.partial` holds something else.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Partial(target, f"{RESULT}*", *older)
    with partial.lock("ens10", wait=True):
        if not target.exists():
            partial.clear()
            try:
                write(partial.path / RESULT)
                partial.publish()
            finally:
                partial.discard()


def check_target(path: Path, force: bool, is_ours: Callable[[Path], bool], kind: str) -> None:
    """Refuse a target that exists, unless ens10 made it and it is to be replaced.

    Args:
        path: of the target.
        force: whether it is to be replaced.
        is_ours: recognises what the command makes, by its content.
        kind: of what it makes, in words.

    Raises:
        FileError: it exists.
    """
    if not path.exists():
        return
    if not force:
        raise FileError(path, "exists already", "Choose another name, or give --force")
    is_empty = path.is_dir() and not any(path.iterdir())
    if not (is_empty or is_ours(path)):
        reason = f"exists and is not {kind} of ens10, so --force does not replace it"
        raise FileError(path, reason, "Choose another name")


def fingerprints(inputs: Inputs) -> dict[str, dict[str, Any]]:
    """Return names and sizes, times of change and a checksum of the files of each input.

    The checksum is of all bytes of at most 1 GiB, and of blocks that are spread evenly over more.
    """
    return {
        name: {**_status(files), "content": _content(files)}
        for name, files in inputs.items()
        if files
    }


def changed_inputs(recorded: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """Return in words which inputs differ from their fingerprints.

    Files are read only where nothing but their time of change differs.
    """
    names = sorted({*recorded, *inputs})
    is_same = {name: _is_same(recorded.get(name), inputs.get(name, ())) for name in names}
    return [f"{name}: its files have changed" for name in names if not is_same[name]]


def _is_same(old: Mapping[str, Any] | None, files: Sequence[Path]) -> bool:
    if old is None or not files:
        return old is None and not files
    status = _status(files)
    if old.get("sizes") != status["sizes"]:
        return False
    return old.get("times") == status["times"] or old.get("content") == _content(files)


def _status(files: Sequence[Path]) -> dict[str, str]:
    status = [file.stat() for file in files]
    sizes = [[file.name, one.st_size] for file, one in zip(files, status, strict=True)]
    contents = {"sizes": sizes, "times": [one.st_mtime_ns for one in status]}
    return {k: hashlib.sha256(json.dumps(v).encode()).hexdigest() for k, v in contents.items()}


def _content(files: Sequence[Path]) -> int:
    compared = files[:: -(-len(files) // _COMPARED_FILES)]
    blocks = max(1, _COMPARED_BYTES // len(compared) // _BLOCK)  # of each file
    checksum = 0
    for file in compared:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            count = min(blocks, -(-size // _BLOCK))  # all blocks, or some from first to last
            for place in np.linspace(0, max(0, size - _BLOCK), count, dtype=np.int64).tolist():
                stream.seek(place)
                checksum = crc32c(stream.read(_BLOCK), checksum)
    return checksum
