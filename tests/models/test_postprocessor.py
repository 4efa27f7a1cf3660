from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentParser
from pytorch_lightning.callbacks import ModelCheckpoint
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import (
    CRPSLoss,
    PostProcessor,
    ResidualNormalHead,
    StatisticalPostProcessor,
)
from ens10.models.losses import Loss
from ens10.models.networks import MLP, UNet
from ens10.models.statistical import EMOS, Climatology, Raw

LOSSES = ("train_loss", "val_loss")


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)


def unet(seed=0):
    torch.manual_seed(seed)
    return PostProcessor(UNet(4), ResidualNormalHead(), optimizer=sgd, scheduler=halving)


def statistical(method):
    return lambda: StatisticalPostProcessor(method())


MODELS = {
    "unet": unet,
    "emos": statistical(EMOS),
    "emos-local": statistical(lambda: EMOS(local=True)),
    "climatology": statistical(Climatology),
    "raw": statistical(Raw),
}


def loader(batches):
    return DataLoader(batches, batch_size=None)


def trainer(folder, epochs=1, **options):
    saved = ModelCheckpoint(folder, filename="best", monitor="val_crps", save_last=True)
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saved],
        default_root_dir=folder,
        **options,
    )


def weighted_crps(forecasts, batches):
    """Mean over all dates and points, by hand."""
    pairs = list(zip(forecasts, batches, strict=True))
    valid = [torch.where(b["weights"] > 0, b["weights"], torch.nan) for _, b in pairs]
    total = sum(
        (v * p.forecast.crps(b["target"])).nansum() for v, (p, b) in zip(valid, pairs, strict=True)
    )
    return (total / sum(b["weights"].sum() for b in batches)).item()


def same(first, second):
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one.dates, two.dates)
        for name, value in one.forecast.variables().items():
            torch.testing.assert_close(
                value, two.forecast.variables()[name], rtol=0, atol=0, equal_nan=True
            )


@pytest.mark.parametrize("name", MODELS)
def test_fit_checkpoint_test_and_predict(name, make_batches, tmp_path):
    batches = make_batches(missing=name != "raw")
    if name == "climatology":
        batches = make_batches()
    model, train = MODELS[name](), trainer(tmp_path)
    train.fit(model, loader(batches), loader(batches[:3]))
    logged = dict(train.callback_metrics)
    predicted = train.predict(model, loader(batches))
    crps = weighted_crps(predicted[:3], batches[:3])
    assert logged["val_crps"].item() == pytest.approx(crps, rel=1e-5)
    assert logged["val_loss"].item() == pytest.approx(crps, rel=1e-5)

    fresh, again = MODELS[name](), trainer(tmp_path / "again")
    best = str(tmp_path / "best.ckpt")
    loaded = again.predict(fresh, loader(batches), ckpt_path=best, weights_only=True)
    same(predicted, loaded)
    tested = again.test(fresh, loader(batches), ckpt_path=best, verbose=False, weights_only=True)
    assert tested[0]["test_crps"] == pytest.approx(weighted_crps(loaded, batches), rel=1e-5)
    validated = again.validate(
        fresh, loader(batches[:3]), ckpt_path=best, verbose=False, weights_only=True
    )
    assert validated[0]["val_crps"] == pytest.approx(crps, rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("form", [True, "graphs"])
def test_a_compiled_network_trains_as_the_plain_one(form, make_batches, tmp_path):
    def fitted(compiled):
        torch.manual_seed(0)
        torch._dynamo.reset()
        counters.clear()
        model = PostProcessor(MLP(4), ResidualNormalHead(), optimizer=sgd, compiled=compiled)
        train = trainer(tmp_path / str(compiled))
        train.fit(model, loader(make_batches(grid=(9, 13))), loader(make_batches(1)))
        assert (counters["stats"]["unique_graphs"] > 0) is bool(compiled)
        assert not counters["graph_break"]
        assert "_loss_map" not in vars(model)  # the model can be copied
        return model.state_dict(), {name: train.callback_metrics[name] for name in LOSSES}

    (compiled, losses), (plain, plain_losses) = fitted(form), fitted(False)
    assert list(compiled) == list(plain)
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(losses, plain_losses, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("compiled", "mode"), [(True, None), ("graphs", "reduce-overhead")])
def test_graphs_are_a_mode_of_the_compiler(compiled, mode, make_batches, monkeypatch, tmp_path):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda f, mode: modes.append(mode) or f)
    model = PostProcessor(MLP(4), ResidualNormalHead(), compiled=compiled)
    trainer(tmp_path).fit(model, loader(make_batches(1)), loader(make_batches(1)))
    assert modes == [mode]


