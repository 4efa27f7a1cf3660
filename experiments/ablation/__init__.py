"""Ablations: what one part of a model or of its data is worth, each asked by one YAML.

`spec` reads a YAML of `experiments/ablations` (or your own), `cells` makes cells of its variants,
which `ens10.experiments.matrix` does, `carrying` takes a training to other data, `thinned` makes
data of fewer points, `running` is the process of a cell, `results` and `pages` make the table of
paired differences, `given` draws how many raw members a forecast from few members is worth.

    python -m ens10.experiments.ablation loss WORK --out OUT
"""
