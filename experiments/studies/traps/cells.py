"""The cells of the traps: worlds, protocols, a training for each, and the raw ensemble."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ens10.convert import prepare
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runs.claims import make_once
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import BestWeights, train_briefly
from ens10.grid import Weighting, area_weights
from ens10.loader import Batches
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.tensors import as_tensors
from ens10.metrics import crps_ensemble, crps_normal, efi
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.layers.padding import SameConv2d
from ens10.models.networks.base import start_at_zero
from ens10.models.networks.unet import UNetBody
from ens10.protocol import EfiRules, Protocol, content_of, protocol_of
from ens10.quantiles import model_climate
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
LAST_PROTOCOLS = ("epsilon", "masks")  # computed after all others
EPOCHS, BATCH, WIDTH = 10, 4, 8
_RATE, _DECAY, _GAMMA = 0.005, 0.001, 0.85


def on_years(protocol: Protocol, years: list[int]) -> Protocol:
    """Return a protocol with other test years, to predict these."""
    changed: dict[str, Any] = {"test": years, "val": []}
    return replace(protocol, **changed)


def store_of(work: Path, seed: int) -> Path:
    """Return the prepared store of a seed's world; make it if it does not exist."""
    store = work / f"seed{seed}" / "store.zarr"
    source = store.with_name("world")

    def make() -> None:
        years = [*TRAIN, *VAL, *TEST, *FRESH]
        World(GRID, years, DATES, VARIABLES, seed, steps=(STEP,)).write_once(source)
        prepare(source, store, truth=source / "truth", workers=1, progress=False)

    make_once(store, make)
    return store


def train_and_score(store: Path, seed: int, name: str) -> dict[str, dict[str, Any]]:
    """Train under a protocol and return the scores.

    Selecting on the test years changes no weight of any epoch, so that one training gives the
    results of both `clean` and `selection`.

    Args:
        store: of the seed's world.
        seed: of the training.
        name: of `PROTOCOLS`, but "selection".

    Returns:
        By protocol, `reported`: the CRPS of the test years with the protocol's own weights; `test`
        and `fresh`: those of test and fresh years with cell areas; `epoch` that was selected by
        the `losses`.
    """
    protocol, scores = PROTOCOLS[name], {}
    data = EnsembleDataModule(
        str(store), TARGET, protocol=protocol, extras=["location"], batch_size=BATCH, seed=seed
    )

    def mean_crps(model: PostProcessor, years: list[int]) -> Callable[[Weighting], float]:
        """Return the mean CRPS by area weights of forecasts of other years."""
        options: dict[str, Any] = {"protocol": on_years(protocol, years), "extras": ["location"]}
        normaliser = data.batches("train").normaliser
        batches = Batches(store, TARGET, None, "test", **options, normaliser=normaliser)
        crps, latitude = np.concatenate(list(_crps(model, batches))), batches.samples.latitude
        return lambda weights: float((crps * area_weights(latitude, weights)[:, None]).mean())

    clean = name == "clean"
    best = BestWeights((lambda model: mean_crps(model, TEST)("cell")) if clean else None)
    model = _train(data, seed, best)
    for criterion, weights in best.weights.items():
        model.load_state_dict(weights)
        test = mean_crps(model, TEST)
        scores[name if criterion == "val" else "selection"] = {
            "reported": test(protocol.weighting),
            "test": test("cell"),
            "fresh": mean_crps(model, FRESH)("cell"),
            "epoch": best.epoch(criterion),
            "losses": [round(loss, 6) for loss in best.losses[criterion]],
        }
    return scores


def _train(data: EnsembleDataModule, seed: int, best: BestWeights) -> PostProcessor:
    model = PostProcessor(
        _network(len(data.batches("train").channels), seed),
        ResidualNormalHead(),
        optimizer=partial(torch.optim.AdamW, lr=_RATE, weight_decay=_DECAY),
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=_GAMMA),
    )
    train_briefly(model, data, EPOCHS, best)
    return model


def _network(channels: int, seed: int) -> UNetBody:
    """Return the paper's U-Net at a quarter of its widths; its first forecast is the raw one."""

    def layer(_: str, before: int, after: int) -> SameConv2d:
        return SameConv2d(before, after, periodic_longitude=True)

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = UNetBody(channels, 2, layer, WIDTH, periodic_longitude=True)
    start_at_zero(network.last)
    return network


def _crps(model: PostProcessor, batches: Batches) -> Iterator[Any]:
    for batch in batches:
        model.eval()
        with torch.no_grad():
            values = model(as_tensors(batch)).variables()
        mu, sigma = (values[part].numpy() for part in ("mu", "sigma"))
        yield crps_normal(mu, sigma, np.asarray(batch["target"]))


SIZES = (5, 10)
_DIMS = ("time", "latitude", "longitude")
# ENS-10's nine of 105 start dates a year span 28 days, three of the 16 of these worlds 46.
_WINDOW = 3
_PAPER_EFI = replace(protocol_of("paper").efi, window=_WINDOW)
# By name: how the index is made. The first is the clean protocol's.
EFI_RULES: Mapping[str, EfiRules] = {
    "clean": EfiRules(window=_WINDOW),
    "levels": EfiRules(method=_PAPER_EFI.method, levels=_PAPER_EFI.levels, window=_WINDOW),
    "years": EfiRules(years=_PAPER_EFI.years, window=_WINDOW),
    "all": _PAPER_EFI,
}


