"""One training of several lead times or targets: batches, runs, scores, reports, forecasts."""

import shutil
from copy import deepcopy
from datetime import datetime
from functools import partial

import eccodes
import numpy as np
import pytest
import pytorch_lightning as pl
import realruns
import torch
import xarray as xr

import ens10
from ens10.errors import Ens10Error
from ens10.experiments.forecasts.apply import CombinedCorrections, apply
from ens10.experiments.forecasts.products import Products
from ens10.experiments.runs.reading import open_predictions, run_parts
from ens10.experiments.scoring.optimum import score_optimum
from ens10.experiments.scoring.run_results import read_run
from ens10.experiments.scoring.score import read_states
from ens10.grid import area_weights
from ens10.loader import Batches, EnsembleDataModule, as_tensors, store_samples
from ens10.loader.batch_layouts import Points
from ens10.loader.resident import ResidentBatches
from ens10.metrics import crps_normal
from ens10.models import (
    MethodHead,
    PostProcessor,
    ResidualNormalHead,
    StatisticalPostProcessor,
    TargetHeads,
)
from ens10.models.networks import MLP
from ens10.models.statistical import (
    ECC,
    EMOS,
    BiasMap,
    BoostedEMOS,
    Climatology,
    IsotonicRegression,
    MemberByMember,
    Raw,
    RidgeEMOS,
    SchaakeShuffle,
    SeasonalClimatology,
    SeasonalEMOS,
    SlidingWindow,
    StatisticalMethod,
)
from ens10.models.statistical.targets import by_target
from ens10.protocol import protocol_of
from ens10.source import open_source
from ens10.synthetic import World

STEPS = (24, 48)
INPUTS = ["u10", "t2m", "z500", "u500"]
FIELDS = ("raw_mean", "raw_std", "target", "weights", "members")


@pytest.fixture(scope="module")
def several(prepared):
    """A store with truth of t2m and z500 at 24 and 48 h; its world is beside it."""
    variables = ["t2m", "u10", "z", "u"]
    options = {"levels": (500,), "steps": STEPS, "truth_steps": STEPS}
    return prepared("8x16", range(2000, 2006), 4, variables, **options) / "store.zarr"


def fit(store, run, *options, channels, epochs=20):
    network = ["--model.network.in_channels", channels]
    data = ["--data.inputs", "[t2m,u10]", *network, *options]
    return realruns.finish(realruns.fit("mlp", store, run, *data, epochs=epochs))


@pytest.fixture(scope="module")
def both(several, shared):
    """A run of t2m at 24 and 48 h."""

    def fill(folder):
        fit(several, folder / "both", "--data.step", "[24, 48]", channels=8)

    return shared("lead-times", fill) / "both"


def test_dates_of_several_lead_times_stay_in_memory(several):
    options = {"inputs": INPUTS, "extras": ["location"], "step": STEPS, "batch_size": 3}
    kept, read = (Batches(several, ["t2m", "z500"], **options) for _ in range(2))
    loader = ResidentBatches(kept, None, torch.device("cpu"), torch.device("cpu"))
    for number in range(2):
        kept.set_epoch(number)
        read.set_epoch(number)
        for tensors, arrays in zip(loader, read, strict=True):
            assert tensors.keys() == arrays.keys() >= {"steps", "dates"}
            for key, values in arrays.items():
                np.testing.assert_array_equal(tensors[key].numpy(), values)


