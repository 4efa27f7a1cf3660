"""Methods fitted to real forecasts at stations, and the states of their scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from ens10.convert import prepare
from ens10.experiments.from_python import fit
from ens10.experiments.studies.real_stations.files import STEP, Pairs
from ens10.metrics import score_states
from ens10.models.statistical import EMOS, IsotonicRegression, SeasonalEMOS, StatisticalMethod

NETWORK = Path(__file__).parent / "rain_network.yaml"
DRN = Path(__file__).parent / "drn.yaml"
SEEDS = range(3)  # of the trainings of a network, whose scores are averaged
_VALIDATION = 0.2  # share of the training dates that selects the epoch
States = dict[str, xr.Dataset]
Methods = Mapping[str, StatisticalMethod | str]

# a configuration by its name, or a method with other arguments than any configuration
FRANKFURT: Methods = {
    "raw": "raw",
    "raw_censored": "raw_censored",
    "emos_csg": "emos_csg",
    "emos_gev": "emos_gev",
    "isotonic": "isotonic",
    "isotonic, a node for each date": IsotonicRegression(levels=200, nodes=1809, thresholds=1809),
}
INNSBRUCK: Mapping[str, Methods] = {
    "temp": {
        "raw": "raw",
        "raw_normal": "raw_normal",
        "emos_local": "emos_local",
        "emos_local by likelihood": EMOS(local=True, criterion="likelihood"),
        "emos_seasonal": "emos_seasonal",
        "isotonic, 32 nodes": IsotonicRegression(nodes=32),
    },
    "rain": {
        "raw": "raw",
        "raw_censored": "raw_censored",
        "emos_censored": "emos_censored",
        "emos_censored without a season": SeasonalEMOS(
            harmonics=0, family="censored_logistic", lower=0.0
        ),
        "isotonic, 32 nodes": IsotonicRegression(nodes=32),
    },
}
STATISTICAL = ("raw", "raw_normal", "emos_local", "emos_seasonal")  # on EUPPBench
STEPS = (24, 72, 120)  # hours
VARIABLES = ("t2m", "tcc", "tcw", "tcwv", "u10", "v10")  # of EUPPBench, predictors of the network
YEARS: Mapping[str, list[int]] = {
    "train": list(range(1997, 2014)),
    "test": list(range(2014, 2018)),
}


def fit_methods(methods: Methods, train: Pairs, test: Pairs) -> States:
    """Fit each method to the training dates; return the states of its scores on the test dates.

    Args:
        methods: by their name in the table.
        train: training dates.
        test: test dates.
    """
    states = {}
    for name, method in methods.items():
        fitted: Any = fit(train.members, method, truth=train.truth)
        states[name] = score_states(fitted(test.members), test.truth, weights="none")
    return states


def train_rain_network(train: Pairs, test: Pairs, work: Path) -> xr.Dataset:
    """Train the small network of rain, once for each seed; return the states of the mean CRPS.

    The last fifth of the training dates selects the epoch. The last date before each split is left
    out, because its truth was not known when the first forecast of the split started.

    Args:
        train: training dates.
        test: test dates, after those of training.
        work: folder for the store and the runs.
    """
    store = _prepare_rain(train, test, work / "store.zarr")
    days, test_days = (
        part.truth["time"].dt.strftime("%Y-%m-%d").to_numpy() for part in (train, test)
    )
    first = round(len(days) * (1 - _VALIDATION))
    protocol = {
        "name": "days", "split_by": "start", "weighting": "none",
        "train": f"{days[0]}/{days[first - 1]}", "val": f"{days[first]}/{days[-1]}",
        "test": f"{test_days[0]}/{test_days[-1]}",
    }  # fmt: skip
    return _trainings(store, NETWORK, work, target=f"tp@{STEP}", protocol=protocol)


def _prepare_rain(train: Pairs, test: Pairs, store: Path) -> Path:
    members, truth = (
        xr.concat([getattr(part, name) for part in (train, test)], "time")
        for name in ("members", "truth")
    )
    ahead = members.expand_dims(step=[STEP]).to_dataset(name="tp")
    ends = truth["time"] + xr.DataArray(STEP).astype("timedelta64[h]")
    observed = truth.assign_coords(time=ends).to_dataset(name="tp")
    # the reader pairs sums of the same window only; both are of hours 6 to 30
    observed["tp"].attrs["accumulation"] = "since start"
    return prepare(ahead, store, truth=observed)


def score_euppbench(
    data: tuple[xr.Dataset, xr.Dataset], step: int, work: Path, **options: Any
) -> States:
    """Fit raw, EMOS and DRN at one lead time of EUPPBench; return the states of their scores.

    Args:
        data: forecasts and observations.
        step: lead time in hours.
        work: folder for the store and the runs.
        **options: of the training of the network, such as `max_epochs`.
    """
    store = work / "store.zarr"
    if not store.exists():
        variables = [str(name) for name in data[0]]
        prepare(data[0], store, truth=data[1], variables=variables, steps=STEPS, missing="nan")
    protocol = {"name": "euppbench", "split_by": "start", "weighting": "none", "val": 0, **YEARS}
    target = f"t2m@{step}"
    rules = {"target": target, "protocol": protocol}
    states = {name: _train(store, name, work / f"{name}-{step}", **rules) for name in STATISTICAL}
    return states | {"DRN": _trainings(store, DRN, work, **rules, **options)}


def _trainings(store: Path, config: Path, work: Path, **options: Any) -> xr.Dataset:
    """Train a configuration once for each seed; return the states of the mean CRPS."""
    folder = work / f"{config.stem}-{options['target']}"
    states = [_train(store, config, folder / str(seed), seed=seed, **options) for seed in SEEDS]
    crps_sums = [one["crps_sum"] for one in states]
    return crps_of(states[0]).assign(crps_sum=sum(crps_sums) / len(SEEDS))


def _train(store: Path, config: Path | str, folder: Path, **options: Any) -> xr.Dataset:
    """Train, predict and score; return the states of the scores over dates and stations."""
    run: Any = fit(store, config, run=folder, quiet=True, **options)
    run.predict(quiet=True)
    states: xr.Dataset = run.score().states
    return states


def crps_of(states: xr.Dataset) -> xr.Dataset:
    """Return the sums of the CRPS alone."""
    return states[[f"crps_{part}" for part in ("sum", "weight", "count")]]
