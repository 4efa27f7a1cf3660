"""Members with text labels are taken by their texts, wherever a run meets other data."""

import re
import shutil
import warnings

import numpy as np
import pytest
import realruns
import torch
import xarray as xr

import ens10
from ens10.convert import prepare
from ens10.errors import ArgumentError, DataNote, MissingDataError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.bundle import bundle
from ens10.experiments.forecasts.couple import couple_run
from ens10.experiments.forecasts.load import BeyondTrainingWarning
from ens10.experiments.forecasts.products import Products
from ens10.identity import member_labels
from ens10.loader import EnsembleDataModule
from ens10.loader.training_members import choose_members, members_of_store
from ens10.source import open_source

ORDER = (3, 1, 2, 10, 9, 4, 5, 8, 7, 6)
TEXTS = [f"m{n:02d}" for n in ORDER]
OTHER_ORDER = [4, 8, 0, 9, 2, 1, 7, 3, 6, 5]  # places of the same members in other data


@pytest.fixture(scope="module")
def named(world):
    """The forecasts of the world, whose members have texts."""
    data = open_source(world.folder)[["t2m"]].load()
    return data.assign_coords(number=TEXTS)


@pytest.fixture(scope="module")
def named_stores(named, world, tmp_path_factory):
    """Two stores of the same forecasts: the members of the second are in another order."""
    folder, truth = tmp_path_factory.mktemp("named"), world.folder / "truth"
    orders = {"own": slice(None), "other": OTHER_ORDER}
    return {
        name: prepare(named.isel(number=order), folder / f"{name}.zarr", truth=truth)
        for name, order in orders.items()
    }


@pytest.fixture(scope="module")
def run(named_stores, tmp_path_factory):
    """EMOS with a weight for each member, so that their order matters."""
    run = tmp_path_factory.mktemp("runs") / "emos_paper"
    return realruns.fit("emos_paper", named_stores["own"], run)


@pytest.fixture
def model(run):
    return ens10.load_model(run)


def used_members(model, forecast):
    """The values (M, H, W) of the members that a model takes at the first date."""
    return model.corrections(forecast).samples.ensemble(0)


def with_strangers(named):
    """Two dates in another order of members, and four others, which are 50 K warmer."""
    two = named.isel(time=[0, 3])
    others = (two.isel(number=slice(4)) + 50).assign_coords(number=["p1", "p2", "p3", "m00"])
    return xr.concat([others, two.isel(number=OTHER_ORDER)], "number")


def test_the_texts_of_the_training_are_recorded(run):
    held = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    trained = held["EnsembleDataModule"]["trained"]
    assert trained["labels"] == TEXTS
    assert trained["numbers"] == list(range(1, 11))


@pytest.mark.parametrize("suffix", ["", ".ens10"])
def test_members_are_taken_by_their_texts(run, named, tmp_path, suffix):
    source = bundle(run, tmp_path / "run.ens10") if suffix else run
    model, two = ens10.load_model(source), named.isel(time=[0, 3])
    expected = two["t2m"].sel(number=TEXTS).isel(time=0, step=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeyondTrainingWarning)
        for forecast in (two, two.isel(number=OTHER_ORDER), with_strangers(named)):
            np.testing.assert_array_equal(used_members(model, forecast), expected)
            xr.testing.assert_identical(model(forecast, members="ecc"), model(two, members="ecc"))
        with_strangers(named).to_netcdf(tmp_path / "in.nc")
        out = apply(
            [source], tmp_path / "in.nc", tmp_path / "out.nc", products=Products(members="ecc")
        )
    written = xr.load_dataset(out)
    np.testing.assert_array_equal(written["mu"], model(two)["mu"])
    assert written["number"].to_numpy().tolist() == list(range(1, 11))
    assert member_labels(written["number"]) == TEXTS
    raw = two["t2m"].sel(number=TEXTS).squeeze("step")
    np.testing.assert_array_equal(written["t2m"].argsort(axis=1), raw.argsort(axis=1))
    again = open_source(out)  # what ens10 writes, it reads: the texts too
    assert member_labels(again["number"]) == TEXTS


def test_members_that_cannot_be_matched_are_named(run, model, named, tmp_path):
    two, two_again = named.isel(time=[0, 3]), named.isel(time=[0, 3], number=OTHER_ORDER)
    others = two_again.assign_coords(number=[f"x{n}" for n in range(10)])
    said = r"emos_paper: the first 10 members are used \(x0, x1, .*x9\), since those of the"
    with pytest.warns(BeyondTrainingWarning, match=said):
        values = used_members(model, others)
    np.testing.assert_array_equal(values, two_again["t2m"].isel(time=0, step=0))
    numbers = two_again.assign_coords(number=range(5, 15))
    with pytest.warns(BeyondTrainingWarning, match=r"\(5 to 14\), since the forecast has no text"):
        values = used_members(model, numbers)
    np.testing.assert_array_equal(values, two_again["t2m"].isel(time=0, step=0))
    # a run of an earlier version
    path = shutil.copytree(run, tmp_path / "old") / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    held["EnsembleDataModule"]["trained"].pop("labels")
    torch.save(held, path)
    old = ens10.load_model(tmp_path / "old")
    with pytest.warns(BeyondTrainingWarning, match=r"\(m03, m01, .*since the run records no text"):
        np.testing.assert_array_equal(used_members(old, two), used_members(model, two))
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeyondTrainingWarning)
        xr.testing.assert_identical(old(two.assign_coords(number=range(1, 11))), model(two))


