"""`ens10 apply`: files in, one file of corrected forecasts out."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

import cfgrib
import eccodes
import numpy as np
import pytest
import realruns
import torch
import xarray as xr
from docblocks import ROOT, code, commands, python

import ens10
from ens10.cli import main
from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts import bundle, load
from ens10.experiments.forecasts.apply import _read_once, apply
from ens10.experiments.forecasts.products import Products
from ens10.experiments.runs.reading import open_forecast, open_predictions
from ens10.export.corrected import Header
from ens10.export.grib_products import Encoding, GribProduct
from ens10.grib import LatLonGrid
from ens10.grib.grid import Scan
from ens10.source import open_source


@pytest.fixture(scope="module")
def today(world, tmp_path_factory):
    """One GRIB file: one day of the calendar in every year."""
    folder = tmp_path_factory.mktemp("today")
    return shutil.copy(world.folder / "output.sfc.20180402", folder)


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_a_file_holds_what_the_model_returns(runs, today, tmp_path, name):
    products = Products((0.1, 0.9), (">280", "<260"), "ecc")
    out = apply([runs["unet"]], today, tmp_path / name, products=products)
    model = ens10.load_model(runs["unet"])
    expected = model(open_source(today), quantiles=[0.1, 0.9], probabilities=[">280", "<260"],
                     members="ecc").compute()  # fmt: skip
    written = xr.open_dataset(out) if name.endswith("nc") else open_forecast(out)[0]
    assert set(written.variables) == set(expected.variables)
    for variable in expected.data_vars:
        np.testing.assert_array_equal(written[variable], expected[variable])
        assert written[variable].dims == expected[variable].dims
        assert written[variable].attrs["units"] == expected[variable].attrs["units"]
    for dim in ("time", "valid_time", "latitude", "longitude", "number"):
        np.testing.assert_array_equal(written[dim], expected[dim])
    assert written["mu"].attrs["standard_name"] == "air_temperature"
    assert written["sigma"].attrs == {
        "units": "K",
        "long_name": "standard deviation of the forecast of 2 metre temperature",
    }
    assert written.attrs["forecast_kind"] == "normal"
    assert written.attrs["corrected_by"].startswith("unet (")
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_what_was_applied_to_the_test_dates_is_scored_as_what_was_predicted(runs, world, tmp_path):
    whole = open_source(world.folder)
    tested = whole.isel(time=whole["valid_time"].isel(step=0).dt.year.to_numpy() >= 2004)
    out = apply([runs["mlp"]], tested, tmp_path / "out.nc", products=Products((0.5,)))
    forecast, truth = open_predictions(runs["mlp"])
    truth.rename("truth").to_netcdf(tmp_path / "truth.nc")
    options = ["--truth", tmp_path / "truth.nc", "--weights", "cell"]
    realruns.command("score", out, *options, "--out", tmp_path / "scores")
    ours, theirs = (
        xr.open_dataset(folder / "scores.nc") for folder in (tmp_path / "scores", runs["mlp"])
    )
    name = next(str(n) for n in theirs.data_vars if "crps" in str(n))
    np.testing.assert_array_equal(ours[name], theirs[name])
    for variable in forecast.data_vars:
        np.testing.assert_array_equal(xr.open_dataset(out)[variable], forecast[variable])


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_an_interrupted_call_is_resumed_by_the_same_call(runs, today, tmp_path, monkeypatch, name):
    done, fields = [], load.Corrections.fields

    def failing(self, i, known):
        if i == 2 and len(done) == 2:
            raise KeyboardInterrupt
        done.append(i)
        return fields(self, i, known)

    monkeypatch.setattr(load.Corrections, "fields", failing)
    with pytest.raises(KeyboardInterrupt):
        apply([runs["emos_local"]], today, tmp_path / name)
    assert not (tmp_path / name).exists()
    for left in ("mu/c/2/0/0", "zarr", "manifest/zarr"):  # as zarr leaves them after a kill
        path = tmp_path / f"{name}.partial" / "data.zarr" / f"{left}.{'0a' * 16}.partial"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    (path.parent / ".0.0011aabb.tmp").write_bytes(b"half")
    done.append(None)
    out = apply([runs["emos_local"]], today, tmp_path / name)
    assert done == [0, 1, None, 2, 3, 4, 5]
    once = apply([runs["emos_local"]], today, tmp_path / f"again-{name}")
    opened = [xr.open_dataset(p) if name.endswith("nc") else open_forecast(p)[0].load()
              for p in (out, once)]  # fmt: skip
    xr.testing.assert_identical(*opened)
    if name.endswith("zarr"):
        first, second = (
            {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
            for root in (out, once)
        )
        assert first == second


def test_a_run_that_is_trained_again_during_the_call(runs, today, tmp_path, monkeypatch):
    """The forecasts of all dates are of the model that was loaded, and its checksum is stated."""
    run, fields = shutil.copytree(runs["emos_local"], tmp_path / "emos_local"), []
    whole = apply([run], today, tmp_path / "whole.nc").read_bytes()
    compute = load.Corrections.fields

    def replacing(self, i, known):
        if i == 2:
            shutil.copytree(runs["raw"], run, dirs_exist_ok=True)
        fields.append(i)
        return compute(self, i, known)

    monkeypatch.setattr(load.Corrections, "fields", replacing)
    assert apply([run], today, tmp_path / "out.nc").read_bytes() == whole
    assert len(fields) == 6


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/best.ckpt"])
def test_a_run_that_is_replaced_while_it_is_read_is_refused(runs, tmp_path, monkeypatch, name):
    """Otherwise the weights would be of one model, and the checksum or settings of another."""
    run, read = shutil.copytree(runs["emos_local"], tmp_path / "emos_local"), bundle.read_checkpoint

    def replacing(path):
        content = read(path)
        (tmp_path / "new").write_bytes((run / name).read_bytes())
        (tmp_path / "new").rename(run / name)
        return content

    monkeypatch.setattr(bundle, "read_checkpoint", replacing)
    with pytest.raises(FileError, match=f"{Path(name).name}: was replaced while it was read"):
        ens10.load_model(run)
    monkeypatch.undo()
    ens10.load_model(run)


def test_a_partial_file_of_something_else_is_not_resumed(runs, today, tmp_path, monkeypatch):
    fields = load.Corrections.fields

    def failing(self, i, known):
        if i == 3:
            raise KeyboardInterrupt
        return fields(self, i, known)

    with monkeypatch.context() as patch:
        patch.setattr(load.Corrections, "fields", failing)
        with pytest.raises(KeyboardInterrupt):
            apply([runs["raw"]], today, tmp_path / "out.nc")
    assert len(json.loads((tmp_path / "out.nc.partial/plan.json").read_text())["dates"]) == 6
    written = xr.open_dataset(apply([runs["emos_local"]], today, tmp_path / "out.nc"))
    corrected = ens10.load_model(runs["emos_local"])(open_source(today))
    np.testing.assert_array_equal(written["mu"], corrected["mu"])


def test_several_runs_make_one_file(runs, world, today, tmp_path):
    at_48 = open_source(world.folder)[["t2m", "u10"]].drop_vars("valid_time")
    at_24 = at_48.assign_coords(step=at_48["step"] - 24)
    truth = at_24[["u10"]].squeeze("step", drop=True).mean("number")
    truth = truth.assign_coords(time=truth["time"] + np.timedelta64(24, "h"))
    store = prepare(at_24, tmp_path / "wind.zarr", truth=truth)
    wind = realruns.fit("emos_global", store, tmp_path / "wind", "--data.target", "u10")
    new = xr.concat([at_24, at_48], "step").isel(time=[0, 7]).chunk(time=1)
    both = [wind, runs["emos_local"]]
    products = Products((0.5,), members="ecc")
    written = xr.open_dataset(apply(both, new, tmp_path / "out.nc", products=products))
    assert written["step"].to_numpy().tolist() == [24, 48]
    hours = (written["valid_time"] - written["time"]) / np.timedelta64(1, "h")
    np.testing.assert_array_equal(hours, np.broadcast_to([24, 48], (2, 2)))
    for run, step in zip(both, (24, 48), strict=True):
        model = ens10.load_model(run)
        alone = model(new, quantiles=[0.5], members="ecc")
        for name in alone.data_vars:
            together = name if name.startswith(model.target) else f"{model.target}_{name}"
            np.testing.assert_array_equal(written[together].sel(step=step), alone[name])
            assert written[together].sel(step=72 - step).isnull().all()
        assert written[f"{model.target}_mu"].attrs["forecast_kind"] == "normal"
    with pytest.raises(ArgumentError, match="mlp and emos_local both correct t2m at step 48"):
        apply([runs["mlp"], runs["emos_local"]], today, tmp_path / "two.nc")


def test_chunks_of_several_dates_are_kept_by_several_threads():
    values = np.arange(1200.0).reshape(60, 20)
    kept = _read_once(xr.Dataset({"t2m": (("time", "x"), values)}).chunk(time=1, x=1))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = kept["t2m"].compute(scheduler="threads", num_workers=8)
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(found, values)


def test_several_runs_read_each_input_once(runs, today, tmp_path):
    """The second run is a copy of the first with another target, so that both read all inputs."""
    second = shutil.copytree(runs["mlp"], tmp_path / "u10")
    for name in ("best", "last"):
        path = next((second / "checkpoints").glob(f"{name}*"))
        held = torch.load(path, weights_only=True)
        held["EnsembleDataModule"]["trained"] |= {"target": "u10", "units": "m s-1"}
        torch.save(held, path)
    reads, whole = Counter(), open_source(today)

    def counted(block, name, block_info):
        reads[name, block_info[0]["chunk-location"]] += 1
        return block

    counting = whole.assign(
        {
            name: field.copy(data=field.data.map_blocks(counted, str(name), dtype=field.dtype,
                             meta=field.data._meta))
            for name, field in whole.data_vars.items()
        }
    )  # fmt: skip
    both = [runs["mlp"], second]
    out = apply(both, counting, tmp_path / "out.nc", products=Products(members="ecc"))
    assert {name for name, _ in reads} >= {"t2m", "u10"}
    assert len({place[0] for _, place in reads}) == 6
    assert set(reads.values()) == {1}
    written = xr.open_dataset(out)
    for run in both:
        model = ens10.load_model(run)
        alone = model(open_source(today), members="ecc")
        for name in alone.data_vars:
            together = name if name == model.target else f"{model.target}_{name}"
            np.testing.assert_array_equal(written[together], alone[name])


def test_the_command(runs, today, tmp_path, capsys):
    out = tmp_path / "out.nc"
    options = ["--quantiles", "0.5", "--probability", ">280", "<250", "--members", "sample"]
    realruns.command("apply", runs["emos_global"], today, "--out", out, *options)
    assert capsys.readouterr().out == f"Wrote {out}\n"
    assert {"t2m", "t2m_quantile", "t2m_probability_above", "mu"} <= set(xr.open_dataset(out))
    realruns.command("apply", runs["raw"], today, "--out", out, status=1)
    assert "--force" in capsys.readouterr().err
    realruns.command("apply", today, "--out", tmp_path / "other.nc", status=1)
    assert "RUN" in capsys.readouterr().err
    late = open_source(today).isel(time=[0])
    late = late.drop_vars("valid_time").assign_coords(time=late["time"] + np.timedelta64(45, "D"))
    late.to_netcdf(tmp_path / "late.nc")
    realruns.command("apply", runs["raw"], tmp_path / "late.nc", "--out", tmp_path / "late.zarr")
    assert "more than 31 days of the calendar" in capsys.readouterr().err


@pytest.mark.parametrize("members", ["ecc", "sample", None])
def test_grib_files_keep_the_headers_of_the_raw_ones(runs, today, tmp_path, members):
    run = runs["emos_local"]
    out = apply([run], today, tmp_path / "out.grib", products=Products(members=members))
    model = ens10.load_model(run)
    expected = model(open_source(today), members=members).compute()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.grib"]
    for kind, name in {"em": "mu", "es": "sigma"}.items():
        with cfgrib.open_dataset(
            out, backend_kwargs={"indexpath": "", "filter_by_keys": {"dataType": kind}}
        ) as found:
            np.testing.assert_allclose(found["t2m"], expected[name], atol=2e-5)
            assert found["t2m"].attrs["units"] == "K"
            np.testing.assert_array_equal(found["time"], expected["time"])
            np.testing.assert_array_equal(found["valid_time"], expected["valid_time"])
            assert found["step"] == np.timedelta64(48, "h")
            np.testing.assert_allclose(found["latitude"], expected["latitude"], atol=2e-3)
    with out.open("rb") as file, Path(today).open("rb") as before:
        ours, theirs = (list(grib_keys(f)) for f in (file, before))
    theirs = [keys for keys in theirs if keys["shortName"] == "2t"]
    kept = [keys for keys in ours if keys["type"] not in ("em", "es")]
    assert len(ours) - len(kept) == 12
    assert len(kept) == (0 if members is None else 60)
    if members == "ecc":
        assert kept == theirs
    for keys in ours:
        assert {k: v for k, v in keys.items() if k not in ("type", "number")} == {
            k: v for k, v in theirs[0].items() if k not in ("type", "number")
        } | {"dataDate": keys["dataDate"]}
    if members:
        whole = cfgrib.open_dataset(
            out, backend_kwargs={"indexpath": "", "filter_by_keys": {"dataType": "pf"}}
        )
        corrected = expected["t2m"].transpose("number", "time", ...)
        np.testing.assert_allclose(
            whole["t2m"].transpose("number", "time", ...), corrected[-whole.sizes["number"] :],
            atol=2e-5,
        )  # fmt: skip


def grib_keys(file):
    """What the header of each message says, but its values."""
    names = ("type", "number", "shortName", "dataDate", "dataTime", "step", "class", "stream",
             "expver", "centre", "gridType", "Ni", "Nj", "numberOfForecastsInEnsemble")  # fmt: skip
    while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
        yield {name: eccodes.codes_get(handle, name) for name in names}
        eccodes.codes_release(handle)


def test_gaps_and_other_scans_survive_in_grib(runs, today, tmp_path):
    forecast = open_source(today).isel(time=[1]).load()
    forecast["t2m"][..., 2, 3] = np.nan
    out = apply([runs["emos_global"]], forecast, tmp_path / "out.grib")
    found = cfgrib.open_dataset(
        out, backend_kwargs={"indexpath": "", "filter_by_keys": {"dataType": "em"}}
    )["t2m"]
    expected = ens10.load_model(runs["emos_global"])(forecast)["mu"].squeeze("time")
    assert np.isnan(expected[2, 3])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    scan = Scan(by_column=True, northward=True, roll=3)
    grid = LatLonGrid(8, 16, 90.0, -90.0, 0.0, 22.5)
    order = scan.orient(np.arange(128), grid)
    with Path(today).open("rb") as file:
        handle = eccodes.codes_grib_new_from_file(file)
    field = np.random.default_rng(0).normal(size=(8, 16)).astype("f4")
    raw = eccodes.codes_get_message(handle)
    message = Header(raw, order, Encoding()).message(field, GribProduct("pf"))
    values = eccodes.codes_get_values(eccodes.codes_new_from_message(message))
    np.testing.assert_allclose(scan.orient(values, grid), field, atol=1e-6)


def labels_of(file, edition):
    """Each message's label, whose keys say which product it is, and its bytes."""
    found = {"em": "mean", "es": "std"}
    while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
        get = partial(eccodes.codes_get, handle)
        assert get("edition") == edition
        number, message = "perturbationNumber", eccodes.codes_get_message(handle)
        template = get("productDefinitionTemplateNumber")
        if edition == 1:
            label = {"pf": ("member", number), "pb": ("quantile", number)}.get(get("type"))
            if get("type") == "ep":
                assert get("localDefinitionNumber") == 5
                above = get("thresholdIndicator") == 1
                value = get("lowerThreshold" if above else "upperThreshold")
                yield (above, value / 10.0 ** get("localDecimalScaleFactor")), template, message
            elif label is None:
                yield found[get("type")], template, message
            else:
                total = get("numberOfForecastsInEnsemble")
                about = get(number) / total if label[0] == "quantile" else get(number)
                yield (label[0], about), template, message
        elif eccodes.codes_is_defined(handle, "probabilityType"):
            above = {3: True, 4: False}[get("probabilityType")]
            unused = "Upper" if above else "Lower"
            assert eccodes.codes_is_missing(handle, f"scaledValueOf{unused}Limit")
            yield (above, get("lowerLimit" if above else "upperLimit")), template, message
        elif eccodes.codes_is_defined(handle, "derivedForecast"):
            yield {0: "mean", 4: "std"}[get("derivedForecast")], template, message
        elif eccodes.codes_is_defined(handle, "percentileValue"):
            yield ("quantile", get("percentileValue") / 100), template, message
        elif eccodes.codes_is_defined(handle, "quantileValue"):
            value = get("quantileValue") / get("totalNumberOfQuantiles")
            yield ("quantile", value), template, message
        else:
            yield ("member", get(number)), template, message
        eccodes.codes_release(handle)