def test_graphs_do_not_accumulate(make_batches, tmp_path):
    """Torch keeps gradients in the graph's memory, which the next batch overwrites."""
    model = PostProcessor(MLP(4), ResidualNormalHead(), compiled="graphs")
    train = trainer(tmp_path, accumulate_grad_batches=2)
    with pytest.raises(ArgumentError, match="compiled: CUDA graphs cannot accumulate"):
        train.fit(model, loader(make_batches(2)))


def test_a_wrong_word_for_compiled():
    with pytest.raises(UnknownNameError, match="did you mean 'graphs'"):
        PostProcessor(MLP(4), ResidualNormalHead(), compiled="graph")


def test_emos_beats_raw_and_climatology(make_batches, tmp_path):
    batches, scores = make_batches(40), {}
    for name in ("raw", "emos", "climatology"):
        train = trainer(tmp_path / name)
        train.fit(MODELS[name](), loader(batches[:30]), loader(batches[30:]))
        scores[name] = train.callback_metrics["val_crps"].item()
    assert scores["emos"] < 0.95 * scores["raw"] < scores["climatology"]


def test_training_is_reproducible_and_resumes(make_batches, tmp_path):
    batches = make_batches(missing=True)
    whole = unet()
    trainer(tmp_path / "whole", 3).fit(whole, loader(batches), loader(batches))
    half = unet()
    trainer(tmp_path / "half", 1).fit(half, loader(batches), loader(batches))
    resumed, train = unet(seed=1), trainer(tmp_path / "rest", 3)
    last = str(tmp_path / "half" / "last.ckpt")
    train.fit(resumed, loader(batches), loader(batches), ckpt_path=last, weights_only=True)
    assert train.global_step == 3 * len(batches)
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[key], value, rtol=0, atol=0)
    assert train.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.05 / 8)


def test_a_finished_statistical_fit_resumes_to_nothing(make_batches, tmp_path):
    batches = make_batches()
    model = StatisticalPostProcessor(EMOS())
    trainer(tmp_path).fit(model, loader(batches), loader(batches))
    again = StatisticalPostProcessor(EMOS())
    last = str(tmp_path / "last.ckpt")
    trainer(tmp_path / "again").fit(again, loader(batches), ckpt_path=last, weights_only=True)
    assert torch.equal(again.method.bias, model.method.bias)


def test_training_lowers_the_loss(make_batches, tmp_path):
    batches = make_batches(20)
    torch.manual_seed(0)
    model, train = PostProcessor(MLP(4, 16), ResidualNormalHead()), trainer(tmp_path, 3)
    train.validate(model, loader(batches), verbose=False)
    before = train.callback_metrics["val_crps"].item()
    train.fit(model, loader(batches), loader(batches))
    assert train.callback_metrics["val_crps"].item() < 0.97 * before
    assert "train_loss" in train.callback_metrics


class _AbsoluteError(Loss):
    def forward(self, forecast, target):
        return (forecast.mean - target).abs()


def test_another_loss_is_logged_beside_the_crps(make_batches, tmp_path):
    batches = make_batches(3)
    model = PostProcessor(MLP(4), ResidualNormalHead(), loss=_AbsoluteError())
    train = trainer(tmp_path)
    predicted = train.predict(model, loader(batches))
    train.validate(model, loader(batches), verbose=False)
    crps = train.callback_metrics["val_crps"].item()
    assert crps == pytest.approx(weighted_crps(predicted, batches), rel=1e-5)
    assert train.callback_metrics["val_loss"].item() > 1.1 * crps


