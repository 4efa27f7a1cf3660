"""The papers' tables: every model, target and ensemble size, beside the published values.

`arguments` has the command's options, `command` finds the cells of a table and computes them,
`tables` makes columns of them beside the values of `published` and writes the files.

    ens10 reproduce --store STORE --protocol paper --out OUT
"""
