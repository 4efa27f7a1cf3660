"""The world of a simulated atmosphere, without its model: fields, production, files and scores."""

import csv
import datetime as dt
import json
import os
import runpy
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import properscoring
import pytest
from scipy.optimize import curve_fit

from ens10.channels import field_of
from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.experiments.runs.claims import claim
from ens10.experiments.studies.physical_world import evaluation, fields, files, production
from ens10.experiments.studies.physical_world.__main__ import main
from ens10.experiments.studies.physical_world.production import PhysicalWorld, unit_path
from ens10.experiments.studies.physical_world.years import years_markdown, years_table

SIGMA = np.array([0.025, 0.095, 0.2, 0.34, 0.51, 0.685, 0.835, 0.95])
EDGES = np.array([0.0, 0.05, 0.14, 0.26, 0.42, 0.6, 0.77, 0.9, 1.0])
GAUSSIAN = np.degrees(np.arcsin(np.polynomial.legendre.leggauss(48)[0]))
LONGITUDE = np.radians(np.arange(96) * 3.75)[:, None]
WORLD = PhysicalWorld((1998, 1999), ("0104", "0201", "0301"), (1999,), members=3)


class FakeModel:
    """A small chaotic sequence in the place of the atmosphere, with fields of real size."""

    def __init__(self, fail_after=None):
        self.asked, self._fail_after = [], fail_after

    def answer(self, request):
        if self._fail_after == len(self.asked):
            raise KeyboardInterrupt
        self.asked.append((request["start_day"], tuple(request["ensembles"])))
        x = sum(request["seed"]) % 97 / 97
        if request["checkpoint"] is not None:
            with np.load(request["checkpoint"]) as before:
                x = 3.9 * before["x"] * (1 - before["x"])
        arrays = {"latitude": GAUSSIAN, "sigma": SIGMA, "sigma_edges": EDGES}
        arrays["surface_geopotential"] = np.full((96, 48), 300.0)
        for kind, members in (("nature", 1), *((name, 3) for name in request["ensembles"])):
            rng = np.random.default_rng([*request["seed"], len(kind)])
            noise = rng.normal(size=(members, 3, 1, 1, 1)) + x
            arrays[f"{kind}_levels"] = atmosphere(noise)
            parts = (1e5, 280.0, 281.0, 3.0, 4.0, 2.0)
            flat = np.stack([np.full((96, 48), part) for part in parts])
            arrays[f"{kind}_surface"] = flat + noise
        with Path(request["fields"]).open("wb") as out:
            np.savez(out, **arrays)
        with Path(request["next"]).open("wb") as out:
            np.savez(out, x=x)


def atmosphere(noise):
    """Model-level fields, (member, step, 5, 8, lon, lat), near 250 K and at rest."""
    height = -287.0 * 250.0 * np.log(SIGMA)
    column = np.stack([height, np.full(8, 250.0), np.zeros(8), np.zeros(8), np.full(8, 1e-3)])
    wave = np.cos(LONGITUDE) * np.cos(np.radians(GAUSSIAN))
    scale = np.array([100.0, 2.0, 3.0, 3.0, 1e-4])[:, None, None, None]
    return column[..., None, None] + scale * wave * noise[..., None]


# --- fields -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pressure", [20000.0, 85000.0, 99000.0])
def test_geopotential_of_an_isothermal_atmosphere_is_exact_at_every_pressure(pressure):
    surface = np.array([[101000.0, 97000.0]])
    z = -287.0 * 260.0 * np.log(SIGMA)[:, None, None] * np.ones_like(surface)
    found = fields.to_pressure(z, SIGMA, surface, pressure, "linear")
    np.testing.assert_allclose(found, -287.0 * 260.0 * np.log(pressure / surface), rtol=1e-12)


def test_temperature_below_the_lowest_level_follows_the_standard_lapse_rate():
    surface = np.array([[70000.0]])
    exponent = 287.0 * 6.5e-3 / 9.80665
    t = (288.0 * SIGMA**exponent)[:, None, None]
    found = fields.to_pressure(t, SIGMA, surface, 85000.0, "lapse")
    np.testing.assert_allclose(found, 288.0 * (85000.0 / surface) ** exponent, rtol=1e-12)
    constant = fields.to_pressure(t, SIGMA, surface, 85000.0)
    np.testing.assert_allclose(constant, t[-1], rtol=1e-12)


def test_above_the_highest_level_its_value_is_taken():
    field = np.arange(8.0)[:, None, None]
    assert fields.to_pressure(field, SIGMA, np.full((1, 1), 1e5), 100.0).item() == 0.0