def test_batches_of_unequal_size_weigh_as_their_points(make_batches, tmp_path):
    large, small = make_batches(1, dates=5), make_batches(1, dates=1, base=250.0)
    small[0]["target"] += 5
    model, train = unet(), trainer(tmp_path)
    model.eval()
    train.validate(model, loader(large + small), verbose=False)
    logged = train.callback_metrics["val_crps"].item()
    predicted = train.predict(model, loader(large + small))
    assert logged == pytest.approx(weighted_crps(predicted, large + small), rel=1e-5)


def test_a_batch_without_valid_points_changes_nothing(make_batches):
    batch = make_batches(1)[0]
    batch["weights"].zero_()
    model = unet()
    model.log = lambda *args, **options: None
    loss = model.training_step(batch)
    loss.backward()
    assert loss.item() == 0
    assert all((p.grad == 0).all() for p in model.parameters())


def test_missing_points_give_finite_gradients(make_batches):
    batch = make_batches(1, missing=True)[0]
    model = unet()
    model.log = lambda *args, **options: None
    model.training_step(batch).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert any((p.grad != 0).any() for p in model.parameters())


HALF = "precision: bf16-true rounds raw ensemble and truth"


@pytest.mark.parametrize(
    ("make", "precision", "message"),
    [
        (unet, "bf16-true", HALF),
        (MODELS["emos"], "bf16-true", HALF),
        (lambda: PostProcessor(MLP(7), ResidualNormalHead()), None, "MLP takes 7 channels"),
    ],
    ids=["unet", "emos", "channels"],
)
def test_trainings_that_cannot_be(make, precision, message, make_batches, tmp_path):
    train = trainer(tmp_path, precision=precision)
    with pytest.raises(ArgumentError, match=message):
        train.fit(make(), loader(make_batches()))


@pytest.mark.parametrize("key", ["features", "target", "raw_mean"])
def test_a_nan_loss_stops_and_names_the_dates(key, make_batches, tmp_path):
    batches = make_batches()
    batches[1][key][1] = torch.nan  # fourth date, 1970-01-04
    model = PostProcessor(MLP(4), ResidualNormalHead())
    with pytest.raises(ArgumentError, match=r"train_loss: not finite for valid date 1970-01-04"):
        trainer(tmp_path).fit(model, loader(batches))


def test_parts_have_learning_rates_of_their_own(make_batches, monkeypatch):
    """SGD moves a parameter by the rate times the gradient; the schedule keeps the ratio."""
    monkeypatch.setattr(PostProcessor, "log", lambda *_, **__: None)
    (batch,) = make_batches(count=1)
    torch.manual_seed(0)
    network = MLP(4)
    rates = {"layers.0.bias": 10.0, "layers.0": 0.0}

    def moved(**options):
        model = PostProcessor(network, ResidualNormalHead(), optimizer=sgd, **options)
        start = {name: p.detach().clone() for name, p in model.named_parameters()}
        loss = model.training_step(batch)
        optimizer = model.configure_optimizers()
        loss.backward()
        optimizer.step()
        model.zero_grad()
        ends = dict(model.named_parameters())
        steps = {name: ends[name].detach() - start[name] for name in start}
        model.load_state_dict({**model.state_dict(), **start})
        return steps

    plain, own = moved(), moved(learning_rates=rates)
    assert plain["network.layers.0.bias"].abs().max() > 0
    for name, step in plain.items():
        factor = 10 if name == "network.layers.0.bias" else 0 if "layers.0." in name else 1
        torch.testing.assert_close(own[name], factor * step, rtol=1e-3, atol=1e-6)
    model = PostProcessor(
        network, ResidualNormalHead(), None, sgd, halving, learning_rates={"layers": 3.0}
    )
    made = model.configure_optimizers()
    made["optimizer"].step()
    made["lr_scheduler"]["scheduler"].step()
    assert [g["lr"] for g in made["optimizer"].param_groups] == pytest.approx([0.025, 0.075])