@pytest.mark.parametrize("kind", ["fields", "members", Points(64, shuffle=False)])
def test_batches_hold_those_of_each_target_and_lead_time(several, kind):
    options = {"split": "train", "kind": kind, "members": True, "shuffle": False}
    together = Batches(several, ["t2m", "z500"], INPUTS, step=STEPS, **options)
    found = iter(together)
    for step in STEPS:
        t2m, z500 = (
            Batches(several, f"{target}@{step}", INPUTS, extras=["lead"], **options)
            for target in ("t2m", "z500")
        )
        assert together.channels == t2m.channels
        for alone, other in zip(t2m, z500, strict=True):
            batch = next(found)
            np.testing.assert_array_equal(batch["features"], alone["features"])
            np.testing.assert_array_equal(batch["dates"], alone["dates"])
            assert (batch["steps"] == step).all()
            lead = batch["features"].take(-1, 1 if batch["features"].ndim < 5 else 2)
            assert (lead == step / 24).all()
            for n, part in enumerate((alone, other)):
                for name in FIELDS:
                    np.testing.assert_array_equal(batch[name][:, n], part[name])
    assert next(found, None) is None
    assert len(together) == 2 * len(t2m)


def test_a_store_is_opened_once_for_all_targets_and_lead_times(several, monkeypatch):
    opened, opens = [], store_samples.open_strictly

    def counted(path, record):
        opened.append(path)
        return opens(path, record)

    monkeypatch.setattr(store_samples, "open_strictly", counted)
    batches = Batches(several, ["t2m", "z500"], INPUTS, step=STEPS)
    assert len([target for lead in batches.samples.leads for target in lead.targets]) == 4
    assert opened == [several]


def test_an_epoch_mixes_lead_times(several):
    steps = [b["steps"].tolist() for b in Batches(several, "t2m", step=STEPS, batch_size=4)]
    assert any(len(set(batch)) == 2 for batch in steps)
    assert sorted(step for batch in steps for step in batch) == [24.0] * 12 + [48.0] * 12


def test_training_ends_before_the_test_starts_at_every_lead_time(several):
    protocol = {
        "train": "2000-01-01/2001-12-31",
        "val": "2002-01-01/2002-12-31",
        "test": "2003-01-01/2005-12-31",
    }
    train, test = (
        Batches(several, "t2m", split=split, step=STEPS, protocol=protocol_of(protocol))
        for split in ("train", "test")
    )
    starts = [samples.time[index] for samples, index in test.by_lead()]
    assert train.dates.max() <= np.concatenate(starts).min()
    assert [len(index) for _, index in train.by_lead()] == [8, 8]
    sums = Batches(several, "t2m@48", protocol=protocol_of(protocol)).normaliser
    np.testing.assert_array_equal(train.normaliser.at(1).mean, sums.mean)


@pytest.mark.slow  # two more trainings
def test_one_run_of_two_lead_times_is_scored_beside_those_of_one(both, several, tmp_path):
    alone = [tmp_path / str(step) for step in STEPS]
    for run in alone:
        fit(several, run, "--data.step", run.name, channels=7)
    parts = run_parts(both)
    assert [part.name for part in parts] == ["t2m-24h", "t2m-48h"]
    for run, part in zip(alone, parts, strict=True):
        ours, theirs = (xr.open_dataset(f / "scores.nc") for f in (part, run))
        np.testing.assert_array_equal(ours["time"], theirs["time"])
        crps, of_one = (
            float(scores["crps_sum"].sum() / scores["crps_weight"].sum())
            for scores in (ours, theirs)
        )
        assert crps < 0.95 * raw_crps(several, part)
        assert crps < 1.03 * of_one
    realruns.command("report", *alone, both, "--out", tmp_path / "report")
    for step in STEPS:
        table = (tmp_path / "report" / f"t2m-{step}-h" / "table.csv").read_text()
        assert {line.split(",")[0] for line in table.splitlines()[1:]} == {str(step), "both"}


def raw_crps(store, part):
    """CRPS of the raw mean and spread as a normal, by the formula of another package's oracle."""
    import properscoring

    forecast, truth = open_predictions(part)
    step = int(forecast["step"])
    kind, name = ("sfc", "t2m") if part.name.startswith("t2m") else ("pl", "z")
    raw = ens10.open_store(store, kind)[name].squeeze(drop=True)
    raw = raw.sel(step=step, time=forecast["time"])
    crps = properscoring.crps_gaussian(truth, raw.mean("number"), raw.std("number", ddof=1))
    weights = np.cos(np.deg2rad(truth["latitude"].to_numpy())) + 1e-9
    return float((crps.mean((0, 2)) * weights).sum() / weights.sum())