@pytest.mark.parametrize(
    ("encoding", "templates", "source"),
    [
        (Encoding(1), {1, 2, 5}, "netcdf"),
        (Encoding(2), {1, 2, 5, 6, 86}, "grib"),
        (Encoding(2, post_processed=True), {71, 89, 199, 201}, "grib"),
        pytest.param(Encoding(1), {1, 2, 5}, "grib", marks=pytest.mark.slow),
        pytest.param(Encoding(2), {1, 2, 5, 6, 86}, "netcdf", marks=pytest.mark.slow),
        pytest.param(
            Encoding(2, post_processed=True), {71, 89, 199, 201}, "netcdf", marks=pytest.mark.slow
        ),
    ],
)
def test_every_product_is_read_back_from_grib(runs, today, tmp_path, encoding, templates, source):
    levels = (0.1, 0.5, 0.25 if encoding.edition == 1 else 0.999)
    options = {"members": "sample" if source == "grib" else "ecc"}
    chances = (">280.5", "<260", ">270")
    forecast = today if source == "grib" else open_source(today).load()
    products = Products(levels, chances, **options)
    out = apply([runs["emos_local"]], forecast, tmp_path / "out.grib", products=products,
                **asdict(encoding))  # fmt: skip
    model = ens10.load_model(runs["emos_local"])
    corrected = model(open_source(today), quantiles=levels, probabilities=chances, **options)
    corrected = corrected.compute()
    expected = {"mean": corrected["mu"], "std": corrected["sigma"]}
    expected |= {("member", n): corrected["t2m"].sel(number=n) for n in range(1, 11)}
    of_level = corrected["t2m_quantile"]
    expected |= {("quantile", q): of_level.sel(quantile_level=q) for q in levels}
    for above, side in ((True, "above"), (False, "below")):
        chance = corrected[f"t2m_probability_{side}"]
        for value in chance[f"threshold_{side}"].to_numpy().tolist():
            expected[above, value] = 100 * chance.sel({f"threshold_{side}": value})
    parts, found = {}, set()
    with out.open("rb") as file:
        for label, template, message in labels_of(file, encoding.edition):
            parts[label] = parts.get(label, b"") + message
            found.add(template)
    assert found == templates
    assert parts.keys() == expected.keys()
    for n, (label, messages) in enumerate(parts.items()):
        part = tmp_path / f"{n}.grib"
        part.write_bytes(messages)
        with xr.open_dataset(part, engine="cfgrib", backend_kwargs={"indexpath": ""}) as read:
            np.testing.assert_allclose(read["t2m"], expected[label], atol=2e-5)
            np.testing.assert_array_equal(read["time"], corrected["time"])
            np.testing.assert_array_equal(read["valid_time"], corrected["valid_time"])
            assert read["t2m"].attrs["units"] == "K"
        # Debian's CDO uses an ecCodes without the templates for post-processed forecasts
        if shutil.which("cdo") and not encoding.post_processed:
            subprocess.run(["cdo", "-s", "-f", "nc", "copy", part, f"{part}.nc"], check=True)
            with xr.open_dataset(f"{part}.nc") as read:
                values = read["2t"].squeeze("height") if "height" in read.dims else read["2t"]
                np.testing.assert_allclose(values, expected[label], atol=2e-5)
                np.testing.assert_array_equal(read["time"], corrected["valid_time"])
                assert read["2t"].attrs["units"] == "K"


