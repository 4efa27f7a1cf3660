"""The runner of studies: cells that are computed once, kept small, and shared by processes.

A cell is one result, such as one model trained with one seed on one data set. `key` says when a
kept cell is valid, `results` keeps the cells of a study in one file, `claims` lets processes and
machines share the work, `running` computes cells in processes of their own, `trainings` has the
cells that train a configuration, `tasks` their tasks and synthetic worlds, `tries` the tries of the
learning rate, `tables` the table of many models and seeds. A study (`ens10.experiments.studies`) is
a list of cells and its tables.

    python -m ens10.experiments.studies.matrix WORK --out OUT --seeds 3
"""

RESULT_VERSION = 1