def test_sea_level_pressure_of_a_standard_atmosphere_is_that_of_its_sea_level():
    z, t0, p0 = np.array([[0.0, 1500.0, 4000.0]]), 288.15, 101325.0
    power = 9.80665 / (287.0 * 6.5e-3)
    surface = p0 * (1 - 6.5e-3 * z / t0) ** power
    lowest = (t0 - 6.5e-3 * z) * 0.95 ** (1 / power)
    found = fields.sea_level_pressure(surface, lowest, 0.95, 9.80665 * z)
    np.testing.assert_allclose(found, p0, rtol=1e-12)
    cold = fields.sea_level_pressure(62000.0, 215.0 * 0.95 ** (1 / power), 0.95, 9.80665 * 3500.0)
    mean = np.exp(3500.0 * 9.80665 / (287.0 * (235.0 + 6.5e-3 * 3500.0 / 2)))  # of 215 and 255 K
    assert cold == pytest.approx(62000.0 * mean, rel=2e-3)


def test_scalars_are_interpolated_linearly_in_latitude_and_poles_have_one_value():
    field = 2.0 * GAUSSIAN + np.zeros((3, 96, 1))
    found = fields.to_grid(field, GAUSSIAN)
    rows = fields.GRID.latitude()
    assert found.shape == (3, 46, 96)
    inner = np.broadcast_to(2.0 * rows[1:-1, None], (44, 96))
    np.testing.assert_allclose(found[1, 1:-1], inner, atol=1e-9)
    np.testing.assert_allclose(found[:, 0], 2.0 * GAUSSIAN[-1])
    varied = fields.to_grid(np.cos(LONGITUDE) + 0 * GAUSSIAN, GAUSSIAN)
    np.testing.assert_allclose(varied[[0, -1]], 0.0, atol=1e-12)


@pytest.mark.parametrize(("pole", "sign"), [(0, -1.0), (-1, 1.0)])
def test_a_wind_across_a_pole_is_one_vector_seen_from_each_longitude(pole, sign):
    x, y = 3.0, -5.0
    u = (y * np.cos(LONGITUDE) - x * np.sin(LONGITUDE)) + 0 * GAUSSIAN
    v = sign * (x * np.cos(LONGITUDE) + y * np.sin(LONGITUDE)) + 0 * GAUSSIAN
    found = fields.wind_to_grid(u, v, GAUSSIAN)
    np.testing.assert_allclose(found[0][pole], u[:, 0], atol=1e-12)
    np.testing.assert_allclose(found[1][pole], v[:, 0], atol=1e-12)
    np.testing.assert_allclose(np.hypot(*found)[pole], np.hypot(x, y), atol=1e-12)


def test_fields_have_ens10_units_and_no_negative_amounts():
    grid = fields.ModelGrid(GAUSSIAN, SIGMA, EDGES, np.zeros((96, 48)))
    levels = atmosphere(np.zeros((1, 1, 1, 1, 1)))[0, 0]
    levels[4] = -1e-5
    surface = np.stack([np.full((96, 48), v) for v in (1e5, 280.0, 281.0, 3.0, 4.0, 2.0)])
    found = fields.derive(levels, surface, grid)
    value = {channel: found[n].mean() for n, channel in enumerate(fields.CHANNELS)}
    assert found.dtype == np.float32
    assert value["tp", 0] == pytest.approx(0.002)  # 2 kg m-2 are 2 mm
    assert value["tcw", 0] == value["q", 850] == 0.0
    inner = found[fields.CHANNELS.index(("si10", 0)), 1:-1]
    np.testing.assert_allclose(inner, 5.0, rtol=1e-6)
    assert value["t", 500] == pytest.approx(250.0)
    assert value["msl", 0] == pytest.approx(1e5)
    levels[4] = 2e-3
    wet = fields.derive(levels, surface, grid)[fields.CHANNELS.index(("tcw", 0))]
    np.testing.assert_allclose(wet, 2e-3 * 1e5 / 9.80665, rtol=1e-6)


def test_packing_errs_by_at_most_half_of_a_65535th_of_the_range():
    values = np.random.default_rng(0).normal(size=(2, 3, 46, 96)) * [[[[10]], [[0]], [[1e5]]]]
    packed = fields.pack_fields(values)
    error = np.abs(fields.unpack_fields(packed) - values).max((-1, -2))
    extent = np.ptp(values, (-1, -2))
    assert (error <= extent / 65535 * 0.51 + 1e-3 * (extent > 1e4)).all()
    assert packed["packed"].dtype == np.uint16


# --- production ---------------------------------------------------------------------------------


def produce(folder, model, world=WORLD, **options):
    return production.simulate(folder, world, lambda: model, report=lambda _: None, **options)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("physical")
    assert produce(folder, FakeModel()) == []
    return folder


def test_units_have_nature_and_their_years_ensembles_and_one_checkpoint_stays(complete):
    assert set(production.read_unit(complete, 1998, "0201")) == {"nature", "forecast"}
    unit = production.read_unit(complete, 1999, "0201")
    assert unit["nature"].shape == (3, 28, 46, 96)
    assert unit["perfect"].shape == unit["forecast"].shape == (3, 3, 28, 46, 96)
    left = sorted(path.name for path in (complete / "checkpoints" / "1998").iterdir())
    assert left == ["0301.npz", "0301.sha256"]
    assert not list(complete.rglob("*.raw"))


