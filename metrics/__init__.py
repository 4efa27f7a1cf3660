"""Verification scores of probabilistic forecasts.

Scores take numpy arrays, torch tensors, DataArrays or dask arrays and return the same type;
`dim`, `weights` and `nan` control the mean. Diagrams and decompositions are Datasets, computed
from additive sums. `docs/scores.md` lists all scores. The generic `crps`, `log_score`, `pit`,
`mean` and `variance` of families of distributions are in `ens10.metrics.families`, figures in
`ens10.metrics.figures`.
"""

if __name__ == "metrics":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.metrics, not as metrics")

from ens10.grid import area_weights
from ens10.metrics import calibration, events, multivariate
from ens10.metrics.calibration import *  # noqa: F403
from ens10.metrics.crps import Estimator, crps_ensemble
from ens10.metrics.distributions.bernstein import crps_bernstein
from ens10.metrics.distributions.censored_gev import crps_censored_gev
from ens10.metrics.distributions.csgd import crps_csgd
from ens10.metrics.distributions.gamma import crps_gamma
from ens10.metrics.distributions.gev import crps_gev
from ens10.metrics.distributions.logistic import (
    crps_censored_logistic,
    crps_logistic,
    crps_truncated_logistic,
)
from ens10.metrics.distributions.lognormal import crps_lognormal
from ens10.metrics.distributions.mixture import (
    crps_normal_mixture,
    log_score_normal_mixture,
    pit_normal_mixture,
    quantile_normal_mixture,
)
from ens10.metrics.distributions.normal import (
    crps_censored_normal,
    crps_normal,
    crps_truncated_normal,
)
from ens10.metrics.distributions.skew_normal import crps_skew_normal
from ens10.metrics.distributions.student_t import crps_student_t
from ens10.metrics.events import *  # noqa: F403
from ens10.metrics.extremes import (
    FrozenEFI,
    Origin,
    cpf,
    eecrps,
    eecrps_state,
    efi,
    finish_eecrps,
    frozen_efi,
    origin,
    sot,
)
from ens10.metrics.families import (
    FAMILIES,
    censored_log_score,
    conditional_log_score,
    log_score,
    pit,
    pit_interval,
    twcrps,
)
from ens10.metrics.groups import (
    BANDS,
    date_groups,
    group_masks,
    land_sea,
    latitude_bands,
    region_boxes,
)
from ens10.metrics.multivariate import *  # noqa: F403
from ens10.metrics.scores.anomaly_correlation import anomaly_correlation
from ens10.metrics.scores.contingency import contingency_scores
from ens10.metrics.state_merging import merge_states
from ens10.metrics.states import finish_mean, group_state, mean_state, skill_score, total_over
from ens10.metrics.uncertainty import (
    Interval,
    automatic_block_length,
    benjamini_hochberg,
    daily_differences,
    diebold_mariano,
    holm,
    interval,
    paired_differences,
)
from ens10.metrics.verification import (
    EFIOptions,
    ScoringOptions,
    available_scores,
    monthly_climatology,
    monthly_quantiles,
    register_score,
    score_states,
    summarise,
    verify,
)
from ens10.metrics.weighted import (
    owcrps_ensemble,
    qwcrps_ensemble,
    twcrps_ensemble,
    twcrps_normal,
)

RESULT_VERSION = 1  # raise it when results change
__all__ = [
    "BANDS",
    "FAMILIES",
    "EFIOptions",
    "Estimator",
    "FrozenEFI",
    "Interval",
    "Origin",
    "ScoringOptions",
    "anomaly_correlation",
    "area_weights",
    "automatic_block_length",
    "available_scores",
    "benjamini_hochberg",
    "censored_log_score",
    "conditional_log_score",
    "contingency_scores",
    "cpf",
    "crps_bernstein",
    "crps_censored_gev",
    "crps_censored_logistic",
    "crps_censored_normal",
    "crps_csgd",
    "crps_ensemble",
    "crps_gamma",
    "crps_gev",
    "crps_logistic",
    "crps_lognormal",
    "crps_normal",
    "crps_normal_mixture",
    "crps_skew_normal",
    "crps_student_t",
    "crps_truncated_logistic",
    "crps_truncated_normal",
    "daily_differences",
    "date_groups",
    "diebold_mariano",
    "eecrps",
    "eecrps_state",
    "efi",
    "finish_eecrps",
    "finish_mean",
    "frozen_efi",
    "group_masks",
    "group_state",
    "holm",
    "interval",
    "land_sea",
    "latitude_bands",
    "log_score",
    "log_score_normal_mixture",
    "mean_state",
    "merge_states",
    "monthly_climatology",
    "monthly_quantiles",
    "origin",
    "owcrps_ensemble",
    "paired_differences",
    "pit",
    "pit_interval",
    "pit_normal_mixture",
    "quantile_normal_mixture",
    "qwcrps_ensemble",
    "region_boxes",
    "register_score",
    "score_states",
    "skill_score",
    "sot",
    "summarise",
    "total_over",
    "twcrps",
    "twcrps_ensemble",
    "twcrps_normal",
    "verify",
]
__all__ += calibration.__all__
__all__ += events.__all__
__all__ += multivariate.__all__
