"""Scores of one's own, which `verify` then knows by their names."""

import re
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.verification.cases import OWN, Case, Floats
from ens10.metrics.verification.table import MEANS, SCORES, TABLES, Mean, Score, Units

_NAME = re.compile(r"[a-z][a-z0-9_]*[a-z]")  # what ends in a number has one


def register_score(
    name: str, field: Callable[[Case], Any], long_name: str, *, units: str = "truth"
) -> None:
    """Makes a score of one's own known to `verify` and `score_states`, by its name.

    The score is the weighted mean of a value at each point, with all that others have: confidence
    bounds, groups (`by`), and against a reference its difference and the skill score NAME_skill,
    which is positive where the forecast's mean is the lower one.

    It is known to this process alone: the command `ens10 score` does not know it, and worker
    processes (`scheduler="processes"`, dask.distributed) only if they import the module that
    registers it. The same name again takes the place of a score of one's own.

    Args:
        name: small letters, digits and underscores, with a letter at the end.
        field: from a case, one forecast of one date, to values of shape (H, W). A case has `y`,
            the observations (H, W), and methods that give fields: `crps()`, `error()` (mean less
            observation), `variance()`, `quantile(level)`, `above(threshold)` (a probability), as
            far as its kind of forecast has them, and `arrays`, the forecast's variables with
            (H, W) as their last axes. Points where observation or forecast is missing do not
            count, whatever the function gives there.
        long_name: in words.
        units: of the values: "truth" (those of the truth), "truth2" (their square) or "1".

    Raises:
        ArgumentError: a name that cannot be, or that of a score of the package. When it is scored:
            values of another shape.
        UnknownNameError: other units.
    """
    if not _NAME.fullmatch(name):
        wanted = "Use small letters, digits and underscores, with a letter at the end"
        raise ArgumentError("name", f"{name!r} cannot be the name of a score", wanted)
    taken = {*SCORES, *MEANS, *TABLES} | {s.skill for s in SCORES.values()} | set(dir(Case))
    if name in taken and name not in OWN:
        raise ArgumentError("name", f"{name!r} is taken", "Choose another one")
    if units not in get_args(Units):
        raise UnknownNameError("units", units, get_args(Units))

    def checked(case: Case) -> Floats:
        values = np.asarray(field(case), dtype=np.float64)
        if values.shape != case.y.shape:
            told = f"{name} gives values of shape {values.shape} for a grid of {case.y.shape}"
            raise ArgumentError("scores", told, "Give one value at each point")
        # a comparison makes False of a gap
        there: Floats = np.where(np.isnan(case.field("crps")), np.nan, values)
        return there

    OWN[name] = checked
    MEANS[name] = Mean(units)  # type: ignore[arg-type]
    SCORES[name] = Score(long_name, (name,), MEANS[name].units, skill=f"{name}_skill", usual=False)
