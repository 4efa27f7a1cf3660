"""Configurations of the statistical methods, through the real command line."""

import csv
import json

import numpy as np
import pytest
import torch

from ens10.cli import main
from ens10.experiments.demo import config_path
from ens10.experiments.runs.reading import open_predictions
from ens10.models.statistical.spool import Spool

POINTS = 8 * 16
# what is written, and the number of coefficients
KINDS = {
    "raw": ("ensemble", 0),
    "raw_normal": ("normal", 0),
    "raw_truncated": ("truncated_normal", 0),
    "raw_censored": ("censored_normal", 0),
    "climatology": ("normal", 2 * POINTS),
    "seasonal_climatology": ("normal", 2 * 5 * POINTS),
    "bias_map": ("normal", 3 * POINTS),
    "emos_global": ("normal", 4),
    "emos_samos": ("normal", 12 * POINTS + 10),
    "emos_paper": ("normal", 13),
    "emos_local": ("normal", 4 * POINTS),
    "emos_window": ("normal", 4 * POINTS),
    "emos_seasonal": ("normal", 12 * POINTS),
    "emos_logistic": ("logistic", 12 * POINTS),
    "emos_truncated": ("truncated_normal", 12 * POINTS),
    "emos_censored": ("censored_logistic", 12 * POINTS),
    "emos_ridge": ("normal", 22 * POINTS),  # 1, six features, mean, two of the year, log deviation
    "emos_advection": ("normal", 34 * POINTS),
    "emos_neighbours": ("normal", 68 * POINTS),  # 1, two winds, 27, mean, two of the year, log
    "emos_boosting": ("normal", 22 * POINTS),
    "emos_csg": ("csgd", 7 * POINTS),
    "emos_gev": ("censored_gev", 7 * POINTS),
    "member_by_member": ("ensemble", 3 * POINTS),
    "isotonic": ("quantiles", 20 * 64 * POINTS),
    "ecc": ("ensemble", 12 * POINTS),
    "schaake": ("ensemble", 12 * POINTS),
}


WORLD = (range(2000, 2008), 6, ("t2m", "u10", "v10"))


@pytest.fixture(scope="module")
def store(prepared):
    torch.set_num_threads(1)
    return prepared("8x16", *WORLD, steps=(48,)) / "store.zarr"


def command(*arguments, status=0):
    assert main([str(a) for a in arguments]) == status


def fit(name, store, run, *options, status=0):
    config = ["--config", config_path(name), "--data.store", store, "--run", run, "--quiet"]
    command("fit", *config, *options, status=status)


def scored(run):
    command("predict", "--run", run, "--quiet")
    command("score", run)
    with (run / "scores.csv").open() as file:
        return {row["score"]: float(row["value"]) for row in csv.DictReader(file)}


def provenance(run):
    return json.loads((run / "provenance.json").read_text())


def said(capsys):
    """What was printed, without what wraps it."""
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.fixture(scope="module")
def raw_crps(store, tmp_path_factory):
    run = tmp_path_factory.mktemp("raw") / "raw"
    fit("raw", store, run)
    return scored(run)["crps"]


# six dates a year are too few for windows of some weeks
OPTIONS = {"emos_window": ("--model.init_args.method.init_args.days", 1000)}
RAIN = ("emos_csg", "emos_gev")  # see test_amounts.py, whose world has precipitation
FAST = (
    "emos_paper",
    "isotonic",
    "emos_censored",
    "raw_normal",
    "emos_neighbours",
)  # the others differ in little


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in KINDS if n not in RAIN],
)
def test_each_is_fitted_writes_its_kind_and_is_scored(name, store, raw_crps, tmp_path):
    run = tmp_path / name
    fit(name, store, run, *OPTIONS.get(name, ()))
    crps = scored(run)["crps"]
    forecast, truth = open_predictions(run)
    kind, coefficients = KINDS[name]
    assert forecast.attrs["forecast_kind"] == kind
    assert forecast.sizes.get("number", 10) == 10
    assert truth.sizes["time"] == provenance(run)["dates"]["test"]
    assert provenance(run)["parameters"] == coefficients
    if name == "raw":
        assert crps == raw_crps
    elif "climatology" in name or name == "isotonic":  # which know no dates, or few
        assert 0 < crps < 15 * raw_crps
    else:
        assert crps < raw_crps


def test_a_fit_sees_the_training_dates_and_no_others(store, tmp_path, monkeypatch):
    seen = []

    def append(self, fields, weights, dates, real=Spool.append):
        seen.extend(dates.tolist())
        real(self, fields, weights, dates)

    monkeypatch.setattr(Spool, "append", append)
    fit("emos_seasonal", store, tmp_path / "run")
    facts = provenance(tmp_path / "run")
    years = np.unique(np.array(seen, "datetime64[s]").astype("datetime64[Y]").astype(int) + 1970)
    assert years.tolist() == facts["years"]["train"]
    assert len(seen) == len(set(seen)) == facts["dates"]["train"]
    assert min(facts["years"]["val"]) > max(years)


def test_data_of_five_members_do_not_enter_a_fit_of_ten(store, tmp_path, capsys):
    run = tmp_path / "run"
    fit("emos_paper", store, run)
    command("predict", "--run", run, "--quiet", "--data.ensemble", 5, status=1)
    message = said(capsys)
    assert "the batch has 5, but this EMOS was fitted to 10 and has a weight for each" in message
    assert "or use EMOS, which accepts any" in message
    assert not (run / "predictions.zarr").exists()
    five = tmp_path / "five"
    fit("emos_paper", store, five, "--data.ensemble", 5)
    assert provenance(five)["parameters"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["emos_seasonal", "member_by_member"])
def test_those_for_exchangeable_members_take_any_number(name, store, tmp_path):
    run = tmp_path / "run"
    fit(name, store, run)
    command("predict", "--run", run, "--quiet", "--data.ensemble", 5)
    assert open_predictions(run)[0].sizes.get("number", 5) == 5


@pytest.mark.slow
def test_data_on_another_grid(store, prepared, tmp_path, capsys):
    run, other = tmp_path / "run", prepared("9x16", *WORLD, steps=(48,)) / "store.zarr"
    fit("emos_local", store, run)
    command("predict", "--run", run, "--quiet", "--data.store", other, status=1)
    assert "a grid of (9, 16) (rows, columns) does not fit" in said(capsys)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "schaake",
            ("--model.init_args.method.init_args.members", "40"),
            "40 need more training dates than that, there are 30",
        ),
        ("ecc", ("--data.members", "false"), "no ensemble members, which ECC needs"),
    ],
)
def test_one_clear_error(name, options, message, store, tmp_path, capsys):
    fit(name, store, tmp_path / "run", *options, status=1)
    assert message in said(capsys)
    assert not (tmp_path / "run").exists()
