"""The papers' tables: every model, target and ensemble size, beside what was published.

`published` holds the papers' numbers.
"""