@pytest.mark.parametrize("after", [1, 4])
def test_an_interrupted_production_resumes_to_the_same_bytes(tmp_path, complete, after):
    with pytest.raises(KeyboardInterrupt):
        produce(tmp_path, FakeModel(fail_after=after))
    model = FakeModel()
    assert produce(tmp_path, model) == []
    assert len(model.asked) == 6 - after  # no unit twice
    wanted = production.checksums(complete, WORLD.units)
    assert production.checksums(tmp_path, WORLD.units) == wanted
    assert len(wanted) == 6


def test_a_damaged_checkpoint_is_not_continued_from(tmp_path, complete):
    with pytest.raises(KeyboardInterrupt):
        produce(tmp_path, FakeModel(fail_after=2))
    damaged = tmp_path / "checkpoints" / "1998" / "0201.npz"
    with np.load(damaged) as file:
        np.savez(damaged, **{name: 1.01 * file[name] for name in file.files})
    model, told = FakeModel(), []
    assert production.simulate(tmp_path, WORLD, lambda: model, report=told.append) == []
    assert "1998-0201: the checksum of its checkpoint is wrong" in told[0]
    assert model.asked[0][1] == ()  # nature alone for what is kept
    assert production.checksums(tmp_path, WORLD.units) == production.checksums(
        complete, WORLD.units
    )


def test_a_lost_unit_is_simulated_again_by_nature_alone_for_the_kept_ones(tmp_path, complete):
    produce(tmp_path, FakeModel())
    unit_path(tmp_path, 1999, "0201").unlink()
    model = FakeModel()
    assert produce(tmp_path, model) == []
    assert [ensembles for _, ensembles in model.asked] == [(), ("forecast", "perfect")]
    assert production.checksums(tmp_path, WORLD.units) == production.checksums(
        complete, WORLD.units
    )


def test_a_unit_killed_before_its_end_costs_that_unit_alone(tmp_path):
    produce(tmp_path, FakeModel(), stop=time.monotonic() + 1e6)
    for path in (unit_path(tmp_path, 1998, "0301"), tmp_path / "checkpoints/1998/0301.sha256"):
        path.unlink()
    # what a killed process leaves: the checkpoint before, an incomplete unit, temporary files
    request = {"checkpoint": None, "start_day": 0, "seed": [0, 1998, 104], "ensembles": []}
    before = tmp_path / "checkpoints" / "1998" / "0201.npz"
    FakeModel().answer({**request, "fields": str(tmp_path / "f"), "next": str(before)})
    production._write_checksum(before)
    (before.parent / ".0301.npz.00000000.tmp").write_bytes(b"half")
    model = FakeModel()
    assert produce(tmp_path, model) == []
    assert len(model.asked) == 1
    assert not list(before.parent.glob(".*"))


def test_a_year_that_another_process_claims_is_left_to_it(tmp_path):
    with claim(tmp_path / "claims" / "1998"):
        missing = produce(tmp_path, FakeModel())
    assert missing == [(1998, date) for date in WORLD.dates]
    assert produce(tmp_path, FakeModel()) == []


def test_a_year_that_another_process_ends_before_the_claim_starts_no_model(tmp_path, monkeypatch):
    produce(tmp_path, FakeModel())
    looks = []

    def not_yet(path):
        looks.append(path)
        return len(looks) > 1 and path.exists()

    monkeypatch.setattr(production, "is_complete", not_yet)
    assert production.simulate(tmp_path, WORLD, pytest.fail, report=str) == []


def test_files_of_a_killed_process_are_removed(tmp_path):
    production.simulate(tmp_path, WORLD, FakeModel, report=str, stop=time.monotonic())
    folder = tmp_path / "units" / "1998"
    folder.mkdir(parents=True)
    for name in ("0201.raw", ".0201.npz.0a1b2c3d.tmp"):
        (folder / name).write_bytes(b"half")
    produce(tmp_path, FakeModel())
    assert {path.suffix for path in folder.iterdir()} == {".npz", ".sha256"}


def test_no_unit_begins_after_the_time_is_over(tmp_path):
    model = FakeModel()
    assert len(produce(tmp_path, model, stop=-1.0)) == 6
    assert model.asked == []


