"""Bins of forecast probabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError

Array = npt.NDArray[Any]
_MOST_DIGITS = 6


@dataclass(frozen=True)
class Binning:
    """Bins of probabilities.

    Args:
        lower: ends of the bins, or the probabilities themselves.
        upper: the other ends, or again the probabilities.
        told: what the bins are, in words; sums over different bins must not be added.
        place: from probabilities to the numbers of their bins.
    """

    lower: Array
    upper: Array
    told: str
    place: Callable[[Array], Array]

    @property
    def pooled(self) -> bool:
        """Whether each bin is one probability, for which those that fall into it are taken."""
        return self.lower is self.upper


def binning(bins: Any, members: int | None, digits: int | None, p: xr.DataArray) -> Binning:
    """The bins that arguments of `event_sums` ask for.

    Raises:
        ArgumentError: not exactly one is given; a number out of range; edges that are none.
        UnknownNameError: another word than "unique".
    """
    options = {"bins": bins, "members": members, "digits": digits}
    named = [name for name, value in options.items() if value is not None]
    if len(named) != 1:
        told = " and ".join(named) or "none"
        raise ArgumentError("bins", f"expected one of bins, members and digits, got {told}")
    if members is not None:
        return _shares("members", members, 10**_MOST_DIGITS, f"shares of {members} members")
    if digits is not None:
        _check_number("digits", digits, _MOST_DIGITS)
        return _shares("digits", 10**digits, 10**_MOST_DIGITS, f"{digits} decimals")
    if isinstance(bins, str):
        if bins != "unique":
            raise UnknownNameError("bins", bins, ["unique"])
        return _unique(p)
    return _between(bins)


def _shares(name: str, n: int, most: int, told: str) -> Binning:
    _check_number(name, n, most)
    shares = np.arange(n + 1) / n
    return Binning(shares, shares, told, partial(_place_share, n=n, exact=name == "members"))


def _check_number(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or int(value) != value or not 1 <= value <= most:
        raise ArgumentError(name, f"expected a whole number from 1 to {most}, got {value!r}")


def _between(bins: int | Sequence[float]) -> Binning:
    if isinstance(bins, int):
        _check_number("bins", bins, 10**_MOST_DIGITS)
        edges = np.arange(bins + 1) / bins
    else:
        edges = np.asarray(bins, dtype=np.float64)
    rising = edges.ndim == 1 and len(edges) > 1 and bool((np.diff(edges) > 0).all())
    if not rising or edges[0] != 0 or edges[-1] != 1:
        raise ArgumentError("bins", f"expected edges that rise from 0 to 1, got {edges}")
    told = "edges " + ", ".join(f"{edge:.12g}" for edge in edges)
    return Binning(edges[:-1], edges[1:], told, partial(_place_between, edges=edges))


def _unique(p: xr.DataArray) -> Binning:
    values = np.unique(np.asarray(p.data))
    values = values[~np.isnan(values)]
    if not len(values):
        raise ArgumentError("probability", "there is none that is not missing")
    exact = values.astype(np.float64)
    return Binning(exact, exact, "unique probabilities", partial(_place_known, known=exact))


def _place_share(p: Array, *, n: int, exact: bool) -> Array:
    scaled = p.astype(np.float64) * n
    index = np.rint(scaled).astype(np.int64)
    if exact and bool((abs(scaled - index) > 1e-3).any()):
        raise ArgumentError(
            "members", f"some probabilities are no shares of {n}", "Give bins or digits instead"
        )
    return index


def _place_between(p: Array, *, edges: Array) -> Array:
    # in the precision of the probabilities: 0.7 in float32 is below 0.7 in float64
    index = np.searchsorted(edges.astype(p.dtype), p, side="right") - 1
    placed: Array = np.minimum(index, len(edges) - 2)
    return placed


def _place_known(p: Array, *, known: Array) -> Array:
    index = np.searchsorted(known, p.astype(np.float64))
    placed: Array = np.minimum(index, len(known) - 1)
    return placed
