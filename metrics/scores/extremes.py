"""CRPS weighted by the extreme forecast index (EFI) of the raw ensemble: EECRPS."""

from collections.abc import Sequence

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.statistic import Floats, Metric, PointStatistic


def _eecrps(pair: Pair, number: float | None = None) -> Array:  # noqa: ARG001
    """Return the CRPS times |EFI|."""
    score: Array = np.abs(pair.efi) * pair.field("crps")
    return score


def _abs_efi(pair: Pair, number: float | None = None) -> Array:  # noqa: ARG001
    """Return |EFI|, NaN where the CRPS is NaN."""
    return np.where(np.isnan(pair.field("crps")), np.nan, np.abs(pair.efi))


def _ratio(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = means[0] / means[1]
    return ratio


STATISTICS = (
    PointStatistic("eecrps", _eecrps, needs_also="efi"),
    PointStatistic("abs_efi", _abs_efi, "1", needs_also="efi"),
)
# Both normalisations are functions of the same sums, and have the same skill.
METRICS = (
    Metric("eecrps", "mean of CRPS times |EFI|", ("eecrps", "abs_efi"), skill="eecrpss"),
    Metric("eecrps_weighted", "mean CRPS weighted by |EFI|", ("eecrps", "abs_efi"), finish=_ratio),
)
