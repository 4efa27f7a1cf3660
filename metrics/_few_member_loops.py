"""Compiled CRPS of ensembles of few members, which stay in the processor's registers.

One loop over the points reads the members, sorts them and adds up: there is no block between that
is written and read again, as `_ensemble_loops` needs for many members. Exchanges of a sorting
network must be written one by one to become vector instructions, and their number depends on the
members: `_text` writes them. The scores are those of `_ensemble_loops`, bit by bit.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba.extending import overload

from ens10.compiled import OPTIONS
from ens10.metrics._sorting_networks import exchanges, minmax

# members; LLVM leaves a loop over more arrays without vector instructions, and one over members
# that are not contiguous in memory
MOST = 12


def _scores(x: Any, y: Any, factor: Any, out: Any, members: Any) -> Any:
    """Compute the CRPS at each point.

    Args:
        x: members, (M, P).
        y: observations, (P,).
        factor: of the spread term.
        out: output, (P,).
        members: a tuple of M numbers, whose type names M.
    """
    raise NotImplementedError("_scores is for compiled loops")


def _text(M: int) -> str:
    """Return the code of `_scores` for M members."""
    before = [f"x{m} = x[{m}]" for m in range(M)]
    inside = [f"v{m} = x{m}[p] - y[p]" for m in range(M)]
    inside += ["distance = " + " + ".join(f"abs(v{m})" for m in range(M))]
    inside += [f"v{i}, v{j} = minmax(v{i}, v{j})" for i, j in exchanges(M)]
    gaps = [f"(v{M - 1 - k} - v{k}) * kind({M - 1 - 2 * k})" for k in range(M // 2)]
    inside += ["spread = " + (" + ".join(gaps) or "kind(0)")]
    inside += [f"out[p] = distance / kind({M}) - factor * (spread / kind({M * M}))"]
    lines = ["def scores(x, y, factor, out, members):", "    kind = x.dtype.type"]
    lines += [f"    {line}" for line in before]
    return "\n".join([*lines, "    for p in range(out.size):", *(f"        {s}" for s in inside)])


@overload(_scores, jit_options={"error_model": "numpy"})
def _scores_of(x, y, factor, out, members):  # type: ignore[no-untyped-def]  # noqa: ARG001
    names: dict[str, Callable[..., Any]] = {"minmax": minmax}
    exec(_text(members.count), names)
    return names["scores"]


@numba.njit(**OPTIONS)
def crps(x, y, factor, out, members):  # type: ignore[no-untyped-def]
    """Compute the CRPS at each point; the arguments are those of `_scores`."""
    _scores(x, y, factor, out, members)
