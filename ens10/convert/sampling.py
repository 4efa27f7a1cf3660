"""Fields of a store and the messages they were made from, to be decoded again."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from ens10.errors import DamagedFileError
from ens10.grib import Message, decode, scan
from ens10.store.manifest import Manifest

_ORIGIN = 6  # of a row of the manifest


@dataclass(frozen=True)
class Sample:
    """One member of one chunk.

    Attributes:
        path: of the chunk, in the store.
        array: that it belongs to, such as "sfc/t2m".
        place: of the chunk along the array's outer dimensions.
        member: place along `number`.
        file: with the message.
        offset: of the message.
        length: of the message.
    """

    path: str
    array: str
    place: tuple[int, ...]
    member: int
    file: Path
    offset: int
    length: int

    @property
    def where(self) -> str:
        """File and byte."""
        return f"{self.file} at byte {self.offset}"


def samples(manifest: Manifest, source: Path, count: int, random: Random) -> list[Sample]:
    """Fields chosen at random, among those whose messages the manifest knows."""
    rows = [row for _, row in manifest.rows() if len(row) > _ORIGIN and row[_ORIGIN]]
    names = [name for name, _ in manifest.plan["source"].get("files", [])]
    chosen = []
    for row in (random.choice(rows) for _ in range(count if rows else 0)):
        held = [(n, o) for n, o in enumerate(row[_ORIGIN].split()) if o != "-"]
        if not held:
            continue
        member, origin = random.choice(held)
        number, _, span = origin.partition(":")
        offset, _, length = span.partition("+")
        array, _, place = row[0].rpartition("/c/")
        outer = tuple(int(n) for n in place.split("/")[:-3])
        file = source / names[int(number)] if source.is_dir() else source
        chosen.append(Sample(row[0], array, outer, member, file, int(offset), int(length)))
    return sorted(set(chosen), key=lambda one: (str(one.file), one.offset, one.path))


def decoded(sample: Sample) -> npt.NDArray[np.float32]:
    """What ecCodes makes of a message, in the store's layout.

    Raises:
        DamagedFileError: the message is not where the manifest says.
    """
    message = _message(sample)
    with sample.file.open("rb") as file:
        return decode(message, file)


def _message(sample: Sample) -> Message:
    """The index entry of one message, from a scan of its bytes alone."""
    with sample.file.open("rb") as file:
        file.seek(sample.offset)
        content = file.read(sample.length)
    if content[:4] != b"GRIB" or content[-4:] != b"7777":
        reason = "no message begins here; the file has changed since the store was made"
        raise DamagedFileError(sample.file, sample.offset, reason)
    with tempfile.NamedTemporaryFile() as alone:
        alone.write(content)
        alone.flush()
        (found,) = scan(Path(alone.name))
    return Message(
        path=sample.file,
        offset=sample.offset,
        length=sample.length,
        time=found.time,
        number=found.number,
        meaning=found.meaning,
    )