def test_grib_of_other_centres_and_what_an_edition_cannot_express(runs, today, tmp_path):
    field, order = np.ones((31, 16), "f4"), np.arange(496).reshape(31, 16)
    event = GribProduct("ep", 1, 1, 0.5, above=False)
    for sample, encoding in (("1", Encoding(2)), ("2", Encoding()), ("2", Encoding(2, True))):
        handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{sample}")
        eccodes.codes_set(handle, "centre", "kwbc")
        raw = eccodes.codes_get_message(handle)
        for product, key in (
            (GribProduct("em"), "derivedForecast"),
            (event, "upperLimit"),
            (GribProduct("pb", value=0.9), "productDefinitionTemplateNumber"),
        ):
            message = Header(raw, order, encoding).message(field, product)
            read = eccodes.codes_new_from_message(message)
            value = {"em": 0, "ep": 0.5, "pb": 89 if encoding.post_processed else 6}[product.type]
            assert eccodes.codes_get(read, key) == value
            assert eccodes.codes_get(read, "centre") == "kwbc"
            if encoding.post_processed:
                assert eccodes.codes_get(read, "inputOriginatingCentre") == "kwbc"
                assert eccodes.codes_get(read, "typeOfGeneratingProcess") == 13
        if sample == "1":
            with pytest.raises(ArgumentError, match=r"type=em.*--edition 2"):
                Header(raw, order, Encoding(1)).message(field, GribProduct("em"))
    for products, encoding, said in (
        (Products((0.999,)), Encoding(), "n up to 255 is 0.999.*--edition 2"),
        (Products((), (">303.155",)), Encoding(), "303.155 has too many digits.*--edition 2"),
        (Products((0.99999,)), Encoding(2), "n up to 65535 is 0.99999"),
    ):
        options = {"products": products, **asdict(encoding)}
        with pytest.raises(ArgumentError, match=said):
            apply([runs["raw"]], today, tmp_path / "q.grib", **options)
    with pytest.raises(ArgumentError, match="only GRIB edition 2"):
        Encoding(1, post_processed=True)
    with pytest.raises(ArgumentError, match="not a GRIB file"):
        apply([runs["raw"]], today, tmp_path / "q.nc", edition=2)
    assert not list(tmp_path.iterdir())


