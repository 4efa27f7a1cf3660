"""Options of compiled loops, and the exponential in arithmetic that compilers vectorise.

numba calls the C library for `np.exp`, number by number. The functions here are plain arithmetic,
which LLVM puts into vector instructions. They exist inside compiled loops only.
"""

import math
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache
from numba.extending import overload

_config: Any = numba.config


def cache_works() -> bool:
    """Return True if numba can cache compiled loops; set a temporary folder if there is no other.

    numba looks for a folder beside the source and in the home folder. Where neither can be written,
    as in a container without a home, compiled loops are cached in a private folder of this user
    among the temporary files, or not at all: then each process compiles them again.
    """
    source_is_writable = os.access(Path(__file__).parent, os.W_OK)
    if (_config.CACHE_DIR or source_is_writable or _has_home()) and _cache_is_writable():
        return True
    folder = _user_temporary_folder()
    if folder is None:
        return False
    _config.CACHE_DIR = str(folder)
    return _cache_is_writable()


def _has_home() -> bool:
    """Return True if the user has a home folder; without one numba would create a folder `~`."""
    try:
        return bool(Path.home())
    except RuntimeError:
        return False


def _cache_is_writable() -> bool:
    try:
        FunctionCache(_cache_is_writable)
    except RuntimeError:
        return False
    return True


def _user_temporary_folder() -> Path | None:
    """Return a folder that only this user can write, or None; its content will be executed."""
    if os.name != "posix":
        return None
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"ens10-compiled-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            folder.chmod(0o700)
            return folder
    return None


OPTIONS: dict[str, Any] = {"nogil": True, "cache": cache_works(), "error_model": "numpy"}


FUSED: dict[str, Any] = {**OPTIONS, "fastmath": {"contract"}}  # a * b + c may be rounded once
INLINED: Any = {"fastmath": {"contract"}, "error_model": "numpy"}  # of functions inside loops


@numba.njit(**FUSED)
def horner(coefficients, x):  # type: ignore[no-untyped-def]
    """Evaluate a polynomial, coefficients as a tuple from the highest power down."""
    total = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


def exp(x: Any) -> Any:
    """Return exp of a float32 in [-87, 88] or float64 in [-708, 709], to some ulp.

    exp(x) = 2^n exp(r) with |r| <= log(2) / 2, by the Taylor series of exp(r). Added to a number so
    large that it has no binary places, x / log(2) is rounded: the last bits of the sum are the
    integer n. Shifted to where a number's exponent is, they are 2^n.
    """
    raise NotImplementedError("exp is for compiled loops")


def _exp_of(real: Any, whole: Any, terms: int, bits: int, bias: int) -> Callable[..., Any]:
    """Return the formula of `exp` for a type of floating point.

    Args:
        real: the type.
        whole: integers of its size.
        terms: highest power of the Taylor series.
        bits: of its mantissa.
        bias: of its exponent.
    """
    taylor = tuple(real(1 / math.factorial(n)) for n in range(terms, -1, -1))
    rounding, log2e, ln2 = real(1.5 * 2.0**bits), real(math.log2(math.e)), real(math.log(2))

    def formula(x):  # type: ignore[no-untyped-def]
        shifted = real(x * log2e + rounding)
        power = whole((shifted.view(whole) + bias) << bits).view(real)
        return horner(taylor, (x * log2e - (shifted - rounding)) * ln2) * power

    return formula


_EXP = {
    types.float32: _exp_of(np.float32, np.int32, 7, 23, 127),
    types.float64: _exp_of(np.float64, np.int64, 12, 52, 1023),
}


@overload(exp, jit_options=INLINED)
def _exp(x):  # type: ignore[no-untyped-def]
    return _EXP.get(x)
