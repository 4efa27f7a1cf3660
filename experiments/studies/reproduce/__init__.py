"""The papers' tables: every model, target and ensemble size, beside what was published.

`arguments` are the command's options, `command` says which cells a table needs and has them
computed, `tables` makes columns of them beside the values of `published` and writes the files.

    ens10 reproduce --store STORE --protocol paper --out OUT
"""