class _RawEnsemble:
    """The raw ensemble of the test years and its truth."""

    def __init__(self, store: Path) -> None:
        protocol = PROTOCOLS["clean"]
        batches = Batches(store, TARGET, [TARGET], "test", protocol=protocol, members=True)
        self.latitude = batches.samples.latitude
        self.dates = batches.samples.time[batches.index]
        batch_list = list(batches)
        self.members = np.concatenate([batch["members"] for batch in batch_list])
        self.truth = np.concatenate([batch["target"] for batch in batch_list])

    def mean(self, values: Any, weighting: Weighting = "cell") -> float:
        return float((values * area_weights(self.latitude, weighting)[:, None]).mean())

    def crps(self, size: int, estimator: str) -> Any:
        first = self.members[:, :size]
        return crps_ensemble(first, self.truth, estimator=estimator, member_dim=1)


def score_raw(store: Path) -> dict[str, Any]:
    """Return scores of the raw ensemble of the test years.

    Returns:
        `crps`: its plain CRPS by area weights. `normal` and `spread_error`: CRPS of the normal
        distribution with the members' mean and deviation, and the ratio of that deviation to the
        error of the mean, by what the squares are divided by. `estimators`: its CRPS by
        estimator and number of members. `extremes`: see `score_extremes`.
    """
    raw = _RawEnsemble(store)
    mean = raw.members.mean(axis=1)
    error = np.sqrt(raw.mean((mean - raw.truth) ** 2))
    normal, ratio = {}, {}
    for name, ddof in (("n", 0), ("n-1", 1)):
        deviation = raw.members.std(axis=1, ddof=ddof)
        normal[name] = raw.mean(crps_normal(mean, deviation, raw.truth))
        ratio[name] = float(np.sqrt(raw.mean(deviation**2)) / error)
    plain = raw.crps(SIZES[-1], "plain")
    return {
        "crps": {weighting: raw.mean(plain, weighting) for weighting in ("cell", "none")},
        "normal": normal,
        "spread_error": ratio,
        "estimators": {
            estimator: {str(size): raw.mean(raw.crps(size, estimator)) for size in SIZES}
            for estimator in ("plain", "fair")
        },
        "extremes": score_extremes(store, raw),
    }


def score_extremes(store: Path, raw: _RawEnsemble) -> dict[str, dict[str, float]]:
    """Return the extreme forecast index of the test years and the EECRPS by each of `EFI_RULES`.

    Returns:
        By rule the index's `mean`, `mean_abs` and `max_abs`, and the EECRPS of the `raw` ensemble
        and of the `optimum`, the best forecast that can be made of it.
    """
    best = World.load(store.with_name("world")).optimum(TARGET).sel(time=raw.dates)
    mu, sigma = (best[part].transpose(*_DIMS).to_numpy() for part in ("mu", "sigma"))
    optimum = crps_normal(mu, sigma, raw.truth)
    plain = raw.crps(SIZES[-1], "plain")
    scores = {}
    for name, rules in EFI_RULES.items():
        index = _index(store, raw, replace(PROTOCOLS["clean"], efi=rules))
        size = np.abs(index)
        scores[name] = {
            "mean": raw.mean(index),
            "mean_abs": raw.mean(size),
            "max_abs": float(size.max()),
            "raw": raw.mean(size * plain),
            "optimum": raw.mean(size * optimum),
        }
    return scores


def _index(store: Path, raw: _RawEnsemble, protocol: Protocol) -> Any:
    climate = model_climate(store, TARGET, step=STEP, dates=raw.dates, protocol=protocol)
    quantiles = climate.to_numpy()
    method, levels = protocol.efi.method, climate["quantile"].to_numpy()
    return efi(raw.members, quantiles, method=method, member_dim=1, quantile_dim=1, levels=levels)


_STATIONS = ("ens10.loader", "ens10.models", "ens10.metrics", "ens10.experiments.studies.traps")


@dataclass(frozen=True)
class TrapCell(JsonCell):
    """The raw ensemble (variant "raw"), or the training of one of `PROTOCOLS`, with one seed."""

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        world = [GRID, VARIABLES, DATES, STEP]
        years = [TRAIN, VAL, TEST, FRESH]
        config = {"world": world, "years": years, "seed": self.seed, "name": self.variant}
        if self.variant != RAW:
            config["protocol"] = content_of(PROTOCOLS[self.variant])
            config["epochs"] = EPOCHS
            config["network"] = "ens10.models.networks.UNet"
        return key_of(config, "", _STATIONS)

    def result(self) -> Result:
        """Score the raw ensemble, or train and score."""
        store = store_of(self.work, self.seed)
        if self.variant == RAW:
            return {RAW: score_raw(store)}
        return train_and_score(store, self.seed, self.variant)


def find_cells(work: Path, out: Path, seeds: Sequence[int]) -> list[TrapCell]:
    """Return all cells; those of `LAST_PROTOCOLS` come last."""
    names = [RAW, *(n for n in PROTOCOLS if n != SELECTION)]
    return [
        TrapCell(name, seed, work, out)
        for is_last in (False, True)
        for seed in seeds
        for name in names
        if (name in LAST_PROTOCOLS) == is_last
    ]
