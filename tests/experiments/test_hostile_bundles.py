"""Bundles of strangers: each mutation is refused in one line that names the bundle and the key."""

import shutil

import hostilebundles
import pytest
import torch
import xarray as xr
from hostilebundles import WEIGHTS, archive_of, files_of
from safetensors.torch import load, save

import ens10
from ens10.cli import main
from ens10.errors import FileError
from ens10.experiments.forecasts.bundle import MODEL, bundle
from ens10.experiments.forecasts.load import load_models
from ens10.source import open_source
from ens10.untrusted import parse_json

TEXTS = {"text", "a number in a text", "control characters"}
# Nothing contradicts these values: what older bundles lack, other words, another forecast's step.
ACCEPTED = {
    "ens10": {"missing"} | TEXTS,
    "licence": {"missing"} | TEXTS,
    "name": TEXTS,
    "provenance": {"missing", "mapping", "mapping of null"},
    "trained.dates": {"missing", "list", "without the last", "one twice"},
    "trained.input_units": {"missing", "mapping"},
    "trained.labels": {"missing", "list"},
    "trained.latitude": {"missing", "list"},
    "trained.longitude": {"missing", "list"},
    "trained.members": {"missing", "null", "number"},
    "trained.numbers": {"missing", "list"},
    "trained.places": {"missing", "mapping"},
    "trained.stations": {"missing", "list"},
    "trained.step": {"number", "negative", "fraction"},
    "trained.step_units": TEXTS,
    "trained.target": TEXTS,
    "trained.units": TEXTS,
    "trained.windows": {"missing", "mapping"},
}


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """The bytes of the bundles of two runs, of a network and of a statistical method."""
    folder = tmp_path_factory.mktemp("whole")
    names = ("mlp", "emos_local")
    return {n: bundle(runs[n], folder / f"{n}.ens10").read_bytes() for n in names}


def outcome(path, case):
    """What is wrong about the error of a case: nothing, if it names the bundle and the key."""
    path.write_bytes(case.content)
    try:
        load_models(path)
    except FileError as error:
        text = str(error)
        good = path.name in text and case.key in text and text.isprintable()
        return "" if good else f"{case.name}: {text!r}"
    except Exception as error:
        return f"{case.name}: {error!r}"
    return f"{case.name}: accepted"


def test_each_mutation_of_a_key_is_refused(whole, tmp_path):
    wrong, tried = [], 0
    for case in hostilebundles.document_cases(whole["mlp"]):
        key, _, change = case.name.partition(": ")
        if change not in ACCEPTED.get(key, ()):
            tried += 1
            wrong += [text for text in [outcome(tmp_path / "x.ens10", case)] if text]
    assert not wrong
    assert tried > 300


@pytest.mark.parametrize("name", ["mlp", "emos_local"])
def test_each_mutation_of_a_tensor_is_refused(whole, tmp_path, name):
    wrong, tried = [], 0
    for case in hostilebundles.tensor_cases(whole[name]):
        key, _, change = case.name.partition(": ")
        same_numbers = key.startswith("model.") and change == "eight bits"
        if not (same_numbers or key == "model.method.solved"):
            tried += 1
            wrong += [text for text in [outcome(tmp_path / "x.ens10", case)] if text]
    assert not wrong
    assert tried > 50


def test_statistics_of_other_lead_times_are_refused(whole, tmp_path):
    files = files_of(whole["mlp"])
    tensors = load(files[WEIGHTS])
    for name in ("statistics.mean", "statistics.scale"):
        tensors[name] = tensors[name].repeat(2, 1, 1, 1)
    path = tmp_path / "x.ens10"
    path.write_bytes(archive_of(files | {WEIGHTS: save(tensors)}))
    with pytest.raises(FileError, match=r"x\.ens10: damaged: the statistics are of 2 lead times"):
        load_models(path)


def test_a_run_with_the_statistics_of_other_points_opens(runs, tmp_path):
    """A model without parameters of points that is tried on another grid has such a run folder."""
    run = tmp_path / "run"
    shutil.copytree(runs["mlp"], run)
    checkpoint = run / "checkpoints" / "best.ckpt"
    state = torch.load(checkpoint, weights_only=True)
    data = state["EnsembleDataModule"]
    data |= {name: data[name][..., ::2, ::2].clone() for name in ("mean", "scale")}
    torch.save(state, checkpoint)
    (model,) = load_models(run)
    assert len(model._training.latitude) == 2 * data["mean"].shape[-2]


def test_what_is_no_bundle_is_refused(whole, tmp_path):
    cases = [
        *hostilebundles.archive_cases(whole["mlp"]),
        *hostilebundles.config_cases(whole["mlp"]),
    ]
    wrong = [outcome(tmp_path / "x.ens10", case) for case in cases]
    assert not [text for text in wrong if text]
    assert len(cases) > 25


def test_a_bundle_without_what_older_ones_lack_is_the_same_model(whole, world, tmp_path):
    """Only the keys of the first version: the numbers are the same."""
    one = open_source(world.folder / "output.sfc.20180402").isel(time=[1]).load()
    files = files_of(whole["mlp"])
    about = parse_json(files[MODEL])
    first = {name: about[name] for name in ("format", "name", "channels")}
    kept = ("target", "units", "step", "step_units")
    first["trained"] = {name: about["trained"][name] for name in kept}
    old = tmp_path / "old.ens10"
    old.write_bytes(archive_of(files | {MODEL: hostilebundles.encode(first).encode()}))
    new = tmp_path / "new.ens10"
    new.write_bytes(whole["mlp"])
    xr.testing.assert_identical(ens10.load_model(old)(one), ens10.load_model(new)(one))


def test_nan_weights_are_not_applied(whole, world, tmp_path, capsys):
    files = files_of(whole["emos_local"])
    tensors = load(files[WEIGHTS])
    tensors["model.method.bias"] = tensors["model.method.bias"].clone()
    tensors["model.method.bias"][3, 4] = torch.nan
    path = tmp_path / "nan.ens10"
    path.write_bytes(archive_of(files | {WEIGHTS: save(tensors)}))
    forecast, out = world.folder / "output.sfc.20180402", tmp_path / "out.nc"
    assert main(["apply", str(path), str(forecast), "--out", str(out)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ens10: {path}: damaged: method.bias has values that are NaN")
    assert not out.exists()


def test_a_climatology_may_lack_a_point():
    """NaN is a value of a method's buffers only where it is declared."""
    from ens10.experiments.forecasts.weights import load_weights
    from ens10.models import StatisticalPostProcessor
    from ens10.models.statistical import EMOS, Climatology

    maps = torch.zeros(2, 3)
    maps[1, 2] = torch.nan
    state = {"method.solved": torch.tensor(True), "method.mu": maps, "method.sigma": maps}
    module = StatisticalPostProcessor(Climatology())
    load_weights(module, "x", state, (2, 3))
    assert module.method.mu[1, 2].isnan()
    state = {"method.solved": torch.tensor(True)}
    state |= {f"method.{name}": maps for name in ("bias", "slope", "centre", "c", "d")}
    with pytest.raises(FileError, match=r"method\.bias has values that are NaN"):
        load_weights(StatisticalPostProcessor(EMOS(local=True)), "x", state, (2, 3))
    with pytest.raises(FileError, match=r"method\.bias is not on the grid"):
        load_weights(StatisticalPostProcessor(EMOS(local=True)), "x", state, (3, 2))