def test_another_world_in_the_folder_and_a_damaged_unit_are_refused(tmp_path, complete):
    produce(tmp_path, FakeModel())
    other = PhysicalWorld(WORLD.years, WORLD.dates, WORLD.perfect_years, members=4)
    with pytest.raises(FileError, match="another world"):
        produce(tmp_path, FakeModel(), other)
    path = unit_path(tmp_path, 1998, "0104")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="checksum is wrong"):
        production.read_unit(tmp_path, 1998, "0104")
    with pytest.raises(MissingDataError, match="1997-0104"):
        production.read_unit(complete, 1997, "0104")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"years": ()}, "years: there are none"),
        ({"dates": ("0104", "0106")}, "less than 4 days"),
        ({"dates": ("0708", "0104")}, "not in the order of the calendar"),
        ({"dates": ("0104", "0104")}, "some are repeated"),
        ({"dates": ("104",)}, "'104' is not of the form MMDD"),
        ({"dates": ("0230",)}, "no date of the calendar"),
        ({"perfect_years": (1998, 2004)}, "2004 not simulated"),
        ({"time_step": 0}, "time_step: 0 cannot be used"),
        ({"time_step": 2650}, "time_step: 2650 cannot be used. Pass seconds that divide a day"),
        ({"members": 1}, "members: 1 cannot be used. Pass 2 to 254"),
        ({"members": 255}, "Pass 2 to 254"),
        ({"spin_up": 59}, "spin_up: 59 cannot be used. Pass 60 days or more"),
        ({"amplitude": -0.1}, "amplitude: -0.1 cannot be used"),
        ({"amplitude": float("nan")}, "amplitude: nan"),
        ({"diffusion": 0.0}, "diffusion: 0.0 cannot be used. Pass a finite number above 0"),
        ({"diffusion": float("inf")}, "diffusion: inf"),
        ({"model_error": float("inf")}, "model_error: inf cannot be used"),
        ({"seed": -1}, "seed: -1 cannot be used"),
    ],
)
def test_impossible_worlds_are_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        PhysicalWorld(**{"years": (1998,), **change})


def test_default_dates_are_every_second_of_ens10():
    assert len(production.DATES) == 52
    assert production.DATES[:3] == ("0104", "0111", "0118")


WORKER = """#!{python}
import json, sys
print("settings", json.loads(sys.argv[2])["members"], file=sys.stderr)
for line in sys.stdin:
    request = json.loads(line)
    if request["start_day"] == 2:
        sys.exit(3)
    bad = "unstable" if request["start_day"] == 1 else None
    print(json.dumps({{"error": bad}}), flush=True)
"""


