"""The worlds and protocols of the traps: `clean`, one trap at a time, and a training for each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from ens10.convert import prepare
from ens10.experiments.quiet import few_words
from ens10.experiments.runner.claims import make_once
from ens10.grid import area_weights
from ens10.loader import Batches
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.tensors import as_tensors
from ens10.metrics import crps_normal
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.layers.padding import SameConv2d
from ens10.models.networks.unet import UNetBody, start_at_zero
from ens10.protocol import Protocol, protocol_of
from ens10.synthetic import World

TARGET = "t2m"
GRID = "18x36"
VARIABLES = ("t2m", "u10", "v10", "msl", "sst", "tp")
DATES = 16  # in each year
TRAIN, VAL, TEST = list(range(1998, 2005)), [2005], [2006, 2007]
FRESH = [2008, 2009]  # no protocol uses them
STEP = 48

_CLEAN = replace(protocol_of("clean"), test=TEST, val=VAL, train=TRAIN)
_PAPER = protocol_of("paper")
# One rule of the paper's at a time. The training years stay the same, so that selecting on the
# test years changes nothing but the epoch.
_TRAPS: Mapping[str, tuple[str, ...]] = {
    "clean": (),
    "selection": ("val",),
    "normalisation": ("normalise_on",),
    "weights": ("weighting",),
    "deviation": ("unbiased",),
    "epsilon": ("epsilon",),
    "masks": ("masks",),
    "all": ("val", "normalise_on", "weighting", "unbiased", "epsilon", "masks"),
}
PROTOCOLS: Mapping[str, Protocol] = {
    name: replace(_CLEAN, name=name, **{rule: getattr(_PAPER, rule) for rule in rules})
    for name, rules in _TRAPS.items()
}
RAW, SELECTION = "raw", "selection"
LATE = ("epsilon", "masks")  # done when all others are
EPOCHS, BATCH, WIDTH = 10, 4, 8
_RATE, _DECAY, _GAMMA = 0.005, 0.001, 0.85


def on_years(protocol: Protocol, years: list[int]) -> Protocol:
    """The protocol with other test years, to predict them."""
    changed: dict[str, Any] = {"test": years, "val": []}
    return replace(protocol, **changed)


def store_of(work: Path, seed: int) -> Path:
    """Return the prepared world of a seed, which is made if it is not there."""
    store = work / f"seed{seed}" / "store.zarr"
    source = store.with_name("world")

    def make() -> None:
        if not (source / "world.json").exists():
            years = [*TRAIN, *VAL, *TEST, *FRESH]
            World(GRID, years, DATES, VARIABLES, seed, steps=(STEP,)).write(source)
        prepare(source, store, truth=source / "truth", workers=1, progress=False)

    make_once(store, make)
    return store


@dataclass(frozen=True)
class Forecasts:
    """Normal forecasts of some years.

    Attributes:
        crps: at each date and grid point, K.
        latitude: of the rows, degrees.
    """

    crps: Any
    latitude: Any

    def mean(self, weighting: Any) -> float:
        """Mean CRPS with area weights, or without."""
        weights = area_weights(self.latitude, weighting)[:, None]
        return float((self.crps * weights).mean())


class _Best(pl.Callback):
    """Keeps the weights of the best epoch in memory: by the validation loss, and by a score.

    Args:
        score: of the model, or None; after each epoch.
    """

    def __init__(self, score: Callable[[PostProcessor], float] | None = None) -> None:
        self.score = score
        self.losses: dict[str, list[float]] = {"val": []}
        self.weights: dict[str, dict[str, Any]] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compares."""
        self._note("val", float(trainer.callback_metrics["val_loss"]), pl_module)
        if self.score is not None and isinstance(pl_module, PostProcessor):
            self._note("score", self.score(pl_module), pl_module)

    def _note(self, by: str, loss: float, model: pl.LightningModule) -> None:
        losses = self.losses.setdefault(by, [])
        if loss < min(losses, default=float("inf")):
            self.weights[by] = {k: v.clone() for k, v in model.state_dict().items()}
        losses.append(loss)

    def epoch(self, by: str) -> int:
        """The best epoch, counted from 1."""
        return 1 + int(np.argmin(self.losses[by]))


def train_and_score(store: Path, seed: int, name: str) -> dict[str, dict[str, Any]]:
    """The results of a training.

    Selecting on the test years changes no weight of any epoch, so that `clean` and `selection`
    are one training.

    Args:
        store: of the seed's world.
        seed: of the training.
        name: of `PROTOCOLS`, but "selection".

    Returns:
        By protocol, `reported`: the CRPS of the test years with the protocol's own weights; `test`
        and `fresh`: those of test and fresh years with cell areas; `epoch` that was selected by
        the `losses`.
    """
    protocol, found = PROTOCOLS[name], {}
    data = EnsembleDataModule(
        str(store), TARGET, protocol=protocol, extras=["location"], batch_size=BATCH, seed=seed
    )

    def forecasts(model: PostProcessor, years: list[int]) -> Forecasts:
        return _forecasts(model, store, protocol, data, years)

    clean = name == "clean"
    best = _Best((lambda model: forecasts(model, TEST).mean("cell")) if clean else None)
    model = _trained(data, seed, best)
    for by, weights in best.weights.items():
        model.load_state_dict(weights)
        test = forecasts(model, TEST)
        found[name if by == "val" else "selection"] = {
            "reported": test.mean(protocol.weighting),
            "test": test.mean("cell"),
            "fresh": forecasts(model, FRESH).mean("cell"),
            "epoch": best.epoch(by),
            "losses": [round(loss, 6) for loss in best.losses[by]],
        }
    return found


def _trained(data: EnsembleDataModule, seed: int, best: _Best) -> PostProcessor:
    model = PostProcessor(
        _network(len(data.batches("train").channels), seed),
        ResidualNormalHead(),
        optimizer=partial(torch.optim.AdamW, lr=_RATE, weight_decay=_DECAY),
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=_GAMMA),
    )
    with few_words():
        pl.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            devices=1,
            logger=False,
            callbacks=[best],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        ).fit(model, data)
    return model


def _network(channels: int, seed: int) -> UNetBody:
    """The paper's U-Net at a quarter of its widths, which starts at the raw ensemble."""

    def layer(_: str, before: int, after: int) -> SameConv2d:
        return SameConv2d(before, after, periodic_longitude=True)

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = UNetBody(channels, 2, layer, WIDTH, periodic_longitude=True)
    start_at_zero(network.last)
    return network


def _forecasts(
    model: PostProcessor,
    store: Path,
    protocol: Protocol,
    data: EnsembleDataModule,
    years: list[int],
) -> Forecasts:
    """Of years that the model may not have seen, normalised as in its training."""
    batches = Batches(
        store,
        TARGET,
        None,
        "test",
        protocol=on_years(protocol, years),
        extras=["location"],
        normaliser=data.batches("train").normaliser,
    )
    return Forecasts(np.concatenate(list(_crps(model, batches))), batches.samples.latitude)


def _crps(model: PostProcessor, batches: Batches) -> Iterator[Any]:
    for batch in batches:
        model.eval()
        with torch.no_grad():
            values = model(as_tensors(batch)).variables()
        mu, sigma = (values[part].numpy() for part in ("mu", "sigma"))
        yield crps_normal(mu, sigma, np.asarray(batch["target"]))
