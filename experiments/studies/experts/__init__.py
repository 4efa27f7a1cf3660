"""What experts bring: one trunk with and without experts, an embedding of each point, and a start.

    python -m ens10.experiments.studies.experts WORK --out experiments/results/experts

`variants.yaml` names the arms and, before any training, the contrasts that answer the question.
All arms have the same trunk, inputs, epochs and schedule. Each differs from another in one of:
experts in place of the convolutions, an embedding of each grid point, and the start at EMOS with
the day of the year.
"""

RESULT_VERSION = 1  # raise it when results change
