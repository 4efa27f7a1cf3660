"""GRIB 2 messages with the keys that producers set, and their values as ecCodes reads them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eccodes
import numpy as np

ROWS, COLUMNS = 6, 8
NORTH_TO_SOUTH = np.arange(75.0, -76.0, -30.0)
_KEYS = {
    "2t": {"shortName": "2t"},
    "10u": {"shortName": "10u"},
    "t850": {"shortName": "t", "typeOfLevel": "isobaricInhPa", "level": 850},
    "gh500": {"shortName": "gh", "typeOfLevel": "isobaricInhPa", "level": 500},
    "tp": {"paramId": 228},
    "tp_kg": {"paramId": 228228},
    "avg_2t": {"paramId": 228004},
}  # fmt: skip
_RANGES = {"2t": (230, 310), "10u": (-20, 20), "t850": (230, 280), "gh500": (5000, 5900),
           "tp": (0, 0.02), "tp_kg": (0, 20), "avg_2t": (230, 310)}  # fmt: skip


def message(name: str, number: int, steps: tuple[int, int] | int, west: float = 0.0,
            date: int = 20260101, **keys: Any) -> bytes:  # fmt: skip
    """One message.

    Args:
        name: a key of `_KEYS`.
        number: of the member; 0 is the control.
        steps: end of the forecast in hours, or begin and end of its window.
        west: longitude of the first column.
        date: of the start, 00 UTC.
        keys: of the producer, set last; those in `first` are set before all others.
    """
    is_window = isinstance(steps, tuple)
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    east = (west + 360.0 - 45.0) % 360.0
    grid = {"Ni": COLUMNS, "Nj": ROWS, "latitudeOfFirstGridPointInDegrees": 75.0,
            "latitudeOfLastGridPointInDegrees": -75.0, "longitudeOfFirstGridPointInDegrees": west,
            "longitudeOfLastGridPointInDegrees": east, "iDirectionIncrementInDegrees": 45.0,
            "jDirectionIncrementInDegrees": 30.0}  # fmt: skip
    time = {"dataDate": date, "dataTime": 0}
    member = {"perturbationNumber": number, "typeOfEnsembleForecast": 1 if number == 0 else 3,
              "typeOfProcessedData": 3 if number == 0 else 4}  # fmt: skip
    if is_window:
        time["stepRange"] = f"{steps[0]}-{steps[1]}"
    else:
        time["step"] = steps
    template = {"productDefinitionTemplateNumber": 11 if is_window else 1}
    first = keys.pop("first", {})
    for key, value in {
        **first,
        **template,
        **_KEYS[name],
        **time,
        **member,
        **grid,
        **keys,
    }.items():
        eccodes.codes_set(handle, key, value)
    low, high = _RANGES[name]
    seed = [number, date, *np.atleast_1d(steps).tolist(), *map(ord, name)]
    field = np.random.default_rng(seed).uniform(low, high, ROWS * COLUMNS)
    eccodes.codes_set(handle, "bitsPerValue", 16)
    eccodes.codes_set_values(handle, field)
    content = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return content


def read(folder: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Keys and values (rows, columns from Greenwich) of the messages in a folder, by ecCodes."""
    names = ("shortName", "endStep", "perturbationNumber", "dataDate")
    for path in sorted(folder.iterdir()):
        if path.suffix in (".index", ".idx"):
            continue
        with path.open("rb") as file:
            while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                keys = {name: eccodes.codes_get(handle, name) for name in names}
                west = eccodes.codes_get(handle, "longitudeOfFirstGridPointInDegrees")
                field = eccodes.codes_get_values(handle).reshape(ROWS, COLUMNS)
                yield keys, np.roll(field, round(west / 45.0), axis=1)
                eccodes.codes_release(handle)


def cube(folder: Path, name: str, steps: list[int], numbers: list[int], dates: list[int]) -> Any:
    """Values of a parameter over (date, step, number, row, column), float64; NaN where missing."""
    want = np.full((len(dates), len(steps), len(numbers), ROWS, COLUMNS), np.nan)
    for keys, field in read(folder):
        if name == keys["shortName"] and keys["endStep"] in steps:
            place = (dates.index(keys["dataDate"]), steps.index(keys["endStep"]),
                     numbers.index(keys["perturbationNumber"]))  # fmt: skip
            assert np.isnan(want[place]).all(), keys
            want[place] = field
    return want
