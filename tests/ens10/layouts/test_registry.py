"""The registry of layouts: found by folder, small, documented, and respectful of mappings."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from layouttools import FROM_GREENWICH, NORTH_TO_SOUTH, STARTS, layouts_of, values

import ens10.source.layouts as package
from ens10.errors import FileError
from ens10.source import tidy
from ens10.source.layouts import Layout, register, registered_layouts, registry
from ens10.source.names import Names, read_names

FOLDER = Path(package.__file__).parent
HELPERS = {"__init__", "registry", "cells", "level_names"}
FILES = sorted(file for file in FOLDER.glob("*.py") if file.stem not in HELPERS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_layout_is_short_and_cites_its_source(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 40
    assert "Source: https://" in text.partition('"""')[2].partition('"""')[0]


def test_each_file_registers_its_layouts():
    names = [layout.name for layout in registered_layouts()]
    assert len(names) >= len(FILES)
    for layout in registered_layouts():
        assert layout.source.startswith("https://")
        assert layout.special


def forecast(**names):
    dims = ("time", "step", "number", "latitude", "longitude")
    coords = {"time": STARTS, "step": [6, 12], "number": [1, 2, 3], "latitude": NORTH_TO_SOUTH,
              "longitude": FROM_GREENWICH}  # fmt: skip
    fields = {name: (dims, values(kind, (2, 2, 3, 6, 8))) for name, kind in names.items()}
    return xr.Dataset(fields, coords)


def test_other_datasets_match_no_layout():
    assert layouts_of(forecast(t2m="t2m", tp="tp")) == []
    assert layouts_of(forecast(t2m="t2m").rename(latitude="lat", longitude="lon")) == []


def test_a_user_registers_a_layout(monkeypatch):
    registered_layouts()
    monkeypatch.setattr(registry, "_LAYOUTS", dict(registry._LAYOUTS))
    register(
        Layout(
            "mine", "https://example.org", "", lambda dataset: "TMP" in dataset,
            names={"TMP": "t2m", "when": "time"}, accumulation={"RAIN": "6 h"},
        )
    )  # fmt: skip
    raw = forecast(TMP="t2m", RAIN="tp").rename(time="when")
    got = tidy(raw, Names(), "a")
    np.testing.assert_array_equal(got["t2m"], raw["TMP"])
    assert got["RAIN"].attrs["accumulation"] == "6 h"


def test_names_of_a_mapping_are_left_to_it():
    """Files that were mapped before their layout was known are read as before."""
    raw = forecast(temperature_2m="t2m", wind_u_10m="u10")
    raw = raw.rename(time="init_time", step="lead_time", number="ensemble_member")
    dimensions = {"init_time": "time", "lead_time": "step", "ensemble_member": "number"}
    for names in (
        Names({"temperature_2m": "t2m"}, {}, dimensions),
        Names({"temperature_2m": "t2m"}),
    ):
        got = tidy(raw, names, "a")
        assert set(got.data_vars) == {"t2m"}
        np.testing.assert_array_equal(got["t2m"], raw["temperature_2m"])


def test_a_mapping_gives_the_window_of_precipitation(tmp_path):
    path = tmp_path / "names.yaml"
    path.write_text("variables: {rain: tp}\naccumulation: {rain: since start}\n")
    raw = forecast(rain="tp", t2m="t2m")
    got = tidy(raw, read_names(path), "a")["tp"]
    np.testing.assert_array_equal(got, raw["rain"])
    assert got.attrs["accumulation"] == "since start"
    path.write_text("accumulation: {rain: six hours}\n")
    with pytest.raises(FileError, match="the window of rain is 'six hours'"):
        read_names(path)


def test_plans_of_stores_are_as_before():
    """Stores of files without a window or group have the bytes of earlier versions."""
    assert set(Names().record()) == {"variables", "truth", "dimensions", "step_units", "first_step"}
    assert Names(group="a").record()["group"] == "a"
    assert Names(**Names(accumulation={"a": "6 h"}).record()).accumulation == {"a": "6 h"}
