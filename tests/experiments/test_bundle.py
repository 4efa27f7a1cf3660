"""Bundles: a run as one file that anyone may open."""

import json
import pickle
import zipfile
from hashlib import sha256

import numpy as np
import pytest
import realruns
import torch
import xarray as xr
import yaml

import ens10
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.bundle import CHECKSUMS, CONFIG, MODEL, WEIGHTS, bundle, read_parts
from ens10.experiments.runs import trust
from ens10.source import open_source


@pytest.fixture(scope="module")
def one(world):
    """A date in memory."""
    return open_source(world.folder / "output.sfc.20180402").isel(time=[1]).load()


@pytest.fixture(scope="module")
def bundles(runs, tmp_path_factory):
    """The bundle of each run."""
    folder = tmp_path_factory.mktemp("bundles")
    return {
        name: bundle(run, folder / f"{name}.ens10", licence="CC-BY-4.0")
        for name, run in runs.items()
    }


def rewritten(path, to, **files):
    """A bundle with other contents, and with the checksums of these."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()} | files
    held[CHECKSUMS] = json.dumps(
        {name: sha256(data).hexdigest() for name, data in held.items() if name != CHECKSUMS}
    ).encode()
    with zipfile.ZipFile(to, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return to


@pytest.mark.parametrize("name", realruns.NAMES)
def test_a_bundle_is_the_model_of_its_run(runs, bundles, one, name):
    corrected = ens10.load_model(bundles[name])(one)
    xr.testing.assert_identical(corrected, ens10.load_model(runs[name])(one))


def test_a_bundle_is_opened_without_pickle_and_has_the_same_bytes_each_time(
    runs, bundles, one, tmp_path, monkeypatch
):
    again = bundle(runs["unet"], tmp_path / "again.ens10", licence="CC-BY-4.0")
    assert again.read_bytes() == bundles["unet"].read_bytes()

    def refuse(*arguments, **options):
        raise AssertionError("pickle")

    for module, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (torch, "load"),
    ):
        monkeypatch.setattr(module, name, refuse)
    assert np.isfinite(ens10.load_model(again)(one)["mu"]).all()


def test_a_card_says_what_the_model_is(bundles):
    with zipfile.ZipFile(bundles["mlp"]) as archive:
        card, about = archive.read("README.md").decode(), json.loads(archive.read(MODEL))
        config = archive.read(CONFIG).decode()
    for words in ("t2m (K) at lead 48 h", "8 latitudes from 90 to -90", "crps 0.9",
                  "12 dates, 2000-01-03", "8 dates", "licence: CC-BY-4.0",
                  "ens10.models.PostProcessor"):  # fmt: skip
        assert words in card
    assert about["provenance"]["seed"] == 0
    assert "store" not in yaml.safe_load(config)["data"]


def test_what_was_changed_is_refused(bundles, one, tmp_path):
    whole = bundles["emos_global"].read_bytes()
    good = read_parts(bundles["emos_global"])
    path = tmp_path / "changed.ens10"
    refused = 0
    places = np.random.default_rng(0).integers(0, len(whole), 120)
    for place in places.tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            found = read_parts(path)
        except FileError:
            refused += 1
            continue
        assert found.config == good.config  # a time or an attribute in the archive's own tables
        assert found.training == good.training
        for name, value in good.weights.items():
            assert torch.equal(found.weights[name], value)
    assert refused > 100
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError):
            read_parts(path)
    with zipfile.ZipFile(bundles["emos_global"]) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    card = held["README.md"].replace(b"CC-BY-4.0", b"all mine!")
    assert card != held["README.md"]
    for files, options, said in (
        ({**held, "README.md": card}, {}, "README.md was changed"),
        ({**held, "run.py": b"print()"}, {}, "not a bundle: it holds"),
        (held, {"compression": zipfile.ZIP_DEFLATED}, "compressed"),
    ):
        with zipfile.ZipFile(path, "w", **options) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        with pytest.raises(FileError, match=said):
            read_parts(path)


def test_a_bundle_of_others_names_no_code_of_theirs(bundles, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "is_user_config", lambda text: False)
    read_parts(bundles["mlp"])  # the classes of this package are trusted
    with zipfile.ZipFile(bundles["mlp"]) as archive:
        config = yaml.safe_load(archive.read(CONFIG))
    config["model"]["init_args"]["network"]["class_path"] = "evil.Network"
    changed = {CONFIG: yaml.safe_dump(config).encode()}
    path = rewritten(bundles["mlp"], tmp_path / "evil.ens10", **changed)
    with pytest.raises(FileError, match="--trust evil"):
        read_parts(path)
    weights = {WEIGHTS: pickle.dumps({"a": 1})}
    with pytest.raises(FileError, match="damaged"):
        read_parts(rewritten(bundles["mlp"], path, **weights))


def test_the_command_and_its_use(runs, bundles, one, tmp_path, capsys):
    out, corrected = tmp_path / "mlp.ens10", tmp_path / "out.nc"
    realruns.command("bundle", runs["mlp"], "--out", out, "--licence", "CC-BY-4.0")
    assert out.read_bytes() == bundles["mlp"].read_bytes()
    realruns.command("bundle", runs["mlp"], "--out", out, status=1)
    folder = tmp_path / "bundles"
    realruns.command("bundle", *runs.values(), "--out", folder, "--licence", "CC-BY-4.0")
    assert {path.stem for path in folder.iterdir()} == set(runs)
    assert (folder / "mlp.ens10").read_bytes() == out.read_bytes()
    realruns.command("bundle", runs["raw"], runs["raw"], "--out", tmp_path / "two", status=1)
    assert not (tmp_path / "two").exists()
    assert "--force" in capsys.readouterr().err
    one.to_netcdf(tmp_path / "one.nc")
    realruns.command("apply", out, tmp_path / "one.nc", "--out", corrected)
    np.testing.assert_array_equal(
        xr.open_dataset(corrected)["mu"], ens10.load_model(runs["mlp"])(one)["mu"]
    )
    with pytest.raises(ArgumentError, match=r"without past truth.*--history"):
        ens10.load_model(out)(one, members="schaake")
    (tmp_path / "text").write_text("no bundle")
    with pytest.raises(FileError, match="not a bundle"):
        ens10.load_model(tmp_path / "text")
