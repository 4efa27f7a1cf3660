"""Names of the scores of `ens10 score`, without importing them.

Written by `python tests/score_lists.py` from `ens10.metrics.scores.registry.METRICS`.
"""

SCORES = (
    "crps",
    "crps_fair",
    "rmse",
    "bias",
    "spread_error",
    "log_score",
    "brier_THRESHOLD",
    "twcrps_THRESHOLD",
    "quantile_score_LEVEL",
    "acc",
    "pod_THRESHOLD",
    "far_THRESHOLD",
    "frequency_bias_THRESHOLD",
    "csi_THRESHOLD",
    "ets_THRESHOLD",
    "hss_THRESHOLD",
    "sedi_THRESHOLD",
    "accuracy_THRESHOLD",
    "peirce_THRESHOLD",
    "mcc_THRESHOLD",
    "f1_THRESHOLD",
    "eecrps",
    "eecrps_weighted",
    "coverage_SHARE",
    "width_SHARE",
    "interval_score_SHARE",
    "brier_local_LEVEL",
    "twcrps_local_LEVEL",
    "histogram",
    "hersbach",
)