def test_an_applied_run_holds_what_it_predicted_at_each_lead_time(both, several, tmp_path):
    run, products = both, Products((0.5,), (), "ecc")
    realruns.command("bundle", run, "--out", tmp_path / "both.ens10")
    written = xr.open_dataset(apply([run], several, tmp_path / "out.nc", products=products))
    models = [ens10.load_model(path) for path in (run, tmp_path / "both.ens10")]
    for model in models:
        returned = model(several, quantiles=[0.5], members="ecc").load()
        assert set(returned.variables) == set(written.variables)
        for name in returned.data_vars:
            np.testing.assert_array_equal(returned[name], written[name])
            assert returned[name].dims == written[name].dims
            assert returned[name].attrs == written[name].attrs
    for part in run_parts(run):
        forecast, _ = open_predictions(part)
        there = written.sel(step=forecast["step"], time=forecast["time"])
        np.testing.assert_array_equal(there["t2m_mu"], forecast["mu"])
        np.testing.assert_array_equal(there["t2m_sigma"], forecast["sigma"])
        np.testing.assert_array_equal(there["valid_time"], forecast["valid_time"])


def test_coupled_members_of_each_lead_time(both, tmp_path):
    run = shutil.copytree(both, tmp_path / "both")
    realruns.command("couple", run, "--method", "ecc")
    for part in run_parts(run):
        members = xr.open_zarr(part / "coupled_ecc.zarr")["members"]
        forecast, _ = open_predictions(part)
        np.testing.assert_allclose(members.mean("number"), forecast["mu"], atol=1e-3)
    realruns.command("couple", run, "--method", "ecc", "--out", run / "a.zarr", status=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"step": [24, 72]}, r"target: truth exists at the steps \[24, 48\], not at 72"),
        ({"step": [24, 24]}, "t2m@24, t2m@24: one occurs twice"),
        ({"step": []}, "step: none is given"),
        ({"target": [], "step": 24}, "target: none is given"),
        ({"target": "t2m@24", "step": [24, 48]}, "'t2m@24' has a lead time, and so has `step`"),
        ({"target": ["t2m@24", "z500@48"]}, "have the same lead times, not t2m@24, z_500@48"),
        ({"inputs": ["t2m@24"], "step": [24, 48]}, "inputs: 't2m@24' has a lead time"),
        ({"target": ["t2m", "z800"], "step": 24}, "z800"),
    ],
)
def test_what_cannot_be_trained_together(several, options, said):
    with pytest.raises(Ens10Error, match=said):
        Batches(several, **{"target": "t2m", **options})


def test_statistics_of_other_lead_times(several):
    both = Batches(several, "t2m", step=STEPS).normaliser
    with pytest.raises(Ens10Error, match=r"step: 1 lead times do not fit .* which have 2"):
        Batches(several, "t2m@24", normaliser=both)


BOTH = ["--data.target", "[t2m, z500]", "--data.step", "[24, 48]"]
NAMES = ("t2m-24h", "t2m-48h", "z_500-24h", "z_500-48h")


@pytest.fixture(scope="module")
def emos(several, shared):
    """Local EMOS of t2m and z500 at 24 and 48 h: one run of all, and one run of each."""

    def fill(folder):
        realruns.finish(realruns.fit("emos_local", several, folder / "all", *BOTH))
        for name in NAMES:
            target, step = name.replace("_", "").removesuffix("h").split("-")
            data = ["--data.target", target, "--data.step", step, "--data.inputs", f"[{target}]"]
            realruns.finish(realruns.fit("emos_local", several, folder / name, *data))

    return shared("emos-of-each", fill)


