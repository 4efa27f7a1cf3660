"""What traps do to the raw ensemble and to the weights of extremes: nothing is trained."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ens10.experiments.studies.traps.training import PROTOCOLS, STEP, TARGET
from ens10.grid import Weighting, area_weights
from ens10.loader import Batches
from ens10.metrics import crps_ensemble, crps_normal, efi
from ens10.protocol import EfiRules, Protocol, protocol_of
from ens10.quantiles import model_climate
from ens10.synthetic import World

SIZES = (5, 10)
_DIMS = ("time", "latitude", "longitude")
# ENS-10's nine of 105 start dates a year span 28 days, three of the 16 of these worlds 46.
_WINDOW = 3
_PAPER = replace(protocol_of("paper").efi, window=_WINDOW)
# By name: how the index is made. The first is the clean protocol's.
EFI_RULES: Mapping[str, EfiRules] = {
    "clean": EfiRules(window=_WINDOW),
    "levels": EfiRules(method=_PAPER.method, levels=_PAPER.levels, window=_WINDOW),
    "years": EfiRules(years=_PAPER.years, window=_WINDOW),
    "all": _PAPER,
}


class _Raw:
    """The raw ensemble of the test years and its truth."""

    def __init__(self, store: Path) -> None:
        protocol = PROTOCOLS["clean"]
        batches = Batches(store, TARGET, [TARGET], "test", protocol=protocol, members=True)
        self.latitude = batches.samples.latitude
        self.dates = batches.samples.time[batches.index]
        found = list(batches)
        self.members = np.concatenate([batch["members"] for batch in found])
        self.truth = np.concatenate([batch["target"] for batch in found])

    def mean(self, values: Any, weighting: Weighting = "cell") -> float:
        return float((values * area_weights(self.latitude, weighting)[:, None]).mean())

    def crps(self, size: int, estimator: str) -> Any:
        first = self.members[:, :size]
        return crps_ensemble(first, self.truth, estimator=estimator, member_dim=1)


def score_raw(store: Path) -> dict[str, Any]:
    """Scores of the raw ensemble of the test years.

    Returns:
        `crps`: its plain CRPS by area weights. `normal` and `spread_error`: CRPS of the normal
        distribution with the members' mean and deviation, and the ratio of that deviation to the
        error of the mean, by what the squares are divided by. `estimators`: its CRPS by
        estimator and number of members. `extremes`: see `score_extremes`.
    """
    raw = _Raw(store)
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


def score_extremes(store: Path, raw: _Raw) -> dict[str, dict[str, float]]:
    """The extreme forecast index of the test years, and the EECRPS, by each of `EFI_RULES`.

    Returns:
        By rule the index's `mean`, `mean_abs` and `max_abs`, and the EECRPS of the `raw` ensemble
        and of the `optimum`, the best forecast that can be made of it.
    """
    best = World.load(store.with_name("world")).optimum(TARGET).sel(time=raw.dates)
    mu, sigma = (best[part].transpose(*_DIMS).to_numpy() for part in ("mu", "sigma"))
    optimum = crps_normal(mu, sigma, raw.truth)
    plain = raw.crps(SIZES[-1], "plain")
    found = {}
    for name, rules in EFI_RULES.items():
        index = _index(store, raw, replace(PROTOCOLS["clean"], efi=rules))
        size = np.abs(index)
        found[name] = {
            "mean": raw.mean(index),
            "mean_abs": raw.mean(size),
            "max_abs": float(size.max()),
            "raw": raw.mean(size * plain),
            "optimum": raw.mean(size * optimum),
        }
    return found


def _index(store: Path, raw: _Raw, protocol: Protocol) -> Any:
    climate = model_climate(store, TARGET, step=STEP, dates=raw.dates, protocol=protocol)
    quantiles = climate.to_numpy()
    method, levels = protocol.efi.method, climate["quantile"].to_numpy()
    return efi(raw.members, quantiles, method=method, member_dim=1, quantile_dim=1, levels=levels)
