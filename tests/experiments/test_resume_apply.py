"""`apply`, `couple`, `predict` and `bundle`: nothing is mixed, nothing of others is removed."""

import json
import os
import shutil

import netCDF4
import numpy as np
import pytest
import realruns
import xarray as xr

import ens10
from ens10.convert import prepare
from ens10.errors import FileError
from ens10.experiments.forecasts import load
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.bundle import bundle
from ens10.experiments.forecasts.couple import couple_run
from ens10.experiments.forecasts.products import Products
from ens10.experiments.runs.reading import open_predictions
from ens10.source import open_source
from ens10.source.names import Names

RUN = "emos_local"


@pytest.fixture
def forecast(world, tmp_path):
    """A netCDF file, so that other values do not change its size."""
    path = tmp_path / "in" / "forecast.nc"
    path.parent.mkdir()
    open_source(world.folder / "output.sfc.20180402")[["t2m", "u10"]].load().to_netcdf(path)
    return path


@pytest.fixture
def done(monkeypatch):
    """The dates that are computed."""
    dates, fields = [], load.Corrections.fields

    def counted(self, i, known):
        dates.append(i)
        return fields(self, i, known)

    monkeypatch.setattr(load.Corrections, "fields", counted)
    return dates


def interrupt(monkeypatch, *arguments, **options):
    """Begin a call of `apply` that ends before the third date."""
    fields = load.Corrections.fields

    def failing(self, i, known):
        if i == 2:
            raise KeyboardInterrupt
        return fields(self, i, known)

    with monkeypatch.context() as patch:
        patch.setattr(load.Corrections, "fields", failing)
        with pytest.raises(KeyboardInterrupt):
            apply(*arguments, **options)


def issue_again(path, kelvin=1.0):
    """The forecast with other values; name, size and dates stay."""
    size, new = path.stat().st_size, shutil.copy(path, path.with_suffix(".new"))
    with netCDF4.Dataset(new, "a") as data:
        data["t2m"][:] += np.float32(kelvin)
    new.replace(path)  # as a producer does; xarray may have the old one open
    assert path.stat().st_size == size