def heads_of(*heads):
    named = f"[{','.join(heads)}]"
    return ["--model.head", "ens10.models.TargetHeads", "--model.head.heads", named]


PRESSURE = ("isobaricInhPa", 500)
EPOCHS = 8
NORMAL = "ens10.models.ResidualNormalHead"
METHOD = "ens10.models.MethodHead"


@pytest.fixture(scope="module")
def targets(several, shared):
    """A run of t2m and z500 at 24 and 48 h."""

    def fill(folder):
        options = ["--data.target", "[t2m, z500]", "--data.step", "[24, 48]"]
        options += heads_of(NORMAL, NORMAL)
        inputs = ["--data.inputs", "[t2m,u10,z500,u500]", "--model.network.out_channels", 4]
        fit(several, folder / "four", *options, *inputs, channels=12, epochs=EPOCHS)

    return shared("several-targets", fill) / "four"


@pytest.fixture(scope="module")
def report(targets, emos, tmp_path_factory):
    """The report of the runs of all targets and lead times, and of one of a single one."""
    folder = tmp_path_factory.mktemp("report")
    realruns.command("report", targets, emos / "all", emos / "z_500-48h", "--out", folder)
    return folder


def test_a_statistical_run_of_all_equals_runs_of_each(emos, report):
    parts = run_parts(emos / "all")
    assert tuple(part.name for part in parts) == NAMES
    for part in parts:
        for ours, theirs in zip(
            open_predictions(part), open_predictions(emos / part.name), strict=True
        ):
            xr.testing.assert_identical(ours.load(), theirs.load())
        ours, theirs = (xr.load_dataset(f / "scores.nc") for f in (part, emos / part.name))
        xr.testing.assert_identical(ours, theirs)
    table = (report / "z-500-48-h" / "table.csv").read_text().splitlines()
    rows = {line.split(",")[0]: line.split(",")[1:4] for line in table[1:]}
    assert rows["all"] == rows["z_500-48h"]


def test_a_statistical_run_of_all_in_use(emos, several, tmp_path):
    run = emos / "all"
    realruns.command("bundle", run, "--out", tmp_path / "all.ens10")
    written = xr.open_dataset(apply([run], several, tmp_path / "out.nc"))
    returned = ens10.load_model(tmp_path / "all.ens10")(several)
    for part in run_parts(run):
        forecast, _ = open_predictions(emos / part.name)
        for name in ("mu", "sigma"):
            of_all = f"{part.name.partition('-')[0]}_{name}"
            for held in (written, returned):
                there = held[of_all].sel(step=forecast["step"], time=forecast["time"])
                np.testing.assert_array_equal(there, forecast[name])