def test_a_missing_member_is_named_by_its_text(runs, run, model, named, tmp_path):
    nine = with_strangers(named).isel(number=slice(4, None)).drop_sel(number="m04")
    with pytest.raises(ArgumentError, match=r"needs 10 members, found 9"):
        model(nine)
    gap = named.isel(time=[0, 3], number=OTHER_ORDER).copy(deep=True)
    gap["t2m"].loc[{"number": "m04"}] = np.nan
    with pytest.raises(MissingDataError, match=r"number m04: t2m"):
        model(gap)
    gap.to_netcdf(tmp_path / "gap.nc")
    with pytest.raises(MissingDataError, match=r"t2m of 2000-01-01T00 step 48 number m04"):
        prepare(tmp_path / "gap.nc", tmp_path / "gap.zarr")
    # the moments of the nine others; the tenth member of the output is NaN
    path = shutil.copytree(runs["emos_local"], tmp_path / "local") / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    held["EnsembleDataModule"]["trained"]["labels"] = TEXTS
    torch.save(held, path)
    local = ens10.load_model(tmp_path / "local")
    found = local(nine, missing="fewer", members="ecc")
    xr.testing.assert_identical(found, local(gap, missing="fewer", members="ecc"))
    assert found["members_used"].to_numpy().tolist() == [9, 9]
    place = TEXTS.index("m04")
    assert list(found["number"].attrs["labels"]) == TEXTS
    assert found["t2m"].isnull().all(["time", "latitude", "longitude"]).to_numpy().tolist() == [
        n == place for n in range(10)
    ]
    raw = nine["t2m"].squeeze("step").sel(number=[t for t in TEXTS if t != "m04"])
    kept = found["t2m"].isel(number=[n for n in range(10) if n != place])
    np.testing.assert_array_equal(kept.argsort(axis=1), raw.argsort(axis=1))


def test_other_stores_are_predicted_and_coupled_by_their_texts(run, named_stores, tmp_path):
    own = shutil.copytree(run, tmp_path / "own")
    other = shutil.copytree(run, tmp_path / "other")
    realruns.command("predict", "--run", own, "--quiet")
    options = ["--data.store", named_stores["other"]]
    realruns.command("predict", "--run", other, "--quiet", *options)
    mine, theirs = (xr.open_zarr(r / "predictions.zarr")["mu"].load() for r in (own, other))
    np.testing.assert_array_equal(theirs, mine)
    coupled = [
        couple_run(own, "ecc", store=store, out=tmp_path / f"{name}.zarr")
        for name, store in named_stores.items()
    ]
    first, second = (xr.open_zarr(path).load() for path in coupled)
    np.testing.assert_array_equal(first["members"], second["members"])
    assert list(second["number"].attrs["labels"]) == TEXTS


def test_a_resumed_training_takes_the_members_of_its_checkpoint(named_stores):
    first = EnsembleDataModule(str(named_stores["own"]), members=True)
    first.setup("fit")
    state = first.state_dict()
    resumed = EnsembleDataModule(str(named_stores["other"]), members=True)
    resumed.setup("fit")
    resumed.load_state_dict(state)
    want, got = (next(iter(data.batches("test")))["members"] for data in (first, resumed))
    np.testing.assert_array_equal(got, want)
    assert resumed.state_dict()["trained"] == state["trained"]


@pytest.mark.parametrize(
    ("labels", "ensemble", "trained", "chosen", "said"),
    [
        ([1, 2, 3], None, [3, 1], [3, 1, 2], ""),
        (["b", "a", "c"], 2, ["a", "b", "c"], ["a", "b"], ""),
        (["b", "a", "c"], 3, ["c", "a"], ["c", "a", "b"], ""),
        ([0, 1, 2], None, [1, 2, 3], [0, 1, 2], "control member is used too"),
        ([4, 5, 6], 2, [1, 2, 3], [4, 5], r"first 2 perturbed members are used \(4 to 5\)"),
    ],
)  # fmt: skip
def test_the_members_of_another_store(labels, ensemble, trained, chosen, said):
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", DataNote)
        assert members_of_store(labels, ensemble, trained) == chosen
    assert [bool(said)] * len(notes) == [True] * bool(said)
    for note in notes:
        assert re.search(said, str(note.message))
    with pytest.raises(ArgumentError, match=r"needs 9 members, found 3"):
        members_of_store(labels, 9, trained)


def test_members_that_are_not_there_fill_an_ensemble_of_texts():
    found, note = choose_members(["b", "x"], 4, ["a", "b", "c", "d"], fewer=True, least=2)
    assert found == ["b", "x", "a", "c"]
    assert note == "the members b, x are used, since those of the training are not all there"
    found, note = choose_members(["c", "b"], 4, ["a", "b", "c", "d"], fewer=True, least=2)
    assert (found, note) == (["a", "b", "c", "d"], "")
    found, note = choose_members(["b", "a"], 3, [1, 2, 3], fewer=True, least=2)
    assert found == ["b", "a", "missing 1"]
    assert note == "the members b, a are used, since the run records no text labels"


@pytest.mark.parametrize(
    ("numbers", "labels", "found"),
    [
        ([1, 2], ["a", "b"], ["a", "b"]),
        ([2], ["a", "b"], ["b"]),
        ([1], "a", ["a"]),
        ([0, 1], ["a", "b"], [0, 1]),  # of somebody else: not of the members 1 to n
        ([1, 2], ["a", "a"], [1, 2]),
        ([1, 2], None, [1, 2]),
    ],
)  # fmt: skip
def test_labels_are_texts_or_numbers(numbers, labels, found):
    attributes = {} if labels is None else {"labels": labels}
    assert member_labels(xr.DataArray(numbers, dims="number", attrs=attributes)) == found
