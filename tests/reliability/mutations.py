"""Random damage to the files of a folder: bits, lengths, whole files, values in JSON."""

import json
import shutil
from pathlib import Path

STRANGE = (None, -1, 0, 1e300, 10**30, "", "x", "../../x", [], [0], {}, {"name": "x"}, True)


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip(folder, random):
    """Another value of one bit."""
    path = random.choice(files_in(folder))
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def cut(folder, random):
    """A file that lost its end."""
    path = random.choice(files_in(folder))
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])


def grow(folder, random):
    """A file with more at its end."""
    path = random.choice(files_in(folder))
    path.write_bytes(path.read_bytes() + b"\0" * random.randrange(1, 20))


def delete(folder, random):
    """A file that is not there."""
    random.choice(files_in(folder)).unlink()


def delete_folder(folder, random):
    """An array, or the chunks of one, that are not there."""
    shutil.rmtree(random.choice(sorted(path for path in folder.rglob("*") if path.is_dir())))


def exchange(folder, random):
    """Two files, each in the place of the other."""
    first, second = random.sample(files_in(folder), 2)
    mine, its = first.read_bytes(), second.read_bytes()
    first.write_bytes(its)
    second.write_bytes(mine)


def add(folder, random):
    """A file that nobody wrote, perhaps a chunk or an array."""
    path = random.choice(files_in(folder))
    place = path.with_name(random.choice(("7", "zarr.json", ".zattrs", "x")))
    if place.exists():
        place = path.with_name("99")
    place.write_bytes(path.read_bytes())


def _places(node, before=()):
    """Keys of everything in a document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in inner:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*before, key))


def edit(folder, random, pattern="**/*.json"):
    """Metadata with one value changed or removed."""
    path = random.choice(sorted(folder.glob(pattern)))
    content = json.loads(path.read_text())
    *way, last = random.choice(list(_places(content)))
    node = content
    for key in way:
        node = node[key]
    if random.random() < 0.4:
        del node[last]
    else:
        node[last] = random.choice(STRANGE)
    path.write_text(json.dumps(content))


ALL = (flip, cut, grow, delete, delete_folder, exchange, add, edit)


class Copies:
    """A folder of which damaged copies are made, one after the other in one place.

    Args:
        whole: that is copied.
        place: of the copies.
    """

    def __init__(self, whole: Path, place: Path) -> None:
        self.whole, self.place = whole, place

    def damaged(self, change, random, inner=""):
        """A copy, with a change in it or in the folder `inner`."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.whole, self.place)
        change(self.place / inner, random)
        return self.place
