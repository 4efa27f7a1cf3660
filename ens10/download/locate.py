"""Where the files of ENS-10 are, and how large they are."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from ens10.catalog import MODEL_YEAR, Kind
from ens10.download.remote import Info, RefusedError, Remote, TransientError, public, remote_of
from ens10.download.retry import Patience

# Both have served the same files; buckets have moved before.
BASES = (
    "https://object-store.os-api.cci1.ecmwf.int/maelstrom-ap4",
    "https://storage.ecmwf.europeanweather.cloud/MAELSTROM_AP4",
)
BASE_VARIABLE = "ENS10_BASE_URL"
_TRIES = 3  # with a place that is not the last one to try
Say = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """A remote file.

    Attributes:
        name: of the file.
        url: where it is.
        info: size and version.
        remote: reads it.
    """

    name: str
    url: str
    info: Info
    remote: Remote


def file_names(kind: Kind, days: Iterable[str]) -> tuple[str, ...]:
    """Names of the files with the hindcasts of some start dates (MMDD)."""
    return tuple(f"output.{kind}.{MODEL_YEAR}{day}" for day in days)


def bases(given: str | None) -> tuple[str, ...]:
    """Where to look, in this order: what is given, else the environment's, else the known ones."""
    chosen = given or os.environ.get(BASE_VARIABLE)
    return (chosen,) if chosen else BASES


def locate(
    names: Sequence[str], places: Sequence[str], patience: Patience, jobs: int, say: Say
) -> tuple[dict[str, Found], dict[str, str]]:
    """Asks for the size of every file.

    Args:
        names: of the files.
        places: base URLs; a file that the first lacks is looked for in the next.
        patience: with servers that do not answer.
        jobs: requests at a time.
        say: is told where files are looked for.

    Returns:
        What was found, and what was wrong with the others, both by name.
    """
    found: dict[str, Found] = {}
    reasons: dict[str, list[str]] = {name: [] for name in names}
    for n, place in enumerate(places):
        left = [name for name in names if name not in found]
        if n and left:
            say(f"{len(left)} of {len(names)} files not had from there: trying {public(place)}")
        last = place == places[-1]
        hurried = patience if last else replace(patience, tries=min(_TRIES, patience.tries))
        for name, answer in _ask(left, place, hurried, jobs).items():
            if isinstance(answer, Found):
                found[name] = answer
            else:
                reasons[name].append(f"{public(place)}: {answer}")
    wrong = {name: f"{name} ({'; '.join(why)})" for name, why in reasons.items()}
    return found, {name: why for name, why in wrong.items() if name not in found}


def _ask(
    names: Sequence[str], place: str, patience: Patience, jobs: int
) -> dict[str, "Found | str"]:
    """One place; where no server answers for the first file, the others are not asked for."""
    if not names:
        return {}
    remote = remote_of(place)
    first = _one(remote, place, patience, names[0])
    if isinstance(first, TransientError) and first.unreachable:
        return dict.fromkeys(names, str(first))
    with ThreadPoolExecutor(jobs) as pool:
        rest = list(pool.map(partial(_one, remote, place, patience), names[1:]))
    told = zip(names, [first, *rest], strict=True)
    return {name: one if isinstance(one, Found) else str(one) for name, one in told}


def _one(remote: Remote, place: str, patience: Patience, name: str) -> "Found | Exception":
    url = f"{place.rstrip('/')}/{name}"
    try:
        return Found(name, url, patience.call(lambda: remote.info(url)), remote)
    except (RefusedError, TransientError) as error:
        return error
