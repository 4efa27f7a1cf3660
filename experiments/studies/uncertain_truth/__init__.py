"""Whether the ranking of methods survives errors of the truth.

    python -m ens10.experiments.studies.uncertain_truth OUT
    python -m ens10.experiments.studies.uncertain_truth OUT --store STORE --work WORK

Methods are trained on and scored against analyses: the true state with normal errors, either random
or correlated with those of the forecast model. The true state is known at made-up stations, and in
a store whose truth is that of a simulated world.
"""

RESULT_VERSION = 1  # raise it when results change
