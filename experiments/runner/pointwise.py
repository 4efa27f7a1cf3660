"""How much of the attainable skill a regression at each grid point has, in closed form.

python -m ens10.experiments.runner.pointwise WORK --seeds 3

The truth of a synthetic world at a point is a function of the forecast at that point alone (see
`ens10.synthetic.atmosphere`). The skill that a regression of the error of the ensemble mean on the
inputs of this function does not attain is the most that neighbouring points can add. WORK is that
of `python -m ens10.experiments.studies.matrix`; a missing world is made.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.loader.batch import Batch
from ens10.loader.batches import Batches
from ens10.metrics import crps_ensemble, crps_normal
from ens10.synthetic import World
from ens10.synthetic.atmosphere import WIND_SCALE
from ens10.usage import command_parser, count, reports_errors

Floats = npt.NDArray[np.floating[Any]]
DESIGNS = ("u10", "tanh(u10)")
_SMALLEST = 0.1  # lowest deviation of a forecast, as a share of the raw one


def normal_of_points(
    design: Floats,
    batch: Mapping[str, Any],
    test_design: Floats,
    test_batch: Mapping[str, Any],
    ridge: float = 0.0,
) -> tuple[Any, Any]:
    """Fit normal forecasts by least squares at each point, and return their mean and deviation.

    The error of the raw mean is regressed on the design. The absolute residual, times
    sqrt(pi / 2), is regressed on 1 and the raw deviation: its conditional mean is the deviation of
    a normal. n / (n - k) corrects the variance for the k coefficients of the mean.

    Args:
        design: (N, H, W, K), of the training dates.
        batch: the training dates.
        test_design: (M, H, W, K), of the test dates.
        test_batch: the test dates.
        ridge: added to the mean squares of the columns, for columns that depend on each other.

    Returns:
        mu and sigma, (M, H, W) each.
    """
    error = batch["target"] - batch["raw_mean"]
    mean = _solve(design, error, ridge)
    n, k = len(error), design.shape[-1]
    residual = error - _product(design, mean)
    size = np.abs(residual) * np.sqrt(np.pi / 2 * n / (n - k))
    spread = _solve(_columns(1.0, batch["raw_std"]), size)
    sigma = _product(_columns(1.0, test_batch["raw_std"]), spread)
    return (
        test_batch["raw_mean"] + _product(test_design, mean),
        np.maximum(sigma, _SMALLEST * test_batch["raw_std"]),
    )


def attained_skill(world: World, store: Path) -> dict[str, float]:
    """Return the CRPS of raw and optimum, and the attained skill of each design in percent.

    Args:
        world: that the store was made from, written.
        store: with t2m and u10; protocol `clean`.
    """
    (train, _), (test, starts) = _all_dates(store, "train"), _all_dates(store, "test")
    best = world.optimum("t2m").sel(time=starts)
    truth, weights = test["target"], test["weights"].astype(np.float64)

    def mean(crps: Any) -> float:
        return float((np.asarray(crps) * weights).sum() / weights.sum())

    raw = mean(crps_ensemble(test["members"], truth, estimator="plain", member_dim=1))
    optimum = mean(crps_normal(best["mu"].to_numpy(), best["sigma"].to_numpy(), truth))
    scores = {"raw": raw, "optimum": optimum}
    for name in DESIGNS:
        forecast = normal_of_points(_design(train, name), train, _design(test, name), test)
        scores[name] = 100 * (raw - mean(crps_normal(*forecast, truth))) / (raw - optimum)
    return scores


def _design(batch: Batch, name: str) -> Floats:
    """Return the design (N, H, W, 4): 1, the annual cycle, and the zonal wind or its tanh."""
    wind = batch["features"][:, 0].astype(np.float64)
    wind = np.tanh(wind / WIND_SCALE) if name == "tanh(u10)" else wind
    return _columns(*annual_columns(batch["dates"].astype("datetime64[s]")), wind)


def annual_columns(dates: npt.NDArray[np.datetime64]) -> tuple[Any, Any, Any]:
    """Return 1 and the annual cycle of dates (N,), as columns of a design: 1, (N, 1, 1) twice."""
    days = dates.astype("datetime64[D]")
    day = (days - days.astype("datetime64[Y]")).astype(float) + 1
    angle = (2 * np.pi * day / 365.25)[:, None, None]
    return 1.0, np.cos(angle), np.sin(angle)


def _columns(*columns: Any) -> Floats:
    return np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.float64)


def _solve(design: Floats, y: Floats, ridge: float = 0.0) -> Floats:
    """Return the coefficients (H, W, K) of least squares over the dates."""
    gram = np.einsum("nhwk,nhwl->hwkl", design, design)
    if ridge:
        gram = gram + ridge * len(design) * np.eye(design.shape[-1])
    right_side = np.einsum("nhwk,nhw->hwk", design, y)
    coefficients: Floats = np.linalg.solve(gram, right_side[..., None])[..., 0]
    return coefficients


def _product(design: Floats, coefficients: Floats) -> Floats:
    product: Floats = np.einsum("nhwk,hwk->nhw", design, coefficients)
    return product


def _all_dates(
    store: Path, split: Literal["train", "test"]
) -> tuple[Batch, npt.NDArray[np.datetime64]]:
    """Return all dates of a split as one batch, and their start times."""
    data = Batches(store, "t2m", ["u10"], split, members=True, shuffle=False, normalise=False)
    return data.batch(data.index), data.samples.time[data.index]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command_parser("python -m ens10.experiments.runner.pointwise")
    parser.add_argument("work", type=Path, help="folder of the worlds, as of the matrix")
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--grid", default=WorldSize().grid, help="of the worlds, rows x columns")
    options = parser.parse_args(arguments)
    lines = []
    for seed in range(options.seeds):
        folder = options.work / f"seed{seed}"
        store = store_of(folder, seed, WorldSize(options.grid))
        scores = attained_skill(World.load(folder / "world"), store)
        lines.append([scores[name] for name in DESIGNS])
        print(f"seed {seed}: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()), flush=True)
    for name, values in zip(DESIGNS, np.transpose(lines), strict=True):
        print(f"[1, cos, sin, {name}]: attained skill {np.mean(values):.1f} % (mean of the seeds)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
