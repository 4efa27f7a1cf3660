"""Maps that the gates of a mixture of experts learn, in worlds whose regions are known.

    python -m ens10.experiments.studies.gates WORK --out experiments/results/gates

Variants of a small U-Net differ in its last layer: a convolution, or one of four experts at each
point, selected by the true map, a wrong one, or gates that are learned or start at regions found in
the training data.
"""

RESULT_VERSION = 1  # raise it when results change
