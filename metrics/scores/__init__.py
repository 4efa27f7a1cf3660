"""Scores that `verify` and `ens10 score` compute by name; each module adds some.

Each module defines `STATISTICS`, quantities at points whose weighted means are kept as sums, and
`METRICS`, pure functions of these means. `registry` collects them from all modules.
"""
