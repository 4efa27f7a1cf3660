"""The papers' tables: every model, target and ensemble size, beside what was published.

`arguments` are the command's options, `plan` says which cells a table needs, `command` has them
done by `ens10.experiments.matrix`, `results` reads them, `papertable` and `skill` make columns of
them beside the values of `published`, and `pages` writes the files.

    ens10 reproduce --store STORE --protocol paper --out OUT
"""
