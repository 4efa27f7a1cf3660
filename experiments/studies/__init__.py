"""Studies: lists of cells for `ens10.experiments.runner`, and tables of their results.

Each is a command, `python -m ens10.experiments.studies.NAME`; `ens10 reproduce` is the largest.
"""
