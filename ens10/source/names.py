"""Names of other people's files: a short YAML file instead of code.

variables: {t2m_fc: t2m}         # forecast variables: theirs to ours
truth: {t2m_era5: t2m}           # truth variables in the same file, if there are any
dimensions: {member: number, init: time, lead: step, lat: latitude, lon: longitude}
step: {units: months, first: 1}  # `first`: the step that is the start's own month (or hour 0)

One mapping serves forecasts and truth, unless the truth has one of its own.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ens10.errors import FileError, UnknownNameError
from ens10.untrusted import parse_yaml

_KEYS = ("variables", "truth", "dimensions", "step")
_STEP_KEYS = ("units", "first")
STEP_UNITS = ("h", "months")
NAMES_OPTION, TRUTH_OPTION = "--names", "--truth-names"  # which errors name as the remedy


@dataclass(frozen=True)
class Names:
    """How a file's names map to those of this package.

    Attributes:
        variables: forecast variables, theirs to ours; all of the file's if empty.
        truth: truth variables in the same file, theirs to ours.
        dimensions: dimensions, theirs to ours.
        step_units: "h" or "months", of steps whose units the file does not say.
        first_step: the step whose valid time is the start itself, in the units of the steps.
    """

    variables: dict[str, str] = field(default_factory=dict)
    truth: dict[str, str] = field(default_factory=dict)
    dimensions: dict[str, str] = field(default_factory=dict)
    step_units: str = "h"
    first_step: float = 0


def read_names(path: Path | str) -> Names:
    """The mapping in a YAML file.

    Raises:
        FileError: the file is missing, no YAML, or no mapping of names.
        UnknownNameError: a key or a unit that is not known.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(path, "no such file", "Give the path of a YAML file with a name mapping")
    try:
        content = parse_yaml(path.read_text())
    except ValueError as error:
        raise FileError(path, f"no YAML ({error})", "Mend the file") from error
    if not isinstance(content, dict):
        raise FileError(path, "not a mapping of names", f"Give it the keys {', '.join(_KEYS)}")
    _check_known(path, content, _KEYS)
    tables = {key: _table(path, content, key) for key in _KEYS}
    step = tables.pop("step")
    _check_known(path, step, _STEP_KEYS)
    units = str(step.get("units", "h"))
    if units not in STEP_UNITS:
        raise UnknownNameError(f"step.units in {path}", units, STEP_UNITS)
    first = step.get("first", 0)
    if not isinstance(first, int | float):
        raise FileError(path, f"step.first is {first!r}, not a number", "Give one")
    return Names(
        **{key: {str(k): str(v) for k, v in table.items()} for key, table in tables.items()},
        step_units=units,
        first_step=first,
    )


def _table(path: Path, content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key) or {}
    if not isinstance(table, dict):
        raise FileError(path, f"{key} is no mapping", f"Write it as {key}: {{theirs: ours}}")
    return table


def _check_known(path: Path, content: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in content:
        if key not in known:
            raise UnknownNameError(f"key in {path}", key, known)
