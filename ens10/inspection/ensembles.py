"""What kind of data GRIB messages hold, in words: members, hindcasts, lagged starts, scan order."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ens10.grib import Meaning, MessageList

# Below this share of dates x steps x members the fields may never have been meant to fill the
# whole cube: the members of a lagged ensemble have start dates and steps of their own.
_SPARSE = 0.5
_TYPES = {
    "an": "analysis",
    "fc": "single forecast",
    "fcmean": "forecast means",
    "em": "ensemble mean",
    "es": "ensemble spread",
}
_SCANS: tuple[tuple[str, Callable[[Meaning], bool]], ...] = (
    ("scanned south to north", lambda m: m.scan.northward),
    ("scanned east to west", lambda m: m.scan.westward),
    ("scanned along meridians", lambda m: m.scan.by_column),
)


def is_lagged(held: npt.NDArray[np.bool_]) -> bool:
    """Whether the members of starts belong together rather than the fields of one start.

    Starts of a lagged ensemble have members of their own: the sets of members of any two starts
    are the same or share none.

    Args:
        held: shape (start, step, member), whether there is a field.
    """
    if held.mean() >= _SPARSE:
        return False
    members = np.unique(held.any(axis=1), axis=0)
    return len(members) > 1 and bool((members.sum(axis=0) == 1).all())


def notes_of(group: MessageList, lagged: bool) -> Iterator[str]:
    """What there is to know about the messages of one row.

    Args:
        group: the messages.
        lagged: whether they are a lagged ensemble.
    """
    if lagged:
        yield "lagged: members of different start dates"
    yield from _members(group)
    yield from _hindcasts(group)
    if group.meanings[0].level_type == "isobaricInPa":
        yield f"level in Pa ({group.meanings[0].level / 100:g} hPa)"
    yield from _orientation(group)


def _members(group: MessageList) -> Iterator[str]:
    kinds = np.array([meaning.data_type for meaning in group.meanings])[group.records["meaning"]]
    numbers = {
        str(kind): len(np.unique(group.records["number"][kinds == kind]))
        for kind in np.unique(kinds)
    }
    perturbed = numbers.pop("pf", 0)
    if "cf" in numbers:
        del numbers["cf"]
        yield f"control and {perturbed} perturbed" if perturbed else "control only"
    elif perturbed == 1:
        yield f"perturbed member {group.records['number'].max()} only"
    elif perturbed:
        yield f"{perturbed} perturbed members, no control"
    for kind in numbers:
        yield _TYPES.get(kind, f"dataType {kind}")


def _hindcasts(group: MessageList) -> Iterator[str]:
    models = sorted({m.model_date for m in group.meanings if m.model_date is not None})
    if not models:
        return
    of = np.array([m.model_date is not None for m in group.meanings])[group.records["meaning"]]
    times = np.unique(group.records["time"][of]).astype("datetime64[s]")
    by = " to ".join(dict.fromkeys(_day(str(date)) for date in (models[0], models[-1])))
    if len(times) == 1:
        yield f"hindcast of {str(times[0])[:10]} by the model of {by}"
    else:
        yield f"hindcasts of {str(times[0])[:10]} to {str(times[-1])[:10]} by the model of {by}"


def _day(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _orientation(group: MessageList) -> Iterator[str]:
    """Messages that are scanned in another way than this package lays fields out."""
    ids = group.records["meaning"]
    for words, holds in _SCANS:
        so = np.array([holds(meaning) for meaning in group.meanings])[ids]
        if so.all():
            yield f"{words}, put right"
        elif so.any():
            first = group[int(so.argmax())]
            yield f"{so.sum()} of {len(group)} fields {words}, put right; first: {first.place}"
    begins = Counter(_first_column(m) for m in group.meanings if m.scan.roll)
    if begins:
        degrees = ", ".join(f"{west:g}" for west in sorted(begins))
        yield f"columns begin at {degrees} E, put right"


def _first_column(meaning: Meaning) -> float:
    west = meaning.grid.west - meaning.scan.roll * meaning.grid.spacing
    return round(west, 3) + 0.0
