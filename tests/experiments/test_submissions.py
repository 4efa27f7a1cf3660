"""`ens10 submit`: what is packed is accepted, and what was changed is refused with its reason."""

import json
import shutil
import zipfile
from dataclasses import fields
from hashlib import sha256

import numpy as np
import pytest
import xarray as xr
from docblocks import commands
from realruns import command

from ens10.errors import ArgumentError, FileError
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.scoring.score import read_states
from ens10.experiments.submissions.check import check
from ens10.experiments.submissions.content import (
    CHECKSUMS,
    CLAIM,
    MODEL,
    PREDICTIONS,
    Claim,
    pack_run,
)
from ens10.experiments.submissions.page import write_page
from ens10.metrics import summarise


@pytest.fixture(scope="module")
def packed(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    for name in ("mlp", "emos_local", "raw"):
        pack_run(runs[name], folder / name, authors="A. Tester")
    return folder


@pytest.fixture
def submission(packed, tmp_path):
    return shutil.copytree(packed / "mlp", tmp_path / "mlp")


def sign(folder):
    """Write the checksums anew, as somebody would who changes a file on purpose."""
    names = (CLAIM, MODEL, PREDICTIONS)
    sums = {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / CHECKSUMS).write_text(json.dumps(sums))


def claim(folder, **changes):
    content = json.loads((folder / CLAIM).read_text())
    (folder / CLAIM).write_text(json.dumps({**content, **changes}))
    sign(folder)
    return content


def change_predictions(folder, change):
    with xr.open_dataset(folder / PREDICTIONS, decode_times=False) as opened:
        changed = change(opened.load())
    # in place of the file, which a check before may not have closed
    changed.to_netcdf(folder / "changed.nc")
    (folder / "changed.nc").replace(folder / PREDICTIONS)
    sign(folder)


def test_what_is_packed_is_accepted_with_the_scores_of_the_run(packed, runs, store):
    verdict = check(packed / "mlp", store)
    assert verdict.refusals == []
    assert verdict.notes == []
    expected = summarise(read_states(runs["mlp"]), maps=False)
    for name in ("crps", "rmse", "spread_error"):
        assert verdict.scores[name] == pytest.approx(float(expected[name]), rel=1e-6)
    content = json.loads((packed / "mlp" / CLAIM).read_text())
    assert content.keys() == {one.name for one in fields(Claim)}
    assert content["authors"] == "A. Tester"
    assert content["cost"]["parameters"] > 0


def test_a_file_holds_the_same(runs, store, tmp_path, capsys):
    out = tmp_path / "mlp.zip"
    command("submit", "pack", runs["mlp"], "--out", out, "--name", "a small network")
    command("submit", "check", out, "--store", store)
    said = capsys.readouterr().out
    assert "mlp.zip: accepted: a small network\n  with this truth: crps 0." in said
    assert "Not detected: a training on the test dates that is not declared" in said
    with pytest.raises(FileError, match="exists"):
        pack_run(runs["mlp"], out)
    assert pack_run(runs["mlp"], out, force=True) == out


def shifted(dataset):
    dataset["mu"] = dataset["mu"] + 0.2
    return dataset


def one_date_less(dataset):
    return dataset.isel(time=slice(1, None))


def other_grid(dataset):
    return dataset.assign_coords(longitude=dataset["longitude"] + 0.5)


def as_ensemble(dataset):
    """Members that have the scores that are claimed of them: two, at the claimed CRPS."""
    members = xr.concat([dataset["mu"] - 1, dataset["mu"] + 1], "number")
    found = dataset.drop_vars(["mu", "sigma"]).assign(members=members.transpose("time", ...))
    return found.assign_attrs(forecast_kind="ensemble")


def without_weights(folder):
    (folder / MODEL).write_bytes(b"PK")
    sign(folder)


REFUSED = {
    "scores": (lambda f: claim(f, scores={"crps": 0.5}), "crps is claimed as 0.5, and is 0."),
    "no score": (lambda f: claim(f, scores={}), "no CRPS is claimed"),
    "a score that there is not": (
        lambda f: claim(f, scores={**claim(f)["scores"], "luck": 1.0}),
        "luck is claimed, and is no score",
    ),
    "dates left out": (
        lambda f: change_predictions(f, one_date_less),
        "1 test dates are not predicted",
    ),
    "another grid": (
        lambda f: change_predictions(f, other_grid),
        "longitude differs from that of the store",
    ),
    "units": (lambda f: claim(f, units="degC"), "t2m is in degC, in the store in K"),
    "another protocol": (lambda f: claim(f, rules={"test": 5}), "has other rules than 'clean'"),
    "declared training": (
        lambda f: claim(f, trained_on=claim(f)["dates"][:2]),
        "trained on 2 dates of the test split",
    ),
    "training that is not that of the model": (
        lambda f: claim(f, trained_on=claim(f)["trained_on"][1:]),
        "the model was trained on other dates than",
    ),
    "other weights": (lambda f: claim(f, weights="cos"), "scored with weights 'cos'"),
    "the name of the reference": (lambda f: claim(f, name="raw"), "only the raw ensemble may be"),
    "another kind of forecast": (
        lambda f: change_predictions(f, as_ensemble),
        "the predictions are ensemble, the model gives normal",
    ),
    "checksums that are none": (lambda f: (f / CHECKSUMS).write_text("[1]"), "damaged"),
    "a model without weights": (lambda f: without_weights(f), "model.ens10"),
    "another kind of format": (lambda f: claim(f, format=9), "not of format 1"),
    "a key of another type": (lambda f: claim(f, dates="all"), "damaged: submission.json: "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_agree_is_refused(submission, store, what):
    change, reason = REFUSED[what]
    change(submission)
    verdict = check(submission, store)
    if what == "another kind of forecast":  # whose scores are now claimed as they are
        claim(submission, scores={"crps": verdict.scores["crps"]})
        verdict = check(submission, store)
    assert any(reason in text for text in verdict.refusals), verdict.refusals
    assert not verdict.is_accepted


def test_predictions_that_the_model_does_not_give_are_refused(submission, store):
    """Even with scores that are true: better predictions than the model's."""
    truth = open_predictions_of(store, submission)

    def better(dataset):
        dataset["mu"] = 0.5 * dataset["mu"] + 0.5 * truth.transpose(*dataset["mu"].dims).to_numpy()
        return dataset

    change_predictions(submission, better)
    verdict = check(submission, store)
    assert any("crps is claimed as" in text for text in verdict.refusals)
    claim(submission, scores={"crps": verdict.scores["crps"]})
    verdict = check(submission, store)
    assert [text for text in verdict.refusals if "another mu for" in text] == verdict.refusals != []
    assert check(submission, store, recompute=0).is_accepted
    assert "--recompute 0" in check(submission, store, recompute=0).notes[0]


def test_values_left_out_where_they_are_bad_are_found(submission, store):
    """Even one date of many: that with the fewest values is among those computed again."""

    def fewer(dataset):
        dataset["mu"][{"time": 5, "longitude": slice(0, 3)}] = np.nan
        return dataset

    change_predictions(submission, fewer)
    found = check(submission, store).scores
    claim(submission, scores={"crps": found["crps"]})
    assert any("another mu" in text for text in check(submission, store, recompute=1).refusals)


def test_a_small_change_of_all_values_is_found(submission, store):
    """A hundredth of the CRPS is more than another processor changes."""
    size = check(submission, store).scores["crps"]

    def shift(dataset):
        dataset["mu"] = dataset["mu"] + 0.01 * size
        return dataset

    change_predictions(submission, shift)
    claim(submission, scores={"crps": check(submission, store).scores["crps"]})
    assert any("another mu" in text for text in check(submission, store).refusals)


def test_a_wrong_store_is_an_error_of_the_call(submission, tmp_path):
    with pytest.raises(FileError, match="no such"):
        check(submission, tmp_path / "none.zarr")


def open_predictions_of(store, submission):
    with xr.open_dataset(submission / PREDICTIONS) as opened:
        times = opened["time"].to_numpy()
    from ens10.store import open_store

    return open_store(store, "truth")["t2m"].sel(step=48, time=times).load()


def test_a_file_that_was_changed_is_named(submission, store):
    with (submission / PREDICTIONS).open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    assert "predictions.nc was changed after it was packed" in check(submission, store).refusals[0]
    (submission / "more.txt").write_text("x")
    assert "no submission: it holds" in check(submission, store).refusals[0]
    assert "no such submission" in check(submission / "none", store).refusals[0]


def test_an_archive_of_other_names_is_not_extracted(packed, store, tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../evil.txt", "x")
    assert "no submission: it holds ../evil.txt" in check(path, store).refusals[0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (packed / "mlp").iterdir():
            archive.write(file, file.name)
    assert "its parts are compressed" in check(path, store).refusals[0]
    path.write_bytes(b"PK\x03\x04")
    assert "no submission, or damaged" in check(path, store).refusals[0]
    assert not (tmp_path / "evil.txt").exists()


def test_the_page_has_those_that_are_accepted(packed, store, tmp_path, capsys):
    everything = shutil.copytree(packed, tmp_path / "all")
    bad = shutil.copytree(packed / "mlp", everything / "bad")
    claim(bad, scores={"crps": 0.1}, name="too good")
    out = tmp_path / "board"
    command("submit", "page", everything, "--store", store, "--out", out)
    assert "bad: REFUSED: too good" in capsys.readouterr().out
    table = (out / "table.md").read_text()
    assert all(f"| {name} |" in table for name in ("raw", "mlp", r"emos\_local"))
    assert "too good" not in table
    refused = (out / "refused.md").read_text()
    assert "- bad: crps is claimed as 0.1" in refused
    assert "is claimed, and not checked" in refused
    assert "Not detected" in refused
    assert (out / "index.html").is_file()
    crps = summarise(read_states(out / "accepted" / "mlp"), maps=False)["crps"]
    assert float(crps) == pytest.approx(check(packed / "mlp", store).scores["crps"], rel=1e-9)


def test_the_commands_of_the_page_run(runs, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "unet").symlink_to(runs["unet"])
    (tmp_path / "store.zarr").symlink_to(store)
    (tmp_path / "submissions").mkdir()
    listed = commands("docs/submissions.md")
    assert len(listed) == 3
    for words in listed:
        command(*words)
    assert (tmp_path / "board" / "index.html").is_file()


def test_what_cannot_be_done_is_said(runs, store, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="holds no submissions"):
        write_page(tmp_path / "empty", store, tmp_path / "out")
    command("submit", "pack", runs["mlp"], status=1)
    assert "--out: is missing" in capsys.readouterr().err
    command("submit", "check", runs["mlp"], status=1)
    assert "--store: is missing" in capsys.readouterr().err
    assert "no submission: it holds" in check(runs["mlp"], store).refusals[0]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(FileError):
        pack_run(runs["mlp"], tmp_path / "notes", force=True)
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"
    assert np.isfinite(check(pack_run(runs["mlp"], tmp_path / "s"), store).scores["crps"])
    _, truth = open_predictions(runs["mlp"])
    assert truth.size > 0