@pytest.mark.parametrize(
    "method",
    [
        Raw(),
        Climatology(),
        SeasonalClimatology(),
        BiasMap(),
        EMOS(),
        pytest.param(SeasonalEMOS(harmonics=1), marks=pytest.mark.slow),
        RidgeEMOS(strength=10.0),
        pytest.param(BoostedEMOS(steps=20, stop="none"), marks=pytest.mark.slow),
        MemberByMember(),
        pytest.param(IsotonicRegression(levels=9, nodes=5), marks=pytest.mark.slow),
        ECC(EMOS(local=True)),
        SchaakeShuffle(EMOS(), members=4),
        SlidingWindow(EMOS(), 300),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_is_fitted_to_each_target_and_lead_time(several, method):
    in_order = not isinstance(method, Climatology | SeasonalClimatology | BiasMap)
    tolerance = 0 if in_order else 1e-6  # sums depend on the order of the dates, by rounding
    if isinstance(method, RidgeEMOS | BoostedEMOS):
        tolerance = 1e-5  # the lead time is one more predictor, which is constant
    together = forecasts_of(several, deepcopy(method), ["t2m", "z500"], list(STEPS))
    for target, name in enumerate(("t2m", "z500")):
        for step in STEPS:
            alone = forecasts_of(several, deepcopy(method), name, step)
            for (date, _), (found, *_) in alone.items():
                want, held = found.variables(), together[date, step][target].variables()
                assert want.keys() == held.keys()
                for key in want:
                    torch.testing.assert_close(held[key], want[key], rtol=tolerance, atol=0)


def forecasts_of(store, method, target, step):
    """The forecasts of the test dates by valid date and lead time."""
    inputs = ["t2m", "z500"]
    data = EnsembleDataModule(store, target, inputs, step=step, members=True, batch_size=5)
    trainer, model = fitted(method, data)
    found = trainer.predict(model, datamodule=data)
    return {
        (int(one.dates[0]), int(one.steps[0]) if one.steps is not None else step): one.forecasts
        for one in found
    }


def fitted(method, data):
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    statistical = isinstance(method, StatisticalMethod)
    model = StatisticalPostProcessor(method) if statistical else method
    trainer.fit(model, datamodule=data)
    return trainer, model


def test_the_loss_of_a_statistical_run_is_in_units_of_the_spread(several):
    """Batches of mixed lead times give the mean of the losses of single runs."""
    losses = []
    for target, step in (
        (["t2m", "z500"], [24, 48]),
        ("t2m", 24),
        ("t2m", 48),
        ("z500", 24),
        ("z500", 48),
    ):
        data = EnsembleDataModule(several, target, ["t2m"], step=step, batch_size=3)
        trainer, _ = fitted(EMOS(local=True), data)
        losses.append(float(trainer.callback_metrics["val_crps"]))
        if len(losses) == 1:
            scales = data.target_scales
    t2m, z500 = np.mean(losses[1:3]) / scales[0], np.mean(losses[3:]) / scales[1]
    assert losses[0] == pytest.approx((t2m + z500) / 2, rel=1e-5)


def test_a_method_within_each_head_is_solved_for_each_target_and_lead_time(several):
    data = EnsembleDataModule(several, ["t2m", "z500"], step=list(STEPS), batch_size=4)
    plain = fitted(EMOS(local=True), data)[1].method
    channels = len(data.channels)

    def made():
        heads = TargetHeads([MethodHead(EMOS(local=True)), MethodHead(EMOS(local=True))])
        return PostProcessor(MLP(channels, out_channels=4), heads)

    _, model = fitted(made(), data)
    for step in STEPS:
        for target, head in enumerate(model.head.heads):
            found, want = head.method.of(step, 0), plain.of(step, target)
            for name, value in want.named_buffers():
                assert torch.equal(dict(found.named_buffers())[name], value)
    again = made()
    again.load_state_dict(model.state_dict())
    batch = as_tensors(data.batches("test").batch(np.arange(8)))
    with torch.no_grad():
        for ours, theirs in zip(again(batch), model(batch), strict=True):
            assert torch.equal(ours.mu, theirs.mu)
    # with outputs of 0 the forecasts are those of the method
    still = again.head(torch.zeros(8, 4, 8, 16), batch)
    for ours, theirs in zip(still, plain(batch), strict=True):
        assert torch.equal(ours.mu, theirs.mu)


def test_data_of_other_targets_and_lead_times_than_the_fit(several):
    def batch(target, step):
        return as_tensors(Batches(several, target, step=step).batch(np.arange(1)))

    single = fitted(EMOS(), EnsembleDataModule(several, "t2m", step=24))[1]
    both = fitted(EMOS(), EnsembleDataModule(several, ["t2m", "z500"], step=24))[1]
    leads = fitted(EMOS(), EnsembleDataModule(several, "t2m", step=[24, 48]))[1]
    for model, given, said in (
        (single, batch("t2m", [24, 48]), "step: the statistical method was fitted for one"),
        (single, batch(["t2m", "z500"], 24), "target: the statistical method was fitted for one"),
        (both, batch("t2m", 24), "target: 1 in the data, 2 in the fit"),
        (both, batch(["t2m", "z500"], [48, 24]), "step: the data have other lead times"),
        (leads, batch("t2m", 24), "step: the data have other lead times than the fit, .* 24, 48"),
    ):
        with pytest.raises(Ens10Error, match=said):
            model(given)


def test_the_truth_of_a_world_at_several_lead_times(several):
    world = World.load(several.parent / "world")
    for step in STEPS:
        best = world.optimum("t2m", step=step)
        truth = ens10.open_store(several, "truth")["t2m"].sel(step=step, time=best["time"])
        error = ((truth - best["mu"]) / best["sigma"]).to_numpy()
        assert abs(error.mean()) < 0.2
        assert 0.8 < error.std() < 1.2
    with pytest.raises(Ens10Error, match=r"truth at \[24, 48\] h, not at 0 h"):
        world.optimum("t2m", step=0)
    with pytest.raises(Ens10Error, match="two start dates have truth on the same day"):
        World("8x16", [2000], ["0101", "0102"], steps=STEPS, truth_steps=STEPS)
    with pytest.raises(Ens10Error, match="are not whole days"):
        World("8x16", [2000], 2, steps=(12, 48), truth_steps=(12,))


def test_the_optimum_is_that_of_the_lead_time_of_the_run(several, emos, tmp_path):
    world = World.load(several.parent / "world")
    for step in STEPS:
        score_optimum(world, emos / f"t2m-{step}h", tmp_path / str(step))
        best = world.optimum("t2m", step=step)
        truth = ens10.open_store(several, "truth")["t2m"].sel(step=step)
        dates = read_states(tmp_path / str(step))
        some = best.sel(time=dates["time"])
        expected = crps_normal(some["mu"], some["sigma"], truth.sel(time=dates["time"]))
        weights = np.broadcast_to(area_weights(some["latitude"].to_numpy())[:, None], (8, 16))
        mean = float(dates["crps_sum"].sum() / dates["crps_weight"].sum())
        assert mean == pytest.approx(float((expected * weights).mean()), rel=1e-4)


def test_a_run_of_two_targets_improves_each_at_each_lead_time(targets, several, report, tmp_path):
    parts = run_parts(targets)
    assert [part.name for part in parts] == ["t2m-24h", "t2m-48h", "z_500-24h", "z_500-48h"]
    for part in parts:
        scores = xr.open_dataset(part / "scores.nc")
        crps = float(scores["crps_sum"].sum() / scores["crps_weight"].sum())
        assert crps < 0.98 * raw_crps(several, part)
        assert scores["crps_sum"].attrs["units"] == ("K" if "t2m" in part.name else "m2 s-2")
    written = xr.open_dataset(apply([targets], several, tmp_path / "out.nc"))
    returned = ens10.load_model(targets)(several)
    assert set(returned.data_vars) == {"t2m_mu", "t2m_sigma", "z_500_mu", "z_500_sigma"}
    for part in parts:
        forecast, _ = open_predictions(part)
        for name in ("mu", "sigma"):
            of_all = f"{part.name.partition('-')[0]}_{name}"
            for held in (written, returned):
                there = held[of_all].sel(step=forecast["step"], time=forecast["time"])
                np.testing.assert_array_equal(there, forecast[name])
    assert (report / "z-500-24-h" / "table.md").is_file()
    for part in parts:  # the learning curve is that of the whole run
        run = read_run(part)
        assert len(run.log) == EPOCHS
        assert run.loss_name == "loss of all targets, in units of the raw spread"
    assert (report / "t2m-24-h" / "figures" / "learning-curves.png").is_file()


@pytest.mark.parametrize("path", ["run", "bundle"])
def test_the_network_runs_once_for_all_targets(targets, several, tmp_path, monkeypatch, path):
    run, passes, forward = targets, [], MLP.forward
    if path == "bundle":
        run = tmp_path / "four.ens10"
        realruns.command("bundle", targets, "--out", run)

    def counted(self, features):
        passes.append(len(features))
        return forward(self, features)

    monkeypatch.setattr(MLP, "forward", counted)
    written = xr.open_dataset(apply([run], several, tmp_path / "out.nc"))
    assert len(passes) == 2 * written.sizes["time"]  # at each of two lead times
    model, dates = ens10.load_model(run), written.sizes["time"]
    passes.clear()
    model(open_source(several.parent / "world").load())
    assert len(passes) == 2 * dates
    lazy = model(several)
    passes.clear()
    lazy[["t2m_mu", "z_500_mu"]].isel(step=0).load()
    assert len(passes) == dates  # of the other lead time nothing is computed
    lazy.load()
    assert len(passes) == 3 * dates


@pytest.mark.parametrize("source", ["store.zarr", "world"])
def test_grib_of_several_targets_and_lead_times_read_by_eccodes(targets, several, tmp_path, source):
    """Mean and spread of each target, lead time and date, from a store and from GRIB files."""
    expected = xr.open_dataset(apply([targets], several, tmp_path / "out.nc"))
    realruns.command(
        "apply",
        targets,
        several.parent / source,
        "--out",
        tmp_path / "out.grib",
        "--format",
        "grib",
    )
    names = {("2t", "em"): "t2m_mu", ("2t", "es"): "t2m_sigma"}
    names |= {("z", "em"): "z_500_mu", ("z", "es"): "z_500_sigma"}
    found = set()
    with (tmp_path / "out.grib").open("rb") as file:
        while (message := eccodes.codes_grib_new_from_file(file)) is not None:
            get = partial(eccodes.codes_get, message)
            name = names[get("shortName"), get("dataType")]
            date = np.datetime64(datetime.strptime(str(get("dataDate")), "%Y%m%d"), "ns")
            want = expected[name].sel(time=date, step=get("step"))
            found.add((name, get("step"), get("dataDate")))
            valid = datetime.strptime(str(get("validityDate")), "%Y%m%d")
            assert want["valid_time"] == np.datetime64(valid, "ns")
            assert get("dataTime") == get("validityTime") == 0
            assert get("shortName") == "2t" or (get("typeOfLevel"), get("level")) == PRESSURE
            values = eccodes.codes_get_values(message).reshape(want.shape)
            packed = 2.0**-23 * float(abs(want).max())
            np.testing.assert_allclose(values, want, rtol=0, atol=packed)
            eccodes.codes_release(message)
    assert len(found) == 4 * 2 * expected.sizes["time"]


class Killed(BaseException):
    """Ends a call at once, as a kill does."""


@pytest.mark.parametrize("name", ["out.nc", "out.grib"])
def test_an_interrupted_call_resumes_at_the_first_missing_date(
    targets, several, tmp_path, monkeypatch, name
):
    written, write, last = [], CombinedCorrections.write, 5

    def killed(self, i, arrays):
        if i == last:
            raise Killed
        written.append(i)
        write(self, i, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(CombinedCorrections, "write", killed)
        with pytest.raises(Killed):
            apply([targets], several, tmp_path / name)
        assert not (tmp_path / name).exists()
        last = None
        apply([targets], several, tmp_path / name)
    assert written == list(range(24))
    apply([targets], several, tmp_path / f"whole-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()


def test_the_loss_is_the_mean_of_those_of_the_targets_in_units_of_their_spread(
    several, monkeypatch
):
    data = EnsembleDataModule(several, ["t2m", "z500"], step=24, batch_size=4)
    batches = data.batches("train")
    batch = as_tensors(batches.batch(np.arange(4)))
    times = batches.samples.time[batches.index]
    for n, (kind, name) in enumerate((("sfc", "t2m"), ("pl", "z"))):
        members = ens10.open_store(several, kind)[name].sel(step=24, time=times)
        spread = float(members.astype(float).std("number", ddof=1).mean())
        np.testing.assert_allclose(data.target_scales[n], spread, rtol=1e-5)
    heads = TargetHeads([ResidualNormalHead(), ResidualNormalHead()], [2.0, 300.0])
    channels = batch["features"].shape[1]
    model = PostProcessor(MLP(channels, out_channels=4), heads)
    monkeypatch.setattr(model, "log", lambda *_, **__: None)  # there is no trainer
    forecasts = model(batch)
    loss = model._step(batch, "train", forecasts)
    weights, expected = batch["weights"], 0.0
    for n, (forecast, scale) in enumerate(zip(forecasts, (2.0, 300.0), strict=True)):
        crps = crps_normal(forecast.mu, forecast.sigma, batch["target"][:, n])
        expected = expected + (weights[:, n] * crps).sum() / weights[:, n].sum() / scale / 2
    torch.testing.assert_close(loss, expected)
    # one head after the other gives the same forecasts from its own channels
    outputs = model.network(batch["features"])
    for n, forecast in enumerate(forecasts):
        alone = ResidualNormalHead()(outputs[:, 2 * n : 2 * n + 2], by_target(batch)[n])
        torch.testing.assert_close(forecast.mu, alone.mu, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_processes_train_several_targets_and_lead_times(several, tmp_path):
    """They share the dates of all lead times; predicted by two and by one is the same."""
    run = tmp_path / "run"
    together = ["--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy", "ddp"]
    inputs = ["--data.inputs", "[t2m,u10,z500]", "--model.network.out_channels", 4]
    options = [*BOTH, *heads_of(METHOD, METHOD), *inputs, "--model.network.in_channels", 10]
    config = ["--config", realruns.config_path("mlp"), "--data.store", several, "--run", run]
    ended = ["--quiet", "--trainer.max_epochs", 2, *together]
    done = realruns.subprocess_of("fit", *config, *options, *ended)
    assert done.returncode == 0, done.stderr
    assert "MEMBER: 2/2" in done.stderr
    predicted = []
    for devices in (2, 1):
        done = realruns.subprocess_of(
            "predict", "--run", run, "--quiet", "--trainer.devices", devices
        )
        assert done.returncode == 0, done.stderr
        predicted.append([open_predictions(part)[0].load() for part in run_parts(run)])
    assert [part.name for part in run_parts(run)] == list(NAMES)
    for both, alone in zip(*predicted, strict=True):
        assert not both.mu.isnull().any()
        xr.testing.assert_allclose(both, alone, rtol=1e-6)
    written = xr.open_dataset(apply([run], several, tmp_path / "out.nc"))
    for part, forecast in zip(run_parts(run), predicted[1], strict=True):
        there = written.sel(step=forecast["step"], time=forecast["time"])
        name = f"{part.name.partition('-')[0]}_mu"
        np.testing.assert_array_equal(there[name], forecast["mu"])


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([NORMAL, NORMAL, NORMAL], "heads: 3 heads for 2 targets"),
        ([NORMAL], "heads: 1 head for several targets"),
    ],
)
def test_another_number_of_heads(several, tmp_path, capsys, heads, said):
    config = ["--config", realruns.config_path("mlp"), "--data.store", several, "--quiet"]
    config += ["--data.target", "[t2m, z500]", "--data.step", 24, "--data.inputs", "[t2m,z500]"]
    network = ["--model.network.out_channels", 2 * len(heads), "--model.network.in_channels", 7]
    run = ["--run", tmp_path / "run"]
    realruns.command("fit", *config, *heads_of(*heads), *network, *run, status=1)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_one_head_for_two_targets(several):
    batch = as_tensors(Batches(several, ["t2m", "z500"], step=24).batch(np.arange(1)))
    model = PostProcessor(MLP(batch["features"].shape[1]), ResidualNormalHead())
    with pytest.raises(Ens10Error, match="head: the batch has 2 targets, but ResidualNormalHead"):
        model(batch)
