"""Block bootstraps: how often each date is drawn."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError

BlockMethod = Literal["bootstrap", "moving", "stationary"]
Floats = npt.NDArray[np.float64]


def resample_counts(
    n: int,
    replicates: int,
    block_length: float,
    rng: np.random.Generator,
    *,
    method: BlockMethod = "bootstrap",
) -> Floats:
    """Return how often each of n dates is drawn in each replicate of a block bootstrap.

    - "bootstrap": circular blocks, the first date follows the last (Politis and Romano 1992);
      every date is drawn as often as any other.
    - "moving": blocks that lie within the dates (Kuensch 1989, doi:10.1214/aos/1176347265); the
      first and last dates are drawn less often.
    - "stationary": circular blocks of geometric length (Politis and Romano 1994,
      doi:10.1080/01621459.1994.10476870); the drawn series are stationary, and results depend
      less on the block length.

    Args:
        n: number of dates.
        replicates: number of resampled data sets.
        block_length: dates in a block, a whole number; for "stationary" their mean, 1 or more.
        rng: random generator.
        method: "bootstrap", "moving" or "stationary".

    Returns:
        Shape (replicates, n); each row adds up to n.

    Raises:
        UnknownNameError: an unknown method.
        ArgumentError: a block length below 1, not whole, or above n for "moving"; no replicates.
    """
    if method not in get_args(BlockMethod):
        raise UnknownNameError("method", method, get_args(BlockMethod))
    length = float(block_length)
    if not length >= 1 or replicates < 1:
        raise ArgumentError(
            "replicates" if length >= 1 else "block_length", "expected a number of 1 or more"
        )
    if method == "stationary":
        dates = _stationary(n, replicates, length, rng)
    else:
        if length != int(length) or (method == "moving" and length > n):
            raise ArgumentError(
                "block_length", f"expected a whole number of at most {n} dates, got {block_length}"
            )
        dates = _fixed(n, replicates, int(length), rng, circular=method == "bootstrap")
    flat = dates + n * np.arange(replicates)[:, None]
    return np.bincount(flat.ravel(), minlength=n * replicates).reshape(replicates, n).astype(float)


def _fixed(
    n: int, replicates: int, length: int, rng: np.random.Generator, *, circular: bool
) -> npt.NDArray[np.intp]:
    first = n if circular else n - length + 1
    starts = rng.integers(first, size=(replicates, -(-n // length)))
    dates = (starts[..., None] + np.arange(length)).reshape(replicates, -1)[:, :n]
    wrapped: npt.NDArray[np.intp] = dates % n
    return wrapped


def _stationary(
    n: int, replicates: int, length: float, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw dates that follow the previous one, or begin a block with probability 1 / length."""
    begins = rng.random((replicates, n)) < 1.0 / length
    begins[:, 0] = True
    starts = rng.integers(n, size=(replicates, n))
    position = np.arange(n)
    last = np.maximum.accumulate(np.where(begins, position, 0), axis=1)
    dates: npt.NDArray[np.intp] = (np.take_along_axis(starts, last, axis=1) + position - last) % n
    return dates
