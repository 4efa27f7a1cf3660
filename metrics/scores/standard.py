"""The usual scores: CRPS, errors of the mean, spread, Brier, quantiles, intervals, EECRPS."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.calibration import spread_inflation
from ens10.metrics.states import Floats, Metric, PointStatistic


def _field(name: str) -> Callable[..., Array]:
    """The values that a case computes itself."""

    def values(case: Any, number: float | None = None) -> Array:
        computed: Array = case.field(name, number)
        return computed

    return values


def _root(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    root: Floats = np.sqrt(means[0])
    return root


def _ratio_of_roots(means: Sequence[Floats], members: int | None) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.sqrt(spread_inflation(members) * means[1] / means[0])
    return ratio


def _ratio(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = means[0] / means[1]
    return ratio


STATISTICS = (
    PointStatistic("crps", _field("crps"), on_map=True),
    PointStatistic("crps_fair", _field("crps_fair"), on_map=True),
    PointStatistic("error", _field("error")),
    PointStatistic("error2", _field("error2"), "truth2"),
    PointStatistic("variance", _field("variance"), "truth2"),
    PointStatistic("log_score", _field("log_score"), "1"),
    PointStatistic("brier", _field("brier"), "1"),
    PointStatistic("quantile_score", _field("quantile_score")),
    PointStatistic("coverage", _field("coverage"), "1"),
    PointStatistic("width", _field("width")),
    PointStatistic("eecrps", _field("eecrps"), extra="efi"),
    PointStatistic("abs_efi", _field("abs_efi"), "1", extra="efi"),
)
METRICS = (
    Metric(
        "crps", "mean continuous ranked probability score", ("crps",), skill="crpss", usual=True
    ),
    Metric(
        "crps_fair",
        "mean fair continuous ranked probability score",
        ("crps_fair",),
        skill="crpss_fair",
        least_members=2,
        usual=True,
    ),
    Metric("rmse", "root mean squared error of the mean", ("error2",), finish=_root, usual=True),
    Metric("bias", "mean of the forecast less the truth", ("error",)),
    Metric(
        "spread_error",
        "ratio of spread to root mean squared error",
        ("error2", "variance"),
        "1",
        _ratio_of_roots,
        least_members=2,
        usual=True,
    ),
    Metric("log_score", "mean logarithmic score", ("log_score",), "1"),
    Metric(
        "brier",
        "Brier score of values above {}",
        ("brier",),
        "1",
        skill="brier_skill",
        number="threshold",
    ),
    Metric(
        "quantile_score",
        "mean quantile score at level {}",
        ("quantile_score",),
        skill="quantile_skill",
        number="level",
    ),
    Metric(
        "coverage",
        "share of truth within the central interval of probability {}",
        ("coverage",),
        "1",
        number="share",
    ),
    Metric(
        "width", "mean width of the central interval of probability {}", ("width",), number="share"
    ),
    # Both normalisations are functions of the same sums, and have the same skill.
    Metric("eecrps", "mean of CRPS times |EFI|", ("eecrps", "abs_efi"), skill="eecrpss"),
    Metric("eecrps_weighted", "mean CRPS weighted by |EFI|", ("eecrps", "abs_efi"), finish=_ratio),
)
