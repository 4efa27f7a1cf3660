"""The commands of the table "Other sources" in docs/real_data.md, run on the imitations."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import test_layout_anemoi as anemoi
import test_layout_dynamical as dynamical
import test_layout_earth2studio as earth2studio
import test_layout_earthkit as earthkit
import test_layout_grib_producers as grib
import test_layout_weatherbench as weatherbench
import test_layout_weathernext as weathernext
import test_stores_of_other_kinds as other_kinds
from layouttools import values

import ens10
from ens10.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "real_data.md"
SECTION = PAGE.read_text().partition("## Other sources")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| ([^|]+?) \| `ens10 ([^`]+)`", SECTION, re.MULTILINE))


def _ifs(path):
    kinds = {"temperature_2m": "t2m", "wind_u_10m": "u10", "geopotential_height_500hpa": "z"}
    fields = {name: values(kind, dynamical.SHAPE) for name, kind in kinds.items()}
    fields["temperature_2m"] -= np.float32(273.15)
    fields["geopotential_height_500hpa"] /= np.float32(9.80665)
    dynamical.write(path, fields)


def _levels(path):
    fields = {name: weatherbench.values(our, [weatherbench.SIZES[d] for d in weatherbench.UPPER])
              for name, our in weatherbench.NAMES.items() if our in "zt"}  # fmt: skip
    weatherbench.write(path, fields)


def _earth2studio(path):
    names = {"t2m": "t2m", "u10m": "u10", "z500": "z"}
    fields = {name: values(kind, earth2studio.SHAPE) for name, kind in names.items()}
    earth2studio.write_zarr(path, fields)


def _earthkit(path):
    raw = earthkit.imitation()
    for field in raw.data_vars.values():
        del field.attrs["_earthkit"]
    raw.to_netcdf(path)


def _inference(path):
    fields = {name: anemoi.cells(kind) for name, kind in anemoi.NAMES.items()}
    anemoi.write_netcdf(path, fields)


def _trajectories(path):
    anemoi.write_dataset(path, anemoi.dataset_values((3,)), anemoi.LEADS)


def _references(path):
    path.write_text(json.dumps(other_kinds.references(path.parent)))


WRITERS = {
    "dynamical.org, IFS ENS": _ifs,
    "dynamical.org, pressure levels": dynamical.write_group,
    "WeatherBench 2, NeuralGCM ENS": _levels,
    "WeatherNext 2, one run": lambda path: weathernext.write(path, "run", weathernext.NAMES),
    "WeatherNext 2, a year": lambda path: weathernext.write(path, "year", weathernext.NAMES),
    "Earth2Studio": _earth2studio,
    "earthkit-data": _earthkit,
    "anemoi-inference": _inference,
    "anemoi-datasets": _trajectories,
    "ECMWF open data, IFS ENS": lambda path: grib.write_open_data(path, grib.IFS),
    "ECMWF open data, AIFS ENS": lambda path: grib.write_open_data(path, grib.AIFS),
    "TIGGE": lambda path: grib.write_tigge(path, ["2t", "10u"]),
    "GEFS reforecast 2": lambda path: grib.write_gefs(
        path, {"tmp_2m": "2t", "ugrd_hgt": "10u"}, grib.STEPS
    ),
    "S2S daily means": lambda path: grib.write_s2s(path, {"first": grib.OPEN_DATA}),
    "icechunk repository": other_kinds.write_icechunk,
    "kerchunk references": _references,
}  # fmt: skip


def test_each_source_has_a_row():
    assert list(ROWS) == list(WRITERS)


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("source", ROWS)
def test_command(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(ROWS[source])
    path = tmp_path / words[1].partition("://")[2] if "://" in words[1] else tmp_path / words[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[source](path)
    words[1] = str(path)
    if "--steps" in words:  # the imitations are short: their last two leads
        at = words.index("--steps")
        words[at + 1 : at + 3] = ["3", "6"] if source.startswith("dynamical") else ["6", "12"]
    assert main(words) == 0
    chosen = words[words.index("--variables") + 1 :] if "--variables" in words else ["avg_2t"]
    for name in chosen[: next((n for n, w in enumerate(chosen) if w.startswith("--")), None)]:
        kind = "pl" if name in ("z", "t") else "sfc"
        assert np.isfinite(ens10.open_store(tmp_path / "store.zarr", kind)[name]).any()
