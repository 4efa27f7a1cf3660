"""Studies: lists of cells for `ens10.experiments.runner`, and tables of their results.

Each is a command, `python -m ens10.experiments.studies.NAME`, of a checkout: the installed package
leaves them out. `study` has what their commands share, `json_cells` cells whose result is one JSON
file, `short_training` trainings without logs and checkpoints. Variants and labels are in YAML.
"""
