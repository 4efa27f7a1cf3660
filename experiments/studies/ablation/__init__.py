"""Ablations: what one part of a model or of its data is worth, one YAML for each question.

`spec` reads a YAML of `experiments/ablations` (or your own), `cells` makes cells of its variants
and applies a training to other data, `tables` makes the table of paired differences,
`member_sensitivity` counts how many raw members a forecast from few members is worth.

    python -m ens10.experiments.studies.ablation loss WORK --out OUT
"""