@pytest.mark.parametrize("rates", [{"gate": 3.0}, {"layer": 3.0}, {"layers": -1.0}])
def test_a_learning_rate_of_no_part_is_refused(rates):
    model = PostProcessor(MLP(4), ResidualNormalHead(), learning_rates=rates)
    with pytest.raises(ArgumentError, match=r"learning_rates: .*(no parameter|not a factor)"):
        model.configure_optimizers()


def test_a_network_that_does_not_fit_the_head_is_refused():
    with pytest.raises(ArgumentError, match="MLP delivers 3 channels, ResidualNormalHead takes 2"):
        PostProcessor(MLP(4, out_channels=3), ResidualNormalHead())


def test_statistical_fits_refuse_several_processes(make_batches, tmp_path, monkeypatch):
    monkeypatch.setattr(pl.Trainer, "world_size", property(lambda self: 2))
    with pytest.raises(ArgumentError, match="devices: EMOS is fitted in one process, not 2"):
        trainer(tmp_path).fit(StatisticalPostProcessor(EMOS()), loader(make_batches()))


def test_yaml_builds_the_module():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(pl.LightningModule, "model")
    config = parser.parse_object(
        {
            "model": {
                "class_path": "ens10.models.PostProcessor",
                "init_args": {
                    "network": {
                        "class_path": "ens10.models.networks.UNet",
                        "init_args": {"in_channels": 5, "periodic_longitude": True},
                    },
                    "head": {
                        "class_path": "ens10.models.ResidualNormalHead",
                        "init_args": {"floor": 0.01},
                    },
                    "loss": {"class_path": "ens10.models.CRPSLoss"},
                    "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}},
                    "scheduler": {
                        "class_path": "torch.optim.lr_scheduler.StepLR",
                        "init_args": {"step_size": 2},
                    },
                },
            }
        }
    )
    model = parser.instantiate_classes(config)["model"]
    assert isinstance(model.network, UNet)
    assert model.network.periodic_longitude
    assert model.head.floor == 0.01
    assert isinstance(model.loss, CRPSLoss)
    made = model.configure_optimizers()
    assert made["optimizer"].param_groups[0]["lr"] == 0.01
    assert made["lr_scheduler"]["scheduler"].step_size == 2
    assert made["lr_scheduler"]["monitor"] == "val_loss"  # for a schedule that waits for a plateau


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_is_fused_unless_another_form_is_chosen(kind):
    def steps(**form):
        torch.manual_seed(0)
        model = PostProcessor(
            MLP(in_channels=2), ResidualNormalHead(), optimizer=partial(kind, lr=0.1, **form)
        ).double()
        optimizer = model.configure_optimizers()
        for _ in range(5):
            for n, parameter in enumerate(model.parameters()):
                parameter.grad = torch.sin(parameter.detach() * 10 + n)
            optimizer.step()
        return optimizer.param_groups[0]["fused"], torch.cat(
            [p.flatten() for p in model.parameters()]
        )

    fused, ours = steps()
    chosen, plain = steps(foreach=False)
    assert (fused, chosen) == (True, None)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-12)


def test_other_optimisers_stay_as_they_are():
    model = PostProcessor(
        MLP(in_channels=2), ResidualNormalHead(), optimizer=partial(torch.optim.SGD, lr=0.1)
    )
    assert not model.configure_optimizers().param_groups[0]["fused"]


def test_yaml_builds_a_statistical_module():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(StatisticalPostProcessor, "model")
    config = parser.parse_args(
        [
            "--model=StatisticalPostProcessor",
            "--model.method=ens10.models.statistical.EMOS",
            "--model.method.local=true",
        ]
    )
    model = parser.instantiate_classes(config)["model"]
    assert model.method.local