def test_a_forecast_that_was_issued_again_is_computed_anew(
    runs, forecast, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out.nc"
    interrupt(monkeypatch, [runs[RUN]], forecast, out)
    issue_again(forecast)
    apply([runs[RUN]], forecast, out)
    said = f"ens10: {out}.partial: begun otherwise (forecast: its files have changed)"
    assert said in capsys.readouterr().err
    expected = ens10.load_model(runs[RUN])(open_source(forecast))
    np.testing.assert_array_equal(xr.open_dataset(out)["mu"], expected["mu"])
    assert not list(tmp_path.glob("out*.partial"))


@pytest.mark.parametrize("change", ["time", "older plan"])
def test_the_same_forecast_is_resumed(runs, forecast, tmp_path, monkeypatch, capsys, done, change):
    out, plan = tmp_path / "out.nc", tmp_path / "out.nc.partial/plan.json"
    interrupt(monkeypatch, [runs[RUN]], forecast, out)
    if change == "time":
        os.utime(forecast, ns=(0, 0))
    else:
        content = json.loads(plan.read_text())
        del content["inputs"], content["device"]
        plan.write_text(json.dumps(content))
    done.clear()
    apply([runs[RUN]], forecast, out)
    assert done == [2, 3, 4, 5]
    assert capsys.readouterr().err == ""


def test_corrected_names_are_another_call(runs, forecast, tmp_path, monkeypatch, capsys):
    data = xr.load_dataset(forecast, decode_timedelta=False)
    data.assign(t2m_old=data["t2m"] + 5).rename(t2m="t2m_new").to_netcdf(forecast)
    wrong, right = (Names({name: "t2m", "u10": "u10"}) for name in ("t2m_old", "t2m_new"))
    interrupt(monkeypatch, [runs[RUN]], forecast, tmp_path / "out.nc", names=wrong)
    out = apply([runs[RUN]], forecast, tmp_path / "out.nc", names=right)
    assert "all dates are computed again" in capsys.readouterr().err
    again = apply([runs[RUN]], forecast, tmp_path / "again.nc", names=right)
    assert xr.open_dataset(out)["mu"].identical(xr.open_dataset(again)["mu"])


def test_another_history_is_another_call(runs, world, forecast, tmp_path, monkeypatch, capsys):
    truth = open_source(world.folder / "truth")[["t2m"]].load()
    warped = truth.copy(data={"t2m": np.ascontiguousarray(truth["t2m"][..., ::-1])})
    fields = open_source(world.folder)[["t2m", "u10"]].load()
    stores = [
        prepare(fields, tmp_path / f"{name}.zarr", truth=data)
        for name, data in (("truth", truth), ("warped", warped))
    ]
    products = Products(members="schaake")
    out = tmp_path / "out.nc"
    interrupt(monkeypatch, [runs[RUN]], forecast, out, products=products, history=stores[1])
    apply([runs[RUN]], forecast, out, products=products, history=stores[0])
    assert "history: its files have changed" in capsys.readouterr().err
    again = tmp_path / "again.nc"
    apply([runs[RUN]], forecast, again, products=products, history=stores[0])
    assert xr.open_dataset(out).identical(xr.open_dataset(again))


def killed_prepare(partial):
    (partial / "units").mkdir(parents=True)
    (partial / "units/forecast-000000-000.json").write_text("[]")
    (partial / "store").mkdir()
    (partial / "plan.json").write_text('{"options": {}, "source": null, "truth": null}')
    return partial / "units/forecast-000000-000.json"


def notes(partial):
    partial.mkdir()
    (partial / "notes.txt").write_text("precious")
    return partial / "notes.txt"


@pytest.mark.parametrize("content", [notes, killed_prepare])
@pytest.mark.parametrize("command", ["apply", "couple", "bundle", "predict"])
def test_a_partial_folder_of_others_is_refused_and_kept(
    runs, forecast, tmp_path, command, content, capsys
):
    run = shutil.copytree(runs[RUN], tmp_path / "run") if command == "predict" else runs[RUN]
    out = run / "predictions.zarr" if command == "predict" else tmp_path / "out.zarr"
    kept = content(out.with_name(f"{out.name}.partial"))
    before = kept.read_bytes()
    words = {
        "apply": ["apply", run, forecast, "--out", out],
        "couple": ["couple", run, "--method", "ecc", "--out", out],
        "bundle": ["bundle", run, "--out", out],
        "predict": ["predict", "--run", run, "--quiet"],
    }
    realruns.command(*words[command], status=1)
    assert "Move it away" in capsys.readouterr().err
    assert kept.read_bytes() == before


@pytest.mark.parametrize("command", ["apply", "couple", "bundle"])
def test_force_replaces_only_what_the_command_made(
    runs, forecast, tmp_path, command, capsys, store
):
    out = tmp_path / ("out.zarr" if command != "bundle" else "out.ens10")
    words = {
        "apply": ["apply", runs[RUN], forecast, "--out", out, "--force"],
        "couple": ["couple", runs[RUN], "--method", "ecc", "--out", out, "--force"],
        "bundle": ["bundle", runs[RUN], "--out", out, "--force"],
    }[command]
    if command == "bundle":
        out.write_text("precious")
    else:
        out.mkdir()
        (out / "thesis.txt").write_text("precious")
    realruns.command(*words, status=1)
    assert "so --force does not replace it" in capsys.readouterr().err
    kept = out if command == "bundle" else out / "thesis.txt"
    assert kept.read_text() == "precious"
    kept.unlink()
    if command != "bundle":
        shutil.copytree(store, out, dirs_exist_ok=True)  # a prepared store is none of theirs
        realruns.command(*words, status=1)
        assert (out / "manifest/json/c/0").is_file()
        shutil.rmtree(out)
    realruns.command(*words)
    realruns.command(*words)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in", out.name])


def test_damaged_predictions_are_replaced(runs, tmp_path):
    run = shutil.copytree(runs[RUN], tmp_path / "run")
    (run / "predictions.zarr/zarr.json").write_text("{")
    realruns.command("predict", "--run", run, "--quiet")
    again, expected = (open_predictions(one)[0] for one in (run, runs[RUN]))
    assert again.identical(expected)


def test_a_netcdf_file_of_others_is_not_replaced(runs, forecast, tmp_path):
    for out in (forecast, tmp_path / "notes.nc"):
        if out != forecast:
            out.write_text("precious")
        before = out.read_bytes()
        with pytest.raises(FileError, match="not a corrected forecast of ens10"):
            apply([runs[RUN]], forecast, out, force=True)
        assert out.read_bytes() == before
    out = apply([runs[RUN]], forecast, tmp_path / "out.nc")
    before = out.read_bytes()
    apply([runs[RUN]], forecast, out, force=True)
    assert xr.open_dataset(out).sizes["time"] == 6


@pytest.mark.parametrize("name", ["out.nc", "out.zarr", "out.ens10", "coupled.zarr"])
def test_temporary_files_of_a_killed_call_are_removed(runs, forecast, tmp_path, name):
    (tmp_path / f".{name}.0011aabb.tmp").write_text("half of an output")
    out = tmp_path / name
    if name == "out.ens10":
        bundle(runs[RUN], out)
    elif name == "coupled.zarr":
        couple_run(runs[RUN], "ecc", out=out)
    else:
        apply([runs[RUN]], forecast, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in", name])
