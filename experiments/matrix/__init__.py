"""Many models, seeds and worlds: cells that are done once, kept small, and shared by processes.

A cell is one model trained with one seed on that seed's world. `worlds` makes the data, `identity`
says when a finished cell still counts, `claims` lets several processes or machines share the
work, `running` does a cell, `keeping` holds its small results, `summary` makes the table of all.

    python -m ens10.experiments.matrix WORK --out OUT --seeds 3
"""