def cut(raw, path, message):
    """Write a GRIB file up to the end of a message, counted from 1, and three bytes more."""
    with raw.open("rb") as file:
        for _ in range(message):
            eccodes.codes_release(eccodes.codes_grib_new_from_file(file))
        end = file.tell()
    path.write_bytes(raw.read_bytes()[: end + 3])


def test_the_commands_and_the_code_of_the_page_run(runs, today, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    shutil.copytree(runs["unet"], tmp_path / "runs" / "unet")
    shutil.copytree(runs["emos_local"], tmp_path / "runs" / "emos")
    (tmp_path / "today.grib").symlink_to(today)
    monkeypatch.chdir(tmp_path)
    listed = commands("docs/in_use.md")
    assert len(listed) == 15
    for command in listed:
        assert main(command) == 0, command
    shared, corrected = (xr.open_dataset(f"{name}.nc") for name in ("shared", "today"))
    np.testing.assert_array_equal(shared["mu"], corrected["mu"])
    extremes = xr.open_dataset("extremes.nc")
    low, high = (extremes[f"t2m_threshold_{side}"][:, 0] for side in ("below", "above"))
    assert bool((low < high).all())
    names: dict[str, object] = {}
    for block in python("docs/in_use.md"):
        exec(block, names)
    risk = xr.open_dataset("risks.nc")["t2m_probability_above"].isel(time=0)
    np.testing.assert_array_equal(names["risk"], risk)
    assert names["tenth"]["t2m"].sizes["time"] == 6


def without_last(raw, path, name):
    """Write a GRIB file without the last message of a short name."""
    with raw.open("rb") as file:
        handles = iter(lambda: eccodes.codes_grib_new_from_file(file), None)
        parts = [(eccodes.codes_get(h, "shortName"), eccodes.codes_get_message(h)) for h in handles]
    last = max(n for n, (short_name, _) in enumerate(parts) if short_name == name)
    path.write_bytes(b"".join(data for n, (_, data) in enumerate(parts) if n != last))


def set_age(path, minutes):
    """Set the time of the last change of a file."""
    then = time.time() - 60 * minutes
    os.utime(path, (then, then))


@pytest.mark.long  # starts many processes
def test_the_script_survives_a_late_file(runs, today, tmp_path, monkeypatch):
    """Calls daily.sh while files arrive: one is whole, one is cut, one lacks a message of t2m."""
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", str(runs["emos_local"]), "--out", "model.ens10"]) == 0
    (script,) = (block for block in code("docs/in_use.md") if block.language == "sh")
    bin_ = Path("bin").absolute()
    for folder in ("bin", "incoming", "corrected"):
        Path(folder).mkdir()
    (bin_ / "ens10").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ens10 "$@"\n')
    (bin_ / "ens10").chmod(0o755)
    paths = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def call():
        line = ["sh", "-c", script.text]
        return subprocess.run(line, env=paths, capture_output=True, text=True, timeout=500)

    def files():
        return sorted(path.name for path in Path("corrected").iterdir())

    whole = Path(today)
    cut(whole, Path("incoming/b.grib"), 7)
    without_last(whole, Path("incoming/c.grib"), "2t")
    shutil.copy(whole, "incoming/a.grib")
    first = call()
    assert files() == ["a.grib"], first.stderr
    assert first.stdout.count("tried again") == 2
    shutil.copy(whole, "incoming/b.grib")
    assert call().stdout.count("tried again") == 1
    assert files() == ["a.grib", "b.grib"]
    assert Path("corrected/a.grib").read_bytes() == Path("corrected/b.grib").read_bytes()
    set_age("incoming/c.grib", minutes=61)  # it still lacks a message
    cut(whole, Path("incoming/d.grib"), 7)
    set_age("incoming/d.grib", minutes=61)
    fewer = call()
    assert (fewer.returncode, fewer.stdout.count("tried again")) == (0, 1)
    assert "9 of 10 members are used at 1 of 6 dates" in fewer.stderr
    assert files() == ["a.grib", "b.grib", "c.grib"]
    set_age("incoming/d.grib", minutes=361)
    last_try = call()
    assert last_try.returncode == 1
    assert last_try.stderr.splitlines()[-1] == (
        "incoming/d.grib is given up after 6 hours, and is now in failed/"
    )
    assert Path("failed/d.grib").exists()
    assert files() == ["a.grib", "b.grib", "c.grib"]
    quiet = call()
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_nothing_is_written_where_something_is_wrong(runs, today, tmp_path):
    forecast = open_source(today)
    (tmp_path / "there.nc").touch()
    for source, name, said, error in (
        (today, "there.nc", "exists already", FileError),
        (today, "out.txt", "does not say the format", ArgumentError),
        (today, "no/out.nc", "no such folder", FileError),
        (tmp_path / "gone", "out.nc", "no such file", FileError),
        (forecast.drop_vars("u10"), "out.nc", "lacks u10, which unet takes", ArgumentError),
        (
            forecast.isel(number=slice(4)),
            "out.nc",
            "needs 10 members, found 4",
            ArgumentError,
        ),
    ):
        with pytest.raises(error, match=said):
            apply([runs["unet"]], source, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.nc"]
