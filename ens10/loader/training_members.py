"""Which members of other data a trained model takes: those of its training, by their labels."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ens10.errors import ArgumentError, DataNote, listing
from ens10.identity import Label

_CONTROL = 0  # label of the control member


def choose_members(
    labels: Sequence[Label], count: int, trained: Sequence[Label], *, fewer: bool, least: int = 1
) -> tuple[list[Label], str]:
    """Return the labels of the members to use, and a note if they are not those of the training.

    The members of the training are used if all are there; otherwise the first `count` perturbed
    ones, and the control only if there are too few of these. Texts are in the order of the data.

    Args:
        labels: of the forecast's members: numbers, or texts such as "m01".
        count: number of members that the run was trained on.
        trained: their labels; empty if the run does not record them.
        fewer: True if fewer than `count` are accepted. Labels of members that are not there then
            fill the ensemble.
        least: smallest number of members that is accepted.

    For example, of the members 0 to 3 a run that was trained on 1 and 2 takes these, and so does
    one that was trained on two others, which are not there.

    Raises:
        ArgumentError: there are too few members.
    """
    if len(trained) == count and set(trained) <= set(labels):
        return list(trained), ""
    reason = _reason(labels, trained)
    everything = list(labels) if are_texts(labels) else sorted(labels, key=int)
    perturbed = [label for label in everything if label != _CONTROL]
    if len(perturbed) >= count:
        kind = "" if are_texts(labels) else "perturbed "
        note = f"the first {count} {kind}members are used ({_range(perturbed[:count])})"
        is_choice = bool(trained) or len(labels) > count
        return perturbed[:count], f"{note}, since {reason}" if is_choice else ""
    if len(everything) >= count:
        note = f"the control member is used too, since {len(perturbed)} perturbed members are there"
        return everything, f"{note}, and {count} are needed" if trained else ""
    if not fewer or len(everything) < least:
        at_least = f"at least {least}" if fewer else str(count)
        raise ArgumentError("members", f"needs {at_least} members, found {len(everything)}")
    note = f"the members {_range(everything)} are used, since {reason}"
    is_part = not trained or set(everything) <= set(trained)
    return _filled(everything, count, trained), "" if is_part else note


def recorded_members(training: Mapping[str, Any]) -> list[Label]:
    """Return the labels of the members in a description of training data; empty in older ones."""
    return list(training.get("labels") or training.get("numbers", []))


def members_of_store(
    labels: Sequence[Label], ensemble: int | None, trained: Sequence[Label]
) -> list[Label]:
    """Return the members of a store for a run that was trained on others, with a note about these.

    The members of the training are the first, in its order; the others of the store follow.

    Args:
        labels: of the store's members.
        ensemble: number of members; None for all.
        trained: labels of the members of the training.

    Raises:
        ArgumentError: there are too few members.
    """
    count, first = ensemble or len(labels), trained[:ensemble]
    if len(first) <= count <= len(labels) and set(first) <= set(labels):
        return [*first, *(label for label in labels if label not in first)][:count]
    chosen, note = choose_members(labels, count, first, fewer=False)
    if note:
        warnings.warn(note, DataNote, stacklevel=2)
    return chosen


def are_texts(labels: Sequence[Label]) -> bool:
    """Return True if labels of members are texts."""
    return any(isinstance(label, str) for label in labels)


def _reason(labels: Sequence[Label], trained: Sequence[Label]) -> str:
    """Say why the members of the training cannot be taken."""
    if not trained:
        return "the run records no labels"
    if are_texts(labels) == are_texts(trained):
        return "those of the training are not all there"
    return f"the {'run records' if are_texts(labels) else 'forecast has'} no text labels"


def _filled(labels: list[Label], count: int, trained: Sequence[Label]) -> list[Label]:
    """Return the labels of all members, of those that are not there too.

    These are members of the training as far as its labels can be compared.
    """
    texts, others = are_texts(labels), [label for label in trained if label not in labels]
    if texts != are_texts(trained):
        others = []
    numbers = [label for label in (*labels, *trained) if not isinstance(label, str)]
    new = max(numbers, default=0) + 1
    fill: list[Label] = [f"missing {n + 1}" if texts else new + n for n in range(count)]
    chosen = [*labels, *others, *fill][:count]
    return list(trained) if set(chosen) == set(trained) else chosen


def _range(labels: Sequence[Label]) -> str:
    """Describe labels in a few words."""
    first, last = labels[0], labels[-1]
    if isinstance(first, int) and isinstance(last, int) and last - first == len(labels) - 1:
        return f"{first} to {last}"
    return listing([str(label) for label in labels])