def test_the_worker_process_answers_fails_with_its_reason_or_ends(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(WORKER.format(python=sys.executable))
    python.chmod(0o755)
    log = tmp_path / "worker.log"
    process = production.JcmProcess(python, WORLD, tmp_path, log)
    try:
        process.answer({"start_day": 0})
        with pytest.raises(FileError, match="unstable"):
            process.answer({"start_day": 1})
        with pytest.raises(
            FileError, match=r"worker\.log: the simulation failed: the worker ended"
        ):
            process.answer({"start_day": 2})
    finally:
        process.close()
    assert "settings 3" in log.read_text()


def test_the_environment_has_the_versions_of_the_kept_checksums():
    versions = Path(production.__file__).with_name("constraints.txt").read_text().split()
    assert {"jcm==3.0.0", "jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6"} <= set(versions)


def test_nothing_of_ens10_imports_the_simulation():
    package = "ens10.experiments.studies.physical_world"
    code = f"import sys, {package}.__main__; print('jax' in sys.modules, *sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words = found.stdout.split()
    assert words[0] == "False"
    assert f"{package}.production" in words
    assert f"{package}.simulation" not in words


# --- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory, complete):
    from ens10.convert import prepare

    folder = tmp_path_factory.mktemp("written")
    assert files.write_world(complete, folder / "world") == 6
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")
    return folder


def test_a_prepared_store_holds_the_units_values(complete, written):
    import ens10

    unit = production.read_unit(complete, 1999, "0201")
    opened = {kind: ens10.open_store(written / "store.zarr", kind) for kind in ("sfc", "pl")}
    assert dict(opened["sfc"].sizes) == {
        "time": 6, "step": 3, "number": 3, "latitude": 46, "longitude": 96
    }  # fmt: skip
    for n, (name, level) in enumerate(fields.CHANNELS):
        field = field_of(opened["pl" if level else "sfc"], f"{name}_{level}" if level else name)
        found = field.sel(time="1999-02-01").transpose("number", "step", ...).to_numpy()
        step = np.ptp(unit["forecast"][:, :, n], (-1, -2)).max() / 65535
        np.testing.assert_allclose(
            np.squeeze(found), unit["forecast"][:, :, n], atol=1.01 * step + 1e-6, rtol=1e-6
        )
    truth = ens10.open_store(written / "store.zarr", "truth")
    for name, channel in (("z_500", ("z", 500)), ("t2m", ("t2m", 0)), ("si10", ("si10", 0)),
                          ("tp", ("tp", 0)), ("t_850", ("t", 850))):  # fmt: skip
        found = field_of(truth, name).sel(time="1999-02-01", step=48).squeeze().to_numpy()
        wanted = unit["nature"][2, fields.CHANNELS.index(channel)]
        np.testing.assert_allclose(found, wanted, atol=np.ptp(wanted) / 65535 + 1e-6, rtol=1e-6)


def test_inspect_finds_the_files_whole(written, capsys):
    from ens10.cli import main as ens10_main

    assert ens10_main(["inspect", str(written / "world")]) == 0
    text = capsys.readouterr().out
    assert "si10" in text
    assert "damaged" not in text.replace("0 damaged", "")


def test_writing_refuses_missing_units_and_existing_folders(tmp_path, complete, written):
    with pytest.raises(FileError, match="is there already"):
        files.write_world(complete, written / "world")
    with pytest.raises(KeyboardInterrupt):
        produce(tmp_path, FakeModel(fail_after=1))
    with pytest.raises(MissingDataError, match="5 parts are missing: 1998-0201"):
        files.write_world(tmp_path, tmp_path / "world")
    WORLD.save(tmp_path / "begun")
    with pytest.raises(FileError, match="none of its 6 units is simulated"):
        files.write_world(tmp_path / "begun", tmp_path / "world", available=True)
    assert files.write_world(tmp_path, tmp_path / "world", available=True) == 1
    names = sorted(path.name for path in (tmp_path / "world").iterdir())
    assert names == ["output.pl.20180104", "output.sfc.20180104", "truth"]


# --- variants of the forecast model -------------------------------------------------------------


@dataclass(frozen=True)
class FakeScheme:
    trcnv: float = 6.0
    chl: float = 1.2e-3


@dataclass(frozen=True)
class FakeParameters:
    convection: FakeScheme = field(default_factory=FakeScheme)
    surface_flux: FakeScheme = field(default_factory=FakeScheme)

    @classmethod
    def default(cls):
        return cls()


@pytest.fixture
def simulation(monkeypatch):
    """The module of the simulation, with stand-ins for jax and jcm."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    names = """jax jax.numpy jax_datetime jcm jcm.date jcm.diffusion jcm.dycore
        jcm.dycore.dinosaur jcm.dycore.dinosaur.dycore jcm.forcing jcm.model jcm.physics
        jcm.physics.speedy jcm.physics.speedy.params jcm.physics.speedy.speedy_coords
        jcm.physics.speedy.speedy_terms jcm.terrain"""
    modules = {name: MagicMock(__file__="jcm.py") for name in names.split()}
    modules["jax"].numpy = modules["jax.numpy"]
    modules["jax"].tree_util.tree_flatten = lambda state: ([state], None)
    modules["jax"].tree_util.tree_unflatten = lambda _, parts: parts[0]
    modules["jax.numpy"].asarray = lambda x, *_: np.asarray(x)
    modules["jcm.physics.speedy.params"].Parameters = FakeParameters
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with warnings.catch_warnings():
        path = Path(production.__file__).with_name("simulation.py")
        return SimpleNamespace(**runpy.run_path(str(path)))


@pytest.mark.parametrize("variant", production.CHANGES)
def test_a_variant_changes_the_forecast_model_and_leaves_nature_alone(simulation, variant):
    changes = {
        scheme: {name: value for name, value in values.items() if hasattr(FakeScheme, name)}
        for scheme, values in production.CHANGES[variant].items()
        if hasattr(FakeParameters(), scheme)
    }
    settings = {"time_step": 2700, "diffusion": 0.8, "model_error": 0.5, "changes": changes}
    physics = simulation.Simulator.__init__.__globals__["speedy_physics"]
    simulation.Simulator(settings, perturbed=False)
    assert physics.call_args.args == (FakeParameters(),)
    simulation.Simulator(settings, perturbed=True)
    (moved,) = physics.call_args.args
    half = (6.0 + production.CHANGES[variant]["convection"]["trcnv"]) / 2
    assert moved.convection.trcnv == pytest.approx(half)
    assert moved.convection.chl == 1.2e-3
    flux = (1.2e-3 + production.CHANGES[variant]["surface_flux"]["chl"]) / 2
    assert moved.surface_flux.chl == pytest.approx(flux)
    # from the other side of nature than the other variant
    assert (half > 6.0) == (flux > 1.2e-3) == (variant == "first")


def test_variants_have_one_analysis_and_members_of_their_own(simulation):
    base = (np.full(1, 280.0), None, [[np.full(1, float(n))] for n in range(40)])
    members = {}
    for stream in (1, 2):
        settings = {"amplitude": 1.0, "members": 2000, "lead_days": 0, "stream": stream}
        worker = simulation.Worker(settings)
        worker._models["forecast"] = SimpleNamespace(advance=lambda x, c, _: (x, c, (x,)))
        runs = worker._ensemble("forecast", base, 0, [0, 2002, 104])
        members[stream] = np.array([run[0][0][0] for run in runs])
    window = np.arange(35.0) - 17.0
    weights = np.random.default_rng([0, 2002, 104, 1]).standard_normal(35) / np.sqrt(34)
    deviation = np.sqrt((window**2).sum() / 34)
    for values in members.values():
        analysis = 280 + weights @ window
        assert values.mean() == pytest.approx(analysis, abs=4 * deviation / np.sqrt(2000))
        assert values.std() == pytest.approx(deviation, rel=0.06)
    assert abs(np.corrcoef(members[1], members[2])[0, 1]) < 0.1


def test_the_variant_is_an_option_that_the_simulation_receives(tmp_path, capsys):
    python, work = tmp_path / "environment" / "bin" / "python", tmp_path / "work"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$2" > {tmp_path}/settings.json\n')
    python.chmod(0o755)
    command = ["simulate", str(work), "--environment", str(tmp_path / "environment")]
    command += ["--years", "1998", "--perfect-years", "none", "--dates", "0104"]
    sent = {}
    for variant in production.CHANGES:
        folder = [word.replace(str(work), f"{work}-{variant}") for word in command]
        assert main([*folder, "--variant", variant]) == 1  # the stand-in simulates nothing
        assert "the worker ended" in capsys.readouterr().err
        sent[variant] = json.loads((tmp_path / "settings.json").read_text())
        assert sent[variant].pop("changes") == production.CHANGES[variant]
    assert (sent["first"].pop("stream"), sent["second"].pop("stream")) == (1, 2)
    own = {name for name in sent["first"] if sent["first"][name] != sent["second"][name]}
    assert own == {"variant", "cache"}
    assert PhysicalWorld.load(tmp_path / "work-second").variant == "second"
    with pytest.raises(UnknownNameError, match="first, second"):
        PhysicalWorld((1998,), variant="third")


def test_worlds_from_before_variants_are_of_the_first(tmp_path):
    WORLD.save(tmp_path)
    path = tmp_path / "world.json"
    settings = json.loads(path.read_text())
    assert settings.pop("variant") == "first"
    path.write_text(json.dumps(settings))
    assert PhysicalWorld.load(tmp_path) == WORLD
    assert "variant" not in production.describe(WORLD)
    assert "variant second" in production.describe(replace(WORLD, variant="second"))


# --- evaluation ---------------------------------------------------------------------------------

STARTS = [dt.date(year, month, 4) for year in (1998, 1999) for month in range(1, 13)]


def made_case(bias=0.0, spread=1.0, seed=0, members=4):
    """Truth N(0, 2^2) and members N(bias, (2 spread)^2), independent; perfect members N(0, 2^2)."""
    rng = np.random.default_rng(seed)
    shape = (len(STARTS), members, 46, 96)
    forecast = bias + 2 * spread * rng.normal(size=shape)
    perfect, truth = 2 * rng.normal(size=shape), 2 * rng.normal(size=(len(STARTS), 46, 96))
    return evaluation.Case(forecast, truth, perfect, STARTS, np.ones(len(STARTS), bool))


def test_area_mean_of_a_squared_sine_is_a_third():
    field = np.broadcast_to(np.sin(np.radians(fields.GRID.latitude()))[:, None] ** 2, (46, 96))
    assert evaluation.area_mean(field) == pytest.approx(1 / 3, rel=2e-3)


def test_bias_share_leaves_out_the_sampling_variance():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(8, 46, 96))
    assert evaluation.bias_share(noise) == pytest.approx(0.0, abs=0.01)
    assert evaluation.bias_share(1.0 + noise) == pytest.approx(0.5, abs=0.01)


def test_a_bias_with_an_annual_cycle_is_predicted_at_other_dates():
    def cycle(starts, amplitude):
        days = np.array([start.timetuple().tm_yday for start in starts])
        return 2.0 + amplitude * np.cos(2 * np.pi * (days - 30) / 365.25)

    rng = np.random.default_rng(1)
    clean = cycle(STARTS, 1.0)[:, None, None] + 1e-6 * rng.normal(size=(24, 46, 96))
    at = [dt.date(2001, 5, 17), dt.date(2001, 11, 1)]
    found = evaluation.predict_bias(clean, STARTS, at)
    np.testing.assert_allclose(found, np.broadcast_to(
        cycle(at, 1.0)[:, None, None], found.shape), atol=1e-5)  # fmt: skip
    # an independent fit of one noisy point, where the signal is far above the noise
    noisy = clean + 0.01 * rng.normal(size=clean.shape)
    days = np.array([start.timetuple().tm_yday for start in STARTS])

    def formula(day, a, b, c):
        angle = 2 * np.pi * day / 365.25
        return a + b * np.cos(angle) + c * np.sin(angle)

    values, _ = curve_fit(formula, days, noisy[:, 7, 5])
    wanted = formula(at[0].timetuple().tm_yday, *values)
    assert evaluation.predict_bias(noisy, STARTS, at)[0, 7, 5] == pytest.approx(wanted, abs=1e-3)


def test_noise_without_bias_is_not_taken_for_bias():
    noise = np.random.default_rng(2).normal(size=(24, 46, 96))
    found = evaluation.predict_bias(noise, STARTS, STARTS)
    assert np.sqrt((found**2).mean()) < 0.1  # 0.35 without shrinkage: sqrt(3 / 24)


def test_a_reliable_ensemble_has_nothing_to_correct():
    line = evaluation.evaluate("t2m", 48, made_case())
    assert line.spread_error == pytest.approx(1.0, abs=0.01)
    assert line.perfect_spread_error == pytest.approx(1.0, abs=0.01)
    assert line.perfect_ranks < 0.02
    assert line.bound == pytest.approx(2 / np.sqrt(np.pi), rel=0.01)  # CRPS of N(0, 2^2)
    assert line.rmse == pytest.approx(2 * np.sqrt(5 / 4), rel=0.01)


def test_emos_reaches_the_closed_form_where_spread_is_small_and_bias_large():
    case = made_case(bias=3.0, spread=0.2, members=10)
    line = evaluation.evaluate("t2m", 48, case)
    x, y = np.moveaxis(case.forecast, 1, -1), case.truth
    oracle = evaluation.area_mean(properscoring.crps_ensemble(y, x)).mean()
    assert line.raw == pytest.approx(oracle, rel=1e-9)
    # the mean of the members is noise of 0.4 / sqrt(10) around a truth without signal
    best = np.sqrt(4 + 0.16 / 10) / np.sqrt(np.pi)
    # the bias of 12 dates has a sampling variance of 4 / 12
    assert best < line.emos < 1.03 * best * np.sqrt(1 + 1 / 12)
    assert line.emos < line.unbiased < line.raw
    assert line.removed == pytest.approx(100 * (line.raw - line.emos) / line.raw)
    assert line.bias_share == pytest.approx(9 / 13, abs=0.02)


def flow_case(slopes, noise=1.0, years=(1998, 1999, 2000)):
    """Errors of a bias, slopes times (anomaly, its difference east to west, and south to north)."""
    rng = np.random.default_rng(3)
    starts = [dt.date(year, month, day) for year in years for month in range(1, 13)
              for day in (4, 18)]  # fmt: skip
    mean = rng.normal(size=(len(starts), 46, 96))
    eastward = np.roll(mean, -1, -1) - np.roll(mean, 1, -1)
    northward = np.gradient(mean, axis=-2)
    parts = zip(slopes, (mean, eastward, northward), strict=True)
    error = 5.0 + sum(slope * part for slope, part in parts) + noise * rng.normal(size=mean.shape)
    members = np.stack([mean - 1, mean + 1], axis=1) + 280.0
    return evaluation.Case(members, mean + 280.0 - error, None, starts, np.ones(len(starts), bool))


@pytest.mark.parametrize(
    ("slopes", "variance"),
    [((0.5, 0, 0), 0.25), ((0, 0.5, 0), 0.5), ((0, 0, 1.0), 0.5), ((0, 0, 0), 0.0)],
)
def test_the_share_of_the_flow_is_that_of_the_errors_made(slopes, variance):
    share = evaluation.flow_share(flow_case(slopes))
    # 48 training dates: three predictors and three coefficients of the season cost some percent
    assert share == pytest.approx(variance / (variance + 1), abs=0.04)


def test_the_share_of_the_flow_is_predicted_from_other_years():
    case = flow_case((0.5, 0, 0))
    other = np.array([start.year for start in case.starts]) != 1998
    error = case.error
    error[other] = np.random.default_rng(4).normal(size=error[other].shape)
    truth = case.forecast.mean(1) - error
    only = evaluation.Case(case.forecast, truth, None, case.starts, ~other)
    # what is found in 1999 and 2000 does not hold in 1998, whose own errors are not seen
    assert evaluation.flow_share(only) == pytest.approx(0.0, abs=0.02)
    assert evaluation.flow_share(flow_case((0.5, 0, 0))) > 0.15


def test_a_table_of_years_scores_each_two_years_with_corrections_from_all_others():
    case = flow_case((0.5, 0, 0), years=(1998, 1999, 2000))
    frame = years_table({("t2m", 24): case, ("t2m", 48): case, ("tp", 48): case})
    assert frame[["target", "years", "dates"]].to_numpy().tolist() == [
        ["t2m", "1998-1999", 48], ["t2m", "2000", 24], ["tp", "1998-1999", 48], ["tp", "2000", 24]
    ]  # fmt: skip
    last = np.array([start.year == 2000 for start in case.starts])
    line = evaluation.evaluate("t2m", 48, replace(case, score_mask=last))
    kept = frame.iloc[1]
    for name in ("raw", "spread_error", "bias_share", "removed"):
        assert kept[name] == getattr(line, name)
    assert kept["flow_share"] == 100 * evaluation.flow_share(replace(case, score_mask=last))
    text = years_markdown(frame)
    assert "| tp (mm) | 48 | 2000 | 24 |" in text
    assert text.splitlines()[-1].endswith("| – | – |")


def test_corrections_never_see_the_fold_that_they_correct():
    case = made_case(bias=1.0)
    bias, _ = evaluation.correct(case)
    shifted = case.truth.copy()
    shifted[:12] -= 50.0  # only 1998: its own correction stays
    other, _ = evaluation.correct(evaluation.Case(
        case.forecast, shifted, None, case.starts, case.score_mask))  # fmt: skip
    np.testing.assert_allclose(other[:12], bias[:12], rtol=1e-12)
    assert (np.abs(other[12:] - bias[12:]) > 10).all()


def test_dates_of_one_year_are_left_out_one_by_one_and_years_as_a_whole():
    parts = evaluation.folds(STARTS[:12])
    assert [np.flatnonzero(part).tolist() for part in parts] == [[n] for n in range(12)]
    years = evaluation.folds(STARTS)
    assert [np.flatnonzero(part).tolist() for part in years] == [
        list(range(12)), list(range(12, 24))
    ]  # fmt: skip
    # of an unfinished world: one date of the second year, whose year would be all that is fitted to
    some = evaluation.folds(STARTS[:13])
    assert [np.flatnonzero(part).tolist() for part in some] == [[n] for n in range(13)]


def test_evaluate_writes_table_checksums_and_figure(tmp_path, capsys, monkeypatch):
    # the fit of the spread, which tests above are of, would take most of the time
    monkeypatch.setattr(evaluation, "_fit_variance", lambda *_: np.array([0.5, 0.5]))
    world = PhysicalWorld((1998, 1999), ("0104", "0404", "0704", "1004"), (1999,), members=3)
    produce(tmp_path / "work", FakeModel(), world)
    assert main(["evaluate", str(tmp_path / "work"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.count("| t2m (K) | ") == 3
    assert "tp (mm) | 48 | 4 |" in text  # the year with perfect ensembles is scored
    assert capsys.readouterr().out.strip() == text.strip()
    assert "| t2m (K) | 48 | 1998-1999 | 8 |" in (tmp_path / "out" / "years.md").read_text()
    lines = (tmp_path / "out" / "units.sha256").read_text().splitlines()
    check = ["sha256sum", "--check", "--quiet", str(tmp_path / "out" / "units.sha256")]
    assert len(lines) == 8
    assert subprocess.run(check, cwd=tmp_path / "work" / "units", check=False).returncode == 0
    assert (tmp_path / "out" / "world.png").read_bytes()[:4] == b"\x89PNG"


def kept_table():
    """The committed table of the default world, by target and lead time."""
    folder = Path(__file__).parents[2] / "experiments" / "results" / "physical_world"
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        (row["target"], int(row["step"])): {
            name: float(value) if value else np.nan
            for name, value in row.items()
            if name not in ("target", "units")
        }
        for row in rows
    }


def test_the_kept_world_has_reliable_perfect_ensembles_and_raw_ones_to_correct():
    rows = kept_table()
    assert {name for name, _ in rows} == {"t2m", "z500", "t850", "si10", "tp"}
    for place, row in rows.items():
        assert 0.97 < row["perfect_spread_error"] < 1.07, place
        assert row["perfect_ranks"] < 0.08, place
        assert row["spread_error"] < row["perfect_spread_error"], place
        assert row["bound"] < row["raw"], place
    assert 10 < rows["t2m", 48]["removed"] < 20
    assert 3 < rows["z500", 48]["removed"] < 8 + 2 * rows["z500", 48]["removed_error"]
    for name, _ in rows:
        assert rows[name, 0]["rmse"] < rows[name, 24]["rmse"] < rows[name, 48]["rmse"]
    spread = {place: row["rmse"] * row["spread_error"] for place, row in rows.items()}
    for name, _ in rows:
        assert spread[name, 0] < spread[name, 24] < spread[name, 48]


def test_the_kept_years_show_a_bias_by_flow_and_vary_less_than_the_tolerances():
    folder = Path(__file__).parents[2] / "experiments" / "results" / "physical_world"
    years = pd.read_csv(folder / "years.csv")
    assert set(years["years"]) == {"1998-1999", "2000-2001", "2002-2003", "2004-2005"}
    by_target = years.groupby("target")
    flow = by_target["flow_share"].min()
    assert 3 < flow["t2m"] < 5
    assert 0 < flow["z500"] < flow["si10"] < flow["t850"] < flow["t2m"]
    largest, smallest = (getattr(by_target[["raw", "spread_error", "removed"]], name)()
                         for name in ("max", "min"))  # fmt: skip
    assert (largest["raw"] / smallest["raw"]).max() < 1.06
    assert (largest["spread_error"] - smallest["spread_error"]).max() < 0.07
    assert (largest["removed"] - smallest["removed"]).max() < 1.5
    table = kept_table()
    for line in years[years["years"] == "2004-2005"].itertuples():  # those of the table
        assert line.raw == pytest.approx(table[line.target, 48]["raw"], rel=1e-9)


def test_simulate_command_writes_the_settings_and_says_what_is_missing(tmp_path, capsys):
    environment = tmp_path / "environment"
    command = ["simulate", str(tmp_path / "w"), "--environment", str(environment)]
    command += ["--years", "1998", "--perfect-years", "none", "--minutes", "0"]
    assert main(command) == 1
    assert "no environment" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    assert main(command) == 0
    assert "0 of 52 units are complete" in capsys.readouterr().out
    settings = json.loads((tmp_path / "w" / "world.json").read_text())
    assert settings["years"] == [1998]
    assert settings["perfect_years"] == []
    assert main([*command, "--years", "1999-1998"]) == 1
    assert "'1999-1998' is empty" in capsys.readouterr().err
